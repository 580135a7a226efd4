//! SWAG: a Gaussian posterior from the last iterates of the optimizer.

use crate::error::{Error, check_finite, check_length, check_range};

/// Deviations kept by default.
pub const MAX_DEVIATIONS: usize = 5;
/// Scale of the standard sampler: half of the covariance from the diagonal, half from the deviations.
pub const SCALE: f64 = 0.5;
/// Floor under the diagonal variance.
const VARIANCE_FLOOR: f64 = 1e-30;

/// Moments of the weights collected so far, and their last deviations.
///
/// At the `n`-th collection of weights `θ`:
///
/// ```text
/// mean ← ((n − 1)·mean + θ)/n       second_moment ← ((n − 1)·second_moment + θ²)/n
/// deviations ← last K of [deviations, θ − mean]          from the mean at that collection
/// ```
///
/// `mean` and `second_moment` are `[n_weights]`, `deviations` is `[k, n_weights]` with `k ≤ K`, oldest
/// first: `(2 + K)·n_weights` numbers in all.
///
/// Source: Maddox et al. 2019, SWAG, arXiv:1902.02476; on adapters: Onal et al. 2024, arXiv:2405.03425.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "Unchecked")
)]
pub struct Swag {
    n_collected: usize,
    max_deviations: usize,
    mean: Vec<f64>,
    second_moment: Vec<f64>,
    deviations: Vec<f64>,
}

impl Swag {
    /// Nothing collected yet, for `n_weights` weights and at most `max_deviations` deviations.
    pub fn new(n_weights: usize, max_deviations: usize) -> Self {
        let mean = vec![0.0; n_weights];
        let second_moment = mean.clone();
        Self { n_collected: 0, max_deviations, mean, second_moment, deviations: Vec::new() }
    }

    /// Takes the current weights in.
    pub fn collect(&mut self, weights: &[f64]) -> Result<(), Error> {
        check_length("weights", weights.len(), self.mean.len())?;
        check_finite("weights", weights)?;
        let share = 1.0 / (self.n_collected + 1) as f64;
        for ((mean, square), w) in self.mean.iter_mut().zip(&mut self.second_moment).zip(weights) {
            *mean += (w - *mean) * share;
            *square += (w * w - *square) * share;
        }
        if self.max_deviations > 0 {
            if self.n_deviations() == self.max_deviations {
                self.deviations.drain(..self.mean.len());
            }
            self.deviations.extend(weights.iter().zip(&self.mean).map(|(w, m)| w - m));
        }
        self.n_collected += 1;
        Ok(())
    }

    /// The average of the collected weights.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The diagonal variance, `max(second_moment − mean², 1e-30)`.
    pub fn variance(&self) -> Vec<f64> {
        let pairs = self.second_moment.iter().zip(&self.mean);
        pairs.map(|(square, mean)| (square - mean * mean).max(VARIANCE_FLOOR)).collect()
    }

    /// Deviations kept now, `k`.
    pub fn n_deviations(&self) -> usize {
        self.n_collected.min(self.max_deviations)
    }

    /// The deviations, `[k, n_weights]`, oldest first.
    pub fn deviations(&self) -> &[f64] {
        &self.deviations
    }

    /// One draw of the weights.
    ///
    /// ```text
    /// θ = mean + √scale·( √variance ∘ z1 + 1/√(k − 1)·Σ_j deviation_j·z2_j )
    /// ```
    ///
    /// `scale` is [`SCALE`] for the standard sampler, 1 in the published configuration for adapters and 0
    /// for the mean. `k` counts the deviations kept, which is `K` once `K` were collected.
    ///
    /// `diagonal_noise` (`z1`) is `[n_weights]`, `deviation_noise` (`z2`) is `[k]`.
    pub fn sample(
        &self,
        scale: f64,
        diagonal_noise: &[f64],
        deviation_noise: &[f64],
    ) -> Result<Vec<f64>, Error> {
        check_range("scale", scale, 0.0..)?;
        let k = self.n_deviations();
        check_length("diagonal_noise", diagonal_noise.len(), self.mean.len())?;
        check_length("deviation_noise", deviation_noise.len(), k)?;
        if k < 2 {
            let reason = "needs at least two collected deviations";
            return Err(Error::undefined("swag sample", reason));
        }
        let diagonal = scale.sqrt();
        let low_rank = (scale / (k - 1) as f64).sqrt();
        let variance = self.variance();
        let mut draw: Vec<f64> = self
            .mean
            .iter()
            .zip(&variance)
            .zip(diagonal_noise)
            .map(|((mean, variance), z)| mean + diagonal * variance.sqrt() * z)
            .collect();
        for (z, deviation) in deviation_noise.iter().zip(self.deviations.chunks(draw.len().max(1)))
        {
            for (value, d) in draw.iter_mut().zip(deviation) {
                *value += low_rank * z * d;
            }
        }
        Ok(draw)
    }
}

/// The stored form, checked on the way in.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    n_collected: usize,
    max_deviations: usize,
    mean: Vec<f64>,
    second_moment: Vec<f64>,
    deviations: Vec<f64>,
}

#[cfg(feature = "serde")]
impl TryFrom<Unchecked> for Swag {
    type Error = Error;

    fn try_from(stored: Unchecked) -> Result<Self, Error> {
        let kept = stored.n_collected.min(stored.max_deviations);
        let expected = kept.saturating_mul(stored.mean.len());
        check_length("second_moment", stored.second_moment.len(), stored.mean.len())?;
        check_length("deviations", stored.deviations.len(), expected)?;
        Ok(Self {
            n_collected: stored.n_collected,
            max_deviations: stored.max_deviations,
            mean: stored.mean,
            second_moment: stored.second_moment,
            deviations: stored.deviations,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::assert_near;

    const PATH: [[f64; 2]; 4] = [[1.0, 0.0], [3.0, -2.0], [2.0, 2.0], [6.0, 4.0]];

    fn collected(n: usize, max: usize) -> Swag {
        let mut swag = Swag::new(2, max);
        for weights in &PATH[..n] {
            swag.collect(weights).unwrap();
        }
        swag
    }

    #[test]
    fn moments_and_deviations_by_hand() {
        let swag = collected(4, 3);
        assert_near(swag.mean(), &[3.0, 1.0], 1e-14);
        // Means of squares 50/4 and 24/4, less 9 and 1.
        assert_near(&swag.variance(), &[3.5, 5.0], 1e-14);
        // Means along the way: (1, 0), (2, −1), (2, 0), (3, 1); the first deviation was dropped.
        assert_near(swag.deviations(), &[1.0, -1.0, 0.0, 2.0, 3.0, 3.0], 1e-14);
        assert_eq!(swag.n_deviations(), 3);
    }

    #[test]
    fn a_draw_by_hand() {
        let swag = collected(4, 3);
        // √½·(√3.5·1 + (1·1 + 0·2 + 3·(−1))/√2) and √½·(√5·(−1) + (−1 + 4 − 3)/√2).
        let expected = [3.0 + 1.75_f64.sqrt() - 1.0, 1.0 - 2.5_f64.sqrt()];
        let found = swag.sample(SCALE, &[1.0, -1.0], &[1.0, 2.0, -1.0]).unwrap();
        assert_near(&found, &expected, 1e-14);
        let unit = swag.sample(1.0, &[0.0, 0.0], &[0.0, 1.0, 0.0]).unwrap();
        assert_near(&unit, &[3.0, 1.0 + 2.0 / 2.0_f64.sqrt()], 1e-14);
        assert_eq!(swag.sample(0.0, &[1.0, 1.0], &[1.0; 3]).unwrap(), swag.mean());
    }

    #[test]
    fn weights_that_never_move_have_the_floor_as_variance() {
        let mut swag = Swag::new(1, 2);
        for _ in 0..3 {
            swag.collect(&[0.1]).unwrap();
        }
        assert_eq!(swag.variance(), [VARIANCE_FLOOR]);
        assert!((swag.sample(1.0, &[1.0], &[1.0, 1.0]).unwrap()[0] - 0.1).abs() < 1e-14);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut swag = collected(1, 3);
        assert!(swag.collect(&[1.0]).is_err());
        assert!(swag.collect(&[1.0, f64::NAN]).is_err());
        assert_eq!(swag, collected(1, 3));
        assert!(matches!(swag.sample(0.5, &[0.0; 2], &[0.0]), Err(Error::Undefined { .. })));
        let swag = collected(3, 3);
        assert!(swag.sample(-0.5, &[0.0; 2], &[0.0; 3]).is_err());
        assert!(swag.sample(0.5, &[0.0; 3], &[0.0; 3]).is_err());
        assert!(swag.sample(0.5, &[0.0; 2], &[0.0; 2]).is_err());
        let none = collected(3, 0);
        assert!(none.deviations().is_empty() && none.sample(0.5, &[0.0; 2], &[]).is_err());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_stored_state_goes_on_and_a_broken_one_is_an_error() {
        let text = serde_json::to_string(&collected(3, 2)).unwrap();
        let mut read: Swag = serde_json::from_str(&text).unwrap();
        read.collect(&PATH[3]).unwrap();
        assert_eq!(read, collected(4, 2));
        let broken = text.replace("\"n_collected\":3", "\"n_collected\":1");
        assert!(serde_json::from_str::<Swag>(&broken).is_err());
    }
}
