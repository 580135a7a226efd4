//! A user's texts as tokens, and batches of them.

use anyhow::bail;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::train::{Examples, LabelledExamples, Targets, TokenTargets};
use lrvd_models::TokenBatch;
use lrvd_models::llama::TextBatch;

use super::encode::{EncodedText, LanguageReader};
use crate::data::batch::picked;
use crate::data::{TextRow, TextSet};
use crate::error::{Burn, Result};
use crate::settings::Config;

#[derive(Clone, Debug, Default)]
pub(crate) struct LanguageTask {
    pub train: Vec<LanguageExample>,
    pub holdout: Vec<LanguageExample>,
    pub validation: Vec<LanguageExample>,
    /// Number of each validation text among the rows of its split, from 0.
    pub validation_ids: Vec<String>,
    pub pad_id: u32,
    /// What a reader of the results must know, one sentence each.
    pub notes: Vec<String>,
}

impl LanguageTask {
    /// The rows as `reader` reads them, as many and as long as `config` wants.
    ///
    /// Rows without a token to learn within the longest input are left out and counted.
    pub(crate) fn new(
        mut data: TextSet,
        reader: &LanguageReader<'_>,
        config: &Config,
    ) -> Result<Self> {
        let max_length = config.max_length;
        let mut notes = std::mem::take(&mut data.notes);
        notes.extend(data.sample(config.train_rows));
        notes.extend(data.limit(config.validation_rows));
        if !data.kind.is_chat() {
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
        let (train, validation) = (&data.train.examples, &data.validation.examples);
        let train = encoded("train", train, reader, max_length, &mut notes)?;
        let validation = encoded("validation", validation, reader, max_length, &mut notes)?;
        let (validation_ids, validation) = validation.into_iter().unzip();
        let train = train.into_iter().map(|(_, text)| text).collect();
        let (holdout, pad_id) = (Vec::new(), reader.pad_id);
        Ok(Self { train, holdout, validation, validation_ids, pad_id, notes })
    }
}

pub(crate) fn encoded(
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanguageExample {
    pub(super) ids: Vec<u32>,
    pub(super) columns: Vec<usize>,
    pub(super) expected: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LanguageExamples<'a> {
    pub texts: &'a [LanguageExample],
    pub pad_id: u32,
    pub device: &'a Device,
}

impl Examples for LanguageExamples<'_> {
    type Input = TextBatch;

    fn len(&self) -> usize {
        self.texts.len()
    }

    fn size(&self, index: usize) -> usize {
        self.texts[index].ids.len()
    }

    fn input(&self, indices: &[usize]) -> Burn<TextBatch> {
        let texts = picked(self.texts, indices)?;
        let rows: Vec<(&[u32], &[u32])> =
            texts.iter().map(|text| (&text.ids[..], &[][..])).collect();
        let tokens = TokenBatch::padded(&rows, self.pad_id, self.device, DType::F32);
        Ok(TextBatch { tokens, columns: texts.iter().map(|text| text.columns.clone()).collect() })
    }
}

impl LabelledExamples for LanguageExamples<'_> {
    fn targets(&self, indices: &[usize]) -> Burn<Targets> {
        let texts = picked(self.texts, indices)?;
        let ids: Vec<i64> =
            texts.iter().flat_map(|text| &text.expected).map(|&id| i64::from(id)).collect();
        let n = ids.len();
        Ok(Targets::Tokens(TokenTargets {
            ids: Tensor::from_data(TensorData::new(ids, [n]), self.device),
            per_row: texts.iter().map(|text| text.expected.len()).collect(),
        }))
    }

    fn answers(&self, index: usize) -> usize {
        self.texts[index].expected.len()
    }
}
