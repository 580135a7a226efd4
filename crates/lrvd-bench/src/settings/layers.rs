//! Layers of settings: a preset, files and single assignments, in this order; unknown keys are errors.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use tracing::debug;

use super::config::{Config, field};
use super::names::Training;
use super::table::below;
use crate::error::{Error, Result};
use crate::text::{UnknownName, nearest, quoted};

const EVALUATIONS: usize = 10;

/// Steps between evaluations where they are not set: a tenth of all.
pub(crate) const fn evaluate_every(steps: usize) -> usize {
    if steps < EVALUATIONS { 1 } else { steps / EVALUATIONS }
}

/// Source of the value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The value that every run has by default, or one that follows from other settings by default.
    Default,
    /// The preset changes the default.
    Preset,
    /// A settings file.
    File,
    /// The command line.
    Option,
    /// It follows from the data.
    Data,
    /// It follows from the model.
    Model,
    /// It follows from the device.
    Device,
}

impl Origin {
    /// `true` for what a file or an option sets.
    pub(super) const fn is_given(self) -> bool {
        matches!(self, Self::File | Self::Option)
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Preset => "preset",
            Self::File => "file",
            Self::Option => "option",
            Self::Data => "data",
            Self::Model => "model",
            Self::Device => "device",
        }
    }
}

/// Key by which a settings file names its training.
pub(super) const TASK: &str = "task";

/// Settings that are being put together: a document of all of them, over which each layer writes its own. They are read and
/// checked once, by [`resolve`](Self::resolve).
///
/// Start from a preset and a file by [`new`](Self::new), or from any settings by [`over`](Self::over). After `new` settings
/// that are not set follow from data and model.
#[derive(Clone, Debug, PartialEq)]
pub struct Layers {
    /// JSON, which has a word for what is absent.
    pub(super) document: Value,
    pub training: Training,
    /// `true` if what is not set follows from data and model, and `evaluate_every` from the steps.
    pub(super) derives: bool,
    /// Origins of the settings that differ from the defaults, or are set to them.
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    pub fn over(config: &Config) -> Result<Self> {
        Ok(Self {
            document: config.document()?,
            training: Training::default(),
            derives: false,
            origins: BTreeMap::new(),
        })
    }

    /// Applies `tables`, then a settings file, which must not name a preset, then assignments.
    pub fn apply(
        mut self,
        tables: &[toml::Table],
        file: Option<&Path>,
        assignments: &[String],
    ) -> Result<Self> {
        for table in tables {
            self.write("", table.clone().into(), Origin::File)?;
        }
        if let Some(file) = file {
            self.write("", read_table(file)?.into(), Origin::File)?;
        }
        assignments.iter().try_for_each(|assignment| self.assign(assignment))?;
        Ok(self)
    }

    /// Applies `key=value`, the key with dots, the value as in TOML; quotes around texts may be
    /// left out.
    pub fn assign(&mut self, assignment: &str) -> Result<()> {
        let bad = || anyhow!("`{assignment}` is not of the form `key=value`");
        let (key, text) = assignment.split_once('=').ok_or_else(bad)?;
        let key = key.trim();
        let text = text.trim();
        if key.is_empty() {
            return Err(bad());
        }
        let mut table = format!("value = {text}").parse::<toml::Table>().unwrap_or_default();
        let value = table.remove("value");
        if let Some(more) = table.keys().next() {
            bail!("`{key}={text}`: `{more}` is a second setting, expected one for each `--set`");
        }
        self.set(key, value.unwrap_or_else(|| text.into()))
    }

    /// `true` if a file or an option sets `key`.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.origin(key).is_given()
    }

    pub(super) fn origin(&self, key: &str) -> Origin {
        let part = |known: &str| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        let own = self.origins.get(key);
        let own =
            own.or_else(|| self.origins.iter().find(|(known, _)| part(known)).map(|all| all.1));
        own.copied().unwrap_or(Origin::Default)
    }

    /// The whole number at `key`, if it is one.
    pub(super) fn count(&self, key: &str) -> Option<usize> {
        self.document[key].as_u64().map(|count| count as usize)
    }

    /// Writes `value` at `key` as an option does. A table writes what it has into a section, and replaces anything else.
    pub fn set(&mut self, key: &str, value: impl Into<toml::Value>) -> Result<()> {
        self.write(key, value.into(), Origin::Option)
    }

    /// Writes a value of the program at the setting `key`.
    pub(super) fn put(&mut self, key: &str, value: Value, origin: Origin) {
        self.document[key] = value;
        self.origins.insert(key.to_owned(), origin);
    }

    pub(super) fn write(&mut self, key: &str, value: toml::Value, origin: Origin) -> Result<()> {
        let field = field(key);
        if let (Some(field), toml::Value::Table(table)) = (field, &value)
            && !field.fields.is_empty()
        {
            let mut each = table.iter();
            return each.try_for_each(|(name, value)| {
                self.write(&below(key, name), value.clone(), origin)
            });
        }
        ensure!(key != "preset", "the preset is chosen by `--preset NAME`");
        if key == TASK {
            let reason = "only a settings file for `lrvd train` says what it is for";
            return Err(unusable(key, value, reason));
        }
        if !is_finite(&value) {
            return Err(unusable(key, value, "expected a finite number"));
        }
        let place = self.place(key)?;
        // TOML has no word for an absent value.
        let absent = field.is_some_and(|field| field.is_optional) && value.as_str() == Some("none");
        *place = if absent {
            Value::Null
        } else {
            serde_json::to_value(&value).map_err(|error| unusable(key, value, error))?
        };
        self.origins.insert(key.to_owned(), origin);
        Ok(())
    }

    /// The place of `key` in the document, which has every setting.
    fn place(&mut self, key: &str) -> Result<&mut Value> {
        let mut place = &mut self.document;
        let mut parent = String::new();
        for name in key.split('.') {
            let Some(map) = place.as_object_mut() else {
                bail!("unknown setting `{key}`; there is `{parent}`, which has no parts");
            };
            let below = |name: &str| below(&parent, name);
            if !map.contains_key(name) {
                let known: Vec<&String> = map.keys().filter(|key| *key != "preset").collect();
                return Err(Error::new(UnknownName {
                    what: "setting",
                    found: below(name),
                    expected: quoted(known.iter().map(|key| below(key))),
                    suggestion: nearest(name, &known).map(below),
                }));
            }
            parent = below(name);
            place = &mut map[name];
        }
        Ok(place)
    }

    /// Settings as their types have them, not checked yet.
    pub(super) fn read(&self) -> Result<Config> {
        serde_path_to_error::deserialize(&self.document)
            .map_err(|error| self.unread(&error.path().to_string(), error.inner()))
    }

    /// The setting that `path` is in could not be read.
    fn unread(&self, path: &str, reason: &serde_json::Error) -> Error {
        let ends = path.match_indices(['.', '[']).map(|(end, _)| end).chain([path.len()]);
        let mut keys = ends.map(|end| &path[..end]);
        let key = keys.rfind(|key| field(key).is_some()).unwrap_or(path);
        match self.document.pointer(&pointer(key)) {
            Some(Value::String(text)) => unusable(key, text, reason),
            value => unusable(key, value.unwrap_or(&Value::Null), reason),
        }
    }
}

impl Config {
    /// Settings that differ from those in `base`: key, value there, value here.
    pub fn changes(&self, base: &Self) -> Result<Vec<(String, Value, Value)>> {
        let mut changes = Vec::new();
        differing("", &base.document()?, &self.document()?, &mut changes);
        Ok(changes)
    }
}

pub(super) fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

fn differing(key: &str, from: &Value, to: &Value, found: &mut Vec<(String, Value, Value)>) {
    match (from, to) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (name, value) in a {
                differing(&below(key, name), value, &b[name], found);
            }
        }
        _ if from != to => found.push((key.to_owned(), from.clone(), to.clone())),
        _ => {}
    }
}

/// `true` if every number in `value` is finite: JSON has no others, and neither have settings.
fn is_finite(value: &toml::Value) -> bool {
    match value {
        toml::Value::Float(number) => number.is_finite(),
        toml::Value::Array(values) => values.iter().all(is_finite),
        toml::Value::Table(table) => table.values().all(is_finite),
        _ => true,
    }
}

pub(super) fn unusable(key: &str, value: impl Display, reason: impl Display) -> Error {
    anyhow!("setting `{key}` cannot be `{value}`: {reason}")
}

pub(super) fn read_table(file: &Path) -> Result<toml::Table> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| anyhow!("cannot read `{}`: {source}", file.display()))?;
    debug!(file = %file.display(), bytes = text.len(), "opened");
    text.parse()
        .map_err(|source| Error::new(source).context(format!("`{}` is not TOML", file.display())))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::settings::{Facts, Preset};

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run.toml");
        for (training, preset) in Training::presets() {
            let begun = || Layers::new(Some(training), Some(preset), None).unwrap();
            let base = begun().finish().unwrap();
            let mut changed = begun();
            let assignments = [
                "gradient_clip=none",
                "prior={ard={scales=\"separate\",hyper=\"empirical-bayes\"}}",
                "methods.map.weight_decay=0.5",
            ];
            for assignment in assignments {
                changed.assign(assignment).unwrap();
            }
            if preset == Preset::PaperGlue {
                changed.assign("family=rank-variance").unwrap();
            }
            let changed = changed.resolve(&Facts::default()).unwrap();
            let text = changed.to_toml(training, &base).unwrap();
            let changed = changed.config;
            std::fs::write(&file, &text).unwrap();
            let again = Layers::new(None, None, Some(&file)).unwrap();
            assert_eq!(again.training, training);
            assert_eq!(again.finish().unwrap(), changed, "{text}");
            let keys: Vec<String> =
                changed.changes(&base).unwrap().into_iter().map(|change| change.0).collect();
            assert!(keys.contains(&"gradient_clip".to_owned()), "{keys:?}");
            assert!(keys.contains(&"methods.map.weight_decay".to_owned()), "{keys:?}");
            assert_eq!(base.changes(&base).unwrap(), []);
        }
    }

    #[test]
    fn assignments_change_one_setting_or_are_rejected() {
        let base = Layers::new(None, None, None).unwrap();
        let start = base.clone().finish().unwrap();
        let mut found = String::new();
        for assignment in include_str!("cases/assignments.txt").lines() {
            let mut layers = base.clone();
            let set = assignment.split("; ").try_for_each(|one| layers.assign(one));
            writeln!(found, "{assignment}").unwrap();
            match set.and_then(|()| layers.finish()) {
                Ok(config) => {
                    for (key, from, to) in config.changes(&start).unwrap() {
                        writeln!(found, "    {key}: {from} -> {to}").unwrap();
                    }
                }
                Err(error) => writeln!(found, "    {error}").unwrap(),
            }
        }
        insta::assert_snapshot!(found);
    }

    #[test]
    fn an_assignment_has_one_setting() {
        let mut layers = Layers::new(None, None, None).unwrap();
        let error = layers.assign("batch_size=8\nsteps=2").unwrap_err().to_string();
        assert!(error.ends_with("`steps` is a second setting, expected one for each `--set`"));
        // A value may have several lines.
        layers.assign("draws=[1,\n2]").unwrap();
        layers.assign("wording.template=Text:\n{text}\nIt is").unwrap();
        let config = layers.finish().unwrap();
        assert_eq!(config.draws, [1, 2]);
        assert_eq!(config.wording.template.as_deref(), Some("Text:\n{text}\nIt is"));
    }

    #[test]
    fn a_file_is_read_over_its_preset_and_before_assignments() {
        let cases: Vec<(Option<String>, String, String)> =
            serde_json::from_str(include_str!("cases/files.json")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let mut found = String::new();
        for (training, text, assignment) in cases {
            let training = training.map(|name| Training::named(&name).unwrap());
            std::fs::write(&file, &text).unwrap();
            let read = Layers::new(training, None, Some(&file)).and_then(|mut layers| {
                layers.assign(&assignment)?;
                let training = layers.training;
                let config = layers.finish()?;
                let preset = Preset::named(&config.preset)?;
                let base = Layers::new(Some(training), Some(preset), None)?.finish()?;
                let changes: Vec<String> = config
                    .changes(&base)?
                    .into_iter()
                    .map(|(key, _, to)| format!("{key}={to}"))
                    .collect();
                Ok(format!("{training:?}, {}: {}", config.preset, changes.join(", ")))
            });
            let read = read.unwrap_or_else(|error| error.to_string());
            writeln!(found, "{training:?} {text:?} {assignment}\n    {read}").unwrap();
        }
        insta::assert_snapshot!(found.replace(dir.path().to_str().unwrap(), ""));
        std::fs::write(&file, "preset = \"author-glue\"").unwrap();
        let flag = Layers::new(None, Some(Preset::Default), Some(&file)).unwrap();
        assert_eq!(flag.finish().unwrap().preset, "default");
        // A suite has tasks and presets already.
        let suite = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Layers::over(&Preset::Default.config()).unwrap().apply(&[], Some(&file), &[]).map(drop)
        };
        suite("[wording]\ntemplate = \"{text}\"").unwrap();
        let error = suite("task = \"language\"").unwrap_err().to_string();
        assert!(error.starts_with("setting `task` cannot be "), "{error}");
    }
}
