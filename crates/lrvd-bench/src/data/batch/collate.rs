//! Token lists of different lengths as one rectangle.

use super::BatchError;
use crate::data::Label;

/// One example as the model sees it, special tokens included.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenisedExample {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Segment ids, one for each token.
    pub type_ids: Vec<u32>,
    /// Target.
    pub label: Label,
}

/// The targets of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchLabels {
    /// Class ids.
    Classes(Vec<i64>),
    /// Scores.
    Scores(Vec<f64>),
}

/// A batch padded on the right to its longest row.
///
/// # Shapes
///
/// | Name             | Shape                       | Unit            |
/// |------------------|-----------------------------|-----------------|
/// | `ids`            | `[rows, length]`, row-major | token id        |
/// | `type_ids`       | `[rows, length]`            | segment, pad 0  |
/// | `attention_mask` | `[rows, length]`            | 1 token, 0 pad  |
/// | `labels`         | `[rows]`                    | class or score  |
/// | `indices`        | `[rows]`                    | example         |
#[derive(Debug, Clone, PartialEq)]
pub struct PaddedBatch {
    /// Token ids.
    pub ids: Vec<i64>,
    /// Segment ids.
    pub type_ids: Vec<i64>,
    /// 1 where there is a token.
    pub attention_mask: Vec<i64>,
    /// Targets.
    pub labels: BatchLabels,
    /// Number of examples.
    pub rows: usize,
    /// Tokens in the longest example.
    pub length: usize,
    /// Which examples these are.
    pub indices: Vec<usize>,
}

impl PaddedBatch {
    /// Takes the examples at `indices`, in that order, and pads with `pad_id`.
    ///
    /// # Errors
    ///
    /// [`BatchError::TooFew`] without indices; [`BatchError::Index`], [`BatchError::Segments`] and
    /// [`BatchError::MixedLabels`] name the first bad example.
    pub fn collate(
        examples: &[TokenisedExample],
        indices: &[usize],
        pad_id: u32,
    ) -> Result<Self, BatchError> {
        let picked: Vec<&TokenisedExample> = indices
            .iter()
            .map(|&found| {
                examples.get(found).ok_or(BatchError::Index { wanted: examples.len(), found })
            })
            .collect::<Result<_, _>>()?;
        let Some(first) = picked.first() else {
            return Err(BatchError::TooFew { wanted: 1, found: 0 });
        };
        let rows = picked.len();
        let length = picked.iter().map(|example| example.ids.len()).max().unwrap_or_default();
        let mut ids = Vec::with_capacity(rows * length);
        let mut type_ids = Vec::with_capacity(rows * length);
        let mut attention_mask = Vec::with_capacity(rows * length);
        for (example, &index) in picked.iter().zip(indices) {
            let (wanted, found) = (example.ids.len(), example.type_ids.len());
            if wanted != found {
                return Err(BatchError::Segments { index, wanted, found });
            }
            let padded = ids.len() + length;
            ids.extend(example.ids.iter().map(|id| i64::from(*id)));
            ids.resize(padded, i64::from(pad_id));
            type_ids.extend(example.type_ids.iter().map(|id| i64::from(*id)));
            type_ids.resize(padded, 0);
            attention_mask.resize(padded - length + wanted, 1);
            attention_mask.resize(padded, 0);
        }
        let labels = picked.iter().zip(indices);
        let labels = if first.label.class().is_some() {
            let classes = labels.map(|(example, &index)| {
                example.label.class().map(|id| id as i64).ok_or(BatchError::MixedLabels { index })
            });
            BatchLabels::Classes(classes.collect::<Result<_, _>>()?)
        } else {
            let scores = labels.map(|(example, &index)| {
                example.label.score().ok_or(BatchError::MixedLabels { index })
            });
            BatchLabels::Scores(scores.collect::<Result<_, _>>()?)
        };
        let indices = indices.to_vec();
        Ok(Self { ids, type_ids, attention_mask, labels, rows, length, indices })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn example(length: u32, label: Label) -> TokenisedExample {
        let type_ids = (0..length).map(|i| u32::from(i > 1)).collect();
        TokenisedExample { ids: (1..=length).map(|i| 10 * i).collect(), type_ids, label }
    }

    #[test]
    fn rows_are_padded_to_the_longest_of_the_batch_only() {
        let examples: Vec<_> =
            [9, 2, 4].into_iter().enumerate().map(|(i, n)| example(n, Label::Class(i))).collect();
        let batch = PaddedBatch::collate(&examples, &[2, 1], 7).unwrap();
        assert_eq!((batch.rows, batch.length), (2, 4));
        assert_eq!(batch.ids, [10, 20, 30, 40, 10, 20, 7, 7]);
        assert_eq!(batch.type_ids, [0, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!(batch.attention_mask, [1, 1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(batch.labels, BatchLabels::Classes(vec![2, 1]));
        assert_eq!(batch.indices, [2, 1]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut examples = vec![
            example(3, Label::Score(1.5)),
            example(2, Label::Score(0.0)),
            example(2, Label::Class(0)),
        ];
        let collate = |examples: &[_], indices: &[_]| PaddedBatch::collate(examples, indices, 0);
        let scores = BatchLabels::Scores(vec![0.0, 1.5]);
        assert_eq!(collate(&examples, &[1, 0]).unwrap().labels, scores);
        let failed = collate(&examples, &[0, 2]).unwrap_err();
        assert_eq!(failed, BatchError::MixedLabels { index: 2 });
        let failed = collate(&examples, &[3]).unwrap_err();
        assert_eq!(failed, BatchError::Index { wanted: 3, found: 3 });
        assert!(matches!(collate(&examples, &[]), Err(BatchError::TooFew { .. })));
        examples[1].type_ids.pop();
        let failed = collate(&examples, &[0, 1]).unwrap_err();
        assert_eq!(failed, BatchError::Segments { index: 1, wanted: 2, found: 1 });
    }
}
