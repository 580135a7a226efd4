//! Posterior of one adapter: families, parameters of the noise, and the variance as a function of them.
//!
//! The formulas of KL, moments and pruning are written once, in terms of entries. Families differ only in the variance of an entry
//! as a function of the parameters.

mod entry;

use std::fmt;

pub use entry::{
    EPS_MEAN, EPS_VARIANCE, LOG_ALPHA_MAX, LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, clamp_log_variance,
};
pub(crate) use entry::{Entry, EntryNoise};

use crate::error::{Error, check_length};
use crate::linalg::transpose;
use crate::update::{Factors, select_columns, select_rows};

/// Log-variance of a fresh additive posterior, a standard deviation of 0.0183.
pub const INITIAL_LOG_VARIANCE: f64 = -8.0;
/// Half-width of the uniform distribution of a fresh B; not zero, so that the ratio has a value.
pub const INITIAL_B_BOUND: f64 = 1e-3;

/// Ties between the posterior variances of A and B.
///
/// ```text
/// RankVariance      Var A[k,i] = Var B[o,k] = exp(log_variance[k])
/// NoiseToSignal     Var A[k,i] = exp(log_alpha[k]) · a[k,i]²,    B alike
/// ElementVariance   Var A[k,i] = exp(log_variance_a[k,i]),       B alike
/// AsymRankVariance  Var A[k,i] = exp(log_variance[k]),           Var B = 0
/// ```
///
/// Log-variances are clamped to `[LOG_VARIANCE_MIN, LOG_VARIANCE_MAX]`, `log_alpha` to at most `LOG_ALPHA_MAX`.
///
/// # Examples
///
/// ```
/// use lrvd_core::VariationalFamily;
///
/// assert_eq!(VariationalFamily::default().name(), "rank-variance");
/// assert!(!VariationalFamily::AsymRankVariance.has_random_b());
/// ```
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

    /// The name used in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::RankVariance => "rank-variance",
            Self::NoiseToSignal => "noise-to-signal",
            Self::ElementVariance => "element-variance",
            Self::AsymRankVariance => "asym-rank-variance",
        }
    }

    /// `true` if the parameters are ratios to the squared mean.
    pub fn is_relative(self) -> bool {
        self == Self::NoiseToSignal
    }

    /// `true` if every entry has a separate parameter.
    pub fn is_per_entry(self) -> bool {
        self == Self::ElementVariance
    }

    /// `true` if B is random too.
    pub fn has_random_b(self) -> bool {
        self != Self::AsymRankVariance
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

/// Parameters of the noise of an adapter, before the clamp.
///
/// # Examples
///
/// ```
/// use lrvd_core::{Noise, VariationalFamily};
///
/// // Rank 2: a standard deviation of 0.018 for each component.
/// let noise = Noise::per_rank(VariationalFamily::RankVariance, vec![-8.0; 2]);
/// assert!(noise.b.is_empty());
/// // Rank 1 with two inputs and one output: a parameter for each entry.
/// let family = VariationalFamily::ElementVariance;
/// let noise = Noise { family, a: vec![-8.0, -7.0], b: vec![-8.0] };
/// assert_eq!(noise.family.name(), "element-variance");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Noise {
    /// Ties of the variances.
    pub family: VariationalFamily,
    /// Log-variances or `log_alpha`, `[rank]`; with a parameter per entry those of A, `[rank, d_input]`.
    pub a: Vec<f64>,
    /// With a parameter per entry those of B, `[d_output, rank]`; else empty.
    #[cfg_attr(feature = "serde", serde(default))]
    pub b: Vec<f64>,
}

impl Noise {
    /// One parameter for each rank component.
    pub fn per_rank(family: VariationalFamily, values: Vec<f64>) -> Self {
        Self { family, a: values, b: Vec::new() }
    }
}

/// Posterior of one adapter: means of A and B, and the parameters of their noise.
///
/// Lengths are checked once, when a posterior is made or deserialised.
///
/// # Examples
///
/// ```
/// use lrvd_core::{Factors, Noise, Posterior, VariationalFamily};
///
/// // Rank 1, two inputs, one output.
/// let means = Factors { rank: 1, d_input: 2, d_output: 1, a: vec![0.5, -1.0], b: vec![2.0] };
/// let noise = Noise::per_rank(VariationalFamily::RankVariance, vec![-2.0]);
/// let q = Posterior::new(means.clone(), noise)?;
/// assert_eq!(q.variance().a, [(-2.0_f64).exp(); 2]);
/// assert_eq!(q.select(&[])?.factors().rank, 0);
///
/// let too_many = Noise::per_rank(VariationalFamily::RankVariance, vec![-2.0, -3.0]);
/// assert!(Posterior::new(means, too_many).is_err());
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Unchecked"))]
pub struct Posterior {
    factors: Factors,
    noise: Noise,
}

/// A posterior whose lengths are still to be checked.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    factors: Factors,
    noise: Noise,
}

#[cfg(feature = "serde")]
impl TryFrom<Unchecked> for Posterior {
    type Error = Error;

    fn try_from(Unchecked { factors, noise }: Unchecked) -> Result<Self, Error> {
        Self::new(factors, noise)
    }
}

/// One number per entry of A and one per entry of B.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries {
    /// `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `[d_output, rank]`.
    pub b: Vec<f64>,
}

impl Posterior {
    /// Checks that all lengths fit.
    pub fn new(factors: Factors, noise: Noise) -> Result<Self, Error> {
        factors.check()?;
        let [a, b] = if noise.family.is_per_entry() {
            [factors.a.len(), factors.b.len()]
        } else {
            [factors.rank, 0]
        };
        check_length("noise of A", noise.a.len(), a)?;
        check_length("noise of B", noise.b.len(), b)?;
        Ok(Self { factors, noise })
    }

    /// Means of A and B.
    pub fn factors(&self) -> &Factors {
        &self.factors
    }

    /// Parameters of the noise.
    pub fn noise(&self) -> &Noise {
        &self.noise
    }

    /// Ties of the variances.
    pub fn family(&self) -> VariationalFamily {
        self.noise.family
    }

    /// The components `kept`, in that order, means and noise alike.
    ///
    /// # Errors
    ///
    /// A component that does not exist.
    pub fn select(&self, kept: &[usize]) -> Result<Self, Error> {
        let factors = self.factors.select(kept)?;
        let Noise { family, ref a, ref b } = self.noise;
        let width = if family.is_per_entry() { self.factors.d_input } else { 1 };
        let noise = Noise {
            family,
            a: select_rows(a, width, kept),
            b: select_columns(b, self.factors.rank, kept),
        };
        Ok(Self { factors, noise })
    }

    /// Variance of every entry, after the clamp; see [`VariationalFamily`].
    pub fn variance(&self) -> Entries {
        let [a, b] =
            [Factor::A, Factor::B].map(|factor| self.rows(factor, Entry::variance).concat());
        let Factors { rank, d_output, .. } = self.factors;
        Entries { a, b: transpose(&b, rank, d_output) }
    }

    /// One number per entry of a factor, by rank.
    pub(crate) fn rows(&self, factor: Factor, value: impl Fn(Entry) -> f64) -> Vec<Vec<f64>> {
        let Factors { rank, d_input, d_output, ref a, ref b } = self.factors;
        let Noise { family, a: ref a_noise, b: ref b_noise } = self.noise;
        let (means, own, width) = match factor {
            Factor::A => (a, a_noise, d_input),
            Factor::B => (b, b_noise, d_output),
        };
        let entry = |k: usize, i: usize| {
            let at = match factor {
                Factor::A => k * d_input + i,
                Factor::B => i * rank + k,
            };
            let parameter = if family.is_per_entry() { own[at] } else { a_noise[k] };
            let noise = if factor == Factor::B && !family.has_random_b() {
                EntryNoise::None
            } else if family.is_relative() {
                EntryNoise::LogAlpha(parameter)
            } else {
                EntryNoise::LogVariance(parameter)
            };
            value(Entry { mean: means[at], noise })
        };
        (0..rank).map(|k| (0..width).map(|i| entry(k, i)).collect()).collect()
    }
}

/// A factor of the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn factors() -> Factors {
        let (a, b) = (vec![0.5, -2.0, 0.0, 1.0], vec![3.0, -1.0]);
        Factors { rank: 2, d_input: 2, d_output: 1, a, b }
    }

    fn per_rank(family: VariationalFamily) -> Posterior {
        Posterior::new(factors(), Noise::per_rank(family, vec![0.0, 1.0])).unwrap()
    }

    fn per_entry() -> Posterior {
        let (a, b) = (vec![0.0, -30.0, 5.0, 1.0], vec![0.0, 0.0]);
        let family = VariationalFamily::ElementVariance;
        Posterior::new(factors(), Noise { family, a, b }).unwrap()
    }

    #[test]
    fn variances_by_family() {
        let additive = per_rank(VariationalFamily::RankVariance).variance();
        assert_eq!(additive.a, [1.0, 1.0, 1.0_f64.exp(), 1.0_f64.exp()]);
        assert_eq!(additive.b, [1.0, 1.0_f64.exp()]);
        let ratio = per_rank(VariationalFamily::NoiseToSignal).variance();
        assert_eq!(ratio.a, [0.25, 4.0, 0.0, 1.0_f64.exp()]);
        assert_eq!(per_rank(VariationalFamily::AsymRankVariance).variance().b, [0.0, 0.0]);
        assert_eq!(per_entry().variance().a[1..3], [(-20.0_f64).exp(), 2.0_f64.exp()]);
    }

    #[test]
    fn misfits_are_errors_by_name() {
        let of = |factors, family, a: &[f64], b: &[f64]| {
            Posterior::new(factors, Noise { family, a: a.to_vec(), b: b.to_vec() }).err()
        };
        let (rank, element) = (VariationalFamily::RankVariance, VariationalFamily::ElementVariance);
        let swapped = Factors { a: factors().b, b: factors().a, ..factors() };
        let huge = Factors { rank: usize::MAX, ..factors() };
        let overflow = Error::length("a", 4, format!("{} x 2", usize::MAX));
        for (factors, family, a, b, expected) in [
            (factors(), rank, &[0.0; 2][..], &[][..], None),
            (factors(), rank, &[0.0; 4], &[], Some(Error::length("noise of A", 4, 2))),
            (factors(), rank, &[0.0; 2], &[0.0; 2], Some(Error::length("noise of B", 2, 0))),
            (factors(), element, &[0.0; 4], &[0.0; 4], Some(Error::length("noise of B", 4, 2))),
            (swapped, rank, &[0.0; 2], &[], Some(Error::length("a", 2, "2 x 2"))),
            (huge, rank, &[0.0; 2], &[], Some(overflow)),
        ] {
            assert_eq!(of(factors, family, a, b), expected);
        }
    }

    #[test]
    fn a_selection_has_the_entries_of_its_components() {
        let all = VariationalFamily::ALL.map(|family| match family {
            VariationalFamily::ElementVariance => per_entry(),
            _ => per_rank(family),
        });
        for q in all {
            let turned = q.select(&[1, 0]).unwrap();
            for factor in [Factor::A, Factor::B] {
                let rows = |q: &Posterior| q.rows(factor, |e| e.mean + e.variance());
                let expected: Vec<_> = rows(&q).into_iter().rev().collect();
                assert_eq!(rows(&turned), expected, "{}", q.family());
                assert_eq!(rows(&q.select(&[1]).unwrap()), expected[..1], "{}", q.family());
            }
            let none = q.select(&[]).unwrap();
            assert_eq!((none.factors().d_input, none.variance()), (2, Entries::default()));
            let error = q.select(&[0, 2]).unwrap_err().to_string();
            assert_eq!(error, "`kept` is 2 at index 1, expected a component below 2");
        }
    }

    #[test]
    fn empty_factors_are_legal() {
        let flat = Factors { rank: 3, d_input: 0, d_output: 0, a: Vec::new(), b: Vec::new() };
        let noise = Noise::per_rank(VariationalFamily::RankVariance, vec![0.0; 3]);
        let flat = Posterior::new(flat, noise).unwrap();
        assert_eq!(flat.rows(Factor::A, |entry| entry.mean), vec![Vec::<f64>::new(); 3]);
        assert_eq!(flat.select(&[1]).unwrap().factors().rank, 1);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_serialised_form_is_checked_and_has_the_printed_names() {
        for q in [per_rank(VariationalFamily::NoiseToSignal), per_entry()] {
            let text = serde_json::to_string(&q).unwrap();
            assert!(text.contains(&format!("\"{}\"", q.family())), "{text}");
            assert_eq!(serde_json::from_str::<Posterior>(&text).unwrap(), q);
            let error = text.replace("\"rank\":2", "\"rank\":1");
            let error = serde_json::from_str::<Posterior>(&error).unwrap_err().to_string();
            assert!(error.starts_with("`a` has length 4, expected 1 x 2"), "{error}");
        }
    }
}
