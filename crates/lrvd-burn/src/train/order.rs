//! The order in which training sees its examples, resumable at any batch.
//!
//! The order of epoch `e` is a pure function of the key and `e`; a position within it is one number. A run
//! that stores an [`OrderState`] therefore continues with exactly the batches it would have seen.

use lrvd_core::noise::{Draws, NoiseKey, Stream, permutation};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::data::{Batch, LabelledExamples};
use crate::error::Error;

/// What a batch has in common.
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

/// What happens to the examples that do not fill a batch.
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

/// How training batches are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderConfig {
    /// Examples in a batch; at least 1.
    pub batch_size: usize,
    /// What a batch has in common.
    #[serde(default)]
    pub bucketing: Bucketing,
    /// The incomplete batch.
    #[serde(default)]
    pub last_batch: LastBatch,
}

impl OrderConfig {
    /// Plain shuffling, last batch kept.
    pub const fn shuffled(batch_size: usize) -> Self {
        Self { batch_size, bucketing: Bucketing::Shuffled, last_batch: LastBatch::Keep }
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

/// An endless sequence of training batches.
///
/// Within an epoch every example occurs at most once, and exactly once with [`LastBatch::Keep`]. Two orders of
/// the same key, lengths and configuration give the same batches from the same [`OrderState`].
#[derive(Debug, Clone)]
pub struct EpochOrder {
    key: NoiseKey,
    lengths: Vec<usize>,
    config: OrderConfig,
    state: OrderState,
    batches: Vec<Vec<usize>>,
}

impl EpochOrder {
    /// An order at the start of epoch 0.
    ///
    /// `lengths[i]` is the size of example `i`; plain shuffling uses only how many there are. The
    /// stream of `key` is set to [`Stream::SHUFFLE`] and its step to the epoch.
    pub fn new(key: NoiseKey, lengths: &[usize], config: OrderConfig) -> Result<Self, Error> {
        if config.batch_size == 0 {
            return Err(zero("batch_size"));
        }
        if config.bucketing == (Bucketing::LengthBucketed { window: 0 }) {
            return Err(zero("window"));
        }
        let expected = match config.last_batch {
            LastBatch::Keep => 1,
            LastBatch::Drop => config.batch_size,
        };
        if lengths.len() < expected {
            return Err(Error::Argument(format!(
                "{} examples make no batch, expected at least {expected}",
                lengths.len()
            )));
        }
        let mut order = Self {
            key: key.on_stream(Stream::SHUFFLE),
            lengths: lengths.to_vec(),
            config,
            state: OrderState::default(),
            batches: Vec::new(),
        };
        order.batches = order.batches_of(0);
        Ok(order)
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        match self.config.last_batch {
            LastBatch::Keep => self.lengths.len().div_ceil(self.config.batch_size),
            LastBatch::Drop => self.lengths.len() / self.config.batch_size,
        }
    }

    /// The present position; the end of an epoch is the start of the next.
    pub const fn state(&self) -> OrderState {
        self.state
    }

    /// Continues from `state`.
    pub fn resume(&mut self, state: OrderState) -> Result<(), Error> {
        let expected = self.batches_per_epoch();
        if state.next_batch >= expected {
            return Err(Error::State(format!(
                "order resumes at batch {}, but an epoch has {expected} batches",
                state.next_batch
            )));
        }
        self.batches = self.batches_of(state.epoch);
        self.state = state;
        Ok(())
    }

    /// Example indices of the next batch; enters the next epoch where one ends.
    pub fn next_batch(&mut self) -> Vec<usize> {
        let batch = std::mem::take(&mut self.batches[self.state.next_batch]);
        self.state.next_batch += 1;
        if self.state.next_batch == self.batches.len() {
            self.state = OrderState { epoch: self.state.epoch.wrapping_add(1), next_batch: 0 };
            self.batches = self.batches_of(self.state.epoch);
        }
        batch
    }

    /// All batches of one epoch, whatever the position.
    pub fn batches_of(&self, epoch: u32) -> Vec<Vec<usize>> {
        let size = self.config.batch_size;
        let key = self.key.at_step(epoch);
        let mut order = match self.config.bucketing {
            Bucketing::FileOrder => (0..self.lengths.len()).collect(),
            _ => permutation(key, self.lengths.len()),
        };
        if self.config.last_batch == LastBatch::Drop {
            order.truncate(order.len() / size * size);
        }
        match self.config.bucketing {
            Bucketing::Shuffled | Bucketing::FileOrder => {
                order.chunks(size).map(<[usize]>::to_vec).collect()
            }
            Bucketing::LengthBucketed { window } => {
                for bucket in order.chunks_mut(size.saturating_mul(window)) {
                    // Stable, so that equal lengths keep their shuffled order.
                    bucket.sort_by_key(|index| self.lengths[*index]);
                }
                let mut batches: Vec<Vec<usize>> =
                    order.chunks(size).map(<[usize]>::to_vec).collect();
                // Another use index: the words that shuffled the examples are spent.
                Draws::new(key.with_use(1)).shuffle(&mut batches);
                batches
            }
        }
    }
}

/// An endless source of training steps, whose position can be stored: a source that was moved to a position gives the
/// batches that followed it.
pub trait Batches {
    /// Input of the model.
    type Input;
    /// A position in the source.
    type Position: Serialize + DeserializeOwned;

    /// Number of answers in the training examples, one each unless they are tokens: what a divergence may be divided by,
    /// as the likelihood is averaged over answers.
    fn n_train(&self) -> usize;

    /// The micro-batches of the next step, whose gradients are summed.
    fn next_step(&mut self) -> Result<Vec<Batch<Self::Input>>, Error>;

    /// The present position.
    fn position(&self) -> Self::Position;

    /// Moves to `position`.
    fn seek(&mut self, position: Self::Position) -> Result<(), Error>;

    /// Adds rows that were held out to the others, from a new epoch on. Returns how many there are.
    fn merge_holdout(&mut self) -> Result<usize, Error> {
        Ok(0)
    }
}

/// Mixed into the seed of the order of all rows, once the held-out ones are among them.
const MERGED_SALT: u64 = 0x5441_4b45_4e49_4e21;

/// Examples in memory, in the order of an [`EpochOrder`].
#[derive(Clone, Debug)]
pub struct Ordered<E> {
    examples: E,
    seed: u64,
    /// Over the first examples: all, or all but the held-out ones.
    order: EpochOrder,
    /// Their answers.
    answers: usize,
    accumulation: usize,
    /// Whether held-out examples were added.
    merged: bool,
}

/// Position of [`Ordered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedState {
    /// Epoch and batch.
    #[serde(flatten)]
    pub order: OrderState,
    /// Whether held-out rows were added to the others.
    pub merged: bool,
}

impl<E: LabelledExamples> Ordered<E> {
    /// `examples` in an order that `seed` fixes, one batch a step.
    pub fn new(examples: E, config: OrderConfig, seed: u64) -> Result<Self, Error> {
        let (order, answers) = of_first(&examples, examples.len(), config, seed)?;
        Ok(Self { examples, seed, order, answers, accumulation: 1, merged: false })
    }

    /// The same, from its start, with the last `n` examples held out until they are [merged](Batches::merge_holdout).
    pub fn holding_out(self, n: usize) -> Result<Self, Error> {
        let n = self.examples.len().saturating_sub(n);
        let (order, answers) = of_first(&self.examples, n, self.order.config, self.seed)?;
        Ok(Self { order, answers, ..self })
    }

    /// The same with every batch cut into `accumulation` micro-batches of like lengths, which are padded less than the whole
    /// batch. The examples of a step are the same, and so is the mean of its gradients.
    pub fn accumulating(self, accumulation: usize) -> Result<Self, Error> {
        let batch_size = self.order.config.batch_size;
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
        let mut indices = self.order.next_batch();
        if self.accumulation > 1 {
            // Stable, so that equal lengths keep their shuffled order.
            indices.sort_by_key(|&index| self.examples.size(index));
        }
        // The last batch of an epoch may be smaller; its parts are as equal as can be.
        let part = indices.len().div_ceil(self.accumulation).max(1);
        indices.chunks(part).map(|part| self.examples.batch(part)).collect()
    }

    fn position(&self) -> OrderedState {
        OrderedState { order: self.order.state, merged: self.merged }
    }

    fn seek(&mut self, position: OrderedState) -> Result<(), Error> {
        if position.merged && !self.merged && self.merge_holdout()? == 0 {
            return Err(Error::other(format!(
                "the order cannot go to {position:?}: held-out rows had been added there, and it holds none out"
            )));
        }
        self.order.resume(position.order)
    }

    fn merge_holdout(&mut self) -> Result<usize, Error> {
        let all = self.examples.len();
        let held_out = all - self.order.lengths.len();
        if held_out > 0 {
            let seed = self.seed ^ MERGED_SALT;
            (self.order, self.answers) = of_first(&self.examples, all, self.order.config, seed)?;
            self.merged = true;
        }
        Ok(held_out)
    }
}

/// An order over the first `n` examples, and the number of their answers.
fn of_first<E: LabelledExamples>(
    examples: &E,
    n: usize,
    config: OrderConfig,
    seed: u64,
) -> Result<(EpochOrder, usize), Error> {
    let sizes = &examples.sizes()[..n];
    let answers = (0..n).map(|index| examples.answers(index)).sum();
    Ok((EpochOrder::new(NoiseKey::new(seed), sizes, config)?, answers))
}

/// Batches of like size: indices sorted by size, equal sizes in the order of the examples, cut into runs.
///
/// No examples give no batches.
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
        return Err(Error::Shape(format!(
            "the batches have {expected} examples, found {found} values"
        )));
    }
    let mut pairs: Vec<(usize, T)> = batches.concat().into_iter().zip(values).collect();
    pairs.sort_by_key(|(index, _)| *index);
    Ok(pairs.into_iter().map(|(_, value)| value).collect())
}

fn zero(name: &str) -> Error {
    Error::Argument(format!("`{name}` is 0, expected at least 1"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::train::{Examples, Targets};

    const BUCKETED: Bucketing = Bucketing::LengthBucketed { window: 5 };

    fn lengths(n: usize) -> Vec<usize> {
        (0..n).map(|i| 5 + (i * 7919) % 31).collect()
    }

    fn config(bucketing: Bucketing, last_batch: LastBatch) -> OrderConfig {
        OrderConfig { batch_size: 4, bucketing, last_batch }
    }

    /// `n` examples in batches of 4.
    fn order(seed: u64, n: usize, bucketing: Bucketing, last_batch: LastBatch) -> EpochOrder {
        EpochOrder::new(NoiseKey::new(seed), &lengths(n), config(bucketing, last_batch)).unwrap()
    }

    #[test]
    fn an_epoch_holds_every_example_once() {
        let (keep, drop) = ((LastBatch::Keep, 26, 103), (LastBatch::Drop, 25, 100));
        for (bucketing, (last_batch, n_batches, n_examples)) in
            [Bucketing::Shuffled, BUCKETED].into_iter().flat_map(|b| [(b, keep), (b, drop)])
        {
            let order = order(3, 103, bucketing, last_batch);
            for epoch in [0, 1, 9] {
                let batches = order.batches_of(epoch);
                assert_eq!((batches.len(), order.batches_per_epoch()), (n_batches, n_batches));
                let small = batches.iter().filter(|batch| batch.len() < 4).count();
                assert_eq!(small, usize::from(last_batch == LastBatch::Keep));
                let seen: BTreeSet<usize> = batches.concat().into_iter().collect();
                assert_eq!(seen.len(), n_examples);
            }
        }
    }

    #[test]
    fn epochs_and_seeds_differ_and_repeat() {
        let batches = |seed, epoch| order(seed, 50, BUCKETED, LastBatch::Keep).batches_of(epoch);
        assert_eq!(batches(1, 2), batches(1, 2));
        assert_ne!(batches(1, 2), batches(1, 3));
        assert_ne!(batches(1, 2), batches(2, 2));
    }

    #[test]
    fn a_resumed_order_continues_with_the_same_batches() {
        for bucketing in [Bucketing::Shuffled, BUCKETED] {
            let mut whole = order(8, 30, bucketing, LastBatch::Keep);
            // 8 batches an epoch: the cut at 8 is exactly between two epochs.
            for cut in 0..20 {
                let mut resumed = order(8, 30, bucketing, LastBatch::Keep);
                resumed.resume(whole.state()).unwrap();
                assert_eq!(whole.state().epoch as usize, cut / 8);
                assert_eq!(resumed.next_batch(), whole.next_batch());
                assert_eq!(resumed.state(), whole.state());
            }
        }
    }

    #[test]
    fn buckets_save_padding_and_stay_shuffled() {
        let lengths = lengths(400);
        let padding = |bucketing| {
            let batches = order(4, 400, bucketing, LastBatch::Keep).batches_of(0);
            let longest: Vec<usize> =
                batches.iter().map(|b| b.iter().map(|i| lengths[*i]).max().unwrap()).collect();
            let padded: usize = batches.iter().zip(&longest).map(|(b, l)| b.len() * l).sum();
            (padded - lengths.iter().sum::<usize>(), longest.is_sorted())
        };
        let (plain, bucketed) = (padding(Bucketing::Shuffled), padding(BUCKETED));
        assert!(bucketed.0 * 3 < plain.0, "{bucketed:?} {plain:?}");
        assert!(!bucketed.1);
    }

    #[test]
    fn settings_and_positions_are_checked_at_their_limits() {
        let make = |n, config| EpochOrder::new(NoiseKey::new(0), &lengths(n), config);
        let drop = config(Bucketing::Shuffled, LastBatch::Drop);
        assert!(make(4, drop).is_ok());
        let flat = config(Bucketing::LengthBucketed { window: 0 }, LastBatch::Keep);
        for (n, config, expected) in [
            (3, drop, "3 examples make no batch, expected at least 4"),
            (0, OrderConfig::shuffled(4), "0 examples make no batch, expected at least 1"),
            (3, OrderConfig::shuffled(0), "`batch_size` is 0, expected at least 1"),
            (3, flat, "`window` is 0, expected at least 1"),
        ] {
            assert_eq!(make(n, config).unwrap_err().to_string(), expected);
        }
        let mut order = make(9, OrderConfig::shuffled(4)).unwrap();
        assert!(order.resume(OrderState { epoch: 5, next_batch: 2 }).is_ok());
        let error = order.resume(OrderState { epoch: 5, next_batch: 3 }).unwrap_err().to_string();
        assert_eq!(error, "order resumes at batch 3, but an epoch has 3 batches");
    }

    #[test]
    fn batches_are_sorted_by_size_and_order_comes_back() {
        let sizes = [9, 3, 7, 3, 12, 1, 7];
        let batches = evaluation_batches(&sizes, 3).unwrap();
        assert_eq!(batches, [vec![5, 1, 3], vec![2, 6, 0], vec![4]]);
        let in_batch_order = || batches.concat().into_iter().map(|index| sizes[index]).collect();
        assert_eq!(restore_order(&batches, in_batch_order()).unwrap(), sizes);
        let short = restore_order(&batches[1..], in_batch_order()).unwrap_err();
        assert_eq!(short.to_string(), "the batches have 4 examples, found 7 values");
        let zero = evaluation_batches(&[1], 0).unwrap_err();
        assert_eq!(zero.to_string(), "`batch_size` is 0, expected at least 1");
        assert!(evaluation_batches(&[], 2).unwrap().is_empty());
    }

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
    fn held_out_rows_are_added_to_the_others() {
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
            assert_eq!((source.n_train(), source.position().merged), (34, false));
            assert_eq!(source.merge_holdout().unwrap(), 6);
            assert_eq!((source.n_train(), source.position().merged), (40, true));
            let stored = serde_json::to_string(&source.position()).unwrap();
            let mut resumed = make();
            resumed.seek(serde_json::from_str(&stored).unwrap()).unwrap();
            let rows = seen(&mut source, steps);
            assert_eq!(seen(&mut resumed, steps), rows);
            assert_eq!(resumed.position(), source.position());
            // Few steps see rows of both kinds, an epoch every row once.
            let held_out = rows.iter().filter(|&&row| row >= 34).count();
            assert!(steps == 1 || (1..rows.len() / 2).contains(&held_out), "{rows:?}");
            let times = |row: usize| rows.iter().filter(|&&seen| seen == row).count();
            assert!(steps < 25 || (0..40).all(|row| (2..=3).contains(&times(row))), "{rows:?}");
        }
        // Without held-out rows nothing is added.
        let mut plain = Ordered::new(&texts, OrderConfig::shuffled(4), 3).unwrap();
        assert_eq!((plain.merge_holdout().unwrap(), plain.position().merged), (0, false));
        let merged = OrderedState { merged: true, ..plain.position() };
        assert!(plain.seek(merged).unwrap_err().to_string().contains("holds none out"));
        assert!(plain.holding_out(40).is_err());
    }
}
