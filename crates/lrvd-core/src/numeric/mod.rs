//! Scalar and small-matrix routines that the formulas stand on.
//!
//! Every routine is deterministic, works in `f64`, and keeps its
//! accuracy where the textbook form loses it (large arguments, near-cancelling sums). Sizes of matrices are the caller's
//! responsibility and checked by `assert!`: a mismatch is a bug of this crate, since every public formula checks its slices
//! first.

#![allow(clippy::missing_panics_doc, reason = "of sizes; see above")]

pub mod cholesky;
pub mod dense;
pub mod jacobi;
pub mod special;
pub mod sum;

pub use cholesky::Cholesky;
pub use jacobi::{Svd, SymmetricEigen, svd, symmetric_eigen};
pub use special::{digamma, ln_gamma, logistic, softplus, width_divergence};
pub use sum::{MedianKind, compensated_sum};
