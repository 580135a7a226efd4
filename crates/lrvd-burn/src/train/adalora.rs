//! AdaLoRA: singular values masked to a falling budget by their sensitivity.
//!
//! Objective: mean negative log-likelihood plus the orthogonality penalty. Parameters:
//! `rank·(d_input + d_output + 1)` per layer at the initial rank; masked triplets are cut from the
//! model that is kept. Source: Zhang et al. 2023, arXiv:2303.10512.

use std::collections::BTreeMap;

use lrvd_core::adalora::{AdaLoraConfig, AdaLoraState, EntryImportance, TripletImportance};
use serde::{Deserialize, Serialize};

use super::method::{Method, MethodState, RankChange, StepSizes, StepState, Terms};
use super::model::Model;
use super::state::RankCause;
use crate::adalora::{AdaLora as Allocator, orthogonality};
use crate::adapter::{AdapterConfig, AdapterKind};
use crate::error::Error;
use crate::files::HostTensor;
use crate::model::ranks;
use crate::sampling::Pass;

/// When the singular values outside the budget are set to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MaskPlacement {
    /// After the optimiser's update, as the reference implementation does.
    #[default]
    AfterUpdate,
    /// Before it: the update moves masked values off zero again.
    BeforeUpdate,
}

/// AdaLoRA.
#[derive(Clone, Debug)]
pub struct AdaLora {
    lora_alpha: f64,
    dropout: f64,
    schedule: AdaLoraConfig,
    placement: MaskPlacement,
    allocator: Option<Allocator>,
}

impl AdaLora {
    /// AdaLoRA with the budget of `schedule`, scaled by `lora_alpha` over the initial rank.
    pub fn new(
        schedule: AdaLoraConfig,
        lora_alpha: f64,
        dropout: f64,
        placement: MaskPlacement,
    ) -> Result<Self, Error> {
        schedule.check()?;
        Ok(Self { lora_alpha, dropout, schedule, placement, allocator: None })
    }

    fn allocate<M: Model>(&mut self, step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        let before: usize = self.counts(step.model).values().sum();
        let allocator = match &mut self.allocator {
            Some(allocator) => allocator,
            none => none.insert(Allocator::new(self.schedule, step.model)?),
        };
        allocator.update(step.sizes.step as u32, step.model, step.gradients)?;
        let after: usize = self.counts(step.model).values().sum();
        Ok((after != before).then_some(RankChange {
            cause: RankCause::Budget,
            before,
            after,
            removed: BTreeMap::new(),
            skip_next_update: false,
        }))
    }

    fn counts<M: Model>(&self, model: &M) -> BTreeMap<String, usize> {
        let mut found: BTreeMap<String, usize> = ranks(model).into_iter().collect();
        if let Some(allocator) = &self.allocator
            && let Some(mask) = allocator.mask()
        {
            for (path, mask) in allocator.paths().iter().zip(mask) {
                found.insert(path.clone(), mask.iter().filter(|&&keep| keep).count());
            }
        }
        found
    }
}

impl<M: Model> Method<M> for AdaLora {
    fn adapter(&self) -> AdapterConfig {
        AdapterConfig {
            kind: AdapterKind::AdaLora,
            rank: self.schedule.init_r,
            lora_alpha: self.lora_alpha,
            dropout: self.dropout,
        }
    }

    fn terms(&self, model: &M, _pass: &Pass, _sizes: StepSizes) -> Result<Terms, Error> {
        let weight = self.schedule.orth_reg_weight;
        let penalty = if weight > 0.0 { orthogonality(model) } else { None };
        Ok(Terms::penalty(penalty.map(|p| p.mul_scalar(weight))))
    }

    fn before_update(&mut self, step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        match self.placement {
            MaskPlacement::BeforeUpdate => self.allocate(step),
            MaskPlacement::AfterUpdate => Ok(None),
        }
    }

    fn after_update(&mut self, step: StepState<'_, M>) -> Result<Option<RankChange>, Error> {
        match self.placement {
            MaskPlacement::AfterUpdate => self.allocate(step),
            MaskPlacement::BeforeUpdate => Ok(None),
        }
    }

    fn ranks(&self, model: &M) -> BTreeMap<String, usize> {
        self.counts(model)
    }

    fn compact(&self, model: &mut M) {
        if let Some(allocator) = &self.allocator {
            allocator.mask_again(model);
            allocator.compact(model);
        }
    }

    fn state(&self) -> MethodState {
        let Some(allocator) = &self.allocator else { return MethodState::default() };
        let state = allocator.state();
        let mut tensors = BTreeMap::new();
        for (i, module) in state.modules.iter().enumerate() {
            let parts = [("a", &module.a), ("e", &module.e), ("b", &module.b)];
            for (name, entries) in parts {
                for (kind, values) in
                    [("importance", &entries.importance), ("uncertainty", &entries.uncertainty)]
                {
                    let tensor = HostTensor::from_f64(&[values.len()], values);
                    tensors.insert(
                        format!("adalora.{i}.{name}.{kind}"),
                        tensor.expect("the shape is the length"),
                    );
                }
            }
        }
        let values = serde_json::json!({ "modules": state.modules.len(), "mask": state.mask });
        MethodState { tensors, values }
    }

    fn restore(&mut self, model: &M, mut state: MethodState) -> Result<(), Error> {
        let Some(count) = state.values.get("modules").and_then(serde_json::Value::as_u64) else {
            return Ok(());
        };
        let mut take = |name: String| {
            let found = state.tensors.remove(&name);
            found.and_then(|t| t.to_f64().ok()).ok_or_else(|| Error::checkpoint_entry(&name))
        };
        let mut modules = Vec::new();
        for i in 0..count {
            let mut entries = |part: &str| -> Result<EntryImportance, Error> {
                Ok(EntryImportance {
                    importance: take(format!("adalora.{i}.{part}.importance"))?,
                    uncertainty: take(format!("adalora.{i}.{part}.uncertainty"))?,
                })
            };
            modules.push(TripletImportance {
                a: entries("a")?,
                e: entries("e")?,
                b: entries("b")?,
            });
        }
        let mask = serde_json::from_value(state.values["mask"].take())
            .map_err(|_| Error::checkpoint_entry("mask"))?;
        let state = AdaLoraState { modules, mask };
        self.allocator = Some(Allocator::from_state(self.schedule, model, state)?);
        Ok(())
    }
}
