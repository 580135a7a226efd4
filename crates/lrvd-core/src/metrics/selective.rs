//! The error rate of a model that may decline its least confident answers.

use super::check;
use super::error::MetricError;

/// Acceptance of every example with at least some confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RiskCoveragePoint {
    /// Examples of this confidence and above are accepted.
    pub threshold: f64,
    /// Accepted examples.
    pub accepted: usize,
    /// Wrong ones among them.
    pub errors: usize,
    /// Share of all examples that is accepted.
    pub coverage: f64,
    /// Share of the accepted examples that is wrong.
    pub risk: f64,
}

/// Error rate of the accepted examples against the share accepted, most confident first.
///
/// One point per distinct confidence: examples of equal confidence cannot be told apart by a threshold, so they
/// are accepted together.
///
/// # References
///
/// El-Yaniv, Wiener 2010; Geifman, El-Yaniv 2017, arXiv:1705.08500.
#[derive(Clone, Debug, PartialEq)]
pub struct RiskCoverage {
    points: Vec<RiskCoveragePoint>,
}

impl RiskCoverage {
    /// Builds the curve; any finite score that grows with confidence will do.
    ///
    /// # Errors
    ///
    /// [`MetricError::TooFew`], [`MetricError::Length`] or [`MetricError::NonFinite`].
    pub fn new(confidence: &[f64], correct: &[bool]) -> Result<Self, MetricError> {
        check::same_length("correct", correct.len(), "confidence", confidence.len())?;
        check::at_least("confidence", confidence.len(), 1)?;
        check::finite("confidence", confidence)?;
        let n = confidence.len();
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&i, &k| confidence[k].total_cmp(&confidence[i]));
        let (mut accepted, mut errors) = (0, 0);
        let points = order
            .chunk_by(|&i, &k| confidence[i] == confidence[k])
            .map(|group| {
                accepted += group.len();
                errors += group.iter().filter(|&&i| !correct[i]).count();
                RiskCoveragePoint {
                    threshold: confidence[group[0]],
                    accepted,
                    errors,
                    coverage: accepted as f64 / n as f64,
                    risk: errors as f64 / accepted as f64,
                }
            })
            .collect();
        Ok(Self { points })
    }

    /// Points by falling threshold and rising coverage; the last one has coverage 1.
    pub fn points(&self) -> &[RiskCoveragePoint] {
        &self.points
    }

    /// Area under the curve: the mean risk over the `n` coverages `1/n, 2/n, …, 1`.
    ///
    /// # Formula
    ///
    /// ```text
    /// AURC = 1/n · Σ_k  E[wrong among the k most confident] / k
    /// ```
    ///
    /// Within a group of equal confidence the expectation is over its orders, so the area does not depend on the
    /// order of the examples. 0 is perfect; a random ranking gives the error rate.
    pub fn area(&self) -> f64 {
        let (mut accepted, mut errors, mut sum) = (0usize, 0usize, 0.0);
        for point in &self.points {
            let size = point.accepted - accepted;
            let rate = (point.errors - errors) as f64 / size as f64;
            for taken in 1..=size {
                sum += (errors as f64 + rate * taken as f64) / (accepted + taken) as f64;
            }
            (accepted, errors) = (point.accepted, point.errors);
        }
        sum / accepted as f64
    }

    /// The point of largest coverage whose risk is at most `target`; `None` if even the most confident group is
    /// riskier.
    ///
    /// The risk is the one measured on these examples, without a confidence bound: choose the threshold on
    /// validation data, report the risk on others.
    pub fn threshold_for_risk(&self, target: f64) -> Option<RiskCoveragePoint> {
        self.points.iter().rev().find(|point| point.risk <= target).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn worked_example() {
        // By confidence: right, wrong, right, right → risks 0, 1/2, 1/3, 1/4.
        let curve = RiskCoverage::new(&[0.6, 0.9, 0.8, 0.7], &[true, true, false, true]).unwrap();
        let risks: Vec<_> = curve.points().iter().map(|point| point.risk).collect();
        assert_eq!(risks, [0.0, 0.5, 1.0 / 3.0, 0.25]);
        assert!((curve.area() - (0.5 + 1.0 / 3.0 + 0.25) / 4.0).abs() < 1e-15);
        // Risk may fall again: the larger coverage wins.
        let point = curve.threshold_for_risk(0.3).unwrap();
        assert_eq!((point.threshold, point.coverage), (0.6, 1.0));
        assert_eq!(curve.threshold_for_risk(0.24).unwrap().threshold, 0.9);
    }

    #[test]
    fn ties_are_accepted_together_and_averaged() {
        // The tied pair holds one error: expected errors 1/2 of 1, 1 of 2.
        let curve = RiskCoverage::new(&[0.9, 0.9], &[true, false]).unwrap();
        assert_eq!(curve.points().len(), 1);
        assert_eq!(curve.area(), 0.5);
        assert_eq!(curve.threshold_for_risk(0.4), None);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(RiskCoverage::new(&[], &[]), Err(MetricError::TooFew { .. })));
        assert!(matches!(RiskCoverage::new(&[0.5], &[]), Err(MetricError::Length { .. })));
        let nan = RiskCoverage::new(&[0.5, f64::NAN], &[true; 2]);
        assert!(matches!(nan, Err(MetricError::NonFinite { index: 1, .. })));
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_the_end_is_the_error_rate(
            pairs in prop::collection::vec((0u8..6, any::<bool>()), 1..40), turn in 0usize..40
        ) {
            let split = |pairs: &[(u8, bool)]| -> (Vec<f64>, Vec<bool>) {
                pairs.iter().map(|&(c, k)| (f64::from(c) / 5.0, k)).unzip()
            };
            let (confidence, correct) = split(&pairs);
            let curve = RiskCoverage::new(&confidence, &correct).unwrap();
            let mut turned = pairs.clone();
            turned.rotate_left(turn % pairs.len());
            let (confidence, turned) = split(&turned);
            prop_assert_eq!(&curve, &RiskCoverage::new(&confidence, &turned).unwrap());
            let error_rate = correct.iter().filter(|&&k| !k).count() as f64 / correct.len() as f64;
            prop_assert_eq!(curve.points().last().map(|point| point.risk), Some(error_rate));
            prop_assert!((0.0..=1.0).contains(&curve.area()));
            prop_assert_eq!(curve.threshold_for_risk(1.0).map(|point| point.coverage), Some(1.0));
        }
    }
}
