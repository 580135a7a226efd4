//! Prompts of questions, by `prompts.toml`: how a question becomes a text, and which words answer it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::{Environment, context};
use serde::{Deserialize, Serialize};

use super::{Input, Wording};
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

/// How a question with choices is laid out: as the rows of a task are in the prompts of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionForm {
    #[serde(rename = "set")]
    pub task: Task,
    pub prompt: PromptSet,
}

impl Default for QuestionForm {
    /// A question, and choices that go by letters, asked by `clean`.
    fn default() -> Self {
        Self { task: Task::ArcC, prompt: PromptSet::Clean }
    }
}

impl QuestionForm {
    /// How `prompt` asks the rows of `task`; `None` where they have no choices.
    pub fn of(task: Task, prompt: PromptSet) -> Option<Self> {
        (!matches!(task.row().shape, Shape::Passage)).then_some(Self { task, prompt })
    }

    /// Whether it is that of a user's own questions.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The question that is asked with `letters` choices, and with a passage or without, in words for a record.
    pub(crate) fn wording(self, letters: usize, passage: bool) -> Wording {
        let choices = vec!["…".to_owned(); letters];
        let pair = passage.then(|| "{pair}".to_owned());
        let answers = LETTERS.iter().take(letters).map(ToString::to_string).collect();
        let input = Input { pair, choices, ..Input::text("{text}") };
        Wording { template: self.text(&input), answers }
    }

    /// A user's question as a decoder is asked it, with nothing cut.
    pub(crate) fn text(self, input: &Input) -> String {
        self.prompt.text(self.task, &trimmed(input))
    }
}

/// A user's question without the white space around its parts.
pub(super) fn trimmed(input: &Input) -> Input {
    let trim = |text: &String| text.trim().to_owned();
    Input {
        text: trim(&input.text),
        pair: input.pair.as_ref().map(trim),
        choices: input.choices.iter().take(LETTERS.len()).map(trim).collect(),
        numbered: input.numbered,
    }
}
