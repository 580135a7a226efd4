//! The curvature around a trained adapter as its uncertainty.
//!
//! The adapter is trained as usual; its posterior is a Gaussian around the trained `θ*` whose precision is
//! the Fisher matrix plus `prior_precision·I`, one Kronecker-factored block per LoRA matrix:
//!
//! ```text
//! P_W = S ⊗ A + δ·I        W [d_output, d_input] row-major, S [d_output, d_output], A [d_input, d_input]
//! ```
//!
//! Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Martens and Grosse 2015, arXiv:1503.05671 (K-FAC);
//! Daxberger et al. 2021, arXiv:2106.14806.

mod block;
mod curvature;
mod evidence;
mod predictive;

pub use block::{
    CurvatureBlock, KronBlock, LOW_RANK, LOW_RANK_FROM, LowRankBlock, WideFactor, WideSide,
};
pub use curvature::{Curvature, InputNormalisation};
pub use evidence::{Evidence, EvidenceFit, EvidenceOptions};
pub use predictive::{
    JITTER, LogitCovariance, laplace_bridge, monte_carlo_softmax, probit_softmax,
};
