//! Classification in words: how a language model is asked for a class, and which word answers it.
//!
//! The model's output is the logits of the answer words behind the prompt, one for each class, so that everything
//! after it is as for an encoder with a head; or the number that a head makes of the prompt's last token.

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::batch::{BareTokens, Cut, file, is_special, longest};
use crate::error::{Error, Kind, Result};
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
        let (template, answers) = match task.map(|task| task.row().shape) {
            Some(Shape::Texts { template, words, .. }) => {
                (template, words.iter().map(ToString::to_string).collect())
            }
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

/// Turns texts into prompts of at most `max_length` tokens.
///
/// A prompt starts as the tokenizer starts every text and ends with the template's end; the answer is read at its
/// last token. What is too long loses the ends of its texts, the longer one first.
#[derive(Debug)]
pub struct WordedTexts<'a> {
    wording: &'a Wording,
    task: &'a str,
    tokens: BareTokens<'a>,
    pub(super) max_length: usize,
    pub answers: Vec<u32>,
    /// The token that fills a batch, which nothing reads.
    pub pad_id: u32,
}

impl<'a> WordedTexts<'a> {
    /// Finds and checks the tokens of the answers to `task`.
    pub fn new(
        wording: &'a Wording,
        task: &'a str,
        tokenizer: &'a TextTokenizer,
        max_length: usize,
    ) -> Result<Self> {
        let tokens = BareTokens::new(tokenizer)?;
        let special = tokenizer.special_tokens();
        let pad_id = special.pad.or(special.bos).or(special.eos).unwrap_or(0);
        let found = tokens.opened(&wording.prompt("", None, 0))?.len();
        if found > max_length {
            return Err(too_long(task, found, max_length));
        }
        let answers = answers(wording, task, tokenizer, tokens)?;
        Ok(Self { wording, task, tokens, max_length, answers, pad_id })
    }

    /// The prompt with nothing cut, however long.
    pub(crate) fn whole(&self, text: &str, pair: Option<&str>) -> Result<Vec<u32>> {
        Ok(self.tokens.opened(&self.wording.prompt(text, pair, usize::MAX))?)
    }

    pub(super) fn encode(&self, text: &str, pair: Option<&str>) -> Result<(Vec<u32>, Cut)> {
        let prompt = |room| self.tokens.opened(&self.wording.prompt(text, pair, room));
        let whole = self.whole(text, pair)?;
        if whole.len() <= self.max_length {
            return Ok((whole, Cut::Nothing));
        }
        let characters = [text, pair.unwrap_or_default()].map(|text| text.trim().chars().count());
        let most = characters[0].max(characters[1]);
        match longest(most, self.max_length, prompt)? {
            Some(ids) => Ok((ids, Cut::Text)),
            None => {
                let found = prompt(0)?.len();
                Err(Kind::Input.mark(too_long(self.task, found, self.max_length)))
            }
        }
    }
}

fn too_long(task: &str, found: usize, max_length: usize) -> Error {
    anyhow!(
        "task `{task}`: the prompt takes {found} tokens without its texts, but `max_length` is {max_length}"
    )
}

/// The token of each word where it follows the prompt and a space.
fn answers(
    wording: &Wording,
    task: &str,
    tokenizer: &TextTokenizer,
    tokens: BareTokens<'_>,
) -> Result<Vec<u32>> {
    let prompt = wording.prompt("A", Some("B"), 1);
    let mut answers: Vec<u32> = Vec::with_capacity(wording.answers.len());
    for word in &wording.answers {
        // A space alone may be a token, but it is no word.
        let ids = match word.as_str() {
            "" => Vec::new(),
            word => tokens.following(&prompt, &format!(" {word}"))?,
        };
        let [id] = ids[..] else {
            let pieces =
                ids.iter().map(|&id| tokenizer.token(id)).collect::<Result<Vec<_>, _>>()?;
            let tokenizer = file(tokenizer);
            bail!(
                "task `{task}`: the answer `{word}` is {} tokens after the prompt ({}) in tokenizer \
                 `{tokenizer}`, expected one; choose other words with `wording.answers`",
                pieces.len(),
                quoted(&pieces)
            );
        };
        let piece = tokenizer.token(id)?;
        if is_special(tokenizer, id) {
            let tokenizer = file(tokenizer);
            bail!(
                "task `{task}`: the answer `{word}` becomes the special token `{piece}` (id {id}) of tokenizer \
                 `{tokenizer}`; choose other words with `wording.answers`"
            );
        }
        if let Some(at) = answers.iter().position(|&other| other == id) {
            let first = &wording.answers[at];
            bail!(
                "task `{task}`: the answers `{first}` and `{word}` are both the token `{piece}` (id {id}); \
                 choose other words with `wording.answers`"
            );
        }
        answers.push(id);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

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
        for task in Task::glue() {
            let (goal, pairs) = (task.goal(), task.is_pair());
            let wording = Wording::resolve(&given(None, &[]), &goal, Some(task), pairs).unwrap();
            assert_eq!(wording.is_scored(), task == Task::Stsb, "{task}");
            assert!(!wording.prompt("a", Some("b"), 9).contains('{'), "{task}");
        }
        let sst2 = Task::Sst2.goal();
        let wording = Wording::resolve(&given(None, &[]), &sst2, Some(Task::Sst2), false);
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
        for (template, pairs, expected) in [
            ("Label:", false, "`Label:`: it has `{text}` 0 times, expected 1 for single texts"),
            ("{text}{text}:", false, "it has `{text}` 2 times"),
            ("{text}:", true, "it has `{pair}` 0 times, expected 1 for pairs of texts"),
            ("{text}{pair}:", false, "it has `{pair}` 1 times, expected 0"),
            ("{text}{label}:", false, "unknown place `{label}`; there are `{text}` and `{pair}`"),
            ("{text}:\n", false, "`{text}:\\n`: it ends in white space"),
        ] {
            let error = message(Some(template), &[], pairs);
            assert!(error.starts_with(start) && error.contains(expected), "{error}");
        }
        assert_eq!(
            message(None, &["a"], false),
            "task `tone`: 1 words in `wording.answers`, expected 2: one each for `no`, `yes`"
        );
    }

    /// 512 pieces with byte fallback; `<s>` before every text.
    fn stories() -> TextTokenizer {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/stories260K");
        TextTokenizer::from_dir(&folder).unwrap()
    }

    fn wording(template: &str, answers: &[&str]) -> Wording {
        let answers = answers.iter().map(ToString::to_string).collect();
        Wording { template: template.to_owned(), answers }
    }

    #[test]
    fn prompts_and_answers_have_the_ids_of_the_tokenizers_library() {
        let tokenizer = stories();
        let wording = wording("Text: {text}\nLabel:", &["happy", "big", "it"]);
        let texts = WordedTexts::new(&wording, "tone", &tokenizer, 32).unwrap();
        // By tokenizers 0.23.3.
        assert_eq!(texts.answers, [393, 370, 312]);
        let (ids, cut) = texts.encode(" the cat\n", None).unwrap();
        let expected =
            [1, 274, 411, 444, 413, 467, 265, 280, 294, 13, 438, 412, 430, 411, 421, 467];
        assert_eq!((ids.as_slice(), cut), (&expected[..], Cut::Nothing));
        // Filled up by a token that the mask hides; this vocabulary has no padding token.
        assert_eq!(texts.pad_id, 1);
    }

    #[test]
    fn only_texts_are_cut_and_the_longer_one_first() {
        let tokenizer = stories();
        let wording = wording("One: {text}\nTwo: {pair}\nSame:", &["it", "big"]);
        let long = "she saw a big red ball and ".repeat(9);
        let bare = |text: &str| tokenizer.encode(text, None, None).unwrap().ids;
        let frame = bare("One: \nTwo: \nSame:").len();
        let texts = WordedTexts::new(&wording, "tone", &tokenizer, frame + 12).unwrap();
        let (ids, cut) = texts.encode(&long, Some("it was")).unwrap();
        assert!(cut == Cut::Text && (frame + 8..=frame + 12).contains(&ids.len()), "{}", ids.len());
        let text = tokenizer.decode(&ids, true).unwrap();
        assert!(text.starts_with("One: she saw"), "{text}");
        assert!(text.ends_with("\nTwo: it was\nSame:"), "{text}");
        let (ids, cut) = texts.encode("it", Some("it was")).unwrap();
        assert_eq!((ids, cut), (bare("One: it\nTwo: it was\nSame:"), Cut::Nothing));
        let short = WordedTexts::new(&wording, "tone", &tokenizer, frame - 1).unwrap_err();
        let expected = format!(
            "task `tone`: the prompt takes {frame} tokens without its texts, but `max_length` is {}",
            frame - 1
        );
        assert_eq!(short.to_string(), expected);
    }

    #[test]
    fn words_that_are_no_single_tokens_of_their_own_are_named() {
        let tokenizer = stories();
        let message = |answers: &[&str]| {
            let wording = wording("{text}\nLabel:", answers);
            WordedTexts::new(&wording, "tone", &tokenizer, 32).unwrap_err().to_string()
        };
        let split = message(&["big", "negative"]);
        let expected = "task `tone`: the answer `negative` is 5 tokens after the prompt (`▁ne`, `g`, `at`, `i`, `ve`) in \
                      tokenizer `";
        assert!(split.starts_with(expected), "{split}");
        assert!(
            split.ends_with("expected one; choose other words with `wording.answers`"),
            "{split}"
        );
        let twice = message(&["big", "it", "big"]);
        assert!(
            twice.contains("the answers `big` and `big` are both the token `▁big` (id 370)"),
            "{twice}"
        );
        assert!(message(&["big", "</s>"]).contains("`</s>`"));
        assert!(message(&["big", ""]).contains("the answer `` is 0 tokens"));
    }
}
