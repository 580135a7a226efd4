//! The order in which training sees its examples, resumable at any batch.

use lrvd_core::noise::{Generator, NoiseKey, Stream, permutation};
use serde::{Deserialize, Serialize};

use super::data::{Batch, Examples, Targets};
use crate::error::Error;

/// Common property of the examples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Bucketing {
    /// Nothing: plain uniform shuffling, as a stock data loader does.
    #[default]
    Shuffled,
    /// Like lengths, hence less padding: the shuffled order is cut into windows of this many batches, each window
    /// is sorted by length and cut into batches, and the batches of the epoch are shuffled again.
    LengthBucketed {
        /// Batches in a window; 1 sorts within each batch only.
        window: usize,
    },
    /// The order of the file in every epoch, as one published protocol has it: seeds then differ in
    /// initial values and noise only.
    FileOrder,
}

/// Treatment of the examples that do not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// They form a smaller batch.
    #[default]
    Keep,
    /// They are left out of this epoch; the next one shuffles anew.
    Drop,
}

/// Rules by which training batches are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderConfig {
    /// Examples in a batch; at least 1.
    pub batch_size: usize,
    /// Common property of the examples of a batch.
    pub bucketing: Bucketing,
    /// The incomplete batch.
    pub last_batch: LastBatch,
    /// Micro-batches of like lengths that a batch is cut into, which are padded less than the whole; a divisor of
    /// `batch_size`. The examples of a step are the same, and so is the mean of its gradients.
    pub accumulation: usize,
}

impl OrderConfig {
    /// Plain shuffling of all examples, last batch kept, one batch a step.
    pub const fn shuffled(batch_size: usize) -> Self {
        Self {
            batch_size,
            bucketing: Bucketing::Shuffled,
            last_batch: LastBatch::Keep,
            accumulation: 1,
        }
    }

    /// All batches of one epoch over examples of `sizes`: a pure function of `seed`, sizes and epoch.
    ///
    /// Every example occurs at most once, and exactly once with [`LastBatch::Keep`].
    pub fn batches(&self, seed: u64, sizes: &[usize], epoch: u32) -> Vec<Vec<usize>> {
        let key = NoiseKey::new(seed).on_stream(Stream::SHUFFLE).at_step(epoch);
        let mut order = match self.bucketing {
            Bucketing::FileOrder => (0..sizes.len()).collect(),
            _ => permutation(key, sizes.len()),
        };
        let size = self.batch_size;
        if self.last_batch == LastBatch::Drop {
            order.truncate(order.len() / size * size);
        }
        if let Bucketing::LengthBucketed { window } = self.bucketing {
            for bucket in order.chunks_mut(size.saturating_mul(window)) {
                // Stable, so that equal lengths keep their shuffled order.
                bucket.sort_by_key(|&index| sizes[index]);
            }
        }
        let mut batches: Vec<_> = order.chunks(size).map(<[usize]>::to_vec).collect();
        if matches!(self.bucketing, Bucketing::LengthBucketed { .. }) {
            // Another use index: the words that shuffled the examples are spent.
            Generator::new(key.with_use(1)).shuffle(&mut batches);
        }
        batches
    }
}

/// Position in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OrderState {
    /// Epoch, counted from 0.
    pub epoch: u32,
    /// Batches of this epoch that were given out.
    pub next_batch: usize,
}

/// An endless sequence of training steps over examples in memory, whose position can be stored: from the same position the
/// same batches follow.
pub struct Ordered<'a, I> {
    examples: &'a dyn Examples<Input = I>,
    config: OrderConfig,
    seed: u64,
    position: OrderState,
    /// Batches of the epoch.
    batches: Vec<Vec<usize>>,
}

impl<'a, I> Ordered<'a, I> {
    /// `examples` in an order that `seed` fixes, at the start of epoch 0.
    pub fn new(
        examples: &'a dyn Examples<Input = I>,
        config: OrderConfig,
        seed: u64,
    ) -> Result<Self, Error> {
        let OrderConfig { batch_size, accumulation, .. } = config;
        if batch_size == 0 {
            return Err(zero("batch_size"));
        }
        if config.bucketing == (Bucketing::LengthBucketed { window: 0 }) {
            return Err(zero("window"));
        }
        if accumulation == 0 || !batch_size.is_multiple_of(accumulation) {
            let expected = format!("a divisor of `batch_size`, which is {batch_size}");
            return Err(Error::argument("accumulation", expected, accumulation));
        }
        let found = examples.len();
        let expected = if config.last_batch == LastBatch::Keep { 1 } else { batch_size };
        if found < expected {
            let expected = format!("at least {expected} for a batch");
            return Err(Error::argument("examples", expected, found));
        }
        let (position, batches) = (OrderState::default(), Vec::new());
        let mut order = Self { examples, config, seed, position, batches };
        order.enter(position);
        Ok(order)
    }

    fn enter(&mut self, position: OrderState) {
        self.batches = self.config.batches(self.seed, &self.examples.sizes(), position.epoch);
        self.position = position;
    }

    /// Number of answers in the training examples, one each unless they are tokens: what a divergence may be divided by,
    /// as the likelihood is averaged over answers.
    pub fn n_train(&self) -> usize {
        (0..self.examples.len()).map(|index| self.examples.answers(index)).sum()
    }

    /// [Variance](Targets::variance) of the scores of the training examples.
    pub fn score_variance(&self) -> Result<Option<f64>, Error> {
        let is_scores =
            !self.examples.is_empty() && matches!(self.examples.targets(&[0])?, Targets::Scores(_));
        Ok(if is_scores { self.examples.all_targets()?.variance() } else { None })
    }

    /// The micro-batches of the next step, whose gradients are summed.
    pub fn next_step(&mut self) -> Result<Vec<Batch<I>>, Error> {
        let OrderState { epoch, next_batch } = self.position;
        let mut indices = std::mem::take(&mut self.batches[next_batch]);
        self.position.next_batch += 1;
        if self.position.next_batch == self.batches.len() {
            self.enter(OrderState { epoch: epoch.wrapping_add(1), next_batch: 0 });
        }
        let accumulation = self.config.accumulation;
        if accumulation > 1 {
            // Stable, so that equal lengths keep their shuffled order.
            indices.sort_by_key(|&index| self.examples.size(index));
        }
        // The last batch of an epoch may be smaller; its parts are as equal as can be.
        let part = indices.len().div_ceil(accumulation).max(1);
        if part >= indices.len() {
            return Ok(vec![self.examples.batch(&indices)?]);
        }
        // Targets of the whole step: weights of its examples are relative to each other.
        let targets = self.examples.targets(&indices)?;
        let of_part = |(number, rows): (usize, &[usize])| {
            let places: Vec<usize> = (number * part..).take(rows.len()).collect();
            self.examples.batch_with(rows, targets.select(&places))
        };
        indices.chunks(part).enumerate().map(of_part).collect()
    }

    /// The present position; the end of an epoch is the start of the next.
    pub fn position(&self) -> OrderState {
        self.position
    }

    /// Continues from `position`.
    pub fn seek(&mut self, position: OrderState) -> Result<(), Error> {
        self.enter(position);
        let (next, expected) = (position.next_batch, self.batches.len());
        if next >= expected {
            let what = format!("resumes at batch {next}, but an epoch has {expected} batches");
            return Err(Error::Checkpoint { entry: "order".to_owned(), what });
        }
        Ok(())
    }
}

/// Batches of like size: indices sorted by size, equal sizes in the order of the examples, cut into runs of `batch_size`, which
/// is at least 1.
pub fn evaluation_batches(sizes: &[usize], batch_size: usize) -> Result<Vec<Vec<usize>>, Error> {
    if batch_size == 0 {
        return Err(zero("batch_size"));
    }
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|index| sizes[*index]);
    Ok(order.chunks(batch_size).map(<[usize]>::to_vec).collect())
}

/// Values in the order of the examples from values in the order of `batches`.
pub fn restore_order<T>(batches: &[Vec<usize>], values: Vec<T>) -> Result<Vec<T>, Error> {
    let (expected, found) = (batches.iter().map(Vec::len).sum::<usize>(), values.len());
    if found != expected {
        return Err(lrvd_core::Error::length("values", found, expected).into());
    }
    let mut pairs: Vec<(usize, T)> = batches.concat().into_iter().zip(values).collect();
    pairs.sort_by_key(|(index, _)| *index);
    Ok(pairs.into_iter().map(|(_, value)| value).collect())
}

fn zero(name: &'static str) -> Error {
    Error::argument(name, "at least 1", 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Tensor};

    use super::*;

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

        fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
            Ok(Targets::Scores(Tensor::zeros([indices.len(), 1], &Device::default())))
        }
    }

    #[test]
    fn settings_and_positions_are_checked_at_their_limits() {
        let make = |n, config| Ordered::new(Box::leak(Box::new(Texts(vec![1; n]))), config, 0);
        let shuffled = OrderConfig::shuffled(4);
        let drop = OrderConfig { last_batch: LastBatch::Drop, ..shuffled };
        assert!(make(4, drop).is_ok());
        let flat = OrderConfig { bucketing: Bucketing::LengthBucketed { window: 0 }, ..shuffled };
        let parts = |accumulation| OrderConfig { accumulation, ..shuffled };
        for (n, config, expected) in [
            (3, drop, "`examples` should be at least 4 for a batch, found 3"),
            (0, shuffled, "`examples` should be at least 1 for a batch, found 0"),
            (3, OrderConfig::shuffled(0), "`batch_size` should be at least 1, found 0"),
            (3, flat, "`window` should be at least 1, found 0"),
            (
                3,
                parts(0),
                "`accumulation` should be a divisor of `batch_size`, which is 4, found 0",
            ),
            (
                3,
                parts(3),
                "`accumulation` should be a divisor of `batch_size`, which is 4, found 3",
            ),
        ] {
            assert_eq!(make(n, config).err().unwrap().to_string(), expected);
        }
        let mut order = make(9, shuffled).unwrap();
        let mut seek = |next_batch| {
            let error = order.seek(OrderState { epoch: 5, next_batch }).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(seek(2), "");
        assert_eq!(
            seek(3),
            "checkpoint entry `order` resumes at batch 3, but an epoch has 3 batches"
        );
    }

    #[test]
    fn batches_are_sorted_by_size_and_order_comes_back() {
        let sizes = [9, 3, 7, 3, 12, 1, 7];
        let batches = evaluation_batches(&sizes, 3).unwrap();
        assert_eq!(batches, [vec![5, 1, 3], vec![2, 6, 0], vec![4]]);
        let in_batch_order = || batches.concat().into_iter().map(|index| sizes[index]).collect();
        assert_eq!(restore_order(&batches, in_batch_order()).unwrap(), sizes);
        let short = restore_order(&batches[1..], in_batch_order()).unwrap_err();
        assert_eq!(short.to_string(), "`values` has length 7, expected 4");
        let zero = evaluation_batches(&[1], 0).unwrap_err();
        assert_eq!(zero.to_string(), "`batch_size` should be at least 1, found 0");
    }

    #[test]
    fn micro_batches_are_of_like_lengths_and_hold_the_rows_of_their_batch() {
        let texts = Texts((0..36).map(|i| 5 + (i * 7919) % 31).collect());
        let steps = |accumulation| -> Vec<Vec<usize>> {
            let config = OrderConfig { accumulation, ..OrderConfig::shuffled(8) };
            let mut order = Ordered::new(&texts, config, 3).unwrap();
            let batches = (0..10).map(|_| order.next_step().unwrap());
            batches.map(|parts| parts.into_iter().flat_map(|batch| batch.input).collect()).collect()
        };
        for (mut whole, parts) in steps(1).into_iter().zip(steps(4)) {
            assert!(parts.is_sorted() && !whole.is_sorted(), "{parts:?} {whole:?}");
            whole.sort_unstable();
            assert_eq!(parts, whole);
        }
    }
}
