//! How texts become what a model of either kind reads.

use lrvd_models::tokenizer::TextTokenizer;

use super::Label;
use super::batch::TokenisedExample;
use super::wording::{WordedTexts, WordingError};

/// Encodes texts for a model.
#[derive(Debug)]
pub enum TextReader<'a> {
    /// For an encoder: `[CLS] a [SEP] b [SEP]`, cut longest first.
    Segments {
        /// The tokenizer.
        tokenizer: &'a TextTokenizer,
        /// Most tokens of an example.
        max_length: usize,
    },
    /// For a language model: a question in words.
    Worded(WordedTexts<'a>),
}

impl TextReader<'_> {
    /// One example, and whether its question had to be cut; the ends of segments are not counted.
    ///
    /// # Errors
    ///
    /// [`WordingError`] if a text cannot be encoded or a question does not fit.
    pub fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        label: Label,
    ) -> Result<(TokenisedExample, bool), WordingError> {
        match self {
            Self::Segments { tokenizer, max_length } => {
                let encoded = tokenizer.encode(text, pair, Some(*max_length))?;
                let (ids, type_ids) = (encoded.ids, encoded.type_ids);
                Ok((TokenisedExample { ids, type_ids, label }, false))
            }
            Self::Worded(texts) => {
                let (ids, cut) = texts.encode(text, pair)?;
                let type_ids = vec![0; ids.len()];
                Ok((TokenisedExample { ids, type_ids, label }, cut))
            }
        }
    }

    /// Tokens of one example before anything is cut from it, and whether something will be.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub(crate) fn measure(
        &self,
        text: &str,
        pair: Option<&str>,
    ) -> Result<(usize, bool), WordingError> {
        match self {
            Self::Segments { tokenizer, max_length } => {
                let whole = tokenizer.encode(text, pair, None)?.len();
                Ok((whole, whole > *max_length))
            }
            Self::Worded(texts) => {
                let whole = texts.whole(text, pair)?.len();
                Ok((whole, whole > texts.max_length()))
            }
        }
    }

    /// Id that fills a batch.
    pub fn pad_id(&self) -> u32 {
        match self {
            Self::Segments { tokenizer, .. } => tokenizer.special_tokens().pad.unwrap_or(0),
            Self::Worded(texts) => texts.pad_id,
        }
    }

    /// Tokens that stand for the classes; none for an encoder.
    pub fn answers(&self) -> &[u32] {
        match self {
            Self::Segments { .. } => &[],
            Self::Worded(texts) => &texts.answers,
        }
    }
}
