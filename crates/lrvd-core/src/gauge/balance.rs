//! The rescaling that gives both factors of a rank the same length, and what the posterior says of it.

use crate::error::ParameterError;
use crate::factor::FactorView;
use crate::family::VariationalFamily;
use crate::numeric::dense::norm;
use crate::posterior::{Entries, NoiseParameters, Posterior};

/// Norms below this are treated as this when ranks are balanced; the authors' guard.
pub const NORM_GUARD: f64 = 1e-12;

/// Whether balancing may change the posterior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum BalancePolicy {
    /// Refuse a family whose posterior would change.
    #[default]
    Exact,
    /// Balance the means of any family; `RankVariance` keeps its log-variances, which then describe
    /// another posterior.
    Forced,
}

/// A posterior with equal factor norms in every rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Balanced {
    /// The factor by which row k of A was multiplied and row k of B divided, `[rank]`.
    pub scale: Vec<f64>,
    /// New means.
    pub mean: Entries,
    /// New parameters.
    pub parameters: BalancedParameters,
}

/// The parameters that go with balanced means.
#[derive(Debug, Clone, PartialEq)]
pub enum BalancedParameters {
    /// `[rank]`: log-variances or `log_alpha`, by the family.
    PerRank(Vec<f64>),
    /// Log-variances per entry.
    PerEntry(Entries),
}

/// Rescales every rank so that its rows of A and B have the same length.
///
/// # Formula
///
/// ```text
/// c[k] = sqrt(‖b_mean[k]‖ / ‖a_mean[k]‖),   a_mean[k] *= c[k],   b_mean[k] /= c[k]
/// NoiseToSignal     parameters unchanged
/// ElementVariance   a_log_variance[k] += 2·ln c[k],   b_log_variance[k] −= 2·ln c[k]
/// AsymRankVariance  log_variance[k] += 2·ln c[k]
/// RankVariance      no parameters can follow; refused unless forced
/// ```
///
/// # Errors
///
/// [`ParameterError::Family`] for `RankVariance` under [`BalancePolicy::Exact`].
///
/// # Numerics
///
/// Norms are guarded by [`NORM_GUARD`]. A log-variance moved across the end of the clamp is not
/// compensated there.
///
/// # Invariants
///
/// The product of the means does not change.
pub fn balance(
    posterior: &Posterior<'_>,
    policy: BalancePolicy,
) -> Result<Balanced, ParameterError> {
    if posterior.family() == VariationalFamily::RankVariance && policy == BalancePolicy::Exact {
        let reason = "one variance cannot follow opposite changes of scale in A and B";
        return Err(posterior.family().refuse("balancing", reason));
    }
    let guarded = |row: &[f64]| norm(row).max(NORM_GUARD);
    let scale: Vec<f64> = posterior
        .a_mean()
        .rows()
        .zip(posterior.b_mean().rows())
        .map(|(a, b)| (guarded(b) / guarded(a)).sqrt())
        .collect();
    let rescale = |view: FactorView<'_>, f: &dyn Fn(f64, f64) -> f64, values: &[f64]| {
        let width = view.width();
        values.iter().enumerate().map(|(i, &v)| f(v, scale[i / width])).collect::<Vec<f64>>()
    };
    let (a, b) = (posterior.a_mean(), posterior.b_mean());
    let mean = Entries {
        a: rescale(a, &|v, c| v * c, a.values()),
        b: rescale(b, &|v, c| v / c, b.values()),
    };
    let parameters = match posterior.parameters() {
        NoiseParameters::RankVariance(v) | NoiseParameters::NoiseToSignal(v) => {
            BalancedParameters::PerRank(v.to_vec())
        }
        NoiseParameters::AsymRankVariance(v) => BalancedParameters::PerRank(
            v.iter().zip(&scale).map(|(l, c)| l + 2.0 * c.ln()).collect(),
        ),
        NoiseParameters::ElementVariance { a: a_log, b: b_log } => {
            BalancedParameters::PerEntry(Entries {
                a: rescale(a, &|l, c| l + 2.0 * c.ln(), a_log),
                b: rescale(b, &|l, c| l - 2.0 * c.ln(), b_log),
            })
        }
    };
    Ok(Balanced { scale, mean, parameters })
}
