//! Tokenised examples as training and prediction read them.

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::train::{Examples, LabelledExamples, Targets};
use lrvd_models::TokenBatch;
use thiserror::Error;

use super::Label;

/// One example as the model sees it, special tokens included.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenisedExample {
    pub ids: Vec<u32>,
    pub type_ids: Vec<u32>,
    /// How many of the classes are answers to this one, from the first on; all of them if `None`.
    pub choices: Option<usize>,
    pub label: Label,
}

/// Why examples cannot be put into a batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    #[error("a batch needs at least one example")]
    Empty,
    /// An index points behind the last example.
    #[error("example {found} is wanted, but there are {wanted}")]
    Index { wanted: usize, found: usize },
    /// Token ids and segment ids of an example differ in number.
    #[error("example {index} has {wanted} token ids but {found} segment ids")]
    Segments { index: usize, wanted: usize, found: usize },
    /// Classes and scores are mixed in one batch.
    #[error("example {index} mixes scores and classes in one batch")]
    MixedLabels {
        /// Index of the first example that differs from the batch's first.
        index: usize,
    },
}

impl From<BatchError> for lrvd_burn::Error {
    fn from(error: BatchError) -> Self {
        Self::other(error)
    }
}

/// Examples with what makes batches of them: padding, the width of an answer, a device.
#[derive(Clone, Copy, Debug)]
pub struct TokenExamples<'a> {
    pub examples: &'a [TokenisedExample],
    pub pad_id: u32,
    /// Number of classes; 1 for scores.
    pub labels: usize,
    pub device: &'a Device,
    pub dtype: DType,
}

impl<'a> TokenExamples<'a> {
    fn picked(&self, indices: &[usize]) -> Result<Vec<&'a TokenisedExample>, BatchError> {
        if indices.is_empty() {
            return Err(BatchError::Empty);
        }
        let wanted = self.examples.len();
        let one =
            |&found: &usize| self.examples.get(found).ok_or(BatchError::Index { wanted, found });
        indices.iter().map(one).collect()
    }
}

impl Examples for TokenExamples<'_> {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.examples.len()
    }

    fn size(&self, index: usize) -> usize {
        self.examples[index].ids.len()
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let mut rows: Vec<(&[u32], &[u32])> = Vec::with_capacity(indices.len());
        let picked = self.picked(indices)?;
        for (example, &index) in picked.iter().zip(indices) {
            let (wanted, found) = (example.ids.len(), example.type_ids.len());
            if wanted != found {
                return Err(BatchError::Segments { index, wanted, found }.into());
            }
            rows.push((&example.ids, &example.type_ids));
        }
        let batch = TokenBatch::padded(&rows, self.pad_id, self.device, self.dtype);
        let answers = picked.iter().map(|example| example.choices.unwrap_or(self.labels));
        Ok(batch.answered_by(&answers.collect::<Vec<_>>(), self.labels))
    }
}

impl LabelledExamples for TokenExamples<'_> {
    fn targets(&self, indices: &[usize]) -> Result<Targets, lrvd_burn::Error> {
        let picked = self.picked(indices)?;
        let classes = picked[0].label.class().is_some();
        let width = if classes { self.labels } else { 1 };
        let mut values = vec![0.0_f32; picked.len() * width];
        for ((row, example), &index) in values.chunks_mut(width).zip(picked).zip(indices) {
            match (example.label, classes) {
                (Label::Class(class), true) => row[class] = 1.0,
                (Label::Score(score), false) => row[0] = score as f32,
                _ => return Err(BatchError::MixedLabels { index }.into()),
            }
        }
        let data = TensorData::new(values, [indices.len(), width]);
        let values = Tensor::from_data(data, (self.device, self.dtype));
        Ok(if classes { Targets::Classes(values) } else { Targets::Scores(values) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn example(length: u32, label: Label) -> TokenisedExample {
        let type_ids = (0..length).map(|i| u32::from(i > 1)).collect();
        let ids = (1..=length).map(|i| 10 * i).collect();
        TokenisedExample { ids, type_ids, choices: None, label }
    }

    fn examples<'a>(examples: &'a [TokenisedExample], device: &'a Device) -> TokenExamples<'a> {
        TokenExamples { examples, pad_id: 7, labels: 3, device, dtype: DType::F32 }
    }

    #[test]
    fn rows_are_padded_to_the_longest_of_the_batch_only() {
        let device = Device::flex();
        let all: Vec<_> =
            [9, 2, 4].into_iter().enumerate().map(|(i, n)| example(n, Label::Class(i))).collect();
        let examples = examples(&all, &device);
        let batch = examples.batch(&[2, 1]).unwrap();
        let numbers = |data: TensorData| data.iter::<i64>().collect::<Vec<_>>();
        assert_eq!((batch.rows(), batch.tokens, batch.input.ids.dims()), (2, 6, [2, 4]));
        assert_eq!(numbers(batch.input.ids.into_data()), [10, 20, 30, 40, 10, 20, 7, 7]);
        assert_eq!(numbers(batch.input.type_ids.into_data()), [0, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!(numbers(batch.input.mask.into_data()), [1, 1, 1, 1, 1, 1, 0, 0]);
        let Targets::Classes(one_hot) = batch.targets else { panic!("classes") };
        assert_eq!(numbers(one_hot.into_data()), [0, 0, 1, 0, 1, 0]);
        assert!(batch.input.barred.is_none());
    }

    #[test]
    fn answers_that_an_example_does_not_have_are_barred() {
        let device = Device::flex();
        let choices = |choices| TokenisedExample { choices, ..example(2, Label::Class(1)) };
        let all = [choices(Some(2)), choices(Some(3)), choices(None)];
        let examples = examples(&all, &device);
        let barred = |indices: &[usize]| {
            let barred = examples.input(indices).unwrap().barred?;
            Some(barred.into_data().iter::<f64>().map(|value| value < 0.0).collect::<Vec<_>>())
        };
        assert_eq!(barred(&[1, 2]), None);
        let own = [false, false, false, false, false, true];
        assert_eq!(barred(&[2, 0]), Some(own.to_vec()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let device = Device::flex();
        let mut all = vec![
            example(3, Label::Score(1.5)),
            example(2, Label::Score(0.0)),
            example(2, Label::Class(0)),
        ];
        let scores = examples(&all, &device).targets(&[1, 0]).unwrap();
        let Targets::Scores(scores) = scores else { panic!("scores") };
        assert_eq!(scores.into_data().iter::<f64>().collect::<Vec<_>>(), [0.0, 1.5]);
        let failed = |all: &[_], indices: &[usize]| {
            examples(all, &device).batch(indices).unwrap_err().to_string()
        };
        let mixed = BatchError::MixedLabels { index: 2 };
        assert_eq!(failed(&all, &[0, 2]), mixed.to_string());
        let behind = BatchError::Index { wanted: 3, found: 3 };
        assert_eq!(failed(&all, &[3]), behind.to_string());
        assert_eq!(failed(&all, &[]), BatchError::Empty.to_string());
        all[1].type_ids.pop();
        let segments = BatchError::Segments { index: 1, wanted: 2, found: 1 };
        assert_eq!(failed(&all, &[0, 1]), segments.to_string());
    }
}
