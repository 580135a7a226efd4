//! The error rate of a model that may decline its least confident answers.

use crate::error::{Error, check_at_least, check_finite, check_range, check_same_length};
use crate::special::binomial_cdf;

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
/// One point per distinct confidence: a threshold does not separate examples of equal confidence, so they are
/// accepted together.
///
/// Source: El-Yaniv, Wiener 2010; Geifman, El-Yaniv 2017, arXiv:1705.08500.
#[derive(Clone, Debug, PartialEq)]
pub struct RiskCoverage {
    points: Vec<RiskCoveragePoint>,
}

impl RiskCoverage {
    /// Builds the curve; any finite score that grows with confidence will do.
    pub fn new(confidence: &[f64], correct: &[bool]) -> Result<Self, Error> {
        check_same_length("correct", correct.len(), "confidence", confidence.len())?;
        check_at_least("confidence", confidence.len(), 1)?;
        check_finite("confidence", confidence)?;
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

    /// The largest coverage whose risk on further examples is at most `target` with confidence `1 − delta`; `None` if these
    /// examples certify no threshold. What is certified is `target` itself: a smaller limit for the threshold that was chosen by
    /// these examples would be exceeded more often than `delta`.
    ///
    /// ```text
    /// n_c = the smallest n for which c errors of n certify:  P(Binomial(n, target) ≤ c) ≤ delta
    /// ```
    ///
    /// The thresholds that accept the `n_0`, `n_1`, … most confident examples and the one that accepts all are tested in this
    /// order by the fallback procedure. A test has the level of the one before it if that succeeded, and else none; `n_c` of
    /// `c = 0, 3, 15, 63, …` has a share of `delta` besides. So one error among the most confident does not end it. There are
    /// as many equal shares as such `c` that half of the examples could certify, and each `n_c` is that of a share. The success of
    /// the largest coverage is returned.
    ///
    /// The sequence and its levels do not depend on which examples are correct, and the probability that any threshold with too
    /// large a risk succeeds is at most `delta`. This holds for the mean error probability of the accepted examples, given their
    /// confidences, and for the risk on further examples of the same distribution if that risk exceeds `target` from some
    /// coverage on. It does not hold for examples that were used to train or choose the model.
    ///
    /// The risk on these examples is never above `target`, whatever `delta` is. No examples certify anything with a `delta` of 0,
    /// unless `target` is 1.
    ///
    /// Source: Bretz et al. 2011, doi:10.1002/bimj.201000239 (the fallback procedure, of Wiens 2003); Angelopoulos et al. 2021,
    /// Learn then Test, arXiv:2110.01052 (family-wise tests of thresholds); Geifman, El-Yaniv 2017, arXiv:1705.08500 (the problem).
    pub fn certified(&self, target: f64, delta: f64) -> Result<Option<RiskCoveragePoint>, Error> {
        check_range("target", target, 0.0..=1.0)?;
        check_range("delta", delta, 0.0..=1.0)?;
        // A probability is positive, also one that underflows. The second condition follows from the third one for levels up to
        // about a half.
        let certifies = |errors: usize, n: usize, level: f64| {
            level > 0.0
                && errors as f64 / n as f64 <= target
                && binomial_cdf(errors, n, target) <= level
        };
        let starts = || (1..).map(|k| 4_usize.pow(k - 1) - 1);
        let last = self.points.len() - 1;
        let rows = self.points[last].accepted;
        if target == 1.0 {
            return Ok(Some(self.points[last]));
        }
        let shares =
            starts().take_while(|&errors| certifies(errors, rows / 2, delta)).count().max(1);
        let share = delta / shares as f64;
        let mut starts = starts().take(shares).peekable();
        let (mut next_errors, mut next_rows) = (0, 1);
        let (mut level, mut best) = (0.0, None);
        for (i, &point) in self.points.iter().enumerate() {
            let mut is_tested = i == last;
            while next_rows <= point.accepted {
                if certifies(next_errors, next_rows, share) {
                    if starts.next_if_eq(&next_errors).is_some() {
                        level += share;
                    }
                    next_errors += 1;
                    is_tested = true;
                } else {
                    next_rows += 1;
                }
            }
            if is_tested {
                if certifies(point.errors, point.accepted, level.min(delta)) {
                    best = Some(point);
                } else {
                    level = 0.0;
                }
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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

    /// `n` examples of falling confidence; the one at rank `i` is wrong with probability `rate(i/n)`.
    fn drawn(n: usize, seed: u64, rate: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<bool>) {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n).map(|_| (uniform(), uniform())).map(|(u, e)| (1.0 - u, e >= rate(u))).unzip()
    }

    #[test]
    fn a_certified_risk_is_exceeded_with_probability_delta_at_most() {
        // Among the most confident share u the risk is the mean of the rate below u.
        type Case = (fn(f64) -> f64, fn(f64) -> f64);
        let rising: Case = (|u| 0.5 * u, |u| 0.25 * u);
        let at_the_target: Case = (|_| 0.101, |_| 0.101);
        // Worst in the middle: the risk falls again.
        let bump: Case = (
            |u| if (0.3..0.5).contains(&u) { 0.4 } else { 0.03 },
            |u| 0.03 + 0.37 * (u.clamp(0.3, 0.5) - 0.3) / u,
        );
        for (n, trials) in [(60, 2000), (1500, 400), (20_000, 60)] {
            for (rate, risk) in [rising, at_the_target, bump] {
                let (mut certified, mut broken) = (0, 0);
                for seed in 0..trials {
                    let (confidence, correct) = drawn(n, seed * 7919 + 1, rate);
                    let curve = RiskCoverage::new(&confidence, &correct).unwrap();
                    let Some(point) = curve.certified(0.1, 0.1).unwrap() else { continue };
                    assert!(point.risk < 0.1);
                    certified += 1;
                    broken += u64::from(risk(1.0 - point.threshold) > 0.1);
                }
                // A tenth expected at most, and three standard deviations.
                let most = 0.1 * trials as f64 + 3.0 * (0.09 * trials as f64).sqrt();
                assert!(broken as f64 <= most, "{n}: {broken} of {trials}");
                assert!(certified > 0 || n == 20_000, "{n}");
            }
        }
    }

    #[test]
    fn a_thousand_rows_whose_best_group_has_no_error_certify_two_percent() {
        // 300 right ones, then every tenth wrong. Two shares of .025: n_0 = 183, n_1 = 277, n_2 = 359, n_3 = 436. Errors of the
        // first n_c are 0, 0, 5 and 13.
        let confidence: Vec<f64> = (0..1000).map(|i| 1.0 - f64::from(i) / 1000.0).collect();
        let correct: Vec<bool> = (0..1000).map(|i| i < 300 || i % 10 != 9).collect();
        let curve = RiskCoverage::new(&confidence, &correct).unwrap();
        let point = curve.certified(0.02, 0.05).unwrap().unwrap();
        assert_eq!((point.accepted, point.errors), (277, 0));
        // Without an error all are answered.
        let curve = RiskCoverage::new(&confidence, &[true; 1000]).unwrap();
        assert_eq!(curve.certified(0.02, 0.05).unwrap().unwrap().accepted, 1000);
    }

    #[test]
    fn an_error_among_the_most_confident_does_not_end_the_tests() {
        let confidence: Vec<f64> = (0..1000).map(|i| 1.0 - f64::from(i) / 1000.0).collect();
        // n_0 fails, n_3 has a share of the level, and all follow it.
        let correct: Vec<bool> = (0..1000).map(|i| i != 5 && i != 700).collect();
        let curve = RiskCoverage::new(&confidence, &correct).unwrap();
        let point = curve.certified(0.02, 0.05).unwrap().unwrap();
        assert_eq!((point.accepted, point.errors), (1000, 2));
    }

    #[test]
    fn what_few_rows_cannot_certify_is_none() {
        let certified = |n: usize, target, delta| {
            let confidence: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let curve = RiskCoverage::new(&confidence, &vec![true; n]).unwrap();
            curve.certified(target, delta).unwrap().map(|point| point.accepted)
        };
        // ln .05 / ln .98 = 148.3.
        assert_eq!((certified(148, 0.02, 0.05), certified(149, 0.02, 0.05)), (None, Some(149)));
        assert_eq!(certified(50, 0.0, 0.5), None);
        assert_eq!((certified(50, 0.5, 0.0), certified(2, 1.0, 0.0)), (None, Some(2)));
        // All of one confidence: one threshold.
        let curve = RiskCoverage::new(&[0.5; 200], &[true; 200]).unwrap();
        assert_eq!(curve.certified(0.02, 0.05).unwrap().unwrap().accepted, 200);
        assert!(curve.certified(-0.1, 0.5).is_err() && curve.certified(0.5, f64::NAN).is_err());
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
        assert!(matches!(RiskCoverage::new(&[], &[]), Err(Error::Length { .. })));
        assert!(matches!(RiskCoverage::new(&[0.5], &[]), Err(Error::Length { .. })));
        let nan = RiskCoverage::new(&[0.5, f64::NAN], &[true; 2]);
        assert!(matches!(nan, Err(Error::Entry { index: 1, .. })));
    }
}
