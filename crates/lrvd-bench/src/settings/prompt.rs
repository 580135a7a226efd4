//! What a run is trained for and how it is asked: prompts, wording, and a template of a settings file.

use std::fmt::{self, Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::layers::{TASK, pointer, unusable};
use super::schema::schema;
use super::table::{Field, root, settings};
use super::{Config, Layers, Preset};
use crate::error::Result;

/// A family of prompts with its labels.
///
/// | | `blob` | `laplace` | `clean` |
/// |---|---|---|---|
/// | choices | `{text}) {label}`, text first; for a blank `A) {text}` | `A. {Text.}` | `A) {text}` |
/// | labels of a choice | as in the file, digits stay | letters | letters |
/// | classes, ARC | 5 | 4, other items are left out | 5 |
/// | labels, yes/no | `True`, `False`: *true* is scored at `False` | `False`, `True` | `False`, `True` |
/// | end-of-text token | blanks and yes/no | yes/no | never |
/// | too long | cut from the right, the cue goes first | likewise | passage or question is cut, then choices |
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PromptSet {
    /// Bit-exact as in the `BLoB` code.
    Blob,
    /// As in the Laplace-LoRA code.
    Laplace,
    Clean,
}

impl PromptSet {
    pub const ALL: [Self; 3] = [Self::Blob, Self::Laplace, Self::Clean];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Laplace => "laplace",
            Self::Clean => "clean",
        }
    }
}

impl fmt::Display for PromptSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

settings! {
    /// A prompt template and answer words in place of those of the task; an encoder has no use for them.
    #[derive(Eq)]
    #[serde(default)]
    pub struct WordingSettings {
        /// What is read: `{text}` and, for pairs, `{pair}` stand for the texts, `\n` for a line break.
        template: Option<String> = None;
        /// The word that stands for each class, in class order; each follows the prompt after one space.
        answers: Option<Vec<String>> = None;
    }
}

impl WordingSettings {
    /// Whether the task's own wording is left as it is.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The first setting that is given, by its key.
    pub fn given(&self) -> Option<&'static str> {
        match (&self.template, &self.answers) {
            (Some(_), _) => Some("wording.template"),
            (None, Some(_)) => Some("wording.answers"),
            (None, None) => None,
        }
    }
}

/// What is set most often, in the order of a file: plain settings first, then those of sections.
const COMMON: [&str; 23] = [
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
    "prune.min_rank",
    "prune.log_alpha_threshold",
    "prune.start",
    "prune.every",
    "rank_search.margin",
];
/// Settings of ranks that are cut at a constant KL weight. `rank_search` has those of the cut by held-out rows.
const AT_CONSTANT_WEIGHT: [&str; 3] = ["prune.log_alpha_threshold", "prune.start", "prune.every"];
/// Language models keep their own head.
const HEAD: &str = "head_learning_rate";

/// A settings file for `training` with the common settings as they are in `preset`, each under the first sentence of its
/// description in the [schema](schema()), which the file names `./lrvd.schema.json`.
pub fn template(training: Training, preset: Preset) -> Result<String> {
    let schema = schema()?;
    let mut config = Layers::new(Some(training), Some(preset), None)?.document;
    config[TASK] = training.name().into();
    let by_held_out_rows = config["kl_weight"] == "auto";
    let own = |key: &&str| match *key {
        HEAD => training == Training::Classifier,
        key if AT_CONSTANT_WEIGHT.contains(&key) => !by_held_out_rows,
        key => by_held_out_rows || !key.starts_with("rank_search."),
    };
    let mut text = "#:schema ./lrvd.schema.json\n".to_owned();
    for key in ["preset", TASK].into_iter().chain(COMMON.into_iter().filter(own)) {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        let header = format!("\n[{section}]\n");
        if !section.is_empty() && !text.contains(&header) {
            text.push_str(&header);
        }
        let described =
            schema.pointer(&format!("/properties/{}", key.replace('.', "/properties/")));
        let about = comment(described.unwrap_or(&Value::Null), root().at(key));
        let value = match config.pointer(&pointer(key)) {
            None | Some(Value::Null) => "none".into(),
            Some(value) => {
                toml::Value::try_from(value).map_err(|error| unusable(key, value, error))?
            }
        };
        let _ = write!(text, "\n# {about}\n{name} = {value}\n");
    }
    Ok(text)
}

/// The first sentence of a description, and the words or numbers that there are.
fn comment(schema: &Value, field: Option<&Field>) -> String {
    let described = schema["description"].as_str().unwrap_or_default();
    let described = described.replace('\n', " ");
    let sentence = described.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let consts =
        schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one.get("const"));
    let words = schema["enum"].as_array().into_iter().flatten().chain(consts);
    let words: Vec<String> = words.map(Value::to_string).collect();
    match field.and_then(|field| field.range) {
        Some(range) => format!("{sentence} Range: {range}."),
        None if words.is_empty() => sentence.to_owned(),
        None => format!("{sentence} {}.", words.join(", ")),
    }
}

/// What `lrvd train` makes of the data with these settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum Training {
    /// A classifier or a regression, from texts with labels.
    #[default]
    Classifier,
    /// A language model, from texts.
    Language,
}

impl Training {
    pub const ALL: [Self; 2] = [Self::Classifier, Self::Language];

    /// Its name in settings files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier",
            Self::Language => "language",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|training| training.name() == name)
    }

    pub(super) fn presets() -> impl Iterator<Item = (Self, Preset)> {
        Self::ALL.into_iter().flat_map(|training| Preset::ALL.map(|preset| (training, preset)))
    }

    pub(super) fn config(self, preset: Preset) -> Config {
        match self {
            Self::Classifier => preset.config(),
            Self::Language => preset.language_config(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_record_spells_a_name_as_a_message_does() {
        for prompt in PromptSet::ALL {
            assert_eq!(serde_json::to_string(&prompt).unwrap(), format!("\"{prompt}\""));
        }
    }
}
