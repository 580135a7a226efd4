//! Settings from a preset, a file and the command line, in this order; unknown keys are errors.

use std::path::Path;

use serde_json::{Map, Value};

use super::{ExperimentConfig, MethodName, Preset, SettingError};
use crate::text::quoted;

/// Steps of a run where nobody says otherwise: the presets have the length of a paper's runs.
const STEPS: usize = 1000;
/// Evaluations of a run where nobody says otherwise.
const EVALUATIONS: usize = 10;

/// The section of settings by method.
const METHODS: &str = "methods";

/// Settings that are being put together.
///
/// Start from a preset with `steps = 1000` and the file given to [`new`](Self::new), or from any
/// settings with [`over`](Self::over); then [`assign`](Self::assign); each later value wins. Unless
/// somebody sets it, `evaluate_every` after `new` is a tenth of the steps.
#[derive(Clone, Debug)]
pub struct ConfigOverrides {
    config: Value,
    evaluate_every: bool,
}

impl ConfigOverrides {
    /// Starts from `preset`, or from the one that `file` names, or from the default one; then
    /// applies `file`.
    ///
    /// # Errors
    ///
    /// [`SettingError::Toml`], [`SettingError::Unknown`], [`SettingError::Setting`].
    pub fn new(preset: Option<Preset>, file: Option<&Path>) -> Result<Self, SettingError> {
        let mut table = match file {
            Some(file) => read_table(file)?,
            None => toml::Table::new(),
        };
        let named = match table.remove("preset") {
            None => None,
            Some(value) => Some(preset_named(&value)?),
        };
        let preset = preset.or(named).unwrap_or_default();
        let mut overrides = Self::over(&ExperimentConfig { steps: STEPS, ..preset.config() })?;
        overrides.evaluate_every = false;
        overrides.apply("", &toml::Value::Table(table))?;
        Ok(overrides)
    }

    /// Starts from `config`.
    ///
    /// # Errors
    ///
    /// [`SettingError::Setting`] if `config` holds a number that has no decimal form.
    pub fn over(config: &ExperimentConfig) -> Result<Self, SettingError> {
        let value = serde_json::to_value(config).map_err(|error| SettingError::Setting {
            key: "preset".to_owned(),
            value: config.preset.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self { config: value, evaluate_every: true })
    }

    /// Applies a settings file, which must not name a preset.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new), and [`SettingError::Preset`].
    pub fn apply_file(&mut self, file: &Path) -> Result<(), SettingError> {
        self.apply("", &toml::Value::Table(read_table(file)?))
    }

    /// Applies `key=value`, the key with dots, the value as in TOML; quotes around texts may be
    /// left out.
    ///
    /// # Errors
    ///
    /// [`SettingError::Assignment`], [`SettingError::Unknown`],
    /// [`SettingError::Setting`].
    pub fn assign(&mut self, assignment: &str) -> Result<(), SettingError> {
        let bad = || SettingError::Assignment { found: assignment.to_owned() };
        let (key, text) = assignment.split_once('=').ok_or_else(bad)?;
        let (key, text) = (key.trim(), text.trim());
        if key.is_empty() {
            return Err(bad());
        }
        let parsed = format!("value = {text}").parse::<toml::Table>();
        let value = parsed.ok().and_then(|mut table| table.remove("value"));
        let value = value.unwrap_or_else(|| toml::Value::String(text.to_owned()));
        self.apply(key, &value)
    }

    /// Sets one number.
    ///
    /// # Errors
    ///
    /// [`SettingError::Setting`].
    pub fn set_count(&mut self, key: &str, value: usize) -> Result<(), SettingError> {
        self.apply(key, &toml::Value::Integer(value as i64))
    }

    /// The settings, every range checked.
    ///
    /// # Errors
    ///
    /// [`SettingError::Range`] naming the setting.
    pub fn finish(self) -> Result<ExperimentConfig, SettingError> {
        let mut config = read("", &Value::Null, self.config)?;
        if !self.evaluate_every {
            config.evaluate_every = (config.steps / EVALUATIONS).max(1);
        }
        for key in config.methods.keys() {
            if MethodName::from_name(key).is_none_or(|method| method.key() != *key) {
                let known = MethodName::all().map(|method| format!("{METHODS}.{}", method.key()));
                return Err(unknown(&format!("{METHODS}.{key}"), &quoted(known)));
            }
        }
        config.check()?;
        Ok(config)
    }

    /// Sets `key`; a table is walked down to its leaves.
    fn apply(&mut self, key: &str, value: &toml::Value) -> Result<(), SettingError> {
        let sections = ["", "log_variance", "prune", "adalora", "optimizer", METHODS];
        let of_method = key.strip_prefix("methods.").is_some_and(|rest| !rest.contains('.'));
        if let (Some(table), true) = (value.as_table(), of_method || sections.contains(&key)) {
            for (name, value) in table {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                self.apply(&below, value)?;
            }
            return Ok(());
        }
        if key == "preset" {
            return Err(SettingError::Preset);
        }
        let json = serde_json::to_value(value).map_err(|error| SettingError::Setting {
            key: key.to_owned(),
            value: value.to_string(),
            reason: error.to_string(),
        })?;
        let changed = self.replaced(key, json.clone())?;
        let changed = match read(key, &json, changed.clone()) {
            Ok(_) => changed,
            // TOML has no word for an absent value.
            Err(error) if json == "none" => {
                let absent = self.replaced(key, Value::Null)?;
                read(key, &json, absent.clone()).map_err(|_| error)?;
                absent
            }
            Err(error) => return Err(error),
        };
        self.config = changed;
        self.evaluate_every |= key == "evaluate_every";
        Ok(())
    }

    /// The settings with `value` in place of what is at `key`.
    fn replaced(&self, key: &str, value: Value) -> Result<Value, SettingError> {
        let mut config = self.config.clone();
        let mut place = &mut config;
        let mut parent = String::new();
        let mut names = key.split('.').peekable();
        while let Some(name) = names.next() {
            let Some(map) = place.as_object_mut() else {
                return Err(unknown(key, &format!("`{parent}`, which has no parts")));
            };
            if !map.contains_key(name) && parent.split('.').next() == Some(METHODS) {
                // What is left out has the method's own default, so its name need not be there; the
                // method refuses one that it does not know.
                let parts = names.peek().is_some();
                let empty = if parts { Value::Object(Map::new()) } else { Value::Null };
                map.insert(name.to_owned(), empty);
            }
            if !map.contains_key(name) {
                let prefix = if parent.is_empty() { String::new() } else { format!("{parent}.") };
                let known = map.keys().filter(|k| *k != "preset").map(|k| format!("{prefix}{k}"));
                return Err(unknown(key, &quoted(known)));
            }
            parent = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
            place = &mut map[name];
        }
        *place = value;
        Ok(config)
    }
}

fn unknown(key: &str, wanted: &str) -> SettingError {
    SettingError::Unknown { key: key.to_owned(), wanted: wanted.to_owned() }
}

fn read(key: &str, value: &Value, config: Value) -> Result<ExperimentConfig, SettingError> {
    serde_json::from_value(config).map_err(|error| SettingError::Setting {
        key: key.to_owned(),
        value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        reason: error.to_string(),
    })
}

fn read_table(file: &Path) -> Result<toml::Table, SettingError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| SettingError::Read { file: file.to_owned(), source })?;
    text.parse()
        .map_err(|source| SettingError::Toml { file: file.to_owned(), source: Box::new(source) })
}

fn preset_named(value: &toml::Value) -> Result<Preset, SettingError> {
    value.as_str().and_then(Preset::from_name).ok_or_else(|| SettingError::Setting {
        key: "preset".to_owned(),
        value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        reason: format!("wanted one of {}", quoted(Preset::ALL.map(Preset::name))),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn with(assignments: &[&str]) -> Result<ExperimentConfig, SettingError> {
        let mut overrides = ConfigOverrides::new(None, None)?;
        for assignment in assignments {
            overrides.assign(assignment)?;
        }
        overrides.finish()
    }

    #[test]
    fn values_of_every_type_are_set() {
        let config = with(&[
            "steps=50",
            "prune.log_alpha_threshold=-3.5",
            "training_scheme=moment-matched",
            "target_modules=[\"query_proj\"]",
            "gradient_clip=none",
            "draws=[2, 4]",
            "optimizer.beta2=0.98",
        ])
        .unwrap();
        assert_eq!((config.steps, config.evaluate_every), (50, 5));
        assert_eq!(config.prune.log_alpha_threshold, -3.5);
        assert_eq!(config.training_scheme, crate::settings::TrainingScheme::MomentMatched);
        assert_eq!(config.target_modules, ["query_proj"]);
        assert_eq!((config.gradient_clip, config.draws), (None, vec![2, 4]));
        assert_eq!(config.optimizer.beta2, 0.98);
        assert_eq!(with(&["evaluate_every=7"]).unwrap().evaluate_every, 7);
    }

    #[test]
    fn what_does_not_exist_or_fit_is_named() {
        let message = |assignment: &str| with(&[assignment]).unwrap_err().to_string();
        assert!(message("stepz=5").starts_with("unknown setting `stepz`; wanted one of "));
        assert!(message("prune.threshold=5").contains("`prune.log_alpha_threshold`"));
        assert!(message("steps.more=5").contains("`steps`, which has no parts"));
        assert!(message("steps=many").starts_with("setting `steps` cannot be `many`: "));
        assert!(message("steps=none").starts_with("setting `steps` cannot be `none`: "));
        assert!(message("steps=0").contains("steps"));
        assert_eq!(message("steps"), "`steps` is not of the form `key=value`");
        assert!(message("preset=default").contains("--preset"));
    }

    #[test]
    fn settings_of_methods_need_not_be_there() {
        let config = with(&["methods.map.l2_in_loss=true", "methods.map.delta=2"]).unwrap();
        assert_eq!(config.methods["map"], serde_json::json!({ "l2_in_loss": true, "delta": 2 }));
        let wrong = with(&["methods.mep.delta=2"]).unwrap_err().to_string();
        assert!(wrong.starts_with("unknown setting `methods.mep`; wanted one of `methods.lora`"));
    }

    #[test]
    fn a_file_comes_before_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        std::fs::write(&file, "preset = \"author-glue\"\nsteps = 30\n[prune]\nmin_rank = 2\n")
            .unwrap();
        let mut overrides = ConfigOverrides::new(None, Some(&file)).unwrap();
        overrides.assign("steps=40").unwrap();
        let config = overrides.finish().unwrap();
        assert_eq!((config.preset.as_str(), config.steps), ("author-glue", 40));
        assert_eq!(config.prune.min_rank, 2);
        let flag = ConfigOverrides::new(Some(Preset::Default), Some(&file)).unwrap();
        assert_eq!(flag.finish().unwrap().preset, "default");
        for (text, wanted) in [
            ("[prune]\nevery_step = 1\n", "unknown setting `prune.every_step`"),
            ("seed = 1\n", "unknown setting `seed`"),
            ("preset = \"mine\"\n", "setting `preset` cannot be `mine`"),
            ("steps = \n", "is not TOML"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = ConfigOverrides::new(None, Some(&file)).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
