//! The row of the relative-embedding table that belongs to two positions.
//!
//! Near positions have a row each; from half the bucket count on, rows cover ranges that widen logarithmically.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};

use crate::error::{Error, Result};

/// Maps the distance between two positions to a row of the relative-embedding table.
///
/// # Formula
///
/// With `r = i - j` (query position minus key position), `m = max_relative_positions`, `b = position_buckets`:
///
/// ```text
/// mid       = b / 2  (rounded down)
/// bucket(r) = r                                                             if |r| <= mid, or without buckets
///           = sign(r)·(ceil(ln(|r|/mid) / ln((m-1)/mid)·(mid-1)) + mid)     otherwise
/// span      = b, or m without buckets
/// row(r)    = clamp(bucket(r) + span, 0, 2·span - 1)
/// ```
///
/// # Numerics
///
/// Logarithms in f64 as the quotient of two calls of the same routine, so that `|r| = m - 1` gives exactly 1 and the
/// bucket does not jump there.
///
/// # Invariants
///
/// `bucket` is odd, and does not fall if `m - 1 > mid`; `row` is in `0..2·span` for every distance, also beyond `m`.
///
/// # References
///
/// He et al., DeBERTa, arXiv:2006.03654, section 3; log buckets as in the authors' v2 code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativePositions {
    buckets: Option<usize>,
    max_relative_positions: usize,
}

impl RelativePositions {
    /// Checks the two settings; `None` means one row for every distance.
    ///
    /// # Errors
    ///
    /// If the range is empty, or there are fewer than 2 buckets, or `m - 1 = mid`, where the formula divides by `ln 1`.
    pub fn new(position_buckets: Option<usize>, max_relative_positions: usize) -> Result<Self> {
        // The table has twice as many rows and its row numbers are i32.
        let limit = i32::MAX as usize / 2;
        let wrong = |expected: String| {
            Err(Error::argument("max_relative_positions", expected, max_relative_positions))
        };
        if max_relative_positions == 0 || max_relative_positions > limit {
            return wrong(format!("1 to {limit}"));
        }
        if let Some(buckets) = position_buckets {
            if !(2..=limit).contains(&buckets) {
                let expected = format!("2 to {limit}, or -1 for none");
                return Err(Error::argument("position_buckets", expected, buckets));
            }
            let singular = buckets / 2 + 1;
            if max_relative_positions == singular {
                return wrong(format!("other than {singular} for {buckets} `position_buckets`"));
            }
        }
        Ok(Self { buckets: position_buckets, max_relative_positions })
    }

    /// The bucket of a distance `r = i - j`; the distance itself without buckets.
    pub fn bucket(&self, relative: i64) -> i64 {
        let Some(buckets) = self.buckets else { return relative };
        let mid = buckets / 2;
        let distance = relative.unsigned_abs();
        if distance <= mid as u64 {
            return relative;
        }
        let middle = mid as f64;
        let quotient = (distance as f64 / middle).ln()
            / ((self.max_relative_positions - 1) as f64 / middle).ln();
        let log_bucket = (quotient * (middle - 1.0)).ceil() + middle;
        relative.signum() * log_bucket as i64
    }

    /// Half the rows of the relative-embedding table.
    pub fn span(&self) -> usize {
        self.buckets.unwrap_or(self.max_relative_positions)
    }

    /// The row of the relative-embedding table for a distance `r = i - j`.
    ///
    /// Position keys and position queries are both read at `row(i - j)`.
    pub fn row(&self, relative: i64) -> i32 {
        let span = self.span() as i64;
        (self.bucket(relative).saturating_add(span)).clamp(0, 2 * span - 1) as i32
    }
}

/// Rows of MPNet's table of biases. transformers reads as many whatever `relative_attention_num_buckets` is.
pub const BIAS_ROWS: usize = 32;

/// The row of MPNet's table of biases for a distance `r = i - j`.
///
/// # Formula
///
/// ```text
/// bucket(r) = |r|                                       if |r| < 8
///           = min(8 + floor(2·log2(|r| / 8)), 15)       otherwise
/// row(r)    = bucket(r) + 16 for a key behind the query, r < 0
/// ```
///
/// # Numerics
///
/// In integers, `2·log2(|r| / 8) = log2(r² / 64)`; transformers takes logarithms in f32, with the same rows for every `r`.
///
/// # References
///
/// Raffel et al. 2020, arXiv:1910.10683, section 2.1; Song et al. 2020, arXiv:2004.09297.
pub fn bias_row(relative: i64) -> i32 {
    let distance = relative.unsigned_abs().min(128) as i32;
    let bucket = match distance {
        0..8 => distance,
        _ => (8 + (distance * distance / 64).ilog2() as i32).min(15),
    };
    bucket + if relative < 0 { 16 } else { 0 }
}

/// The rows of a table of distances (position terms or biases) that a sequence length needs, each once.
#[derive(Clone)]
pub(super) struct Positions {
    /// `[rows, hidden]` or `[rows, heads]`, in the order of the table.
    pub table: Tensor<2>,
    /// Row of each rising offset `i − j` from `−(L−1)`, `2L−1` of them.
    pub rows: Arc<[u32]>,
}

impl Positions {
    /// Of a table whose row for a distance `i − j` is `row(i − j)`.
    pub(super) fn new(table: Tensor<2>, tokens: usize, row: impl Fn(i64) -> i32) -> Self {
        let last = tokens as i64 - 1;
        let offsets: Vec<i32> = (-last..=last).map(row).collect();
        let used: Vec<i32> = offsets.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let place = |row: &i32| used.partition_point(|other| other < row) as u32;
        let rows = offsets.iter().map(place).collect();
        if used.len() == table.dims()[0] {
            return Self { table, rows };
        }
        let count = used.len();
        let device = table.device().inner();
        let used = Tensor::<1, Int>::from_data(TensorData::new(used, [count]), &device);
        Self { table: table.select(0, used), rows }
    }
}
