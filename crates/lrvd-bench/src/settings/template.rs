//! A settings file to start from.

use std::fmt::Write as _;

use anyhow::anyhow;
use serde_json::Value;

use super::overrides::TASK;
use super::schema::{pointer, schema};
use super::{ConfigOverrides, Preset, Training};
use crate::error::Result;

/// What is set most often, in the order of a file: plain settings first, then those of sections.
const COMMON: [&str; 22] = [
    "steps",
    "batch_size",
    "accumulation",
    "max_length",
    "initial_rank",
    "lora_alpha",
    "adapter_dropout",
    "target_modules",
    "learning_rate",
    HEAD,
    "warmup_ratio",
    "gradient_clip",
    "kl_weight",
    "holdout",
    "patience",
    "draws",
    "checkpoint",
    "base_precision",
    "prune.log_alpha_threshold",
    "prune.start",
    "prune.every",
    "prune.min_rank",
];
/// Language models keep their own head.
const HEAD: &str = "head_learning_rate";

/// A settings file for `training` with the common settings as they are in `preset`, each under the first sentence of its
/// description in the [schema](schema()), which the file names `./lrvd.schema.json`.
pub fn template(training: Training, preset: Preset) -> Result<String> {
    let schema = schema()?;
    let mut config = ConfigOverrides::new(Some(training), Some(preset), None)?.config;
    config[TASK] = training.name().into();
    let own = |key: &&str| training == Training::Classifier || *key != HEAD;
    let mut text = "#:schema ./lrvd.schema.json\n".to_owned();
    for key in ["preset", TASK].into_iter().chain(COMMON.into_iter().filter(own)) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let header = format!("\n[{section}]\n");
        if !section.is_empty() && !text.contains(&header) {
            text.push_str(&header);
        }
        let described =
            schema.pointer(&format!("/properties/{}", key.replace('.', "/properties/")));
        let about = comment(described.unwrap_or(&Value::Null));
        let value = match config.pointer(&pointer(key)) {
            None | Some(Value::Null) => "none".into(),
            Some(value) => toml::Value::try_from(value)
                .map_err(|error| anyhow!("setting `{key}` cannot be `{value}`: {error}"))?,
        };
        let _ = write!(text, "\n# {about}\n{name} = {value}\n");
    }
    Ok(text)
}

/// The first sentence of a description, and the words that there are.
fn comment(schema: &Value) -> String {
    let described = schema["description"].as_str().unwrap_or_default();
    let described = described.replace('\n', " ");
    let sentence = described.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let consts =
        schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one.get("const"));
    let words = schema["enum"].as_array().into_iter().flatten().chain(consts);
    let words: Vec<String> = words.map(Value::to_string).collect();
    if words.is_empty() { sentence.to_owned() } else { format!("{sentence} {}.", words.join(", ")) }
}
