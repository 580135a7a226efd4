//! Kernel tests and step times on a GPU, as a page.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::bench::measure::median;
use crate::bench::programs::{SCRIPT, time};
use crate::{device, process, workspace};

/// What is written.
const PAGE: &str = "docs/results/gpu.md";
const ARCHITECTURES: [&str; 2] = ["nano", "base"];
const METHODS: [&str; 3] = ["lora", "bayeslora", "moment-matched"];
/// The sides run in turn so often, and so many steps each; the first steps tune and compile kernels.
const ROUNDS: usize = 3;
const STEPS: [&str; 4] = ["--warmup", "10", "--steps", "20"];

/// Options of `gpu-bench`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// `cuda`, `cuda:N`, `wgpu` or `wgpu:N`.
    #[arg(long, default_value = "cuda", value_parser = gpu)]
    device: String,
    /// A built program `step`, for a machine without cargo.
    #[arg(long)]
    step: Option<String>,
    /// A built program `ops_device`, for a machine without cargo.
    #[arg(long)]
    tests: Option<String>,
    /// A Python with torch, transformers and peft.
    #[arg(long, default_value = "python3")]
    python: String,
}

fn gpu(name: &str) -> Result<String, String> {
    let kind = name.split(':').next().unwrap_or_default();
    if ["cuda", "wgpu"].contains(&kind) {
        return Ok(name.to_owned());
    }
    Err("expected `cuda[:N]` or `wgpu[:N]`".to_owned())
}

/// Runs the device tests, then our steps and PyTorch's in turn, and writes the page.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let root = workspace::root()?;
    test(options)?;
    let timed = |command: &mut Command| {
        eprintln!("$ {}", process::show(command));
        time(command)
    };
    let mut table = String::new();
    let mut versions = Value::Null;
    for architecture in ARCHITECTURES {
        let (mut torch, mut ours) = (Vec::new(), vec![Vec::new(); METHODS.len()]);
        for _ in 0..ROUNDS {
            let run = timed(&mut options.torch(&root, architecture))?;
            torch.extend(run.seconds);
            versions = run.facts["versions"].clone();
            for (method, seconds) in METHODS.iter().zip(&mut ours) {
                seconds.extend(timed(&mut options.ours(&root, architecture, method))?.seconds);
            }
        }
        let torch = median(&torch);
        for (method, seconds) in METHODS.iter().zip(&ours) {
            let ours = median(seconds);
            writeln!(
                table,
                "| {architecture} | {method} | {:.2} | {:.2} | {:.2} |",
                1e3 * ours,
                1e3 * torch,
                ours / torch
            )?;
        }
    }
    let page = format!(
        "# Steps on a GPU\n\n\
         `cargo xtask gpu-bench` on {}, device `{}`; PyTorch side {versions}. The tests of the kernels \
         passed on the device. A step is forward, backward, clipping and AdamW on 8 rows of 128 tokens with \
         adapters of rank 8, in single precision on both sides; PyTorch + PEFT runs LoRA. Medians of {ROUNDS} \
         rounds in turn.\n\n\
         | DeBERTa | method | ours, ms | PyTorch + PEFT, ms | ratio |\n|---|---|---|---|---|\n{table}",
        machine(),
        options.device
    );
    std::fs::write(root.join(PAGE), &page).with_context(|| format!("cannot write `{PAGE}`"))?;
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// The device's name without its number: the feature to build with.
    fn kind(&self) -> &str {
        self.device.split(':').next().unwrap_or_default()
    }

    fn ours(&self, root: &Path, architecture: &str, method: &str) -> Command {
        let mut command = match &self.step {
            Some(program) => Command::new(program),
            None => {
                let mut command = process::cargo(root);
                let package = ["--package", "lrvd-perf", "--bin", "step"];
                command.args(["run", "--release", "--quiet", "--features", self.kind()]);
                command.args(package).arg("--");
                command
            }
        };
        command.args(["--device", &self.device, "--config", architecture, "--method", method]);
        command.args(STEPS);
        command
    }

    fn torch(&self, root: &Path, architecture: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(root.join(SCRIPT)).args(["--device", "cuda", "--config", architecture]);
        command.args(STEPS);
        command
    }
}

fn test(options: &Options) -> Result<()> {
    let Some(program) = &options.tests else {
        let backend =
            if options.kind() == "cuda" { device::Backend::Cuda } else { device::Backend::Wgpu };
        return device::test(backend, &[]).map(|_| ());
    };
    process::run(Command::new(program).env("LRVD_TEST_DEVICE", &options.device))
}

/// What NVIDIA's tool says of the GPUs, if it is there.
fn machine() -> String {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,driver_version", "--format=csv,noheader"]);
    process::output(&mut command)
        .map_or_else(|_| "an unnamed GPU".to_owned(), |text| text.trim().replace('\n', "; "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::Parser as _;

    use super::*;
    use crate::{Arguments, Command as Chosen, words};

    fn parse(text: &str) -> Options {
        let words = words(&format!("xtask gpu-bench {text}"));
        match Arguments::try_parse_from(words).unwrap().command {
            Chosen::GpuBench(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_sides_time_the_same_steps() {
        let root = Path::new("root");
        let options = parse("--device cuda:1 --step built/step --python py");
        assert_eq!(
            process::show(&options.ours(root, "nano", "lora")),
            "step --device cuda:1 --config nano --method lora --warmup 10 --steps 20"
        );
        assert_eq!(
            process::show(&options.torch(root, "nano")),
            "py root/xtask/python/torch_step.py --device cuda --config nano --warmup 10 --steps 20"
        );
        let built = parse("--device wgpu");
        let shown = process::show(&built.ours(root, "base", "bayeslora"));
        assert!(shown.contains("--features wgpu --package lrvd-perf --bin step -- "), "{shown}");
    }
}
