//! What is measured of probabilities.

use lrvd_core::metrics::{
    Binning, DEFAULT_BINS, MetricError, NLL_FLOOR, Predictions, RiskCoverage,
};

/// Numbers of one set of answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    /// Share of right answers.
    pub accuracy: f64,
    /// Mean negative log-likelihood, nats.
    pub nll: f64,
    /// Expected calibration error.
    pub ece: f64,
    /// Brier score.
    pub brier: f64,
    /// Area under the risk-coverage curve, by the probability of the answer.
    pub aurc: f64,
}

impl Measures {
    /// Of `probabilities [n, width]` of rows of `classes`.
    ///
    /// # Errors
    ///
    /// [`MetricError`] for what is no distribution, or a class outside of it.
    pub fn new(
        probabilities: &[f64],
        width: usize,
        classes: &[usize],
    ) -> Result<Self, MetricError> {
        let predictions = Predictions::new(probabilities, width, classes)?;
        let curve = RiskCoverage::new(&predictions.confidence(), &predictions.correct())?;
        Ok(Self {
            accuracy: predictions.accuracy(),
            nll: predictions.nll(),
            ece: predictions.ece(DEFAULT_BINS, Binning::Torchmetrics)?,
            brier: predictions.brier(),
            aurc: curve.area(),
        })
    }

    /// Every number with its name.
    pub fn named(self) -> [(&'static str, f64); 5] {
        let Self { accuracy, nll, ece, brier, aurc } = self;
        [("accuracy", accuracy), ("nll", nll), ("ece", ece), ("brier", brier), ("aurc", aurc)]
    }
}

/// Negative log-likelihood of every row of `probabilities [n, width]`, nats.
pub fn row_losses(probabilities: &[f64], width: usize, classes: &[usize]) -> Vec<f64> {
    let rows = probabilities.chunks_exact(width.max(1)).zip(classes);
    rows.map(|(row, &class)| -row.get(class).copied().unwrap_or(0.0).max(NLL_FLOOR).ln()).collect()
}
