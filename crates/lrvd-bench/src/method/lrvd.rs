//! The methods of [`lrvd_burn::train`] under the settings of an experiment: LoRA, AdaLoRA, `BayesLoRA`
//! and its variants of other families, another prior, no pruning.
//!
//! A variant is `BayesLoRA` with some settings replaced. Parameters per layer of rank `r`:
//!
//! | Key | Replaced | Parameters |
//! |---|---|---|
//! | `bayeslora-fixed` | no pruning | `r·(d_input + d_output + 1)` |
//! | `lrvd-nts` | multiplicative noise `α·μ²` per rank, from `ln α = −4`, at a separate rate | the same |
//! | `lrvd-element` | a variance per entry | `2·r·(d_input + d_output)` |
//! | `lrvd-a-only` | one variance per rank, B deterministic | `r·(d_input + d_output + 1)` |
//! | `lrvd-ard` | a Gaussian prior whose scale per rank is learnt | `r·(d_input + d_output + 1)` |
//!
//! Sources: Doyle et al., arXiv:2506.22809 (`bayeslora-*`; the multiplicative family is that of its
//! equations); Molchanov et al. 2017, arXiv:1701.05369 (a variance per entry); MacKay 1995 (relevance
//! determination).

use lrvd_burn::BayesLora;
use lrvd_burn::adapter::Prior;
use lrvd_burn::train::{AdaLora, BayesLoraMethod, Lora, Pruning, RankSearch};
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::posterior::VariationalFamily;
use lrvd_core::prune::PruneRule;

use super::RankRequest;
use super::setup::rate_to_reach;
use crate::error::Result;
use crate::settings::{ArdSettings, Config, KlWeight, RankSearchSettings};

/// LoRA at the requested rank, with the scaling `c` of the settings' rank.
pub(super) fn lora(config: &Config, request: RankRequest) -> Result<Lora> {
    Ok(Lora {
        rank: request.rank(config),
        lora_alpha: request.lora_alpha(config),
        dropout: config.adapter_dropout,
        b_bound: config.lora_b_bound,
    })
}

pub(super) fn adalora(config: &Config, request: RankRequest) -> Result<AdaLora> {
    let steps = |share: f64| config.share(share) as u32;
    let schedule = AdaLoraConfig {
        init_r: config.initial_rank,
        target_r: request.rank(config).min(config.initial_rank),
        tinit: steps(config.adalora.initial),
        tfinal: steps(config.adalora.last),
        delta_t: steps(config.adalora.every).max(1),
        total_step: config.steps as u32,
        beta1: config.adalora.beta,
        beta2: config.adalora.beta,
        orth_reg_weight: config.adalora.orthogonal_weight,
    };
    let alpha = config.lora_alpha;
    let dropout = config.adapter_dropout;
    Ok(AdaLora::new(schedule, alpha, dropout, config.adalora.placement)?)
}

/// Without prunes there is no search either.
pub(super) fn fixed(config: &Config, request: RankRequest) -> Result<BayesLoraMethod> {
    let mut config = config.clone();
    config.prune.end = 0.0;
    if config.kl_weight == KlWeight::Auto {
        config.kl_weight = KlWeight::Fixed(UNPRUNED_SHARE);
    }
    bayes_lora(&config, request)
}

pub(super) fn nts(config: &Config, request: RankRequest) -> Result<BayesLoraMethod> {
    bayes_lora(&noise_to_signal(config.clone())?, request)
}

pub(super) fn element(config: &Config, request: RankRequest) -> Result<BayesLoraMethod> {
    bayes_lora(&of_family(config, VariationalFamily::ElementVariance), request)
}

pub(super) fn a_only(config: &Config, request: RankRequest) -> Result<BayesLoraMethod> {
    bayes_lora(&of_family(config, VariationalFamily::AsymRankVariance), request)
}

pub(super) fn ard(config: &Config, request: RankRequest) -> Result<BayesLoraMethod> {
    let ArdSettings { scales, hyper } = config.methods.lrvd_ard;
    let prior = Prior::Ard { scales, hyper };
    let config = Config { prior, ..of_family(config, VariationalFamily::RankVariance) };
    bayes_lora(&config, request)
}

fn of_family(config: &Config, family: VariationalFamily) -> Config {
    Config { family, ..config.clone() }
}

/// `BayesLoRA`. Its rank is that of the settings.
pub(super) fn bayes_lora(config: &Config, _rank: RankRequest) -> Result<BayesLoraMethod> {
    let rule = PruneRule::new(config.prune.log_alpha_threshold, config.prune.min_rank)?;
    let (kl_weight, noise_rate_factor) = match config.kl_weight {
        KlWeight::Fixed(weight) => (weight, config.log_variance.learning_rate_factor),
        KlWeight::Auto => (0.0, searched_noise_rate(config)?),
    };
    let posterior = BayesLora {
        rank: config.initial_rank,
        lora_alpha: config.lora_alpha,
        dropout: config.adapter_dropout,
        family: config.family,
        initial: config.log_variance.initial,
        noise_rate_factor,
        prior: config.prior,
        kl_reduction: config.kl_reduction,
        kl_weight,
        scheme: Some(config.training_scheme.scheme()),
        rule,
        statistic: config.statistic_options(),
    };
    Ok(BayesLoraMethod {
        posterior,
        weight_decay: config.adapter_weight_decay,
        kl_warmup: config.share(config.kl_warmup) as u32,
        kl_divisor: config.kl_divisor,
        pruning: config.prune_schedule().map(|schedule| Pruning {
            schedule,
            placement: config.prune.placement,
            optimizer: config.prune.optimizer,
        }),
    })
}

/// The search of an automatic weight.
pub(super) fn search(config: &Config) -> RankSearch {
    let RankSearchSettings { margin, refine, rate, log_alpha, noise, .. } = config.rank_search;
    RankSearch {
        margin,
        min_rank: config.prune.min_rank,
        refine_steps: if refine > 0.0 { config.share(refine).max(1) } else { 0 },
        refine_rate: rate,
        log_alpha,
        statistic: config.statistic_options(),
        noise,
    }
}

/// The factor of its noise's rate: from `log_alpha` to as far beyond 0 in the refinement.
fn searched_noise_rate(config: &Config) -> Result<f64> {
    let RankSearch { refine_steps, refine_rate, log_alpha, .. } = search(config);
    let schedule = search(config).schedule(config.warmup_ratio)?;
    let factors = (0..refine_steps as u32).map(|step| schedule.factor(step));
    let reach = config.learning_rate * refine_rate * factors.sum::<f64>();
    let least = config.log_variance.learning_rate_factor;
    Ok(if reach > 0.0 { least.max(2.0 * log_alpha.abs() / reach) } else { least })
}

/// Share of the evidence bound in a run without prunes whose weight would be automatic.
const UNPRUNED_SHARE: f64 = 0.01;
/// The rate of `ln α` that suits runs of the published length.
const NOISE_RATE: f64 = 2e-2;

fn noise_to_signal(mut config: Config) -> Result<Config> {
    let settings = config.methods.lrvd_nts;
    let rate = match settings.learning_rate {
        Some(rate) => rate,
        None => noise_rate(&config, settings.initial)?,
    };
    config.family = VariationalFamily::NoiseToSignal;
    config.prior = Prior::LogUniform;
    config.log_variance.initial = settings.initial;
    config.log_variance.learning_rate_factor = rate / config.learning_rate;
    // A means' rate of nearly 0 has no factor.
    config.checked()
}

/// `max(0.02, |threshold − initial| / Σ_t factor(t))`: a slower one could not reach the threshold within the run.
fn noise_rate(config: &Config, initial: f64) -> Result<f64> {
    let distance = (config.prune.log_alpha_threshold - initial).abs();
    Ok(rate_to_reach(config, distance)?.max(NOISE_RATE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::MethodName;
    use crate::settings::Preset;

    #[test]
    fn an_automatic_weight_searches_and_its_noise_can_cross_the_threshold() {
        let config = Config { steps: 400, ..Preset::Default.config() };
        let method = bayes_lora(&config, RankRequest::Initial).unwrap();
        let found = MethodName::BAYES_LORA.search(&config).unwrap();
        assert_eq!((found.margin, found.refine_steps, found.refine_rate), (0.01, 40, 0.1));
        assert_eq!((found.noise, found.log_alpha), (0.01, -4.0));
        // From -4 to 4: warm-up over 2 of 40 steps, then falling to 0, at a tenth of the rate.
        let reach: f64 = 0.5 + (2..40).map(|step| f64::from(40 - step) / 38.0).sum::<f64>();
        let expected = 8.0 / (1e-4 * reach);
        let found = method.posterior.noise_rate_factor;
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        let fixed = fixed(&config, RankRequest::Initial).unwrap();
        assert_eq!(fixed.posterior.kl_weight, 0.01);
        let ard = ard(&config, RankRequest::Initial).unwrap();
        assert!(matches!(ard.posterior.prior, Prior::Ard { .. }), "{:?}", ard.posterior.prior);
        let short = Config { steps: 2, ..config };
        assert_eq!(search(&short).refine_steps, 1);
        let mut plain = Config { kl_weight: KlWeight::Fixed(0.02), ..short };
        plain.log_variance.learning_rate_factor = 3.0;
        for build in [self::fixed, element, a_only, self::ard] {
            let method = build(&plain, RankRequest::Initial).unwrap();
            let BayesLora { noise_rate_factor, kl_weight, .. } = method.posterior;
            assert_eq!((noise_rate_factor, kl_weight), (3.0, 0.02));
        }
    }

    #[test]
    fn a_long_run_has_the_published_rate_and_a_short_one_reaches_the_threshold() {
        let long = Preset::ConstantWeight.reasoning_config();
        assert_eq!(noise_rate(&long, -4.0).unwrap(), NOISE_RATE);
        // Without warm-up the factors of 100 steps are 1, 0.99, …, 0.01: they sum to 50.5.
        let short = Config { steps: 100, warmup_ratio: 0.0, ..long };
        let rate = noise_rate(&short, -4.0).unwrap();
        assert!((rate - 8.0 / 50.5).abs() < 1e-12, "{rate}");
        let changed = noise_to_signal(short).unwrap();
        let factor = changed.log_variance.learning_rate_factor;
        assert!((factor * changed.learning_rate - rate).abs() < 1e-12);
    }
}
