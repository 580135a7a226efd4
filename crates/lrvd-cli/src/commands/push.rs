//! `lrvd push`

use lrvd_bench::SavedError;
use lrvd_bench::push::{PushOptions, PushReport, push};

use super::Outcome;
use crate::args::PushArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// The hub where none is named.
const ENDPOINT: &str = "https://huggingface.co";

/// The environment does not allow an upload.
#[derive(Debug, thiserror::Error)]
enum Forbidden {
    #[error("HF_HUB_OFFLINE is set, and an upload needs the hub: unset it for this command")]
    Offline,
    #[error(
        "HF_TOKEN is not set: an upload needs a token with the right to write, from the settings of your account"
    )]
    NoToken,
}

/// Uploads a folder.
pub(super) fn run(arguments: PushArguments, printer: Printer) -> Outcome {
    let offline = variable("HF_HUB_OFFLINE")
        .is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"));
    if offline {
        return Err(Forbidden::Offline.into());
    }
    if !arguments.dir.is_dir() {
        return Err(SavedError::NoFolder { dir: arguments.dir }.into());
    }
    let options = PushOptions {
        endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned()),
        token: variable("HF_TOKEN").ok_or(Forbidden::NoToken)?,
        repo: arguments.repo,
        private: arguments.private,
        message: arguments.message,
    };
    let report = push(&arguments.dir, &options)?;
    printer.data(&match printer.format() {
        Format::Json => serde_json::to_string_pretty(&report)?,
        Format::Text => describe(&report),
    })?;
    Ok(ExitStatus::Done)
}

/// A variable of the environment that says something.
#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn describe(report: &PushReport) -> String {
    let mut lines = vec![report.url.clone()];
    lines.extend(report.files.iter().map(|file| {
        let how = if file.large { ", as a large file" } else { "" };
        format!("  {}: {} bytes{how}", file.path, super::table::count(file.size as usize))
    }));
    lines.join("\n")
}
