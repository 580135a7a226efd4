//! `lrvd config`

use std::error::Error;
use std::path::Path;

use lrvd_bench::UnknownName;
use lrvd_bench::settings::{ConfigOverrides, Preset, ValidConfig};
use serde_json::{Value, json};

use super::Outcome;
use super::table::table;
use crate::args::{ConfigCommand, ShowArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Settings from a preset, a file and assignments.
pub(super) fn overrides(
    preset: Option<&str>,
    file: Option<&Path>,
    set: &[String],
) -> Result<ConfigOverrides, Box<dyn Error>> {
    let unknown = |name| UnknownName::new("preset", name, Preset::ALL.map(Preset::name));
    let preset =
        preset.map(|name| Preset::from_name(name).ok_or_else(|| unknown(name))).transpose()?;
    let mut config = ConfigOverrides::new(preset, file)?;
    for assignment in set {
        config.assign(assignment)?;
    }
    Ok(config)
}

/// Prints or checks settings.
pub(super) fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Show(ShowArguments { preset, config, set }) => {
            let config = overrides(preset.as_deref(), config.as_deref(), &set)?.finish()?;
            printer.data(&match printer.format() {
                Format::Json => serde_json::to_string_pretty(&config)?,
                Format::Text => config.to_toml(&preset_of(&config)?)?,
            })?;
        }
        ConfigCommand::Check { file } => {
            let config = overrides(None, Some(&file), &[])?.finish()?;
            let changes = config.changes(&preset_of(&config)?)?;
            match printer.format() {
                Format::Json => {
                    let change = |(key, from, to): &(String, Value, Value)| json!({ "key": key, "from": from, "to": to });
                    let changes: Vec<Value> = changes.iter().map(change).collect();
                    let report =
                        json!({ "schema_version": 1, "preset": config.preset, "changes": changes });
                    printer.data(&serde_json::to_string_pretty(&report)?)?;
                }
                Format::Text => {
                    let row = |(key, from, to): &(String, Value, Value)| {
                        vec![key.clone(), plain(from), plain(to)]
                    };
                    let header = ["setting", config.preset.as_str(), "here"];
                    printer.data(&table(&header, changes.iter().map(row).collect()))?;
                }
            }
        }
    }
    Ok(ExitStatus::Done)
}

/// The settings of the preset that `config` began with, at the length that it would have.
fn preset_of(config: &ValidConfig) -> Result<ValidConfig, Box<dyn Error>> {
    Ok(overrides(Some(&config.preset), None, &[])?.finish()?)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
