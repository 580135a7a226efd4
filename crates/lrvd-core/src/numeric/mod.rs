//! Scalar and small-matrix routines that the formulas stand on.
//!
//! Nothing here knows about adapters. Every routine is deterministic, works in `f64`, and keeps its
//! accuracy where the textbook form loses it (large arguments, near-cancelling sums).

pub mod activation;
pub mod cholesky;
pub mod dense;
pub mod divergence;
pub mod eigen;
pub mod gamma;
pub mod median;
pub mod search;
pub mod sum;
pub mod svd;

pub use activation::{logistic, softplus};
pub use cholesky::Cholesky;
pub use divergence::width_divergence;
pub use eigen::{SymmetricEigen, symmetric_eigen};
pub use gamma::{digamma, ln_gamma};
pub use median::{MedianKind, lower_median, midpoint_median};
pub use search::minimise_on_log;
pub use sum::{CompensatedSum, compensated_sum};
pub use svd::{Svd, svd};
