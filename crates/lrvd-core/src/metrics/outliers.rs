//! Scores of how unlike the training texts an input is, and how well they tell both kinds apart.

use crate::error::{
    Error, check_at_least, check_finite, check_range, check_same_length, some_rows,
};
use crate::numeric::Cholesky;

use super::statistics::average_ranks;

/// Free energy of every row at temperature 1, averaged over draws: larger for inputs unlike the training texts.
///
/// ```text
/// E[n] = −(1/n_draws) Σ_t ln Σ_c exp logits[t,n,c]
/// ```
///
/// `logits` is `[n_draws, n, n_classes]`, row-major; the result is `[n]`.
///
/// Source: Liu et al. 2020, arXiv:2010.03759.
pub fn free_energy(logits: &[f64], n_draws: usize, n_classes: usize) -> Result<Vec<f64>, Error> {
    check_range("n_draws", n_draws as f64, 1.0, f64::MAX)?;
    let rows = some_rows("logits", logits.len(), "n_classes", n_classes)?;
    check_finite("logits", logits)?;
    if !rows.is_multiple_of(n_draws) {
        let expected = format!("a multiple of `n_draws x n_classes` = {}", n_draws * n_classes);
        return Err(Error::length("logits", logits.len(), expected));
    }
    let n = rows / n_draws;
    let mut energy = vec![0.0; n];
    for (row, values) in logits.chunks_exact(n_classes).enumerate() {
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = values.iter().map(|value| (value - largest).exp()).sum::<f64>();
        energy[row % n] -= (largest + total.ln()) / n_draws as f64;
    }
    Ok(energy)
}

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

impl ClassDistance {
    /// Fits means and covariance to `features`, `[n, width]`, row-major, of which row `i` is of class `classes[i]`.
    ///
    /// # Errors
    ///
    /// No row, a value that is not finite, or features that are all at their class means.
    pub fn fit(features: &[f64], classes: &[usize], width: usize) -> Result<Self, Error> {
        let n = some_rows("features", features.len(), "width", width)?;
        check_same_length("features", n, "classes", classes.len())?;
        check_finite("features", features)?;
        let most = classes.iter().max().map_or(0, |class| class + 1);
        let (mut sums, mut counts) = (vec![0.0; most * width], vec![0usize; most]);
        for (row, &class) in features.chunks_exact(width).zip(classes) {
            counts[class] += 1;
            for (sum, value) in sums[class * width..].iter_mut().zip(row) {
                *sum += value;
            }
        }
        for (mean, &count) in sums.chunks_exact_mut(width).zip(&counts) {
            for value in mean {
                *value /= count.max(1) as f64;
            }
        }
        let mut covariance = vec![0.0; width * width];
        let mut centred = vec![0.0; width];
        for (row, &class) in features.chunks_exact(width).zip(classes) {
            for (i, value) in centred.iter_mut().enumerate() {
                *value = row[i] - sums[class * width + i];
            }
            for i in 0..width {
                for j in 0..=i {
                    covariance[i * width + j] += centred[i] * centred[j] / n as f64;
                }
            }
        }
        for i in 0..width {
            for j in 0..i {
                covariance[j * width + i] = covariance[i * width + j];
            }
        }
        shrink(&mut covariance, width, n as f64);
        let root = Cholesky::new("features", &covariance, width)?;
        let present = sums.chunks_exact(width).zip(&counts).filter(|(_, count)| **count > 0);
        let means = present.flat_map(|(mean, _)| root.lower_solve(mean)).collect();
        Ok(Self { means, root })
    }

    /// Puts together what [`means`](Self::means) and [`root`](Self::root) gave.
    ///
    /// # Errors
    ///
    /// Lengths that do not fit `width`, a value that is not finite, or a diagonal entry of the root that is not
    /// positive.
    pub fn from_parts(means: Vec<f64>, root: Vec<f64>, width: usize) -> Result<Self, Error> {
        some_rows("means", means.len(), "width", width)?;
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
        some_rows("features", features.len(), "width", width)?;
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

/// Areas under the receiver operating characteristic of several scores on the same rows, with their covariance.
///
/// ```text
/// V_in[i]  = (1/n_out) Σ_j ψ(out_j, in_i),   V_out[j] = (1/n_in) Σ_i ψ(out_j, in_i)
/// ψ(x, y)  = 1 if x > y, ½ if x = y, else 0
/// Cov      = cov(V_in)/n_in + cov(V_out)/n_out
/// ```
///
/// Source: `DeLong` et al. 1988: Comparing the areas under two or more correlated receiver operating characteristic
/// curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Aurocs {
    /// The area of every score, each as [`auroc`](super::auroc) gives it.
    pub areas: Vec<f64>,
    /// `[scores, scores]`.
    covariance: Vec<f64>,
}

impl Aurocs {
    /// The areas of scores that should be larger on `scores_out`; every score has the same rows in the same order.
    ///
    /// # Errors
    ///
    /// No score, groups of different lengths or of fewer than two rows, or a score that is not finite.
    pub fn new(scores_in: &[Vec<f64>], scores_out: &[Vec<f64>]) -> Result<Self, Error> {
        check_same_length("scores_in", scores_in.len(), "scores_out", scores_out.len())?;
        check_at_least("scores_in", scores_in.len(), 1)?;
        let (n_in, n_out) = (scores_in[0].len(), scores_out[0].len());
        check_at_least("scores_in", n_in, 2)?;
        check_at_least("scores_out", n_out, 2)?;
        let (mut placed_in, mut placed_out, mut areas) = (Vec::new(), Vec::new(), Vec::new());
        for (inside, outside) in scores_in.iter().zip(scores_out) {
            check_same_length("scores_in", inside.len(), "rows", n_in)?;
            check_same_length("scores_out", outside.len(), "rows", n_out)?;
            check_finite("scores_in", inside)?;
            check_finite("scores_out", outside)?;
            let all = average_ranks(&[inside.as_slice(), outside].concat());
            let (all_in, all_out) = all.split_at(n_in);
            let place = |all: &[f64], own: &[f64], n: usize| -> Vec<f64> {
                all.iter()
                    .zip(average_ranks(own))
                    .map(|(all, own)| (all - own) / n as f64)
                    .collect()
            };
            // Rank among all less rank among its own group: rows of the other group that are smaller.
            let below_in = place(all_in, inside, n_out);
            placed_in.push(below_in.into_iter().map(|share| 1.0 - share).collect::<Vec<_>>());
            let below_out = place(all_out, outside, n_in);
            areas.push(below_out.iter().sum::<f64>() / n_out as f64);
            placed_out.push(below_out);
        }
        let k = areas.len();
        let mut covariance = vec![0.0; k * k];
        for (i, j) in (0..k).flat_map(|i| (0..k).map(move |j| (i, j))) {
            let of = |placed: &[Vec<f64>], n: usize| -> f64 {
                let products = placed[i].iter().zip(&placed[j]);
                let products = products.map(|(a, b)| (a - areas[i]) * (b - areas[j]));
                products.sum::<f64>() / (n - 1) as f64 / n as f64
            };
            covariance[i * k + j] = of(&placed_in, n_in) + of(&placed_out, n_out);
        }
        Ok(Self { areas, covariance })
    }

    /// Standard error of the area of score `i`.
    pub fn standard_error(&self, i: usize) -> f64 {
        self.covariance[i * (self.areas.len() + 1)].max(0.0).sqrt()
    }

    /// The area of score `i` minus that of score `j`, and its standard error.
    pub fn difference(&self, i: usize, j: usize) -> (f64, f64) {
        let k = self.areas.len();
        let at = |i: usize, j: usize| self.covariance[i * k + j];
        let variance = at(i, i) + at(j, j) - 2.0 * at(i, j);
        (self.areas[i] - self.areas[j], variance.max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::auroc;
    use crate::testing::assert_near;

    /// Values by NumPy from the definitions, without ranks: all pairs, `numpy.cov`.
    #[test]
    fn areas_and_their_errors() {
        let inside = [vec![0.1, 0.4, 0.2, 0.4, 0.35], vec![1.0, 3.0, 2.0, 5.0, 1.5]];
        let outside = [vec![0.4, 0.9, 0.3], vec![6.0, 2.5, 3.5]];
        let found = Aurocs::new(&inside, &outside).unwrap();
        assert_near(&found.areas, &[0.733_333_333_333_333_3, 0.8], 1e-15);
        for (k, area) in found.areas.iter().enumerate() {
            assert!((area - auroc(&inside[k], &outside[k]).unwrap()).abs() < 1e-15);
        }
        let errors = [found.standard_error(0), found.standard_error(1)];
        assert_near(&errors, &[0.209_496_751_499_608_92, 0.176_383_420_737_639_38], 1e-15);
        let (difference, error) = found.difference(0, 1);
        assert_near(&[difference], &[-0.066_666_666_666_666_76], 1e-15);
        assert_near(&[error], &[0.254_950_975_679_639_26], 1e-15);
        assert_eq!(found.difference(1, 1), (0.0, 0.0));
        assert!(Aurocs::new(&inside, &outside[..1]).is_err());
        assert!(Aurocs::new(&[vec![1.0]], &[vec![2.0, 3.0]]).is_err());
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
        let (means, root) = (fitted.means().to_vec(), fitted.root().to_vec());
        assert_eq!(ClassDistance::from_parts(means.clone(), root.clone(), 3), Ok(fitted));
        assert!(ClassDistance::from_parts(means.clone(), root[1..].to_vec(), 3).is_err());
        assert!(ClassDistance::from_parts(means, vec![0.0; 9], 3).is_err());
        assert!(ClassDistance::fit(&[1.0, 2.0], &[0], 2).is_err(), "one row is its own mean");
        assert!(ClassDistance::fit(&[1.0, f64::NAN], &[0], 2).is_err());
    }

    #[test]
    fn energies_are_averaged_over_draws() {
        // ln(e + e⁻² + e^½), ln(e³ + 2), ln 3, ln(2e² + e⁻¹); two draws of two rows.
        let logits = [1.0, -2.0, 0.5, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, -1.0];
        let expected = [-1.301_604_595_505_196_7, -2.906_329_437_543_831_8];
        assert_near(&free_energy(&logits, 2, 3).unwrap(), &expected, 1e-15);
        assert!(free_energy(&logits, 3, 3).is_err());
        let large = free_energy(&[1000.0, 0.0], 1, 2).unwrap();
        assert_eq!(large, [-1000.0]);
    }

    #[test]
    fn a_conformal_p_counts_itself_and_ties() {
        let calibration = [3.0, 1.0, 2.0];
        let p = [0.0, 1.0, 2.5, 4.0].map(|score| conformal_p(&calibration, score));
        assert_eq!(p, [1.0, 1.0, 0.5, 0.25]);
    }
}
