//! The posterior of one adapter: its parts, and the variance as a function of them.
//!
//! Every family is the same object to the rest of the crate: two factors of means and a variance per entry. The formulas of
//! KL and moments are written once, in terms of entry variances; the variance of an entry as a function of the parameters is
//! all that differs between families.

use crate::error::{Error, check_length, row_count};
use crate::family::{EPS_MEAN, LOG_ALPHA_MAX, VariationalFamily, clamp_log_variance};

/// The posterior of one adapter: means of A and B, and the parameters of their noise, all borrowed.
///
/// # Shapes
///
/// Both factors are rank-major: row `k` holds the entries of rank component `k`. Adapter files store B as `[d_output, rank]`.
///
/// | Name | Shape | Unit |
/// |---|---|---|
/// | means of A | `[rank, d_input]` | weight |
/// | means of B | `[rank, d_output]` | weight |
/// | noise | `[rank]`, or as the means | ln(weight²), or ln of a ratio |
///
/// A rank or a width of 0 is legal.
///
/// # Examples
///
/// ```
/// use lrvd_core::Posterior;
///
/// // Rank 1, two inputs, one output.
/// let q = Posterior::rank_variance(&[0.5, -1.0], &[2.0], &[-2.0])?;
/// assert_eq!((q.rank(), q.d_input(), q.d_output()), (1, 2, 1));
/// assert_eq!(q.variance().a, [(-2.0_f64).exp(); 2]);
/// assert!(Posterior::rank_variance(&[0.5, -1.0, 0.1], &[2.0, 1.0], &[-2.0, -3.0]).is_err());
/// # Ok::<(), lrvd_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Posterior<'a> {
    family: VariationalFamily,
    rank: usize,
    /// Widths, means and noise parameters of A and of B.
    widths: [usize; 2],
    means: [&'a [f64]; 2],
    noise: [&'a [f64]; 2],
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
    /// Any family, with the widths given: the parameters of the noise of A and of B are both those of the rank where a family
    /// shares them. Those of B are not read where B is not random.
    pub fn new(
        family: VariationalFamily,
        [rank, d_input, d_output]: [usize; 3],
        means: [&'a [f64]; 2],
        noise: [&'a [f64]; 2],
    ) -> Result<Self, Error> {
        let is_per_entry = family == VariationalFamily::ElementVariance;
        let widths = [d_input, d_output];
        for (i, [mean, parameter]) in
            [["a_mean", "noise of A"], ["b_mean", "noise of B"]].into_iter().enumerate()
        {
            if rank.checked_mul(widths[i]) != Some(means[i].len()) {
                let expected = format!("{rank} x {}", widths[i]);
                return Err(Error::length(mean, means[i].len(), expected));
            }
            let expected = if is_per_entry { means[i].len() } else { rank };
            check_length(parameter, noise[i].len(), expected)?;
        }
        Ok(Self { family, rank, widths, means, noise })
    }

    /// [`VariationalFamily::RankVariance`], with `log_variance [rank]`.
    pub fn rank_variance(
        a: &'a [f64],
        b: &'a [f64],
        log_variance: &'a [f64],
    ) -> Result<Self, Error> {
        let noise = [log_variance; 2];
        Self::with_widths(VariationalFamily::RankVariance, log_variance.len(), [a, b], noise)
    }

    /// [`VariationalFamily::NoiseToSignal`], with `log_alpha [rank]`.
    pub fn noise_to_signal(
        a: &'a [f64],
        b: &'a [f64],
        log_alpha: &'a [f64],
    ) -> Result<Self, Error> {
        let noise = [log_alpha; 2];
        Self::with_widths(VariationalFamily::NoiseToSignal, log_alpha.len(), [a, b], noise)
    }

    /// [`VariationalFamily::AsymRankVariance`], with `log_variance [rank]`.
    pub fn asym_rank_variance(
        a: &'a [f64],
        b: &'a [f64],
        log_variance: &'a [f64],
    ) -> Result<Self, Error> {
        let noise = [log_variance; 2];
        Self::with_widths(VariationalFamily::AsymRankVariance, log_variance.len(), [a, b], noise)
    }

    /// [`VariationalFamily::ElementVariance`], with log-variances of the shapes of the means.
    pub fn element_variance(
        rank: usize,
        means: [&'a [f64]; 2],
        log_variance: [&'a [f64]; 2],
    ) -> Result<Self, Error> {
        Self::with_widths(VariationalFamily::ElementVariance, rank, means, log_variance)
    }

    fn with_widths(
        family: VariationalFamily,
        rank: usize,
        [a, b]: [&'a [f64]; 2],
        noise: [&'a [f64]; 2],
    ) -> Result<Self, Error> {
        let shape = [rank, row_count("a_mean", a, rank)?, row_count("b_mean", b, rank)?];
        Self::new(family, shape, [a, b], noise)
    }

    /// The family.
    pub fn family(&self) -> VariationalFamily {
        self.family
    }

    /// The number of rank components.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The width of A.
    pub fn d_input(&self) -> usize {
        self.widths[0]
    }

    /// The width of B.
    pub fn d_output(&self) -> usize {
        self.widths[1]
    }

    /// The means of A, `[rank, d_input]`.
    pub fn a_mean(&self) -> &'a [f64] {
        self.means[0]
    }

    /// The means of B, `[rank, d_output]`.
    pub fn b_mean(&self) -> &'a [f64] {
        self.means[1]
    }

    /// The parameters of the noise of A: `[rank]`, or one per entry.
    pub fn a_noise(&self) -> &'a [f64] {
        self.noise[0]
    }

    /// The variance of every entry, after the clamp; see [`VariationalFamily`].
    pub fn variance(&self) -> Entries {
        let [a, b] =
            [Factor::A, Factor::B].map(|factor| self.rows(factor, Entry::variance).concat());
        Entries { a, b }
    }

    /// One number per entry of a factor, by rank.
    pub(crate) fn rows(&self, factor: Factor, value: impl Fn(Entry) -> f64) -> Vec<Vec<f64>> {
        let means = self.means[factor as usize];
        let noise = self.noise[factor as usize];
        let width = self.widths[factor as usize];
        let entry = |k: usize, at: usize| {
            let noise = match (self.family, factor) {
                (VariationalFamily::RankVariance, _)
                | (VariationalFamily::AsymRankVariance, Factor::A) => Noise::LogVariance(noise[k]),
                (VariationalFamily::ElementVariance, _) => Noise::LogVariance(noise[at]),
                (VariationalFamily::NoiseToSignal, _) => Noise::LogAlpha(noise[k]),
                (VariationalFamily::AsymRankVariance, Factor::B) => Noise::None,
            };
            value(Entry { mean: means[at], noise })
        };
        let row = |k: usize| (k * width..(k + 1) * width).map(|at| entry(k, at)).collect();
        (0..self.rank).map(row).collect()
    }
}

/// A factor of the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
}

/// Parameter of the noise of one entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    LogVariance(f64),
    LogAlpha(f64),
    None,
}

/// One entry of a factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) mean: f64,
    pub(crate) noise: Noise,
}

impl Entry {
    /// Variance, after the clamp.
    pub(crate) fn variance(self) -> f64 {
        match self.noise {
            Noise::LogVariance(l) => clamp_log_variance(l).exp(),
            Noise::LogAlpha(a) => a.min(LOG_ALPHA_MAX).exp() * self.mean * self.mean,
            Noise::None => 0.0,
        }
    }

    /// Logarithm of the variance; `−inf` of an entry without noise.
    pub(crate) fn log_variance(self) -> f64 {
        match self.noise {
            Noise::LogVariance(l) => clamp_log_variance(l),
            Noise::LogAlpha(_) | Noise::None => self.variance().ln(),
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
            Noise::LogVariance(_) => {
                Some(self.log_variance() - (self.mean * self.mean + EPS_MEAN).ln())
            }
            Noise::LogAlpha(a) => Some(a),
            Noise::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: [f64; 4] = [0.5, -2.0, 0.0, 1.0];
    const B: [f64; 2] = [3.0, -1.0];

    #[test]
    fn variances_by_family() {
        let l = [0.0, 1.0];
        let additive = Posterior::rank_variance(&A, &B, &l).unwrap().variance();
        assert_eq!(additive.a, [1.0, 1.0, 1.0_f64.exp(), 1.0_f64.exp()]);
        assert_eq!(additive.b, [1.0, 1.0_f64.exp()]);
        let ratio = Posterior::noise_to_signal(&A, &B, &l).unwrap();
        assert_eq!(ratio.variance().a, [0.25, 4.0, 0.0, 1.0_f64.exp()]);
        assert_eq!(Posterior::asym_rank_variance(&A, &B, &l).unwrap().variance().b, [0.0, 0.0]);
        let (a, b) = ([0.0, -30.0, 5.0, 1.0], [0.0, 0.0]);
        let element = Posterior::element_variance(2, [&A, &B], [&a, &b]).unwrap().variance();
        assert_eq!(element.a[1..3], [(-20.0_f64).exp(), 2.0_f64.exp()]);
    }

    #[test]
    fn misfits_are_errors_by_name() {
        let of = |a: &[f64], b: &[f64]| Posterior::noise_to_signal(a, b, &[0.0; 2]).err();
        assert_eq!(of(&A[..3], &B), Some(Error::length("a_mean", 3, "a multiple of 2")));
        assert_eq!(of(&A, &B[..1]), Some(Error::length("b_mean", 1, "a multiple of 2")));
        let new = |shape, noise| {
            Posterior::new(VariationalFamily::RankVariance, shape, [&A, &B], noise).err()
        };
        assert_eq!(new([2, 2, 1], [&[0.0; 2]; 2]), None);
        assert_eq!(new([2, 2, 1], [&A, &A]), Some(Error::length("noise of A", 4, 2)));
        assert_eq!(new([2, 2, 2], [&[0.0; 2]; 2]), Some(Error::length("b_mean", 2, "2 x 2")));
        assert!(new([usize::MAX, 2, 1], [&[0.0; 2]; 2]).is_some());
        assert!(Posterior::element_variance(2, [&A, &B], [&A, &A]).is_err());
    }

    #[test]
    fn empty_factors_are_legal() {
        let family = VariationalFamily::RankVariance;
        let none = Posterior::new(family, [0, 5, 2], [&[], &[]], [&[], &[]]).unwrap();
        assert_eq!((none.d_input(), none.variance()), (5, Entries::default()));
        let flat = Posterior::rank_variance(&[], &[], &[0.0; 3]).unwrap();
        assert_eq!(flat.rows(Factor::A, |entry| entry.mean), vec![Vec::<f64>::new(); 3]);
    }

    #[test]
    fn a_zero_mean_has_a_finite_ratio() {
        let ratio = |mean, l| Entry { mean, noise: Noise::LogVariance(l) }.log_alpha().unwrap();
        assert!((ratio(1.0, -20.0) + 20.0 + 1e-8).abs() < 1e-13);
        assert!((ratio(0.0, -8.0) - (-8.0 - 1e-8_f64.ln())).abs() < 1e-14);
    }
}
