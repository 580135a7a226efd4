//! The tokenizer: text in, ids out, and back.

use std::path::{Path, PathBuf};

use lrvd_burn::files::{VOCABULARY_LIMIT, first_file, read_limited};
use lrvd_core::error::quoted;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::utils::truncation::truncate_encodings;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection, TruncationParams};

use super::convert::convert;
use super::settings::{ROLES, Settings, Side, SpecialTokens, missing_token, with_bos_eos};
use super::spm::SpmModel;
use super::tokenizer_json;
use super::vocab;
use crate::error::{Error, Result};

/// Vocabularies that a folder may hold, best first.
const FILES: &[&str] =
    &["tokenizer.json", "spm.model", "tokenizer.model", vocab::WORD_PIECES, vocab::BYTE_PAIRS];

/// Turns text into token ids as the checkpoint's own tokenizer does.
///
/// Truncation is an argument, so one tokenizer serves many threads; padding is that of [`TokenBatch`](crate::TokenBatch).
///
/// # Numerics
///
/// From `tokenizer.json` every id is what the `tokenizers` library gives. From a SentencePiece model it is what Hugging
/// Face's conversion of that file gives; see the conversions' own notes for where SentencePiece itself differs
/// (characters outside a unigram vocabulary are unknown, never bytes).
///
/// # Examples
///
/// ```no_run
/// # use lrvd_models::tokenizer::TextTokenizer;
/// let tokenizer = TextTokenizer::from_dir("deberta-v3-base".as_ref())?;
/// let pair = tokenizer.encode("A man plays.", Some("A person plays."), Some(128))?;
/// assert_eq!(pair.get_ids().len(), pair.get_type_ids().len());
/// # Ok::<(), lrvd_models::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    /// Without post-processor, truncation and padding: those are applied here, per call.
    engine: Tokenizer,
    template: Option<PostProcessorWrapper>,
    file: PathBuf,
    special: SpecialTokens,
    truncation_side: TruncationDirection,
    model_max_length: Option<usize>,
    largest_id: u32,
    longest_text: usize,
}

impl TextTokenizer {
    /// Reads a model folder: `tokenizer.json` if present, else the first of `spm.model`, `tokenizer.model`, `vocab.txt` and
    /// `vocab.json`, and the settings beside it.
    pub fn from_dir(folder: &Path) -> Result<Self> {
        Self::find(folder)?.ok_or_else(|| {
            let reason = format!("has no vocabulary, expected one of the files {}", quoted(FILES));
            Error::tokenizer(folder, reason)
        })
    }

    /// [`from_dir`](Self::from_dir) of a folder that may have no vocabulary: `None` then.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let file = first_file(FILES.iter().map(|name| folder.join(name)))?;
        file.map(|file| Self::load(&file, Settings::read(folder)?)).transpose()
    }

    /// Reads one vocabulary file without settings: `vocab.txt` and `vocab.json` by their names, else a `tokenizer.json` if
    /// the name ends in `.json`, else SentencePiece.
    pub fn from_file(file: &Path) -> Result<Self> {
        Self::load(file, Settings::default())
    }

    /// From the texts of a `tokenizer.json` and of the `tokenizer_config.json` beside it, for tokenizers that come in
    /// another file; `file` is only named in errors.
    pub fn from_texts(tokenizer: &[u8], settings: &[u8], file: &Path) -> Result<Self> {
        let engine = tokenizer_json::parse(tokenizer, file)?;
        Self::build(engine, file, &Settings::parse(settings, file)?)
    }

    fn load(file: &Path, mut settings: Settings) -> Result<Self> {
        let read = || read_limited(file, VOCABULARY_LIMIT).map_err(Error::read(file));
        let engine = if file.ends_with(vocab::WORD_PIECES) {
            vocab::word_pieces(file, &mut settings)?
        } else if file.ends_with(vocab::BYTE_PAIRS) {
            vocab::byte_pairs(file, &settings)?
        } else if file.extension().is_some_and(|extension| extension == "json") {
            tokenizer_json::parse(&read()?, file)?
        } else {
            convert(&SpmModel::parse(&read()?, file)?, file, &settings)?
        };
        Self::build(engine, file, &settings)
    }

    fn build(mut engine: Tokenizer, file: &Path, settings: &Settings) -> Result<Self> {
        let library = Error::library("clear the file's own truncation", file);
        engine.with_truncation(None).map_err(library)?;
        let stored = engine.get_padding().cloned();
        engine.with_padding(None);
        let template = engine.get_post_processor().cloned();
        engine.with_post_processor(None::<PostProcessorWrapper>);
        let mut special = special_tokens(&engine, settings)?;
        if let Some(stored) = stored {
            special.pad = special.pad.or_else(|| engine.token_to_id(&stored.pad_token));
        }
        let template = with_bos_eos(template, &engine, settings, special, file)?;
        let largest_id = engine.get_vocab(true).into_values().max().unwrap_or(0);
        Ok(Self {
            template,
            file: file.into(),
            special,
            truncation_side: match settings.truncation_side {
                Some(Side::Left) => TruncationDirection::Left,
                Some(Side::Right) | None => TruncationDirection::Right,
            },
            model_max_length: settings.model_max_length,
            largest_id,
            longest_text: tokenizer_json::longest_text(&engine, file)?,
            engine,
        })
    }

    /// The text of a `tokenizer.json` of this tokenizer, without truncation and padding.
    pub fn to_json(&self) -> Result<String> {
        let mut engine = self.engine.clone();
        engine.with_post_processor(self.template.clone());
        engine.to_string(true).map_err(Error::library("write a tokenizer", &self.file))
    }

    /// Encodes a text, or a pair, with special tokens, cut to `max_length` tokens, special ones included,
    /// longest first on the side of the tokenizer's settings. Offsets count characters.
    ///
    /// `Some("")` as the second text is a pair whose second part is empty.
    pub fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        max_length: Option<usize>,
    ) -> Result<Encoding> {
        let library = Error::library("encode a text", &self.file);
        // The template is not part of the engine, so this is the bare text.
        let bare = |text: &str| {
            let bytes = text.len();
            let most = self.longest_text;
            if bytes > most {
                let reason = format!("reads at most {most} bytes, a text has {bytes}");
                return Err(Error::tokenizer(&self.file, reason));
            }
            self.engine.encode_char_offsets(text, false).map_err(library)
        };
        let mut first = bare(text)?;
        let mut second = pair.map(bare).transpose()?;
        if let Some(max_length) = max_length {
            let added = self.template.as_ref().map_or(0, |t| t.added_tokens(second.is_some()));
            let left = max_length.checked_sub(added).ok_or_else(|| {
                let expected = format!("at least {added}, the number of special tokens");
                Error::argument("max_length", expected, max_length)
            })?;
            let params = TruncationParams {
                direction: self.truncation_side,
                max_length: left,
                ..TruncationParams::default()
            };
            (first, second) = truncate_encodings(first, second, &params)
                .map_err(Error::library("truncate a text", &self.file))?;
        }
        match &self.template {
            Some(template) => template.process(first, second, true).map_err(library),
            None => Ok(Encoding::merge(std::iter::once(first).chain(second), false)),
        }
    }

    /// Bytes of the longest text that can be encoded: the steps of a tokenizer may make a text longer.
    pub fn longest_text(&self) -> usize {
        self.longest_text
    }

    /// At most `bytes` of a text: its beginning, or its end if the tokenizer's settings cut off the beginning.
    pub fn part<'t>(&self, text: &'t str, bytes: usize) -> &'t str {
        match self.truncation_side {
            TruncationDirection::Right => &text[..text.floor_char_boundary(bytes)],
            TruncationDirection::Left => {
                &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
            }
        }
    }

    /// Text of some ids, with or without the special tokens.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        for &id in ids {
            self.token(id)?;
        }
        self.engine.decode(ids, skip_special).map_err(Error::library("decode ids", &self.file))
    }

    /// The token with this id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Result<String> {
        self.engine.id_to_token(id).ok_or_else(|| {
            let reason = format!("has no token of id {id}, its largest id is {}", self.largest_id);
            Error::tokenizer(&self.file, reason)
        })
    }

    /// Id of a token as the vocabulary writes it, if there is one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.engine.token_to_id(token)
    }

    /// `true` if both write every token by the same id.
    pub fn has_ids_of(&self, other: &Self) -> bool {
        self.engine.get_vocab(true) == other.engine.get_vocab(true)
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.engine.get_vocab_size(true)
    }

    /// Ids of the special tokens.
    pub fn special_tokens(&self) -> SpecialTokens {
        self.special
    }

    /// Longest input that `tokenizer_config.json` states, in tokens. Not enforced: truncation is an argument.
    pub fn model_max_length(&self) -> Option<usize> {
        self.model_max_length
    }

    /// The vocabulary file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Checks that the model has an embedding for every id.
    pub fn check_vocab(&self, model_vocab_size: usize) -> Result<()> {
        if (self.largest_id as usize) < model_vocab_size {
            return Ok(());
        }
        let largest = self.largest_id;
        let reason =
            format!("has ids up to {largest}, but the model embeds only {model_vocab_size} ids");
        Err(Error::tokenizer(&self.file, reason))
    }
}

/// Named tokens must exist; where no file names one, the usual names are tried.
fn special_tokens(engine: &Tokenizer, settings: &Settings) -> Result<SpecialTokens> {
    let mut ids = [None; ROLES.len()];
    for (id, role) in ids.iter_mut().zip(&ROLES) {
        *id = match settings.names.get(role.key) {
            None => role.usual.iter().find_map(|name| engine.token_to_id(name)),
            Some((file, name)) => {
                let id = engine.token_to_id(name);
                Some(id.ok_or_else(|| missing_token(file, name, role.key))?)
            }
        };
    }
    let [bos, eos, cls, sep, pad, unk, mask] = ids;
    Ok(SpecialTokens { bos, eos, cls, sep, pad, unk, mask })
}
