//! One file per command.

mod bench;
mod check;
mod device;
mod gpu_bench;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

use crate::{forward, help};

/// Exit status of a call that makes no sense.
const USAGE: u8 = 2;

/// Runs the command that the first argument names.
pub(crate) fn dispatch(arguments: &[String]) -> Result<ExitCode> {
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help::TEXT);
        return Ok(ExitCode::from(USAGE));
    };
    match name.as_str() {
        "-h" | "--help" | "help" => {
            print!("{}", help::TEXT);
            Ok(ExitCode::SUCCESS)
        }
        "test" => test::run(rest).map(|()| ExitCode::SUCCESS),
        "check" => check::run(rest),
        "tidy" => tidy::run(rest),
        "glue" | "reasoning" => forward::suite(name, rest),
        "bench" => bench::run(rest),
        "lrvd" => forward::lrvd(&[], rest),
        "wgpu-test" => device::test(device::Backend::Wgpu, rest),
        "cuda-test" => device::test(device::Backend::Cuda, rest),
        "gpu-bench" => gpu_bench::run(rest),
        "cuda-check" => device::cuda_check(rest),
        other => Ok(usage(&format!("there is no command `{other}`"))),
    }
}

/// Says what is wrong with the arguments and where help is.
fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\n\nhint: `cargo xtask --help` lists the commands");
    ExitCode::from(USAGE)
}
