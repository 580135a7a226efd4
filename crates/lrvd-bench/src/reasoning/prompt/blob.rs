//! The prompts of the `BLoB` code, character by character.
//!
//! Its quirks are kept, since published numbers were made with them:
//!
//! - the loop over choices takes texts for labels and labels for texts, so a line reads `gravity) A`;
//! - that label is the file's: items whose choices are numbered show digits (`gravity) 1`), while the answer is
//!   scored at the letters all the same;
//! - one header is misspelt;
//! - of a passage the first 1,024 characters are shown.
//!
//! # References
//!
//! Wang et al. 2024, arXiv:2406.11675, and its public code.

use super::two;
use crate::reasoning::set::Layout;
use crate::reasoning::{ChoiceItem, ReasoningSet};
use crate::text::head;

/// Characters of a passage that are shown.
const PASSAGE: usize = 1_024;

pub(super) fn text(set: ReasoningSet, item: &ChoiceItem) -> String {
    let question = &item.question;
    match set.spec().layout {
        Layout::Passage => {
            let passage = head(item.passage.as_deref().unwrap_or_default(), PASSAGE);
            format!(
                "Read the passage below and answer the question with the words 'true' or 'false'.\n\n\
                 Passage: {passage}\nQuestion: {question}\nAnswer (true or false):"
            )
        }
        Layout::Blank => {
            let [first, second] = two(item);
            multiple_choice(question, "Choices", &format!("A) {first}\nB) {second}"))
        }
        Layout::Choices { .. } => {
            let lines = item.choices.iter().map(|c| format!("{}) {}", c.text, c.label));
            let header = if set == ReasoningSet::Obqa { "Chioces" } else { "Choices" };
            multiple_choice(question, header, &lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn multiple_choice(question: &str, header: &str, choices: &str) -> String {
    format!(
        "Return the label of the correct answer for the question below.\n\n\
         Question: {question}\n{header}:\n{choices}\nAnswer:"
    )
}
