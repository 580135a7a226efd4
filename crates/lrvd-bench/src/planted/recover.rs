//! Learning the update, and reading its rank off the posterior.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::Device;
use lrvd_burn::adapter::{ArdHyper, Prior};
use lrvd_burn::gauge::turn;
use lrvd_burn::optimizer::GroupRates;
use lrvd_burn::train::{
    BayesLora, Event, Inputs, LabelledRows, OrderConfig, Ordered, Outcome, ProgressSink, Run,
    TrainConfig, TrainError, Turn, Watch, directions, rank_path,
};
use lrvd_burn::{AdapterTargets, Scheme, prune, ranks};
use lrvd_core::error::ParameterError;
use lrvd_core::kl::ArdScales;
use lrvd_core::metrics::{MetricError, Predictions};
use lrvd_core::prune::{PathTolerance, PruneRule, RankPath, StatisticAggregate, StatisticOptions};
use lrvd_core::schedule::{KlDivisor, KlSchedule};
use serde::Serialize;

use super::student::Student;
use super::task::PlantedTask;

/// Rank that the adapters begin with.
pub(super) const INITIAL_RANK: usize = 16;
/// Examples per step.
pub(super) const BATCH: usize = 64;
/// Rows per batch of an evaluation.
const EVALUATION_BATCH: usize = 1000;

/// A planted task cannot be made, learnt or measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlantedError {
    /// A setting out of range.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Training.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// Answers that are not finite.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

/// Settings of [`recover`].
///
/// | Field | Default | Meaning |
/// |---|---|---|
/// | `steps` | 3000 | optimiser steps of 64 rows; [`for_layers`](Self::for_layers): as many for each layer |
/// | `learning_rate` | 1e-2 | of means and log-variances |
/// | `kl_warmup` | 0.5 | share of the run over which the KL weight rises to 1 |
/// | `turn` | 0.5 | share of the run after which the update is turned to its singular directions |
/// | `kl_factor` | 0.7 | KL weight from then on |
/// | `draws` | 10 | weight draws of the second answer |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlantedSettings {
    /// Optimiser steps.
    pub steps: usize,
    /// Rate of means and log-variances.
    pub learning_rate: f64,
    /// Share of the run over which the KL weight rises.
    pub kl_warmup: f64,
    /// Share of the run after which the update is turned.
    pub turn: f64,
    /// KL weight from then on.
    pub kl_factor: f64,
    /// Weight draws of the second answer.
    pub draws: usize,
}

impl Default for PlantedSettings {
    fn default() -> Self {
        Self {
            steps: 3000,
            learning_rate: 1e-2,
            kl_warmup: 0.5,
            turn: 0.5,
            kl_factor: 0.7,
            draws: 10,
        }
    }
}

impl PlantedSettings {
    /// The defaults with 3000 steps for each of `layers` layers: what a layer does not need fades more slowly where
    /// another one is still learning what it is for.
    pub fn for_layers(layers: usize) -> Self {
        let default = Self::default();
        Self { steps: default.steps * layers, ..default }
    }

    /// ARD with one scale per rank at the bound's own weight, one draw per row, turned once.
    ///
    /// The noise is [`Scheme::Nested`], which for a row of one token has the law of one weight draw per
    /// row, and costs no product per row.
    fn method(&self) -> Result<BayesLora, ParameterError> {
        let at = |share: f64| (share * self.steps as f64).round();
        Ok(BayesLora {
            rank: INITIAL_RANK,
            lora_alpha: INITIAL_RANK as f64,
            noise_rate_factor: 1.0,
            prior: Prior::Ard { scales: ArdScales::Shared, hyper: ArdHyper::EmpiricalBayes },
            kl: KlSchedule::linear_warmup(1.0, at(self.kl_warmup) as u32)?,
            kl_divisor: KlDivisor::NTrain,
            scheme: Scheme::Nested,
            pruning: None,
            turn: Some(Turn { after: at(self.turn).max(1.0) as u64, kl_factor: self.kl_factor }),
            ..BayesLora::default()
        })
    }

    fn training(&self, seed: u64) -> TrainConfig {
        let mut config = TrainConfig {
            steps: self.steps,
            seed,
            gradient_clip: None,
            model_dropout: false,
            evaluate_every: self.steps,
            ..TrainConfig::default()
        };
        let learning_rate = self.learning_rate;
        config.groups.adapter = GroupRates { learning_rate, weight_decay: 0.0 };
        config
    }
}

/// What was found in one layer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerRank {
    /// Module path.
    pub path: String,
    /// Directions whose mean energy exceeds their noise energy.
    pub found: usize,
    /// Singular values of the mean update before the others were cut, largest first.
    pub singular_values: Vec<f64>,
}

/// What one run found.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// Seed of task and run.
    pub seed: u64,
    /// Rank that was planted in every layer.
    pub planted_rank: usize,
    /// What was found, layer by layer.
    pub layers: Vec<LayerRank>,
    /// Negative log-likelihood on fresh rows at the mean of the cut posterior, nats.
    pub nll_mean: f64,
    /// The same, probabilities averaged over draws.
    pub nll_mc: f64,
    /// The same of the planted weights.
    pub nll_oracle: f64,
    /// Loss on fresh rows with the first 0, 1, 2, ... directions.
    pub path: RankPath,
    /// Seconds in training.
    pub seconds: f64,
}

impl Recovery {
    /// Directions found in all layers.
    pub fn found_rank(&self) -> usize {
        self.layers.iter().map(|layer| layer.found).sum()
    }

    /// Whether every layer has the planted rank.
    pub fn is_exact(&self) -> bool {
        self.layers.iter().all(|layer| layer.found == self.planted_rank)
    }
}

/// Learns `task` with adapters of rank 16 and reads the rank off the posterior; `None` if `stop` was
/// set before the end.
///
/// The posterior is learnt at the bound's own KL weight, is turned to the singular directions of its mean
/// update, trains on, and a direction counts if its mean energy exceeds its noise energy. No row is held
/// out; the fresh rows are looked at when all is decided.
///
/// # Errors
///
/// [`PlantedError`] for settings out of range or training that left the finite numbers.
pub fn recover(
    task: &PlantedTask,
    settings: &PlantedSettings,
    device: &Device,
    sink: &mut dyn ProgressSink,
    stop: &AtomicBool,
) -> Result<Option<Recovery>, PlantedError> {
    let seed = task.config.seed;
    let targets = AdapterTargets::Paths(
        (0..task.config.layers).map(|layer| format!("layer.{layer}")).collect(),
    );
    let student = Student::new(task, device);
    let mut run = Run::new(student, settings.method()?, &targets, &settings.training(seed))?;
    let mut batches = Ordered::new(&task.train, OrderConfig::shuffled(BATCH), seed)?;
    let begun = Instant::now();
    let outcome = {
        let mut sink = StepsOnly(sink);
        let mut watch = Watch::default().telling(&mut sink).stopping_at(stop);
        run.fit(&mut batches, &mut watch)?
    };
    if outcome == Outcome::Stopped {
        return Ok(None);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let model = &mut run.state.model;
    let rule = PruneRule::new(0.0, 0)?;
    let energy = StatisticOptions { aggregate: StatisticAggregate::Energy, ..Default::default() };
    let event = prune::plan(model, &rule, energy).map_err(TrainError::from)?;
    // Singular values of what was learnt, the directions in their last order.
    let mut turned = model.clone();
    let spectra = turn(&mut turned, None).map_err(TrainError::from)?;
    let order = directions(&turned);
    let longest = (0..=order.len().min(INITIAL_RANK)).collect::<Vec<_>>();
    let path = rank_path(
        &turned,
        &order,
        &longest,
        &task.fresh,
        EVALUATION_BATCH,
        PathTolerance::default(),
    )?;
    prune::apply(model, &event, None, None);
    let layers = ranks(model).into_iter().map(|(path, found)| {
        let singular_values = spectra.get(&path).cloned().unwrap_or_default();
        LayerRank { path, found, singular_values }
    });
    Ok(Some(Recovery {
        seed,
        planted_rank: task.config.rank,
        layers: layers.collect(),
        nll_mean: nll(&run, &task.fresh, 0)?,
        nll_mc: nll(&run, &task.fresh, settings.draws)?,
        nll_oracle: task.oracle,
        path,
        seconds,
    }))
}

fn nll(
    run: &Run<Student, BayesLora>,
    rows: &LabelledRows<2>,
    draws: usize,
) -> Result<f64, PlantedError> {
    let inputs = Inputs { batch_size: EVALUATION_BATCH, ..Inputs::new(rows) };
    let logits = run.predict(&inputs, draws)?;
    let probabilities: Vec<f64> =
        logits.classes()?.into_iter().flat_map(|answer| answer.probabilities).collect();
    let classes = rows.targets.classes().unwrap_or_default();
    Ok(Predictions::new(&probabilities, logits.width, &classes)?.nll())
}

/// Passes steps on; beginning and end are the caller's to tell.
struct StepsOnly<'a>(&'a mut dyn ProgressSink);

impl ProgressSink for StepsOnly<'_> {
    fn event(&mut self, event: &Event) {
        if matches!(event, Event::Step { .. }) {
            self.0.event(event);
        }
    }
}
