//! Noise on A alone, why it is enough, and the prior on the whole weight that it implies.
//!
//! BLoB keeps `B` deterministic. Its posterior on the composed weight `W = W0 + scaling·B·A` is then a
//! Gaussian within the column space of `B`, one block per input column:
//!
//! ```text
//! cov(W[:, j]) = scaling²·B diag(sigma[:, j]²) Bᵀ            posterior, this module's weight_covariance
//! cov(W[:, j]) = scaling²·prior²·B Bᵀ                        the prior that makes the KLs equal
//! ```
//!
//! With `B` of full column rank, the KL between the two on that subspace is the KL of `A` from
//! `N(0, prior²)` per entry, in which neither `B` nor `scaling` appears: [`blob_kl`] is all there is
//! to compute, and no gradient of it reaches `B`.
//!
//! # References
//!
//! Wang et al. 2024, BLoB, arXiv:2406.11675, theorem 3.1 and 3.2.

use super::element_gaussian::{ElementGaussian, ElementKl, ElementReduction};
use super::std_map::StdMap;
use crate::error::{Error, check_length};
use crate::factor::FactorView;
use crate::numeric::dense::transposed_times;

pub use super::element_gaussian::PRIOR_STD_DEV;

/// Upper end `eps` of the law of the initial `G`, `U(eps/√2, eps)`: `sigma` in 0.00125..0.0025.
pub const INITIAL_RHO_LIMIT: f64 = 0.05;

/// An initial `G` (`rho` under [`StdMap::Square`]) from a uniform number in `[0, 1]`.
///
/// # Formula
///
/// ```text
/// limit·(1/√2 + (1 − 1/√2)·uniform)
/// ```
pub fn initial_rho(uniform: f64, limit: f64) -> f64 {
    let low = std::f64::consts::FRAC_1_SQRT_2;
    limit * (low + (1.0 - low) * uniform)
}

/// KL of the posterior on the whole weight, which is that of A: [`ElementGaussian::kl`] with
/// [`StdMap::Square`].
///
/// # Shapes
///
/// `a_mean` and `a_rho` are `[rank, d_input]`; so are the gradients.
///
/// # Errors
///
/// As [`ElementGaussian::new`] and [`ElementGaussian::kl`].
pub fn blob_kl(a_mean: &[f64], a_rho: &[f64], prior_std_dev: f64) -> Result<ElementKl, Error> {
    ElementGaussian::new(a_mean, a_rho, StdMap::Square)?.kl(prior_std_dev, ElementReduction::Sum)
}

/// Covariance of one column of the composed weight, `[d_output, d_output]`.
///
/// # Formula
///
/// ```text
/// cov(W[:, j]) = scaling² · B diag(sigma[:, j]²) Bᵀ
/// ```
///
/// Different columns are uncorrelated. With every `sigma` equal to the prior's width it is the
/// prior's covariance.
///
/// # Shapes
///
/// | Name      | Shape                          | Unit    |
/// |-----------|--------------------------------|---------|
/// | `b`       | `[rank, d_output]`, rank-major | weight  |
/// | `std_dev` | `[rank]`, column `j` of A's    | weight  |
/// | *returns* | `[d_output, d_output]`         | weight² |
///
/// # Errors
///
/// [`ShapeError::Length`](crate::ShapeError::Length) if there is not one standard deviation per rank.
pub fn weight_covariance(
    b: FactorView<'_>,
    std_dev: &[f64],
    scaling: f64,
) -> Result<Vec<f64>, Error> {
    check_length("std_dev", std_dev.len(), b.rank())?;
    let rows = b.rows().zip(std_dev);
    let root: Vec<f64> =
        rows.flat_map(|(row, s)| row.iter().map(move |v| scaling * s * v)).collect();
    Ok(transposed_times(&root, &root, b.rank(), b.width(), b.width()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::{inverse, times, times_transposed};
    use crate::numeric::{Cholesky, svd};

    const RANK: usize = 2;
    const D_IN: usize = 3;
    const D_OUT: usize = 4;
    const SCALING: f64 = 1.75;
    const A_MEAN: [f64; RANK * D_IN] = [0.1, -0.3, 0.02, 0.25, 0.0, -0.15];
    const A_RHO: [f64; RANK * D_IN] = [0.3, -0.2, 0.5, 0.1, 0.4, 0.25];
    const B: [f64; RANK * D_OUT] = [0.5, -1.0, 0.25, 0.0, 2.0, 0.75, -0.5, 1.5];

    #[test]
    fn the_range_of_the_start() {
        assert_eq!(initial_rho(1.0, INITIAL_RHO_LIMIT), 0.05);
        assert!((initial_rho(0.0, INITIAL_RHO_LIMIT).powi(2) - 0.00125).abs() < 1e-17);
    }

    /// KL between the degenerate Gaussians of one column, in coordinates of the column space of B.
    fn kl_on_the_support(column: usize) -> f64 {
        let b = FactorView::new("b", &B, RANK, D_OUT).unwrap();
        // Rows are an orthonormal basis of the column space.
        let basis = svd(&B, RANK, D_OUT).right;
        let on_support = |covariance: &[f64]| {
            let half = times(&basis, covariance, RANK, D_OUT, D_OUT);
            times_transposed(&half, &basis, RANK, D_OUT, RANK)
        };
        let column_of = |values: &[f64]| [values[column], values[D_IN + column]];
        let std_dev = column_of(&A_RHO).map(|g| g * g);
        let q = on_support(&weight_covariance(b, &std_dev, SCALING).unwrap());
        let p = on_support(&weight_covariance(b, &[PRIOR_STD_DEV; RANK], SCALING).unwrap());
        let mean = times(&column_of(&A_MEAN), &B, 1, RANK, D_OUT)
            .iter()
            .map(|v| SCALING * v)
            .collect::<Vec<_>>();
        let mean = times(&basis, &mean, RANK, D_OUT, 1);
        let precision = inverse("p", &p, RANK).unwrap();
        let product = times(&precision, &q, RANK, RANK, RANK);
        let trace = product[0] + product[3];
        let distance = times(&mean, &times(&precision, &mean, RANK, RANK, 1), 1, RANK, 1)[0];
        let log_det = |m: &[f64]| Cholesky::new("m", m, RANK).unwrap().log_det();
        0.5 * (trace + distance - RANK as f64 + log_det(&p) - log_det(&q))
    }

    #[test]
    fn the_divergence_of_the_weight_is_that_of_a() {
        let wanted: f64 = (0..D_IN).map(kl_on_the_support).sum();
        let found = blob_kl(&A_MEAN, &A_RHO, PRIOR_STD_DEV).unwrap().value;
        assert!((found - wanted).abs() < 1e-10 * wanted, "{found} {wanted}");
    }

    #[test]
    fn the_covariance_by_hand() {
        // scaling² · (s1² b1 b1ᵀ + s2² b2 b2ᵀ) with b1 = (1, 2), b2 = (−1, 0.5).
        let b = FactorView::new("b", &[1.0, 2.0, -1.0, 0.5], 2, 2).unwrap();
        let found = weight_covariance(b, &[0.5, 2.0], 2.0).unwrap();
        for (f, w) in found.iter().zip([17.0, -6.0, -6.0, 8.0]) {
            assert!((f - w).abs() < 1e-14, "{f}");
        }
        assert!(weight_covariance(b, &[1.0], 2.0).is_err());
    }
}
