//! `lrvd config`

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use lrvd_bench::settings::{Config, Layers, Preset, Training, schema, template};
use lrvd_bench::{Result, UnknownName};
use lrvd_burn::files::write_atomic;
use serde_json::{Value, json};

use super::Outcome;
use super::table::table;
use crate::args::SettingsArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Commands of `lrvd config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a settings file to start from.
    #[command(after_help = include_str!("help/config-init.txt"))]
    Init {
        /// The file.
        #[arg(value_name = "FILE.toml", default_value = "run.toml")]
        file: PathBuf,
        /// Settings to start from: default, constant-weight, paper-glue, author-glue [default: default].
        #[arg(long, value_name = "NAME")]
        preset: Option<String>,
        #[command(flatten)]
        training: TrainingArgument,
        /// Replace an existing file.
        #[arg(long)]
        force: bool,
    },
    /// Print settings as a file for `--config`.
    #[command(after_help = include_str!("help/config-show.txt"))]
    Show {
        #[command(flatten)]
        settings: SettingsArguments,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Check a settings file, and list what it changes.
    #[command(after_help = include_str!("help/config-check.txt"))]
    Check {
        /// The file.
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Print the JSON schema of settings files, for editors.
    #[command(after_help = include_str!("help/config-schema.txt"))]
    Schema,
}

/// What the settings are for, without data to infer it from.
#[derive(Debug, Args)]
pub(crate) struct TrainingArgument {
    /// What is trained: classifier, language [default: the file's, or classifier].
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,
}

/// Settings from a preset, a file and assignments, for `training` or for what the file says.
pub(super) fn overrides(from: &SettingsArguments, training: Option<Training>) -> Result<Layers> {
    let preset = from.preset.as_deref().map(preset_named).transpose()?;
    Layers::new(training, preset, from.config.as_deref())?.apply(&[], None, &from.set)
}

fn preset_named(name: &str) -> Result<Preset, UnknownName> {
    let unknown = || UnknownName::new("preset", name, Preset::ALL.map(Preset::name));
    Preset::from_name(name).ok_or_else(unknown)
}

impl TrainingArgument {
    fn training(&self) -> Result<Option<Training>, UnknownName> {
        let unknown =
            |name: &str| UnknownName::new("task", name, Training::ALL.map(Training::name));
        let named = |name: &str| Training::from_name(name).ok_or_else(|| unknown(name));
        self.task.as_deref().map(named).transpose()
    }
}

/// Writes, prints or checks settings.
pub(super) fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Init { file, preset, training, force } => {
            let preset = preset.as_deref().map(preset_named).transpose()?.unwrap_or_default();
            let text = template(training.training()?.unwrap_or_default(), preset)?;
            if !force && file.exists() {
                bail!("`{}` already exists; `--force` replaces it", file.display());
            }
            write_atomic(&file, text.as_bytes())?;
            printer.note(&format!(
                "wrote {}; `lrvd config schema > lrvd.schema.json` beside it lets an editor complete it",
                file.display()
            ));
        }
        ConfigCommand::Show { settings, training } => {
            let config = overrides(&settings, training.training()?)?;
            let training = config.training();
            let config = config.finish()?;
            match printer.format() {
                Format::Json => printer.json(&config)?,
                Format::Text => {
                    printer.data(&config.to_toml(training, &preset_of(&config, training)?)?)?;
                }
            }
        }
        ConfigCommand::Check { file, training } => {
            let config = Layers::new(training.training()?, None, Some(&file))?;
            check(config, printer)?;
        }
        ConfigCommand::Schema => {
            printer.json(&schema()?)?;
        }
    }
    Ok(ExitStatus::Done)
}

/// Prints what settings change.
fn check(config: Layers, printer: Printer) -> Result<()> {
    let training = config.training();
    let config = config.finish()?;
    let changes = config.changes(&preset_of(&config, training)?)?;
    match printer.format() {
        Format::Json => {
            let change = |(key, from, to): &(String, Value, Value)| json!({ "key": key, "from": from, "to": to });
            let changes: Vec<Value> = changes.iter().map(change).collect();
            let body =
                json!({ "task": training.name(), "preset": config.preset, "changes": changes });
            printer.document("config check", body)?;
        }
        Format::Text => {
            let row = |(key, from, to): &(String, Value, Value)| {
                vec![key.clone(), plain(from), plain(to)]
            };
            let header = ["setting", config.preset.as_str(), "here"];
            printer.data(&table(&header, changes.iter().map(row).collect()))?;
        }
    }
    Ok(())
}

/// The settings of the preset that `config` started from, at the length that it would have.
fn preset_of(config: &Config, training: Training) -> Result<Config> {
    let preset = preset_named(&config.preset)?;
    Layers::new(Some(training), Some(preset), None)?.finish()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
