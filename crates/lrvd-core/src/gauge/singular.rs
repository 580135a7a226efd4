//! The gauge in which the components of an update are its singular directions.

use crate::error::{ShapeError, check_length};
use crate::factor::FactorView;
use crate::numeric::dense::{times, times_transposed};
use crate::numeric::svd;

/// An update as the sum of its singular directions, each shared evenly between both factors.
#[derive(Debug, Clone, PartialEq)]
pub struct SingularFactors {
    /// Singular values of `ΔW`, largest first, `[rank]`; zero beyond the rank that it really has.
    pub values: Vec<f64>,
    /// `√ς_k · v_k`, rank-major `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `√ς_k · u_k`, rank-major `[rank, d_output]`.
    pub b: Vec<f64>,
}

/// Turns rank-major factors to the singular directions of their product.
///
/// # Formula
///
/// ```text
/// ΔW = Σ_k outer(b[k], a[k]) = Σ_k ς_k · outer(u_k, v_k)
/// a'[k] = √ς_k · v_k,   b'[k] = √ς_k · u_k
/// ```
///
/// # Errors
///
/// [`ShapeError::Length`] if the ranks of the factors differ. Rank 0 is legal.
///
/// # Invariants
///
/// `ΔW` is unchanged. No other factors of the same product have a smaller `‖A‖² + ‖B‖²`, which is here
/// `2·Σ ς_k`: of all gauges, a Gaussian prior with one width for both factors likes this one best.
pub fn singular_factors(
    a: FactorView<'_>,
    b: FactorView<'_>,
) -> Result<SingularFactors, ShapeError> {
    check_length("rows of b", b.rank(), a.rank())?;
    let (rank, d_input, d_output) = (a.rank(), a.width(), b.width());
    let (of_a, of_b) = (svd(a.values(), rank, d_input), svd(b.values(), rank, d_output));
    let (n_a, n_b) = (of_a.values.len(), of_b.values.len());
    // ΔW = Vbᵀ·(Sb·Ub·Uaᵀ·Sa)·Va with vectors as rows: only the small middle is left to decompose.
    let mut middle = times_transposed(&of_b.left, &of_a.left, n_b, rank, n_a);
    for (i, row) in middle.chunks_mut(n_a.max(1)).enumerate() {
        for (value, scale) in row.iter_mut().zip(&of_a.values) {
            *value *= of_b.values[i] * scale;
        }
    }
    let inner = svd(&middle, n_b, n_a);
    let n = inner.values.len();
    let mut a = times(&inner.right, &of_a.right, n, n_a, d_input);
    let mut b = times(&inner.left, &of_b.right, n, n_b, d_output);
    for (k, value) in inner.values.iter().enumerate() {
        let root = value.sqrt();
        a[k * d_input..(k + 1) * d_input].iter_mut().for_each(|v| *v *= root);
        b[k * d_output..(k + 1) * d_output].iter_mut().for_each(|v| *v *= root);
    }
    let mut values = inner.values;
    values.resize(rank, 0.0);
    a.resize(rank * d_input, 0.0);
    b.resize(rank * d_output, 0.0);
    Ok(SingularFactors { values, a, b })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::transposed_times;

    fn turned(a: &[f64], b: &[f64], rank: usize) -> SingularFactors {
        let a = FactorView::new("a", a, rank, a.len() / rank).unwrap();
        singular_factors(a, FactorView::new("b", b, rank, b.len() / rank).unwrap()).unwrap()
    }

    fn close(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        for (f, w) in found.iter().zip(wanted) {
            assert!((f - w).abs() < 1e-12, "{found:?} and {wanted:?}");
        }
    }

    #[test]
    fn one_direction_on_two_ranks_becomes_one() {
        // ΔW = outer((1, 0), (3, 4)) + outer((1, 0), (3, 4)): one direction of length 2·5.
        let found = turned(&[3.0, 4.0, 3.0, 4.0], &[1.0, 0.0, 1.0, 0.0], 2);
        close(&found.values, &[10.0, 0.0]);
        let root = 10_f64.sqrt();
        close(
            &found.a.iter().map(|v| v.abs()).collect::<Vec<_>>(),
            &[0.6 * root, 0.8 * root, 0.0, 0.0],
        );
        close(&found.b.iter().map(|v| v.abs()).collect::<Vec<_>>(), &[root, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_update_stays_and_its_parts_are_orthogonal_and_balanced() {
        // Wider and narrower than the rank, and unbalanced.
        for (rank, d_input, d_output) in [(3, 5, 4), (4, 2, 6), (4, 6, 3), (1, 4, 4)] {
            let number = |i: usize| ((i * i + 3 * i) % 11) as f64 - 4.5;
            let a: Vec<f64> = (0..rank * d_input).map(number).collect();
            let b: Vec<f64> = (0..rank * d_output).map(|i| 0.01 * number(i + 5)).collect();
            let found = turned(&a, &b, rank);
            let before = transposed_times(&b, &a, rank, d_output, d_input);
            close(&transposed_times(&found.b, &found.a, rank, d_output, d_input), &before);
            for factor in [(&found.a, d_input), (&found.b, d_output)] {
                let gram = times_transposed(factor.0, factor.0, rank, factor.1, rank);
                for i in 0..rank {
                    for j in 0..rank {
                        let wanted = if i == j { found.values[i] } else { 0.0 };
                        assert!((gram[i * rank + j] - wanted).abs() < 1e-12);
                    }
                }
            }
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn rank_zero_and_other_ranks() {
        let none = FactorView::new("a", &[], 0, 3).unwrap();
        assert!(singular_factors(none, none).unwrap().values.is_empty());
        let one = FactorView::new("b", &[1.0], 1, 1).unwrap();
        assert!(singular_factors(none, one).is_err());
    }
}
