//! The families of prompts of the reasoning sets.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
