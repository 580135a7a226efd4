//! LoRA at a uniform rank, and AdaLoRA, whose singular values are masked to a falling budget by their sensitivity.

use std::collections::BTreeMap;

use lrvd_core::adalora::{AdaLoraConfig, AdaLoraState, EntryImportance, TripletImportance};
use serde::{Deserialize, Serialize};

use super::allocator::{BudgetAllocator, orthogonality};
use super::config::TrainConfig;
use super::data::Model;
use super::method::{Method, MethodState, Setup, StepContext, StepState, UpdatePhase};
use super::state::{RankCause, RankMasks, ranks_in_use};
use crate::adapter::{AdapterConfig, AdapterKind};
use crate::error::Error;
use crate::files::HostTensor;
use crate::objective::Objective;

/// LoRA, the maximum-likelihood baseline.
///
/// Objective: mean negative log-likelihood. Parameters: `rank·(d_input + d_output)` per layer.
/// Source: Hu et al. 2021, arXiv:2106.09685.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lora {
    /// Rank of every adapter; 8 by default.
    pub rank: usize,
    /// Numerator of the scaling; 16 by default.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input; 0 by default.
    pub dropout: f64,
    /// Half-width of B's uniform initial values; at 0, the default, training starts at the base model.
    pub b_bound: f64,
}

impl Default for Lora {
    fn default() -> Self {
        Self { rank: 8, lora_alpha: 16.0, dropout: 0.0, b_bound: 0.0 }
    }
}

impl<M: Model> Method<M> for Lora {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error> {
        let Self { rank, lora_alpha, dropout, b_bound } = *self;
        let kind = AdapterKind::Lora { b_bound };
        Ok(Setup::new(AdapterConfig { kind, rank, lora_alpha, dropout }, config))
    }
}

/// AdaLoRA.
///
/// Objective: mean negative log-likelihood plus the orthogonality penalty. Parameters:
/// `rank·(d_input + d_output + 1)` per layer at the initial rank; masked triplets are cut from the
/// model that is kept. Source: Zhang et al. 2023, arXiv:2303.10512.
#[derive(Clone, Debug)]
pub struct AdaLora {
    lora_alpha: f64,
    dropout: f64,
    schedule: AdaLoraConfig,
    placement: UpdatePhase,
    allocator: Option<BudgetAllocator>,
}

impl AdaLora {
    /// AdaLoRA with the budget of `schedule`, scaled by `lora_alpha` over the initial rank. Singular values outside the budget
    /// are set to zero at `placement`: after the update as in the reference implementation, or before it, which then
    /// moves masked values off zero again.
    pub fn new(
        schedule: AdaLoraConfig,
        lora_alpha: f64,
        dropout: f64,
        placement: UpdatePhase,
    ) -> Result<Self, Error> {
        schedule.check()?;
        Ok(Self { lora_alpha, dropout, schedule, placement, allocator: None })
    }
}

impl<M: Model> Method<M> for AdaLora {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, Error> {
        let (kind, rank) = (AdapterKind::AdaLora, self.schedule.init_r);
        let Self { lora_alpha, dropout, .. } = *self;
        Ok(Setup::new(AdapterConfig { kind, rank, lora_alpha, dropout }, config))
    }

    fn objective(
        &self,
        model: &M,
        _step: &StepContext,
        likelihood: Objective,
    ) -> Result<Objective, Error> {
        let weight = self.schedule.orth_reg_weight;
        let penalty = if weight > 0.0 { orthogonality(model) } else { None };
        Ok(Objective { penalty: penalty.map(|p| p.mul_scalar(weight)), ..likelihood })
    }

    fn update(
        &mut self,
        phase: UpdatePhase,
        step: StepState<'_, M>,
    ) -> Result<Option<RankCause>, Error> {
        if phase != self.placement {
            return Ok(None);
        }
        let total =
            |model: &M, masks: &RankMasks| ranks_in_use(model, masks).values().sum::<usize>();
        let before = total(step.model, step.rank_masks);
        let allocator = match &mut self.allocator {
            Some(allocator) => allocator,
            none => none.insert(BudgetAllocator::new(self.schedule, step.model)?),
        };
        allocator.update(step.context.step as u32, step.model, step.gradients)?;
        if let Some(mask) = allocator.mask() {
            *step.rank_masks =
                allocator.paths().iter().cloned().zip(mask.iter().cloned()).collect();
        }
        let is_changed = total(step.model, step.rank_masks) != before;
        Ok(is_changed.then_some(RankCause::Budget))
    }

    fn state(&self) -> MethodState {
        let Some(allocator) = &self.allocator else { return MethodState::default() };
        let state = allocator.state();
        let mut tensors = BTreeMap::new();
        for (i, module) in state.modules.iter().enumerate() {
            for (name, entries) in [("a", &module.a), ("e", &module.e), ("b", &module.b)] {
                let EntryImportance { importance, uncertainty } = entries;
                for (kind, values) in [("importance", importance), ("uncertainty", uncertainty)] {
                    let tensor = HostTensor::from_f64(&[values.len()], values);
                    let tensor = tensor.expect("the shape is the length");
                    tensors.insert(format!("adalora.{i}.{name}.{kind}"), tensor);
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
        self.allocator = Some(BudgetAllocator::from_state(self.schedule, model, state)?);
        Ok(())
    }
}
