//! A checked template with its answer words.

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use super::table::{of_own, of_task};
use crate::error::Result;
use crate::settings::WordingSettings;
use crate::task::{GlueTask, Goal};
use crate::text::{head, quoted};

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
        task: Option<GlueTask>,
        pairs: bool,
    ) -> Result<Self> {
        let (template, answers) = match task {
            Some(task) => {
                let (template, words) = of_task(task);
                (template, words.iter().map(ToString::to_string).collect())
            }
            None => (of_own(pairs, goal.is_regression()), goal.classes.clone()),
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
                "task `{}`: {} words in `wording.answers`, wanted {}: one each for {}",
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
    for (name, wanted) in [(TEXT, 1), (PAIR, usize::from(pairs))] {
        let found = template.matches(name).count();
        if found != wanted {
            let what = if pairs { "pairs of texts" } else { "single texts" };
            return Err(format!("it has `{name}` {found} times, wanted {wanted} for {what}"));
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn own(classes: &[&str]) -> Goal {
        Goal::classification("tone", classes.iter().map(ToString::to_string).collect())
    }

    fn given(template: Option<&str>, answers: &[&str]) -> WordingSettings {
        let answers = answers.iter().map(ToString::to_string).collect::<Vec<_>>();
        WordingSettings {
            template: template.map(str::to_owned),
            answers: (!answers.is_empty()).then_some(answers),
        }
    }

    #[test]
    fn every_task_has_its_wording() {
        for task in GlueTask::ALL {
            let (goal, pairs) = (Goal::of_task(task), task.spec().keys.len() == 2);
            let wording = Wording::resolve(&given(None, &[]), &goal, Some(task), pairs).unwrap();
            assert_eq!(wording.is_scored(), task == GlueTask::Stsb, "{task}");
            assert!(!wording.prompt("a", Some("b"), 9).contains('{'), "{task}");
        }
        let sst2 = Goal::of_task(GlueTask::Sst2);
        let wording = Wording::resolve(&given(None, &[]), &sst2, Some(GlueTask::Sst2), false);
        let wording = wording.unwrap();
        assert_eq!(wording.prompt(" fine . ", None, 99), "Review: fine .\nSentiment:");
        assert_eq!(wording.prompt("fine", None, 2), "Review: fi\nSentiment:");
        assert_eq!(wording.answers, ["negative", "positive"]);
        assert_eq!(
            wording.describe(),
            "asked as `Review: {text}\\nSentiment:`, answered by `negative`, `positive`"
        );
    }

    #[test]
    fn what_is_given_comes_before_the_task_and_texts_are_not_read_as_templates() {
        let goal = own(&["no", "yes"]);
        let set = given(Some("{pair}?\\n{text}!"), &[" bad", "good "]);
        let wording = Wording::resolve(&set, &goal, None, true).unwrap();
        assert_eq!(wording.answers, ["bad", "good"]);
        assert_eq!(wording.prompt("{pair}", Some("{text}"), 99), "{text}?\n{pair}!");
        let wording = Wording::resolve(&given(None, &[]), &goal, None, false).unwrap();
        assert_eq!(
            (wording.prompt("x", None, 9).as_str(), wording.answers),
            ("Text: x\nLabel:", goal.classes)
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let message = |template, answers: &[&str], pairs| {
            let goal = own(&["no", "yes"]);
            Wording::resolve(&given(template, answers), &goal, None, pairs).unwrap_err().to_string()
        };
        let start = "task `tone`: `wording.template` is ";
        for (template, pairs, wanted) in [
            ("Label:", false, "`Label:`: it has `{text}` 0 times, wanted 1 for single texts"),
            ("{text}{text}:", false, "it has `{text}` 2 times"),
            ("{text}:", true, "it has `{pair}` 0 times, wanted 1 for pairs of texts"),
            ("{text}{pair}:", false, "it has `{pair}` 1 times, wanted 0"),
            ("{text}{label}:", false, "unknown place `{label}`; there are `{text}` and `{pair}`"),
            ("{text}:\n", false, "`{text}:\\n`: it ends in white space"),
        ] {
            let error = message(Some(template), &[], pairs);
            assert!(error.starts_with(start) && error.contains(wanted), "{error}");
        }
        assert_eq!(
            message(None, &["a"], false),
            "task `tone`: 1 words in `wording.answers`, wanted 2: one each for `no`, `yes`"
        );
    }
}
