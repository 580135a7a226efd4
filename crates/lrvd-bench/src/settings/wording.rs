//! How a language model is asked for a class, where that is not the task's own way.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A prompt template and answer words in place of those of the task; an encoder has no use for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WordingSettings {
    /// What is read: `{text}` and, for pairs, `{pair}` stand for the texts, `\n` for a line break.
    pub template: Option<String>,
    /// The word that stands for each class, in class order; each follows the prompt after one space.
    pub answers: Option<Vec<String>>,
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
