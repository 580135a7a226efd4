//! `cargo xtask …`: checks, tests and reproductions, each as one command.
//!
//! The package depends on none of the crates it checks, so that it builds in seconds and still
//! runs when they do not compile.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal tool")]
#![allow(clippy::disallowed_methods, reason = "cargo and CI talk to it through the environment")]

mod bench;
mod check;
mod commits;
mod device;
mod dist;
mod forward;
mod gpu;
mod outside;
mod process;
mod script;
mod site;
mod test;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

const STATUS: &str = "\
Exit status: 0, success; 1, failure; 2, invalid arguments; `glue`, `reasoning` and `lrvd` return the CLI's.";

const FORWARDED: &str = "\
Cargo's profile `quick` compiles fast: only what training and prediction spend their time in is optimised fully. \
`cargo install` gives the faster program. \
`--features LIST` and `--no-default-features` before a `--` apply to the build: `cargo xtask glue --features cuda \
--device cuda:0`. Arguments after a `--` are passed to the CLI unchanged. Signals are passed on, and the exit status is \
the CLI's.";

/// Checks, tests, reproductions and comparisons of speed.
#[derive(Debug, Parser)]
#[command(name = "cargo-xtask", bin_name = "cargo xtask", after_help = STATUS, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Documentation tests, then all other tests; or only the tests that ARGS select.
    ///
    /// The runner is cargo-nextest if it is installed and `cargo test` otherwise; it gets ARGS:
    /// `cargo xtask test -p lrvd-core prune`.
    Test(Passed),
    /// The checks of a change, fastest first, or only the named stages.
    ///
    /// `wgpu` runs the device tests, `cuda` and `backends` are type checks without native parts, `outside` is one of the
    /// programs of the documents in a crate outside the workspace. `advisories`, which needs
    /// the network, `backends` and `commits`, the subjects of commits that `origin/main` does not have, run only when they are named.
    Check {
        #[arg(value_name = "STAGE", value_parser = check::names())]
        stages: Vec<String>,
        /// Run the stages of the continuous integration, and remove what later stages do not read.
        #[arg(long, conflicts_with = "stages")]
        ci: bool,
    },
    /// The invariants of docs/architecture.md, or only the named ones.
    Tidy {
        #[arg(value_name = "NAME", value_parser = tidy::names())]
        names: Vec<String>,
        /// List the invariants.
        #[arg(long)]
        list: bool,
    },
    /// The golden tests on any folders of recorded reference values.
    ///
    /// Prints one line for each folder, and below it the largest difference of every recorded tensor
    /// beside its tolerance.
    Golden {
        /// Folders with an `expected.json`.
        #[arg(value_name = "DIR", required = true)]
        folders: Vec<PathBuf>,
    },
    /// The tests of values that must not move (crates/lrvd-cli/tests/cli/pins).
    Pins {
        /// Rewrite their files: the commit says what moved and why.
        #[arg(long)]
        bless: bool,
    },
    /// Build the CLI with Cargo's profile `quick`, then run `lrvd bench glue ARGS…`.
    #[command(disable_help_flag = true, after_help = FORWARDED)]
    Glue(Passed),
    /// Build the CLI with Cargo's profile `quick`, then run `lrvd bench reasoning ARGS…`.
    #[command(disable_help_flag = true, after_help = FORWARDED)]
    Reasoning(Passed),
    /// Build the CLI with Cargo's profile `quick`, then run any command of it: `cargo xtask lrvd inspect DIR`.
    #[command(disable_help_flag = true, after_help = FORWARDED)]
    Lrvd(Passed),
    /// Time training steps and predictions beside those of other programs.
    ///
    /// Both sides run interleaved, and their ratios are compared with targets. Writes docs/results/speed.md, or
    /// speed.md and speed.json in the folder of `--out`. Comparisons with PyTorch need a Python with torch,
    /// transformers and peft; without it they are listed as skipped. The machine should be idle. Operators alone:
    /// `cargo bench -p lrvd-perf`.
    Bench(bench::Options),
    /// The device tests on `wgpu`, by default through Mesa's software Vulkan driver if it is installed.
    WgpuTest(Passed),
    /// The device tests on the first CUDA device.
    CudaTest(Passed),
    /// Measure the GPU of a machine that has neither cargo nor a network: operators, and steps beside PyTorch + PEFT.
    #[command(subcommand)]
    GpuBench(gpu::Action),
    /// Build the site of the documentation into `target/site/html`, and check its links.
    ///
    /// The reference in it is what the program prints: `--help` of every command, settings and methods. mdBook,
    /// mdbook-katex and hyperlink are installed into `target/tools` where the path does not have the version that is pinned.
    Site {
        /// A built `lrvd` [default: it is built].
        #[arg(long, value_name = "LRVD")]
        program: Option<PathBuf>,
    },
    /// A sweep of `lrvd bench glue` on a Slurm that runs on this machine alone (Debian: slurm-wlm, munge; as root).
    ///
    /// A task is killed and requeued, another reaches its time limit, and the results are those of one process.
    SlurmTest {
        /// A built `lrvd` [default: it is built].
        #[arg(long, value_name = "LRVD")]
        program: Option<PathBuf>,
    },
    /// The conformance suite of decision models and their Python clients against `lrvd serve`.
    ///
    /// Trains a model on typed questions with a posterior and a temperature, serves it with and without a key, at the
    /// posterior mean and with 10 draws, and runs `jevcompat`, `typesafe-sdk` and `openai` against each server. Prints a table,
    /// and the requirements that were not met: then the exit status is 1. ARGS are those of xtask/python/conformance.py.
    #[command(disable_help_flag = true)]
    Jevcompat(Passed),
    /// The form for typed questions of the page of `lrvd serve`, in a headless Chromium (Debian: chromium).
    ///
    /// Fills in and sends the form by the keyboard, for each type of question, with and without a key, and compares the
    /// verdict, confidence, entropy, threshold and probabilities on the page with the server's answer. ARGS are those of
    /// `xtask/python/page_test.py`.
    #[command(disable_help_flag = true)]
    PageTest(Passed),
    /// Build the files of a release, and test each as a user gets it.
    ///
    /// Packs the crates; builds a wheel with the program, installs it into a new virtual environment, and runs the quick
    /// suite and a training outside the source tree; packs the archive with manual pages and completions, and installs it by
    /// crates/lrvd-cli/install.sh from a server on the loopback address. Prints what is skipped, and why. ARGS are those of
    /// xtask/python/dist.py: `--profile quick` builds faster than `dist`.
    #[command(disable_help_flag = true)]
    DistTest(Passed),
    /// Classifiers exported to ONNX and for sentence-transformers, in ONNX Runtime and in that library.
    ///
    /// Trains on tiny random models of every family of encoders, exports, and compares the answers to texts of 1 to 128 tokens in
    /// batches of mixed lengths with those of `lrvd predict`. ARGS are those of `xtask/python/onnx_check.py`.
    #[command(disable_help_flag = true)]
    OnnxCheck(Passed),
}

/// Arguments for another program.
#[derive(Debug, Args)]
struct Passed {
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(Passed { arguments }) => done(test::run(&arguments, None)),
        Command::Check { stages, ci } => done(check::run(&stages, ci)),
        Command::Tidy { names, list } => done(tidy::run(&names, list)),
        Command::Golden { folders } => test::golden(&folders),
        Command::Pins { bless } => done(test::pins(bless)),
        Command::Glue(Passed { arguments }) => forward::suite("glue", &arguments),
        Command::Reasoning(Passed { arguments }) => forward::suite("reasoning", &arguments),
        Command::Lrvd(Passed { arguments }) => forward::lrvd(&[], &arguments),
        Command::Bench(options) => bench::run(&options),
        Command::WgpuTest(Passed { arguments }) => done(device::test("wgpu", &arguments)),
        Command::CudaTest(Passed { arguments }) => done(device::test("cuda", &arguments)),
        Command::GpuBench(action) => gpu::run(&action),
        Command::Site { program } => done(site::run(program.as_deref())),
        Command::SlurmTest { program } => done(test::slurm(program.as_deref())),
        Command::Jevcompat(Passed { arguments }) => script::run("conformance", &arguments),
        Command::PageTest(Passed { arguments }) => script::run("page_test", &arguments),
        Command::DistTest(Passed { arguments }) => dist::test(&arguments),
        Command::OnnxCheck(Passed { arguments }) => script::run("onnx_check", &arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(1)
    })
}

/// The exit status of a function that succeeds or fails.
fn done(outcome: Result<()>) -> Result<ExitCode> {
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Arguments as typed.
#[cfg(test)]
fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn every_command_has_help() {
        Arguments::command().debug_assert();
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            let asked = Arguments::try_parse_from(["xtask", name, "--help"]);
            match name {
                // The CLI and the scripts print theirs.
                "glue" | "reasoning" | "lrvd" | "jevcompat" | "page-test" | "dist-test"
                | "onnx-check" => {
                    assert!(asked.is_ok(), "{name}");
                }
                _ => assert_eq!(asked.map_err(|e| e.kind()).err(), Some(ErrorKind::DisplayHelp)),
            }
        }
    }

    #[test]
    fn options_of_other_programs_are_passed_on() {
        for text in ["test -p lrvd-core prune", "glue --profile quick -- --x", "lrvd --help"] {
            let parsed = Arguments::try_parse_from(words(&format!("xtask {text}")));
            let Ok(Arguments { command: Command::Test(p) | Command::Glue(p) | Command::Lrvd(p) }) =
                parsed
            else {
                panic!("{text}");
            };
            assert_eq!(p.arguments, words(text)[1..], "{text}");
        }
        for text in ["check nothing", "tidy nothing", "golden", "bench --fast", "gpu-bench pack"] {
            assert!(Arguments::try_parse_from(words(&format!("xtask {text}"))).is_err(), "{text}");
        }
    }
}
