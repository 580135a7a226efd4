#![doc = include_str!("../README.md")]
//!
//! This crate holds values only: gradients are those of automatic differentiation elsewhere, compared with difference quotients
//! of these values.
//!
//! # Notation
//!
//! | Symbol   | Identifier      | Shape                          | Unit        |
//! |----------|-----------------|--------------------------------|-------------|
//! | `r`      | `rank`          | scalar                         | components  |
//! | `A`, `μ` | `a`             | `[rank, d_input]`              | weight      |
//! | `B`, `μ` | `b`             | `[d_output, rank]`             | weight      |
//! | `ℓ`      | `log_variance`  | `[rank]` or per entry          | ln(weight²) |
//! | `a`      | `log_alpha`     | per entry or `[rank]`          | ln of σ²/μ² |
//! | `c`      | `scaling`       | scalar, `lora_alpha / initial_rank` | ratio  |
//! | `x`      | `x`             | `[tokens, d_input]`            | activation  |
//! | `s`      | `rank_mean`     | `[tokens, rank]`               | activation  |
//! | `y`      | `output`        | `[tokens, d_output]`           | activation  |
//! | `ε`, `ξ` | `eps`, `noise`  | as what it perturbs            | standard normal |
//! | `κ`      | `CrossTerm`     | switch                         |             |
//! | `β`      | `kl_weight`     | scalar                         | ratio       |
//! | `τ`      | `log_alpha_threshold` | scalar                   | ln of σ²/μ² |
//!
//! Both factors have the orientation of PEFT's files. Results by rank (`b_per_rank`, singular directions) name their shape.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adalora;
pub mod baselines;
pub mod error;
pub mod kl;
pub mod lbfgs;
pub mod linalg;
pub mod metrics;
pub mod moments;
pub mod noise;
pub mod non_inferiority;
pub mod posterior;
pub mod prune;
pub mod schedule;
pub mod special;
pub mod update;

pub use error::Error;
pub use posterior::{Noise, Posterior, VariationalFamily};
pub use update::Factors;

#[cfg(test)]
pub(crate) mod testing {
    /// Asserts that two lists are equal up to an absolute distance.
    #[track_caller]
    pub(crate) fn assert_near(found: &[f64], expected: &[f64], distance: f64) {
        assert_eq!(found.len(), expected.len());
        let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() < distance);
        assert!(near, "{found:?}, expected {expected:?}");
    }

    use crate::posterior::{Noise, Posterior, VariationalFamily};
    use crate::update::Factors;

    /// Means of A in [`posterior`], `[2, 3]`.
    pub(crate) const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
    /// Means of B in [`posterior`] by rank, `[2, 2]`.
    pub(crate) const B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];

    /// Factors of rank `rank` from rows of both.
    pub(crate) fn factors(rank: usize, a: &[f64], b_by_rank: &[f64]) -> Factors {
        let sizes = [rank, a.len() / rank.max(1), b_by_rank.len() / rank.max(1)];
        Factors::from_rows(sizes, a.to_vec(), b_by_rank)
    }

    /// Posterior of rank 2 with three inputs and two outputs, and one parameter for each rank.
    pub(crate) fn posterior(family: VariationalFamily, noise: [f64; 2]) -> Posterior {
        let noise = Noise::per_rank(family, noise.to_vec());
        Posterior::new(factors(2, &A, &B), noise).expect("lengths that fit")
    }

    /// Posterior of rank 0.
    pub(crate) fn empty() -> Posterior {
        let factors = Factors { d_input: 3, d_output: 2, ..factors(0, &[], &[]) };
        let noise = Noise::per_rank(VariationalFamily::RankVariance, Vec::new());
        Posterior::new(factors, noise).expect("lengths that fit")
    }
}
