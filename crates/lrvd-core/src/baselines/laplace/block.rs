//! One LoRA matrix's share of the posterior precision, in either form.

use super::kron::KronBlock;
use super::low_rank::LowRankBlock;
use crate::error::{Error, check_length, check_range};

/// The curvature of one LoRA matrix `W [d_output, d_input]`; the precision is `curvature + δ·I`.
#[derive(Debug, Clone, PartialEq)]
pub enum CurvatureBlock {
    /// Both factors in full.
    Full(KronBlock),
    /// One factor with few columns.
    LowRank(LowRankBlock),
}

impl From<KronBlock> for CurvatureBlock {
    fn from(block: KronBlock) -> Self {
        Self::Full(block)
    }
}

impl From<LowRankBlock> for CurvatureBlock {
    fn from(block: LowRankBlock) -> Self {
        Self::LowRank(block)
    }
}

impl CurvatureBlock {
    /// Entries of the matrix, `P`.
    pub fn n_parameters(&self) -> usize {
        match self {
            Self::Full(block) => block.n_parameters(),
            Self::LowRank(block) => block.n_parameters(),
        }
    }

    /// Numbers that the two factors take: the entries of a square, or of the columns kept of a wide one.
    pub fn n_factor_entries(&self) -> usize {
        match self {
            Self::Full(block) => block.n_factor_entries(),
            Self::LowRank(block) => block.n_factor_entries(),
        }
    }

    /// `ln det(curvature + δ·I)`; formulas at [`KronBlock`] and [`LowRankBlock`].
    ///
    /// # Errors
    ///
    /// `prior_precision` is not positive and finite.
    pub fn log_det(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        Ok(match self {
            Self::Full(block) => block.log_det(prior_precision),
            Self::LowRank(block) => block.log_det(prior_precision),
        })
    }

    /// The derivative of [`log_det`](Self::log_det) with respect to `ln δ`: `Σ δ/(λ + δ)`.
    pub fn log_det_slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        Ok(match self {
            Self::Full(block) => block.log_det_slope(prior_precision),
            Self::LowRank(block) => block.log_det_slope(prior_precision),
        })
    }

    /// `⟨G_c, (curvature + δ·I)⁻¹ G_c'⟩` for every pair of gradients.
    ///
    /// # Shapes
    ///
    /// | Name        | Shape                                  |
    /// |-------------|----------------------------------------|
    /// | `gradients` | `[n, d_output, d_input]`, row-major    |
    /// | *returns*   | `[n, n]`, symmetric                    |
    pub fn covariance(
        &self,
        gradients: &[f64],
        n: usize,
        prior_precision: f64,
    ) -> Result<Vec<f64>, Error> {
        check_precision(prior_precision)?;
        check_length("gradients", gradients.len(), n * self.n_parameters())?;
        Ok(match self {
            Self::Full(block) => block.covariance(gradients, n, prior_precision),
            Self::LowRank(block) => block.covariance(gradients, n, prior_precision),
        })
    }
}

pub(super) fn check_precision(prior_precision: f64) -> Result<(), Error> {
    check_range("prior_precision", prior_precision, f64::MIN_POSITIVE, f64::MAX)
}
