//! The rows of a user's files, as a model reads them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;

use super::columns::LanguageColumns;
use super::encode::{EncodedText, LanguageReader};
use super::examples::LanguageExample;
use super::rows::{TextRow, read_texts};
use crate::data::{Validation, limit, sample};
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
    let learnt: usize = examples.iter().map(|(_, example)| example.wanted.len()).sum();
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
