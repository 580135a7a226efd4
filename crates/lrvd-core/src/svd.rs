//! Factors of an update in the basis of its singular directions.
//!
//! The product of the factors does not change under `A → R·A, B → B·R⁻¹` for any invertible `R`. A variational family breaks
//! most of these symmetries: `RankVariance` with distinct variances stays in its family for signed permutations only, and for
//! rotations inside equal variances; `NoiseToSignal` for permutations and rescalings only, even if all its ratios are equal.
//!
//! Source: Doyle et al., arXiv:2506.22809, Theorem 1, for the additive family; the rest is derived.

use crate::error::Error;
use crate::linalg::{svd, times, times_transposed};
use crate::posterior::Factors;

/// An update as the sum of its singular directions, each shared evenly between both factors.
#[derive(Debug, Clone, PartialEq)]
pub struct SingularFactors {
    /// Singular values of `ΔW`, largest first, `[rank]`; zero beyond the rank that it really has.
    pub values: Vec<f64>,
    /// Rows `√ς_k · v_k` of A and columns `√ς_k · u_k` of B.
    pub factors: Factors,
}

/// Rotates factors to the singular directions of their product.
///
/// ```text
/// ΔW = Σ_k outer(b[k], a[k]) = Σ_k ς_k · outer(u_k, v_k)
/// a'[k] = √ς_k · v_k,   b'[k] = √ς_k · u_k
/// ```
///
/// `ΔW` is unchanged. No other factors of the same product have a smaller `‖A‖² + ‖B‖²`, which is here
/// `2·Σ ς_k`: of all gauges this one has the largest density under a Gaussian prior with one width for both factors.
pub fn singular_factors(factors: &Factors) -> Result<SingularFactors, Error> {
    factors.check()?;
    let Factors { rank, d_input, d_output, .. } = *factors;
    let of_a = svd(&factors.a, rank, d_input);
    let of_b = svd(&factors.b_by_rank(), rank, d_output);
    let n_a = of_a.values.len();
    let n_b = of_b.values.len();
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
    let factors = Factors::from_rows([rank, d_input, d_output], a, &b);
    Ok(SingularFactors { values, factors })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{assert_near, factors};

    #[track_caller]
    fn close(found: &[f64], expected: &[f64]) {
        assert_near(found, expected, 1e-12);
    }

    #[test]
    fn one_direction_on_two_ranks_becomes_one() {
        // ΔW = outer((1, 0), (3, 4)) + outer((1, 0), (3, 4)): one direction of length 2·5.
        let found =
            singular_factors(&factors(2, &[3.0, 4.0, 3.0, 4.0], &[1.0, 0.0, 1.0, 0.0])).unwrap();
        close(&found.values, &[10.0, 0.0]);
        let root = 10_f64.sqrt();
        let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
        close(&sizes(&found.factors.a), &[0.6 * root, 0.8 * root, 0.0, 0.0]);
        close(&sizes(&found.factors.b_by_rank()), &[root, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_update_stays_and_its_parts_are_orthogonal_and_balanced() {
        // Wider and narrower than the rank, and unbalanced.
        for (rank, d_input, d_output) in [(3, 5, 4), (4, 2, 6), (4, 6, 3), (1, 4, 4)] {
            let number = |i: usize| ((i * i + 3 * i) % 11) as f64 - 4.5;
            let a: Vec<f64> = (0..rank * d_input).map(number).collect();
            let b: Vec<f64> = (0..rank * d_output).map(|i| 0.01 * number(i + 5)).collect();
            let before = factors(rank, &a, &b);
            let found = singular_factors(&before).unwrap();
            let update = |f: &Factors| times(&f.b, &f.a, d_output, rank, d_input);
            close(&update(&found.factors), &update(&before));
            let mut diagonal = vec![0.0; rank * rank];
            for (k, value) in found.values.iter().enumerate() {
                diagonal[k * (rank + 1)] = *value;
            }
            let b = found.factors.b_by_rank();
            for (factor, width) in [(found.factors.a, d_input), (b, d_output)] {
                close(&times_transposed(&factor, &factor, rank, width, rank), &diagonal);
            }
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn rank_zero_and_ragged_factors() {
        assert!(singular_factors(&factors(0, &[], &[])).unwrap().values.is_empty());
        let ragged = Factors { b: vec![1.0; 3], ..factors(2, &[1.0; 4], &[1.0; 4]) };
        assert_eq!(singular_factors(&ragged), Err(Error::length("b", 3, "2 x 2")));
    }
}
