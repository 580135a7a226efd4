//! `lrvd config`

use std::error::Error;

use lrvd_bench::UnknownName;
use lrvd_bench::settings::{ConfigOverrides, Preset, ValidConfig};
use serde_json::{Value, json};

use super::Outcome;
use super::table::table;
use crate::args::{ConfigCommand, SettingsArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// What settings are for.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Classifier,
    Language,
}

/// Settings from a preset, a file and assignments.
pub(super) fn overrides(
    from: &SettingsArguments,
    kind: Kind,
) -> Result<ConfigOverrides, Box<dyn Error>> {
    let unknown = |name: &String| UnknownName::new("preset", name, Preset::ALL.map(Preset::name));
    let named = |name: &String| Preset::from_name(name).ok_or_else(|| unknown(name));
    let preset = from.preset.as_ref().map(named).transpose()?;
    let file = from.config.as_deref();
    let mut config = match kind {
        Kind::Classifier => ConfigOverrides::new(preset, file)?,
        Kind::Language => ConfigOverrides::for_language(preset, file)?,
    };
    for assignment in &from.set {
        config.assign(assignment)?;
    }
    Ok(config)
}

/// Prints or checks settings.
pub(super) fn run(command: ConfigCommand, printer: Printer) -> Outcome {
    match command {
        ConfigCommand::Show(from) => {
            let config = overrides(&from, Kind::Classifier)?.finish()?;
            printer.data(&match printer.format() {
                Format::Json => serde_json::to_string_pretty(&config)?,
                Format::Text => config.to_toml(&preset_of(&config)?)?,
            })?;
        }
        ConfigCommand::Check { file } => {
            let config = ConfigOverrides::new(None, Some(&file))?.finish()?;
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
    let preset = Some(config.preset.clone());
    let from = SettingsArguments { preset, ..SettingsArguments::default() };
    Ok(overrides(&from, Kind::Classifier)?.finish()?)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
