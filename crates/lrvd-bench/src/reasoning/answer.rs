//! The token that stands for each label.
//!
//! A decoder answers with the logits of a few tokens at its last position. Each prompt set finds them in its own way,
//! and a vocabulary may thwart it: large ones have a token for every label, a small one spells `True` and
//! `False` in pieces that end alike. Whatever is found is checked before anything is trained.

use anyhow::{anyhow, bail};
use lrvd_models::tokenizer::TextTokenizer;

use super::{PromptSet, ReasoningSet};
use crate::data::bare::{BareTokens, file, is_special};
use crate::error::Result;

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

/// Refuses labels that take more than one token, as a run that is to be compared with published numbers must.
pub fn require_single(tokenizer: &TextTokenizer, answers: &[AnswerToken]) -> Result<()> {
    match answers.iter().find(|answer| answer.n_pieces != 1) {
        None => Ok(()),
        Some(AnswerToken { label, n_pieces, .. }) => Err(anyhow!(
            "wrong label token: `{label}` is {pieces} tokens in tokenizer `{tokenizer}`, wanted a single one",
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
        if let Some(&(_, wanted)) = listed.filter(|(_, wanted)| wanted != id) {
            let tokenizer = file(tokenizer);
            bail!(
                "wrong label token: `{label}` has id {id} in tokenizer `{tokenizer}`, wanted {wanted}"
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
    fn empty_and_unknown_labels_are_refused() {
        let error =
            find(&tokenizer("llama2_spm_bpe"), &["A", ""], PromptSet::Blob, "").unwrap_err();
        assert!(error.to_string().contains("has no distinct token"), "{error}");
        // This vocabulary has no byte fallback: what it lacks is unknown.
        let error = find(&tokenizer("deberta_v3_unigram"), &["A", "\u{4e2d}"], PromptSet::Blob, "");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("becomes the special token"), "{error}");
    }
}
