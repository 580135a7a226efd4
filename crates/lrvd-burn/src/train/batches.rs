//! Sources of training batches that can tell and take their position.

use lrvd_core::noise::NoiseKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::Batch;
use super::error::TrainError;
use super::examples::LabelledExamples;
use super::order::{EpochOrder, OrderConfig, OrderError, OrderState};

/// An endless source of training steps.
///
/// A source that was put at a position hands out the batches that it handed out after it told that
/// position: a resumed run then sees what the run without a break would have seen.
pub trait Batches {
    /// What the model reads.
    type Input;
    /// Where the source stands.
    type Position: Serialize + DeserializeOwned;

    /// Number of answers in the training examples, one each unless they are tokens: what a divergence may be divided by,
    /// as the likelihood is averaged over answers.
    fn n_train(&self) -> usize;

    /// The micro-batches of the next step, whose gradients are summed.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if examples do not go together or cannot be read.
    fn next_step(&mut self) -> Result<Vec<Batch<Self::Input>>, TrainError>;

    /// Where the source stands.
    fn position(&self) -> Self::Position;

    /// Goes to `position`.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the source has no such position.
    fn seek(&mut self, position: Self::Position) -> Result<(), TrainError>;
}

/// Examples in memory, in the order of an [`EpochOrder`].
#[derive(Clone, Debug)]
pub struct Ordered<E> {
    examples: E,
    order: EpochOrder,
    accumulation: usize,
    answers: usize,
}

impl<E: LabelledExamples> Ordered<E> {
    /// `examples` in an order that `seed` fixes, one batch a step.
    ///
    /// # Errors
    ///
    /// [`TrainError::Order`] for sizes of 0 or too few examples.
    pub fn new(examples: E, config: OrderConfig, seed: u64) -> Result<Self, TrainError> {
        let all = 0..examples.len();
        let sizes: Vec<usize> = all.clone().map(|index| examples.size(index)).collect();
        let answers = all.map(|index| examples.answers(index)).sum();
        let order = EpochOrder::new(NoiseKey::new(seed), &sizes, config)?;
        Ok(Self { examples, order, accumulation: 1, answers })
    }

    /// The same with every batch cut into `accumulation` micro-batches of like lengths, which are padded less than the whole
    /// batch. The examples of a step are the same, and so is the mean of its gradients.
    ///
    /// # Errors
    ///
    /// [`OrderError::Accumulation`] unless it divides the batch.
    pub fn accumulating(self, accumulation: usize) -> Result<Self, TrainError> {
        let batch_size = self.order.config().batch_size;
        if accumulation == 0 || !batch_size.is_multiple_of(accumulation) {
            return Err(OrderError::Accumulation { accumulation, batch_size }.into());
        }
        Ok(Self { accumulation, ..self })
    }
}

impl<E: LabelledExamples> Batches for Ordered<E> {
    type Input = E::Input;
    type Position = OrderState;

    fn n_train(&self) -> usize {
        self.answers
    }

    fn next_step(&mut self) -> Result<Vec<Batch<E::Input>>, TrainError> {
        let mut indices = self.order.next_batch();
        if self.accumulation > 1 {
            // Stable, so that equal lengths keep their shuffled order.
            indices.sort_by_key(|&index| self.examples.size(index));
        }
        // The last batch of an epoch may be smaller; its parts are as equal as can be.
        let part = indices.len().div_ceil(self.accumulation).max(1);
        indices.chunks(part).map(|part| self.examples.batch(part)).collect()
    }

    fn position(&self) -> OrderState {
        self.order.state()
    }

    fn seek(&mut self, position: OrderState) -> Result<(), TrainError> {
        Ok(self.order.resume(position)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::train::{Examples, Targets};

    /// Texts of these lengths, read as their lengths.
    struct Texts(Vec<usize>);

    impl Examples for Texts {
        type Input = Vec<usize>;

        fn len(&self) -> usize {
            self.0.len()
        }

        fn size(&self, index: usize) -> usize {
            self.0[index]
        }

        fn input(&self, indices: &[usize]) -> Result<Vec<usize>, TrainError> {
            Ok(indices.iter().map(|&index| self.0[index]).collect())
        }
    }

    impl LabelledExamples for Texts {
        fn targets(&self, indices: &[usize]) -> Result<Targets, TrainError> {
            Ok(Targets::Scores(Tensor::zeros([indices.len(), 1], &Device::default())))
        }
    }

    #[test]
    fn micro_batches_are_of_like_lengths_and_hold_the_rows_of_their_batch() {
        let texts = Texts((0..36).map(|i| 5 + (i * 7919) % 31).collect());
        let steps = |parts: usize| -> Vec<Vec<Vec<usize>>> {
            let order = Ordered::new(&texts, OrderConfig::shuffled(8), 3).unwrap();
            let mut order = order.accumulating(parts).unwrap();
            let step =
                |_| order.next_step().unwrap().into_iter().map(|batch| batch.input).collect();
            (0..10).map(step).collect()
        };
        for (whole, parts) in steps(1).iter().zip(steps(4)) {
            let (mut whole, parts) = (whole.concat(), parts.concat());
            assert!(parts.is_sorted() && !whole.is_sorted(), "{parts:?} {whole:?}");
            whole.sort_unstable();
            assert_eq!(parts, whole);
        }
    }
}
