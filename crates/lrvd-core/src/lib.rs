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
//! | `A`, `μ` | `a_mean`        | `[rank, d_input]`              | weight      |
//! | `B`, `μ` | `b_mean`        | `[rank, d_output]`, rank-major | weight      |
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
//! Adapter files store B as `[d_output, rank]`; here both factors are rank-major, so that a rank
//! component is a row of either.

pub mod adalora;
pub mod baselines;
pub mod energy;
pub mod error;
pub mod family;
pub mod kl;
pub mod linalg;
pub mod metrics;
pub mod moments;
pub mod noise;
pub mod non_inferiority;
pub mod posterior;
pub mod prune;
pub mod schedule;
pub mod special;
pub mod svd;

pub use error::Error;
pub use family::VariationalFamily;
pub use posterior::Posterior;

#[cfg(test)]
pub(crate) mod testing {
    /// Asserts that two lists are equal up to an absolute distance.
    #[track_caller]
    pub(crate) fn assert_near(found: &[f64], expected: &[f64], distance: f64) {
        assert_eq!(found.len(), expected.len());
        let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() < distance);
        assert!(near, "{found:?}, expected {expected:?}");
    }

    /// Means of a posterior of rank 2, `[2, 3]`.
    pub(crate) const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
    /// Means of a posterior of rank 2, `[2, 2]`.
    pub(crate) const B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];
}
