//! Functions of one number, sums and the median, which keep their accuracy where the textbook form loses it (large arguments,
//! near-cancelling sums).

pub use statrs::function::gamma::{digamma, ln_gamma};

/// Logistic function.
///
/// ```text
/// logistic(z) = 1 / (1 + exp(−z))
/// ```
///
/// Both tails keep full relative accuracy: `1 − logistic(z)` should be written `logistic(−z)`.
pub fn logistic(z: f64) -> f64 {
    if z >= 0.0 {
        1.0 / (1.0 + (-z).exp())
    } else {
        let e = z.exp();
        e / (1.0 + e)
    }
}

/// Softplus, the integral of the logistic function.
///
/// ```text
/// softplus(z) = ln(1 + exp(z)) = max(z, 0) + ln(1 + exp(−|z|))
/// ```
///
/// Never overflows; for `z → −∞` it equals `exp(z)` to full relative accuracy.
pub fn softplus(z: f64) -> f64 {
    z.max(0.0) + (-z.abs()).exp().ln_1p()
}

/// Sums all terms, with a second word for what rounding dropped (Neumaier's variant of Kahan).
///
/// The error does not grow with the number of terms. A sum that becomes infinite or NaN stays so; 0 without terms.
///
/// # Examples
///
/// ```
/// # use lrvd_core::special::compensated_sum;
/// assert_eq!(compensated_sum([1.0, 1e100, 1.0, -1e100]), 2.0);
/// ```
pub fn compensated_sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut dropped) = (0.0_f64, 0.0);
    for term in terms {
        let next = sum + term;
        if next.is_finite() {
            dropped +=
                if sum.abs() >= term.abs() { (sum - next) + term } else { (term - next) + sum };
        }
        sum = next;
    }
    if sum.is_finite() { sum + dropped } else { sum }
}

/// `P(X ≤ k)` of `X ~ Binomial(n, p)`.
///
/// The terms of the tail that does not hold the mean are summed, outwards from `k`: they fall, so that a first one that
/// underflows leaves a sum of 0. Relative error below 1e-7 up to a million trials where the tail is the lower one, absolute
/// otherwise.
///
/// # Examples
///
/// ```
/// # use lrvd_core::special::binomial_cdf;
/// assert!((binomial_cdf(1, 4, 0.5) - 5.0 / 16.0).abs() < 1e-14);
/// // 1,963 wrong answers of 9,815 are more than an error rate of .05 would ever give.
/// assert_eq!(binomial_cdf(1963, 9815, 0.05), 1.0);
/// ```
pub fn binomial_cdf(k: usize, n: usize, p: f64) -> f64 {
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    let trials = n as f64;
    let odds = p / (1.0 - p);
    let first = |k: f64| {
        let ways = ln_gamma(trials + 1.0) - ln_gamma(k + 1.0) - ln_gamma(trials - k + 1.0);
        (ways + k * p.ln() + (trials - k) * (-p).ln_1p()).exp()
    };
    if k as f64 <= trials * p {
        let below = |i: usize| i as f64 / (trials - i as f64 + 1.0) / odds;
        falling_sum(first(k as f64), (1..=k).rev().map(below))
    } else {
        let above = |i: usize| (trials - i as f64) / (i as f64 + 1.0) * odds;
        1.0 - falling_sum(first(k as f64 + 1.0), (k + 1..n).map(above))
    }
}

/// `first·(1 + r_1 + r_1·r_2 + …)` up to the term that no longer counts, for ratios below 1.
fn falling_sum(first: f64, ratios: impl Iterator<Item = f64>) -> f64 {
    let (mut term, mut sum) = (first, first);
    for ratio in ratios {
        term *= ratio;
        if term <= sum * f64::EPSILON {
            break;
        }
        sum += term;
    }
    sum
}

/// The lower of the two middle values, as `torch.median` returns it; `None` without values, NaN if one of them is.
pub fn lower_median(values: &[f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    if values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    let mut sorted = values.to_vec();
    Some(*sorted.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_matches_its_definition_and_both_asymptotes() {
        assert!((softplus(0.0) - std::f64::consts::LN_2).abs() < 1e-16);
        assert!((softplus(1.5) - (1.0 + 1.5_f64.exp()).ln()).abs() < 1e-15);
        assert_eq!(softplus(800.0), 800.0);
        assert!((softplus(-60.0) / (-60.0_f64).exp() - 1.0).abs() < 1e-14);
        assert_eq!(softplus(f64::NEG_INFINITY), 0.0);
        assert_eq!(softplus(f64::INFINITY), f64::INFINITY);
    }

    #[test]
    fn empty_infinite_and_nan_sums() {
        assert_eq!(compensated_sum([]), 0.0);
        assert_eq!(compensated_sum([1.0, f64::INFINITY, 2.0]), f64::INFINITY);
        assert!(compensated_sum([f64::NAN, 1.0]).is_nan());
    }

    #[test]
    fn a_median_of_an_even_number_is_the_lower_middle() {
        assert_eq!(lower_median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(lower_median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(lower_median(&[f64::INFINITY; 2]), Some(f64::INFINITY));
        assert_eq!(lower_median(&[]), None);
        assert!(lower_median(&[1.0, f64::NAN, 2.0]).is_some_and(f64::is_nan));
    }
}
