//! The loop that users run, on random rows: the seconds of its steps, and of whole runs.

use std::error::Error;
use std::time::Instant;

use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::ValueEnum;
use lrvd_bench::method::MethodName;
use lrvd_bench::suite::{DryRun, Profile, Suite, SuiteOptions};
use lrvd_burn::BayesLora;
use lrvd_burn::model::NamedModule as _;
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{
    AdaLora, BayesLoraMethod, Event, Examples, Lora, Method, OrderConfig, Ordered, RankSearch, Run,
    Subset, Targets, TrainConfig, UpdatePhase, Watch,
};
use lrvd_core::adalora::AdaLoraConfig;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{Generator, NoiseKey};
use lrvd_models::{AutoModel, TokenBatch};

use crate::model::{Architecture, model};

/// Steps of the refinement after a search, as a share, as `lrvd train` takes them.
const REFINE: f64 = 0.1;
/// Held-out rows of a search, as a share, as `lrvd train` takes them.
const HELD_OUT: f64 = 0.1;

/// Steps that are timed at most.
const LONGEST: usize = 2_000;

/// A way of training that the loop knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recipe {
    /// LoRA.
    Lora,
    /// LoRA with dropout in the model and on the adapters' input.
    McDropout,
    /// LoRA whose pooler is trained, too.
    Pooler,
    /// LoRA beside an unfrozen norm of every layer.
    Unfrozen,
    /// AdaLoRA.
    Adalora,
    /// `BayesLoRA` with its search for ranks: at the mean, then cut and refined.
    Search,
    /// `BayesLoRA` under a constant weight, weights drawn for each sequence.
    ConstantWeight,
    /// `BayesLoRA`, outputs drawn for each token.
    MomentMatched,
    /// `BayesLoRA`, noise on the rank activations, then on the outputs.
    Nested,
}

impl Recipe {
    fn method(
        self,
        rank: usize,
        steps: usize,
    ) -> Result<Box<dyn Method<AutoModel>>, lrvd_burn::Error> {
        let bayes = |scheme| -> Result<Box<dyn Method<AutoModel>>, lrvd_burn::Error> {
            let posterior = BayesLora { scheme: Some(scheme), ..BayesLora::new(rank) };
            Ok(Box::new(BayesLoraMethod { pruning: None, ..posterior.into() }))
        };
        let lora = Lora { rank, ..Lora::default() };
        Ok(match self {
            Self::Lora | Self::Pooler | Self::Unfrozen => Box::new(lora),
            Self::McDropout => Box::new(Lora { dropout: 0.1, ..lora }),
            Self::Adalora => {
                // Early and late steps of a short and of a long run are in the phase in which the budget falls.
                let total = steps.max(LONGEST) as u32;
                let schedule = AdaLoraConfig {
                    init_r: rank,
                    target_r: (rank / 2).max(1),
                    tinit: 10,
                    tfinal: total / 10,
                    delta_t: 10,
                    total_step: total,
                    beta1: 0.85,
                    beta2: 0.85,
                    orth_reg_weight: 0.5,
                };
                Box::new(AdaLora::new(schedule, 16.0, 0.0, UpdatePhase::AfterUpdate)?)
            }
            Self::Search | Self::ConstantWeight => bayes(Scheme::PerSequence)?,
            Self::MomentMatched => bayes(Scheme::MomentMatched(CrossTerm::Exact))?,
            Self::Nested => bayes(Scheme::Nested)?,
        })
    }
}

/// Model and data of a run.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The model.
    pub architecture: Architecture,
    /// Rank at attachment.
    pub rank: usize,
    /// Rows of the data.
    pub rows: usize,
    /// Rows of a batch.
    pub batch: usize,
    /// Tokens of each row.
    pub length: usize,
    /// Steps before a search.
    pub steps: usize,
}

/// Rows of random tokens. The class of one is in its first token; a language model learns every next token.
struct Texts {
    ids: Vec<u32>,
    length: usize,
    is_language: bool,
    device: Device,
}

impl Texts {
    fn new(task: &Task, vocabulary: u32, device: &Device) -> Self {
        let mut draws = Generator::new(NoiseKey::new(3));
        let ids = (0..task.rows * task.length).map(|_| draws.bounded(vocabulary)).collect();
        let is_language = task.architecture == Architecture::TinyLlama;
        Self { ids, length: task.length, is_language, device: device.clone() }
    }

    fn row(&self, index: usize) -> &[u32] {
        &self.ids[index * self.length..][..self.length]
    }
}

impl Examples for Texts {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.ids.len() / self.length
    }

    fn size(&self, _index: usize) -> usize {
        self.length
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let ids: Vec<i64> =
            indices.iter().flat_map(|&i| self.row(i)).map(|&id| i64::from(id)).collect();
        let shape = [indices.len(), self.length];
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &self.device);
        let mask = Tensor::ones(shape, &self.device);
        let batch = TokenBatch::new(ids.clone(), ids.zeros_like(), mask);
        let columns = vec![(0..self.length - 1).collect(); indices.len()];
        Ok(if self.is_language { TokenBatch { columns, ..batch } } else { batch })
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, lrvd_burn::Error> {
        if self.is_language {
            let next: Vec<i64> =
                indices.iter().flat_map(|&i| &self.row(i)[1..]).map(|&id| i64::from(id)).collect();
            let data = TensorData::new(next, [indices.len() * (self.length - 1)]);
            let ids = Tensor::from_data(data, &self.device);
            return Ok(Targets::Tokens { ids, per_row: vec![self.length - 1; indices.len()] });
        }
        let one_hot: Vec<f32> = indices
            .iter()
            .flat_map(|&i| if self.row(i)[0].is_multiple_of(2) { [1.0, 0.0] } else { [0.0, 1.0] })
            .collect();
        let data = TensorData::new(one_hot, [indices.len(), 2]);
        Ok(Targets::Classes(Tensor::from_data(data, &self.device)))
    }

    fn answers(&self, _index: usize) -> usize {
        if self.is_language { self.length - 1 } else { 1 }
    }
}

/// Bytes that `lrvd bench glue --dry-run` estimates for the peak of such a run.
pub fn estimated_memory(task: &Task) -> Result<f64, Box<dyn Error>> {
    let Task { architecture, rank, batch, length, steps, .. } = *task;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("config.json"), architecture.config(None)?.to_string())?;
    let mut options = SuiteOptions::new(Suite::Glue, Profile::Quick, folder.path().join("out"));
    options.model = Some(folder.path().display().to_string());
    options.methods = vec![MethodName::BAYES_LORA];
    options.steps = Some(steps);
    let sizes = [("batch_size", batch), ("evaluation_batch_size", batch), ("max_length", length)];
    let sizes = sizes.into_iter().chain([("initial_rank", rank)]);
    options.set = sizes.map(|(key, value)| format!("{key}={value}")).collect();
    Ok(DryRun::of(&options, None)?[0].memory.total() * f64::from(1 << 30))
}

/// Times and last loss of a run.
pub struct Timed {
    /// Seconds of each step after the first.
    pub steps: Vec<f64>,
    /// Seconds of the whole run: with the search and its held-out rows, without the model's making.
    pub whole: f64,
    /// The loss of the last step.
    pub loss: f64,
}

/// One run of `recipe`; with `holds_out` a search has held-out rows to decide by, else it keeps all ranks.
pub fn train(
    recipe: Recipe,
    task: &Task,
    holds_out: bool,
    device: &Device,
) -> Result<Timed, Box<dyn Error>> {
    let Task { architecture, rank, batch, steps, .. } = *task;
    let vocabulary = architecture.config(None)?["vocab_size"].as_u64().ok_or("no `vocab_size`")?;
    let texts = Texts::new(task, vocabulary as u32, device);
    let held_out = if holds_out { (HELD_OUT * texts.len() as f64) as usize } else { 0 };
    let config = TrainConfig {
        steps,
        seed: 1,
        model_dropout: recipe == Recipe::McDropout,
        train_pooler: recipe == Recipe::Pooler,
        evaluate_every: 1_000_000,
        ..TrainConfig::default()
    };
    let dtype = burn::tensor::DType::F32;
    let base = model(architecture, None, None, device, dtype.into())?;
    let method = recipe.method(rank, steps)?;
    let mut run = Run::new(base, method, &architecture.targets(), &config)?;
    if recipe == Recipe::Search {
        let refine_steps = if holds_out { (REFINE * steps as f64) as usize } else { 0 };
        run = run.searching(RankSearch { refine_steps, ..RankSearch::default() })?;
    }
    if recipe == Recipe::Unfrozen {
        run.state.model.visit_parameters_mut(&mut |p| {
            if p.name.ends_with("LayerNorm.weight") {
                p.value.set_trainable(true);
            }
        });
    }
    let trained = texts.len() - held_out;
    let first = Subset { of: &texts, rows: (0..trained).collect() };
    let last = Subset { of: &texts, rows: (trained..texts.len()).collect() };
    let mut batches = Ordered::new(&first, OrderConfig::shuffled(batch), config.seed)?;
    let mut at = Vec::new();
    let mut loss = f64::NAN;
    let mut sink = |event: &Event| {
        if let Event::Step { loss: found, .. } = event {
            at.push(Instant::now());
            loss = *found;
        }
    };
    let begun = Instant::now();
    run.fit(
        &mut batches,
        &mut Watch {
            held_out: holds_out.then_some(&last as &dyn Examples<Input = TokenBatch>),
            sink: Some(&mut sink),
            ..Watch::default()
        },
    )?;
    let whole = begun.elapsed().as_secs_f64();
    let steps = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    Ok(Timed { steps, whole, loss })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_recipe_runs_and_its_search_decides_by_held_out_rows() {
        let task = |architecture| Task {
            architecture,
            rank: 4,
            rows: 1_200,
            batch: 2,
            length: 6,
            steps: 20,
        };
        for recipe in Recipe::value_variants() {
            let timed = train(*recipe, &task(Architecture::Tiny), false, &Device::flex()).unwrap();
            assert_eq!((timed.steps.len(), timed.loss.is_finite()), (19, true), "{recipe:?}");
        }
        let searched = train(Recipe::Search, &task(Architecture::Tiny), true, &Device::flex());
        assert_eq!(searched.unwrap().steps.len(), 21, "with a refinement");
        let language = train(Recipe::Lora, &task(Architecture::TinyLlama), false, &Device::flex());
        assert!(language.unwrap().loss < 8.0);
    }
}
