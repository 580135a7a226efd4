//! AdaLoRA: singular values masked to a falling budget by their sensitivity.
//!
//! Objective: mean negative log-likelihood plus the orthogonality penalty. Parameters:
//! `rank·(d_input + d_output + 1)` per layer at the initial rank; masked triplets are cut from the
//! reported model. Source: Zhang et al. 2023, arXiv:2303.10512.

use std::collections::BTreeMap;

use lrvd_burn::adalora::{AdaLora as Allocator, orthogonality};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::ranks;
use lrvd_burn::sampling::Pass;
use lrvd_core::adalora::{AdaLoraConfig, AdaLoraState, EntryImportance, TripletImportance};

use super::{
    Method, MethodError, MethodState, RankChange, RankRequest, Regulariser, StepSizes, StepState,
    Tuning,
};
use crate::backbone::TaskModel;
use crate::record::RankCause;
use crate::settings::{ExperimentConfig, MaskPlacement};

/// AdaLoRA.
pub(super) fn build(
    config: &ExperimentConfig,
    request: RankRequest,
) -> Result<Method, MethodError> {
    let target = match request {
        RankRequest::Initial => config.initial_rank,
        RankRequest::Average(rank) => rank,
    };
    Ok(Box::new(AdaLora::new(config, target)?))
}

/// AdaLoRA.
#[derive(Clone, Debug)]
pub(super) struct AdaLora {
    config: ExperimentConfig,
    adapter: AdapterConfig,
    schedule: AdaLoraConfig,
    allocator: Option<Allocator>,
}

impl AdaLora {
    pub(super) fn new(config: &ExperimentConfig, target_rank: usize) -> Result<Self, MethodError> {
        let adapter = AdapterConfig {
            kind: AdapterKind::AdaLora,
            rank: config.initial_rank,
            lora_alpha: config.lora_alpha,
            dropout: config.adapter_dropout,
        };
        let steps = |share: f64| config.share(share) as u32;
        let schedule = AdaLoraConfig {
            init_r: config.initial_rank,
            target_r: target_rank.min(config.initial_rank),
            tinit: steps(config.adalora.initial),
            tfinal: steps(config.adalora.last),
            delta_t: steps(config.adalora.every).max(1),
            total_step: config.steps as u32,
            beta1: config.adalora.beta,
            beta2: config.adalora.beta,
            orth_reg_weight: config.adalora.orthogonal_weight,
        };
        schedule.check()?;
        Ok(Self { config: config.clone(), adapter, schedule, allocator: None })
    }

    fn allocate(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        let before: usize = self.counts(state.model).values().sum();
        let allocator = match &mut self.allocator {
            Some(allocator) => allocator,
            none => none.insert(Allocator::new(self.schedule, state.model)?),
        };
        allocator.update(state.sizes.step as u32, state.model, state.gradients)?;
        let after: usize = self.counts(state.model).values().sum();
        Ok((after != before).then_some(RankChange {
            cause: RankCause::Budget,
            before,
            after,
            removed: BTreeMap::new(),
            skip_next_update: false,
        }))
    }

    fn counts(&self, model: &TaskModel) -> BTreeMap<String, usize> {
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

impl Tuning for AdaLora {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn regularise(
        &self,
        model: &TaskModel,
        _pass: &Pass,
        _sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        let weight = self.config.adalora.orthogonal_weight;
        let penalty = if weight > 0.0 { orthogonality(model) } else { None };
        Ok(Regulariser::penalty(penalty.map(|p| p.mul_scalar(weight))))
    }

    fn before_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        match self.config.adalora.placement {
            MaskPlacement::BeforeUpdate => self.allocate(state),
            MaskPlacement::AfterUpdate => Ok(None),
        }
    }

    fn after_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        match self.config.adalora.placement {
            MaskPlacement::AfterUpdate => self.allocate(state),
            MaskPlacement::BeforeUpdate => Ok(None),
        }
    }

    fn ranks(&self, model: &TaskModel) -> BTreeMap<String, usize> {
        self.counts(model)
    }

    fn compact(&self, model: &mut TaskModel) {
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

    fn restore(&mut self, model: &TaskModel, mut state: MethodState) -> Result<(), MethodError> {
        let Some(count) = state.values.get("modules").and_then(serde_json::Value::as_u64) else {
            return Ok(());
        };
        let mut take = |name: String| {
            let found = state.tensors.remove(&name);
            found.and_then(|t| t.to_f64().ok()).ok_or(MethodError::CheckpointEntry { name })
        };
        let mut modules = Vec::new();
        for i in 0..count {
            let mut entries = |part: &str| -> Result<EntryImportance, MethodError> {
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
            .map_err(|_| MethodError::CheckpointEntry { name: "mask".to_owned() })?;
        let state = AdaLoraState { modules, mask };
        self.allocator = Some(Allocator::from_state(self.schedule, model, state)?);
        Ok(())
    }
}
