//! The best posterior of one prior scale, and its cost.

use crate::error::{Error, check_range};
use crate::numeric::{digamma, ln_gamma};

/// The law of the scale of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ArdPrior {
    /// No hyper-prior; the scale is optimised.
    #[default]
    EmpiricalBayes,
    /// `γ ~ InvGamma(shape, rate)`.
    InverseGamma {
        /// Shape `a0`, positive.
        shape: f64,
        /// Rate `b0`, positive, unit weight².
        rate: f64,
    },
}

impl ArdPrior {
    /// Refuses numbers that are not positive and finite.
    pub(super) fn check(self) -> Result<(), Error> {
        let positive = |name, value| check_range(name, value, f64::MIN_POSITIVE, 1e12);
        match self {
            Self::EmpiricalBayes => {}
            Self::InverseGamma { shape, rate } => {
                positive("shape", shape)?;
                positive("rate", rate)?;
            }
        }
        Ok(())
    }
}

/// The optimal posterior of one scale and the divergence of the entries it governs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankScale {
    /// The number of entries that share the scale.
    pub count: usize,
    /// `Q`, the sum of squared means and variances, weight².
    pub energy: f64,
    /// Shape of `q(γ)`; infinite for a point (empirical Bayes).
    pub shape: f64,
    /// Rate of `q(γ)`, weight²; for a point this is the optimised scale itself.
    pub rate: f64,
    /// Mean of `1/γ` under `q`.
    pub mean_precision: f64,
    /// Divergence of the entries and of the scale together, nats.
    pub kl: f64,
}

/// The optimal scale posterior and its divergence for `count` entries with energy `energy` and
/// summed log-variances `log_variances`.
///
/// # Formula
///
/// ```text
/// empirical Bayes  γ = Q/n                       KL = ½[n·ln(Q/n) − Σℓ]
/// inverse gamma    shape = a0 + n/2, rate = b0 + Q/2
///                  KL = ½[n·E ln γ − Σℓ + Q·E(1/γ) − n] + KL(q(γ) ‖ p(γ))
/// ```
///
/// with `E ln γ = ln rate − ψ(shape)` and `E(1/γ) = shape/rate`.
///
/// # Errors
///
/// A number of the prior, or the energy, is not positive and finite.
pub fn rank_scale(
    prior: ArdPrior,
    count: usize,
    energy: f64,
    log_variances: f64,
) -> Result<RankScale, Error> {
    prior.check()?;
    let n = count as f64;
    if count == 0 {
        let point = RankScale {
            count,
            energy: 0.0,
            shape: f64::INFINITY,
            rate: 0.0,
            mean_precision: 0.0,
            kl: 0.0,
        };
        return Ok(point);
    }
    check_range("energy of a rank", energy, f64::MIN_POSITIVE, f64::MAX)?;
    Ok(match prior {
        ArdPrior::EmpiricalBayes => RankScale {
            count,
            energy,
            shape: f64::INFINITY,
            rate: energy / n,
            mean_precision: n / energy,
            kl: 0.5 * (n * (energy / n).ln() - log_variances),
        },
        ArdPrior::InverseGamma { shape: a0, rate: b0 } => {
            let (shape, rate) = (a0 + 0.5 * n, b0 + 0.5 * energy);
            let mean_log = rate.ln() - digamma(shape);
            let mean_precision = shape / rate;
            let entries = 0.5 * (n * mean_log - log_variances + energy * mean_precision - n);
            let kl = entries + inverse_gamma_kl(shape, rate, a0, b0);
            RankScale { count, energy, shape, rate, mean_precision, kl }
        }
    })
}

/// KL between two inverse-gamma laws.
///
/// # Formula
///
/// ```text
/// KL = (a − a0)·ψ(a) − ln Γ(a) + ln Γ(a0) + a0·ln(b/b0) + a·(b0 − b)/b
/// ```
pub fn inverse_gamma_kl(shape: f64, rate: f64, prior_shape: f64, prior_rate: f64) -> f64 {
    (shape - prior_shape) * digamma(shape) - ln_gamma(shape)
        + ln_gamma(prior_shape)
        + prior_shape * (rate / prior_rate).ln()
        + shape * (prior_rate - rate) / rate
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_inverse_gamma_update_is_the_lowest_point() {
        let (n, q, sum_log, a0, b0) = (5, 0.8, -20.0, 0.3, 0.2);
        let prior = ArdPrior::InverseGamma { shape: a0, rate: b0 };
        let found = rank_scale(prior, n, q, sum_log).unwrap();
        assert!((found.shape - 2.8).abs() < 1e-15 && (found.rate - 0.6).abs() < 1e-15);
        let at = |shape: f64, rate: f64| {
            let mean_log = rate.ln() - digamma(shape);
            0.5 * (n as f64 * mean_log - sum_log + q * shape / rate - n as f64)
                + inverse_gamma_kl(shape, rate, a0, b0)
        };
        assert!((found.kl - at(2.8, 0.6)).abs() < 1e-13);
        for (s, r) in [(2.9, 0.6), (2.7, 0.6), (2.8, 0.61), (2.8, 0.59)] {
            assert!(at(s, r) > found.kl);
        }
    }

    #[test]
    fn the_inverse_gamma_divergence_is_the_integral_of_its_densities() {
        let (a, b, a0, b0) = (2.5, 1.5, 1.2, 0.7);
        let log_density =
            |x: f64, a: f64, b: f64| a * b.ln() - ln_gamma(a) - (a + 1.0) * x.ln() - b / x;
        // Trapezoids in ln x: both ends of the integrand vanish double-exponentially or fast.
        let (low, high, steps) = (-6.0, 25.0, 200_000);
        let h = (high - low) / f64::from(steps);
        let integral: f64 = (0..=steps)
            .map(|i| (low + h * f64::from(i)).exp())
            .map(|x| {
                log_density(x, a, b).exp() * (log_density(x, a, b) - log_density(x, a0, b0)) * x
            })
            .sum::<f64>()
            * h;
        let closed = inverse_gamma_kl(a, b, a0, b0);
        assert!((closed - integral).abs() < 1e-9, "{closed} and {integral}");
        assert!(inverse_gamma_kl(a, b, a, b).abs() < 1e-14);
    }

    #[test]
    fn empty_groups_cost_nothing_and_bad_numbers_are_refused() {
        let inverse_gamma = ArdPrior::InverseGamma { shape: 1e-3, rate: 1e-3 };
        for prior in [ArdPrior::EmpiricalBayes, inverse_gamma] {
            assert_eq!(rank_scale(prior, 0, 0.0, 0.0).unwrap().kl, 0.0);
            assert!(rank_scale(prior, 1, 0.0, 0.0).is_err());
            assert!(rank_scale(prior, 1, f64::NAN, 0.0).is_err());
        }
        let prior = ArdPrior::InverseGamma { shape: 1.0, rate: -1.0 };
        assert!(rank_scale(prior, 1, 1.0, 0.0).is_err());
    }
}
