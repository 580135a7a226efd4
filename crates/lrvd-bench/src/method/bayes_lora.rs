//! BayesLoRA: a diagonal Gaussian over rank directions, pruned while it trains.
//!
//! Objective: mean negative log-likelihood under the sampled adapter plus
//! `kl_weight / divisor · Σ KL`. Parameters: LoRA's, and one number per rank (per entry in the
//! element-wise family). Source: Doyle et al., arXiv:2506.22809.

use std::collections::BTreeMap;

use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::{ranks, total_kl};
use lrvd_burn::prune::{self, PruneEvent};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::prune::{PruneRule, StatisticOptions};
use lrvd_core::schedule::KlSchedule;

use super::{
    Method, MethodError, RankChange, RankRequest, Regulariser, StepSizes, StepState, Tuning,
};
use crate::backbone::TaskModel;
use crate::record::RankCause;
use crate::settings::{ExperimentConfig, OptimizerOnPrune, PrunePlacement};

/// BayesLoRA.
pub(super) fn build(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    Ok(Box::new(BayesLora::new(config)?))
}

/// BayesLoRA.
#[derive(Clone, Debug)]
pub(super) struct BayesLora {
    config: ExperimentConfig,
    adapter: AdapterConfig,
    schedule: KlSchedule,
    rule: PruneRule,
    statistic: StatisticOptions,
}

impl BayesLora {
    pub(super) fn new(config: &ExperimentConfig) -> Result<Self, MethodError> {
        let kind = AdapterKind::Variational {
            family: config.family,
            initial: config.log_variance.initial,
        };
        let adapter = AdapterConfig {
            kind,
            rank: config.initial_rank,
            lora_alpha: config.lora_alpha,
            dropout: config.adapter_dropout,
        };
        let warmup = config.share(config.kl_warmup) as u32;
        let schedule = KlSchedule::linear_warmup(config.kl_weight, warmup)?;
        let rule = PruneRule::new(config.prune.log_alpha_threshold, config.prune.min_rank)?;
        let statistic = config.statistic_options();
        Ok(Self { config: config.clone(), adapter, schedule, rule, statistic })
    }

    fn prune(&self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        let total = |model: &TaskModel| ranks(model).iter().map(|(_, r)| r).sum::<usize>();
        let before = total(state.model);
        let event = prune::plan(state.model, &self.rule, self.statistic)?;
        let reset = match self.config.prune.optimizer {
            OptimizerOnPrune::Slice => false,
            OptimizerOnPrune::Reset => true,
            OptimizerOnPrune::ResetIfChanged => !event.changed.is_empty(),
        };
        if reset {
            state.optimizer.reset();
            state.gradients.remove_where(|name| {
                name.rsplit_once('.').is_some_and(|(path, _)| event.changed.contains(path))
            });
        }
        prune::apply(state.model, &event, Some(state.optimizer), None);
        Ok(Some(RankChange {
            cause: RankCause::Prune,
            before,
            after: total(state.model),
            removed: removed(&event),
            skip_next_update: reset,
        }))
    }
}

/// Statistics of the directions that `event` drops.
fn removed(event: &PruneEvent) -> BTreeMap<String, Vec<f64>> {
    let dropped = |path: &String| -> Vec<f64> {
        let kept = &event.kept[path];
        let all = event.statistics[path].iter().enumerate();
        all.filter(|(i, _)| !kept.contains(i)).map(|(_, &value)| value).collect()
    };
    event.changed.iter().map(|path| (path.clone(), dropped(path))).collect()
}

impl Tuning for BayesLora {
    fn adapter(&self) -> AdapterConfig {
        self.adapter
    }

    fn is_variational(&self) -> bool {
        true
    }

    fn training_scheme(&self) -> Scheme {
        self.config.training_scheme.scheme()
    }

    fn regularise(
        &self,
        model: &TaskModel,
        _pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        let divisor = self.config.kl_divisor.divisor(sizes.batch)?;
        Ok(Regulariser {
            kl: total_kl(model, self.config.prior, self.config.kl_reduction),
            kl_weight: self.schedule.weight(sizes.step as u32),
            divisor,
            penalty: None,
        })
    }

    fn before_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        // The authors' loop looks at the step it is about to update.
        let due = self.config.prune_due(state.sizes.step);
        match self.config.prune.placement {
            PrunePlacement::BeforeBackward if due => self.prune(state),
            _ => Ok(None),
        }
    }

    fn after_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        let due = self.config.prune_due(state.sizes.step + 1);
        match self.config.prune.placement {
            PrunePlacement::AfterUpdate if due => self.prune(state),
            _ => Ok(None),
        }
    }
}
