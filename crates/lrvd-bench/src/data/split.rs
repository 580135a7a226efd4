//! Which rows take part: drawn by a seed, held out of training, or validated on.

use std::path::{Path, PathBuf};

use anyhow::bail;
use lrvd_core::noise::{NoiseKey, Stream, permutation};

use crate::error::Result;

/// Mixed into the run's seed, so that the rows held out are no order of an epoch.
const HOLDOUT_SALT: u64 = 0x484f_4c44_4f55_5421;

/// `count` of the `rows`, and the others, drawn by `seed`; both in their order. Seed 0 is for what is drawn once and for
/// all runs.
pub(super) fn drawn<T>(rows: Vec<T>, count: usize, seed: u64) -> (Vec<T>, Vec<T>) {
    let order = permutation(NoiseKey::new(seed).on_stream(Stream::DATA), rows.len());
    let mut is_drawn = vec![false; rows.len()];
    order[..count.min(rows.len())].iter().for_each(|&row| is_drawn[row] = true);
    let mut is_drawn = is_drawn.into_iter();
    rows.into_iter().partition(|_| is_drawn.next().unwrap_or(false))
}

/// How many of `rows` a `share` of them is; one row is left at least.
pub(crate) fn held_out_rows(rows: usize, share: f64) -> usize {
    let expected = (share * rows as f64).round() as usize;
    expected.min(rows.saturating_sub(1))
}

/// The `rows` less `share` of them, and those, drawn by `seed`; both in their order. One row stays at least.
pub(crate) fn held_out<T>(rows: Vec<T>, share: f64, seed: u64) -> (Vec<T>, Vec<T>) {
    let expected = held_out_rows(rows.len(), share);
    let (held, rest) = drawn(rows, expected, seed ^ HOLDOUT_SALT);
    (rest, held)
}

/// The rows of a run in their order and the number of those, at its end, that take part once they have cut the ranks: all of
/// `holdout`, or none of it where something `is_fitted_to` them afterwards.
pub(crate) fn in_order<T: Clone>(
    train: &[T],
    holdout: &[T],
    is_fitted_to: bool,
) -> (Vec<T>, usize) {
    let waiting = if is_fitted_to { &[] } else { holdout };
    ([train, waiting].concat(), waiting.len())
}

#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    File(PathBuf),
    /// This share of the training file's rows, drawn once, the same ones for every seed.
    Share(f64),
}

impl Validation {
    pub(super) fn share(&self) -> Option<f64> {
        match self {
            Self::Share(share) => Some(*share),
            Self::File(_) => None,
        }
    }

    /// Rows to train on, and a `share` of them all to validate on.
    pub(super) fn split<T>(file: &Path, rows: Vec<T>, share: f64) -> Result<(Vec<T>, Vec<T>)> {
        let held = (share * rows.len() as f64).round() as usize;
        if held == 0 || held >= rows.len() {
            bail!(
                "`{}`: {share} of its {} rows leaves none to train on or none to measure on; pass another \
                 `--validation-split`, or `--validation FILE`",
                file.display(),
                rows.len()
            );
        }
        let (validation, train) = drawn(rows, held, 0);
        Ok((train, validation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_its_order_and_is_always_the_same() {
        let sample = |most: usize| drawn((0..100).collect::<Vec<usize>>(), most, 0);
        let (rows, rest) = sample(30);
        assert_eq!((rows.len(), rest.len(), rows.is_sorted()), (30, 70, true));
        assert_eq!(sample(30).0, rows);
        // Not the first ones, and more rows are these and others.
        assert!(rows[29] > 60 && rows.iter().all(|row| sample(60).0.contains(row)));
        assert_eq!(sample(100).0, (0..100).collect::<Vec<_>>());
    }
}
