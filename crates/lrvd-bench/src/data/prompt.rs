//! Prompts: how a question becomes a text, and which words answer it.

use super::Input;
use crate::settings::PromptSet;
use crate::task::{Shape, Target, Task};
use crate::text::head;

/// The letters that choices go by, in class order.
pub const LETTERS: &[&str; 26] = &[
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S",
    "T", "U", "V", "W", "X", "Y", "Z",
];
/// The digits that number choices in some files.
pub(super) const DIGITS: [&str; 5] = ["1", "2", "3", "4", "5"];

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
    pub fn labels(self, task: Task) -> &'static [&'static str] {
        match (task.row().shape, self) {
            (Shape::Passage, Self::Blob) => &["True", "False"],
            (Shape::Passage, _) => &["False", "True"],
            (Shape::Choices { .. }, Self::Laplace) => &LETTERS[..LAPLACE_CHOICES],
            _ => match task.row().target {
                Target::Choice(choices) => &LETTERS[..choices],
                Target::Classes(_) | Target::Score { .. } => &[],
            },
        }
    }

    /// Whether an end-of-text token follows the prompt, so that the answer is read off its position.
    pub const fn appends_end(self, task: Task) -> bool {
        match (self, task.row().shape) {
            (Self::Blob, Shape::Blank | Shape::Passage) | (Self::Laplace, Shape::Passage) => true,
            (Self::Blob | Self::Laplace | Self::Clean, _) => false,
        }
    }

    /// Whether the item is used at all: `laplace` leaves out items with other than four choices.
    pub fn uses(self, task: Task, input: &Input) -> bool {
        match (self, task.row().shape) {
            (Self::Laplace, Shape::Choices { .. }) => input.choices.len() == LAPLACE_CHOICES,
            _ => true,
        }
    }

    /// The words at the end of the prompt that ask for the answer; empty where there are none.
    pub const fn cue(self, task: Task) -> &'static str {
        match (self, task.row().shape) {
            (Self::Laplace, Shape::Passage) => "",
            (_, Shape::Passage) => "Answer (true or false):",
            _ => "Answer:",
        }
    }

    /// The prompt of an item, without begin and end tokens; no line break ends it.
    pub fn text(self, task: Task, input: &Input) -> String {
        self.text_within(task, input, Room::ALL)
    }

    /// The prompt with shortened texts; the two published prompt sets know no such thing and ignore `room`.
    pub(super) fn text_within(self, task: Task, input: &Input, room: Room) -> String {
        match self {
            Self::Blob => blob(task, input),
            Self::Laplace => laplace(task, input),
            Self::Clean => clean(task, input, room),
        }
    }

    /// The prompt up to its cue, for a model with a separate classifier.
    pub(super) fn text_before_cue(self, task: Task, input: &Input, room: Room) -> String {
        let mut text = self.text_within(task, input, room);
        let kept = text.strip_suffix(self.cue(task)).unwrap_or(&text).trim_end().len();
        text.truncate(kept);
        text
    }
}

fn two(input: &Input) -> [&str; 2] {
    [0, 1].map(|i| input.choices.get(i).map_or("", String::as_str))
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

fn blob(task: Task, input: &Input) -> String {
    let question = &input.text;
    match task.row().shape {
        Shape::Passage => {
            let passage = head(input.pair.as_deref().unwrap_or_default(), PASSAGE);
            format!(
                "Read the passage below and answer the question with the words 'true' or 'false'.\n\n\
                 Passage: {passage}\nQuestion: {question}\nAnswer (true or false):"
            )
        }
        Shape::Blank => {
            let [first, second] = two(input);
            blob_question(question, "Choices", &format!("A) {first}\nB) {second}"))
        }
        other => {
            let header = match other {
                Shape::Choices { blob_header, .. } => blob_header,
                _ => "Choices",
            };
            let labels: &[&str] = if input.numbered { &DIGITS } else { LETTERS };
            let choices = input.choices.iter().zip(labels);
            let lines = choices.map(|(text, label)| format!("{text}) {label}"));
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

fn laplace(task: Task, input: &Input) -> String {
    let question = &input.text;
    match task.row().shape {
        Shape::Passage => {
            let passage = input.pair.as_deref().unwrap_or_default();
            format!("Answer the question with only True or False: {question} Context: {passage}")
        }
        Shape::Blank => {
            let [first, second] = two(input);
            laplace_question(question, &format!("A. {first}. B {second}."))
        }
        _ => {
            let texts = input.choices.iter().map(|choice| sentence(choice));
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
fn clean(task: Task, input: &Input, room: Room) -> String {
    if matches!(task.row().shape, Shape::Passage) {
        let passage = head(input.pair.as_deref().unwrap_or_default(), room.body);
        let question = head(&input.text, room.choice);
        return format!(
            "Read the passage below and answer the question with the words 'true' or 'false'.\n\n\
             Passage: {passage}\nQuestion: {question}\nAnswer (true or false):"
        );
    }
    let texts = input.choices.iter().map(|choice| head(choice, room.choice));
    let choices = LETTERS.iter().zip(texts).map(|(letter, text)| format!("{letter}) {text}\n"));
    let question = match &input.pair {
        Some(passage) => {
            let (passage, question) = (head(passage, room.body), head(&input.text, room.choice));
            format!("Passage: {passage}\nQuestion: {question}")
        }
        None => format!("Question: {}", head(&input.text, room.body)),
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
