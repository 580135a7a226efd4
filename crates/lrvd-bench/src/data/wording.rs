//! How a model is asked: a class in words, of which one answers it, and a question with its choices by `prompts.toml`.
//!
//! The output of a language model is the logits of the answer words behind the prompt, one for each class, so that
//! everything after it is as for an encoder with a head; or the number that a head makes of the prompt's last token.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{anyhow, ensure};
use minijinja::{Environment, context};
use serde::{Deserialize, Serialize};

use super::Input;
use crate::answers::{AnswerSpace, LETTERS, Readout};
use crate::error::Result;
use crate::settings::{PromptSet, WordingSettings};
use crate::task::{Goal, Shape, Target, Task};
use crate::text::{head, quoted};

/// The template of a user's own texts, or pairs of them; the answers are the names of the classes, or a number.
const fn of_own(pairs: bool, number: bool) -> &'static str {
    match (pairs, number) {
        (false, false) => "Text: {text}\nLabel:",
        (false, true) => "Text: {text}\nScore:",
        (true, false) => "First text: {text}\nSecond text: {pair}\nLabel:",
        (true, true) => "First text: {text}\nSecond text: {pair}\nScore:",
    }
}

const TEXT: &str = "{text}";
const PAIR: &str = "{pair}";
/// In a record, the text of each option of a question.
const OPTION: &str = "{option}";

/// A question in words: what a language model reads, and the word that stands for each class. A number is no word, but
/// the output of a head at the end of the question.
///
/// # Invariants
///
/// From [`resolve`](Self::resolve): the template names every text once, nothing else, and does not end in white
/// space; there are as many words as classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wording {
    /// The prompt; `{text}` and `{pair}` stand for the texts, without the white space around them.
    pub template: String,
    /// The words in class order; each follows the prompt after one space. None where a number is learnt, and the one word
    /// `{option}` where the texts of a question's options are scored.
    pub answers: Vec<String>,
}

impl Wording {
    /// The wording `given`; without one the wording of `task`, or for a user's own data a plain
    /// template and the names of the classes.
    pub fn resolve(
        given: &WordingSettings,
        goal: &Goal,
        task: Option<Task>,
        pairs: bool,
    ) -> Result<Self> {
        ensure!(
            given.readout.is_none(),
            "task `{}`: `wording.readout` is for questions with options, and a class is answered by its word",
            goal.name
        );
        let (template, answers) = match task.map(|task| &task.row().shape) {
            Some(Shape::Texts { template, words, .. }) => (template.as_str(), words.clone()),
            _ => (of_own(pairs, goal.answers == AnswerSpace::Score), goal.answers.names()),
        };
        // A shell has no easy way to type a line break.
        let template = given.template.as_deref().unwrap_or(template).replace("\\n", "\n");
        let answers: Vec<String> = given.answers.clone().unwrap_or(answers);
        let answers: Vec<String> = answers.iter().map(|word| word.trim().to_owned()).collect();
        check(&template, pairs).map_err(|reason| {
            anyhow!(
                "task `{}`: `wording.template` is `{}`: {reason}",
                goal.name,
                template.escape_debug()
            )
        })?;
        let classes = goal.answers.names();
        ensure!(
            answers.len() == classes.len(),
            "task `{}`: {} words in `wording.answers`, expected {}: one each for {}",
            goal.name,
            answers.len(),
            classes.len(),
            quoted(&classes)
        );
        Ok(Self { template, answers })
    }

    pub(super) fn prompt(&self, text: &str, pair: Option<&str>, room: usize) -> String {
        let cut = |text| head(str::trim(text), room);
        let mut prompt = String::new();
        let mut rest = self.template.as_str();
        // Piece by piece: a text may itself hold the name of the other.
        while let Some((at, name)) = next(rest) {
            prompt.push_str(&rest[..at]);
            prompt.push_str(cut(if name == TEXT { text } else { pair.unwrap_or_default() }));
            rest = &rest[at + name.len()..];
        }
        prompt + rest
    }

    pub(crate) fn describe(&self) -> String {
        let by =
            if self.answers.is_empty() { "a number".to_owned() } else { quoted(&self.answers) };
        format!("asked as `{}`, answered by {by}", self.template.replace('\n', "\\n"))
    }
}

fn next(template: &str) -> Option<(usize, &'static str)> {
    [TEXT, PAIR].into_iter().filter_map(|name| Some((template.find(name)?, name))).min()
}

/// Checks `template` for single texts or `pairs`; the error says what is wrong.
fn check(template: &str, pairs: bool) -> Result<(), String> {
    for (name, expected) in [(TEXT, 1), (PAIR, usize::from(pairs))] {
        let found = template.matches(name).count();
        if found != expected {
            let what = if pairs { "pairs of texts" } else { "single texts" };
            return Err(format!("it has `{name}` {found} times, expected {expected} for {what}"));
        }
    }
    let left = template.replace(TEXT, "").replace(PAIR, "");
    if let Some((_, rest)) = left.split_once('{')
        && let Some((name, _)) = rest.split_once('}')
    {
        return Err(format!("unknown place `{{{name}}}`; there are `{TEXT}` and `{PAIR}`"));
    }
    if template.ends_with(char::is_whitespace) {
        return Err("it ends in white space, and the answer brings its own space".to_owned());
    }
    Ok(())
}

/// The digits that number choices in some files.
pub(super) const DIGITS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Layout of the prompts of a set for rows of one shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    template: String,
    /// The words at the end of the prompt that ask for the answer; empty where there are none.
    #[serde(default)]
    pub cue: &'static str,
    /// `true` if an end-of-text token follows the prompt, so that the answer is read off its position.
    #[serde(default)]
    pub ends: bool,
    labels: Option<Vec<&'static str>>,
    only: Option<usize>,
}

/// By prompt set and what is in a row.
static PROMPTS: LazyLock<BTreeMap<String, BTreeMap<String, Prompt>>> = LazyLock::new(|| {
    toml::from_str(include_str!("prompts.toml"))
        .unwrap_or_else(|error| unreachable!("prompts.toml: {error}"))
});

/// `true` if a question has more options than there are letters.
pub(super) fn is_wide(input: &Input) -> bool {
    input.choices.len() > LETTERS.len()
}

impl Prompt {
    /// A question in this prompt, without begin and end tokens; no line break ends it.
    fn text(&self, task: Task, input: &Input) -> String {
        let Input { text, pair, choices, numbered, .. } = input;
        let values = context! {
            task => task.name(),
            question => text.as_str(),
            passage => pair.clone(),
            choices => choices.iter().take(LETTERS.len()).cloned().collect::<Vec<_>>(),
            letters => LETTERS.to_vec(),
            numbered => *numbered,
        };
        Environment::new()
            .render_str(&self.template, values)
            .unwrap_or_else(|error| unreachable!("prompts.toml: {error:#}"))
    }
}

impl PromptSet {
    pub fn of(self, task: Task) -> &'static Prompt {
        let shape = match task.row().shape {
            Shape::Passage => "passage",
            Shape::Blank => "blank",
            Shape::Choices { .. } | Shape::Texts { .. } => "choices",
        };
        let prompts = &PROMPTS[self.name()];
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

    /// `true` if the item is used: `laplace` leaves out items with other than four choices.
    pub fn uses(self, task: Task, input: &Input) -> bool {
        self.of(task).only.is_none_or(|choices| input.choices.len() == choices)
    }

    /// The prompt of an item, without begin and end tokens; no line break ends it.
    pub fn text(self, task: Task, input: &Input) -> String {
        self.of(task).text(task, input)
    }

    /// The prompt up to its cue, for a model with a separate classifier.
    pub(super) fn text_before_cue(self, task: Task, input: &Input) -> String {
        let mut text = self.text(task, input);
        let kept = text.strip_suffix(self.of(task).cue).unwrap_or(&text).trim_end().len();
        text.truncate(kept);
        text
    }
}

/// Layout of a question with choices, as the rows of a task are in the prompts of a family, and the place of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionForm {
    #[serde(rename = "set")]
    pub task: Task,
    pub prompt: PromptSet,
    /// The head of an encoder, which has a class for each letter.
    pub readout: Readout,
}

impl QuestionForm {
    /// Layout of a user's own questions.
    pub const fn own(readout: Readout) -> Self {
        Self { task: Task::ArcC, prompt: PromptSet::Clean, readout }
    }

    /// Layout of the rows of `task` in `prompt`, by its labels; `None` where they have no choices.
    pub fn of(task: Task, prompt: PromptSet) -> Option<Self> {
        let readout = Readout::Letters;
        (!matches!(task.row().shape, Shape::Passage)).then_some(Self { task, prompt, readout })
    }

    /// The question that is asked with `letters` choices, and with a passage or without, in words for a record.
    pub(crate) fn wording(self, letters: usize, passage: bool) -> Wording {
        let choices = vec!["…".to_owned(); letters];
        let pair = passage.then(|| PAIR.to_owned());
        let answers = match self.readout {
            Readout::Options => vec![OPTION.to_owned()],
            _ => LETTERS.iter().take(letters).map(ToString::to_string).collect(),
        };
        let input = Input { pair, choices, ..Input::text(TEXT) };
        Wording { template: self.text(&input), answers }
    }

    /// A user's question as a decoder is asked it, with nothing cut.
    pub(crate) fn text(self, input: &Input) -> String {
        self.verbatim(&trimmed(input))
    }

    /// A question with the white space around its parts.
    pub(super) fn verbatim(self, input: &Input) -> String {
        self.prompt().text(self.task, input)
    }

    /// The words at the end of the prompt that ask for the answer.
    pub(super) fn cue(self) -> &'static str {
        self.prompt().cue
    }

    /// Texts of options are scored behind one prompt, whatever the set: published ones have none.
    fn prompt(self) -> &'static Prompt {
        match self.readout {
            Readout::Options => &PROMPTS[PromptSet::Clean.name()]["scored"],
            _ => self.prompt.of(self.task),
        }
    }
}

/// Layout of what a model reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputLayout {
    /// Of an encoder: a text, a pair, or the state of its one question.
    Segments,
    /// Of a language model: a text or a pair in a prompt, answered by words, or by a number of a head.
    Prompt(Wording),
    /// A question with its options.
    Question(QuestionForm),
    /// Of a language model: prompt and completion, or a conversation.
    Texts,
}

impl InputLayout {
    pub fn readout(&self) -> Readout {
        match self {
            Self::Segments => Readout::Head,
            Self::Prompt(wording) if wording.answers.is_empty() => Readout::Head,
            Self::Prompt(_) | Self::Texts => Readout::Words,
            Self::Question(form) => form.readout,
        }
    }

    /// The words in which a language model is asked for one of `answers`, with a second text or passage if these are `pairs`.
    pub(crate) fn wording(&self, answers: &AnswerSpace, pairs: bool) -> Option<Wording> {
        match self {
            Self::Prompt(wording) => Some(wording.clone()),
            Self::Question(form) if form.readout != Readout::Head => {
                Some(form.wording(answers.width(), pairs))
            }
            Self::Segments | Self::Question(_) | Self::Texts => None,
        }
    }
}

/// A user's question without the white space around its parts.
pub(super) fn trimmed(input: &Input) -> Input {
    let trim = |text: &String| text.trim().to_owned();
    Input {
        text: trim(&input.text),
        pair: input.pair.as_ref().map(trim),
        choices: input.choices.iter().map(trim).collect(),
        numbered: input.numbered,
        kind: input.kind,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn a_wording_is_that_of_the_task_or_the_given_one_if_it_fits() {
        let none = WordingSettings::default();
        let mut found = String::new();
        for task in Task::glue() {
            let goal = task.goal();
            let pairs = task.is_pair();
            let wording = Wording::resolve(&none, &goal, Some(task), pairs).unwrap();
            let prompt = wording.prompt(" fine . ", Some("b"), 2);
            writeln!(found, "{task}: {}\n    {prompt:?}", wording.describe()).unwrap();
        }
        let goal = Goal::classification("tone", ["no", "yes"].map(str::to_owned).to_vec());
        for line in include_str!("cases/wordings.txt").lines() {
            let (pairs, given) = line.split_once(' ').unwrap();
            let given: WordingSettings = serde_json::from_str(given).unwrap();
            let read = match Wording::resolve(&given, &goal, None, pairs == "pairs") {
                Ok(wording) => {
                    let prompt = wording.prompt("{pair}", Some("{text}"), 99);
                    format!("{}\n    {prompt:?}\n", wording.describe())
                }
                Err(error) => format!("{error}\n"),
            };
            found += &read;
        }
        insta::assert_snapshot!(found);
    }
}
