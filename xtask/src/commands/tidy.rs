//! The invariants alone.

use std::process::ExitCode;

use anyhow::Result;

use super::usage;
use crate::tidy::{INVARIANTS, Invariant, enforce};
use crate::workspace::Workspace;

/// Checks all invariants, or the named ones, or lists them.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|a| a == "--list") {
        for invariant in INVARIANTS {
            println!("{:<24} {}", invariant.name, invariant.claim);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut chosen: Vec<&Invariant> = Vec::new();
    for name in arguments {
        match INVARIANTS.iter().find(|i| i.name == name) {
            Some(invariant) => chosen.push(invariant),
            None => return Ok(usage(&format!("there is no invariant `{name}`"))),
        }
    }
    if chosen.is_empty() {
        chosen.extend(INVARIANTS);
    }
    enforce(&Workspace::read()?, &chosen)?;
    Ok(ExitCode::SUCCESS)
}
