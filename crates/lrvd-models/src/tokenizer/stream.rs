//! The text of ids that come one by one.

use super::text::TextTokenizer;
use crate::error::Result;

/// The character that decoders write for bytes that are not a whole character.
const INCOMPLETE: char = '\u{fffd}';
/// Most tokens that wait for the rest of a character. It has four bytes at most, so what is incomplete then stays so.
const MOST_WAITING: usize = 16;

/// Decoder of a text that grows by a token at a time.
///
/// The pieces that [`push`](Self::push) returns, joined, are the text without special tokens. A token that ends within a
/// character adds the characters before it; the token that completes the character adds the character. Bytes that never
/// become a character are U+FFFD once other text follows. A token costs the same at the end of a text as at its start: only
/// the tokens of the last piece and those after it are decoded.
///
/// # Examples
///
/// ```no_run
/// # use lrvd_models::tokenizer::{TextStream, TextTokenizer};
/// let tokenizer = TextTokenizer::from_dir("tinyllama".as_ref())?;
/// let prompt = tokenizer.encode("A cat:", None, None)?;
/// let mut stream = TextStream::after(&tokenizer, prompt.get_ids())?;
/// let piece = stream.push(&tokenizer, 294)?;
/// # Ok::<(), lrvd_models::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextStream {
    /// The tokens of the last piece, then those after it.
    ids: Vec<u32>,
    /// Number of the tokens of the last piece.
    done: usize,
    /// Text of `ids` that was returned before.
    known: String,
}

impl TextStream {
    /// Starts the text that continues `prompt`.
    ///
    /// A decoder may drop the space of a first token, so the end of the prompt is decoded before it: its last token, or as many
    /// as its last character has.
    pub fn after(tokenizer: &TextTokenizer, prompt: &[u32]) -> Result<Self> {
        let mut ids = Vec::new();
        let mut known = String::new();
        for &id in prompt.iter().rev().take(MOST_WAITING) {
            ids.insert(0, id);
            known = tokenizer.decode(&ids, true)?;
            if !known.starts_with(INCOMPLETE) {
                break;
            }
        }
        Ok(Self { done: ids.len(), ids, known })
    }

    /// Adds the token `id` and returns the text that it adds, which is empty while a character is incomplete.
    pub fn push(&mut self, tokenizer: &TextTokenizer, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = tokenizer.decode(&self.ids, true)?;
        let whole = text.trim_end_matches(INCOMPLETE);
        if whole.len() < text.len() && self.ids.len() - self.done <= MOST_WAITING {
            let piece = whole.strip_prefix(&*self.known).unwrap_or_default().to_owned();
            self.known.push_str(&piece);
            return Ok(piece);
        }
        let piece = match text.strip_prefix(&*self.known) {
            Some("") => {
                // A special token is not decoded. The space of a first token may come with the next one.
                if !tokenizer.decode(&[id], false)?.is_empty() {
                    self.ids.pop();
                }
                return Ok(String::new());
            }
            Some(piece) => piece.to_owned(),
            // Bytes without a meaning take it from those before them: they are decoded alone.
            None => tokenizer.decode(&self.ids[self.done..], true)?,
        };
        self.ids.drain(..self.done);
        self.done = self.ids.len();
        self.known = tokenizer.decode(&self.ids, true)?;
        Ok(piece)
    }
}
