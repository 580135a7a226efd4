//! Checkpoints of llama2.c as Hugging Face folders.
//!
//! llama2.c (A. Karpathy, MIT licence) keeps a model in two files: seven integers and bare single-precision weights,
//! and a list of tokens with scores. [`convert`] turns the pair into `config.json`, `model.safetensors`,
//! `tokenizer.json` and `tokenizer_config.json`, which everything else here reads.
//!
//! ```text
//! header          dim, hidden, layers, heads, key heads, ±vocab, length    i32; a negative vocab has a head of its own
//! embeddings      [vocab, dim]
//! norms before attention [layers, dim]; q, k, v, o [layers, ·, ·]
//! norms before feed-forward [layers, dim]; gate, down, up [layers, ·, ·]
//! last norm [dim]; rotary cosines and sines [length, width/2] each, not used
//! head            [vocab, dim], only behind a negative vocab
//! ```
//!
//! llama2.c turns features `2i` and `2i + 1` of a head together, Hugging Face `i` and `i + width/2`: rows of the query
//! and key projections are reordered. The base of the rotary wavelengths (10000) and the epsilon of the norms (1e-5)
//! are constants of llama2.c's program and not in the file.

mod error;

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{HostTensor, write_atomic, write_safetensors};
use serde_json::json;

pub use self::error::Llama2cError;
use super::config::LlamaConfig;
use super::rotary_rows::rows_in_pairs;
use crate::tokenizer::{Piece, PieceKind, SpmModel, tokenizer_json};

/// The sizes at the start of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Width of the hidden states.
    pub dim: usize,
    /// Width between the feed-forward projections.
    pub hidden_dim: usize,
    /// Number of layers.
    pub n_layers: usize,
    /// Number of query heads.
    pub n_heads: usize,
    /// Number of key and value heads.
    pub n_kv_heads: usize,
    /// Number of tokens.
    pub vocab_size: usize,
    /// Longest input of the training, in tokens.
    pub seq_len: usize,
    /// The head is the word embedding.
    pub shared_classifier: bool,
}

/// A checkpoint of llama2.c, as Hugging Face names and orders it.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Its sizes.
    pub header: Header,
    /// Weights by name, in single precision.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// Bytes of an integer and of a float of the format.
const WORD: usize = 4;
/// Integers in the header.
const HEADER: usize = 7;
/// Larger sizes are those of a damaged file.
const LARGEST: i64 = 1 << 24;

impl Header {
    /// Reads the header of a checkpoint.
    ///
    /// # Errors
    ///
    /// [`Llama2cError`] if it is too short or its sizes make no model.
    pub fn parse(bytes: &[u8]) -> Result<Self, Llama2cError> {
        let words = bytes.as_chunks::<WORD>().0;
        if words.len() < HEADER {
            return Err(Llama2cError::Length { wanted: HEADER * WORD, found: bytes.len() });
        }
        let word = |i: usize| i64::from(i32::from_le_bytes(words[i]));
        let size = |i: usize, name| match word(i).abs() {
            value if value == word(i) && (1..=LARGEST).contains(&value) => Ok(value as usize),
            _ => Err(Llama2cError::Size { name, found: word(i), wanted: "1 to 2^24".to_owned() }),
        };
        let shared_classifier = word(5) > 0;
        let vocab_size = match word(5).abs() {
            value if (1..=LARGEST).contains(&value) => value as usize,
            _ => {
                let wanted = "1 to 2^24, or its negative".to_owned();
                return Err(Llama2cError::Size { name: "vocab_size", found: word(5), wanted });
            }
        };
        let header = Self {
            dim: size(0, "dim")?,
            hidden_dim: size(1, "hidden_dim")?,
            n_layers: size(2, "n_layers")?,
            n_heads: size(3, "n_heads")?,
            n_kv_heads: size(4, "n_kv_heads")?,
            vocab_size,
            seq_len: size(6, "seq_len")?,
            shared_classifier,
        };
        let divides = |name, found: usize, ok: bool, wanted: String| {
            if ok { Ok(()) } else { Err(Llama2cError::Size { name, found: found as i64, wanted }) }
        };
        let Self { dim, n_heads, n_kv_heads, .. } = header;
        let wanted = format!("an even number of features for each of {n_heads} heads");
        divides("dim", dim, dim.is_multiple_of(2 * n_heads), wanted)?;
        let wanted = format!("a divisor of `n_heads` = {n_heads}");
        divides("n_kv_heads", n_kv_heads, n_heads.is_multiple_of(n_kv_heads), wanted)?;
        Ok(header)
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.n_heads
    }

    /// The text of a `config.json` for this model.
    pub fn config_json(&self) -> String {
        let config = json!({
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": false,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "head_dim": self.head_dim(),
            "hidden_act": "silu",
            "hidden_size": self.dim,
            "intermediate_size": self.hidden_dim,
            "max_position_embeddings": self.seq_len,
            "mlp_bias": false,
            "model_type": "llama",
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_layers,
            "num_key_value_heads": self.n_kv_heads,
            "rms_norm_eps": 1e-5,
            "rope_scaling": null,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": self.shared_classifier,
            "torch_dtype": "float32",
            "vocab_size": self.vocab_size,
        });
        format!("{config:#}\n")
    }
}

impl Checkpoint {
    /// Reads a checkpoint from the bytes of its file.
    ///
    /// # Errors
    ///
    /// [`Llama2cError`] if the sizes make no model or the file does not have exactly the weights that they ask for.
    pub fn parse(bytes: &[u8]) -> Result<Self, Llama2cError> {
        let header = Header::parse(bytes)?;
        let mut reader =
            Reader { words: &bytes.as_chunks::<WORD>().0[HEADER..], tensors: BTreeMap::new() };
        let wanted = header.words().and_then(|n| n.checked_add(HEADER)?.checked_mul(WORD));
        if wanted != Some(bytes.len()) {
            let wanted = wanted.unwrap_or(usize::MAX);
            return Err(Llama2cError::Length { wanted, found: bytes.len() });
        }
        let Header { dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, .. } = header;
        let narrow = n_kv_heads * header.head_dim();
        reader.take("model.embed_tokens.weight", &[vocab_size, dim], None)?;
        let mut each = |name: &str, shape: &[usize], heads: Option<usize>| {
            (0..n_layers).try_for_each(|i| {
                reader.take(&format!("model.layers.{i}.{name}.weight"), shape, heads)
            })
        };
        each("input_layernorm", &[dim], None)?;
        each("self_attn.q_proj", &[dim, dim], Some(n_heads))?;
        each("self_attn.k_proj", &[narrow, dim], Some(n_kv_heads))?;
        each("self_attn.v_proj", &[narrow, dim], None)?;
        each("self_attn.o_proj", &[dim, dim], None)?;
        each("post_attention_layernorm", &[dim], None)?;
        each("mlp.gate_proj", &[hidden_dim, dim], None)?;
        each("mlp.down_proj", &[dim, hidden_dim], None)?;
        each("mlp.up_proj", &[hidden_dim, dim], None)?;
        reader.take("model.norm.weight", &[dim], None)?;
        reader.words = &reader.words[header.seq_len * header.head_dim()..];
        if !header.shared_classifier {
            reader.take("lm_head.weight", &[vocab_size, dim], None)?;
        }
        Ok(Self { header, tensors: reader.tensors })
    }
}

impl Header {
    /// Floats behind the header, if they can be counted.
    fn words(&self) -> Option<usize> {
        let product = |factors: &[usize]| {
            factors.iter().try_fold(1_usize, |product, &factor| product.checked_mul(factor))
        };
        let narrow = self.n_kv_heads * self.head_dim();
        let tables = if self.shared_classifier { 1 } else { 2 };
        let a_layer = [
            product(&[2, self.dim])?,
            product(&[2, self.dim, self.dim])?,
            product(&[2, narrow, self.dim])?,
            product(&[3, self.hidden_dim, self.dim])?,
        ];
        let a_layer = a_layer.iter().try_fold(0_usize, |sum, &n| sum.checked_add(n))?;
        product(&[tables, self.vocab_size, self.dim])?
            .checked_add(a_layer.checked_mul(self.n_layers)?)?
            .checked_add(self.dim)?
            .checked_add(product(&[self.seq_len, self.head_dim()])?)
    }
}

/// The weights that are left.
struct Reader<'a> {
    words: &'a [[u8; WORD]],
    tensors: BTreeMap<String, HostTensor>,
}

impl Reader<'_> {
    /// Takes the next tensor; `heads` reorders its rows for the rotation.
    fn take(
        &mut self,
        name: &str,
        shape: &[usize],
        heads: Option<usize>,
    ) -> Result<(), Llama2cError> {
        let (taken, rest) = self.words.split_at(shape.iter().product());
        self.words = rest;
        let values: Vec<f32> = taken.iter().map(|&word| f32::from_le_bytes(word)).collect();
        let tensor = HostTensor::from_f32(shape, &values)
            .and_then(|tensor| match heads.and_then(|heads| rows_in_pairs(shape[0], heads)) {
                Some(order) => tensor.select_rows(&order),
                None => Ok(tensor),
            })
            .map_err(|source| Llama2cError::Tensor { name: name.to_owned(), source })?;
        self.tensors.insert(name.to_owned(), tensor);
        Ok(())
    }
}

/// Token that starts a text.
const BOS: u32 = 1;
/// Token that ends a text.
const EOS: u32 = 2;

/// The SentencePiece model behind a token file of `vocab_size` tokens: byte-pair encoding with byte fallback.
///
/// The file has spaces where the vocabulary has U+2581, and lines around the two control tokens.
///
/// # Errors
///
/// [`Llama2cError`] if the file ends early or late, or a token is not text.
pub fn parse_tokens(bytes: &[u8], vocab_size: usize) -> Result<SpmModel, Llama2cError> {
    let short = |wanted: usize| Llama2cError::Length { wanted, found: bytes.len() };
    let word = |at: usize| -> Result<[u8; WORD], Llama2cError> {
        let word = bytes.get(at..at + WORD).and_then(|word| word.try_into().ok());
        word.ok_or_else(|| short(at + WORD))
    };
    // The first word is the length of the longest token.
    let mut at = WORD;
    let mut pieces = Vec::new();
    for id in 0..vocab_size {
        let score = f32::from_le_bytes(word(at)?);
        let length = i32::from_le_bytes(word(at + WORD)?);
        let start = at + 2 * WORD;
        let length =
            usize::try_from(length).map_err(|_| Llama2cError::TokenLength { id, found: length })?;
        at = start.checked_add(length).ok_or_else(|| short(usize::MAX))?;
        let text = bytes.get(start..at).ok_or_else(|| short(at))?;
        let text = std::str::from_utf8(text).map_err(|_| Llama2cError::Utf8 { id })?;
        pieces.push(piece(id as u32, text, score));
    }
    if at != bytes.len() {
        return Err(short(at));
    }
    SpmModel::byte_pairs(pieces).map_err(Llama2cError::Vocabulary)
}

fn piece(id: u32, text: &str, score: f32) -> Piece {
    let is_byte = text.len() == 6
        && text
            .strip_prefix("<0x")
            .and_then(|rest| rest.strip_suffix('>'))
            .is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let (text, kind) = match id {
        0 => ("<unk>".to_owned(), PieceKind::Unknown),
        BOS => ("<s>".to_owned(), PieceKind::Control),
        EOS => ("</s>".to_owned(), PieceKind::Control),
        _ if is_byte => (text.to_owned(), PieceKind::Byte),
        _ => (text.replace(' ', "\u{2581}"), PieceKind::Normal),
    };
    Piece { text, score, kind }
}

/// Writes the pair `checkpoint` (`*.bin`) and `tokens` (`tok*.bin`) as a Hugging Face folder `out`, which is made if
/// it is not there. The bytes depend on the pair alone.
///
/// # Errors
///
/// [`Llama2cError`] if a file cannot be read or written, or is not of its format.
pub fn convert(checkpoint: &Path, tokens: &Path, out: &Path) -> Result<LlamaConfig, Llama2cError> {
    let read = |file: &Path| {
        std::fs::read(file).map_err(|source| Llama2cError::Read { file: file.into(), source })
    };
    let named =
        |file: &Path, source| Llama2cError::File { file: file.into(), source: Box::new(source) };
    let model = Checkpoint::parse(&read(checkpoint)?).map_err(|e| named(checkpoint, e))?;
    let vocabulary =
        parse_tokens(&read(tokens)?, model.header.vocab_size).map_err(|e| named(tokens, e))?;
    let tokenizer = tokenizer_json(&vocabulary, tokens)?;
    let config_json = model.header.config_json();
    let config_file = out.join("config.json");
    let config = LlamaConfig::parse(config_json.as_bytes(), &config_file)?;
    let settings = json!({
        "add_bos_token": true,
        "add_eos_token": false,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": model.header.seq_len,
        "padding_side": "left",
        "tokenizer_class": "LlamaTokenizerFast",
        "unk_token": "<unk>",
    });
    std::fs::create_dir_all(out)
        .map_err(|source| Llama2cError::Write { file: out.into(), source })?;
    write_atomic(&config_file, config_json.as_bytes())?;
    write_atomic(out.join("tokenizer.json"), tokenizer.as_bytes())?;
    write_atomic(out.join("tokenizer_config.json"), format!("{settings:#}\n").as_bytes())?;
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    write_safetensors(out.join("model.safetensors"), &model.tensors, &metadata)?;
    Ok(config)
}

#[cfg(test)]
mod tests;
