//! One training step, timed, as one line of JSON: our side of the comparison with PyTorch.
//!
//! ```text
//! cargo run --release -p lrvd-perf --bin step -- --config base --method lora --steps 5
//! cargo run --release -p lrvd-perf --bin step -- --mode predict --draws 10 --live-layers 1 --batch 4
//! ```
//!
//! The second line asks for a prediction: at the mean, by one pass for each draw, and with several draws in
//! a pass, in turn, the fastest of `--steps` each.
//!
//! `xtask/python/compare_speed.py` runs this and the PyTorch side in turn and prints the ratio.
#![allow(clippy::print_stdout, reason = "the line of JSON is the product")]

use std::time::Instant;

use burn::module::Module;
use burn::tensor::{Device, activation};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Prior};
use lrvd_burn::model::total_kl;
use lrvd_burn::optimizer::{AdamW, AdamWConfig, GroupRates, NamedGradients, ParameterGroups};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::kl::KlReduction;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::DebertaConfig;
use lrvd_perf::predict::{Question, Seconds};
use lrvd_perf::{Size, batch, classifier};

struct Options {
    size: Size,
    method: String,
    steps: usize,
    warmup: usize,
    batch: usize,
    length: usize,
    mode: String,
    draws: usize,
    live_layers: usize,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        size: Size::Nano,
        method: "lora".to_owned(),
        steps: 5,
        warmup: 1,
        batch: 8,
        length: 128,
        mode: "step".to_owned(),
        draws: 10,
        live_layers: usize::MAX,
    };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
        match flag.as_str() {
            "--config" => {
                let name = value()?;
                options.size = Size::from_name(&name).ok_or(format!("unknown config {name}"))?;
            }
            "--method" => options.method = value()?,
            "--steps" => options.steps = number(value()?)?,
            "--warmup" => options.warmup = number(value()?)?,
            "--batch" => options.batch = number(value()?)?,
            "--length" => options.length = number(value()?)?,
            "--mode" => options.mode = value()?,
            "--draws" => options.draws = number(value()?)?,
            "--live-layers" => options.live_layers = number(value()?)?,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let device = Device::flex();
    let config = options.size.config()?;
    if options.mode == "predict" {
        return predict(&options, &config);
    }
    let (kind, scheme) = match options.method.as_str() {
        "lora" => (AdapterKind::Lora { b_bound: 0.0 }, Scheme::Mean),
        "bayeslora" => (AdapterKind::bayes_lora(), Scheme::Weights(DrawPer::Sequence)),
        "moment-matched" => (AdapterKind::bayes_lora(), Scheme::MomentMatched(CrossTerm::Exact)),
        other => return Err(format!("unknown method {other}").into()),
    };
    let adapter = AdapterConfig { kind, rank: 8, lora_alpha: 16.0, dropout: 0.0 };
    let mut model = classifier(&config, Some(&adapter), &device)?;
    let (input, labels) = batch(&config, options.batch, options.length, &device);
    let rates = GroupRates { learning_rate: 1e-3, weight_decay: 0.0 };
    let groups = ParameterGroups {
        adapter: rates,
        log_variance: rates,
        pooler: rates,
        head: rates,
        backbone: rates,
    };
    let mut optimizer = AdamW::new(AdamWConfig::default(), groups);
    let (mut step_seconds, mut forward_seconds) = (Vec::new(), Vec::new());
    for step in 0..options.warmup + options.steps {
        let begun = Instant::now();
        let pass = Pass::sampled(scheme, NoiseKey::new(7).at_step(step as u32));
        if options.mode == "forward" {
            let _ = model.clone().valid().forward(&input, &Pass::mean()).into_data();
            if step >= options.warmup {
                forward_seconds.push(begun.elapsed().as_secs_f64());
            }
            continue;
        }
        let logits = model.forward(&input, &pass);
        let nll = (activation::log_softmax(logits, 1) * labels.clone()).sum().neg();
        let mut loss = nll.mul_scalar(1.0 / options.batch as f64);
        if let Some(kl) = total_kl(&model, Prior::LogUniform, KlReduction::Element) {
            loss = loss + kl.mul_scalar(1e-6);
        }
        let _: f64 = loss.clone().into_scalar();
        let forward = begun.elapsed().as_secs_f64();
        let backward = loss.backward();
        let mut gradients = NamedGradients::collect(&model, &backward);
        let norm = gradients.global_norm();
        gradients.clip(norm, 0.1);
        optimizer.step(&mut model, &gradients, 1.0);
        if step >= options.warmup {
            forward_seconds.push(forward);
            step_seconds.push(begun.elapsed().as_secs_f64());
        }
    }
    let median = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let (median_step, median_forward) = (median(&step_seconds), median(&forward_seconds));
    println!(
        "{{\"framework\": \"lrvd\", \"config\": \"{}\", \"method\": \"{}\", \"batch\": {}, \"length\": {}, \
         \"step_seconds\": {step_seconds:?}, \"forward_seconds\": {forward_seconds:?}, \
         \"median_step_seconds\": {}, \"median_forward_seconds\": {median_forward}, \
         \"peak_rss_bytes\": {}}}",
        options.size.name(),
        options.method,
        options.batch,
        options.length,
        if median_step.is_nan() { "null".to_owned() } else { median_step.to_string() },
        peak_rss()
    );
    Ok(())
}

/// The line of `--mode predict`.
fn predict(options: &Options, config: &DebertaConfig) -> Result<(), Box<dyn std::error::Error>> {
    let Options { batch, length, draws, .. } = *options;
    let live_layers = options.live_layers.min(config.num_hidden_layers);
    let question = Question { batch, length, draws, live_layers, rounds: options.steps };
    let Seconds { mean, sequential, batched } = lrvd_perf::predict::time(config, &question)?;
    println!(
        "{{\"framework\": \"lrvd\", \"config\": \"{}\", \"batch\": {batch}, \"length\": {length}, \
         \"draws\": {draws}, \"live_layers\": {live_layers}, \"mean_seconds\": {mean}, \
         \"sequential_seconds\": {sequential}, \"batched_seconds\": {batched}, \
         \"batched_to_sequential\": {:.3}, \"batched_to_mean\": {:.3}, \"peak_rss_bytes\": {}}}",
        options.size.name(),
        batched / sequential,
        batched / mean,
        peak_rss()
    );
    Ok(())
}

/// Largest resident set so far in bytes; 0 where the system does not tell.
fn peak_rss() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|l| l.starts_with("VmHWM:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(0, |kilobytes| kilobytes * 1024)
}
