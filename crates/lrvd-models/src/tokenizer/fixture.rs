//! Recorded ids of somebody else, against those of a tokenizer.
//!
//! A fixture folder holds `expected.json` and the tokenizer it was made with, as `tokenizer.json`, `spm.model`,
//! `tokenizer.model` or several; each file is checked on its own. Everything is encoded anew from the texts and
//! options; the recorded values are only compared with. Fields that are not known are refused, so that a passed folder
//! was checked in full.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::TokenizerError;
use super::options::{
    EncodeOptions, Encoding, PaddingSide, PaddingSpec, Truncation, TruncationStrategy,
};
use super::text::TextTokenizer;

/// One recorded value and what was found in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemCheck {
    /// Tokenizer file and item, as in `spm.model: pair`.
    pub name: String,
    /// The field compared, in the file's spelling.
    pub field: &'static str,
    /// Both are the same.
    pub equal: bool,
    /// The format asks for equality; offsets are the exception, they are compared but optional.
    pub required: bool,
    /// Recorded value, as JSON.
    pub wanted: String,
    /// Recomputed value, as JSON.
    pub found: String,
}

/// A fixture folder cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FixtureError {
    /// A file of the folder cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The folder is of another kind.
    #[error("`{file}` has kind `{found}`, wanted `tokenizer`")]
    Kind {
        /// The expectations.
        file: PathBuf,
        /// Their kind.
        found: String,
    },
    /// There is nothing to compare.
    #[error("`{file}` has no items and no batches")]
    Empty {
        /// The expectations.
        file: PathBuf,
    },
    /// An option has a value that is not known.
    #[error("item `{item}`: `{field}` is `{found}`, wanted {wanted}")]
    Option {
        /// Name of the item.
        item: String,
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// Known values.
        wanted: &'static str,
    },
    /// An item cannot be encoded or decoded.
    #[error("item `{item}` cannot be encoded")]
    Item {
        /// Name of the item.
        item: String,
        /// Why.
        source: TokenizerError,
    },
}

#[derive(Deserialize)]
struct Expected {
    vocab_size: Option<usize>,
    #[serde(default)]
    special_ids: BTreeMap<String, Option<u32>>,
    padding_side: Option<String>,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    batches: Vec<Batch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    text: String,
    #[serde(default)]
    pair: Option<String>,
    #[serde(default)]
    truncation: Value,
    #[serde(default)]
    padding: Value,
    #[serde(default)]
    max_length: Option<usize>,
    ids: Vec<u32>,
    type_ids: Option<Vec<u32>>,
    attention_mask: Option<Vec<u32>>,
    tokens: Option<Vec<String>>,
    offsets: Option<Vec<(usize, usize)>>,
    decoded_without_special: Option<String>,
    /// Ids where an empty second text counts as none.
    transformers_python_ids: Option<Vec<u32>>,
    #[serde(rename = "note")]
    _note: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    inputs: Vec<(String, Option<String>)>,
    #[serde(default)]
    truncation: Value,
    #[serde(default)]
    padding: Value,
    #[serde(default)]
    max_length: Option<usize>,
    padding_side: Option<String>,
    ids: Vec<Vec<u32>>,
    type_ids: Option<Vec<Vec<u32>>>,
    attention_mask: Option<Vec<Vec<u32>>>,
    #[serde(rename = "note")]
    _note: Option<Value>,
}

/// Encodes every item and batch of a fixture folder anew and compares.
///
/// # Errors
///
/// [`FixtureError`] if the folder is of another kind or empty, a file cannot be used, or an item holds a field or
/// option that is not known. A value that differs is no error: it is a check with `equal` false.
pub fn check_items(folder: &Path) -> Result<Vec<ItemCheck>, FixtureError> {
    let file = folder.join("expected.json");
    let bytes = std::fs::read(&file)
        .map_err(|source| TokenizerError::Read { file: file.clone(), source })?;
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|source| TokenizerError::Json { file: file.clone(), source })?;
    if value["kind"] != "tokenizer" {
        let found = value["kind"].as_str().map_or_else(|| value["kind"].to_string(), Into::into);
        return Err(FixtureError::Kind { file, found });
    }
    // From the bytes again: this way an error has line and column.
    let expected: Expected = serde_json::from_slice(&bytes)
        .map_err(|source| TokenizerError::Json { file: file.clone(), source })?;
    if expected.items.is_empty() && expected.batches.is_empty() {
        return Err(FixtureError::Empty { file });
    }
    let mut checks = Vec::new();
    let wanted = &["tokenizer.json", "spm.model", "tokenizer.model"];
    for name in wanted {
        let file = folder.join(name);
        if file.is_file() {
            let tokenizer = configured(&file, &expected)?;
            Checker { tokenizer, source: name, checks: &mut checks }.check(&expected)?;
        }
    }
    if checks.is_empty() {
        return Err(TokenizerError::NoTokenizer { folder: folder.into(), wanted }.into());
    }
    Ok(checks)
}

/// The tokenizer with the padding token and side that the expectations state: no vocabulary file holds them.
fn configured(file: &Path, expected: &Expected) -> Result<TextTokenizer, FixtureError> {
    let mut tokenizer = TextTokenizer::from_file(file)?;
    if let Some(Some(pad)) = expected.special_ids.get("pad") {
        tokenizer = tokenizer.with_pad_id(*pad)?;
    }
    if let Some(side) = padding_side("the whole file", expected.padding_side.as_deref())? {
        tokenizer = tokenizer.with_padding_side(side);
    }
    Ok(tokenizer)
}

struct Checker<'a> {
    tokenizer: TextTokenizer,
    source: &'static str,
    checks: &'a mut Vec<ItemCheck>,
}

impl Checker<'_> {
    fn check(&mut self, expected: &Expected) -> Result<(), FixtureError> {
        let size = self.tokenizer.vocab_size();
        self.compare("vocabulary", "vocab_size", expected.vocab_size.as_ref(), &size);
        self.check_special(&expected.special_ids);
        expected.items.iter().try_for_each(|item| self.check_item(item))?;
        (0..).zip(&expected.batches).try_for_each(|(index, batch)| self.check_batch(index, batch))
    }

    /// Special tokens that this tokenizer finds by itself have the stated ids; the padding id was taken from there.
    fn check_special(&mut self, wanted: &BTreeMap<String, Option<u32>>) {
        let special = self.tokenizer.special_tokens();
        let found = [
            ("cls", special.cls),
            ("sep", special.sep),
            ("unk", special.unk),
            ("mask", special.mask),
            ("bos", special.bos),
            ("eos", special.eos),
        ];
        for (role, found) in found {
            if let (Some(Some(wanted)), Some(found)) = (wanted.get(role), found) {
                self.compare(role, "special_ids", Some(wanted), &found);
            }
        }
    }

    fn check_item(&mut self, item: &Item) -> Result<(), FixtureError> {
        let name = item.name.as_str();
        let fail = |source| FixtureError::Item { item: name.to_owned(), source };
        let options = options(name, &item.truncation, &item.padding, item.max_length)?;
        let pair = item.pair.as_deref();
        let found = self.tokenizer.encode_with(&item.text, pair, &options).map_err(fail)?;
        self.compare(name, "ids", Some(&item.ids), &found.ids);
        self.compare(name, "type_ids", item.type_ids.as_ref(), &found.type_ids);
        self.compare(name, "attention_mask", item.attention_mask.as_ref(), &found.attention_mask);
        self.compare(name, "tokens", item.tokens.as_ref(), &found.tokens);
        self.compare(name, "offsets", item.offsets.as_ref(), &found.offsets);
        if let Some(wanted) = &item.decoded_without_special {
            let text = self.tokenizer.decode(&found.ids, true).map_err(fail)?;
            self.compare(name, "decoded_without_special", Some(wanted), &text);
        }
        if let Some(wanted) = &item.transformers_python_ids {
            let pair = pair.filter(|text| !text.is_empty());
            let found = self.tokenizer.encode_with(&item.text, pair, &options).map_err(fail)?;
            self.compare(name, "transformers_python_ids", Some(wanted), &found.ids);
        }
        Ok(())
    }

    fn check_batch(&mut self, index: usize, batch: &Batch) -> Result<(), FixtureError> {
        let name = format!("batch {index}");
        let options = options(&name, &batch.truncation, &batch.padding, batch.max_length)?;
        let inputs: Vec<_> =
            batch.inputs.iter().map(|(text, pair)| (text.as_str(), pair.as_deref())).collect();
        let encode = |tokenizer: &TextTokenizer| {
            tokenizer
                .encode_batch(&inputs, &options)
                .map_err(|source| FixtureError::Item { item: name.clone(), source })
        };
        let found = match padding_side(&name, batch.padding_side.as_deref())? {
            Some(side) if side != self.tokenizer.padding_side() => {
                encode(&self.tokenizer.clone().with_padding_side(side))?
            }
            _ => encode(&self.tokenizer)?,
        };
        let rows = |row: fn(&Encoding) -> &Vec<u32>| -> Vec<Vec<u32>> {
            found.iter().map(|encoding| row(encoding).clone()).collect()
        };
        let masks = rows(|encoding| &encoding.attention_mask);
        self.compare(&name, "ids", Some(&batch.ids), &rows(|encoding| &encoding.ids));
        let type_ids = rows(|encoding| &encoding.type_ids);
        self.compare(&name, "type_ids", batch.type_ids.as_ref(), &type_ids);
        self.compare(&name, "attention_mask", batch.attention_mask.as_ref(), &masks);
        Ok(())
    }

    fn compare<T: PartialEq + Serialize>(
        &mut self,
        name: &str,
        field: &'static str,
        wanted: Option<&T>,
        found: &T,
    ) {
        let Some(wanted) = wanted else { return };
        let json = |value: &T| {
            serde_json::to_string(value).expect("lists of numbers and strings have a JSON form")
        };
        self.checks.push(ItemCheck {
            name: format!("{}: {name}", self.source),
            field,
            equal: wanted == found,
            required: field != "offsets",
            wanted: json(wanted),
            found: json(found),
        });
    }
}

/// Options of an item, in the spelling of transformers.
fn options(
    item: &str,
    truncation: &Value,
    padding: &Value,
    max_length: Option<usize>,
) -> Result<EncodeOptions, FixtureError> {
    let unknown = |field, value: &Value, wanted| FixtureError::Option {
        item: item.to_owned(),
        field,
        found: value.to_string(),
        wanted,
    };
    let length = || {
        max_length.ok_or_else(|| unknown("max_length", &Value::Null, "the number that is needed"))
    };
    let strategy = match truncation {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(TruncationStrategy::LongestFirst),
        value => match value.as_str() {
            Some("do_not_truncate") => None,
            Some("longest_first") => Some(TruncationStrategy::LongestFirst),
            Some("only_first") => Some(TruncationStrategy::OnlyFirst),
            Some("only_second") => Some(TruncationStrategy::OnlySecond),
            _ => {
                let wanted = "`longest_first`, `only_first`, `only_second` or null";
                return Err(unknown("truncation", value, wanted));
            }
        },
    };
    let truncation = match strategy {
        None => None,
        Some(strategy) => Some(Truncation { max_length: length()?, strategy }),
    };
    let padding = match padding {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(PaddingSpec::Longest),
        value => match value.as_str() {
            Some("do_not_pad") => None,
            Some("longest") => Some(PaddingSpec::Longest),
            Some("max_length") => Some(PaddingSpec::To(length()?)),
            _ => return Err(unknown("padding", value, "`longest`, `max_length` or null")),
        },
    };
    Ok(EncodeOptions { truncation, padding })
}

fn padding_side(item: &str, side: Option<&str>) -> Result<Option<PaddingSide>, FixtureError> {
    match side {
        None => Ok(None),
        Some("left") => Ok(Some(PaddingSide::Left)),
        Some("right") => Ok(Some(PaddingSide::Right)),
        Some(other) => Err(FixtureError::Option {
            item: item.to_owned(),
            field: "padding_side",
            found: other.to_owned(),
            wanted: "`left` or `right`",
        }),
    }
}
