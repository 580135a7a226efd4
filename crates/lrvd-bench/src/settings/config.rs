//! Every setting of a fine-tuning run, as read.

use burn::tensor::DType;
use lrvd_burn::adapter::Prior;
use lrvd_burn::optimizer::{AdamWConfig, GroupRates, ParameterGroups};
use lrvd_burn::sampling::{DrawPer, Scheme};
use lrvd_burn::schema::words;
use lrvd_burn::train::{DrawPolicy, OrderConfig, TrainConfig};
use lrvd_core::family::VariationalFamily;
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::prune::statistic::REFERENCE_FAN_IN;
use lrvd_core::prune::{PruneSchedule, StatisticAggregate, StatisticOptions};
use lrvd_core::schedule::KlDivisor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::methods::MethodSettings;
use super::{
    Bucketing, KlWeight, LastBatch, MaskPlacement, OptimizerOnPrune, PredictionDraws, Preset,
    PromptSet, PrunePlacement, RankSearchSettings, WordingSettings, holdout_share,
};

/// How the posterior is sampled in training.
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
            Self::WeightPerSequence => Scheme::Weights(DrawPer::Sequence),
            Self::WeightPerBatch => Scheme::Weights(DrawPer::Batch),
            Self::MomentMatched => Scheme::MomentMatched(CrossTerm::Exact),
            Self::MomentMatchedPaper => Scheme::MomentMatched(CrossTerm::Omitted),
            Self::Nested => Scheme::Nested,
        }
    }
}

/// How the frozen base is stored. Adapters, posteriors and optimiser state are in single precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BasePrecision {
    /// Single precision.
    #[default]
    F32,
    /// Half precision with the exponents of single precision; Llama only.
    Bf16,
    /// IEEE half precision; Llama only.
    F16,
}

impl BasePrecision {
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }

    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// Whether the pooler of the head is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolerMode {
    /// Trained with the head's rates.
    Trained,
    /// Left at its random initialisation, as the authors' script does.
    Frozen,
}

/// Which checkpoint the headline table reports; both are always recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckpointChoice {
    /// The last step.
    Last,
    /// The best validation accuracy seen.
    Best,
}

/// Initial value and rate of the posterior's noise parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogVarianceSettings {
    /// Initial `ln σ²` (of `ln α` in the multiplicative family).
    pub initial: f64,
    /// Learning rate as a multiple of the adapter's.
    pub learning_rate_factor: f64,
}

/// When and by what rule ranks are pruned at a constant KL weight; a search for ranks uses `statistic` and `min_rank` alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneSettings {
    /// Basis of the statistic: medians of a rank's entries, or its energies.
    #[serde(default)]
    #[schemars(schema_with = "words::<StatisticAggregate>")]
    pub statistic: StatisticAggregate,
    /// Keep a rank iff its statistic is below this.
    pub log_alpha_threshold: f64,
    /// First step at which pruning may happen, as a share of all steps.
    pub start: f64,
    /// Steps between events, as a share of all steps.
    pub every: f64,
    /// Last step at which pruning may happen, as a share of all steps; 0 never prunes.
    pub end: f64,
    /// Fewest ranks an adapter keeps.
    pub min_rank: usize,
    /// Subtract `½ ln(d_input / 768)` from the statistic.
    pub fan_in_correction: bool,
    /// When in a step ranks are pruned.
    pub placement: PrunePlacement,
    /// Optimiser state after a prune.
    pub optimizer: OptimizerOnPrune,
}

/// AdaLoRA's schedule, as shares of all steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaLoraSettings {
    /// Length of the warm-up without masking.
    pub initial: f64,
    /// Length of the final phase with the pattern frozen.
    pub last: f64,
    /// Steps between masks.
    pub every: f64,
    /// Weight of the orthogonality penalty.
    pub orthogonal_weight: f64,
    /// Averages of sensitivity and uncertainty.
    pub beta: f64,
    /// When masks are applied.
    pub placement: MaskPlacement,
}

/// Settings of one fine-tuning run, not yet checked; see the preset table in `docs/guides/presets.md`.
///
/// What runs is a [`ValidConfig`](super::ValidConfig).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExperimentConfig {
    /// Name of the preset it started from.
    #[schemars(extend("enum" = Preset::ALL.map(Preset::name)))]
    pub preset: String,
    /// Posterior family of BayesLoRA.
    #[schemars(schema_with = "words::<VariationalFamily>")]
    pub family: VariationalFamily,
    /// Element sum (exact) or one term per rank.
    #[schemars(schema_with = "words::<KlReduction>")]
    pub kl_reduction: KlReduction,
    /// The prior.
    pub prior: Prior,
    /// Weight of the KL, or `"auto"`.
    pub kl_weight: KlWeight,
    /// Search for ranks, if `kl_weight` is `"auto"`.
    #[serde(default)]
    pub rank_search: RankSearchSettings,
    /// Divisor of the KL.
    #[schemars(schema_with = "words::<KlDivisor>")]
    pub kl_divisor: KlDivisor,
    /// Share of the steps over which the KL weight rises from 0.
    pub kl_warmup: f64,
    /// Noise parameters.
    pub log_variance: LogVarianceSettings,
    /// Sampling in training.
    pub training_scheme: TrainingScheme,
    /// Initial rank `r0` of BayesLoRA and AdaLoRA.
    pub initial_rank: usize,
    /// Numerator of the scaling `c = lora_alpha / r0`.
    pub lora_alpha: f64,
    /// Drop probability of the adapter's input.
    pub adapter_dropout: f64,
    /// Half-width of the uniform initialisation of B in the LoRA baseline.
    pub lora_b_bound: f64,
    /// Linear layers to adapt, by the end of their path.
    pub target_modules: Vec<String>,
    /// Peak rate of the adapter means.
    pub learning_rate: f64,
    /// Peak rate of the head.
    pub head_learning_rate: f64,
    /// Decay of the adapter means of LoRA and AdaLoRA.
    pub baseline_weight_decay: f64,
    /// Decay of the adapter means of BayesLoRA.
    pub adapter_weight_decay: f64,
    /// Decay of the head's matrices.
    pub head_weight_decay: f64,
    /// `AdamW`'s constants.
    pub optimizer: AdamWConfig,
    /// Optimiser steps.
    pub steps: usize,
    /// Number of training rows to use, the same ones for every seed; `None` for all.
    #[serde(default)]
    pub train_rows: Option<usize>,
    /// Number of validation rows to use, the first ones of the split; `None` for all.
    #[serde(default)]
    pub validation_rows: Option<usize>,
    /// Examples per step.
    pub batch_size: usize,
    /// Micro-batches per step, of similar lengths for less padding; must divide the batch.
    pub accumulation: usize,
    /// Examples per evaluation batch.
    pub evaluation_batch_size: usize,
    /// Longest encoded input.
    pub max_length: usize,
    /// How the frozen base is stored.
    pub base_precision: BasePrecision,
    /// Share of the steps with a rising rate.
    pub warmup_ratio: f64,
    /// Largest global gradient norm; `None` never clips.
    pub gradient_clip: Option<f64>,
    /// Pruning of BayesLoRA.
    pub prune: PruneSettings,
    /// AdaLoRA's schedule.
    pub adalora: AdaLoraSettings,
    /// Settings of further methods by their key; written are those that differ from the defaults.
    #[serde(default, serialize_with = "MethodSettings::serialize_changed")]
    pub methods: MethodSettings,
    /// The pooler.
    pub pooler: PoolerMode,
    /// Whether the backbone's dropout is on in training.
    pub backbone_dropout: bool,
    /// Steps between evaluations on the validation split.
    pub evaluate_every: usize,
    /// Evaluations without a smaller negative log-likelihood after which a run stops early; `None` never stops it.
    #[serde(default)]
    pub patience: Option<usize>,
    /// Share of the training examples that is held out, drawn by the seed, for fits after training. At 0 a method
    /// holds out what its publication does, and an automatic KL weight a tenth.
    #[serde(default)]
    pub holdout: f64,
    /// Numbers of draws of the final evaluation, in addition to the posterior mean.
    pub draws: Vec<usize>,
    /// Kind of the draws.
    pub prediction_draws: PredictionDraws,
    /// How the draws are made, and when fewer are enough.
    #[serde(default)]
    pub prediction: DrawPolicy,
    /// Checkpoint of the headline table.
    pub checkpoint: CheckpointChoice,
    /// Order of the training examples.
    pub bucketing: Bucketing,
    /// What happens to the examples that do not fill a batch.
    pub last_batch: LastBatch,
    /// Prompts of the reasoning sets.
    pub prompt: PromptSet,
    /// Prompt and answer words of a language model for classes; written if they differ from the task's.
    #[serde(default, skip_serializing_if = "WordingSettings::is_default")]
    pub wording: WordingSettings,
}

impl ExperimentConfig {
    pub fn share(&self, share: f64) -> usize {
        (share * self.steps as f64).round() as usize
    }

    /// Share of `rows` training rows that is drawn and held out: `holdout`, or, where that is 0 and something is chosen by
    /// held-out rows or fitted to them (`needed`), [`holdout_share`].
    pub(crate) fn drawn_share(&self, needed: bool, rows: usize) -> f64 {
        if needed && self.holdout == 0.0 { holdout_share(rows) } else { self.holdout }
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
            fan_in_correction: self.prune.fan_in_correction.then_some(REFERENCE_FAN_IN),
            ..StatisticOptions::default()
        }
    }

    /// What the loop needs to know of a run with `seed`.
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
            gradient_clip: self.gradient_clip,
            model_dropout: self.backbone_dropout,
            train_pooler: self.pooler == PoolerMode::Trained,
            evaluate_every: self.evaluate_every,
            patience: self.patience,
        }
    }

    /// The order of the training examples.
    pub fn order(&self) -> OrderConfig {
        OrderConfig {
            batch_size: self.batch_size,
            bucketing: self.bucketing,
            last_batch: self.last_batch,
        }
    }
}
