//! The settings of a fine-tuning run: one line each, with its default and range.

use anyhow::{bail, ensure};
use burn::tensor::DType;
use lrvd_burn::adapter::{ArdHyper, BaseBits, Prior};
use lrvd_burn::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{
    Bucketing, DrawPolicy, LastBatch, OptimizerOnPrune, TrainConfig, UpdatePhase,
};
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::posterior::{INITIAL_LOG_VARIANCE, VariationalFamily};
use lrvd_core::prune::{PruneSchedule, StatisticAggregate, StatisticOptions};
use lrvd_core::schedule::{KlDivisor, RateCourse};
use lrvd_models::Precision;
use lrvd_models::deberta::{ADAPTER_TARGETS, Pooling};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::methods::MethodSettings;
use super::names::{KlWeight, Preset, PromptSet, TargetModules, Training, WordingSettings};
use super::table::{self, Field, POSITIVE, Setting as _, below, positive_to, settings, values};
use crate::error::Result;

/// Most draws that an answer is averaged over. The error of the average falls by their square root, and all of them are kept
/// until it is taken.
pub const MAX_DRAWS: usize = 10_000;
/// Range of counts of steps and rows.
const COUNT: std::ops::RangeInclusive<usize> = 1..=1_000_000_000;
/// Steps of the published GLUE command, which prunes every 2000 and masks every 200 of them.
const STEPS: usize = 9999;
const WARMUP: f64 = 0.06;

/// Share of `rows` training rows that is held out by default where a method needs some: a tenth, or as much as 5000 rows
/// are, since they are answered several times. They are drawn: a file may be in any order.
pub fn holdout_share(rows: usize) -> f64 {
    0.1_f64.min(5000.0 / rows.max(1) as f64)
}

/// Sampling of the posterior in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingScheme {
    /// Not at all: the likelihood then gives the variances no gradient.
    Mean,
    /// One weight draw per sequence.
    WeightPerSequence,
    /// One weight draw per batch.
    WeightPerBatch,
    /// Output noise with the exact variance.
    MomentMatched,
    /// Output noise without the product term that the paper omits.
    MomentMatchedPaper,
    /// Rank-space noise, then output noise.
    Nested,
}

impl TrainingScheme {
    pub fn scheme(self) -> Scheme {
        match self {
            Self::Mean => Scheme::Mean,
            Self::WeightPerSequence => Scheme::PerSequence,
            Self::WeightPerBatch => Scheme::PerBatch,
            Self::MomentMatched => Scheme::MomentMatched(CrossTerm::Exact),
            Self::MomentMatchedPaper => Scheme::MomentMatched(CrossTerm::Omitted),
            Self::Nested => Scheme::Nested,
        }
    }
}

/// Kind of the draws of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PredictionDraws {
    /// Weights, by `k` keys that the seed fixes: the same `k` models answer every input.
    #[default]
    Weights,
    /// Weights, anew for every batch.
    Fresh,
    /// Outputs, token by token, as the authors' scripts for language models do. Where the noise of a
    /// method has no such distribution, as all but LRVD's and TFB's, weights are resampled for every batch; SWAG,
    /// whose draw is a set of factors, keeps them.
    Activation,
}

impl PredictionDraws {
    pub fn scheme(self) -> Scheme {
        match self {
            Self::Weights | Self::Fresh => Scheme::PerBatch,
            Self::Activation => Scheme::MomentMatched(CrossTerm::Exact),
        }
    }

    /// `true` if draws are made anew for every batch.
    pub fn is_fresh(self) -> bool {
        self != Self::Weights
    }
}

/// Storage of the frozen base. Adapters, posteriors and optimiser state are in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BasePrecision {
    /// Single precision.
    #[default]
    F32,
    /// Half precision with the exponents of single precision; language models only.
    Bf16,
    /// IEEE half precision; language models only.
    F16,
    /// 8 bits and a scale for 32 inputs of an output; embeddings, norms and heads in single precision.
    Q8,
    /// 4 bits, as `q8`; the CPU holds them in a byte each.
    Q4,
}

impl BasePrecision {
    pub(crate) fn precision(self) -> Precision {
        let (dtype, bits) = match self {
            Self::F32 => (DType::F32, None),
            Self::Bf16 => (DType::BF16, None),
            Self::F16 => (DType::F16, None),
            Self::Q8 => (DType::F32, Some(BaseBits::Q8)),
            Self::Q4 => (DType::F32, Some(BaseBits::Q4)),
        };
        Precision { dtype, bits }
    }

    /// Bytes of a weight with its share of a scale.
    pub(crate) const fn bytes(self) -> f64 {
        match self {
            Self::F32 => 4.0,
            Self::Bf16 | Self::F16 => 2.0,
            Self::Q8 => 1.125,
            Self::Q4 => 0.625,
        }
    }
}

/// Training of the head's pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolerMode {
    /// Trained with the head's rates.
    Trained,
    /// Left at its random initialisation, as the authors' script does.
    Frozen,
}

/// Checkpoint that the headline table reports; both are always recorded.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointChoice {
    /// The last step.
    Last,
    /// The best one by the validation rows: by their metric, with `patience` by their negative log-likelihood.
    Best,
}

/// Weights of the classes in the training loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassWeight {
    /// `n / (k n_c)`: every class has the same share of the loss over all rows.
    Balanced,
}

settings! {
    /// Initial value and rate of the posterior's noise parameters.
    #[derive(Copy)]
    pub struct LogVarianceSettings {
        /// Initial `ln σ²` (of `ln α` in the multiplicative family).
        initial: f64 = INITIAL_LOG_VARIANCE, in -30.0..=10.0;
        /// Learning rate as a multiple of the adapter's.
        learning_rate_factor: f64 = 0.1, in 0.0..=1e4;
    }
}

settings! {
    /// When and by what rule ranks are pruned at a constant KL weight; a search for ranks uses `statistic` and `min_rank` alone.
    #[derive(Copy)]
    pub struct PruneSettings {
        /// Basis of the statistic: medians of a rank's entries, or its energies.
        statistic: StatisticAggregate = StatisticAggregate::Median;
        /// Keep a rank iff its statistic is below this.
        log_alpha_threshold: f64 = 4.0, in -50.0..=50.0;
        /// First step at which pruning may happen, as a share of all steps.
        start: f64 = WARMUP, in 0.0..=1.0;
        /// Steps between events, as a share of all steps.
        every: f64 = 2000.0 / STEPS as f64, in 1e-9..=1.0;
        /// Last step at which pruning may happen, as a share of all steps; 0 never prunes.
        end: f64 = 1.0, in 0.0..=1.0;
        /// Fewest ranks an adapter keeps.
        min_rank: usize = 0;
        /// Subtract `½ ln(d_input / 768)` from the statistic.
        fan_in_correction: bool = false;
        /// When in a step ranks are pruned; before the update, as in the authors' loop, what was pruned is not updated.
        placement: UpdatePhase = UpdatePhase::AfterUpdate;
        /// Optimiser state after a prune.
        optimizer: OptimizerOnPrune = OptimizerOnPrune::Slice;
    }
}

settings! {
    /// The search for ranks of `kl_weight = "auto"`.
    ///
    /// ```text
    /// train    the whole model for `steps` steps at its mean, without divergence, as LoRA is trained
    /// rotate   every update to its singular directions
    /// cut      ever fewer directions over all modules, up to the first size whose held-out loss is not shown to be non-inferior to
    ///          that of the whole model: a test at 5 % that the mean difference is at most `margin`
    /// refine   `refine · steps` further steps with the posterior, at `rate` times the learning rates; the means stay if they are
    ///          non-inferior to the whole model, too
    /// ```
    ///
    /// The held-out rows are `holdout` of the training rows, or a tenth and at most 5000; no step is trained on them. Fewer than 100 would
    /// show nothing: none are held out, and all ranks stay.
    #[derive(Copy)]
    pub struct RankSearchSettings {
        /// The most that the held-out loss may rise by the cut: nats a row, of numbers a share of the variance of their labels.
        margin: f64 = 0.01, in 0.0..=1e3;
        /// Steps of the refinement as a share of `steps`.
        refine: f64 = 0.1, in 0.0..=1.0;
        /// Peak learning rates of the refinement as a share of those of the whole model.
        rate: f64 = 0.1, in 0.0..=1e3;
        /// Most that the noise of a draw may cost, nats a row, of numbers a share of the variance of their labels: the weight of the
        /// divergence in the refinement follows from it.
        noise: f64 = 0.01, in 0.0..=1e6;
        /// Noise at the start of the refinement: `ln` of its energy over that of the mean, the same for every rank.
        log_alpha: f64 = -4.0, in -20.0..=0.0;
    }
}

settings! {
    /// AdaLoRA's schedule, as shares of all steps.
    #[derive(Copy)]
    pub struct AdaLoraSettings {
        /// Length of the warm-up without masking.
        initial: f64 = WARMUP, in 0.0..=1.0;
        /// Length of the final phase with the pattern frozen.
        last: f64 = 0.2, in 0.0..=1.0;
        /// Steps between masks.
        every: f64 = 200.0 / STEPS as f64, in 1e-9..=1.0;
        /// Weight of the orthogonality penalty.
        orthogonal_weight: f64 = 0.5, in 0.0..=1e6;
        /// Averages of sensitivity and uncertainty.
        beta: f64 = 0.85, in 0.0..=1.0;
        /// When masks are applied: after the update, as the reference implementation does, or before it, which moves masked
        /// values off zero again.
        placement: UpdatePhase = UpdatePhase::AfterUpdate;
    }
}

settings! {
    /// Settings of one fine-tuning run; see the preset table in `docs/guides/presets.md`.
    ///
    /// The defaults are those of the preset `constant-weight`. A run gets what [`checked`](Self::checked) or
    /// [`Layers::finish`](super::Layers::finish) returned.
    pub struct Config {
        /// Name of the preset it started from.
        preset: String = Preset::ConstantWeight.name().to_owned();
        /// Posterior family of BayesLoRA.
        family: VariationalFamily = VariationalFamily::RankVariance;
        /// Element sum (exact) or one term per rank.
        kl_reduction: KlReduction = KlReduction::Element;
        /// The prior.
        prior: Prior = Prior::LogUniform, in positive_to(1e6);
        /// Weight of the KL, or `"auto"`.
        kl_weight: KlWeight = KlWeight::Fixed(1e-6), in 0.0..=1e6;
        /// Search for ranks, if `kl_weight` is `"auto"`.
        rank_search: RankSearchSettings = RankSearchSettings::default();
        /// Divisor of the KL.
        kl_divisor: KlDivisor = KlDivisor::None;
        /// Share of the steps over which the KL weight rises from 0.
        kl_warmup: f64 = 0.0, in 0.0..=1.0;
        /// Noise parameters.
        log_variance: LogVarianceSettings = LogVarianceSettings::default();
        /// Sampling in training.
        training_scheme: TrainingScheme = TrainingScheme::WeightPerSequence;
        /// Initial rank `r0` of BayesLoRA and AdaLoRA.
        initial_rank: usize = 16, in 1..=65_536;
        /// Numerator of the scaling `c = lora_alpha / r0`.
        lora_alpha: f64 = 16.0, in POSITIVE;
        /// Drop probability of the adapter's input.
        adapter_dropout: f64 = 0.0, in 0.0..1.0;
        /// Half-width of the uniform initialisation of B in the LoRA baseline.
        lora_b_bound: f64 = 0.0, in 0.0..=1.0;
        /// Linear layers to adapt, by the end of their path, or `"all-linear"` for all but the output layer.
        target_modules: TargetModules = TargetModules::names(ADAPTER_TARGETS);
        /// Peak rate of the adapter means, and of a layer between encoder and head.
        learning_rate: f64 = 1e-3, in 0.0..=1e3;
        /// Peak rate of the head. By default ten times `learning_rate`, or as many times as in the preset.
        head_learning_rate: f64 = 1e-2, in 0.0..=1e3;
        /// Rate of the factor B of an adapter as a multiple of that of A, as LoRA+ has it, which is published with 16.
        lora_plus_ratio: f64 = 1.0, in 0.0..=1e4;
        /// Decay of the adapter means of LoRA and AdaLoRA.
        baseline_weight_decay: f64 = 0.0, in 0.0..;
        /// Decay of the adapter means of BayesLoRA.
        adapter_weight_decay: f64 = 0.0, in 0.0..;
        /// Decay of the head's matrices.
        head_weight_decay: f64 = 1e-2, in 0.0..;
        /// `AdamW`'s constants.
        optimizer: AdamWConfig = AdamWConfig::default();
        /// Passes over the rows that are trained on, in place of `steps`; `None` if `steps` is set. By default 3, though not fewer
        /// than 500 steps (100 of a language model on texts) and not more than 10,000; a number that is set is taken as it is.
        epochs: Option<f64> = None, in positive_to(1e6);
        /// Optimiser steps. By default they follow from `epochs`.
        steps: usize = STEPS, in COUNT;
        /// Number of training rows to use, the same ones for every seed; `None` for all.
        train_rows: Option<usize> = None, in COUNT;
        /// Number of validation rows to use, of a suite the first ones, else drawn by class, the same ones for every seed; `None`
        /// for all of a suite, else for as many as evaluations take a tenth of the run with, of a drawn split 1,000 at least,
        /// of a file 10,000.
        validation_rows: Option<usize> = None, in COUNT;
        /// Examples per step.
        batch_size: usize = 32, in COUNT;
        /// Micro-batches per step, of similar lengths for less padding; must divide the batch. The mean gradient is the same, and the
        /// noise of dropout and draws is another. `lrvd train` of a classifier on a CPU has 4 by default, or 2, so that a micro-batch
        /// has 8 rows at least.
        accumulation: usize = 1, in COUNT;
        /// Examples per evaluation batch.
        evaluation_batch_size: usize = 128, in COUNT;
        /// Longest encoded input.
        max_length: usize = 128, in 8..=65_536;
        /// Storage of the frozen base.
        base_precision: BasePrecision = BasePrecision::F32;
        /// `true` if the backward pass computes the activations of each layer again: less memory, one more forward pass.
        gradient_checkpointing: bool = false;
        /// Share of the steps with a rising rate.
        warmup_ratio: f64 = WARMUP, in 0.0..=1.0;
        /// Course of the rates after the warm-up: a line to 0, half a cosine to 0, or constant. The refinement of a search for
        /// ranks has a line.
        schedule: RateCourse = RateCourse::Linear;
        /// Largest global gradient norm; `None` never clips.
        gradient_clip: Option<f64> = Some(0.1), in POSITIVE;
        /// Pruning of BayesLoRA.
        prune: PruneSettings = PruneSettings::default();
        /// AdaLoRA's schedule.
        adalora: AdaLoraSettings = AdaLoraSettings::default();
        /// Settings of further methods by their key.
        methods: MethodSettings = MethodSettings::of_glue();
        /// Input of the head: the first token of an encoder through the pooler (`first`) or as it is (`first-token`), the mean over
        /// all its tokens, that mean through the pooler of a ModernBERT, or the last token of a language model, which answers in words
        /// with any other value.
        pooling: Pooling = Pooling::First;
        /// `true` if the classifier of the base is kept in place of a new one, its rows in the order of the data's classes, which
        /// must have the same names.
        keep_head: bool = false;
        /// The pooler.
        pooler: PoolerMode = PoolerMode::Trained;
        /// `true` if the backbone's dropout is on in training.
        backbone_dropout: bool = true;
        /// Share of a training target that is spread evenly over all classes, or over all choices of a question.
        label_smoothing: f64 = 0.0, in 0.0..1.0;
        /// Weights of the classes in the training loss, by the rows that are trained on: `"balanced"` has `n / (k n_c)` for a class
        /// of `n_c` of `n` rows and `k` classes. The loss of a batch is divided by its sum of weights. Temperature, choice of
        /// ranks and metrics have none.
        class_weight: Option<ClassWeight> = None;
        /// Steps between evaluations on the validation split.
        evaluate_every: usize = 200, in COUNT;
        /// Evaluations without a smaller negative log-likelihood after which a run stops early; `None` never stops it. The best
        /// model is then that with the smallest one.
        patience: Option<usize> = None, in COUNT;
        /// Share of the training examples that is held out, drawn by class and by the seed, for fits after training. At 0
        /// an automatic KL weight and a temperature hold out a tenth. A temperature needs none where the validation rows
        /// are drawn from the training file and choose nothing else: it is then fitted to them.
        holdout: f64 = 0.0, in 0.0..=0.5;
        /// Numbers of draws of the final evaluation, in addition to the posterior mean.
        draws: Vec<usize> = vec![10], in 1..=MAX_DRAWS;
        /// Kind of the draws.
        prediction_draws: PredictionDraws = PredictionDraws::Weights;
        /// Policy of the draws: memory of a pass, pairs of opposite noise, answers that need none.
        prediction: DrawPolicy = DrawPolicy::default();
        /// Checkpoint of the headline table, which `lrvd train` keeps: there by default the best one, where the validation rows
        /// fit nothing else, the method changes no ranks, and the length is a number of `epochs`.
        checkpoint: CheckpointChoice = CheckpointChoice::Last;
        /// Order of the training examples.
        bucketing: Bucketing = Bucketing::Shuffled;
        /// Treatment of the examples that do not fill a batch.
        last_batch: LastBatch = LastBatch::Keep;
        /// Prompts of the reasoning sets.
        prompt: PromptSet = PromptSet::Clean;
        /// Prompt, answer words and readout of a language model.
        wording: WordingSettings = WordingSettings::default();
    }
}

settings! { for AdamWConfig {
    /// Decay of the first moment.
    beta1: f64, in 0.0..1.0;
    /// Decay of the second moment.
    beta2: f64, in 0.0..1.0;
    /// Added to the root of the second moment.
    epsilon: f64, in 0.0..;
}}

settings! { for DrawPolicy {
    /// Bounds the memory of a pass that holds several draws: examples of a batch × size of the longest × draws. A larger
    /// batch is answered draw by draw. Changes no answer.
    tokens_per_pass: usize;
    /// Draws come in pairs of opposite noise, `eps` and `−eps`: each has the distribution of a draw, and what is linear in the
    /// noise cancels. With an odd number the last draw has no partner.
    antithetic: bool;
    /// Margin from which an example is answered at the mean, 0 to 1.
    cascade: Option<f64>, in DrawPolicy::CASCADE;
}}

values! {
    TrainingScheme; PredictionDraws; BasePrecision; PoolerMode; CheckpointChoice; ClassWeight; UpdatePhase; OptimizerOnPrune; Bucketing;
    LastBatch;
    Prior = |prior, key, range| match prior {
        Self::LogUniform => Ok(()),
        Self::Ard { hyper, .. } => hyper.check(&below(key, "ard.hyper"), range),
    };
    ArdHyper = |hyper, key, range| {
        let Self::InverseGamma { shape, rate } = hyper else { return Ok(()) };
        shape.check(&below(key, "inverse-gamma.shape"), range)?;
        rate.check(&below(key, "inverse-gamma.rate"), range)
    };
    enum StatisticAggregate, VariationalFamily, KlReduction, KlDivisor, RateCourse, Pooling
}

/// The setting or section at `key`; the table of all at an empty one.
pub(super) fn field(key: &str) -> Option<&'static Field> {
    const ROOT: Field = Field::new::<Config>("", "", || None);
    let mut names = key.split('.').filter(|name| !name.is_empty());
    names.try_fold(&ROOT, |section, name| section.fields.iter().find(|field| field.key == name))
}

impl Config {
    /// `true` if the validation rows choose the model that is kept.
    pub(crate) fn chooses_model(&self) -> bool {
        self.patience.is_some() || self.checkpoint == CheckpointChoice::Best
    }

    /// These settings, if every number is in its range and they go together.
    pub fn checked(self) -> Result<Self> {
        self.check("", None)?;
        self.check_relations()?;
        Ok(self)
    }

    pub(super) fn document(&self) -> Result<Value> {
        Ok(serde_json::to_value(self)?)
    }

    /// Reads settings as [`checked`](Self::checked) returns them, for `deserialize_with`.
    pub(crate) fn deserialize_checked<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Self, D::Error> {
        Self::deserialize(from)?.checked().map_err(serde::de::Error::custom)
    }

    fn check_relations(&self) -> Result<()> {
        for (key, (low, high)) in [
            ("methods.laplace.prior_range", self.methods.laplace.prior_range),
            ("methods.tfb.range", self.methods.tfb.range),
        ] {
            ensure!(high >= low, "setting `{key}.1` is {high}, expected at least {low}");
        }
        ensure!(
            self.batch_size.is_multiple_of(self.accumulation),
            "setting `accumulation` is {}: it does not divide `batch_size`, which is {}",
            self.accumulation,
            self.batch_size
        );
        ensure!(
            self.prune.min_rank <= self.initial_rank,
            "setting `prune.min_rank` is {}: it is above `initial_rank`, which is {}",
            self.prune.min_rank,
            self.initial_rank
        );
        if self.family == VariationalFamily::NoiseToSignal && self.prior != Prior::LogUniform {
            bail!(
                "setting `family` is `{}`: its variance is tied to the means, so that `prior` must be log-uniform",
                self.family.name()
            );
        }
        if self.kl_weight == KlWeight::Auto && self.kl_divisor != KlDivisor::NTrain {
            bail!(
                "setting `kl_weight` is auto: `rank_search.noise` weighs the divergence by the evidence bound: \
                 set `kl_divisor=n_train`"
            );
        }
        ensure!(
            self.class_weight.is_none() || self.label_smoothing <= 0.0,
            "setting `class_weight` is balanced: a smoothed target has no weight, and `label_smoothing` is {}",
            self.label_smoothing
        );
        if self.prediction.antithetic && self.prediction_draws == PredictionDraws::Activation {
            bail!(
                "setting `prediction.antithetic` is true: it is for draws of weights, and `prediction_draws` is \
                 `activation`"
            );
        }
        Ok(())
    }

    /// Returns an error for a setting that has no meaning in a run for `training`.
    pub fn check_use(&self, training: Training) -> Result<()> {
        if training == Training::Classifier {
            return Ok(());
        }
        ensure!(
            self.wording.given().is_none(),
            "setting `wording` is set: it asks for a class, and texts have none"
        );
        ensure!(!self.keep_head, "setting `keep_head` is true: texts have no classifier");
        if self.prediction_draws != PredictionDraws::Weights {
            let value = format!("{:?}", self.prediction_draws).to_lowercase();
            bail!("setting `prediction_draws` is {value}: a text is answered by draws of weights");
        }
        ensure!(
            self.label_smoothing <= 0.0,
            "setting `label_smoothing` is {}: it is for classes",
            self.label_smoothing
        );
        ensure!(
            self.class_weight.is_none(),
            "setting `class_weight` is balanced: it is for classes"
        );
        let DrawPolicy { tokens_per_pass, .. } = self.prediction;
        if self.prediction != (DrawPolicy { tokens_per_pass, ..DrawPolicy::default() }) {
            bail!("setting `prediction` is set: sparing draws is for classifiers");
        }
        Ok(())
    }

    pub fn share(&self, share: f64) -> usize {
        (share * self.steps as f64).round() as usize
    }

    /// When ranks are pruned, in completed steps; `None` if the settings leave no step for it.
    pub fn prune_schedule(&self) -> Option<PruneSchedule> {
        let every = self.share(self.prune.every).max(1) as u64;
        let start = self.share(self.prune.start).max(1) as u64;
        let end = self.share(self.prune.end).min(self.steps.saturating_sub(1)) as u64;
        PruneSchedule::new(start, every, Some(end)).ok()
    }

    pub fn statistic_options(&self) -> StatisticOptions {
        StatisticOptions {
            aggregate: self.prune.statistic,
            fan_in_correction: self.prune.fan_in_correction,
        }
    }

    /// Settings of the loop in a run with `seed`.
    pub fn training(&self, seed: u64) -> TrainConfig {
        let Self { learning_rate, head_learning_rate, .. } = *self;
        let rates = |learning_rate, weight_decay| GroupRates { learning_rate, weight_decay };
        let head = rates(head_learning_rate, self.head_weight_decay);
        TrainConfig {
            steps: self.steps,
            seed,
            groups: ParameterGroups {
                adapter: rates(learning_rate, self.baseline_weight_decay),
                log_variance: rates(learning_rate * self.log_variance.learning_rate_factor, 0.0),
                pooler: rates(learning_rate, self.head_weight_decay),
                head,
                backbone: head,
            },
            optimizer: self.optimizer,
            warmup_ratio: self.warmup_ratio,
            schedule: self.schedule,
            lora_plus_ratio: self.lora_plus_ratio,
            gradient_clip: self.gradient_clip,
            model_dropout: self.backbone_dropout,
            train_pooler: self.pooler == PoolerMode::Trained,
            evaluate_every: self.evaluate_every,
            patience: self.patience,
        }
    }
}
