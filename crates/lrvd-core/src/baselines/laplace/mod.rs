//! The curvature around a trained adapter as its uncertainty.
//!
//! The adapter is trained as usual; its posterior is a Gaussian around the trained `θ*` whose precision is
//! the Fisher matrix plus `prior_precision·I`, one Kronecker-factored block per LoRA matrix:
//!
//! ```text
//! P_W = S ⊗ A + δ·I        W [d_output, d_input] row-major, S [d_output, d_output], A [d_input, d_input]
//! ```
//!
//! | File         | Holds                                                                     |
//! |--------------|---------------------------------------------------------------------------|
//! | `curvature`  | accumulation of `S` and `A` over data                                     |
//! | `kron`       | a block with both factors diagonalised                                    |
//! | `wide`       | incremental SVD of a factor too large to hold                             |
//! | `low_rank`   | a block with one such factor, through Woodbury's identity                 |
//! | `block`      | either kind of block                                                      |
//! | `evidence`   | marginal likelihood and the choice of `δ`                                 |
//! | `predictive` | covariance of the logits, and probabilities from it                       |
//!
//! # References
//!
//! Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Martens and Grosse 2015, arXiv:1503.05671 (K-FAC);
//! Daxberger et al. 2021, arXiv:2106.14806.

mod block;
mod curvature;
mod evidence;
mod kron;
mod low_rank;
mod predictive;
mod wide;

pub use block::CurvatureBlock;
pub use curvature::{Curvature, InputNormalisation};
pub use evidence::{Evidence, EvidenceFit, EvidenceOptions};
pub use kron::KronBlock;
pub use low_rank::{LowRankBlock, WideSide};
pub use predictive::{
    JITTER, LogitCovariance, laplace_bridge, monte_carlo_softmax, probit_softmax,
};
pub use wide::{LOW_RANK, LOW_RANK_FROM, WideFactor};
