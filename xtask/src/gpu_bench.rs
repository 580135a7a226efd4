//! Kernel tests and step times on a GPU, as a page.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::bench::machine::Machine;
use crate::bench::page::{table, versions};
use crate::bench::programs::Programs;
use crate::bench::report::entries;
use crate::bench::table::on_gpu;
use crate::{device, process, workspace};

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
    let machine = Machine::read(&root);
    let build = ["--package", "lrvd-perf", "--bin", "step", "--features", options.kind()];
    let step = (options.step.as_deref(), build.as_slice());
    let programs = Programs::new(&root, step, (&options.python, machine.threads, WARMUP))?;
    let groups = on_gpu(&options.device);
    let samples = groups.iter().map(|group| programs.run(group)).collect::<Result<Vec<_>>>()?;
    let both = groups.iter().zip(&samples);
    let measured: Vec<_> =
        both.map(|(group, samples)| (group, entries(group, samples, &machine))).collect();
    let mut page = format!(
        "# Steps on a GPU\n\n\
         `cargo xtask gpu-bench` on {}, device `{}`; PyTorch side {}. The tests of the kernels \
         passed on the device. A step is forward, backward, clipping and AdamW with adapters of rank 8, in single \
         precision on both sides; PyTorch + PEFT runs LoRA. Medians over all rounds, in which the sides run in turn.\n\n",
        gpus(),
        options.device,
        versions(&measured),
    );
    for one in &measured {
        table(&mut page, one);
    }
    std::fs::write(root.join(PAGE), &page).with_context(|| format!("cannot write `{PAGE}`"))?;
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// The device's name without its number: the feature to build with.
    fn kind(&self) -> &str {
        self.device.split(':').next().unwrap_or_default()
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
fn gpus() -> String {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,driver_version", "--format=csv,noheader"]);
    process::output(&mut command)
        .map_or_else(|_| "an unnamed GPU".to_owned(), |text| text.trim().replace('\n', "; "))
}
