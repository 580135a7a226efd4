//! What there is to know of texts before anything is trained.

use std::collections::{BTreeMap, BTreeSet};

use lrvd_models::chat::Role;
use lrvd_models::tokenizer::TextTokenizer;
use serde::Serialize;

use super::columns::LanguageColumns;
use super::data::LanguageSource;
use super::encode::{EncodedText, LanguageReader};
use super::rows::{Content, TextRow};
use crate::backbone::{Architecture, locate_model, open_tokenizer};
use crate::data::Spread;
use crate::error::Result;

const SHOWN: usize = 3;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LanguageSplitReport {
    pub name: &'static str,
    pub rows: usize,
    pub characters: Option<Spread>,
    /// Tokens of a row before anything is cut; `None` without a model.
    pub tokens: Option<Spread>,
    /// Tokens of a row that are learnt; `None` without a model.
    pub learnt: Option<Spread>,
    /// Rows that are longer than `max_length` and will be cut.
    pub truncated: Option<usize>,
    /// Rows that have nothing left to learn then, and will be left out.
    pub dropped: Option<usize>,
    /// Rows that have occurred before in the split.
    pub repeated: usize,
    /// Rows that are in the training split too; of the validation split only.
    pub seen_in_training: usize,
}

/// A text in pieces: each with whether it is learnt.
pub type MarkedText = Vec<(String, bool)>;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LanguageReport {
    pub schema_version: u32,
    pub files: BTreeMap<String, String>,
    pub columns: LanguageColumns,
    /// Longest input in tokens; `None` without a model.
    pub max_length: Option<usize>,
    pub splits: Vec<LanguageSplitReport>,
    /// The first rows in pieces, as the model reads them.
    pub examples: Vec<MarkedText>,
}

/// Reads the texts of `source`, and with a `model` its configuration, tokenizer and chat template: no weights.
pub fn check_language(
    source: &LanguageSource,
    model: Option<&str>,
    max_length: usize,
) -> Result<LanguageReport> {
    let rows = source.read()?;
    let opened = match model {
        Some(name) => {
            let location = locate_model(name)?;
            let architecture = Architecture::read(&location.folder)?;
            let tokenizer = open_tokenizer(&location.folder)?;
            Some((location, architecture, tokenizer))
        }
        None => None,
    };
    let reader = match &opened {
        Some((location, architecture, tokenizer)) => {
            Some((LanguageReader::new(location, architecture, tokenizer, max_length)?, tokenizer))
        }
        None => None,
    };
    let known: BTreeSet<String> = rows.train.iter().map(key).collect();
    let (mut splits, mut examples) = (Vec::new(), Vec::new());
    for (name, rows) in [("train", &rows.train), ("validation", &rows.validation)] {
        let texts = match &reader {
            Some((reader, _)) => {
                Some(rows.iter().map(|row| reader.encode(row)).collect::<Result<Vec<_>, _>>()?)
            }
            None => None,
        };
        let mut before = BTreeSet::new();
        let (mut repeated, mut shared) = (0, 0);
        for row in rows {
            let key = key(row);
            shared += usize::from(name == "validation" && known.contains(&key));
            repeated += usize::from(!before.insert(key));
        }
        let spread = |of: &dyn Fn(&EncodedText) -> usize| {
            Spread::of(texts.as_ref()?.iter().map(of).collect())
        };
        let count = |of: &dyn Fn(&EncodedText) -> bool| {
            Some(texts.as_ref()?.iter().filter(|text| of(text)).count())
        };
        splits.push(LanguageSplitReport {
            name,
            rows: rows.len(),
            characters: Spread::of(rows.iter().map(characters).collect()),
            tokens: spread(&|text| text.length),
            learnt: spread(&|text| text.learnt.iter().filter(|learnt| **learnt).count()),
            truncated: count(&|text| text.length > max_length),
            dropped: count(&|text| text.example().is_none()),
            repeated,
            seen_in_training: shared,
        });
        if name == "train" {
            examples = match (&reader, &texts) {
                (Some((_, tokenizer)), Some(texts)) => {
                    let shown = texts.iter().take(SHOWN);
                    shown.map(|text| marked(text, tokenizer)).collect::<Result<_, _>>()?
                }
                _ => rows.iter().take(SHOWN).map(plain).collect(),
            };
        }
    }
    Ok(LanguageReport {
        schema_version: 1,
        files: rows.files,
        columns: source.columns.clone(),
        max_length: model.map(|_| max_length),
        splits,
        examples,
    })
}

/// The tokens of a text in runs of what is learnt and what is not, special tokens included.
fn marked(text: &EncodedText, tokenizer: &TextTokenizer) -> Result<MarkedText> {
    let (mut pieces, mut so_far, mut start) = (MarkedText::new(), String::new(), 0);
    for run in text.learnt.chunk_by(|a, b| a == b) {
        start += run.len();
        // From the beginning each time: a decoder treats a first token in its own way.
        let longer = tokenizer.decode(&text.ids[..start], false)?;
        let piece = longer.strip_prefix(&so_far).unwrap_or(&longer).to_owned();
        pieces.push((piece, run[0]));
        so_far = longer;
    }
    Ok(pieces)
}

/// The texts themselves, where no model reads them.
fn plain(row: &TextRow) -> MarkedText {
    match &row.content {
        Content::Text { prompt, completion } => {
            let completion = completion.clone().unwrap_or_default();
            vec![(prompt.clone(), false), (completion, true)]
        }
        Content::Chat(messages) => messages
            .iter()
            .map(|message| {
                let learnt = message.role == Role::Assistant;
                (format!("{}: {}\n", message.role.name(), message.content), learnt)
            })
            .collect(),
    }
}

fn characters(row: &TextRow) -> usize {
    plain(row).iter().map(|(text, _)| text.chars().count()).sum()
}

fn key(row: &TextRow) -> String {
    plain(row).into_iter().map(|(text, _)| text).collect::<Vec<_>>().join("\u{0}")
}
