//! How a model is asked: families of prompts, and a wording in place of the task's.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::table::settings;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_spells_a_name_as_a_message_does() {
        for prompt in PromptSet::ALL {
            assert_eq!(serde_json::to_string(&prompt).unwrap(), format!("\"{prompt}\""));
        }
    }
}
