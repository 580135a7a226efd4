//! The tokens of a text alone, without the special tokens that its tokenizer puts around it.

use lrvd_models::tokenizer::TextTokenizer;

use super::ReasoningError;

/// Encodes texts without special tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct BareTokens<'a> {
    tokenizer: &'a TextTokenizer,
    before: usize,
    after: usize,
}

impl<'a> BareTokens<'a> {
    /// Looks at the empty text to learn what is put around every text.
    pub(super) fn new(tokenizer: &'a TextTokenizer) -> Result<Self, ReasoningError> {
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
            return Err(ReasoningError::Template { tokenizer: file(tokenizer) });
        }
        Ok(Self { tokenizer, before, after })
    }

    /// The tokens of `text` alone.
    pub(super) fn ids(&self, text: &str) -> Result<Vec<u32>, ReasoningError> {
        let mut ids = self.tokenizer.encode(text, None, None)?.ids;
        ids.truncate(ids.len().saturating_sub(self.after));
        ids.drain(..self.before.min(ids.len()));
        Ok(ids)
    }
}

/// The vocabulary file, for messages.
pub(super) fn file(tokenizer: &TextTokenizer) -> String {
    tokenizer.file().display().to_string()
}
