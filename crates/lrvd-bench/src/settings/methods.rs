//! Settings of single methods, under `methods.KEY`. Where a publication has another value than the default, it is named.

use std::ops::Bound;

use lrvd_burn::adapter::ArdHyper;
use lrvd_core::baselines::ElementReduction;
use lrvd_core::baselines::bayes_by_backprop::{INITIAL_RHO, PRIOR_STD_DEV};
use lrvd_core::baselines::laplace::{EvidenceOptions, InputNormalisation, LOW_RANK, LOW_RANK_FROM};
use lrvd_core::baselines::swag::MAX_DEVIATIONS;
use lrvd_core::baselines::tfb::{ANCHORS, ITERATIONS, RANGE, SearchAnswer, TOLERANCE};
use lrvd_core::kl::ArdScales;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table::{self, POSITIVE, positive_to, settings, values};
use crate::error::Result;

/// The published exponent of BLoB's cycle length.
pub(crate) const GAMMA: f64 = 8.0;

settings! {
    /// Settings of the methods that have some beyond the experiment's, by the method's key.
    pub struct MethodSettings {
        /// MAP.
        map: MapSettings = MapSettings::default();
        /// MC dropout.
        mcd: McDropoutSettings = McDropoutSettings::default();
        /// LoRA-Ensemble.
        lora_ensemble("lora-ensemble"): LoraEnsembleSettings = LoraEnsembleSettings::default();
        /// Bayes by backprop.
        bbb: BbbSettings = BbbSettings::default();
        /// Bayes by backprop on A only.
        bbb_a("bbb-a"): BbbSettings = BbbSettings { both: false, ..BbbSettings::default() };
        /// Laplace-LoRA.
        laplace: LaplaceSettings = LaplaceSettings::default();
        /// SWAG-LoRA.
        swag: SwagSettings = SwagSettings::default();
        /// BLoB.
        blob: BlobSettings = BlobSettings::default();
        /// `ScalaBL`.
        scalabl: ScalaBlSettings = ScalaBlSettings::default();
        /// TFB.
        tfb: TfbSettings = TfbSettings::default();
        /// C-LoRA.
        c_lora("c-lora"): CLoraSettings = CLoraSettings::default();
        /// The multiplicative family.
        lrvd_nts("lrvd-nts"): NoiseToSignalSettings = NoiseToSignalSettings::default();
        /// The hierarchical prior.
        lrvd_ard("lrvd-ard"): ArdSettings = ArdSettings::default();
    }
}

impl MethodSettings {
    /// Settings of published commands for GLUE, where those for a language model are the defaults.
    pub(super) fn of_glue() -> Self {
        let mut methods = Self::default();
        methods.blob.kl_learning_rate = 0.002;
        methods
    }
}

settings! {
    /// Settings of MAP.
    #[derive(Copy)]
    pub struct MapSettings {
        /// Decoupled decay of the factors; without one, the decay that takes a factor without a gradient to `1/e` within
        /// the run. The published 1e-5 leaves all but some millionths. Unused with `l2_in_loss`.
        weight_decay: Option<f64> = None, in 0.0..=1e6;
        /// `true` if the prior is in the loss instead.
        l2_in_loss: bool = false;
        /// Precision of the prior; used with `l2_in_loss`.
        precision: f64 = 1.0, in 0.0..=1e12;
    }
}

settings! {
    /// Settings of MC dropout.
    #[derive(Copy)]
    pub struct McDropoutSettings {
        /// Drop probability of the adapter's input.
        dropout: f64 = 0.1, in (Bound::Excluded(0.0), Bound::Excluded(1.0));
    }
}

settings! {
    /// Settings of LoRA-Ensemble.
    #[derive(Copy)]
    pub struct LoraEnsembleSettings {
        /// Adapters side by side.
        members: usize = 4, in 1..=4096;
        /// Gain of the initialisation of A.
        gain: f64 = 10.0, in positive_to(1e6);
        /// Rate of the factors, published with that gain and a scaling of 1.
        learning_rate: f64 = 1e-4, in 0.0..=1e3;
    }
}

settings! {
    /// Settings of `lrvd-nts`.
    #[derive(Copy)]
    pub struct NoiseToSignalSettings {
        /// Initial `ln α`.
        initial: f64 = -4.0, in -30.0..=10.0;
        /// Rate of `ln α`; without one, the rate that reaches the threshold within the run.
        learning_rate: Option<f64> = None, in 0.0..=1e3;
    }
}

settings! {
    /// Settings of `lrvd-ard`.
    #[derive(Copy)]
    pub struct ArdSettings {
        /// One scale per rank for A and B, or separate ones.
        scales: ArdScales = ArdScales::default();
        /// Origin of the scales: in closed form (`empirical-bayes`), or by an inverse-gamma law.
        hyper: ArdHyper = ArdHyper::default(), in positive_to(1e6);
    }
}

/// The prior on every entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BbbPrior {
    /// `N(0, prior_std²)`.
    Gaussian,
    /// The scale mixture.
    Mixture,
}

/// Factor of the KL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BbbWeight {
    /// `1/N_train`: the evidence bound per example.
    NTrain,
    /// Falling over the batches of an epoch.
    Blundell,
    /// `1/batch`, as Bayesian-Torch's examples do.
    Batch,
}

settings! {
    /// Settings of Bayes by backprop; defaults of `bbb`, and of `bbb-a` where it differs.
    ///
    /// The defaults of Bayesian-Torch are `rho = -3`, `rho_std = 0.1`, `mean_std = 0.1`, `prior_std = 1`, `weight = "batch"`,
    /// `reduction = "mean"`.
    #[derive(Copy)]
    pub struct BbbSettings {
        /// Noise on B as well; false for `bbb-a`.
        both: bool = true;
        /// Mean of the normal law of the initial ρ.
        rho: f64 = INITIAL_RHO, in -30.0..=10.0;
        /// Its standard deviation.
        rho_std: f64 = 0.0, in 0.0..=10.0;
        /// Standard deviation of the initial means; without one they are LoRA's.
        mean_std: Option<f64> = None, in positive_to(10.0);
        /// The prior.
        prior: BbbPrior = BbbPrior::Gaussian;
        /// Width of the Gaussian prior.
        prior_std: f64 = PRIOR_STD_DEV, in positive_to(1e6);
        /// The scale mixture.
        mixture: MixtureSettings = MixtureSettings::default();
        /// Factor of the KL.
        weight: BbbWeight = BbbWeight::NTrain;
        /// Sum or mean over the entries of a factor.
        reduction: ElementReduction = ElementReduction::Sum;
        /// Rate of ρ; without one, the rate at which it can go from its start to the prior's within the run.
        rho_learning_rate: Option<f64> = None, in 0.0..=1e3;
    }
}

settings! {
    /// The scale mixture as settings spell it.
    #[derive(Copy)]
    pub struct MixtureSettings {
        /// Weight of the first part.
        weight: f64 = 0.5, in 0.0..=1.0;
        /// Width of the first part.
        first_std: f64 = 1.0, in POSITIVE;
        /// Width of the second part.
        second_std: f64 = (-6.0_f64).exp(), in POSITIVE;
    }
}

impl BbbSettings {
    /// Distance of ρ from that of the prior's width: `|ln(e^σ_p − 1) − ρ_0|`.
    ///
    /// A scale mixture is as wide as the wider of its parts that it has.
    pub(crate) fn distance(&self) -> f64 {
        let MixtureSettings { weight, first_std, second_std } = self.mixture;
        let width = match self.prior {
            BbbPrior::Gaussian => self.prior_std,
            BbbPrior::Mixture if weight >= 1.0 => first_std,
            BbbPrior::Mixture if weight <= 0.0 => second_std,
            BbbPrior::Mixture => first_std.max(second_std),
        };
        // `ln(e^x − 1)` without overflow.
        (width + (-(-width).exp_m1()).ln() - self.rho).abs()
    }
}

/// Optimiser that follows the likelihood's gradient of the noise parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizers {
    /// The second: AdamW was built before these parameters existed.
    Two,
    /// AdamW, which owns everything; the second sees the KL only.
    Bayesadapt,
}

settings! {
    /// Settings of BLoB.
    #[derive(Copy)]
    pub struct BlobSettings {
        /// Upper end of the initialisation of G, `U(ε/√2, ε)`.
        epsilon: f64 = 0.05, in positive_to(1.0);
        /// Width of the prior.
        prior_std: f64 = PRIOR_STD_DEV, in positive_to(1e6);
        /// Rate of the second optimiser; 0.002 in the presets of GLUE.
        kl_learning_rate: f64 = 0.01, in 0.0..=1e6;
        /// Dataset rescaling of the KL's cycle; without one a cycle is an epoch.
        gamma: Option<f64> = Some(GAMMA), in POSITIVE;
        /// Optimiser that follows the likelihood's gradient of the noise parameters.
        optimizers: Optimizers = Optimizers::Two;
        /// Rate of G as a multiple of the means', where AdamW moves it.
        noise_rate_factor: f64 = 1.0, in 0.0..=1e4;
    }
}

/// Direction of the divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KlDirection {
    /// Posterior from prior.
    Standard,
    /// Prior from posterior, as the published code does.
    Coded,
}

settings! {
    /// Settings of `ScalaBL`.
    #[derive(Copy)]
    pub struct ScalaBlSettings {
        /// Upper end of the initialisation of the scales' deviations, `U(ε/√2, ε)`.
        epsilon: f64 = 0.05, in positive_to(1.0);
        /// Direction of the divergence.
        kl_direction: KlDirection = KlDirection::Coded;
        /// Rate of the second optimiser; without one, that of the direction: 0.1 for `coded`, 1 for `standard`.
        kl_learning_rate: Option<f64> = None, in 0.0..=1e6;
        /// Dataset rescaling of the KL's cycle; without one a cycle is an epoch.
        gamma: Option<f64> = Some(GAMMA), in POSITIVE;
        /// Optimiser that follows the likelihood's gradient of the noise parameters.
        optimizers: Optimizers = Optimizers::Bayesadapt;
        /// Rate of the scales' deviations as a multiple of the means', where AdamW moves them.
        noise_rate_factor: f64 = 1.0, in 0.0..=1e4;
    }
}

settings! {
    /// Settings of C-LoRA.
    #[derive(Copy)]
    pub struct CLoraSettings {
        /// Width of the network's hidden layer.
        hidden: usize = 64, in 1..=65_536;
        /// Width of the prior.
        prior_std: f64 = PRIOR_STD_DEV, in positive_to(1e6);
        /// Factor of the KL.
        kl_weight: f64 = 1e-6, in 0.0..=1e6;
        /// Dataset rescaling of the KL's cycle; without one a cycle is an epoch.
        gamma: Option<f64> = Some(GAMMA), in POSITIVE;
        /// Rate of the network.
        learning_rate: f64 = 0.01, in 0.0..=1e6;
    }
}

/// Layers whose LoRA matrices are random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplaceLayers {
    /// Every adapted layer.
    All,
    /// The adapted layer nearest to the output.
    Last,
}

/// Criterion that chooses the prior precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplacePrior {
    /// The marginal likelihood of the training set.
    Marginal,
    /// The negative log-likelihood of held-out examples.
    Validation,
}

/// From Gaussian logits to probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LaplacePredictive {
    /// Average softmax of draws.
    MonteCarlo,
    /// Softmax of logits shrunk by their variance.
    Probit,
    /// Mean of the Dirichlet of the Laplace bridge; it sees the shape of the covariance, not its
    /// scale.
    Bridge,
}

settings! {
    /// Settings of Laplace-LoRA.
    pub struct LaplaceSettings {
        /// Layers whose LoRA matrices are random.
        layers: LaplaceLayers = LaplaceLayers::All;
        /// Divisor of the inputs' factor; `examples` is the published code's.
        normalisation: InputNormalisation = InputNormalisation::Tokens;
        /// Training examples that the curvature is estimated from, scaled to all; `None` for all.
        examples: Option<usize> = None, in 1..;
        /// Columns kept of a wide factor.
        low_rank: usize = LOW_RANK, in 1..=1000;
        /// Width from which a factor counts as wide.
        low_rank_from: usize = LOW_RANK_FROM, in 1..;
        /// Criterion that chooses the prior precision `δ`.
        prior: LaplacePrior = LaplacePrior::Marginal;
        /// `marginal`: where `δ` starts.
        prior_start: f64 = EvidenceOptions::default().start, in POSITIVE;
        /// `marginal`: rate of Adam on `ln δ`.
        prior_learning_rate: f64 = EvidenceOptions::default().learning_rate, in POSITIVE;
        /// `marginal`: its steps.
        prior_steps: u32 = EvidenceOptions::default().steps, in 0..=1_000_000;
        /// `validation`: ends of the grid of `ln δ`.
        prior_range: (f64, f64) = (1e-2, 1e4), in POSITIVE;
        /// `validation`: points of the grid.
        prior_candidates: usize = 13, in 1..=1000;
        /// `validation`: share of the training examples that it is judged on.
        holdout: f64 = 0.2, in 0.01..=0.9;
        /// From Gaussian logits to probabilities.
        predictive: LaplacePredictive = LaplacePredictive::MonteCarlo;
        /// Draws of `monte-carlo`; the publication takes 100,000.
        samples: usize = 10_000, in 1..=10_000_000;
    }
}

impl LaplaceSettings {
    pub(crate) fn evidence(&self) -> EvidenceOptions {
        EvidenceOptions {
            start: self.prior_start,
            learning_rate: self.prior_learning_rate,
            steps: self.prior_steps,
        }
    }

    /// The grid of prior precisions, even in `ln δ`; one point is the geometric middle.
    pub(crate) fn candidates(&self) -> Vec<f64> {
        let (low, high) = (self.prior_range.0.ln(), self.prior_range.1.ln());
        let last = self.prior_candidates.saturating_sub(1);
        let at = |i: usize| if last == 0 { 0.5 } else { i as f64 / last as f64 };
        (0..self.prior_candidates).map(|i| (low + at(i) * (high - low)).exp()).collect()
    }
}

settings! {
    /// Settings of SWAG-LoRA.
    #[derive(Copy)]
    pub struct SwagSettings {
        /// Share of the steps before the tail: 8 of 15 epochs.
        start: f64 = 8.0 / 15.0, in 0.0..=1.0;
        /// Share of the steps between collections: an epoch of 15.
        every: f64 = 1.0 / 15.0, in positive_to(1.0);
        /// The tail's rate as a share of the peak rate.
        learning_rate_factor: f64 = 0.1, in positive_to(10.0);
        /// Share of the steps over which the rate goes there in a line: 5 epochs of 15.
        anneal: f64 = 5.0 / 15.0, in 0.0..=1.0;
        /// Deviations kept, `K`.
        deviations: usize = MAX_DEVIATIONS, in 2..=1000;
        /// Share of the covariance that draws have.
        scale: f64 = 1.0, in 0.0..=100.0;
    }
}

/// Quantity that the noise must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TfbCriterion {
    /// Relative change of the mean negative log-likelihood.
    Nll,
    /// Relative change, divided by the number of examples.
    NllPerAnchor,
    /// Share of examples with another answer.
    Flipped,
}

settings! {
    /// Settings of TFB.
    pub struct TfbSettings {
        /// Range in which `σ_q` is looked for.
        range: (f64, f64) = RANGE, in 0.0..=100.0;
        /// Bisections.
        iterations: u32 = ITERATIONS, in 1..=100;
        /// Training examples looked at, fewer if there are not so many.
        anchors: usize = ANCHORS, in 1..;
        /// Draws whose probabilities are averaged.
        samples: usize = 10, in 1..=10_000;
        /// Quantity that the noise must not change.
        criterion: TfbCriterion = TfbCriterion::NllPerAnchor;
        /// Most that it may change; the publication takes 0.01 with `flipped`.
        tolerance: f64 = TOLERANCE, in 0.0..;
        /// Level that is the answer.
        answer: SearchAnswer = SearchAnswer::LastAdmissible;
    }
}

values! {
    BbbPrior; BbbWeight; Optimizers; KlDirection; LaplaceLayers; LaplacePrior; LaplacePredictive; TfbCriterion;
    enum ArdScales, ElementReduction, InputNormalisation, SearchAnswer
}
