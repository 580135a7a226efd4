//! Prompts of questions, by `prompts.toml`: how a question becomes a text, and which words answer it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::{Environment, context};
use serde::Deserialize;

use super::Input;
use crate::settings::PromptSet;
use crate::task::{Shape, Target, Task};

/// The letters that choices go by, in class order.
pub const LETTERS: &[&str; 26] = &[
    "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O", "P", "Q", "R", "S",
    "T", "U", "V", "W", "X", "Y", "Z",
];
/// The digits that number choices in some files.
pub(super) const DIGITS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// How a prompt set asks rows of one shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompt {
    template: String,
    #[serde(default)]
    cue: &'static str,
    #[serde(default)]
    ends: bool,
    labels: Option<Vec<&'static str>>,
    only: Option<usize>,
}

impl PromptSet {
    fn of(self, task: Task) -> &'static Prompt {
        type Sets = BTreeMap<String, BTreeMap<String, Prompt>>;
        static SETS: LazyLock<Sets> = LazyLock::new(|| {
            toml::from_str(include_str!("prompts.toml"))
                .unwrap_or_else(|error| unreachable!("prompts.toml: {error}"))
        });
        let shape = match task.row().shape {
            Shape::Passage => "passage",
            Shape::Blank => "blank",
            Shape::Choices { .. } | Shape::Texts { .. } => "choices",
        };
        let prompts = &SETS[self.name()];
        prompts.get(shape).unwrap_or_else(|| &prompts["choices"])
    }

    /// The words that stand for the classes, in class order.
    pub fn labels(self, task: Task) -> &'static [&'static str] {
        let Prompt { labels, only, .. } = self.of(task);
        match (labels, &task.row().target) {
            (Some(labels), _) => labels,
            (None, Target::Choice(choices)) => &LETTERS[..only.unwrap_or(*choices)],
            (None, Target::Classes(_) | Target::Score { .. }) => &[],
        }
    }

    /// Whether an end-of-text token follows the prompt, so that the answer is read off its position.
    pub fn appends_end(self, task: Task) -> bool {
        self.of(task).ends
    }

    /// Whether the item is used at all: `laplace` leaves out items with other than four choices.
    pub fn uses(self, task: Task, input: &Input) -> bool {
        self.of(task).only.is_none_or(|choices| input.choices.len() == choices)
    }

    /// The words at the end of the prompt that ask for the answer; empty where there are none.
    pub fn cue(self, task: Task) -> &'static str {
        self.of(task).cue
    }

    /// The prompt of an item, without begin and end tokens; no line break ends it.
    pub fn text(self, task: Task, input: &Input) -> String {
        let Input { text, pair, choices, numbered } = input;
        let values = context! {
            task => task.name(),
            question => text.as_str(),
            passage => pair.clone(),
            choices => choices.iter().take(LETTERS.len()).cloned().collect::<Vec<_>>(),
            letters => LETTERS.to_vec(),
            numbered => *numbered,
        };
        Environment::new()
            .render_str(&self.of(task).template, values)
            .unwrap_or_else(|error| unreachable!("prompts.toml: {error:#}"))
    }

    /// The prompt up to its cue, for a model with a separate classifier.
    pub(super) fn text_before_cue(self, task: Task, input: &Input) -> String {
        let mut text = self.text(task, input);
        let kept = text.strip_suffix(self.cue(task)).unwrap_or(&text).trim_end().len();
        text.truncate(kept);
        text
    }
}
