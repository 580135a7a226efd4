//! The tokens of a text alone, without the special tokens that its tokenizer puts around it.

use anyhow::bail;
use lrvd_models::tokenizer::TextTokenizer;

use crate::error::Result;

#[derive(Debug, Clone, Copy)]
pub(crate) struct BareTokens<'a> {
    tokenizer: &'a TextTokenizer,
    before: usize,
    after: usize,
}

impl<'a> BareTokens<'a> {
    /// Looks at the empty text to learn what is put around every text.
    pub(crate) fn new(tokenizer: &'a TextTokenizer) -> Result<Self> {
        let frame = tokenizer.encode("", None, None)?.ids;
        let special = tokenizer.special_tokens();
        let begins = |id: &&u32| [special.bos, special.cls].contains(&Some(**id));
        let before = frame.iter().take_while(begins).count();
        let after = frame.len() - before;
        let probe = tokenizer.encode("A", None, None)?.ids;
        let framed = probe.len() >= frame.len()
            && probe.starts_with(&frame[..before])
            && probe.ends_with(&frame[before..]);
        if !framed {
            bail!(
                "tokenizer `{}` does not put the same special tokens around every text",
                file(tokenizer)
            );
        }
        Ok(Self { tokenizer, before, after })
    }

    pub(crate) fn ids(&self, text: &str) -> lrvd_models::Result<Vec<u32>> {
        let mut ids = self.opened(text)?;
        ids.drain(..self.before.min(ids.len()));
        Ok(ids)
    }

    /// The tokens of `text` behind those that begin every text, with nothing after them.
    pub(crate) fn opened(&self, text: &str) -> lrvd_models::Result<Vec<u32>> {
        let mut ids = self.tokenizer.encode(text, None, None)?.ids;
        ids.truncate(ids.len().saturating_sub(self.after));
        Ok(ids)
    }

    /// The tokens by which `text` followed by `more` is longer than `text`.
    pub(crate) fn following(&self, text: &str, more: &str) -> lrvd_models::Result<Vec<u32>> {
        let before = self.ids(text)?;
        let mut ids = self.ids(&format!("{text}{more}"))?;
        let shared = before.iter().zip(&ids).take_while(|(a, b)| a == b).count();
        ids.drain(..shared);
        Ok(ids)
    }
}

pub(crate) fn file(tokenizer: &TextTokenizer) -> String {
    tokenizer.file().display().to_string()
}

/// Whether `id` has a role in every text, the unknown token's included.
pub(crate) fn is_special(tokenizer: &TextTokenizer, id: u32) -> bool {
    let special = tokenizer.special_tokens();
    let all = [special.bos, special.eos, special.cls, special.sep, special.pad, special.unk];
    all.contains(&Some(id)) || special.mask == Some(id)
}

/// The encoding with the most characters (below `length`) that has at most `limit` tokens; `None` if none fits.
///
/// By bisection: token numbers do not always grow with the text, so it may stop a few characters short, but what it
/// returns fits.
pub(crate) fn longest<E>(
    length: usize,
    limit: usize,
    encode: impl Fn(usize) -> Result<Vec<u32>, E>,
) -> Result<Option<Vec<u32>>, E> {
    let mut best = encode(0)?;
    if best.len() > limit {
        return Ok(None);
    }
    let (mut fits, mut too_long) = (0, length.max(1));
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
