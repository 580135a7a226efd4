//! Prompts as token ids of a limited length, and the token that stands for each label.

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;
use serde::{Deserialize, Serialize};

use super::prompt::Room;
use super::{ChoiceItem, PromptSet, ReasoningSet};
use crate::data::Label;
use crate::data::batch::{BareTokens, TokenisedExample, file, is_special, longest};
use crate::error::Result;

/// Which kind of model reads the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputForm {
    /// A decoder with a vocabulary head: `<s> prompt`, with `</s>` where the prompt set appends it. The answer is read
    /// off the last position, at the label tokens.
    Decoder,
    /// An encoder with a classifier: the prompt up to its cue as one segment, special tokens as the tokenizer puts
    /// them. The classes are the labels.
    Encoder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncodeConfig {
    pub prompt: PromptSet,
    pub form: InputForm,
    pub max_length: usize,
}

impl EncodeConfig {
    pub const fn decoder(prompt: PromptSet, max_length: usize) -> Self {
        Self { prompt, form: InputForm::Decoder, max_length }
    }

    pub const fn encoder(prompt: PromptSet, max_length: usize) -> Self {
        Self { prompt, form: InputForm::Encoder, max_length }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CutCounts {
    /// Cut from the right: the answer cue is gone, wholly or in part.
    pub right: usize,
    /// The passage or the question lost its end.
    pub body: usize,
    /// The passage or the question is gone, and the choices lost their ends.
    pub choices: usize,
}

impl CutCounts {
    pub const fn total(&self) -> usize {
        self.right + self.body + self.choices
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct EncodedItems {
    pub examples: Vec<TokenisedExample>,
    pub ids: Vec<String>,
    pub cut: CutCounts,
    /// Items that the prompt set does not use, or that have more choices than there are labels.
    pub left_out: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct PromptEncoder<'a> {
    tokenizer: &'a TextTokenizer,
    bare: BareTokens<'a>,
    pub(super) config: EncodeConfig,
}

impl<'a> PromptEncoder<'a> {
    /// Learns what the tokenizer puts around a text.
    pub fn new(tokenizer: &'a TextTokenizer, config: EncodeConfig) -> Result<Self> {
        let encoder = Self { tokenizer, bare: BareTokens::new(tokenizer)?, config };
        if config.form == InputForm::Decoder {
            encoder.begin()?;
        }
        Ok(encoder)
    }

    /// Encodes the items of `set`, for `n_classes` labels.
    pub fn encode(
        &self,
        set: ReasoningSet,
        items: &[ChoiceItem],
        n_classes: usize,
    ) -> Result<EncodedItems> {
        let mut encoded = EncodedItems {
            examples: Vec::with_capacity(items.len()),
            ids: Vec::with_capacity(items.len()),
            cut: CutCounts::default(),
            left_out: 0,
        };
        for item in items {
            if !self.config.prompt.uses(set, item) || item.choices.len() > n_classes {
                encoded.left_out += 1;
                continue;
            }
            let (ids, cut) = self.cut_ids(set, item)?;
            match cut {
                Cut::Nothing => {}
                Cut::Right => encoded.cut.right += 1,
                Cut::Body => encoded.cut.body += 1,
                Cut::Choices => encoded.cut.choices += 1,
            }
            let type_ids = vec![0; ids.len()];
            let label = Label::Class(item.answer);
            encoded.examples.push(TokenisedExample { ids, type_ids, choices: None, label });
            encoded.ids.push(item.id.clone());
        }
        Ok(encoded)
    }

    pub(super) fn ids(&self, set: ReasoningSet, item: &ChoiceItem) -> Result<(Vec<u32>, bool)> {
        let (ids, cut) = self.cut_ids(set, item)?;
        Ok((ids, cut != Cut::Nothing))
    }

    pub(super) fn unlimited(self) -> Self {
        Self { config: EncodeConfig { max_length: usize::MAX, ..self.config }, ..self }
    }

    fn cut_ids(&self, set: ReasoningSet, item: &ChoiceItem) -> Result<(Vec<u32>, Cut)> {
        match self.config.form {
            InputForm::Decoder => self.decoder_ids(set, item),
            InputForm::Encoder => self.encoder_ids(set, item),
        }
    }

    /// Id that fills a batch: of a decoder's the beginning-of-text token, of an encoder's its padding.
    pub(super) fn pad_id(&self) -> Result<u32> {
        match self.config.form {
            InputForm::Decoder => self.begin(),
            InputForm::Encoder => Ok(self.tokenizer.special_tokens().pad.unwrap_or(0)),
        }
    }

    fn begin(&self) -> Result<u32> {
        let missing = || {
            anyhow!(
                "tokenizer `{}` has no beginning-of-text token, which prompts for a decoder need",
                file(self.tokenizer)
            )
        };
        self.tokenizer.special_tokens().bos.ok_or_else(missing)
    }

    /// `<s> prompt [</s>]`. The special tokens stay whatever is cut, as Hugging Face's truncation keeps them.
    fn decoder_ids(&self, set: ReasoningSet, item: &ChoiceItem) -> Result<(Vec<u32>, Cut)> {
        let EncodeConfig { prompt, max_length, .. } = self.config;
        let mut ids = vec![self.begin()?];
        let end = if prompt.appends_end(set) { Some(self.end()?) } else { None };
        let special = ids.len() + usize::from(end.is_some());
        if max_length <= special {
            let expected = format!("more than {special}, the number of special tokens");
            return Err(lrvd_models::Error::argument("max_length", expected, max_length).into());
        }
        let limit = max_length - special;
        let encode = |room| Ok(self.bare.ids(&prompt.text_within(set, item, room))?);
        let (text, cut) = if prompt == PromptSet::Clean {
            self.fitted(item, limit, special, encode)?
        } else {
            let mut text = encode(Room::ALL)?;
            let cut = if text.len() > limit { Cut::Right } else { Cut::Nothing };
            text.truncate(limit);
            (text, cut)
        };
        ids.extend(text);
        ids.extend(end);
        Ok((ids, cut))
    }

    /// The tokenizer's own encoding of the prompt up to its cue.
    fn encoder_ids(&self, set: ReasoningSet, item: &ChoiceItem) -> Result<(Vec<u32>, Cut)> {
        let EncodeConfig { prompt, max_length, .. } = self.config;
        let text = |room| prompt.text_before_cue(set, item, room);
        let encode = |room| Ok(self.tokenizer.encode(&text(room), None, None)?.ids);
        if prompt == PromptSet::Clean {
            return self.fitted(item, max_length, 0, encode);
        }
        let ids = encode(Room::ALL)?;
        if ids.len() <= max_length {
            return Ok((ids, Cut::Nothing));
        }
        let ids = self.tokenizer.encode(&text(Room::ALL), None, Some(max_length))?.ids;
        Ok((ids, Cut::Right))
    }

    fn end(&self) -> Result<u32> {
        let missing = || {
            anyhow!(
                "tokenizer `{}` has no end-of-text token, which prompts for a decoder need",
                file(self.tokenizer)
            )
        };
        self.tokenizer.special_tokens().eos.ok_or_else(missing)
    }

    /// The prompt with as much of its texts as fits `limit` tokens: all; else the longest beginning of the body; else
    /// no body and the longest beginning of every choice.
    fn fitted(
        &self,
        item: &ChoiceItem,
        limit: usize,
        special: usize,
        encode: impl Fn(Room) -> Result<Vec<u32>>,
    ) -> Result<(Vec<u32>, Cut)> {
        let whole = encode(Room::ALL)?;
        if whole.len() <= limit {
            return Ok((whole, Cut::Nothing));
        }
        let body = |body| encode(Room { body, ..Room::ALL });
        let length = item.passage.as_ref().unwrap_or(&item.question).chars().count();
        if let Some(ids) = longest(length, limit, body)? {
            return Ok((ids, Cut::Body));
        }
        let choices = |choice| encode(Room { body: 0, choice });
        let texts = item.choices.iter().map(|choice| &choice.text).chain([&item.question]);
        let length = texts.map(|text| text.chars().count()).max().unwrap_or_default();
        if let Some(ids) = longest(length, limit, choices)? {
            return Ok((ids, Cut::Choices));
        }
        let found = choices(0)?.len() + special;
        let max_length = self.config.max_length;
        Err(anyhow!(
            "item `{}`: the prompt takes {found} tokens without what may be cut, but the limit is {max_length}",
            item.id
        ))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Nothing,
    Right,
    Body,
    Choices,
}

/// A decoder answers with the logits of a few tokens at its last position. Each prompt set finds them in its own way,
/// and a vocabulary may thwart it: large ones have a token for every label, a small one spells `True` and
/// `False` in pieces that end alike. Whatever is found is checked before anything is trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerToken {
    pub label: String,
    pub id: u32,
    pub piece: String,
    /// Number of tokens that the whole label takes; the others are not looked at.
    pub n_pieces: usize,
}

/// Finds the tokens of all labels of a set, in class order.
///
/// | prompt set | token of a label |
/// |---|---|
/// | `blob` | the last one of the label encoded by itself |
/// | `laplace` | the first one of the label encoded by itself |
/// | `clean` | of the tokens that follow the cue in `{cue} {label}`, the first that no other label has |
///
/// With the vocabulary of Llama-2 every label is one token and the three agree. The last rule works with any
/// vocabulary that tells the labels apart at all, down to single bytes.
pub fn answer_tokens(
    tokenizer: &TextTokenizer,
    set: ReasoningSet,
    prompt: PromptSet,
) -> Result<Vec<AnswerToken>> {
    find(tokenizer, prompt.labels(set), prompt, prompt.cue(set))
}

/// Rejects labels that take more than one token, as a run that is to be compared with published numbers must.
pub fn require_single(tokenizer: &TextTokenizer, answers: &[AnswerToken]) -> Result<()> {
    match answers.iter().find(|answer| answer.n_pieces != 1) {
        None => Ok(()),
        Some(AnswerToken { label, n_pieces, .. }) => Err(anyhow!(
            "wrong label token: `{label}` is {pieces} tokens in tokenizer `{tokenizer}`, expected a single one",
            pieces = *n_pieces,
            tokenizer = file(tokenizer)
        )),
    }
}

/// Compares with ids that are known of the model, by label; labels that are not listed pass.
pub fn check_known(
    tokenizer: &TextTokenizer,
    answers: &[AnswerToken],
    known: &[(&str, u32)],
) -> Result<()> {
    for AnswerToken { label, id, .. } in answers {
        let listed = known.iter().find(|(name, _)| name == label);
        if let Some(&(_, expected)) = listed.filter(|(_, expected)| expected != id) {
            let tokenizer = file(tokenizer);
            bail!(
                "wrong label token: `{label}` has id {id} in tokenizer `{tokenizer}`, expected {expected}"
            );
        }
    }
    Ok(())
}

/// Label ids of the vocabulary of Llama-2.
pub const LLAMA_2_LABELS: [(&str, u32); 7] =
    [("A", 319), ("B", 350), ("C", 315), ("D", 360), ("E", 382), ("True", 5_852), ("False", 7_700)];

/// Labels for which a part of their tokens has to serve.
pub(super) fn split_labels(answers: &[AnswerToken]) -> Option<String> {
    let split = answers.iter().filter(|answer| answer.n_pieces > 1);
    let each: Vec<String> = split
        .map(|a| format!("`{}` by `{}` (one of its {} tokens)", a.label, a.piece, a.n_pieces))
        .collect();
    (!each.is_empty())
        .then(|| format!("labels are distinguished by parts of them: {}", each.join(", ")))
}

pub(super) fn find(
    tokenizer: &TextTokenizer,
    labels: &[&str],
    prompt: PromptSet,
    cue: &str,
) -> Result<Vec<AnswerToken>> {
    let bare = BareTokens::new(tokenizer)?;
    let pieces = labels
        .iter()
        .map(|label| match prompt {
            PromptSet::Blob | PromptSet::Laplace => bare.ids(label),
            PromptSet::Clean => bare.following(cue, &format!(" {label}")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut answers: Vec<AnswerToken> = Vec::with_capacity(labels.len());
    for (class, label) in labels.iter().enumerate() {
        let own = &pieces[class];
        let found = match prompt {
            PromptSet::Blob => own.last(),
            PromptSet::Laplace => own.first(),
            PromptSet::Clean => {
                let elsewhere = |id: &u32| {
                    pieces.iter().enumerate().any(|(other, ids)| other != class && ids.contains(id))
                };
                // Without a distinct one, the first will collide and be named below.
                own.iter().find(|id| !elsewhere(id)).or(own.first())
            }
        };
        let without = || {
            anyhow!(
                "wrong label token: `{label}` has no distinct token in tokenizer `{}`",
                file(tokenizer)
            )
        };
        let id = *found.ok_or_else(without)?;
        let piece = tokenizer.token(id)?;
        if is_special(tokenizer, id) {
            let tokenizer = file(tokenizer);
            bail!(
                "wrong label token: `{label}` becomes the special token `{piece}` (id {id}) of tokenizer \
                 `{tokenizer}`"
            );
        }
        answers.push(AnswerToken { label: (*label).into(), id, piece, n_pieces: own.len() });
    }
    check_distinct(tokenizer, &answers, &pieces, prompt)?;
    Ok(answers)
}

/// No label has a token that stands for another one; for `clean`, nor one that occurs in it.
fn check_distinct(
    tokenizer: &TextTokenizer,
    answers: &[AnswerToken],
    pieces: &[Vec<u32>],
    prompt: PromptSet,
) -> Result<()> {
    for (class, answer) in answers.iter().enumerate() {
        let collides = |other: usize| {
            let within = prompt == PromptSet::Clean && pieces[other].contains(&answer.id);
            other != class && (answers[other].id == answer.id || within)
        };
        if let Some(other) = (0..answers.len()).find(|other| collides(*other)) {
            bail!(
                "wrong label token: labels `{first}` and `{second}` are both `{piece}` (id {id}) in tokenizer \
                 `{tokenizer}` under prompt set `{prompt}`; use another prompt set or tokenizer",
                first = answer.label,
                second = answers[other].label,
                piece = answer.piece,
                id = answer.id,
                tokenizer = file(tokenizer),
                prompt = prompt.name()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    fn tokenizer(name: &str) -> TextTokenizer {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/tokenizers");
        TextTokenizer::from_dir(&folder.join(name)).unwrap()
    }

    #[test]
    fn labels_that_are_the_same_are_named() {
        let llama = tokenizer("llama2_spm_bpe");
        for prompt in PromptSet::ALL {
            let error = find(&llama, &["A", "C", "A"], prompt, "Answer:").unwrap_err();
            assert!(error.to_string().contains("labels `A` and `A` are both"), "{error}");
        }
        // A label whose tokens all occur in another one cannot be told from it.
        let error = find(&llama, &["D", "DD"], PromptSet::Clean, "Answer:").unwrap_err();
        assert!(error.to_string().contains("labels `D` and `DD` are both"), "{error}");
    }

    #[test]
    fn empty_and_unknown_labels_are_rejected() {
        let error =
            find(&tokenizer("llama2_spm_bpe"), &["A", ""], PromptSet::Blob, "").unwrap_err();
        assert!(error.to_string().contains("has no distinct token"), "{error}");
        // This vocabulary has no byte fallback: what it lacks is unknown.
        let error = find(&tokenizer("deberta_v3_unigram"), &["A", "\u{4e2d}"], PromptSet::Blob, "");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("becomes the special token"), "{error}");
    }
}
