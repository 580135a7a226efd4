//! The prompts of the Laplace-LoRA code.
//!
//! Choices begin with a capital letter and end in a full stop, numbered ones get letters, and items with other than
//! four choices are left out. A blank's two choices are taken as they are; the second letter has no full stop.
//!
//! # References
//!
//! Yang et al. 2024, arXiv:2308.13111, and its public code.

use super::two;
use crate::reasoning::item::LETTERS;
use crate::reasoning::set::Layout;
use crate::reasoning::{ChoiceItem, ReasoningSet};

/// Choices of every item that is used.
pub(super) const CHOICES: usize = 4;

pub(super) fn text(set: ReasoningSet, item: &ChoiceItem) -> String {
    let question = &item.question;
    match set.spec().layout {
        Layout::Passage => {
            let passage = item.passage.as_deref().unwrap_or_default();
            format!("Answer the question with only True or False: {question} Context: {passage}")
        }
        Layout::Blank => {
            let [first, second] = two(item);
            multiple_choice(question, &format!("A. {first}. B {second}."))
        }
        Layout::Choices { .. } => {
            let texts = item.choices.iter().map(|choice| sentence(&choice.text));
            let choices =
                LETTERS.iter().zip(texts).map(|(letter, text)| format!("{letter}. {text}"));
            multiple_choice(question, &choices.collect::<Vec<_>>().join(" "))
        }
    }
}

fn multiple_choice(question: &str, choices: &str) -> String {
    format!(
        "Select one of the choices that answers the following question: {question} Choices: {choices} Answer:"
    )
}

/// With a capital first letter and a full stop at the end.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let mut sentence: String = rest.next().into_iter().flat_map(char::to_uppercase).collect();
    sentence.push_str(rest.as_str());
    if !text.ends_with('.') {
        sentence.push('.');
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_become_sentences() {
        for (text, wanted) in
            [("the sun", "The sun."), ("Mars.", "Mars."), ("émeraude", "Émeraude."), ("5", "5.")]
        {
            assert_eq!(sentence(text), wanted);
        }
    }
}
