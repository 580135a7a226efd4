//! One adapter's posterior: its parts, and how its variance depends on them.
//!
//! Every family is the same object to the rest of the crate: two factors of means and a variance
//! per entry. The formulas for KL, moments and forward passes are therefore written once, in terms
//! of entry variances; what differs between families is here: how an entry's variance (or signed
//! noise scale) follows from the parameters.

use crate::error::{Error, check_length};
use crate::factor::FactorView;
use crate::family::{LOG_ALPHA_MAX, VariationalFamily, clamp_log_variance};

/// The posterior parameters beside the means, by family.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum NoiseParameters<'a> {
    /// Log-variance `[rank]`, shared by A and B.
    RankVariance(&'a [f64]),
    /// Log noise-to-signal ratio `[rank]`, shared by A and B.
    NoiseToSignal(&'a [f64]),
    /// Log-variances, one per entry.
    ElementVariance {
        /// `[rank, d_input]`.
        a: &'a [f64],
        /// `[rank, d_output]`.
        b: &'a [f64],
    },
    /// Log-variance `[rank]` of A; B is not random.
    AsymRankVariance(&'a [f64]),
}

/// The posterior of one adapter: means of A and B, and the parameters of their noise.
///
/// # Shapes
///
/// | Name         | Shape              | Unit                          |
/// |--------------|--------------------|-------------------------------|
/// | `a_mean`     | `[rank, d_input]`  | weight                        |
/// | `b_mean`     | `[rank, d_output]` | weight                        |
/// | `parameters` | by family          | ln(weight²), or ln of a ratio |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Posterior<'a> {
    a_mean: FactorView<'a>,
    b_mean: FactorView<'a>,
    parameters: NoiseParameters<'a>,
}

/// One number per entry of A and one per entry of B.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries {
    /// `[rank, d_input]`.
    pub a: Vec<f64>,
    /// `[rank, d_output]`.
    pub b: Vec<f64>,
}

impl<'a> Posterior<'a> {
    /// Puts a posterior together.
    pub fn new(
        a_mean: FactorView<'a>,
        b_mean: FactorView<'a>,
        parameters: NoiseParameters<'a>,
    ) -> Result<Self, Error> {
        check_length("rows of b_mean", b_mean.rank(), a_mean.rank())?;
        match parameters {
            NoiseParameters::RankVariance(v) | NoiseParameters::AsymRankVariance(v) => {
                check_length("log_variance", v.len(), a_mean.rank())?;
            }
            NoiseParameters::NoiseToSignal(v) => {
                check_length("log_alpha", v.len(), a_mean.rank())?;
            }
            NoiseParameters::ElementVariance { a, b } => {
                check_length("a_log_variance", a.len(), a_mean.values().len())?;
                check_length("b_log_variance", b.len(), b_mean.values().len())?;
            }
        }
        Ok(Self { a_mean, b_mean, parameters })
    }

    /// The means of A, `[rank, d_input]`.
    pub fn a_mean(&self) -> FactorView<'a> {
        self.a_mean
    }

    /// The means of B, `[rank, d_output]`.
    pub fn b_mean(&self) -> FactorView<'a> {
        self.b_mean
    }

    /// The family's own parameters.
    pub fn parameters(&self) -> NoiseParameters<'a> {
        self.parameters
    }

    /// The family.
    pub fn family(&self) -> VariationalFamily {
        match self.parameters {
            NoiseParameters::RankVariance(_) => VariationalFamily::RankVariance,
            NoiseParameters::NoiseToSignal(_) => VariationalFamily::NoiseToSignal,
            NoiseParameters::ElementVariance { .. } => VariationalFamily::ElementVariance,
            NoiseParameters::AsymRankVariance(_) => VariationalFamily::AsymRankVariance,
        }
    }

    /// The number of rank components.
    pub fn rank(&self) -> usize {
        self.a_mean.rank()
    }

    /// The width of A.
    pub fn d_input(&self) -> usize {
        self.a_mean.width()
    }

    /// The width of B.
    pub fn d_output(&self) -> usize {
        self.b_mean.width()
    }

    /// The parameter that governs entry `index` of a factor, in the flat rank-major order.
    fn parameter(&self, factor: Factor, index: usize) -> f64 {
        match (self.parameters, factor) {
            (
                NoiseParameters::RankVariance(v)
                | NoiseParameters::NoiseToSignal(v)
                | NoiseParameters::AsymRankVariance(v),
                _,
            ) => v[index / self.view(factor).width()],
            (NoiseParameters::ElementVariance { a, .. }, Factor::A) => a[index],
            (NoiseParameters::ElementVariance { b, .. }, Factor::B) => b[index],
        }
    }

    pub(crate) fn view(&self, factor: Factor) -> FactorView<'a> {
        match factor {
            Factor::A => self.a_mean,
            Factor::B => self.b_mean,
        }
    }

    /// The variance of every entry, after the clamp.
    ///
    /// See [`VariationalFamily`].
    pub fn variance(&self) -> Entries {
        self.map(Entry::variance)
    }

    /// The signed scale that multiplies a standard-normal draw in weight space.
    ///
    /// ```text
    /// additive        exp(log_variance / 2)
    /// multiplicative  exp(log_alpha / 2) · mean        (so A = a_mean · (1 + √α · ξ))
    /// ```
    pub fn noise_scale(&self) -> Entries {
        self.map(Entry::noise_scale)
    }

    /// One number per entry of each factor.
    fn map(&self, value: impl Fn(Entry) -> f64) -> Entries {
        let one = |factor| self.entries(factor).map(&value).collect();
        Entries { a: one(Factor::A), b: one(Factor::B) }
    }

    /// The entries of one factor in flat order, with what governs their noise.
    pub(crate) fn entries(&self, factor: Factor) -> impl Iterator<Item = Entry> + use<'a> {
        let posterior = *self;
        let kind = match (self.family(), factor) {
            (VariationalFamily::AsymRankVariance, Factor::B) => EntryKind::Fixed,
            (VariationalFamily::NoiseToSignal, _) => EntryKind::Multiplicative,
            _ => EntryKind::Additive,
        };
        self.view(factor).values().iter().enumerate().map(move |(index, &mean)| Entry {
            mean,
            parameter: posterior.parameter(factor, index),
            kind,
        })
    }
}

/// Which of the two factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
}

/// How one entry's noise follows from its parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The parameter is a log-variance, clamped.
    Additive,
    /// The parameter is a log noise-to-signal ratio.
    Multiplicative,
    /// No noise.
    Fixed,
}

/// One entry of a factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) mean: f64,
    pub(crate) parameter: f64,
    pub(crate) kind: EntryKind,
}

impl Entry {
    /// Its variance, after the clamp.
    pub(crate) fn variance(self) -> f64 {
        match self.kind {
            EntryKind::Additive => clamp_log_variance(self.parameter).exp(),
            EntryKind::Multiplicative => {
                self.parameter.min(LOG_ALPHA_MAX).exp() * self.mean * self.mean
            }
            EntryKind::Fixed => 0.0,
        }
    }

    /// Its signed scale in weight space.
    pub(crate) fn noise_scale(self) -> f64 {
        match self.kind {
            EntryKind::Additive => (0.5 * clamp_log_variance(self.parameter)).exp(),
            EntryKind::Multiplicative => {
                (0.5 * self.parameter.min(LOG_ALPHA_MAX)).exp() * self.mean
            }
            EntryKind::Fixed => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: [f64; 4] = [0.5, -2.0, 0.0, 1.0];
    const B: [f64; 2] = [3.0, -1.0];

    fn posterior(parameters: NoiseParameters<'_>) -> Result<Posterior<'_>, Error> {
        Posterior::new(FactorView::new("a", &A, 2, 2)?, FactorView::new("b", &B, 2, 1)?, parameters)
    }

    #[test]
    fn variances_by_family() {
        let l = [0.0, 1.0];
        let additive = posterior(NoiseParameters::RankVariance(&l)).unwrap().variance();
        assert_eq!(additive.a, [1.0, 1.0, 1.0_f64.exp(), 1.0_f64.exp()]);
        assert_eq!(additive.b, [1.0, 1.0_f64.exp()]);
        let ratio = posterior(NoiseParameters::NoiseToSignal(&l)).unwrap();
        assert_eq!(ratio.variance().a, [0.25, 4.0, 0.0, 1.0_f64.exp()]);
        assert_eq!(ratio.noise_scale().a[..2], [0.5, -2.0]);
        let asym = posterior(NoiseParameters::AsymRankVariance(&l)).unwrap();
        assert_eq!(asym.variance().b, [0.0, 0.0]);
        let (a, b) = ([0.0, -30.0, 5.0, 1.0], [0.0, 0.0]);
        let element = posterior(NoiseParameters::ElementVariance { a: &a, b: &b }).unwrap();
        assert_eq!(element.variance().a[1], (-20.0_f64).exp());
        assert_eq!(element.variance().a[2], 2.0_f64.exp());
    }

    #[test]
    fn misfits_are_errors_by_name() {
        let error = posterior(NoiseParameters::NoiseToSignal(&[0.0])).unwrap_err();
        assert_eq!(error, Error::length("log_alpha", 1, 2));
        let a = FactorView::new("a", &A, 2, 2).unwrap();
        let b = FactorView::new("b", &B, 1, 2).unwrap();
        let error = Posterior::new(a, b, NoiseParameters::RankVariance(&[0.0; 2])).unwrap_err();
        assert_eq!(error, Error::length("rows of b_mean", 1, 2));
        let wrong = NoiseParameters::ElementVariance { a: &A, b: &A };
        assert!(posterior(wrong).is_err());
    }
}
