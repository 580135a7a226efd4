//! The error rate of a model that may decline its least confident answers.

use super::check;
use super::error::MetricError;
use crate::numeric::ln_gamma;

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

    /// A threshold whose risk on further examples of the same kind is at most `target`, but with probability `delta` over
    /// the examples here, and the bound that says so; `None` if these examples cannot promise that of any.
    ///
    /// # Formula
    ///
    /// ```text
    /// tests = ⌊log₂ points⌋ + 1 thresholds are looked at, by halving; each passes if
    /// bound = p: P(Binomial(accepted, p) ≤ errors) = delta/tests   is at most target
    /// ```
    ///
    /// The largest coverage that passes is taken. Since every threshold that is looked at pays its share of `delta`, the
    /// promise holds for the one that is taken.
    ///
    /// # Errors
    ///
    /// [`MetricError::Range`] unless `target` and `delta` are in 0 to 1.
    ///
    /// # References
    ///
    /// Geifman, El-Yaniv 2017, arXiv:1705.08500, algorithm 1.
    pub fn certified(
        &self,
        target: f64,
        delta: f64,
    ) -> Result<Option<(RiskCoveragePoint, f64)>, MetricError> {
        check::range("target", &[target], 0.0, 1.0)?;
        check::range("delta", &[delta], 0.0, 1.0)?;
        let share = delta / (f64::from(self.points.len().ilog2()) + 1.0);
        let (mut from, mut to) = (0, self.points.len());
        let mut best: Option<(RiskCoveragePoint, f64)> = None;
        // Everything below `from` passed or is passed over, everything from `to` on failed.
        while from < to {
            let middle = from + (to - from) / 2;
            let point = self.points[middle];
            let bound = error_rate_bound(point.errors, point.accepted, share);
            if bound <= target {
                best = Some((point, bound));
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(best)
    }
}

/// The largest error rate that `errors` wrong ones of `n` do not speak against: `P(Binomial(n, p) ≤ errors) = delta`, the
/// upper limit of Clopper and Pearson; 1 where all are wrong.
///
/// # Numerics
///
/// Absolute error below 1e-12. The sum runs down from `errors` and ends where a term no longer counts.
pub fn error_rate_bound(errors: usize, n: usize, delta: f64) -> f64 {
    if errors >= n {
        return 1.0;
    }
    let (k, n) = (errors as f64, n as f64);
    let ways = ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0);
    let at_most = |p: f64| {
        let odds = (1.0 - p) / p;
        let mut term = (ways + k * p.ln() + (n - k) * (-p).ln_1p()).exp();
        let mut sum = term;
        for i in (1..=errors).rev() {
            let i = i as f64;
            term *= i / (n - i + 1.0) * odds;
            sum += term;
            // Below the mode terms only fall.
            if term < sum * f64::EPSILON && i < n * p {
                break;
            }
        }
        sum
    };
    let (mut low, mut high) = (k / n, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
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

    /// Upper limits by sums of exact fractions.
    #[test]
    fn the_bound_is_that_of_clopper_and_pearson() {
        for (errors, n, delta, wanted) in [
            (5, 100, 0.05, 0.102_253_377_643_274_51),
            (0, 30, 0.05, 0.095_033_852_855_304_14),
            (12, 40, 0.01, 0.494_484_004_641_690_2),
            (1, 7, 0.1, 0.452_564_943_357_799_7),
        ] {
            let found = error_rate_bound(errors, n, delta);
            assert!((found - wanted).abs() < 1e-12, "{errors} of {n}: {found}, wanted {wanted}");
        }
        // Without an error it has a closed form.
        assert!((error_rate_bound(0, 1000, 0.01) - (1.0 - 0.01_f64.powf(1e-3))).abs() < 1e-12);
        assert_eq!(error_rate_bound(3, 3, 0.1), 1.0);
        // Millions of examples take no longer and end near the rate.
        let many = error_rate_bound(100_000, 1_000_000, 0.05);
        assert!((0.1..0.1006).contains(&many), "{many}");
    }

    #[test]
    fn what_is_certified_is_kept_on_other_examples() {
        // Wrong with probability (1 − confidence)/2, so that a threshold has a known risk.
        let draw = |seed: u64| {
            let mut state = seed;
            let mut uniform = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            (0..1500).map(|_| (uniform(), uniform())).map(|(c, u)| (c, u > (1.0 - c) / 2.0)).unzip()
        };
        // Of those above t the mean risk is (1 − t)/4.
        let (mut kept, mut broken) = (0, 0);
        for seed in 0..200 {
            let (confidence, correct): (Vec<f64>, Vec<bool>) = draw(seed * 7919 + 1);
            let curve = RiskCoverage::new(&confidence, &correct).unwrap();
            let Some((point, bound)) = curve.certified(0.1, 0.1).unwrap() else { continue };
            assert!(bound <= 0.1 && point.risk < bound);
            kept += 1;
            broken += usize::from((1.0 - point.threshold) / 4.0 > 0.1);
        }
        assert!(kept > 190 && broken <= 20, "{broken} of {kept}");
        // A few examples promise nothing, and impossible promises are refused.
        let few = RiskCoverage::new(&[0.9, 0.8], &[true, true]).unwrap();
        assert_eq!(few.certified(0.05, 0.05).unwrap(), None);
        assert_eq!(few.certified(0.0, 0.5).unwrap(), None);
        assert!(few.certified(-0.1, 0.5).is_err() && few.certified(0.5, f64::NAN).is_err());
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
