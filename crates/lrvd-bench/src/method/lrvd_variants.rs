//! Variants of `BayesLoRA`: other families, another prior, no pruning, a matched budget.
//!
//! Each is `BayesLoRA` with some settings replaced; objective, pruning and prediction are in
//! `bayes_lora`. Parameters per layer of rank `r`:
//!
//! | Key | Replaced | Parameters |
//! |---|---|---|
//! | `bayeslora-fixed` | no pruning | `r·(d_input + d_output + 1)` |
//! | `lrvd-nts` | multiplicative noise `α·μ²` per rank, from `ln α = −4`, at a rate of its own | the same |
//! | `lrvd-element` | a variance per entry | `2·r·(d_input + d_output)` |
//! | `lrvd-a-only` | one variance per rank, B deterministic | `r·(d_input + d_output + 1)` |
//! | `lrvd-ard` | a Gaussian prior whose scale per rank is learnt | `r·(d_input + d_output + 1)` |
//! | `bayeslora-expanded` | initial rank 12, 14, 16 or 20, a third of the KL weight | nearest to BLoB's |
//!
//! Sources: Doyle et al., arXiv:2506.22809 (`bayeslora-*`; the multiplicative family is that of its
//! equations); Molchanov et al. 2017, arXiv:1701.05369 (a variance per entry); MacKay 1995 (relevance
//! determination).

use lrvd_burn::adapter::{AdapterConfig, Prior};
use lrvd_burn::optimizer::ParameterGroups;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::family::VariationalFamily;
use lrvd_core::schedule::LrSchedule;

use super::bayes_lora::BayesLora;
use super::{
    Method, MethodError, RankChange, RankRequest, Regulariser, StepSizes, StepState, Tuning,
};
use crate::backbone::TaskModel;
use crate::settings::{ArdSettings, ExperimentConfig, ValidConfig};

/// `BayesLoRA` at its initial rank.
pub(super) fn build_fixed(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, |config| {
        config.prune.end = 0.0;
        Ok(())
    })
}

/// The multiplicative family.
pub(super) fn build_noise_to_signal(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, noise_to_signal)
}

/// A variance per entry.
pub(super) fn build_element(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, |config| {
        config.family = VariationalFamily::ElementVariance;
        Ok(())
    })
}

/// Noise on A only.
pub(super) fn build_a_only(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, |config| {
        config.family = VariationalFamily::AsymRankVariance;
        Ok(())
    })
}

/// The hierarchical prior.
pub(super) fn build_ard(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, ard)
}

/// One of the runs that the matched budget is chosen from.
pub(super) fn build_expanded_run(
    config: &ExperimentConfig,
    _request: RankRequest,
) -> Result<Method, MethodError> {
    variant(config, |config| {
        config.kl_weight *= config.methods.bayeslora_expanded.kl_factor;
        Ok(())
    })
}

/// The rate of `ln α` that suits runs of the published length.
const NOISE_RATE: f64 = 2e-2;

fn noise_to_signal(config: &mut ExperimentConfig) -> Result<(), MethodError> {
    let settings = config.methods.lrvd_nts;
    let rate = match settings.learning_rate {
        Some(rate) => rate,
        None => noise_rate(config, settings.initial)?,
    };
    config.family = VariationalFamily::NoiseToSignal;
    config.prior = Prior::LogUniform;
    config.log_variance.initial = settings.initial;
    config.log_variance.learning_rate_factor = rate / config.learning_rate;
    Ok(())
}

/// `max(0.02, |threshold − initial| / Σ_t factor(t))`: under Adam a parameter moves by at most its rate
/// a step, so a slower one could not reach the threshold within the run.
fn noise_rate(config: &ExperimentConfig, initial: f64) -> Result<f64, MethodError> {
    let steps = config.steps as u32;
    let schedule = LrSchedule::linear(config.warmup_steps() as u32, steps)?;
    let reach: f64 = (0..steps).map(|step| schedule.factor(step)).sum();
    let distance = (config.prune.log_alpha_threshold - initial).abs();
    Ok(if reach > 0.0 { NOISE_RATE.max(distance / reach) } else { NOISE_RATE })
}

fn ard(config: &mut ExperimentConfig) -> Result<(), MethodError> {
    let ArdSettings { scales, hyper } = config.methods.lrvd_ard;
    config.family = VariationalFamily::RankVariance;
    config.prior = Prior::Ard { scales, hyper };
    Ok(())
}

/// `BayesLoRA` under other settings than the experiment's.
#[derive(Clone, Debug)]
struct Variant {
    config: ValidConfig,
    inner: BayesLora,
}

fn variant(
    config: &ExperimentConfig,
    change: impl FnOnce(&mut ExperimentConfig) -> Result<(), MethodError>,
) -> Result<Method, MethodError> {
    let mut config = config.clone();
    change(&mut config)?;
    let config = config.validate()?;
    let inner = BayesLora::new(&config)?;
    Ok(Box::new(Variant { config, inner }))
}

impl Tuning for Variant {
    fn adapter(&self) -> AdapterConfig {
        self.inner.adapter()
    }

    fn is_variational(&self) -> bool {
        self.inner.is_variational()
    }

    fn groups(&self, _config: &ExperimentConfig) -> ParameterGroups {
        self.inner.groups(&self.config)
    }

    fn training_scheme(&self) -> Scheme {
        self.inner.training_scheme()
    }

    fn regularise(
        &self,
        model: &TaskModel,
        pass: &Pass,
        sizes: StepSizes,
    ) -> Result<Regulariser, MethodError> {
        self.inner.regularise(model, pass, sizes)
    }

    fn before_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        self.inner.before_update(state)
    }

    fn after_update(&mut self, state: StepState<'_>) -> Result<Option<RankChange>, MethodError> {
        self.inner.after_update(state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::settings::Preset;

    #[test]
    fn a_long_run_has_the_published_rate_and_a_short_one_reaches_the_threshold() {
        let long = Preset::DefaultReasoning.config();
        assert_eq!(noise_rate(&long, -4.0).unwrap(), NOISE_RATE);
        // Without warm-up the factors of 100 steps are 1, 0.99, …, 0.01: they sum to 50.5.
        let short = ExperimentConfig { steps: 100, warmup_ratio: 0.0, ..long };
        let rate = noise_rate(&short, -4.0).unwrap();
        assert!((rate - 8.0 / 50.5).abs() < 1e-12, "{rate}");
        let mut changed = short.clone();
        noise_to_signal(&mut changed).unwrap();
        let factor = changed.log_variance.learning_rate_factor;
        assert!((factor * changed.learning_rate - rate).abs() < 1e-12);
    }
}
