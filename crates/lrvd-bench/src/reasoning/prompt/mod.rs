//! Prompts: how a question becomes a text, and which words answer it.
//!
//! | File      | Prompt set                                                                         |
//! |-----------|------------------------------------------------------------------------------------|
//! | `blob`    | the strings that the published `BLoB` numbers were made with, quirks included       |
//! | `laplace` | those of Laplace-LoRA                                                              |
//! | `clean`   | ours: the same questions without the quirks, and cut without losing the answer cue |

mod blob;
mod clean;
mod laplace;

use super::item::LETTERS;
use super::set::Layout;
use super::{ChoiceItem, ReasoningSet};
use crate::settings::PromptSet;

/// Largest number of characters of a text in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Of the passage, or of the question where there is no passage.
    pub(super) body: usize,
    pub(super) choice: usize,
}

impl Room {
    pub(super) const ALL: Self = Self { body: usize::MAX, choice: usize::MAX };
}

impl PromptSet {
    /// The words that stand for the classes, in class order.
    pub fn labels(self, set: ReasoningSet) -> &'static [&'static str] {
        match (set.spec().layout, self) {
            (Layout::Passage, Self::Blob) => &["True", "False"],
            (Layout::Passage, _) => &["False", "True"],
            (Layout::Choices { .. }, Self::Laplace) => &LETTERS[..laplace::CHOICES],
            (Layout::Blank | Layout::Choices { .. }, _) => &LETTERS[..set.spec().n_classes],
        }
    }

    /// Whether an end-of-text token follows the prompt, so that the answer is read off its position.
    pub const fn appends_end(self, set: ReasoningSet) -> bool {
        match (self, set.spec().layout) {
            (Self::Blob, Layout::Blank | Layout::Passage) | (Self::Laplace, Layout::Passage) => {
                true
            }
            (Self::Blob | Self::Laplace | Self::Clean, _) => false,
        }
    }

    /// Whether the item is used at all: `laplace` leaves out items with other than four choices.
    pub fn uses(self, set: ReasoningSet, item: &ChoiceItem) -> bool {
        match (self, set.spec().layout) {
            (Self::Laplace, Layout::Choices { .. }) => item.choices.len() == laplace::CHOICES,
            _ => true,
        }
    }

    /// The words at the end of the prompt that ask for the answer; empty where there are none.
    pub const fn cue(self, set: ReasoningSet) -> &'static str {
        match (self, set.spec().layout) {
            (Self::Laplace, Layout::Passage) => "",
            (_, Layout::Passage) => "Answer (true or false):",
            (_, Layout::Blank | Layout::Choices { .. }) => "Answer:",
        }
    }

    /// The prompt of an item, without begin and end tokens; no line break ends it.
    pub fn text(self, set: ReasoningSet, item: &ChoiceItem) -> String {
        self.text_within(set, item, Room::ALL)
    }

    /// The prompt with shortened texts; the two published prompt sets know no such thing and ignore `room`.
    pub(super) fn text_within(self, set: ReasoningSet, item: &ChoiceItem, room: Room) -> String {
        match self {
            Self::Blob => blob::text(set, item),
            Self::Laplace => laplace::text(set, item),
            Self::Clean => clean::text(set, item, room),
        }
    }

    /// The prompt up to its cue, for a model with a separate classifier.
    pub(super) fn text_before_cue(
        self,
        set: ReasoningSet,
        item: &ChoiceItem,
        room: Room,
    ) -> String {
        let mut text = self.text_within(set, item, room);
        let kept = text.strip_suffix(self.cue(set)).unwrap_or(&text).trim_end().len();
        text.truncate(kept);
        text
    }
}

fn two(item: &ChoiceItem) -> [&str; 2] {
    [0, 1].map(|i| item.choices.get(i).map_or("", |choice| choice.text.as_str()))
}
