//! Token ids of prompts without what a tokenizer puts around every text, and the tokens that answer them.

use anyhow::{anyhow, bail, ensure};
use lrvd_models::tokenizer::TextTokenizer;

use crate::error::Result;
use crate::settings::PromptSet;
use crate::text::quoted;

/// Part of an input that is lost at the longest length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    Nothing,
    /// The end of a text within a worded prompt.
    Text,
    /// Cut from the right: the answer cue is gone, wholly or in part.
    Right,
    /// The passage or the question lost its end.
    Body,
    /// The passage or the question is gone, and the choices lost their ends.
    Choices,
}

/// Inputs that lost something at the longest length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutInputs {
    pub count: usize,
    /// Tokens of the longest of them.
    pub longest: usize,
}

impl CutInputs {
    pub fn add(&mut self, length: usize) {
        self.count += 1;
        self.longest = self.longest.max(length);
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BareTokens<'a> {
    tokenizer: &'a TextTokenizer,
    before: usize,
    after: usize,
}

impl<'a> BareTokens<'a> {
    /// Looks at the empty text to learn what is put around every text.
    pub(crate) fn new(tokenizer: &'a TextTokenizer) -> Result<Self> {
        let frame = tokenizer.encode("", None, None)?.get_ids().to_vec();
        let special = tokenizer.special_tokens();
        let begins = |id: &&u32| [special.bos, special.cls].contains(&Some(**id));
        let before = frame.iter().take_while(begins).count();
        let after = frame.len() - before;
        let probe = tokenizer.encode("A", None, None)?.get_ids().to_vec();
        let framed = probe.len() >= frame.len()
            && probe.starts_with(&frame[..before])
            && probe.ends_with(&frame[before..]);
        ensure!(
            framed,
            "tokenizer `{}` does not put the same special tokens around every text",
            file(tokenizer)
        );
        Ok(Self { tokenizer, before, after })
    }

    /// `true` if `id` starts, ends, parts or fills texts.
    pub(crate) fn is_special(&self, id: u32) -> bool {
        is_special(self.tokenizer, id) && self.tokenizer.special_tokens().unk != Some(id)
    }

    /// The text of token `id`.
    pub(crate) fn name(&self, id: u32) -> lrvd_models::Result<String> {
        self.tokenizer.token(id)
    }

    pub(crate) fn ids(&self, text: &str) -> lrvd_models::Result<Vec<u32>> {
        let mut ids = self.opened(text)?;
        ids.drain(..self.before.min(ids.len()));
        Ok(ids)
    }

    /// The tokens of `text` behind those that begin every text, with nothing after them.
    pub(crate) fn opened(&self, text: &str) -> lrvd_models::Result<Vec<u32>> {
        let mut ids = self.tokenizer.encode(text, None, None)?.get_ids().to_vec();
        ids.truncate(ids.len().saturating_sub(self.after));
        Ok(ids)
    }

    /// The tokens by which `text` followed by more is longer than `text`, by what follows.
    pub(crate) fn following(
        &self,
        text: &str,
    ) -> lrvd_models::Result<impl Fn(&str) -> lrvd_models::Result<Vec<u32>>> {
        let before = self.ids(text)?;
        Ok(move |more: &str| {
            let mut ids = self.ids(&format!("{text}{more}"))?;
            let shared = before.iter().zip(&ids).take_while(|(a, b)| a == b).count();
            ids.drain(..shared);
            Ok(ids)
        })
    }
}

fn file(tokenizer: &TextTokenizer) -> String {
    tokenizer.file().display().to_string()
}

fn is_special(tokenizer: &TextTokenizer, id: u32) -> bool {
    let special = tokenizer.special_tokens();
    let all = [special.bos, special.eos, special.cls, special.sep, special.pad, special.unk];
    all.contains(&Some(id)) || special.mask == Some(id)
}

/// Characters of a text for each token of a limit, from which on it is looked at in parts.
const WIDE: usize = 8;
/// Tokens beyond a limit from which on no longer text fits it: an end that is cut off changes fewer.
const BEYOND: usize = 512;

/// As many characters of a text of `length` as tell whether it fits `limit` tokens, and their encoding: all of them, or fewer
/// whose encoding is far beyond the limit. So the work for a long text is that for the part that can be read.
pub(super) fn reached<E>(
    length: usize,
    limit: usize,
    encode: impl Fn(usize) -> Result<Vec<u32>, E>,
) -> Result<(usize, Vec<u32>), E> {
    let mut characters = limit.saturating_mul(WIDE).max(BEYOND);
    loop {
        let ids = encode(characters.min(length))?;
        if characters >= length || ids.len() > limit.saturating_add(BEYOND) {
            return Ok((characters.min(length), ids));
        }
        characters = characters.saturating_mul(4);
    }
}

/// The encoding with the most characters (below `length`) that has at most `limit` tokens; `None` if none fits.
///
/// By bisection: token numbers do not always grow with the text, so it may stop a few characters short, but what it
/// returns fits.
pub(super) fn longest<E>(
    length: usize,
    limit: usize,
    encode: impl Fn(usize) -> Result<Vec<u32>, E>,
) -> Result<Option<Vec<u32>>, E> {
    let mut best = encode(0)?;
    if best.len() > limit {
        return Ok(None);
    }
    let mut fits = 0;
    let mut too_long = length.max(1);
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        let ids = encode(middle)?;
        if ids.len() <= limit {
            (fits, best) = (middle, ids);
        } else {
            too_long = middle;
        }
    }
    Ok(Some(best))
}

/// A decoder answers with the logits of a few tokens at its last position. Each prompt set finds them in its own way,
/// and a vocabulary may thwart it: large ones have a token for every label, a small one spells `True` and
/// `False` in pieces that end alike. Whatever is found is checked before anything is trained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerToken {
    pub label: String,
    pub id: u32,
    pub piece: String,
    /// All tokens that the label takes; the others are not looked at.
    pub pieces: Vec<String>,
}

/// Finds the tokens of labels, in class order.
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
    labels: &[impl AsRef<str>],
    prompt: PromptSet,
    cue: &str,
) -> Result<Vec<AnswerToken>> {
    let bare = BareTokens::new(tokenizer)?;
    let following = bare.following(cue)?;
    let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
    let pieces = labels
        .iter()
        .map(|label| match prompt {
            // A space alone may be a token, but it is no word.
            _ if label.is_empty() => Ok(Vec::new()),
            PromptSet::Blob | PromptSet::Laplace => bare.ids(label),
            PromptSet::Clean => following(&format!(" {label}")),
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
        let pieces = own.iter().map(|&id| tokenizer.token(id)).collect::<Result<_, _>>()?;
        answers.push(AnswerToken { label: (*label).into(), id, piece, pieces });
    }
    check_distinct(tokenizer, &answers, &pieces, prompt)?;
    Ok(answers)
}

/// Rejects labels that take more than one token, as a run that is to be compared with published numbers must.
pub fn require_single(tokenizer: &TextTokenizer, answers: &[AnswerToken]) -> Result<()> {
    match answers.iter().find(|answer| answer.pieces.len() != 1) {
        None => Ok(()),
        Some(AnswerToken { label, pieces, .. }) => Err(anyhow!(
            "wrong label token: `{label}` is {n} tokens ({pieces}) in tokenizer `{tokenizer}`, expected a single one",
            n = pieces.len(),
            pieces = quoted(pieces),
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
                "wrong label token: labels `{first}` and `{second}` are both `{piece}` (id {id}) in tokenizer `{tokenizer}`",
                first = answer.label,
                second = answers[other].label,
                piece = answer.piece,
                id = answer.id,
                tokenizer = file(tokenizer)
            );
        }
    }
    Ok(())
}
