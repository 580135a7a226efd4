//! Tests, type checks and step times on backends other than the default one.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;

use crate::bench::programs::Programs;
use crate::bench::report::{Machine, render, section, versions};
use crate::bench::table::on_gpu;
use crate::{forward, process, workspace};

/// Variables that name the Vulkan loader's drivers.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];
/// Folders in which the Vulkan loader looks for drivers.
const DRIVER_FOLDERS: [&str; 3] =
    ["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
/// Start of the file name of Mesa's software driver.
const SOFTWARE_DRIVER: &str = "lvp_icd";

/// Runs the integration tests `*_device` of lrvd-burn with the feature `backend`, which is also the device's name.
///
/// They read the device from `LRVD_TEST_DEVICE`, because Burn's device settings are process-wide.
pub(crate) fn test(backend: &str, arguments: &[String]) -> Result<()> {
    let mut command = process::cargo(&workspace::root()?);
    command.args(["test", "--package", "lrvd-burn", "--features", backend, "--test", "*_device"]);
    // Compiling the GPU stack well costs far more than running it slowly.
    command.args(["--config", "profile.dev.opt-level=0"]);
    command.args(arguments).env("LRVD_TEST_DEVICE", backend);
    if backend == "wgpu" {
        choose_driver(&mut command);
    }
    process::run(&mut command)
}

/// Points the Vulkan loader at the software driver, unless the caller already chose a driver.
fn choose_driver(command: &mut Command) {
    if let Some(name) = DRIVER_VARIABLES.iter().find(|n| std::env::var_os(n).is_some()) {
        eprintln!("Vulkan driver: as `{name}` says");
        return;
    }
    let drivers = |folder| {
        let files = std::fs::read_dir(folder).into_iter().flatten();
        let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.sort();
        paths
    };
    let is_software = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SOFTWARE_DRIVER))
    };
    match DRIVER_FOLDERS.into_iter().flat_map(drivers).find(is_software) {
        Some(file) => {
            command.envs(DRIVER_VARIABLES.map(|name| (name, &file)));
        }
        None => eprintln!(
            "Vulkan driver: Mesa's software driver is not installed (Debian: mesa-vulkan-drivers); \
             using what the system offers"
        ),
    }
}

/// Type check of the CLI with the features that `arguments` select.
///
/// The build script of Burn's LLVM bundle fetches a large archive; it leaves that out where `DOCS_RS` says that only
/// documentation is being built.
pub(crate) fn type_check(arguments: &[&str]) -> Result<()> {
    let mut command = process::cargo(&workspace::root()?);
    command.args(["check", "--package", "lrvd-cli"]).args(arguments).env("DOCS_RS", "1");
    process::run(&mut command)
}

/// Page that is written.
const GPU_PAGE: &str = "docs/results/gpu.md";
/// Steps before the clock starts, which tune and compile kernels.
const WARMUP: usize = 10;

/// Options of `gpu-bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
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
pub(crate) fn bench(options: &BenchOptions) -> Result<ExitCode> {
    let BenchOptions { device, step, tests, python } = options;
    let root = workspace::root()?;
    match tests {
        Some(program) => process::run(Command::new(program).env("LRVD_TEST_DEVICE", device))?,
        None => {
            test(kind(device), &[])?;
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
    let values = json!({ "machine": machine, "gpus": gpus(), "device": device, "versions": versions(&sections), "sections": sections });
    let page = render(include_str!("bench/gpu.md.jinja"), &values)?;
    std::fs::write(root.join(GPU_PAGE), &page)
        .with_context(|| format!("cannot write `{GPU_PAGE}`"))?;
    print!("{page}");
    Ok(ExitCode::SUCCESS)
}

/// The GPUs by NVIDIA's tool, if it is there.
fn gpus() -> String {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,driver_version", "--format=csv,noheader"]);
    process::output(&mut command)
        .map_or_else(|_| "an unnamed GPU".to_owned(), |text| text.trim().replace('\n', "; "))
}
