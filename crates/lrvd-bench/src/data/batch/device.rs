//! A padded batch on the device.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::repeat_for_members;
use lrvd_models::TokenBatch;

use super::{BatchLabels, PaddedBatch};

/// What the model should answer.
#[derive(Clone, Debug)]
pub enum Targets {
    /// One-hot classes, `[batch, classes]`.
    Classes(Tensor<2>),
    /// Scores, `[batch, 1]`.
    Scores(Tensor<2>),
}

/// Inputs and targets of one forward pass.
#[derive(Clone, Debug)]
pub struct DeviceBatch {
    /// Ids, segments and mask.
    pub input: TokenBatch,
    /// Targets.
    pub targets: Targets,
    /// Number of different examples.
    pub rows: usize,
    /// Tokens without padding.
    pub tokens: usize,
}

impl DeviceBatch {
    /// The batch `times` over, copy after copy.
    #[must_use]
    pub fn repeat(self, times: usize) -> Self {
        if times == 1 {
            return self;
        }
        let rows = |t: Tensor<2>| repeat_for_members(t, times);
        Self {
            input: TokenBatch {
                ids: repeat_for_members(self.input.ids, times),
                type_ids: repeat_for_members(self.input.type_ids, times),
                mask: rows(self.input.mask),
            },
            targets: match self.targets {
                Targets::Classes(one_hot) => Targets::Classes(rows(one_hot)),
                Targets::Scores(scores) => Targets::Scores(rows(scores)),
            },
            ..self
        }
    }

    /// Uploads `batch`; `labels` is the number of classes, 1 for regression.
    pub fn new(batch: &PaddedBatch, labels: usize, device: &Device, dtype: DType) -> Self {
        let shape = [batch.rows, batch.length];
        let ints = |values: &[i64]| {
            Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), device)
        };
        let mask: Vec<f32> = batch.attention_mask.iter().map(|&m| m as f32).collect();
        let tokens = batch.attention_mask.iter().filter(|&&m| m != 0).count();
        let floats = |values: Vec<f32>, shape: [usize; 2]| {
            Tensor::<2>::from_data(TensorData::new(values, shape), (device, dtype))
        };
        let targets = match &batch.labels {
            BatchLabels::Scores(scores) => {
                let scores = scores.iter().map(|&s| s as f32).collect();
                Targets::Scores(floats(scores, [batch.rows, 1]))
            }
            BatchLabels::Classes(classes) => {
                let mut one_hot = vec![0.0_f32; batch.rows * labels];
                for (row, &class) in classes.iter().enumerate() {
                    one_hot[row * labels + class as usize] = 1.0;
                }
                Targets::Classes(floats(one_hot, [batch.rows, labels]))
            }
        };
        Self {
            input: TokenBatch {
                ids: ints(&batch.ids),
                type_ids: ints(&batch.type_ids),
                mask: floats(mask, shape),
            },
            targets,
            rows: batch.rows,
            tokens,
        }
    }
}
