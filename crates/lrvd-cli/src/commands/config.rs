//! `lrvd config`

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use lrvd_bench::Result;
use lrvd_bench::settings::{Config, Facts, Layers, Preset, Training, schema, template};
use lrvd_burn::files::{is_there, write_atomic};
use serde_json::{Value, json};

use super::table::table;
use super::{Outcome, help};
use crate::args::{SettingsArguments, one_of};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a settings file to start from.
    #[command(after_help = help::text(include_str!("help/config-init.txt")))]
    Init {
        /// The file.
        #[arg(value_name = "FILE.toml", default_value = "run.toml")]
        file: PathBuf,
        /// Settings to start from.
        #[arg(long, value_name = "NAME", default_value = "default", value_parser = one_of(&Preset::ALL, Preset::name))]
        preset: Preset,
        #[command(flatten)]
        training: TrainingArgument,
        /// Replace an existing file.
        #[arg(long)]
        force: bool,
    },
    /// Print settings as a file for `--config`.
    #[command(after_help = help::text(include_str!("help/config-show.txt")))]
    Show {
        #[command(flatten)]
        settings: SettingsArguments,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Check a settings file, and list what it changes.
    #[command(after_help = help::text(include_str!("help/config-check.txt")))]
    Check {
        /// The file.
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Print the JSON schema of settings files, for editors.
    #[command(after_help = help::text(include_str!("help/config-schema.txt")))]
    Schema,
}

/// Kind of training of the settings, without data to infer it from.
#[derive(Debug, Args)]
pub(crate) struct TrainingArgument {
    /// Kind of training [default: the file's, or classifier].
    #[arg(long, value_name = "NAME", value_parser = one_of(&Training::ALL, Training::name))]
    task: Option<Training>,
}

/// Settings from a preset, a file and assignments, for `training` or for what the file says.
pub(super) fn overrides(from: &SettingsArguments, training: Option<Training>) -> Result<Layers> {
    Layers::new(training, from.preset, from.config.as_deref())?.apply(&[], None, &from.set)
}

pub(super) fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Init { file, preset, training, force } => {
            let text = template(training.task.unwrap_or_default(), preset)?;
            if !force && is_there(&file)? {
                bail!("`{}` already exists; `--force` replaces it", file.display());
            }
            write_atomic(&file, text.as_bytes())?;
            printer.note(&format!(
                "wrote {}; `lrvd config schema > lrvd.schema.json` beside it lets an editor complete it",
                file.display()
            ));
        }
        ConfigCommand::Show { settings, training } => {
            let layers = overrides(&settings, training.task)?;
            let training = layers.training;
            let resolved = layers.resolve(&Facts::default())?;
            printer.show(&resolved.config, |config| {
                resolved.to_toml(training, &preset_of(config, training)?)
            })?;
        }
        ConfigCommand::Check { file, training } => {
            check(Layers::new(training.task, None, Some(&file))?, printer)?;
        }
        ConfigCommand::Schema => printer.json(&schema()?)?,
    }
    Ok(ExitStatus::Done)
}

fn check(config: Layers, printer: Printer) -> Result<()> {
    let training = config.training;
    let config = config.finish()?;
    let changes = config.changes(&preset_of(&config, training)?)?;
    let change =
        |(key, from, to): &(String, Value, Value)| json!({ "key": key, "from": from, "to": to });
    let body = json!({
        "task": training.name(),
        "preset": config.preset,
        "changes": changes.iter().map(change).collect::<Vec<_>>(),
    });
    let entry = |(key, from, to): &(String, Value, Value)| {
        let row = Row::default().with("setting", key.as_str());
        row.with("preset", from.clone()).with("here", to.clone())
    };
    let rows = |_: &Value| Ok(changes.iter().map(entry).collect());
    printer.report_rows("config check", &body, rows, |_| {
        let row =
            |(key, from, to): &(String, Value, Value)| vec![key.clone(), plain(from), plain(to)];
        table(&["setting", &config.preset, "here"], changes.iter().map(row).collect())
    })
}

/// The settings of the preset that `config` started from, at the length that it would have.
fn preset_of(config: &Config, training: Training) -> Result<Config> {
    let preset = Preset::named(&config.preset)?;
    Layers::new(Some(training), Some(preset), None)?.finish()
}

/// Text of a value as in a settings file, `none` for an absent one.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
