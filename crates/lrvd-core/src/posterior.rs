//! The posterior of one adapter: its parts, and how its variance depends on them.
//!
//! Every family is the same object to the rest of the crate: two factors of means and a variance per entry. The formulas of
//! KL, moments and forward passes are written once, in terms of entry variances; what differs between families is here: how
//! the variance (or the signed noise scale) of an entry follows from the parameters.

use crate::error::{Error, check_length, count_rows};
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
        Self::of_rank(VariationalFamily::RankVariance, log_variance.len(), [a, b], noise)
    }

    /// [`VariationalFamily::NoiseToSignal`], with `log_alpha [rank]`.
    pub fn noise_to_signal(
        a: &'a [f64],
        b: &'a [f64],
        log_alpha: &'a [f64],
    ) -> Result<Self, Error> {
        let noise = [log_alpha; 2];
        Self::of_rank(VariationalFamily::NoiseToSignal, log_alpha.len(), [a, b], noise)
    }

    /// [`VariationalFamily::AsymRankVariance`], with `log_variance [rank]`.
    pub fn asym_rank_variance(
        a: &'a [f64],
        b: &'a [f64],
        log_variance: &'a [f64],
    ) -> Result<Self, Error> {
        let noise = [log_variance; 2];
        Self::of_rank(VariationalFamily::AsymRankVariance, log_variance.len(), [a, b], noise)
    }

    /// [`VariationalFamily::ElementVariance`], with log-variances of the shapes of the means.
    pub fn element_variance(
        rank: usize,
        means: [&'a [f64]; 2],
        log_variance: [&'a [f64]; 2],
    ) -> Result<Self, Error> {
        Self::of_rank(VariationalFamily::ElementVariance, rank, means, log_variance)
    }

    fn of_rank(
        family: VariationalFamily,
        rank: usize,
        [a, b]: [&'a [f64]; 2],
        noise: [&'a [f64]; 2],
    ) -> Result<Self, Error> {
        let shape = [rank, count_rows("a_mean", a, rank)?, count_rows("b_mean", b, rank)?];
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
        self.map(|entry| match entry.noise {
            Noise::LogVariance(l) => clamp_log_variance(l).exp(),
            Noise::LogAlpha(a) => a.min(LOG_ALPHA_MAX).exp() * entry.mean * entry.mean,
            Noise::None => 0.0,
        })
    }

    /// The signed scale that multiplies a standard-normal draw in weight space.
    ///
    /// ```text
    /// additive        exp(log_variance / 2)
    /// multiplicative  exp(log_alpha / 2) · mean        (so A = a_mean · (1 + √α · ξ))
    /// ```
    pub fn noise_scale(&self) -> Entries {
        self.map(|entry| match entry.noise {
            Noise::LogVariance(l) => (0.5 * clamp_log_variance(l)).exp(),
            Noise::LogAlpha(a) => (0.5 * a.min(LOG_ALPHA_MAX)).exp() * entry.mean,
            Noise::None => 0.0,
        })
    }

    /// Log noise-to-signal ratios of all entries.
    ///
    /// Those of multiplicative entries are their parameter, without any constant. Entries without noise (B of the A-only
    /// family) have `−inf`.
    pub fn log_alpha(&self, floor: AlphaFloor) -> Entries {
        self.map(|entry| entry.log_alpha(floor).unwrap_or(f64::NEG_INFINITY))
    }

    /// One number per entry of each factor.
    fn map(&self, value: impl Fn(Entry) -> f64) -> Entries {
        let [a, b] = [Factor::A, Factor::B].map(|factor| self.rows(factor, &value).concat());
        Entries { a, b }
    }

    /// One number per entry of a factor, by rank.
    pub(crate) fn rows(&self, factor: Factor, value: impl Fn(Entry) -> f64) -> Vec<Vec<f64>> {
        let (means, noise) = (self.means[factor as usize], self.noise[factor as usize]);
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

/// Which of the two factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
}

/// What governs the noise of one entry.
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
    /// The ratio of the entry, whatever its family; `None` without noise.
    pub(crate) fn log_alpha(self, floor: AlphaFloor) -> Option<f64> {
        match self.noise {
            Noise::LogVariance(l) => Some(log_alpha(self.mean, l, floor)),
            Noise::LogAlpha(a) => Some(a),
            Noise::None => None,
        }
    }

    /// The log-variance, as stored or after the clamp of `log_alpha`; that of an entry without noise is `−inf`.
    pub(crate) fn log_variance(self) -> f64 {
        match self.noise {
            Noise::LogVariance(l) => l,
            Noise::LogAlpha(a) => a.min(LOG_ALPHA_MAX) + (self.mean * self.mean).ln(),
            Noise::None => f64::NEG_INFINITY,
        }
    }
}

/// A floor under the ratio σ²/μ²: 0 for none, 1e-8 for the authors' numerics.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AlphaFloor(f64);

impl AlphaFloor {
    /// No floor: the default.
    pub const NONE: Self = Self(0.0);
    /// The floor that the authors' code adds to the ratio before its logarithm, 1e-8.
    pub const AUTHORS: Self = Self(1e-8);
}

/// Log noise-to-signal ratio of one weight with an additive variance.
///
/// ```text
/// log_alpha = ln(exp(ℓ) / (mean² + EPS_MEAN) + alpha_floor),   ℓ = clamp(log_variance, −20, 2)
/// ```
///
/// Without a floor this is `ℓ − ln(mean² + EPS_MEAN)`, exact for any size of the ratio. The authors' floor of 1e-8 bends the
/// curve below `log_alpha = −14` and stops it at −18.4; it is an option because their numbers were made with it.
///
/// Source: Molchanov et al. 2017, arXiv:1701.05369; Doyle et al., arXiv:2506.22809.
pub fn log_alpha(mean: f64, log_variance: f64, floor: AlphaFloor) -> f64 {
    let signal = mean * mean + EPS_MEAN;
    let plain = clamp_log_variance(log_variance) - signal.ln();
    if floor.0 == 0.0 {
        return plain;
    }
    let log_floor = floor.0.ln();
    let (high, low) = (plain.max(log_floor), plain.min(log_floor));
    high + (low - high).exp().ln_1p()
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
        assert_eq!(ratio.noise_scale().a[..2], [0.5, -2.0]);
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
    fn the_floor_bends_only_tiny_ratios_and_a_zero_mean_has_a_finite_one() {
        // ln(exp(−20) / 1 + 1e-8) = ln(2.0611536e-9 + 1e-8).
        let floored = log_alpha(1.0, -20.0, AlphaFloor::AUTHORS);
        let signal = 1.0 + EPS_MEAN;
        assert!((floored - ((-20.0_f64).exp() / signal + 1e-8).ln()).abs() < 1e-13);
        assert!((log_alpha(1.0, -20.0, AlphaFloor::NONE) + 20.0 + 1e-8).abs() < 1e-13);
        let plain = log_alpha(0.02, -8.0, AlphaFloor::NONE);
        assert!((plain - log_alpha(0.02, -8.0, AlphaFloor::AUTHORS)).abs() < 2e-5);
        let zero = log_alpha(0.0, -8.0, AlphaFloor::NONE);
        assert!((zero - (-8.0 - 1e-8_f64.ln())).abs() < 1e-14);
    }
}
