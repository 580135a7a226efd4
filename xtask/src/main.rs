//! `cargo xtask …`: checks, tests and reproductions, each as one command.
//!
//! The package depends on none of the crates it checks, so that it builds in seconds and still
//! runs when they do not compile.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal tool")]
#![allow(clippy::disallowed_methods, reason = "cargo and CI talk to it through the environment")]

mod bench;
mod commands;
mod forward;
mod help;
mod process;
mod tidy;
mod workspace;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = Vec::new();
    for argument in std::env::args_os().skip(1) {
        match argument.into_string() {
            Ok(text) => arguments.push(text),
            Err(raw) => {
                eprintln!("error: argument `{}` is not valid UTF-8", raw.display());
                return ExitCode::from(2);
            }
        }
    }
    match commands::dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
