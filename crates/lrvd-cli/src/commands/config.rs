//! `lrvd config`

use std::path::{Path, PathBuf};

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

const INIT_EXAMPLES: &str = "\
Examples:
  lrvd config init                                 writes run.toml, for `lrvd train --config run.toml`
  lrvd config init mine.toml --preset constant-weight
  lrvd config init words.toml --task language      for a language model
  lrvd config init --force                         replaces an existing run.toml

The file has the preset's values of common settings, each below a line that explains it. `lrvd config show` prints all
settings, and `lrvd config schema` lets an editor complete them.";

const SHOW_EXAMPLES: &str = "\
Examples:
  lrvd config show > run.toml                      a file to edit, for `lrvd train --config run.toml`
  lrvd config show --preset author-glue
  lrvd config show --task language                 for a language model
  lrvd config show --config run.toml --set steps=2000

Prints all settings as training would use them, with 1000 steps by default.";

const CHECK_EXAMPLES: &str = "\
Examples:
  lrvd config check run.toml                       lists changes to the preset, or the errors
  lrvd config check run.toml --task language       for a file without `task = \"language\"`
  lrvd config check run.toml --format json
  lrvd config check runs/mine.toml && lrvd train --config runs/mine.toml ...

No data or model is loaded. An unknown key, a value of the wrong type and a value out of range are errors.";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  lrvd config schema > lrvd.schema.json            beside run.toml, which names it in its first line
  lrvd config schema | jq '.properties | keys'     every setting
  lrvd config schema | jq .properties.prune

JSON schema, draft 2020-12. Editors that read the line `#:schema ./lrvd.schema.json` of a TOML file (Taplo, Even
Better TOML) then complete and explain keys and values, and mark errors.";

/// Commands of `lrvd config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a settings file to start from.
    #[command(after_help = INIT_EXAMPLES)]
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
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        #[command(flatten)]
        settings: SettingsArguments,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Check a settings file, and list what it changes.
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The file.
        #[arg(value_name = "FILE.toml")]
        file: PathBuf,
        #[command(flatten)]
        training: TrainingArgument,
    },
    /// Print the JSON schema of settings files, for editors.
    #[command(after_help = SCHEMA_EXAMPLES)]
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
    let preset = from.preset.as_deref().map(Preset::named).transpose()?;
    Layers::new(training, preset, from.config.as_deref())?.apply(&[], None, &from.set)
}

impl TrainingArgument {
    fn training(&self) -> Result<Option<Training>, UnknownName> {
        self.task.as_deref().map(Training::named).transpose()
    }
}

/// Writes, prints or checks settings.
pub(super) fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Init { file, preset, training, force } => {
            let preset = preset.as_deref().map(Preset::named).transpose()?.unwrap_or_default();
            let text = template(training.training()?.unwrap_or_default(), preset)?;
            write(&file, &text, force)?;
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

/// Writes a file atomically; an existing one is replaced only with `force`.
fn write(file: &Path, text: &str, force: bool) -> Result<()> {
    if !force && file.exists() {
        bail!("`{}` already exists; `--force` replaces it", file.display());
    }
    Ok(write_atomic(file, text.as_bytes())?)
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
    let preset = Preset::named(&config.preset)?;
    Layers::new(Some(training), Some(preset), None)?.finish()
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_to_start_from_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.toml");
        for training in Training::ALL {
            for preset in ["default", "constant-weight", "paper-glue", "author-glue"] {
                let preset = Preset::named(preset).unwrap();
                let text = template(training, preset).unwrap();
                assert!(text.starts_with("#:schema ./lrvd.schema.json\n"), "{text}");
                write(&file, &text, true).unwrap();
                let read = Layers::new(None, None, Some(&file)).unwrap();
                assert_eq!(read.training(), training);
                let read = read.finish().unwrap();
                let usual = preset_of(&read, training).unwrap();
                assert_eq!(read.changes(&usual).unwrap(), [], "{text}");
                let own = Layers::new(Some(training), Some(preset), None).unwrap();
                let [read, own] = [read, own.finish().unwrap()]
                    .map(|config| config.to_toml(training, &usual).unwrap());
                assert_eq!(read, own);
            }
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let length = "\n# Longest encoded input. Range: 8 to 65536.\nmax_length = 1024\n";
        assert_eq!(text.contains(length), text.contains("task = \"language\""), "{text}");
    }
}
