//! Noise on A alone, why it is enough, and the prior on the whole weight that it implies.
//!
//! BLoB keeps `B` deterministic. Its posterior on the composed weight `W = W0 + scaling·B·A` is then a
//! Gaussian within the column space of `B`, one block per input column:
//!
//! ```text
//! cov(W[:, j]) = scaling²·B diag(sigma[:, j]²) Bᵀ            posterior
//! cov(W[:, j]) = scaling²·prior²·B Bᵀ                        the prior that makes the KLs equal
//! ```
//!
//! With `B` of full column rank, the KL between the two on that subspace is the KL of `A` from
//! `N(0, prior²)` per entry, in which neither `B` nor `scaling` appears:
//! [`element_kl`](super::bayes_by_backprop::element_kl) is all there is to compute, and no gradient of it
//! reaches `B`.
//!
//! Source: Wang et al. 2024, BLoB, arXiv:2406.11675, theorem 3.1 and 3.2.

pub use super::bayes_by_backprop::PRIOR_STD_DEV;

/// Upper end `eps` of the distribution of the initial `G`, `U(eps/√2, eps)`: `sigma` in 0.00125..0.0025.
pub const INITIAL_RHO_LIMIT: f64 = 0.05;

/// An initial `G` (`rho` under [`StdMap::Square`](super::StdMap::Square)) from a uniform number in `[0, 1]`.
///
/// ```text
/// limit·(1/√2 + (1 − 1/√2)·uniform)
/// ```
pub fn initial_rho(uniform: f64, limit: f64) -> f64 {
    let low = std::f64::consts::FRAC_1_SQRT_2;
    limit * (low + (1.0 - low) * uniform)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_the_start() {
        assert_eq!(initial_rho(1.0, INITIAL_RHO_LIMIT), 0.05);
        assert!((initial_rho(0.0, INITIAL_RHO_LIMIT).powi(2) - 0.00125).abs() < 1e-17);
    }
}
