//! The settings file of an output folder, so that `--resume` continues the same experiment.

use std::path::Path;

use serde_json::Value;

use crate::error::BenchError;
use crate::json::{JsonLayout, read_json, write_json};

/// Name of the file.
pub(crate) const SETTINGS_FILE: &str = "settings.json";

/// Prepares the output folder: fresh, or with the same settings when resuming.
///
/// # Errors
///
/// [`BenchError::OutputExists`] without `--resume`, [`BenchError::OutputDiffers`] with other
/// settings; tasks, methods and seeds may grow.
pub(crate) fn open_settings(out: &Path, resume: bool, settings: &Value) -> Result<(), BenchError> {
    let path = out.join(SETTINGS_FILE);
    std::fs::create_dir_all(out).map_err(|source| BenchError::Io {
        action: "create",
        path: out.to_owned(),
        source,
    })?;
    if path.is_file() {
        if !resume {
            return Err(BenchError::OutputExists { path: out.to_owned() });
        }
        let old: Value = read_json(&path)?;
        let fields = differences(&old, settings);
        if !fields.is_empty() {
            return Err(BenchError::OutputDiffers { path: out.to_owned(), fields });
        }
    }
    write_json(&path, settings, JsonLayout::Pretty)
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
            _ => found
                .push(format!("{key}: {} then, {value} now", old.get(key).unwrap_or(&Value::Null))),
        }
    }
    found.join("; ")
}
