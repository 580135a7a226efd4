//! The marginal likelihood as a function of the prior precision, and its climb.

use super::curvature::{CurvatureBlock, check_precision};
use crate::error::{Error, above, check_range};
use crate::special::compensated_sum;

/// Decay rates and floor of Adam, at the defaults of every library.
const BETA: (f64, f64) = (0.9, 0.999);
const ADAM_EPS: f64 = 1e-8;

/// Laplace's approximation of the marginal likelihood as a function of the prior precision `δ`.
///
/// ```text
/// ln Z(δ)    = ln p(D|θ*) − ½·[ δ·‖θ*‖² + Σ_W ln det(F_W + δ·I) − P·ln δ ]
/// d/d ln δ   = −½·[ δ·‖θ*‖² + Σ_W Σ δ/(λ + δ) − P ]
/// ```
///
/// One `δ` for all matrices; `P` counts all their entries, `‖θ*‖²` sums their squares.
///
/// Source: MacKay 1992; Immer et al. 2021, arXiv:2104.04975; Yang et al. 2024, arXiv:2308.13111.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence<'a> {
    blocks: &'a [CurvatureBlock],
    squared_norm: f64,
    log_likelihood: f64,
}

/// Options of the climb in `ln δ`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct EvidenceOptions {
    /// First prior precision, positive.
    pub start: f64,
    /// Learning rate of Adam on `ln δ`, positive.
    pub learning_rate: f64,
    /// Number of updates.
    pub steps: u32,
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        Self { start: 1.0, learning_rate: 0.1, steps: 100 }
    }
}

/// End of the climb.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvidenceFit {
    /// The last prior precision.
    pub prior_precision: f64,
    /// The marginal likelihood there, nats.
    pub log_evidence: f64,
    /// Its derivative with respect to `ln δ` there: far from 0 if the climb stopped early.
    pub slope: f64,
}

impl<'a> Evidence<'a> {
    /// Evidence from the blocks of all LoRA matrices, their squared norm and the training set's log-likelihood in
    /// nats (a sum over examples; a constant as far as `δ` is concerned).
    pub fn new(
        blocks: &'a [CurvatureBlock],
        squared_norm: f64,
        log_likelihood: f64,
    ) -> Result<Self, Error> {
        check_range("squared_norm", squared_norm, 0.0..)?;
        if log_likelihood.is_nan() {
            return Err(Error::undefined("log_likelihood", "is not a number"));
        }
        Ok(Self { blocks, squared_norm, log_likelihood })
    }

    /// Number of parameters of all blocks.
    pub fn n_parameters(&self) -> usize {
        self.blocks.iter().map(CurvatureBlock::n_parameters).sum()
    }

    /// `ln Z(δ)`, nats.
    pub fn log_evidence(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let log_dets = self.of_blocks(|block| block.log_det(prior_precision))?;
        let excess = log_dets - self.n_parameters() as f64 * prior_precision.ln();
        Ok(self.log_likelihood - 0.5 * (prior_precision * self.squared_norm + excess))
    }

    /// The derivative of [`log_evidence`](Self::log_evidence) with respect to `ln δ`.
    pub fn slope(&self, prior_precision: f64) -> Result<f64, Error> {
        check_precision(prior_precision)?;
        let slopes = self.of_blocks(|block| block.log_det_slope(prior_precision))?;
        let excess = slopes - self.n_parameters() as f64;
        Ok(-0.5 * (prior_precision * self.squared_norm + excess))
    }

    /// Climbs `ln Z` in `ln δ` with Adam.
    ///
    /// # Errors
    ///
    /// An option is outside its range, or `δ` leaves the range of `f64` (a model without weights and without curvature has no
    /// best prior).
    pub fn fit(&self, options: EvidenceOptions) -> Result<EvidenceFit, Error> {
        check_range("start", options.start, above(0.0))?;
        check_range("learning_rate", options.learning_rate, above(0.0))?;
        let mut log_precision = options.start.ln();
        let (mut first, mut second) = (0.0, 0.0);
        let (mut first_power, mut second_power) = (1.0, 1.0);
        for _ in 0..options.steps {
            let slope = self.slope(log_precision.exp())?;
            first = BETA.0 * first + (1.0 - BETA.0) * slope;
            second = BETA.1 * second + (1.0 - BETA.1) * slope * slope;
            first_power *= BETA.0;
            second_power *= BETA.1;
            let root = (second / (1.0 - second_power)).sqrt();
            log_precision +=
                options.learning_rate * (first / (1.0 - first_power)) / (root + ADAM_EPS);
        }
        let prior_precision = log_precision.exp();
        Ok(EvidenceFit {
            prior_precision,
            log_evidence: self.log_evidence(prior_precision)?,
            slope: self.slope(prior_precision)?,
        })
    }

    fn of_blocks(&self, f: impl Fn(&CurvatureBlock) -> Result<f64, Error>) -> Result<f64, Error> {
        let values: Vec<f64> = self.blocks.iter().map(f).collect::<Result<_, _>>()?;
        Ok(compensated_sum(values))
    }
}
