//! A factor that is too wide to be stored as a square.

use crate::error::{Error, check_range, count_rows};
use crate::numeric::dense::scaled;
use crate::numeric::svd;

/// Columns kept of a wide factor.
pub const LOW_RANK: usize = 10;
/// Width from which on a factor is kept in this form.
pub const LOW_RANK_FROM: usize = 100;

/// A running approximation `Q·Qᵀ` of `Σ a·aᵀ` with few columns.
///
/// # Formula
///
/// ```text
/// [Q, a_1, …, a_b] = U diag(S) Vᵀ,     Q ← U[:, ..n]·diag(S[..n])
/// ```
///
/// # Shapes
///
/// Columns are kept as rows: `columns` is `Qᵀ`, `[k, width]` with `k ≤ n_columns`.
///
/// # Numerics
///
/// In `f64`, by one-sided Jacobi. Exact as long as the vectors span no more than `n_columns` dimensions; after
/// that every update loses the smallest directions, so the approximation is from below and depends on
/// how the vectors were batched.
///
/// # References
///
/// Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111.
#[derive(Debug, Clone, PartialEq)]
pub struct WideFactor {
    width: usize,
    n_columns: usize,
    columns: Vec<f64>,
}

impl WideFactor {
    /// Nothing gathered yet, with at most `n_columns` columns ([`LOW_RANK`] in the published code).
    pub fn new(width: usize, n_columns: usize) -> Result<Self, Error> {
        check_range("n_columns", n_columns as f64, 1.0, f64::MAX)?;
        Ok(Self { width, n_columns, columns: Vec::new() })
    }

    /// Folds a batch of vectors `[b, width]` in, each scaled by `weight` (the root of a probability).
    pub fn add(&mut self, weight: f64, vectors: &[f64]) -> Result<(), Error> {
        count_rows("vectors", vectors, self.width)?;
        self.columns.extend(vectors.iter().map(|v| weight * v));
        let rows = self.columns.len().checked_div(self.width).unwrap_or(0);
        let parts = svd(&self.columns, rows, self.width);
        let kept = parts.values.iter().take(self.n_columns).take_while(|&&s| s > 0.0);
        self.columns = kept
            .zip(parts.right.chunks(self.width.max(1)))
            .flat_map(|(&s, direction)| scaled(direction, s))
            .collect();
        Ok(())
    }

    /// The factor times `weight`, `Q·Qᵀ ← weight·Q·Qᵀ`: the data's scale, applied once at the end.
    #[must_use = "the scaled factor is returned"]
    pub fn scaled_by(&self, weight: f64) -> Result<Self, Error> {
        check_range("weight", weight, 0.0, f64::MAX)?;
        Ok(Self { columns: scaled(&self.columns, weight.sqrt()), ..*self })
    }

    /// The width of the factor.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of columns in use.
    pub fn rank(&self) -> usize {
        self.columns.len().checked_div(self.width).unwrap_or(0)
    }

    /// `Qᵀ`, `[rank, width]`: orthogonal rows, longest first.
    pub fn columns(&self) -> &[f64] {
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::{times_transposed, transposed_times};

    /// Six vectors of width 5 within three dimensions.
    fn vectors() -> Vec<f64> {
        let basis = [1.0, 0.5, -2.0, 0.0, 0.25, 0.0, 1.5, 1.0, -1.0, 0.5, 2.0, 0.0, 0.5, 0.5, -0.5];
        (0..6)
            .flat_map(|n| {
                let at = move |k: usize| ((7 * n * n + 3 * k) as f64).sin();
                (0..5).map(move |j| (0..3).map(|k| at(k) * basis[5 * k + j]).sum())
            })
            .collect()
    }

    fn gram(factor: &WideFactor) -> Vec<f64> {
        transposed_times(factor.columns(), factor.columns(), factor.rank(), 5, 5)
    }

    #[test]
    fn updates_are_exact_within_the_rank_however_they_are_batched() {
        let all = vectors();
        let wanted = transposed_times(&all, &all, 6, 5, 5);
        for batch in [1, 2, 4, 6] {
            let mut factor = WideFactor::new(5, 3).unwrap();
            for part in all.chunks(batch * 5) {
                factor.add(1.0, part).unwrap();
            }
            assert_eq!(factor.rank(), 3);
            for (f, w) in gram(&factor).iter().zip(&wanted) {
                assert!((f - w).abs() < 1e-12, "batches of {batch}: {f} {w}");
            }
            let products = times_transposed(factor.columns(), factor.columns(), 3, 5, 3);
            assert!(products[1].abs() < 1e-12 && products[0] > products[4]);
        }
    }

    #[test]
    fn beyond_the_rank_the_trace_can_only_fall() {
        let all = vectors();
        let trace = |g: &[f64]| (0..5).map(|i| g[6 * i]).sum::<f64>();
        let whole = trace(&transposed_times(&all, &all, 6, 5, 5));
        let mut factor = WideFactor::new(5, 2).unwrap();
        factor.add(1.0, &all).unwrap();
        let best = trace(&gram(&factor));
        assert!(best < whole);
        let mut stepwise = WideFactor::new(5, 2).unwrap();
        for part in all.chunks(5) {
            stepwise.add(1.0, part).unwrap();
        }
        assert!(trace(&gram(&stepwise)) <= best * (1.0 + 1e-12));
    }

    #[test]
    fn weights_scale_the_square() {
        let mut factor = WideFactor::new(2, 1).unwrap();
        factor.add(0.5, &[3.0, 4.0]).unwrap();
        // 0.25·(9, 12; 12, 16), then times 4.
        let factor = factor.scaled_by(4.0).unwrap();
        let found = transposed_times(factor.columns(), factor.columns(), 1, 2, 2);
        for (f, w) in found.iter().zip([9.0, 12.0, 12.0, 16.0]) {
            assert!((f - w).abs() < 1e-14);
        }
        assert!(factor.scaled_by(-1.0).is_err());
        assert!(WideFactor::new(2, 0).is_err());
        let mut factor = WideFactor::new(2, 1).unwrap();
        assert!(factor.add(1.0, &[1.0; 3]).is_err());
        factor.add(1.0, &[0.0; 2]).unwrap();
        assert_eq!((factor.rank(), factor.width()), (0, 2));
    }
}
