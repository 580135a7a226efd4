//! One entry of a factor: its noise, the clamps, its variance and its ratio.

/// Lower end of the clamp on log-variances (published with the method). The gradient is 1 at both ends and zero outside,
/// as the reference implementation passes it.
pub const LOG_VARIANCE_MIN: f64 = -20.0;
/// Upper end of the clamp on log-variances (published with the method).
pub const LOG_VARIANCE_MAX: f64 = 2.0;
/// Upper end of the clamp on `log_alpha`, so that α² is finite in single precision.
pub const LOG_ALPHA_MAX: f64 = 40.0;
/// Added to a squared mean before its logarithm is taken; the authors' value.
pub const EPS_MEAN: f64 = 1e-8;
/// Added to a variance before its square root is taken; the authors' value.
pub const EPS_VARIANCE: f64 = 1e-8;
/// A log-variance after the clamp.
pub fn clamp_log_variance(log_variance: f64) -> f64 {
    log_variance.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX)
}

/// Parameter of the noise of one entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EntryNoise {
    LogVariance(f64),
    LogAlpha(f64),
    None,
}

/// One entry of a factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) mean: f64,
    pub(crate) noise: EntryNoise,
}

impl Entry {
    /// Variance, after the clamp.
    pub(crate) fn variance(self) -> f64 {
        match self.noise {
            EntryNoise::LogVariance(l) => clamp_log_variance(l).exp(),
            EntryNoise::LogAlpha(a) => a.min(LOG_ALPHA_MAX).exp() * self.mean * self.mean,
            EntryNoise::None => 0.0,
        }
    }

    /// Logarithm of the variance; `−inf` of an entry without noise.
    pub(crate) fn log_variance(self) -> f64 {
        match self.noise {
            EntryNoise::LogVariance(l) => clamp_log_variance(l),
            EntryNoise::LogAlpha(_) | EntryNoise::None => self.variance().ln(),
        }
    }

    /// Log noise-to-signal ratio; `None` without noise.
    ///
    /// ```text
    /// additive         ln(exp(ℓ) / (mean² + EPS_MEAN)) = ℓ − ln(mean² + EPS_MEAN),   ℓ = clamp(log_variance, −20, 2)
    /// multiplicative   the parameter itself
    /// ```
    ///
    /// Exact for any size of the ratio. The authors' code adds 1e-8 to the ratio before its logarithm is taken, which bends
    /// the curve below −14 and ends it at −18.4.
    ///
    /// Source: Molchanov et al. 2017, arXiv:1701.05369; Doyle et al., arXiv:2506.22809.
    pub(crate) fn log_alpha(self) -> Option<f64> {
        match self.noise {
            EntryNoise::LogVariance(_) => {
                Some(self.log_variance() - (self.mean * self.mean + EPS_MEAN).ln())
            }
            EntryNoise::LogAlpha(a) => Some(a),
            EntryNoise::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_zero_mean_has_a_finite_ratio() {
        let ratio = |mean, l| Entry { mean, noise: EntryNoise::LogVariance(l) }.log_alpha();
        assert!((ratio(1.0, -20.0).unwrap() + 20.0 + 1e-8).abs() < 1e-13);
        assert!((ratio(0.0, -8.0).unwrap() - (-8.0 - 1e-8_f64.ln())).abs() < 1e-14);
    }
}
