//! Kernel tests and step times on a GPU, as a page.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;

use crate::bench::programs::Programs;
use crate::bench::report::{Machine, render, section, versions};
use crate::bench::table::on_gpu;
use crate::{device, forward, process, workspace};

/// What is written.
const PAGE: &str = "docs/results/gpu.md";
/// Steps before the clock starts, which tune and compile kernels.
const WARMUP: usize = 10;

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
    match kind(name) {
        "cuda" | "wgpu" => Ok(name.to_owned()),
        _ => Err("expected `cuda[:N]` or `wgpu[:N]`".to_owned()),
    }
}

/// A device's name without its number: the feature to build with.
fn kind(device: &str) -> &str {
    device.split(':').next().unwrap_or_default()
}

/// Runs the device tests, then our steps and `PyTorch`'s in turn, and writes the page.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Options { device, step, tests, python } = options;
    let root = workspace::root()?;
    match tests {
        Some(program) => process::run(Command::new(program).env("LRVD_TEST_DEVICE", device))?,
        None => {
            device::test(kind(device), &[])?;
        }
    }
    let machine = Machine::read(&root);
    let build =
        ["--release", "--package", "lrvd-perf", "--bin", "step", "--features", kind(device)];
    let programs = Programs {
        step: match step {
            Some(program) => program.into(),
            None => forward::build(&root, &build, "step")?,
        },
        python: python.clone(),
        root: root.clone(),
        threads: machine.threads,
        warmup: WARMUP,
        folder: tempfile::tempdir()?,
    };
    let mut sections = Vec::new();
    for group in on_gpu(device)? {
        sections.push(section(&group, &programs.run(&group)?, &machine));
    }
    let values = json!({ "gpus": gpus(), "device": device, "versions": versions(&sections), "sections": sections });
    let page = render(include_str!("bench/gpu.md.jinja"), &values)?;
    std::fs::write(root.join(PAGE), &page).with_context(|| format!("cannot write `{PAGE}`"))?;
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

/// What NVIDIA's tool says of the GPUs, if it is there.
fn gpus() -> String {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,driver_version", "--format=csv,noheader"]);
    process::output(&mut command)
        .map_or_else(|_| "an unnamed GPU".to_owned(), |text| text.trim().replace('\n', "; "))
}
