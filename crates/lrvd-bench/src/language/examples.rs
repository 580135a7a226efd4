//! Texts in batches.

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::train::{Examples, LabelledExamples, Targets, TokenTargets};
use lrvd_models::TokenBatch;
use lrvd_models::llama::TextBatch;

use crate::data::batch::picked;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanguageExample {
    pub(super) ids: Vec<u32>,
    pub(super) columns: Vec<usize>,
    pub(super) wanted: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LanguageExamples<'a> {
    pub(super) texts: &'a [LanguageExample],
    pub(super) pad_id: u32,
    pub(super) device: &'a Device,
}

impl Examples for LanguageExamples<'_> {
    type Input = TextBatch;

    fn len(&self) -> usize {
        self.texts.len()
    }

    fn size(&self, index: usize) -> usize {
        self.texts[index].ids.len()
    }

    fn input(&self, indices: &[usize]) -> Result<TextBatch, lrvd_burn::Error> {
        let texts = picked(self.texts, indices)?;
        let rows: Vec<(&[u32], &[u32])> =
            texts.iter().map(|text| (&text.ids[..], &[][..])).collect();
        let tokens = TokenBatch::padded(&rows, self.pad_id, self.device, DType::F32);
        Ok(TextBatch { tokens, columns: texts.iter().map(|text| text.columns.clone()).collect() })
    }
}

impl LabelledExamples for LanguageExamples<'_> {
    fn targets(&self, indices: &[usize]) -> Result<Targets, lrvd_burn::Error> {
        let texts = picked(self.texts, indices)?;
        let ids: Vec<i64> =
            texts.iter().flat_map(|text| &text.wanted).map(|&id| i64::from(id)).collect();
        let n = ids.len();
        Ok(Targets::Tokens(TokenTargets {
            ids: Tensor::from_data(TensorData::new(ids, [n]), self.device),
            per_row: texts.iter().map(|text| text.wanted.len()).collect(),
        }))
    }

    fn answers(&self, index: usize) -> usize {
        self.texts[index].wanted.len()
    }
}
