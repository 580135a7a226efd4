//! The vocabulary files of BERT, MPNet and RoBERTa as an engine of the `tokenizers` library, as transformers makes it.
//!
//! Word pieces (`vocab.txt`, a token a line, whose number is its id):
//!
//! ```text
//! normaliser     control characters out, spaces around CJK characters, [lower case, accents off]
//! pre-tokenizer  cut at spaces and around punctuation
//! model          the longest piece first, `##` before a piece within a word
//! template       [CLS] a [SEP]   and   [CLS] a [SEP] b [SEP]   with type ids 0 and 1
//!                MPNet: <s> a </s>   and   <s> a </s></s> b </s>   with type ids 0
//! ```
//!
//! Text is lower-cased unless `do_lower_case` is false; `strip_accents` follows it unless it is set. A vocabulary is MPNet's
//! if it has all of MPNet's special tokens.
//!
//! Byte-level pairs (`vocab.json`, ids by token, and `merges.txt`, a pair a line, best first):
//!
//! ```text
//! pre-tokenizer  GPT-2's, every byte as a printable character
//! template       <s> a </s>   and   <s> a </s></s> b </s>   with type ids 0
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{VOCABULARY_LIMIT, read_limited, read_text_limited};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

use super::settings::{ROLES, Settings, missing_token, template_json};
use super::tokenizer_json::engine;
use crate::error::{Error, Result};

/// Name of BERT's vocabulary.
pub(super) const WORD_PIECES: &str = "vocab.txt";
/// Name of RoBERTa's, beside which its merges are.
pub(super) const BYTE_PAIRS: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// MPNet's special tokens, by role.
const MPNET: [(&str, &str); 7] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("cls_token", "<s>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("unk_token", "[UNK]"),
    ("mask_token", "<mask>"),
];

type Vocabulary = BTreeMap<String, u32>;

/// Reads a `vocab.txt`; of MPNet's, `settings` get the special tokens that they do not name.
pub(super) fn word_pieces(file: &Path, settings: &mut Settings) -> Result<Tokenizer> {
    let text = read_text_limited(file, VOCABULARY_LIMIT).map_err(Error::read(file))?;
    let mut vocabulary = Vocabulary::new();
    for (id, token) in text.lines().enumerate() {
        if let Some(before) = vocabulary.insert(token.to_owned(), id as u32) {
            let key = format!("line {}", id + 1);
            let first = before + 1;
            let expected = format!("a token that is not in line {first}");
            return Err(Error::format(file, key, expected, format!("`{token}`")));
        }
    }
    let is_mpnet = MPNET.iter().all(|(_, token)| vocabulary.contains_key(*token));
    for (role, token) in MPNET.into_iter().filter(|_| is_mpnet) {
        settings.names.entry(role).or_insert_with(|| (file.into(), token.to_owned()));
    }
    let roles = Roles { file, settings, vocabulary: &vocabulary, usual: 0 };
    let cls = roles.needed("cls_token")?;
    let sep = roles.needed("sep_token")?;
    let template = if is_mpnet {
        pair_template(&cls, &sep, false)
    } else {
        template_json(Some(&cls), Some(&sep), false)
    };
    let lowercase = settings.do_lower_case.unwrap_or(true);
    let parts = json!({
        "added_tokens": roles.added(),
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": lowercase,
            "handle_chinese_chars": settings.tokenize_chinese_chars.unwrap_or(true),
            "strip_accents": settings.strip_accents,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": roles.needed("unk_token")?.0,
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary,
        },
    });
    engine(&parts, parts.to_string().as_bytes(), file)
}

/// Reads a `vocab.json` and the `merges.txt` beside it.
pub(super) fn byte_pairs(file: &Path, settings: &Settings) -> Result<Tokenizer> {
    let bytes = read_limited(file, VOCABULARY_LIMIT).map_err(Error::read(file))?;
    let vocabulary: Vocabulary = serde_json::from_slice(&bytes).map_err(Error::json(file))?;
    let beside = file.with_file_name(MERGES);
    let text = read_text_limited(&beside, VOCABULARY_LIMIT).map_err(Error::read(&beside))?;
    let mut merges = Vec::new();
    for (line, pair) in text.lines().enumerate() {
        if pair.is_empty() || line == 0 && pair.starts_with("#version") {
            continue;
        }
        if pair.split(' ').filter(|part| !part.is_empty()).count() != 2 {
            let key = format!("line {}", line + 1);
            let found = format!("`{pair}`");
            return Err(Error::format(&beside, key, "two tokens with a space between them", found));
        }
        merges.push(pair);
    }
    let roles = Roles { file, settings, vocabulary: &vocabulary, usual: 1 };
    let cls = roles.needed("bos_token")?;
    let sep = roles.needed("eos_token")?;
    let space = settings.add_prefix_space.unwrap_or(false);
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true,
    });
    let parts = json!({
        "added_tokens": roles.added(),
        "pre_tokenizer": bytes,
        "post_processor": pair_template(&cls, &sep, space),
        "decoder": bytes,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    engine(&parts, parts.to_string().as_bytes(), file)
}

/// Template of RoBERTa and MPNet, with two separators between a pair.
fn pair_template(cls: &(String, u32), sep: &(String, u32), add_prefix_space: bool) -> Value {
    json!({
        "type": "RobertaProcessing", "sep": sep, "cls": cls,
        "trim_offsets": true, "add_prefix_space": add_prefix_space,
    })
}

/// The tokens with a special part.
struct Roles<'a> {
    file: &'a Path,
    settings: &'a Settings,
    vocabulary: &'a Vocabulary,
    /// Index of the usual name of a role: BERT's or, where there is one, RoBERTa's.
    usual: usize,
}

impl Roles<'_> {
    /// A token that every text needs, and its id.
    fn needed(&self, key: &str) -> Result<(String, u32)> {
        let name = self.settings.name(key, self.usual).unwrap_or_default();
        let id = self.vocabulary.get(name).copied();
        let id = id.ok_or_else(|| missing_token(self.file, name, key))?;
        Ok((name.to_owned(), id))
    }

    /// Special tokens of the vocabulary, and those that the settings add, by id.
    fn added(&self) -> Vec<Value> {
        let mut added = BTreeMap::new();
        for role in &ROLES {
            let name = self.settings.name(role.key, self.usual);
            if let Some((name, &id)) = name.and_then(|name| self.vocabulary.get_key_value(name)) {
                let token = json!({
                    "id": id, "content": name, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true,
                });
                added.insert(id, token);
            }
        }
        for (&id, (_, token)) in &self.settings.added {
            let mut token = json!(token);
            token["id"] = id.into();
            added.insert(id, token);
        }
        added.into_values().collect()
    }
}
