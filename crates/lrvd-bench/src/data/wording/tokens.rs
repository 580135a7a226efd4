//! Prompts as token ids of a limited length, and the tokens that answer them.

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;

use super::Wording;
use crate::data::bare::{BareTokens, file, is_special, longest};
use crate::error::{Error, Kind, Result};
use crate::text::quoted;

/// Turns texts into prompts of at most `max_length` tokens.
///
/// A prompt starts as the tokenizer starts every text and ends with the template's end; the answer is read at its
/// last token. What is too long loses the ends of its texts, the longer one first.
#[derive(Debug)]
pub struct WordedTexts<'a> {
    wording: &'a Wording,
    task: &'a str,
    tokens: BareTokens<'a>,
    max_length: usize,
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

    pub(crate) fn max_length(&self) -> usize {
        self.max_length
    }

    /// The prompt with nothing cut, however long.
    pub(crate) fn whole(&self, text: &str, pair: Option<&str>) -> Result<Vec<u32>> {
        Ok(self.tokens.opened(&self.wording.prompt(text, pair, usize::MAX))?)
    }

    pub fn encode(&self, text: &str, pair: Option<&str>) -> Result<(Vec<u32>, bool)> {
        let prompt = |room| self.tokens.opened(&self.wording.prompt(text, pair, room));
        let whole = self.whole(text, pair)?;
        if whole.len() <= self.max_length {
            return Ok((whole, false));
        }
        let characters = [text, pair.unwrap_or_default()].map(|text| text.trim().chars().count());
        let most = characters[0].max(characters[1]);
        match longest(most, self.max_length, prompt)? {
            Some(ids) => Ok((ids, true)),
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
                 `{tokenizer}`, wanted one; choose other words with `wording.answers`",
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
        let wanted = [1, 274, 411, 444, 413, 467, 265, 280, 294, 13, 438, 412, 430, 411, 421, 467];
        assert_eq!((ids.as_slice(), cut), (&wanted[..], false));
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
        assert!(cut && (frame + 8..=frame + 12).contains(&ids.len()), "{}", ids.len());
        let text = tokenizer.decode(&ids, true).unwrap();
        assert!(text.starts_with("One: she saw"), "{text}");
        assert!(text.ends_with("\nTwo: it was\nSame:"), "{text}");
        let (ids, cut) = texts.encode("it", Some("it was")).unwrap();
        assert_eq!((ids, cut), (bare("One: it\nTwo: it was\nSame:"), false));
        let short = WordedTexts::new(&wording, "tone", &tokenizer, frame - 1).unwrap_err();
        let wanted = format!(
            "task `tone`: the prompt takes {frame} tokens without its texts, but `max_length` is {}",
            frame - 1
        );
        assert_eq!(short.to_string(), wanted);
    }

    #[test]
    fn words_that_are_no_single_tokens_of_their_own_are_named() {
        let tokenizer = stories();
        let message = |answers: &[&str]| {
            let wording = wording("{text}\nLabel:", answers);
            WordedTexts::new(&wording, "tone", &tokenizer, 32).unwrap_err().to_string()
        };
        let split = message(&["big", "negative"]);
        let wanted = "task `tone`: the answer `negative` is 5 tokens after the prompt (`▁ne`, `g`, `at`, `i`, `ve`) in \
                      tokenizer `";
        assert!(split.starts_with(wanted), "{split}");
        assert!(
            split.ends_with("wanted one; choose other words with `wording.answers`"),
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
