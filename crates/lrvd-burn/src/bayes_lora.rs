//! Configuration of BayesLoRA: adapters, posterior, prior, noise and the rule that prunes ranks.

use lrvd_core::error::check_range;
use lrvd_core::kl::KlReduction;
use lrvd_core::posterior::{INITIAL_LOG_VARIANCE, VariationalFamily};
use lrvd_core::prune::{PruneRule, StatisticOptions};

use crate::adapter::{AdapterConfig, AdapterKind, Prior};
use crate::sampling::Scheme;

/// BayesLoRA: low-rank adapters with a Gaussian posterior over their rank directions.
///
/// # Formula
///
/// ```text
/// loss = mean nll(W + c·A·B) + kl_weight/n · Σ KL(q ‖ p)        A, B drawn from q,  c = lora_alpha/rank
/// ```
///
/// # Examples
///
/// ```
/// use lrvd_burn::BayesLora;
/// use lrvd_burn::core::prune::PruneRule;
///
/// let config = BayesLora { kl_weight: 1.0, rule: PruneRule::new(4.0, 1)?, ..BayesLora::new(8) };
/// config.check()?;
/// # Ok::<(), lrvd_burn::core::Error>(())
/// ```
///
/// # References
///
/// Doyle et al., arXiv:2506.22809.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BayesLora {
    /// Initial rank; 16 by default.
    pub rank: usize,
    /// Numerator of the scaling; 16 by default.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input; 0 by default.
    pub dropout: f64,
    /// Posterior family; by default one variance per rank.
    pub family: VariationalFamily,
    /// Initial value of the posterior's parameters, `ln σ²` (`ln α` in the multiplicative family); -8 by default.
    pub initial: f64,
    /// Learning rate of the posterior's parameters as a multiple of the means'; 5 by default.
    pub noise_rate_factor: f64,
    /// Prior; log-uniform by default.
    pub prior: Prior,
    /// Element sum (exact, the default) or one term per rank.
    pub kl_reduction: KlReduction,
    /// Weight of the divergence; 0.1 by default. 1 is the bound on the evidence, less a tempered one.
    pub kl_weight: f64,
    /// Noise in training; `None`, the default, is one weight draw per sequence, and per batch where an adapted layer is a
    /// [`burn::nn::Linear`].
    pub scheme: Option<Scheme>,
    /// Rule that decides which ranks are kept.
    pub rule: PruneRule,
    /// Statistic that the rule reads.
    pub statistic: StatisticOptions,
}

impl Default for BayesLora {
    fn default() -> Self {
        Self {
            rank: 16,
            lora_alpha: 16.0,
            dropout: 0.0,
            family: VariationalFamily::RankVariance,
            initial: INITIAL_LOG_VARIANCE,
            noise_rate_factor: 5.0,
            prior: Prior::LogUniform,
            kl_reduction: KlReduction::Element,
            kl_weight: 0.1,
            scheme: None,
            rule: PruneRule::default(),
            statistic: StatisticOptions::default(),
        }
    }
}

impl BayesLora {
    /// The defaults with adapters of `rank`.
    #[must_use]
    pub fn new(rank: usize) -> Self {
        Self { rank, ..Self::default() }
    }

    /// Checks the ranges, and which settings go together.
    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.adapter().check()?;
        check_range("noise_rate_factor", self.noise_rate_factor, 0.0..=1e6)?;
        check_range("kl_weight", self.kl_weight, 0.0..)?;
        check_range("prune.min_rank", self.rule.min_rank(), 0..=self.rank)?;
        self.prior.check(self.family)
    }

    /// The adapter of every layer.
    pub(crate) fn adapter(&self) -> AdapterConfig {
        let kind = AdapterKind::Variational { family: self.family, initial: self.initial };
        let Self { rank, lora_alpha, dropout, .. } = *self;
        AdapterConfig { kind, rank, lora_alpha, dropout }
    }

    /// The noise of layers that apply their adapter to activations.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme.unwrap_or(Scheme::PerSequence)
    }
}
