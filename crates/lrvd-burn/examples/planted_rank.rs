//! A task whose rank is known: an update of rank r is planted in every layer of a frozen network, adapters of rank 16
//! learn it from labelled rows, and a direction counts if its mean has more energy than its noise.
//!
//! ```text
//! cargo run --release --example planted_rank -- --rank 3 --n 8000 --seeds 5 --first-seed 1 --layers 1 --json
//! ```
//!
//! The values are the defaults. `--inputs decaying` draws correlated inputs. Without `--json` the singular values of the
//! first seed are drawn as bars. JSON: `planted_rank` (per layer), and lists with one entry per seed: `found_rank` (total
//! over layers), `exact` (every layer has the planted rank), `nll_mean` (at the posterior mean), `nll_mc` (averaged over 10
//! draws) and `nll_oracle` (of the planted weights), nats on 8000 fresh rows; `seconds`; `runs` with the singular values and
//! the loss over rank.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::error::Error;
use std::time::Instant;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, ValueEnum, value_parser};
use lrvd_burn::adapter::{AdaptedLinear, ArdHyper, Extension, Prior};
use lrvd_burn::burn::module::Module;
use lrvd_burn::burn::tensor::{Device, Tensor, TensorData};
use lrvd_burn::core::kl::ArdScales;
use lrvd_burn::core::linalg::{svd, times, times_transposed, transpose};
use lrvd_burn::core::metrics::Predictions;
use lrvd_burn::core::noise::{Generator, NoiseKey, Stream};
use lrvd_burn::core::posterior::clamp_log_variance;
use lrvd_burn::core::prune::{PruneRule, StatisticAggregate, StatisticOptions};
use lrvd_burn::core::update::{SingularFactors, singular_factors};
use lrvd_burn::core::{Factors, Posterior};
use lrvd_burn::model::ranks;
use lrvd_burn::objective::Objective;
use lrvd_burn::optimizer::GroupRates;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::{
    BayesLoraMethod, Inputs, Method, Model, OrderConfig, Ordered, RankCause, Rows, Run, Setup,
    StepContext, StepState, Targets, TrainConfig, UpdatePhase, Watch, directions, keep,
    rotate_to_singular_basis,
};
use lrvd_burn::{BayesLora, Selection, prune};
use serde::Serialize;
use serde_json::{Value, json};

const INPUT: usize = 48;
const HIDDEN: usize = 32;
const CLASSES: usize = 8;
/// Largest and smallest planted singular value.
const SINGULAR: (f64, f64) = (3.0, 1.5);
/// Factor of the readout's logits of unit variance: about 0.9 nats stay open under the planted weights.
const SHARPNESS: f64 = 4.0;
const INITIAL_RANK: usize = 16;
const BATCH: usize = 64;
const EVALUATION_BATCH: usize = 1000;
const FRESH_ROWS: usize = 8000;
const DRAWS: usize = 10;

/// Law of the inputs: `N(0, I)`, or `N(0, Q·diag(λ)·Qᵀ)` with `λ_j ∝ 1/j` of mean 1 and a random orthogonal `Q`.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum InputLaw {
    Independent,
    Decaying,
}

/// A planted update and the run that learns it.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Config {
    /// Rank of the planted update of every layer.
    #[arg(long, default_value_t = 3, value_parser = count().range(1..=INITIAL_RANK as u64))]
    pub(crate) rank: usize,
    /// Training rows.
    #[arg(long, default_value_t = 8000, value_parser = count().range(BATCH as u64..=1_000_000))]
    pub(crate) n: usize,
    /// Layers with an update.
    #[arg(long, default_value_t = 1, value_parser = count().range(1..=2))]
    pub(crate) layers: usize,
    /// Law of the inputs.
    #[arg(long, value_enum, default_value = "independent")]
    pub(crate) inputs: InputLaw,
    /// The first seed.
    #[arg(long = "first-seed", default_value_t = 1, value_parser = value_parser!(u64).range(..=1_000_000_000))]
    pub(crate) seed: u64,
    /// Optimizer steps for each layer: what one layer does not need fades more slowly where another still learns.
    #[arg(long, default_value_t = 3000, value_parser = count().range(1..))]
    pub(crate) steps: usize,
}

/// Plant an update of known rank, learn it, and count the directions that are found.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    config: Config,
    /// Number of seeds, each with another task.
    #[arg(long, default_value_t = 5, value_parser = count().range(1..=1_000_000))]
    seeds: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new()
}

fn normals(draws: &mut Generator, n: usize, scale: f64) -> Vec<f64> {
    (0..n).map(|_| scale * draws.normal()).collect()
}

/// `n` orthonormal rows of length `width`.
fn orthonormal(draws: &mut Generator, n: usize, width: usize) -> Vec<f64> {
    svd(&normals(draws, n * width, 1.0), n, width).right
}

/// A frozen weight, row-major `[HIDDEN, width]`, and the same plus the planted update.
fn plant(draws: &mut Generator, width: usize, rank: usize) -> [Vec<f64>; 2] {
    let frozen = normals(draws, HIDDEN * width, 1.0 / (width as f64).sqrt());
    let (u, v) = (orthonormal(draws, rank, HIDDEN), orthonormal(draws, rank, width));
    let step = if rank > 1 { (SINGULAR.0 - SINGULAR.1) / (rank - 1) as f64 } else { 0.0 };
    let mut planted = frozen.clone();
    for k in 0..rank {
        let value = SINGULAR.0 - step * k as f64;
        for (at, weight) in planted.iter_mut().enumerate() {
            *weight += value * u[k * HIDDEN + at / width] * v[k * width + at % width];
        }
    }
    [frozen, planted]
}

/// `diag(√λ)·Q`, for rows from the right.
fn mixing(draws: &mut Generator) -> Vec<f64> {
    let mut mixing = orthonormal(draws, INPUT, INPUT);
    let total: f64 = (1..=INPUT).map(|j| 1.0 / j as f64).sum();
    for (at, value) in mixing.iter_mut().enumerate() {
        *value *= (INPUT as f64 / total / (at / INPUT + 1) as f64).sqrt();
    }
    mixing
}

/// A frozen network, an update of known rank, and rows whose labels follow their sum.
///
/// ```text
/// h_0 = x,   h_l = tanh((W_l + ΔW_l)·h_{l−1}),   y ~ softmax(4·H·h_L),   all of independent normal entries:
/// W_l [32, width] of variance 1/width,  H [8, 32] of variance 1/32,
/// ΔW_l = Σ_k ς_k·u_k·v_kᵀ with random orthonormal u, v and ς evenly from 3.0 to 1.5
/// ```
struct Task {
    student: Student,
    train: Rows<2>,
    fresh: Rows<2>,
    /// Mean negative log-likelihood of the planted weights on the fresh rows, nats.
    oracle: f64,
}

impl Task {
    fn new(config: &Config, device: &Device) -> Self {
        let draws = &mut Generator::new(NoiseKey::new(config.seed).on_stream(Stream::DATA));
        let readout = normals(draws, CLASSES * HIDDEN, SHARPNESS / (HIDDEN as f64).sqrt());
        let layers: Vec<_> = [INPUT, HIDDEN][..config.layers]
            .iter()
            .map(|&width| plant(draws, width, config.rank))
            .collect();
        let mixing = (config.inputs == InputLaw::Decaying).then(|| mixing(draws));
        let mut rows = |n: usize| {
            let mut x = normals(draws, n * INPUT, 1.0);
            if let Some(mixing) = &mixing {
                x = times(&x, mixing, n, INPUT, INPUT);
            }
            let mut hidden = x.clone();
            for [_, planted] in &layers {
                hidden = times_transposed(&hidden, planted, n, planted.len() / HIDDEN, HIDDEN);
                for h in &mut hidden {
                    *h = h.tanh();
                }
            }
            let logits = times_transposed(&hidden, &readout, n, HIDDEN, CLASSES);
            let (mut one_hot, mut nll) = (vec![0.0; n * CLASSES], 0.0);
            for (logits, label) in logits.chunks(CLASSES).zip(one_hot.chunks_mut(CLASSES)) {
                let total: f64 = logits.iter().map(|z| z.exp()).sum();
                let (u, mut sum) = (draws.uniform() * total, 0.0);
                let reached = |z: &f64| {
                    sum += z.exp();
                    u < sum
                };
                let class = logits.iter().position(reached).unwrap_or(CLASSES - 1);
                label[class] = 1.0;
                nll += total.ln() - logits[class];
            }
            let tensor =
                |values, width| Tensor::<2>::from_data(TensorData::new(values, [n, width]), device);
            let targets = Targets::Classes(tensor(one_hot, CLASSES));
            (Rows::new(tensor(x, INPUT), targets), nll / n as f64)
        };
        let ((train, _), (fresh, oracle)) = (rows(config.n), rows(FRESH_ROWS));
        let frozen = |values: &[f64], n_out: usize| {
            let n_in = values.len() / n_out;
            let data = TensorData::new(transpose(values, n_out, n_in), [n_in, n_out]);
            AdaptedLinear::new(Tensor::from_data(data, device), None)
        };
        let layer = layers.iter().map(|[weight, _]| frozen(weight, HIDDEN)).collect();
        Self {
            student: Student { layer, readout: frozen(&readout, CLASSES) },
            train,
            fresh,
            oracle,
        }
    }
}

/// The frozen network before the update; its layers are `layer.0` and `layer.1`.
#[derive(Module, Debug)]
struct Student {
    layer: Vec<AdaptedLinear>,
    readout: AdaptedLinear,
}

impl Model for Student {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        let forward =
            |hidden: Tensor<2>, layer: &AdaptedLinear| layer.forward_with(hidden, pass).tanh();
        self.readout.forward_with(self.layer.iter().fold(input.clone(), forward), pass)
    }
}

/// BayesLoRA whose layers are rotated to the singular directions of their mean updates after `after` steps, with a smaller KL
/// weight from then on: the KL of a shared variance is driven by the least certain entry of the rank, which is too much for a
/// weak direction, while spread ranks need the full weight to become few.
struct Rotated {
    posterior: BayesLoraMethod,
    after: usize,
}

/// Factor of the KL weight after the rotation.
const KL_FACTOR: f64 = 0.7;

impl Method<Student> for Rotated {
    fn setup(&self, config: &TrainConfig) -> Result<Setup, lrvd_burn::Error> {
        Method::<Student>::setup(&self.posterior, config)
    }

    fn objective(
        &self,
        model: &Student,
        step: &StepContext,
        likelihood: Objective,
    ) -> Result<Objective, lrvd_burn::Error> {
        let mut objective = self.posterior.objective(model, step, likelihood)?;
        if step.step >= self.after {
            objective.kl_weight *= KL_FACTOR;
        }
        Ok(objective)
    }

    fn update(
        &mut self,
        when: UpdatePhase,
        step: StepState<'_, Student>,
    ) -> Result<Option<RankCause>, lrvd_burn::Error> {
        if when == UpdatePhase::AfterUpdate && step.context.step + 1 == self.after {
            let adapters = step.model.layer.iter().filter_map(AdaptedLinear::low_rank);
            let posteriors = adapters.filter_map(|adapter| adapter.host_posterior().transpose());
            let carried = posteriors.map(|posterior| log_variances(&posterior?));
            let carried = carried.collect::<Result<Vec<_>, _>>()?;
            rotate_to_singular_basis(step.model)?;
            for (layer, values) in step.model.layer.iter_mut().zip(carried) {
                layer.edit(|adapter| {
                    if let Some(Extension::Gaussian(noise)) = &mut adapter.extension {
                        noise.set_per_rank(&values);
                    }
                });
            }
            // Its moments belong to the old basis.
            step.optimizer.reset();
        }
        Ok(None)
    }
}

/// Log-variances of the singular directions of an adapter with one log-variance per rank.
///
/// With `v = exp(log_variance)` and the basis change `A' = R·A`, `B' = B·R⁻¹`:
///
/// ```text
/// R[i,k] = ⟨b_k, b'_i⟩ / ς_i,    R⁻¹[k,i] = ⟨a_k, a'_i⟩ / ς_i
/// v_a[i] = Σ_k R[i,k]²·v[k],     v_b[i] = Σ_k R⁻¹[k,i]²·v[k]
/// v'[i]  = s·√(v_a[i]·v_b[i]);   s·mean(v) where ς_i = 0: both means are zero
/// ```
///
/// One number per rank cannot hold both `v_a` and `v_b`. The factor `s > 0` keeps the total variance of the update,
///
/// ```text
/// Σ Var ΔW = Σ_k d_input·‖b_k‖²·v[k] + d_output·‖a_k‖²·v[k] + d_input·d_output·v[k]²
/// ```
fn log_variances(posterior: &Posterior) -> Result<Vec<f64>, lrvd_burn::core::Error> {
    let old = posterior.factors();
    let Factors { rank, d_input, d_output, .. } = *old;
    let SingularFactors { values, factors: new } = singular_factors(old)?;
    let [old_b, new_b] = [old, &new].map(Factors::b_by_rank);
    let noise = posterior.noise().a.iter();
    let v: Vec<f64> = noise.map(|&l| clamp_log_variance(l).exp()).collect();
    let mean = v.iter().sum::<f64>() / rank.max(1) as f64;
    // [directions, ranks]
    let overlaps = [
        times_transposed(&new.a, &old.a, rank, d_input, rank),
        times_transposed(&new_b, &old_b, rank, d_output, rank),
    ];
    let least = 1e-10 * values.first().copied().unwrap_or(0.0);
    let carried = |(i, &value): (usize, &f64)| {
        if value <= least {
            return mean;
        }
        let through = |overlap: &Vec<f64>| {
            let row = overlap[i * rank..(i + 1) * rank].iter().zip(&v);
            row.map(|(o, v)| (o / value).powi(2) * v).sum::<f64>()
        };
        (through(&overlaps[1]) * through(&overlaps[0])).sqrt()
    };
    let directions: Vec<f64> = values.iter().enumerate().map(carried).collect();
    // The parts of the total that are linear and quadratic in the variances.
    let parts = |a: &[f64], b: &[f64], v: &[f64]| {
        let square = |factor: &[f64], width: usize, k: usize| -> f64 {
            factor[k * width..(k + 1) * width].iter().map(|x| x * x).sum()
        };
        v.iter().enumerate().fold((0.0, 0.0), |(linear, quadratic), (k, v)| {
            let of_b = d_input as f64 * square(b, d_output, k);
            let of_a = d_output as f64 * square(a, d_input, k);
            (linear + v * (of_a + of_b), quadratic + (d_input * d_output) as f64 * v * v)
        })
    };
    let (linear, quadratic) = parts(&old.a, &old_b, &v);
    let total = linear + quadratic;
    let (linear, quadratic) = parts(&new.a, &new_b, &directions);
    let root = (linear * linear + 4.0 * quadratic * total).sqrt();
    let scale = if total > 0.0 { 2.0 * total / (linear + root) } else { 1.0 };
    Ok(directions.iter().map(|v| clamp_log_variance((scale * v).ln())).collect())
}

/// Result of one layer.
#[derive(Serialize)]
pub(crate) struct Found {
    path: String,
    /// Directions whose mean has more energy than their noise.
    #[serde(rename = "found")]
    pub(crate) rank: usize,
    /// Of the mean update before the others were cut, largest first.
    pub(crate) singular_values: Vec<f64>,
}

/// Result of one seed; losses are nats on fresh rows.
pub(crate) struct Recovery {
    seed: u64,
    pub(crate) layers: Vec<Found>,
    is_exact: bool,
    pub(crate) nll_mean: f64,
    pub(crate) nll_mc: f64,
    pub(crate) nll_oracle: f64,
    /// With the first 0, 1, 2, … directions.
    pub(crate) nll_by_rank: Vec<f64>,
    seconds: f64,
}

impl Recovery {
    fn rank(&self) -> usize {
        self.layers.iter().map(|layer| layer.rank).sum()
    }
}

/// Learns the task of `config` and reads the rank off the posterior.
///
/// ARD with one scale per rank at KL weight 1, reached at half the run, where the update is rotated to its singular
/// directions; KL weight 0.7 from then on. No row is held out. The noise is nested: for a row of one token it has the law
/// of one weight draw per row.
pub(crate) fn recover(config: &Config, device: &Device) -> Result<Recovery, Box<dyn Error>> {
    let task = Task::new(config, device);
    let steps = config.steps * config.layers;
    let half = (steps as f64 / 2.0).round();
    let posterior = BayesLora {
        lora_alpha: INITIAL_RANK as f64,
        noise_rate_factor: 1.0,
        prior: Prior::Ard { scales: ArdScales::Shared, hyper: ArdHyper::EmpiricalBayes },
        kl_weight: 1.0,
        scheme: Some(Scheme::Nested),
        ..BayesLora::new(INITIAL_RANK)
    };
    let posterior = BayesLoraMethod { kl_warmup: half as u32, pruning: None, ..posterior.into() };
    let method = Rotated { posterior, after: half.max(1.0) as usize };
    let mut training = TrainConfig {
        steps,
        seed: config.seed,
        gradient_clip: None,
        model_dropout: false,
        evaluate_every: steps,
        ..TrainConfig::default()
    };
    training.groups.adapter = GroupRates { learning_rate: 1e-2, weight_decay: 0.0 };
    let paths = (0..config.layers).map(|layer| format!("layer.{layer}")).collect();
    let mut run = Run::new(task.student, Box::new(method), &Selection::Paths(paths), &training)?;
    let mut batches = Ordered::new(&task.train, OrderConfig::shuffled(BATCH), config.seed)?;
    let start = Instant::now();
    run.fit(&mut batches, &mut Watch::default())?;
    let seconds = start.elapsed().as_secs_f64();

    let model = &mut run.state.model;
    let energy = StatisticOptions { aggregate: StatisticAggregate::Energy, ..Default::default() };
    let event = prune::plan(model, &PruneRule::new(0.0, 0)?, energy)?;
    let mut rotated = model.clone();
    let spectra = rotate_to_singular_basis(&mut rotated)?;
    let order = directions(&rotated);
    let with_rank = |n: usize| {
        let mut part = rotated.clone();
        keep(&mut part, &order, n, None);
        nll(&part, &task.fresh, 0)
    };
    let nll_by_rank =
        (0..=order.len().min(INITIAL_RANK)).map(with_rank).collect::<Result<_, _>>()?;
    prune::apply(model, &event, None, None);
    let found = |(path, rank)| {
        let singular_values = spectra.get(&path).cloned().unwrap_or_default();
        Found { path, rank, singular_values }
    };
    let layers: Vec<Found> = ranks(model).into_iter().map(found).collect();
    Ok(Recovery {
        seed: config.seed,
        is_exact: layers.iter().all(|layer| layer.rank == config.rank),
        layers,
        nll_mean: nll(&run.state.model, &task.fresh, 0)?,
        nll_mc: nll(&run.state.model, &task.fresh, DRAWS)?,
        nll_oracle: task.oracle,
        nll_by_rank,
        seconds,
    })
}

fn nll(model: &Student, rows: &Rows<2>, draws: usize) -> Result<f64, Box<dyn Error>> {
    let inputs = Inputs { batch_size: EVALUATION_BATCH, ..Inputs::new(rows) };
    let logits = inputs.drawn(draws).predict(&model.clone().valid())?;
    let probabilities: Vec<f64> =
        logits.classes()?.into_iter().flat_map(|answer| answer.probabilities).collect();
    let classes = rows.targets.as_ref().and_then(Targets::classes).unwrap_or_default();
    Ok(Predictions::new(&probabilities, logits.width, &classes)?.nll())
}

pub(crate) fn report(config: &Config, runs: &[Recovery]) -> Value {
    let all = |of: fn(&Recovery) -> Value| runs.iter().map(of).collect::<Value>();
    json!({
        "planted_rank": config.rank,
        "n": config.n,
        "layers": config.layers,
        "seeds": all(|r| r.seed.into()),
        "found_rank": all(|r| r.rank().into()),
        "exact": all(|r| r.is_exact.into()),
        "nll_mean": all(|r| r.nll_mean.into()),
        "nll_mc": all(|r| r.nll_mc.into()),
        "nll_oracle": all(|r| r.nll_oracle.into()),
        "seconds": all(|r| r.seconds.into()),
        "runs": all(|r| json!({ "seed": r.seed, "layers": r.layers, "nll_by_rank": r.nll_by_rank })),
    })
}

/// Prints the singular values of a run as bars, and its losses.
fn print(run: &Recovery, planted: usize) {
    for Found { path, rank, singular_values } in &run.layers {
        println!("seed {}, {path}: rank {planted} planted, {rank} found", run.seed);
        let largest = singular_values.first().copied().unwrap_or(1.0);
        for (k, value) in singular_values.iter().enumerate() {
            let bar = "█".repeat((value / largest * 36.0).round() as usize);
            let kept = if k < *rank { "kept" } else { "" };
            println!("  {:>2} {value:7.4} {bar:<36} {kept}", k + 1);
        }
    }
    println!(
        "NLL {:.4} at the mean, {:.4} with {DRAWS} draws, {:.4} of the planted weights",
        run.nll_mean, run.nll_mc, run.nll_oracle
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { config: first, seeds, json } = Arguments::parse();
    let mut runs = Vec::new();
    for seed in first.seed..first.seed + seeds as u64 {
        let run = recover(&Config { seed, ..first }, &Device::flex())?;
        eprintln!("seed {seed}: rank {} found in {:.0} s", run.rank(), run.seconds);
        runs.push(run);
    }
    if json {
        println!("{:#}", report(&first, &runs));
        return Ok(());
    }
    print(&runs[0], first.rank);
    let exact = runs.iter().filter(|run| run.is_exact).count();
    println!("The planted rank was found in {exact} of {} runs.", runs.len());
    Ok(())
}
