//! Out-of-distribution score (Mahalanobis distance) with its conformal p-value, and the conformal interval of a predicted number.

use std::collections::BTreeMap;

use crate::error::{Error, at_least_one_row, check_finite, check_range, check_same_length};
use crate::linalg::Cholesky;

/// Squared Mahalanobis distance of features to the nearest class mean, with one covariance for all classes.
///
/// ```text
/// d²(x) = min_c (x − μ_c)ᵀ Σ⁻¹ (x − μ_c),   Σ = (1 − ρ)·S + ρ·tr(S)/d·I
/// S = (1/n) Σ_i (x_i − μ_c(i))(x_i − μ_c(i))ᵀ
/// ρ = min(1, ((1 − 2/d)·tr(S²) + tr(S)²) / ((n + 1 − 2/d)·(tr(S²) − tr(S)²/d)))
/// ```
///
/// `ρ` is the oracle-approximating shrinkage, which keeps `Σ` invertible if there are fewer rows than features.
///
/// Source: Lee et al. 2018, arXiv:1807.03888; Chen et al. 2010, arXiv:0907.4698, equation 23.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassDistance {
    /// `L⁻¹ μ_c` of every class with rows, `[classes, width]`.
    means: Vec<f64>,
    /// `L`, where `Σ = L·Lᵀ`.
    root: Cholesky,
}

/// Means of classes and the covariance around them, of rows that come in parts: memory for the classes and a square of the width,
/// whatever the number of rows.
///
/// ```text
/// δ = x − μ_c;   μ_c ← μ_c + δ/n_c;   n·S ← n·S + (1 − 1/n_c)·δ·δᵀ       for every row x, the n_c-th of its class c
/// ```
///
/// Source: Welford 1962, Note on a method for calculating corrected sums of squares and products.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassMoments {
    width: usize,
    rows: usize,
    /// Rows and mean of every class that has some.
    classes: BTreeMap<usize, (usize, Vec<f64>)>,
    /// `n·S`, of which the lower triangle is filled, `[width, width]`.
    scatter: Vec<f64>,
}

impl ClassMoments {
    /// Moments of no rows.
    pub fn new(width: usize) -> Self {
        Self { width, rows: 0, classes: BTreeMap::new(), scatter: vec![0.0; width * width] }
    }

    /// Adds `features`, `[n, width]`, row-major, of which row `i` is of class `classes[i]`.
    pub fn add(&mut self, features: &[f64], classes: &[usize]) -> Result<(), Error> {
        let width = self.width;
        let n = at_least_one_row("features", features.len(), "width", width)?;
        check_same_length("features", n, "classes", classes.len())?;
        check_finite("features", features)?;
        let mut delta = vec![0.0; width];
        for (row, &class) in features.chunks_exact(width).zip(classes) {
            let (count, mean) = self.classes.entry(class).or_insert_with(|| (0, vec![0.0; width]));
            *count += 1;
            let share = 1.0 / *count as f64;
            for ((delta, mean), value) in delta.iter_mut().zip(mean).zip(row) {
                *delta = value - *mean;
                *mean += *delta * share;
            }
            for (i, out) in self.scatter.chunks_exact_mut(width).enumerate() {
                let scale = (1.0 - share) * delta[i];
                for (out, delta) in out.iter_mut().zip(&delta[..=i]) {
                    *out += scale * delta;
                }
            }
        }
        self.rows += n;
        Ok(())
    }

    /// The distance to the means, with the shrunk covariance.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`] if no row differs from the mean of its class, as a class of one row does not.
    pub fn distance(self) -> Result<ClassDistance, Error> {
        let width = self.width;
        let n = self.rows as f64;
        if self.scatter.iter().step_by(width + 1).all(|&spread| spread <= 0.0) {
            let (rows, classes) = (self.rows, self.classes.len());
            return Err(Error::undefined(
                "the feature distance",
                format_args!(
                    "needs rows that differ from the mean of their class, and {rows} rows of {classes} classes have none: pass \
                     at least two texts of a class"
                ),
            ));
        }
        let mut covariance = self.scatter;
        for i in 0..width {
            for j in 0..=i {
                covariance[i * width + j] /= n;
                covariance[j * width + i] = covariance[i * width + j];
            }
        }
        shrink(&mut covariance, width, n);
        let root = Cholesky::new("features", &covariance, width)?;
        let means = self.classes.values().flat_map(|(_, mean)| root.lower_solve(mean)).collect();
        Ok(ClassDistance { means, root })
    }
}

impl ClassDistance {
    /// Fits means and covariance to `features`, `[n, width]`, row-major, of which row `i` is of class `classes[i]`.
    pub fn fit(features: &[f64], classes: &[usize], width: usize) -> Result<Self, Error> {
        let mut moments = ClassMoments::new(width);
        moments.add(features, classes)?;
        moments.distance()
    }

    /// A distance from its [`means`](Self::means) and its [`root`](Self::root).
    pub fn from_parts(means: Vec<f64>, root: Vec<f64>, width: usize) -> Result<Self, Error> {
        at_least_one_row("means", means.len(), "width", width)?;
        check_finite("means", &means)?;
        Ok(Self { means, root: Cholesky::from_lower("root", root, width)? })
    }

    /// Features of an input.
    pub fn width(&self) -> usize {
        self.root.size()
    }

    /// Class means, each multiplied by the inverse of the root, `[classes, width]`.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// The lower triangular root of the covariance, `[width, width]`.
    pub fn root(&self) -> &[f64] {
        self.root.lower()
    }

    /// The distance of every row of `features`, `[n, width]`.
    pub fn distances(&self, features: &[f64]) -> Result<Vec<f64>, Error> {
        let width = self.width();
        at_least_one_row("features", features.len(), "width", width)?;
        check_finite("features", features)?;
        let nearest = |row: &[f64]| {
            let white = self.root.lower_solve(row);
            let of = |mean: &[f64]| -> f64 {
                white.iter().zip(mean).map(|(x, mean)| (x - mean).powi(2)).sum()
            };
            self.means.chunks_exact(width).map(of).fold(f64::INFINITY, f64::min)
        };
        Ok(features.chunks_exact(width).map(nearest).collect())
    }
}

/// Oracle-approximating shrinkage of a covariance of `n` rows towards a multiple of the identity.
fn shrink(covariance: &mut [f64], width: usize, n: f64) {
    let d = width as f64;
    let trace: f64 = covariance.iter().step_by(width + 1).sum();
    let squares: f64 = covariance.iter().map(|value| value * value).sum();
    let spread = squares - trace * trace / d;
    let least = (n + 1.0 - 2.0 / d) * spread;
    let most = (1.0 - 2.0 / d) * squares + trace * trace;
    let rho = if most < least { most / least } else { 1.0 };
    for (i, value) in covariance.iter_mut().enumerate() {
        let on_diagonal = if i % (width + 1) == 0 { rho * trace / d } else { 0.0 };
        *value = (1.0 - rho) * *value + on_diagonal;
    }
}

/// Share of calibration scores that are at least as large as `score`, with the score itself counted.
///
/// ```text
/// p = (1 + #{s_i ≥ score}) / (n + 1)
/// ```
///
/// If the input comes from the distribution of the calibration rows, `P(p ≤ a) ≤ a` for every `a`.
///
/// Source: Vovk et al. 2005: Algorithmic Learning in a Random World, section 2.2.
pub fn conformal_p(calibration: &[f64], score: f64) -> f64 {
    let larger = calibration.iter().filter(|&&other| other >= score).count();
    (1 + larger) as f64 / (calibration.len() + 1) as f64
}

/// Half-width of the interval around a prediction that holds the true number with a probability of at least `level`, from the
/// differences `residuals` of rows that neither trained nor chose the model; `None` if there are too few rows.
///
/// ```text
/// radius = the k-th smallest |r_i|,   k = ⌈(n + 1)·level⌉;   none if k > n: .95 needs 19 rows
/// level ≤ P(|y − ŷ| ≤ radius) ≤ level + 1/(n + 1)            the upper limit where no two |r_i| are equal
/// ```
///
/// The probability is over the rows and the new number together, if these are exchangeable, whatever the law of the numbers and
/// however wrong the model. Given the rows it varies as a Beta(k, n + 1 − k), and it holds on average over the inputs, not for
/// each of them.
///
/// Source: Vovk et al. 2005: Algorithmic Learning in a Random World, section 2.2; Lei et al. 2018, arXiv:1604.04173 (split
/// conformal prediction).
pub fn conformal_radius(residuals: &[f64], level: f64) -> Result<Option<f64>, Error> {
    check_range("level", level, 0.0..=1.0)?;
    check_finite("residuals", residuals)?;
    let k = ((residuals.len() + 1) as f64 * level).ceil() as usize;
    let mut sizes: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    Ok(sizes.get(k.max(1) - 1).copied())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{Generator, NoiseKey};
    use crate::testing::assert_near;

    #[test]
    fn a_radius_is_the_smallest_that_enough_residuals_do_not_exceed() {
        let residuals: Vec<f64> =
            (1..=40).map(|i| f64::from(i) * if i % 2 == 0 { -0.5 } else { 0.5 }).collect();
        let radius = |n: usize, level| conformal_radius(&residuals[..n], level).unwrap();
        // ⌈19·.95⌉ = 19 of 18, ⌈20·.95⌉ = 19 of 19, ⌈41·.95⌉ = 39 of 40, ⌈41·.5⌉ = 21 of 40.
        assert_eq!([radius(18, 0.95), radius(19, 0.95)], [None, Some(9.5)]);
        assert_eq!([radius(40, 0.95), radius(40, 0.5)], [Some(19.5), Some(10.5)]);
        assert_eq!([radius(0, 0.5), radius(40, 1.0)], [None, None]);
        assert!(conformal_radius(&residuals, 1.5).is_err());
        assert!(conformal_radius(&[f64::NAN; 20], 0.5).is_err());
    }

    /// Numbers with known noise by [`Generator`], a model that is off by a bias: normal noise, one that depends on the input, and a
    /// Cauchy law, which has no variance.
    #[test]
    fn an_interval_covers_new_numbers_as_often_as_its_level_says() {
        const TRIALS: usize = 2000;
        const NEW: usize = 20;
        type Noise = fn(&mut Generator) -> f64;
        let laws: [(&str, Noise); 3] = [
            ("normal", |draws| 0.7 * draws.normal()),
            ("heteroscedastic", |draws| (0.1 + 2.0 * draws.uniform()) * draws.normal()),
            ("cauchy", |draws| draws.normal() / draws.normal()),
        ];
        for (law, noise) in laws {
            for (n, level) in [(19_usize, 0.95), (40, 0.95), (200, 0.95), (200, 0.8)] {
                let mut draws = Generator::new(NoiseKey::new(n as u64 + 1));
                let mut residual = || 0.3 + noise(&mut draws);
                let mut covered = 0;
                for _ in 0..TRIALS {
                    let rows: Vec<f64> = (0..n).map(|_| residual()).collect();
                    let radius = conformal_radius(&rows, level).unwrap().unwrap();
                    covered += (0..NEW).filter(|_| residual().abs() <= radius).count();
                }
                // The coverage of a trial has the variance of Beta(k, n + 1 − k), and that of its new numbers.
                let share = covered as f64 / (TRIALS * NEW) as f64;
                let k = (level * (n + 1) as f64).ceil();
                let expected = k / (n + 1) as f64;
                let spread = expected * (1.0 - expected);
                let error = (spread / (n + 2) as f64 + spread / NEW as f64) / TRIALS as f64;
                let apart = (share - expected).abs();
                assert!(apart < 4.0 * error.sqrt(), "{law}, {n} rows: {share}, {expected}");
            }
        }
    }

    /// Values by NumPy: `numpy.linalg.solve` with the covariance and the shrinkage of the formula.
    #[test]
    fn distances_to_the_nearest_class() {
        let class = |i: usize| if i.is_multiple_of(3) { 0 } else { 2 };
        let feature = |i: usize, j: usize| {
            let shift = if j == 0 { class(i) as f64 } else { 0.0 };
            ((i * (j + 1) + j) as f64).sin() * [4.0, 1.0, 0.25][j] + shift
        };
        let features: Vec<f64> = (0..40).flat_map(|i| (0..3).map(move |j| feature(i, j))).collect();
        let classes: Vec<usize> = (0..40).map(class).collect();
        let fitted = ClassDistance::fit(&features, &classes, 3).unwrap();
        let rows = [0.0, 0.0, 0.0, 3.0, 2.0, -1.0, -1.5, 0.5, 2.5];
        let expected = [0.214_558_000_083_150_68, 11.137_522_023_013_958, 34.349_093_682_210_665];
        assert_near(&fitted.distances(&rows).unwrap(), &expected, 1e-11);
        // In parts, in another order of classes, and with ids that are no places.
        let mut parts = ClassMoments::new(3);
        let far = |class: &usize| if *class == 0 { 7 } else { usize::MAX };
        for (rows, own) in features.chunks(21).zip(classes.chunks(7)) {
            parts.add(rows, &own.iter().map(far).collect::<Vec<_>>()).unwrap();
        }
        let parts = parts.distance().unwrap();
        assert_near(&parts.distances(&rows).unwrap(), &expected, 1e-11);
        assert_eq!(parts.means().len(), 6);
        assert!(ClassMoments::new(3).distance().is_err(), "no rows");
        let (means, root) = (fitted.means().to_vec(), fitted.root().to_vec());
        assert_eq!(ClassDistance::from_parts(means.clone(), root.clone(), 3), Ok(fitted));
        assert!(ClassDistance::from_parts(means.clone(), root[1..].to_vec(), 3).is_err());
        assert!(ClassDistance::from_parts(means, vec![0.0; 9], 3).is_err());
        // One row of each class is its own mean.
        let alone = ClassDistance::fit(&[1.0, 2.0, 3.0, 5.0], &[0, 4], 2).unwrap_err().to_string();
        assert!(alone.contains("2 rows of 2 classes have none"), "{alone}");
        assert!(ClassDistance::fit(&[1.0, f64::NAN], &[0], 2).is_err());
    }

    #[test]
    fn a_conformal_p_counts_itself_and_ties() {
        let calibration = [3.0, 1.0, 2.0];
        let p = [0.0, 1.0, 2.5, 4.0].map(|score| conformal_p(&calibration, score));
        assert_eq!(p, [1.0, 1.0, 0.5, 0.25]);
    }
}
