//! Laplace's approximation: the curvature around a trained adapter as its uncertainty.
//!
//! The adapter is trained as usual; its posterior is a Gaussian around the trained `θ*` whose precision is the Fisher matrix plus
//! `prior_precision·I`, one Kronecker-factored block per LoRA matrix:
//!
//! ```text
//! P_W = S ⊗ A + δ·I        W [d_output, d_input] row-major, S [d_output, d_output], A [d_input, d_input]
//! ```
//!
//! Linearised around the trained weights, the logits are Gaussian: `f ~ N(f*, Σ)` with `Σ = Σ_W J_W P_W⁻¹ J_Wᵀ`. Three ways from
//! there to probabilities:
//!
//! | Function | Exactness |
//! |---|---|
//! | [`monte_carlo_softmax`] | unbiased; the published code draws 100 000 |
//! | [`probit_softmax`] | uses the variances alone; keeps equal variances calibrated |
//! | [`laplace_bridge`] | a Dirichlet fitted in logit space, no sampling |
//!
//! Source: Yang et al. 2024, Laplace-LoRA, arXiv:2308.13111; Martens and Grosse 2015, arXiv:1503.05671 (K-FAC);
//! Daxberger et al. 2021, arXiv:2106.14806.

mod curvature;
mod evidence;
mod predictive;

pub use curvature::{CurvatureBlock, LOW_RANK, LOW_RANK_FROM, WideFactor, WideSide};
pub use evidence::{Evidence, EvidenceFit, EvidenceOptions};
pub use predictive::{LogitCovariance, laplace_bridge, monte_carlo_softmax, probit_softmax};

/// Divisor of the sum of outer products of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum InputNormalisation {
    /// The tokens: `A` is a mean, so `S ⊗ A` is a sum over data.
    #[default]
    Tokens,
    /// The examples, as the published code does (`laplace-compat`): inflates the curvature by the mean
    /// length of an example.
    Examples,
}
