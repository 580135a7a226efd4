//! Sources of training batches that can tell and take their position.

use lrvd_core::noise::NoiseKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::examples::LabelledExamples;
use super::order::{EpochOrder, OrderConfig, OrderState};
use crate::error::Error;

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
    fn next_step(&mut self) -> Result<Vec<Batch<Self::Input>>, Error>;

    /// Where the source stands.
    fn position(&self) -> Self::Position;

    /// Goes to `position`.
    fn seek(&mut self, position: Self::Position) -> Result<(), Error>;

    /// Rows that were kept back join the others in a new epoch. Returns how many there are; 0 unless the source keeps some
    /// back.
    fn take_in(&mut self) -> Result<usize, Error> {
        Ok(0)
    }
}

/// Mixed into the seed of the order of all rows, once those that were kept back are among them.
const TAKEN_IN_SALT: u64 = 0x5441_4b45_4e49_4e21;

/// Examples in memory, in the order of an [`EpochOrder`].
#[derive(Clone, Debug)]
pub struct Ordered<E> {
    examples: E,
    seed: u64,
    /// The examples that the order counts.
    rows: Vec<usize>,
    order: EpochOrder,
    accumulation: usize,
    answers: usize,
    /// Examples at the end that wait to be taken in.
    kept_back: usize,
    /// Whether they were.
    taken_in: bool,
}

/// Where [`Ordered`] stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedState {
    /// Epoch and batch.
    #[serde(flatten)]
    pub order: OrderState,
    /// Whether rows that had been kept back take part.
    #[serde(default)]
    pub taken_in: bool,
}

impl<E: LabelledExamples> Ordered<E> {
    /// `examples` in an order that `seed` fixes, one batch a step.
    pub fn new(examples: E, config: OrderConfig, seed: u64) -> Result<Self, Error> {
        let rows: Vec<usize> = (0..examples.len()).collect();
        let order = ordered(&examples, &rows, config, seed)?;
        let answers = answers(&examples, rows.len());
        let (accumulation, kept_back, taken_in) = (1, 0, false);
        Ok(Self { examples, seed, rows, order, accumulation, answers, kept_back, taken_in })
    }

    /// The same, from its start, with the last `n` examples kept back until they are [taken in](Batches::take_in).
    pub fn holding_out(self, n: usize) -> Result<Self, Error> {
        let rows: Vec<usize> = (0..self.examples.len().saturating_sub(n)).collect();
        let order = ordered(&self.examples, &rows, self.order.config(), self.seed)?;
        let (answers, kept_back) =
            (answers(&self.examples, rows.len()), self.examples.len() - rows.len());
        Ok(Self { rows, order, answers, kept_back, ..self })
    }

    /// The same with every batch cut into `accumulation` micro-batches of like lengths, which are padded less than the whole
    /// batch. The examples of a step are the same, and so is the mean of its gradients.
    pub fn accumulating(self, accumulation: usize) -> Result<Self, Error> {
        let batch_size = self.order.config().batch_size;
        if accumulation == 0 || !batch_size.is_multiple_of(accumulation) {
            return Err(Error::Argument(format!(
                "`accumulation` is {accumulation}, which does not divide `batch_size` = {batch_size}"
            )));
        }
        Ok(Self { accumulation, ..self })
    }
}

impl<E: LabelledExamples> Batches for Ordered<E> {
    type Input = E::Input;
    type Position = OrderedState;

    fn n_train(&self) -> usize {
        self.answers
    }

    fn next_step(&mut self) -> Result<Vec<Batch<E::Input>>, Error> {
        let mut indices: Vec<usize> =
            self.order.next_batch().into_iter().map(|place| self.rows[place]).collect();
        if self.accumulation > 1 {
            // Stable, so that equal lengths keep their shuffled order.
            indices.sort_by_key(|&index| self.examples.size(index));
        }
        // The last batch of an epoch may be smaller; its parts are as equal as can be.
        let part = indices.len().div_ceil(self.accumulation).max(1);
        indices.chunks(part).map(|part| self.examples.batch(part)).collect()
    }

    fn position(&self) -> OrderedState {
        OrderedState { order: self.order.state(), taken_in: self.taken_in }
    }

    fn seek(&mut self, position: OrderedState) -> Result<(), Error> {
        if position.taken_in && self.take_in()? == 0 {
            return Err(Error::other(format!(
                "the order cannot go to {position:?}: rows that it was to keep back had been taken in there, and it keeps none"
            )));
        }
        self.order.resume(position.order)
    }

    fn take_in(&mut self) -> Result<usize, Error> {
        if self.kept_back == 0 {
            return Ok(0);
        }
        let rows: Vec<usize> = (0..self.examples.len()).collect();
        self.order =
            ordered(&self.examples, &rows, self.order.config(), self.seed ^ TAKEN_IN_SALT)?;
        self.answers = answers(&self.examples, rows.len());
        (self.rows, self.taken_in) = (rows, true);
        Ok(self.kept_back)
    }
}

/// Answers of the first `n` examples.
fn answers(examples: &impl LabelledExamples, n: usize) -> usize {
    (0..n).map(|index| examples.answers(index)).sum()
}

/// An order over some of the examples.
fn ordered<E: LabelledExamples>(
    examples: &E,
    rows: &[usize],
    config: OrderConfig,
    seed: u64,
) -> Result<EpochOrder, Error> {
    let sizes: Vec<usize> = rows.iter().map(|&row| examples.size(row)).collect();
    EpochOrder::new(NoiseKey::new(seed), &sizes, config)
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

        fn input(&self, indices: &[usize]) -> Result<Vec<usize>, Error> {
            Ok(indices.iter().map(|&index| self.0[index]).collect())
        }
    }

    impl LabelledExamples for Texts {
        fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
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

    #[test]
    fn rows_kept_back_wait_and_then_all_take_part() {
        let texts = Texts((0..40).collect());
        let make = || {
            let order = Ordered::new(&texts, OrderConfig::shuffled(4), 3).unwrap();
            order.holding_out(6).unwrap()
        };
        let seen = |source: &mut Ordered<&Texts>, steps: usize| -> Vec<usize> {
            (0..steps).flat_map(|_| source.next_step().unwrap().remove(0).input).collect()
        };
        for steps in [1, 3, 25] {
            let mut source = make();
            assert!(seen(&mut source, 12).iter().all(|&row| row < 34));
            assert_eq!((source.n_train(), source.position().taken_in), (34, false));
            assert_eq!(source.take_in().unwrap(), 6);
            assert_eq!((source.n_train(), source.position().taken_in), (40, true));
            let told = serde_json::to_string(&source.position()).unwrap();
            let mut resumed = make();
            resumed.seek(serde_json::from_str(&told).unwrap()).unwrap();
            let rows = seen(&mut source, steps);
            assert_eq!(seen(&mut resumed, steps), rows);
            assert_eq!(resumed.position(), source.position());
            // Few steps see rows of both kinds, an epoch every row once.
            let kept_back = rows.iter().filter(|&&row| row >= 34).count();
            assert!(steps == 1 || (1..rows.len() / 2).contains(&kept_back), "{rows:?}");
            let times = |row: usize| rows.iter().filter(|&&seen| seen == row).count();
            assert!(steps < 25 || (0..40).all(|row| (2..=3).contains(&times(row))), "{rows:?}");
        }
        // Nothing is taken in where nothing was kept back.
        let mut plain = Ordered::new(&texts, OrderConfig::shuffled(4), 3).unwrap();
        assert_eq!((plain.take_in().unwrap(), plain.position().taken_in), (0, false));
        let taken_in = OrderedState { taken_in: true, ..plain.position() };
        assert!(plain.seek(taken_in).unwrap_err().to_string().contains("keeps none"));
        assert!(plain.holding_out(40).is_err());
    }
}
