//! The settings file of an output folder, so that `--resume` continues the same experiment.

use std::path::Path;

use serde_json::Value;

use super::RunError;
use crate::io::{JsonLayout, create_dir, read_json, write_json};

/// Name of the file.
pub(crate) const SETTINGS_FILE: &str = "settings.json";
/// Entry with the hashes of the data files by task; tasks may be added.
const DATA_FILES: &str = "data_files";

/// Prepares the output folder: fresh, or with the same settings when resuming.
///
/// # Errors
///
/// Those of [`check_settings`].
pub(crate) fn open_settings(out: &Path, resume: bool, settings: &Value) -> Result<(), RunError> {
    let mut settings = settings.clone();
    if let Some(old) = check_settings(out, resume, &settings)? {
        keep_files(&old, &mut settings);
    }
    create_dir(out)?;
    Ok(write_json(&out.join(SETTINGS_FILE), &settings, JsonLayout::Pretty)?)
}

/// The settings that the output folder was started with, if it may be used; writes nothing.
///
/// # Errors
///
/// [`RunError::OutputExists`] without `--resume`, [`RunError::OutputDiffers`] with other
/// settings; tasks, methods and seeds may grow.
pub(crate) fn check_settings(
    out: &Path,
    resume: bool,
    settings: &Value,
) -> Result<Option<Value>, RunError> {
    let path = out.join(SETTINGS_FILE);
    if !path.is_file() {
        return Ok(None);
    }
    if !resume {
        return Err(RunError::OutputExists { path: out.to_owned() });
    }
    let old: Value = read_json(&path)?;
    let fields = differences(&old, settings);
    if fields.is_empty() {
        Ok(Some(old))
    } else {
        Err(RunError::OutputDiffers { path: out.to_owned(), fields })
    }
}

/// Adds the data files of `old` tasks that `new` does not name.
fn keep_files(old: &Value, new: &mut Value) {
    let old = old.get(DATA_FILES).and_then(Value::as_object);
    let new = new.get_mut(DATA_FILES).and_then(Value::as_object_mut);
    if let (Some(old), Some(new)) = (old, new) {
        for (task, files) in old {
            new.entry(task.clone()).or_insert_with(|| files.clone());
        }
    }
}

/// Names of the settings that differ, apart from the lists that may grow.
fn differences(old: &Value, new: &Value) -> String {
    let may_grow = ["tasks", "methods", "seeds"];
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return "the whole file".to_owned();
    };
    let mut found = Vec::new();
    for (key, value) in new {
        if may_grow.contains(&key.as_str()) || old.get(key) == Some(value) {
            continue;
        }
        match (key.as_str(), old.get(key).and_then(Value::as_object), value.as_object()) {
            ("experiment", Some(old), Some(value)) => {
                found.extend(value.iter().filter(|(k, v)| old.get(*k) != Some(v)).map(|(k, v)| {
                    format!("{k}: {} then, {v} now", old.get(k).unwrap_or(&Value::Null))
                }));
            }
            (DATA_FILES, Some(old), Some(value)) => {
                let changed = value.iter().filter(|(k, v)| old.get(*k).is_some_and(|o| o != *v));
                found.extend(changed.map(|(task, _)| format!("the data files of {task}")));
            }
            _ => found
                .push(format!("{key}: {} then, {value} now", old.get(key).unwrap_or(&Value::Null))),
        }
    }
    found.join("; ")
}
