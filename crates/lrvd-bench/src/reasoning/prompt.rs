//! Prompts: how a question becomes a text, and which words answer it.

use super::set::{LETTERS, Layout};
use super::{ChoiceItem, ReasoningSet};
use crate::settings::PromptSet;
use crate::text::head;

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
            (Layout::Choices { .. }, Self::Laplace) => &LETTERS[..LAPLACE_CHOICES],
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
            (Self::Laplace, Layout::Choices { .. }) => item.choices.len() == LAPLACE_CHOICES,
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
            Self::Blob => blob(set, item),
            Self::Laplace => laplace(set, item),
            Self::Clean => clean(set, item, room),
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

// The prompts of the `BLoB` code, character by character.
//
// Its quirks are kept, since published numbers were made with them:
//
// - the loop over choices takes texts for labels and labels for texts, so a line reads `gravity) A`;
// - that label is the file's: items whose choices are numbered show digits (`gravity) 1`), while the answer is
//   scored at the letters all the same;
// - one header is misspelt;
// - of a passage the first 1,024 characters are shown.
//
// Wang et al. 2024, arXiv:2406.11675, and its public code.

/// Characters of a passage that are shown.
const PASSAGE: usize = 1_024;

fn blob(set: ReasoningSet, item: &ChoiceItem) -> String {
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
            blob_question(question, "Choices", &format!("A) {first}\nB) {second}"))
        }
        Layout::Choices { .. } => {
            let lines = item.choices.iter().map(|c| format!("{}) {}", c.text, c.label));
            let header = if set == ReasoningSet::Obqa { "Chioces" } else { "Choices" };
            blob_question(question, header, &lines.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn blob_question(question: &str, header: &str, choices: &str) -> String {
    format!(
        "Return the label of the correct answer for the question below.\n\n\
         Question: {question}\n{header}:\n{choices}\nAnswer:"
    )
}

// The prompts of the Laplace-LoRA code.
//
// Choices begin with a capital letter and end in a full stop, numbered ones get letters, and items with other than
// four choices are left out. A blank's two choices are taken as they are; the second letter has no full stop.
//
// Yang et al. 2024, arXiv:2308.13111, and its public code.

/// Choices of every item that is used.
const LAPLACE_CHOICES: usize = 4;

fn laplace(set: ReasoningSet, item: &ChoiceItem) -> String {
    let question = &item.question;
    match set.spec().layout {
        Layout::Passage => {
            let passage = item.passage.as_deref().unwrap_or_default();
            format!("Answer the question with only True or False: {question} Context: {passage}")
        }
        Layout::Blank => {
            let [first, second] = two(item);
            laplace_question(question, &format!("A. {first}. B {second}."))
        }
        Layout::Choices { .. } => {
            let texts = item.choices.iter().map(|choice| sentence(&choice.text));
            let choices =
                LETTERS.iter().zip(texts).map(|(letter, text)| format!("{letter}. {text}"));
            laplace_question(question, &choices.collect::<Vec<_>>().join(" "))
        }
    }
}

fn laplace_question(question: &str, choices: &str) -> String {
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

/// Our own prompts: the wording of `blob` without its quirks.
///
/// Letters by place, text after letter; of a passage as much as fits. Where a prompt has to be cut, the passage (or
/// the question, where there is none) loses its end first, then every choice; the cue always stays.
fn clean(set: ReasoningSet, item: &ChoiceItem, room: Room) -> String {
    if set.spec().layout == Layout::Passage {
        let passage = head(item.passage.as_deref().unwrap_or_default(), room.body);
        let question = head(&item.question, room.choice);
        return format!(
            "Read the passage below and answer the question with the words 'true' or 'false'.\n\n\
             Passage: {passage}\nQuestion: {question}\nAnswer (true or false):"
        );
    }
    let texts = item.choices.iter().map(|choice| head(&choice.text, room.choice));
    let choices = LETTERS.iter().zip(texts).map(|(letter, text)| format!("{letter}) {text}\n"));
    let question = match &item.passage {
        Some(passage) => {
            let (passage, question) = (head(passage, room.body), head(&item.question, room.choice));
            format!("Passage: {passage}\nQuestion: {question}")
        }
        None => format!("Question: {}", head(&item.question, room.body)),
    };
    format!(
        "Return the label of the correct answer for the question below.\n\n\
         {question}\nChoices:\n{}Answer:",
        choices.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_become_sentences() {
        for (text, expected) in
            [("the sun", "The sun."), ("Mars.", "Mars."), ("émeraude", "Émeraude."), ("5", "5.")]
        {
            assert_eq!(sentence(text), expected);
        }
    }
}
