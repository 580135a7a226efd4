//! One file per command.

mod bench;
mod check;
mod device;
mod golden;
mod gpu_bench;
mod pins;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

use crate::{forward, help};

/// Exit status of a call that makes no sense.
const USAGE: u8 = 2;

/// Commands that the CLI runs.
const CLI: [&str; 3] = ["glue", "reasoning", "lrvd"];

/// Runs the command that the first argument names.
pub(crate) fn dispatch(arguments: &[String]) -> Result<ExitCode> {
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help::TEXT);
        return Ok(ExitCode::from(USAGE));
    };
    if let Some(text) = own_help(name, rest) {
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    match name.as_str() {
        "-h" | "--help" | "help" => {
            print!("{}", help::TEXT);
            Ok(ExitCode::SUCCESS)
        }
        "test" => test::run(rest).map(|()| ExitCode::SUCCESS),
        "check" => check::run(rest),
        "tidy" => tidy::run(rest),
        "golden" => golden::run(rest),
        "pins" => pins::run(rest),
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

/// The help of a command, if `arguments` ask for it; a command of the CLI prints its own.
fn own_help(command: &str, arguments: &[String]) -> Option<String> {
    let before = arguments.split(|a| a == "--").next().unwrap_or_default();
    let asked = before.iter().any(|a| a == "-h" || a == "--help");
    if asked && !CLI.contains(&command) { help::of(command) } else { None }
}

/// Says what is wrong with the arguments and where help is.
fn usage(problem: &str) -> ExitCode {
    eprintln!("error: {problem}\n\nhint: `cargo xtask --help` lists the commands");
    ExitCode::from(USAGE)
}

/// Arguments as typed.
#[cfg(test)]
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_help() {
        assert!(help::commands().count() > 10);
        for name in help::commands() {
            let text = help::of(name).unwrap_or_default();
            let first = text.lines().nth(2).unwrap_or_default();
            assert!(first.starts_with(&format!("  {name}")) && text.lines().count() < 20, "{text}");
            assert_eq!(own_help(name, &words("-p x --help")).is_some(), !CLI.contains(&name));
            assert_eq!(own_help(name, &words("x -- --help")), None);
        }
        assert!(help::of("check").is_some_and(|text| text.contains("advisories")));
        assert_eq!(help::of("format"), None);
    }
}
