//! The tokenizer: text in, ids out, and back.

use std::path::{Path, PathBuf};

use tokenizers::processors::PostProcessorWrapper;
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, truncate_encodings};
use tokenizers::{PaddingDirection, PostProcessor, Tokenizer};

use super::error::TokenizerError;
use super::growth::Growth;
use super::options::{
    EncodeOptions, Encoding, PaddingSide, PaddingSpec, Truncation, TruncationSide,
    TruncationStrategy,
};
use super::settings::{ROLES, Settings, SpecialTokens};
use super::template::stated;
use super::{json, sentencepiece};

/// Vocabularies that a folder may hold, best first.
const FILES: &[&str] = &["tokenizer.json", "spm.model", "tokenizer.model"];

/// Turns text into token ids as the checkpoint's own tokenizer does.
///
/// Nothing about a call is kept: truncation and padding are arguments, so one tokenizer serves many threads.
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
/// assert_eq!(pair.ids.len(), pair.type_ids.len());
/// # Ok::<(), lrvd_models::tokenizer::TokenizerError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    /// Without post-processor, truncation and padding: those are applied here, per call.
    engine: Tokenizer,
    template: Option<PostProcessorWrapper>,
    file: PathBuf,
    special: SpecialTokens,
    padding_side: PaddingSide,
    truncation_side: TruncationSide,
    model_max_length: Option<usize>,
    largest_id: u32,
    growth: Growth,
}

impl TextTokenizer {
    /// Reads a model folder: `tokenizer.json` if present, else `spm.model` or `tokenizer.model`, and the settings
    /// beside it.
    ///
    /// # Errors
    ///
    /// [`TokenizerError`] if there is neither, or a file is malformed, contradicts another, or asks for something that
    /// is not supported.
    pub fn from_dir(folder: &Path) -> Result<Self, TokenizerError> {
        let file = FILES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
        let file = file
            .ok_or_else(|| TokenizerError::NoTokenizer { folder: folder.into(), wanted: FILES })?;
        Self::load(&file, &Settings::read(folder)?)
    }

    /// Reads one vocabulary file and nothing beside it: SentencePiece unless its name ends in `.json`.
    ///
    /// # Errors
    ///
    /// As [`TextTokenizer::from_dir`].
    pub fn from_file(file: &Path) -> Result<Self, TokenizerError> {
        Self::load(file, &Settings::default())
    }

    /// From the texts of a `tokenizer.json` and of the `tokenizer_config.json` beside it, for tokenizers that come in
    /// another file; `file` is only named in errors.
    ///
    /// # Errors
    ///
    /// As [`TextTokenizer::from_dir`].
    pub fn from_texts(
        tokenizer: &[u8],
        settings: &[u8],
        file: &Path,
    ) -> Result<Self, TokenizerError> {
        Self::build(json::parse(tokenizer, file)?, file, &Settings::parse(settings, file)?)
    }

    fn load(file: &Path, settings: &Settings) -> Result<Self, TokenizerError> {
        let is_json = file.extension().is_some_and(|extension| extension == "json");
        let engine = if is_json { json::load(file)? } else { sentencepiece::load(file, settings)? };
        Self::build(engine, file, settings)
    }

    fn build(
        mut engine: Tokenizer,
        file: &Path,
        settings: &Settings,
    ) -> Result<Self, TokenizerError> {
        let json = |error| TokenizerError::Json { file: file.into(), source: error };
        let normalizer = serde_json::to_value(engine.get_normalizer()).map_err(json)?;
        let pre_tokenizer = serde_json::to_value(engine.get_pre_tokenizer()).map_err(json)?;
        let growth = Growth::of(file, &normalizer, &pre_tokenizer)?;
        let library = TokenizerError::library("clear the file's own truncation", file);
        engine.with_truncation(None).map_err(library)?;
        let stored = engine.get_padding().cloned();
        engine.with_padding(None);
        let template = engine.get_post_processor().cloned();
        engine.with_post_processor(None::<PostProcessorWrapper>);
        let mut special = special_tokens(&engine, settings)?;
        let mut padding_side = settings.padding_side;
        if let Some(stored) = stored {
            special.pad = special.pad.or_else(|| engine.token_to_id(&stored.pad_token));
            padding_side = padding_side.or(Some(match stored.direction {
                PaddingDirection::Left => PaddingSide::Left,
                PaddingDirection::Right => PaddingSide::Right,
            }));
        }
        let template = stated(template, &engine, settings, special, file)?;
        let largest_id = engine.get_vocab(true).into_values().max().unwrap_or(0);
        Ok(Self {
            template,
            file: file.into(),
            special,
            padding_side: padding_side.unwrap_or_default(),
            truncation_side: settings.truncation_side.unwrap_or_default(),
            model_max_length: settings.model_max_length,
            largest_id,
            growth,
            engine,
        })
    }

    /// Pads with this id instead; decoders without a padding token borrow another one.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownId`] if it stands for no token.
    pub fn with_pad_id(mut self, id: u32) -> Result<Self, TokenizerError> {
        self.token(id)?;
        self.special.pad = Some(id);
        Ok(self)
    }

    /// Pads on this side instead.
    #[must_use]
    pub fn with_padding_side(mut self, side: PaddingSide) -> Self {
        self.padding_side = side;
        self
    }

    /// Cuts from this side instead.
    #[must_use]
    pub fn with_truncation_side(mut self, side: TruncationSide) -> Self {
        self.truncation_side = side;
        self
    }

    /// Encodes a text, or a pair, with special tokens and no padding, cut to `max_length` tokens longest first.
    ///
    /// `Some("")` as the second text is a pair whose second part is empty.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::MaxLength`] if the limit does not even hold the special tokens.
    pub fn encode(
        &self,
        text: &str,
        pair: Option<&str>,
        max_length: Option<usize>,
    ) -> Result<Encoding, TokenizerError> {
        let truncation = max_length.map(Truncation::longest_first);
        self.encode_with(text, pair, &EncodeOptions { truncation, padding: None })
    }

    /// Encodes a text, or a pair, with special tokens. [`PaddingSpec::Longest`] pads nothing: there is one encoding.
    ///
    /// # Errors
    ///
    /// [`TokenizerError`] if the limit is too small, the texts cannot be cut as asked, or padding has no token.
    pub fn encode_with(
        &self,
        text: &str,
        pair: Option<&str>,
        options: &EncodeOptions,
    ) -> Result<Encoding, TokenizerError> {
        let encodings = self.encode_batch(&[(text, pair)], options)?;
        Ok(encodings.into_iter().next().unwrap_or_default())
    }

    /// Encodes many texts or pairs and pads them to one length if asked to.
    ///
    /// # Errors
    ///
    /// As [`TextTokenizer::encode_with`].
    pub fn encode_batch(
        &self,
        inputs: &[(&str, Option<&str>)],
        options: &EncodeOptions,
    ) -> Result<Vec<Encoding>, TokenizerError> {
        let mut encodings = inputs
            .iter()
            .map(|(text, pair)| self.encode_one(text, *pair, options.truncation))
            .collect::<Result<Vec<_>, _>>()?;
        let length = match options.padding {
            None => return Ok(encodings),
            Some(PaddingSpec::To(length)) => length,
            Some(PaddingSpec::Longest) => encodings.iter().map(Encoding::len).max().unwrap_or(0),
        };
        for encoding in &mut encodings {
            self.pad(encoding, length)?;
        }
        Ok(encodings)
    }

    fn encode_one(
        &self,
        text: &str,
        pair: Option<&str>,
        truncation: Option<Truncation>,
    ) -> Result<Encoding, TokenizerError> {
        let library = TokenizerError::library("encode a text", &self.file);
        // The template is not part of the engine, so this is the bare text.
        let bare = |text| {
            self.growth.check(&self.file, text)?;
            self.engine.encode_char_offsets(text, false).map_err(library)
        };
        let mut first = bare(text)?;
        let mut second = pair.map(bare).transpose()?;
        if let Some(truncation) = truncation {
            (first, second) = self.truncate(first, second, truncation)?;
        }
        let whole = match &self.template {
            Some(template) => template.process(first, second, true).map_err(library)?,
            None => tokenizers::Encoding::merge(std::iter::once(first).chain(second), false),
        };
        Ok(Encoding {
            ids: whole.get_ids().to_vec(),
            type_ids: whole.get_type_ids().to_vec(),
            attention_mask: whole.get_attention_mask().to_vec(),
            tokens: whole.get_tokens().to_vec(),
            offsets: whole.get_offsets().to_vec(),
        })
    }

    fn truncate(
        &self,
        first: tokenizers::Encoding,
        second: Option<tokenizers::Encoding>,
        truncation: Truncation,
    ) -> Result<(tokenizers::Encoding, Option<tokenizers::Encoding>), TokenizerError> {
        let Truncation { max_length, strategy } = truncation;
        let added =
            self.template.as_ref().map_or(0, |template| template.added_tokens(second.is_some()));
        let limit = max_length
            .checked_sub(added)
            .ok_or(TokenizerError::MaxLength { max_length, special: added })?;
        let n_second = second.as_ref().map(tokenizers::Encoding::len);
        let total = first.len() + n_second.unwrap_or(0);
        let remove = total.saturating_sub(limit);
        let (available, engine_strategy) = match strategy {
            TruncationStrategy::LongestFirst => {
                (usize::MAX, tokenizers::TruncationStrategy::LongestFirst)
            }
            TruncationStrategy::OnlyFirst => {
                (first.len(), tokenizers::TruncationStrategy::OnlyFirst)
            }
            TruncationStrategy::OnlySecond => {
                (n_second.unwrap_or(0), tokenizers::TruncationStrategy::OnlySecond)
            }
        };
        if remove > 0 && remove >= available {
            let strategy = strategy.as_str();
            return Err(TokenizerError::TooShort { strategy, remove, available });
        }
        let params = TruncationParams {
            direction: match self.truncation_side {
                TruncationSide::Left => TruncationDirection::Left,
                TruncationSide::Right => TruncationDirection::Right,
            },
            max_length: limit,
            strategy: engine_strategy,
            stride: 0,
        };
        truncate_encodings(first, second, &params)
            .map_err(TokenizerError::library("truncate a text", &self.file))
    }

    fn pad(&self, encoding: &mut Encoding, length: usize) -> Result<(), TokenizerError> {
        let missing = length.saturating_sub(encoding.len());
        if missing == 0 {
            return Ok(());
        }
        let id = self
            .special
            .pad
            .ok_or_else(|| TokenizerError::NoPadToken { file: self.file.clone() })?;
        let token = self.token(id)?;
        let at = match self.padding_side {
            PaddingSide::Left => 0,
            PaddingSide::Right => encoding.len(),
        };
        insert(&mut encoding.ids, at, id, missing);
        insert(&mut encoding.type_ids, at, 0, missing);
        insert(&mut encoding.attention_mask, at, 0, missing);
        insert(&mut encoding.tokens, at, token, missing);
        insert(&mut encoding.offsets, at, (0, 0), missing);
        Ok(())
    }

    /// Text of some ids, with or without the special tokens.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownId`] if an id stands for no token.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        for &id in ids {
            self.token(id)?;
        }
        self.engine
            .decode(ids, skip_special)
            .map_err(TokenizerError::library("decode ids", &self.file))
    }

    /// The token with this id, as the vocabulary writes it.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownId`] if there is none.
    pub fn token(&self, id: u32) -> Result<String, TokenizerError> {
        self.engine.id_to_token(id).ok_or_else(|| TokenizerError::UnknownId {
            file: self.file.clone(),
            id,
            largest_id: self.largest_id,
        })
    }

    /// Id of a token as the vocabulary writes it, if there is one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.engine.token_to_id(token)
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.engine.get_vocab_size(true)
    }

    /// Ids of the special tokens.
    pub fn special_tokens(&self) -> SpecialTokens {
        self.special
    }

    /// Side on which batches are padded.
    pub fn padding_side(&self) -> PaddingSide {
        self.padding_side
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
    ///
    /// # Errors
    ///
    /// [`TokenizerError::Vocabulary`] if the largest id is not below `model_vocab_size`.
    pub fn check_vocab(&self, model_vocab_size: usize) -> Result<(), TokenizerError> {
        if (self.largest_id as usize) < model_vocab_size {
            return Ok(());
        }
        Err(TokenizerError::Vocabulary {
            file: self.file.clone(),
            largest_id: self.largest_id,
            vocab_size: model_vocab_size,
        })
    }
}

/// Puts `count` copies of a value into a list.
fn insert<T: Clone>(list: &mut Vec<T>, at: usize, value: T, count: usize) {
    list.splice(at..at, std::iter::repeat_n(value, count));
}

/// Named tokens must exist; where no file names one, the usual names are tried.
fn special_tokens(
    engine: &Tokenizer,
    settings: &Settings,
) -> Result<SpecialTokens, TokenizerError> {
    let mut ids = [None; ROLES.len()];
    for (id, role) in ids.iter_mut().zip(&ROLES) {
        *id = match settings.names.get(role.key) {
            None => role.usual.iter().find_map(|name| engine.token_to_id(name)),
            Some((file, name)) => Some(engine.token_to_id(name).ok_or_else(|| {
                let (file, token) = (file.clone(), name.clone());
                TokenizerError::MissingToken { file, token, role: role.key }
            })?),
        };
    }
    Ok(SpecialTokens::from_list(ids))
}
