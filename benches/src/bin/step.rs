//! Training steps, predictions or continuations, timed, as one line of JSON: our side of `cargo xtask bench`.
//!
//! ```text
//! cargo run --release -p lrvd-perf --bin step -- --config base --method lora --steps 5
//! ```
#![allow(clippy::print_stdout, reason = "the line of JSON is the product")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn::module::Module;
use burn::tensor::DType;
use clap::{Parser, ValueEnum};
use lrvd_burn::adapter::BaseBits;
use lrvd_burn::model::trainable_counts;
use lrvd_models::Precision;
use lrvd_perf::{
    Architecture, EncoderTrainer, Generation, Held, Method, Operations, Reading, Recipe, Task,
    Trainer, Way, batch, keep_last_layers, predict, prove, prune_to,
};
use serde_json::{Value, json};

/// Times training steps, predictions with `--draws`, or continuations with `--generate`.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
struct Options {
    #[arg(long, value_enum, default_value_t = Architecture::Nano)]
    config: Architecture,
    #[arg(long, value_enum, default_value_t = Method::Lora)]
    method: Method,
    /// `cpu`, `wgpu[:N]` or `cuda[:N]`, as built in
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Rank at attachment
    #[arg(long, default_value_t = 8)]
    rank: usize,
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens of each row
    #[arg(long, default_value_t = 128)]
    length: usize,
    /// Layers, in place of the architecture's
    #[arg(long)]
    layers: Option<usize>,
    /// Precision of the base
    #[arg(long, value_enum, default_value_t = Base::F32)]
    base: Base,
    /// Computes the activations of a layer again in the backward pass
    #[arg(long)]
    recompute: bool,
    /// Percent of each adapter's rank that a prune keeps
    #[arg(long, default_value_t = 100)]
    keep: usize,
    /// Percent of the adapters that a prune keeps
    #[arg(long, default_value_t = 100)]
    modules: usize,
    /// Transformer layers, from the last, whose adapters a prune keeps
    #[arg(long)]
    live_layers: Option<usize>,
    /// Times predictions with so many draws, 0 for the mean
    #[arg(long)]
    draws: Option<usize>,
    /// Way of drawing them
    #[arg(long, value_enum, default_value_t = Way::Sequential)]
    way: Way,
    /// Asks a classifier that is trained into this folder unless it is there, with `--live-layers` if given, for
    /// held-out texts
    #[arg(long, requires = "draws", value_name = "FOLDER")]
    trained: Option<PathBuf>,
    /// Trains by the loop that users run, in place of `--method`
    #[arg(long, value_enum, conflicts_with = "method")]
    recipe: Option<Recipe>,
    /// Times whole runs of so many steps, in place of steps
    #[arg(long, requires = "recipe", value_name = "STEPS")]
    whole: Option<usize>,
    /// Estimates the memory of a recipe as well
    #[arg(long, requires = "recipe")]
    estimate: bool,
    /// Rows of the data of a recipe, of which a search holds a tenth out
    #[arg(long, default_value_t = 1000)]
    rows: usize,
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Steps before the clock starts
    #[arg(long, default_value_t = 1)]
    warmup: usize,
    /// Further steps before the clock starts
    #[arg(long, default_value_t = 0)]
    skip: usize,
    /// Times continuations of `--batch` prompts of `--length` tokens by so many tokens each
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["draws", "recipe", "method"])]
    generate: Option<usize>,
    /// Measures how long memory is read if every weight is read once a token, in place of continuations
    #[arg(long, requires = "generate")]
    limit: bool,
    /// Measures what the processor can do at most, in place of everything else
    #[arg(long)]
    ceiling: bool,
    /// Says what the device is, in place of everything else
    #[arg(long)]
    facts: bool,
    /// Checks operators on the device, then times their kernels beside their compositions for `--batch` texts of `--length`
    /// tokens, in place of everything else: a line of JSON each
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    operators: Vec<String>,
}

/// Precision of the frozen base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Base {
    F32,
    Bf16,
    Q8,
    Q4,
}

impl Base {
    fn precision(self) -> Precision {
        match self {
            Self::F32 => DType::F32.into(),
            Self::Bf16 => DType::BF16.into(),
            Self::Q8 => Precision { dtype: DType::F32, bits: Some(BaseBits::Q8) },
            Self::Q4 => Precision { dtype: DType::F32, bits: Some(BaseBits::Q4) },
        }
    }
}

fn main() -> Result<(), String> {
    let options = Options::parse();
    let timed = || match (&options.trained, options.recipe) {
        _ if options.ceiling => Ok(json!({
            "product_flops": lrvd_perf::product(),
            "read_bytes_per_second": lrvd_perf::read_bandwidth(),
        })),
        _ if options.facts => lrvd_perf::facts(&options.device),
        _ if !options.operators.is_empty() => of_operators(&options),
        _ if options.generate.is_some() => continuations(&options),
        (Some(folder), _) => classifier(&options, folder),
        (None, Some(recipe)) => by_recipe(&options, recipe),
        (None, None) if options.method.is_of_encoder() => of_encoder(&options),
        (None, None) => random(&options),
    };
    let line = lrvd_perf::as_command(|| timed().map_err(|error| error.to_string()));
    let line = line.map_err(|error| error.to_string())??;
    println!("{line}");
    Ok(())
}

/// Checks and times of operators; an error if one of them does not hold.
fn of_operators(options: &Options) -> Result<Value, Box<dyn std::error::Error>> {
    let device = lrvd_burn::device::open(&options.device)?;
    let Options { operators, batch, length, .. } = options;
    let mut lines = 0;
    let failures = lrvd_perf::operators(operators, &device, [*batch, *length], &mut |line| {
        lines += 1;
        println!("{line}");
    });
    match failures {
        _ if lines == 0 => Err(format!("no operator is called {}", operators.join(" or ")).into()),
        0 => Ok(json!({ "operators": operators, "failures": 0 })),
        failures => Err(format!("{failures} checks of {} failed", operators.join(", ")).into()),
    }
}

/// Steps or predictions of a model with random weights.
fn random(options: &Options) -> Result<Value, Box<dyn std::error::Error>> {
    let device = lrvd_burn::device::open(&options.device)?;
    let Options { config, method, layers, rank, .. } = *options;
    let dtype = options.base.precision().dtype;
    if !device.supports_dtype(dtype) {
        return Ok(
            json!({ "unsupported": format!("`{}` has no {}", options.device, dtype.name()) }),
        );
    }
    let mut trainer =
        Trainer::new(config, layers, method, rank, &device, options.base.precision())?;
    trainer.model.recompute(options.recompute);
    if options.keep < 100 || options.modules < 100 {
        prune_to(&mut trainer.model, options.keep, options.modules);
    }
    if let Some(live) = options.live_layers {
        keep_last_layers(&mut trainer.model, live);
    }
    let (input, labels) = batch(config, options.batch, options.length, &device)?;
    let operations =
        Operations::of(&trainer.model, Reading::of(config, options.batch, options.length)?);
    // Batched draws share a part of their passes, and a cascade makes few.
    let operations = match (options.draws, options.way) {
        (None, _) => Some(operations.step()),
        (Some(draws), Way::Sequential) => Some(operations.forward * draws.max(1) as f64),
        (Some(0), _) => Some(operations.forward),
        (Some(_), Way::Batched | Way::Cascade) => None,
    };
    let frozen = options.draws.map(|draws| (draws, trainer.model.clone().valid()));
    if let Some((draws, model)) = &frozen {
        prove(options.way, model, &input, *draws)?;
    }
    let mut forward_seconds = Vec::new();
    let mut losses = Vec::new();
    let seconds = times(options, |number| {
        match &frozen {
            Some((draws, model)) => drop(predict(options.way, model, &input, *draws)?),
            None => {
                let (forward, loss) = trainer.step(&input, &labels, number);
                forward_seconds.push(forward);
                losses.push(loss);
            }
        }
        Ok(device.sync()?)
    })?;
    if let Some(number) = losses.iter().position(|loss| !loss.is_finite()) {
        return Err(format!("the loss of step {number} is {}", losses[number]).into());
    }
    let counts = trainable_counts(&trainer.model);
    Ok(json!({
        "framework": "lrvd",
        "config": name(config),
        "method": name(method),
        "base": name(options.base),
        "batch": options.batch,
        "length": options.length,
        "trainable_parameters": trainer.trainable(),
        "adapter_bytes": 4 * (counts.adapter + counts.posterior),
        "operations": operations,
        "seconds": seconds,
        "forward_seconds": timed_ones(options, forward_seconds),
        "loss": losses.last(),
        "peak_rss_bytes": peak_rss(),
    }))
}

/// The name of an option's value.
fn name(value: impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_owned())
}

/// Entries of the steps on the clock.
fn timed_ones(options: &Options, mut all: Vec<f64>) -> Vec<f64> {
    all.split_off((options.skip + options.warmup).min(all.len()))
}

/// Steps of an encoder of Burn's parts.
fn of_encoder(options: &Options) -> Result<Value, Box<dyn std::error::Error>> {
    let device = lrvd_burn::device::open(&options.device)?;
    let Options { config, method, layers, rank, .. } = *options;
    let mut trainer = EncoderTrainer::new(config, layers, method, rank, &device)?;
    let (input, labels) = batch(config, options.batch, options.length, &device)?;
    let mut forward_seconds = Vec::new();
    let mut losses = Vec::new();
    let seconds = times(options, |number| {
        let (forward, loss) = trainer.step(&input.ids, &labels, number)?;
        forward_seconds.push(forward);
        losses.push(loss);
        Ok(device.sync()?)
    })?;
    Ok(json!({
        "framework": if method == Method::ApplyLora { "burn" } else { "lrvd" },
        "config": name(config),
        "method": name(method),
        "batch": options.batch,
        "length": options.length,
        "trainable_parameters": trainer.trainable(),
        "operations": trainer.operations(options.batch, options.length).map(Operations::step),
        "seconds": seconds,
        "forward_seconds": timed_ones(options, forward_seconds),
        "loss": losses.last(),
        "peak_rss_bytes": peak_rss(),
    }))
}

/// Steps or whole runs of the loop that users run.
fn by_recipe(options: &Options, recipe: Recipe) -> Result<Value, Box<dyn std::error::Error>> {
    let device = lrvd_burn::device::open(&options.device)?;
    let steps = options.whole.unwrap_or(options.skip + options.warmup + options.steps);
    let task = Task {
        architecture: options.config,
        rank: options.rank,
        rows: options.rows,
        batch: options.batch,
        length: options.length,
        steps,
    };
    let estimated = options.estimate.then(|| lrvd_perf::estimated_memory(&task));
    let mut seconds = Vec::new();
    let mut loss = f64::NAN;
    if options.whole.is_some() {
        for _ in 0..options.steps {
            let timed = lrvd_perf::train(recipe, &task, true, &device)?;
            seconds.push(timed.whole);
            loss = timed.loss;
        }
    } else {
        let mut timed = lrvd_perf::train(recipe, &task, false, &device)?;
        seconds = timed.steps.split_off(timed.steps.len().saturating_sub(options.steps));
        loss = timed.loss;
    }
    Ok(json!({
        "framework": "lrvd",
        "config": name(options.config),
        "recipe": name(recipe),
        "batch": options.batch,
        "length": options.length,
        "seconds": seconds,
        "loss": loss,
        "estimated_bytes": estimated.transpose()?,
        "peak_rss_bytes": peak_rss(),
    }))
}

/// Continuations by a language model, or the least time of them.
fn continuations(options: &Options) -> Result<Value, Box<dyn std::error::Error>> {
    let device = lrvd_burn::device::open(&options.device)?;
    let Options { config, layers, batch, length, base, .. } = *options;
    let tokens = options.generate.unwrap_or(0);
    let generation = Generation::new(config, layers, base.precision(), [batch, length, tokens])?;
    let seconds = if options.limit {
        (0..options.steps).map(|_| generation.limit()).collect()
    } else {
        let model = generation.model(&device);
        times(options, |_| generation.run(&model))?
    };
    Ok(json!({
        "framework": "lrvd",
        "config": name(config),
        "base": name(base),
        "batch": batch,
        "length": length,
        "tokens": batch * tokens,
        "bytes": generation.bytes(),
        "seconds": seconds,
        "peak_rss_bytes": (!options.limit).then(peak_rss),
    }))
}

/// Predictions of a trained classifier, and what they are worth.
fn classifier(options: &Options, folder: &Path) -> Result<Value, Box<dyn std::error::Error>> {
    let held = Held::open(folder, options.live_layers, options.way.policy())?;
    let draws = options.draws.unwrap_or(0);
    let mut answers = Vec::new();
    let seconds = times(options, |_| {
        answers = held.answers(draws)?;
        Ok(())
    })?;
    let mut line = held.worth(&answers)?;
    line["framework"] = json!("lrvd");
    line["seconds"] = json!(seconds);
    line["peak_rss_bytes"] = json!(peak_rss());
    Ok(line)
}

/// Seconds of each step after those that warm up.
fn times(
    options: &Options,
    mut step: impl FnMut(usize) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut seconds = Vec::new();
    for number in 0..options.skip + options.warmup + options.steps {
        let begun = Instant::now();
        step(number)?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    Ok(timed_ones(options, seconds))
}

/// Largest resident set so far in bytes; `None` where the system does not tell.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok().map(|kilobytes: u64| kilobytes * 1024)
}
