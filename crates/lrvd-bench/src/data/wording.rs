//! Classification in words: how a language model is asked for a class, and which word answers it.
//!
//! The model's output is the logits of the answer words behind the prompt, one for each class, so that everything
//! after it is as for an encoder with a head; or the number that a head makes of the prompt's last token.

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::settings::WordingSettings;
use crate::task::{Goal, Shape, Task};
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
    /// The words in class order; each follows the prompt after one space. None where a number is learnt.
    pub answers: Vec<String>,
}

impl Wording {
    /// What `given` says, and where it does not: the wording of `task`, or for a user's own data a plain
    /// template and the names of the classes.
    pub fn resolve(
        given: &WordingSettings,
        goal: &Goal,
        task: Option<Task>,
        pairs: bool,
    ) -> Result<Self> {
        let (template, answers) = match task.map(|task| &task.row().shape) {
            Some(Shape::Texts { template, words, .. }) => (template.as_str(), words.clone()),
            _ => (of_own(pairs, goal.is_regression()), goal.classes.clone()),
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
        if answers.len() != goal.classes.len() {
            bail!(
                "task `{}`: {} words in `wording.answers`, expected {}: one each for {}",
                goal.name,
                answers.len(),
                goal.classes.len(),
                quoted(&goal.classes)
            );
        }
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

    pub fn is_scored(&self) -> bool {
        self.answers.is_empty()
    }

    pub(crate) fn describe(&self) -> String {
        let by = if self.is_scored() { "a number".to_owned() } else { quoted(&self.answers) };
        format!("asked as `{}`, answered by {by}", self.template.replace('\n', "\\n"))
    }
}

fn next(template: &str) -> Option<(usize, &'static str)> {
    [TEXT, PAIR].into_iter().filter_map(|name| Some((template.find(name)?, name))).min()
}

/// What is wrong with `template` for single texts or `pairs`.
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn a_wording_is_that_of_the_task_or_the_given_one_if_it_fits() {
        let none = WordingSettings::default();
        let mut found = String::new();
        for task in Task::glue() {
            let (goal, pairs) = (task.goal(), task.is_pair());
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
