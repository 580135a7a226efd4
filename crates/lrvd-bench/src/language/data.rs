//! The rows of a user's files as a model reads them, and a report on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::bail;
use lrvd_models::chat::Role;
use lrvd_models::tokenizer::TextTokenizer;
use serde::Serialize;

use super::encode::{EncodedText, LanguageReader};
use super::rows::{Content, LanguageColumns, LanguageExample, TextRow, read_texts};
use crate::backbone::{Architecture, locate_model, open_tokenizer};
use crate::data::{Spread, Validation, limit, sample};
use crate::error::Result;
use crate::io::sha256_file;
use crate::settings::ExperimentConfig;

#[derive(Clone, Debug, PartialEq)]
pub struct LanguageSource {
    pub train: PathBuf,
    pub validation: Validation,
    pub columns: LanguageColumns,
}

#[derive(Clone, Debug)]
pub struct LanguageRows {
    /// To fit, those included that a method holds out.
    pub train: Vec<TextRow>,
    pub validation: Vec<TextRow>,
    pub(super) files: BTreeMap<String, String>,
}

impl LanguageSource {
    pub(super) fn validation_split(&self) -> Option<f64> {
        match self.validation {
            Validation::Share(share) => Some(share),
            Validation::File(_) => None,
        }
    }

    pub fn read(&self) -> Result<LanguageRows> {
        let mut files = BTreeMap::new();
        let other = match &self.validation {
            Validation::File(file) => Some(file),
            Validation::Share(_) => None,
        };
        for file in std::iter::once(&self.train).chain(other) {
            files.insert(file.display().to_string(), sha256_file(file)?);
        }
        let whole = read_texts(&self.train, &self.columns, true)?;
        let (train, validation) = match &self.validation {
            Validation::File(file) => (whole, read_texts(file, &self.columns, true)?),
            Validation::Share(share) => Validation::split(&self.train, whole, *share)?,
        };
        Ok(LanguageRows { train, validation, files })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LanguageTask {
    pub(super) train: Vec<LanguageExample>,
    pub(super) holdout: Vec<LanguageExample>,
    pub(super) validation: Vec<LanguageExample>,
    /// Number of each validation text among the rows of its split, from 0.
    pub(super) validation_ids: Vec<String>,
    pub(super) pad_id: u32,
    /// What a reader of the results must know, one sentence each.
    pub(super) notes: Vec<String>,
}

impl LanguageTask {
    /// The rows as `reader` reads them, as many and as long as `config` wants.
    ///
    /// Rows without a token to learn within the longest input are left out and counted.
    pub(super) fn new(
        mut rows: LanguageRows,
        columns: &LanguageColumns,
        reader: &LanguageReader<'_>,
        config: &ExperimentConfig,
    ) -> Result<Self> {
        let max_length = config.max_length;
        let mut notes = Vec::new();
        notes.extend(sample(&mut rows.train, config.train_rows));
        notes.extend(limit(&mut rows.validation, config.validation_rows));
        if !columns.is_chat() {
            if reader.has_chat() {
                notes.push(
                    "prompts and completions are read as they are, without the model's chat template: give `messages` \
                     to use it"
                        .to_owned(),
                );
            }
            if !reader.has_end() {
                notes.push(
                    "the model names no token that ends a text, so completions do not learn to end"
                        .to_owned(),
                );
            }
        }
        let train = encoded("train", &rows.train, reader, max_length, &mut notes)?;
        let validation = encoded("validation", &rows.validation, reader, max_length, &mut notes)?;
        let (validation_ids, validation) = validation.into_iter().unzip();
        let train = train.into_iter().map(|(_, text)| text).collect();
        let (holdout, pad_id) = (Vec::new(), reader.pad_id);
        Ok(Self { train, holdout, validation, validation_ids, pad_id, notes })
    }
}

pub(super) fn encoded(
    split: &'static str,
    rows: &[TextRow],
    reader: &LanguageReader<'_>,
    max_length: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<(String, LanguageExample)>> {
    let texts: Vec<EncodedText> =
        rows.iter().map(|row| reader.encode(row)).collect::<Result<_, _>>()?;
    let numbered = texts.iter().enumerate();
    let examples: Vec<(String, LanguageExample)> =
        numbered.filter_map(|(i, text)| Some((i.to_string(), text.example()?))).collect();
    if examples.is_empty() {
        bail!(
            "{split}: within {max_length} tokens none of its {rows} rows has a token of a completion left; \
             raise `--max-length`",
            rows = rows.len()
        );
    }
    let count = |is: &dyn Fn(&EncodedText) -> bool| texts.iter().filter(|text| is(text)).count();
    let (cut, apart) = (count(&|text| text.length > max_length), count(&|text| text.apart));
    let learnt: usize = examples.iter().map(|(_, example)| example.expected.len()).sum();
    let read: usize = texts.iter().map(|text| text.ids.len()).sum();
    notes.push(format!("{split}: {} rows, {learnt} of {read} tokens are learnt", examples.len()));
    if cut > 0 {
        let dropped = rows.len() - examples.len();
        let left_out = match dropped {
            0 => String::new(),
            n => format!("; {n} of them had nothing left to learn and are left out"),
        };
        let rows = rows.len();
        notes.push(format!(
            "{split}: {cut} of {rows} rows lost what is beyond {max_length} tokens{left_out}"
        ));
    }
    if apart > 0 {
        notes.push(format!(
            "{split}: {apart} rows have a token that spans prompt and answer; the answer is encoded by itself, as it will \
             be asked for"
        ));
    }
    Ok(examples)
}

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
