//! The Gaussian posteriors over the two factors, and the numbers that parameterise them.

use std::fmt;

use crate::error::Error;

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
/// Log-variance of a fresh additive posterior, a standard deviation of 0.0183.
pub const INITIAL_LOG_VARIANCE: f64 = -8.0;
/// Half-width of the uniform distribution of a fresh `b_mean`; not zero, so that the ratio has a value.
pub const INITIAL_B_BOUND: f64 = 1e-3;

/// Ties between the posterior variances of A and B.
///
/// ```text
/// RankVariance      Var A[k,i] = Var B[k,o] = exp(log_variance[k])
/// NoiseToSignal     Var A[k,i] = exp(log_alpha[k]) · a_mean[k,i]²,   B alike
/// ElementVariance   Var A[k,i] = exp(a_log_variance[k,i]),           B alike
/// AsymRankVariance  Var A[k,i] = exp(log_variance[k]),               Var B = 0
/// ```
///
/// Log-variances are clamped to `[LOG_VARIANCE_MIN, LOG_VARIANCE_MAX]`, `log_alpha` to at most `LOG_ALPHA_MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum VariationalFamily {
    /// Additive, one log-variance per rank, shared by A and B.
    #[default]
    RankVariance,
    /// Multiplicative, one log noise-to-signal ratio per rank, shared by A and B.
    NoiseToSignal,
    /// Additive, one log-variance per entry.
    ElementVariance,
    /// Additive, one log-variance per rank; only A is random.
    AsymRankVariance,
}

impl VariationalFamily {
    /// All families, in the order of their definition.
    pub const ALL: [Self; 4] =
        [Self::RankVariance, Self::NoiseToSignal, Self::ElementVariance, Self::AsymRankVariance];

    /// The name used in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::RankVariance => "rank-variance",
            Self::NoiseToSignal => "noise-to-signal",
            Self::ElementVariance => "element-variance",
            Self::AsymRankVariance => "asym-rank-variance",
        }
    }

    /// `true` if B is random too.
    pub fn has_random_b(self) -> bool {
        !matches!(self, Self::AsymRankVariance)
    }

    /// The error for an operation that this family does not have.
    pub(crate) fn unsupported(self, operation: &'static str, reason: &'static str) -> Error {
        Error::undefined(operation, format!("is not defined for the family `{self}`: {reason}"))
    }
}

impl fmt::Display for VariationalFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A log-variance after the clamp.
pub fn clamp_log_variance(log_variance: f64) -> f64 {
    log_variance.clamp(LOG_VARIANCE_MIN, LOG_VARIANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "serde")]
    #[test]
    fn the_serialised_name_is_the_printed_one() {
        for family in VariationalFamily::ALL {
            let text = serde_json::to_string(&family).expect("a plain enum");
            assert_eq!(text, format!("\"{family}\""));
        }
    }
}
