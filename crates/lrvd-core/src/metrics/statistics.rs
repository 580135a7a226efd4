//! Statistics of numbers: mean and deviation, correlations, and how well a score tells two groups apart.

use crate::error::{Error, check_at_least, check_finite, check_same_length};
use crate::special::logistic;

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Result<f64, Error> {
    check_at_least("values", values.len(), 1)?;
    check_finite("values", values)?;
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}

/// Mean, and variance with `n` in the denominator; `None` where all values are equal.
pub fn mean_and_variance(values: &[f64]) -> Result<Option<(f64, f64)>, Error> {
    let center = mean(values)?;
    let variance = mean(&values.iter().map(|y| (y - center).powi(2)).collect::<Vec<_>>())?;
    let is_constant = variance == 0.0 || values.iter().all(|&y| y == values[0]);
    Ok((!is_constant).then_some((center, variance)))
}

/// Sample standard deviation, with `n − 1` in the denominator.
pub fn sample_sd(values: &[f64]) -> Result<f64, Error> {
    check_at_least("values", values.len(), 2)?;
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Ok((squares / (values.len() - 1) as f64).sqrt())
}

/// Pearson's correlation, by centred sums.
///
/// ```text
/// Σ (x − x̄)(y − ȳ) / √( Σ (x − x̄)² · Σ (y − ȳ)² ),   kept within [−1, 1]
/// ```
pub fn pearson(predicted: &[f64], target: &[f64]) -> Result<f64, Error> {
    check_same_length("predicted", predicted.len(), "target", target.len())?;
    check_at_least("target", target.len(), 2)?;
    let x = standardize("predicted", predicted)?;
    let y = standardize("target", target)?;
    let product: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
    Ok(product.clamp(-1.0, 1.0))
}

/// Spearman's correlation: Pearson's of the ranks, ties sharing their average rank.
pub fn spearman(predicted: &[f64], target: &[f64]) -> Result<f64, Error> {
    check_finite("predicted", predicted)?;
    check_finite("target", target)?;
    pearson(&average_ranks(predicted), &average_ranks(target))
}

/// Coefficient of determination of predictions, and its standard error over the rows (infinitesimal jackknife).
///
/// ```text
/// R²   = 1 − Σ (y − ŷ)² / Σ (y − ȳ)²          1 is perfect, 0 the mean of these targets, below 0 worse than that
/// s.e. = √( Σ u² / (n(n − 1)) ),   u = ((y − ŷ)² − (1 − R²)(y − ȳ)²) / V,   V = Σ (y − ȳ)² / n
/// ```
///
/// Source: Efron 1982: The Jackknife, the Bootstrap and Other Resampling Plans, chapter 6.
pub fn r_squared(predicted: &[f64], target: &[f64]) -> Result<(f64, f64), Error> {
    check_same_length("predicted", predicted.len(), "target", target.len())?;
    check_at_least("target", target.len(), 2)?;
    check_finite("predicted", predicted)?;
    let Some((center, variance)) = mean_and_variance(target)? else {
        return Err(Error::undefined("R²", "needs targets that differ"));
    };
    let squares: Vec<f64> = predicted.iter().zip(target).map(|(p, y)| (p - y).powi(2)).collect();
    let rest = mean(&squares)? / variance;
    let influence = |(square, y): (&f64, &f64)| (square - rest * (y - center).powi(2)) / variance;
    let sum: f64 = squares.iter().zip(target).map(influence).map(|u| u * u).sum();
    let n = target.len() as f64;
    Ok((1.0 - rest, (sum / (n * (n - 1.0))).sqrt()))
}

/// Ranks from 1, smallest value first; equal values share the average of their places.
fn average_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &k| values[i].total_cmp(&values[k]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    // `==` rather than the sort's total order, so that 0 and −0 tie.
    for group in order.chunk_by(|&i, &k| values[i] == values[k]) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        for &i in group {
            ranks[i] = rank;
        }
        start += group.len();
    }
    ranks
}

/// Centred and scaled to unit length.
fn standardize(name: &'static str, values: &[f64]) -> Result<Vec<f64>, Error> {
    check_finite(name, values)?;
    // Decided on the values themselves: rounding of the mean may leave a constant with a tiny variance.
    if values.iter().all(|&value| value == values[0]) {
        return Err(constant(name));
    }
    // Scaling first keeps the squares of very large and very small values in range.
    let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let scaled: Vec<f64> = values.iter().map(|value| value / largest).collect();
    let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
    let norm = scaled.iter().map(|value| (value - mean).powi(2)).sum::<f64>().sqrt();
    if norm == 0.0 {
        return Err(constant(name));
    }
    Ok(scaled.iter().map(|value| (value - mean) / norm).collect())
}

fn constant(name: &str) -> Error {
    Error::undefined(name, "is constant, so its correlation is not defined")
}

/// Area under the receiver operating characteristic of a score that should be larger on `scores_out`.
///
/// The scores are an uncertainty (entropy, mutual information) on examples from the training distribution and on
/// others. 1 is a perfect separation, 0.5 that of a score without information, 0 the perfect separation upside
/// down.
///
/// ```text
/// P(out > in) + ½·P(out = in) = (R_out − n_out·(n_out + 1)/2) / (n_in·n_out)
/// ```
///
/// over all pairs; `R_out` is the sum of the average ranks of `scores_out` among all scores, so that
/// ties count one half (the Mann-Whitney statistic).
///
/// Source: Hanley and `McNeil` 1982: The meaning and use of the area under a receiver operating characteristic curve.
///
/// # Examples
///
/// ```
/// use lrvd_core::metrics::auroc;
///
/// // Five of the six pairs are in order, one is a tie.
/// assert!((auroc(&[0.1, 0.4, 0.2], &[0.4, 0.9])? - 5.5 / 6.0).abs() < 1e-15);
/// # Ok::<(), lrvd_core::Error>(())
/// ```
pub fn auroc(scores_in: &[f64], scores_out: &[f64]) -> Result<f64, Error> {
    check_at_least("scores_in", scores_in.len(), 1)?;
    check_at_least("scores_out", scores_out.len(), 1)?;
    check_finite("scores_in", scores_in)?;
    check_finite("scores_out", scores_out)?;
    let ranks = average_ranks(&[scores_in, scores_out].concat());
    let n_in = scores_in.len() as f64;
    let n_out = scores_out.len() as f64;
    // Ranks are multiples of a half, so the sum is exact far beyond any data set.
    let rank_sum: f64 = ranks[scores_in.len()..].iter().sum();
    Ok((rank_sum - n_out * (n_out + 1.0) / 2.0) / (n_in * n_out))
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
    /// The area of every score, as by [`auroc`].
    pub areas: Vec<f64>,
    /// Placements of the rows inside, then of those outside, of every score.
    placed: Vec<[Vec<f64>; 2]>,
    /// `[scores, scores]`.
    covariance: Vec<f64>,
}

/// Quantile of the two-sided 95 % interval of the standard normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

impl Aurocs {
    /// The areas of scores that should be larger on `scores_out`; every score has the same rows in the same order.
    pub fn new(scores_in: &[Vec<f64>], scores_out: &[Vec<f64>]) -> Result<Self, Error> {
        check_same_length("scores_in", scores_in.len(), "scores_out", scores_out.len())?;
        check_at_least("scores_in", scores_in.len(), 1)?;
        let n_in = scores_in[0].len();
        let n_out = scores_out[0].len();
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
        let placed = placed_in.into_iter().zip(placed_out).map(<[_; 2]>::from).collect();
        Ok(Self { areas, placed, covariance })
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

    /// Jackknife pseudo-values of the area of score `i`, of the rows inside and then of those outside: their mean is the area.
    ///
    /// ```text
    /// A + (n − 1)/(n_g − 1)·(V[i] − A)         of row i of a group of n_g of all n rows
    /// ```
    pub fn pseudo_values(&self, i: usize) -> Vec<f64> {
        let area = self.areas[i];
        let n: usize = self.placed[i].iter().map(Vec::len).sum();
        let of_group = |placed: &Vec<f64>| -> Vec<f64> {
            let factor = (n - 1) as f64 / (placed.len() - 1) as f64;
            placed.iter().map(|value| area + factor * (value - area)).collect()
        };
        self.placed[i].iter().flat_map(of_group).collect()
    }

    /// The 95 % interval of the area of score `i`, within `[0, 1]`.
    ///
    /// ```text
    /// logit A ± 1.96·se/(A·(1 − A))
    /// ```
    ///
    /// An area of 0 or 1, or one without an error, has the interval of the areas `a` that it is compatible with,
    /// `|A − a| ≤ 1.96·√V(a)`, so that a perfect separation of few rows has a width:
    ///
    /// ```text
    /// V(a) = a(1 − a)·(1 + (n − 1)·((1 − a)/(2 − a) + a/(1 + a))) / (n_in·n_out),   n = (n_in + n_out)/2
    /// ```
    ///
    /// Source: Pepe 2003, The statistical evaluation of medical tests, section 5.2 (logit); Newcombe 2006,
    /// doi:10.1002/sim.2324, method 5.
    pub fn interval(&self, i: usize) -> (f64, f64) {
        let area = self.areas[i];
        let error = self.standard_error(i);
        if error > 0.0 && area > 0.0 && area < 1.0 {
            let logit = (area / (1.0 - area)).ln();
            let half = NORMAL_975 * error / (area * (1.0 - area));
            return (logistic(logit - half), logistic(logit + half));
        }
        let [n_in, n_out] = [0, 1].map(|group: usize| self.placed[i][group].len() as f64);
        let half_rows = f64::midpoint(n_in, n_out) - 1.0;
        let is_compatible = |a: f64| {
            let shape = 1.0 + half_rows * ((1.0 - a) / (2.0 - a) + a / (1.0 + a));
            (area - a).abs() <= NORMAL_975 * (a * (1.0 - a) * shape / (n_in * n_out)).sqrt()
        };
        let end = |bound: f64| bisect(bound, area, |a| !is_compatible(a));
        (end(0.0), end(1.0))
    }

    /// The 95 % interval of the area of score `i` minus that of score `j`, within `[−1, 1]`.
    ///
    /// From both intervals `(l, u)` and the correlation `ρ` of the areas, 0 where one of them has no error:
    ///
    /// ```text
    /// lower: A_i − A_j − √((A_i − l_i)² + (u_j − A_j)² − 2ρ(A_i − l_i)(u_j − A_j)),   upper likewise
    /// ```
    ///
    /// Source: Zou 2007, doi:10.1037/1082-989X.12.4.399 (MOVER).
    pub fn difference_interval(&self, i: usize, j: usize) -> (f64, f64) {
        if i == j {
            return (0.0, 0.0);
        }
        let errors = self.standard_error(i) * self.standard_error(j);
        let covariance = self.covariance[i * self.areas.len() + j];
        let correlation = if errors > 0.0 { (covariance / errors).clamp(-1.0, 1.0) } else { 0.0 };
        let difference = self.areas[i] - self.areas[j];
        let [own, other] = [i, j].map(|k| {
            let (low, high) = self.interval(k);
            [self.areas[k] - low, high - self.areas[k]]
        });
        let half = |a: f64, b: f64| (a * a + b * b - 2.0 * correlation * a * b).max(0.0).sqrt();
        (difference - half(own[0], other[1]), difference + half(own[1], other[0]))
    }
}

/// The upper end of the interval left by 80 halvings between a point where `is_low` and one where it is not.
pub(super) fn bisect(mut low: f64, mut high: f64, is_low: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        *(if is_low(middle) { &mut low } else { &mut high }) = middle;
    }
    high
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::noise::{Generator, NoiseKey};
    use crate::testing::assert_near;

    #[test]
    fn correlations_by_hand() {
        // x̄ = 2.5, ȳ = 3; deviations of y: −1, −2, −2, 5; products 1.5 + 1 − 1 + 7.5 = 9; squares 5 and 34.
        let (x, y) = ([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 1.0, 8.0]);
        assert!((pearson(&x, &y).unwrap() - 9.0 / (5.0f64 * 34.0).sqrt()).abs() < 1e-15);
        // Ranks of y: 3, 1.5, 1.5, 4 with mean 2.5; products −0.75 + 0.5 − 0.5 + 2.25 = 1.5; squares 4.5.
        assert!((spearman(&x, &y).unwrap() - 1.5 / (5.0f64 * 4.5).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn the_determination_of_targets_and_its_error() {
        // By Python's fractions: ȳ = 3, V = 3/2, R² = 1 − (5/4)/(3/2), u = −14/9, 0, −5/9, 19/9, the square of the error 97/162.
        let (p, y) = ([2.0, 3.0, 4.0, 6.0], [1.0, 3.0, 4.0, 4.0]);
        let (value, error) = r_squared(&p, &y).unwrap();
        assert_near(&[value, error], &[1.0 / 6.0, (97.0_f64 / 162.0).sqrt()], 1e-14);
        assert_eq!(r_squared(&y, &y), Ok((1.0, 0.0)));
        assert!(matches!(r_squared(&[1.0, 2.0], &[0.1; 2]), Err(Error::Undefined { .. })));
        assert!(
            r_squared(&[1.0], &[1.0]).is_err() && r_squared(&[f64::NAN, 1.0], &[1.0, 2.0]).is_err()
        );
    }

    #[test]
    fn ties_share_their_average_rank() {
        assert_eq!(average_ranks(&[3.0, 1.0, 3.0, 2.0, 3.0]), [4.0, 1.0, 4.0, 2.0, 4.0]);
        assert_eq!(average_ranks(&[0.0, -0.0]), [1.5, 1.5]);
        assert!(average_ranks(&[]).is_empty());
    }

    #[test]
    fn a_score_that_does_not_vary_tells_nothing_and_mistakes_are_named() {
        assert_eq!((auroc(&[0.7; 5], &[0.7; 3]), auroc(&[0.0], &[-0.0])), (Ok(0.5), Ok(0.5)));
        let nan = [1.0, f64::NAN];
        for (found, message) in [
            (mean(&[]), "`values` has length 0, expected at least 1"),
            (sample_sd(&[1.0]), "`values` has length 1, expected at least 2"),
            (sample_sd(&nan), "`values` is NaN at index 1, expected a finite number"),
            (
                pearson(&[0.1; 2], &[1.0, 2.0]),
                "`predicted` is constant, so its correlation is not defined",
            ),
            (
                spearman(&[1.0, 2.0], &[7.0; 2]),
                "`target` is constant, so its correlation is not defined",
            ),
            (
                spearman(&nan, &[1.0, 2.0]),
                "`predicted` is NaN at index 1, expected a finite number",
            ),
            (pearson(&[1.0], &[1.0]), "`target` has length 1, expected at least 2"),
            (pearson(&[1.0], &[1.0, 2.0]), "`predicted` has length 1, expected 2 as `target`"),
            (auroc(&[], &[1.0]), "`scores_in` has length 0, expected at least 1"),
            (auroc(&[1.0], &[]), "`scores_out` has length 0, expected at least 1"),
            (auroc(&[1.0], &nan), "`scores_out` is NaN at index 1, expected a finite number"),
        ] {
            assert_eq!(found.unwrap_err().to_string(), message);
        }
    }

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

    /// Ends by NumPy from the formulas; those of a perfect separation by `scipy.optimize.brentq`.
    #[test]
    fn intervals_of_areas_have_a_width_and_stay_within_their_range() {
        let inside = [vec![0.1, 0.4, 0.2, 0.4, 0.35], vec![0.0, 0.1, 0.2, 0.3, 0.4]];
        let outside = [vec![0.4, 0.9, 0.3], vec![0.5, 0.6, 0.7]];
        let found = Aurocs::new(&inside, &outside).unwrap();
        let near = |(low, high): (f64, f64), expected: [f64; 2]| {
            assert_near(&[low, high], &expected, 1e-12);
        };
        near(found.interval(0), [0.251_978_244_480_062_45, 0.957_356_097_959_027]);
        near(found.interval(1), [0.566_156_768_468_538_1, 1.0]);
        near(found.difference_interval(1, 0), [-0.221_601_854_350_407_08, 0.748_021_755_519_937_5]);
        let (low, high) = found.difference_interval(0, 1);
        near((-high, -low), [-0.221_601_854_350_407_08, 0.748_021_755_519_937_5]);
        assert_eq!(found.difference_interval(1, 1), (0.0, 0.0));
        // All rows left out one by one.
        let deleted = |row: usize| {
            let without = |rows: &[f64], at: Option<usize>| -> Vec<f64> {
                let kept = rows.iter().enumerate().filter(|(i, _)| Some(*i) != at);
                kept.map(|(_, value)| *value).collect()
            };
            let at_out = row.checked_sub(5);
            let at_in = if at_out.is_none() { Some(row) } else { None };
            auroc(&without(&inside[0], at_in), &without(&outside[0], at_out)).unwrap()
        };
        let expected: Vec<f64> = (0..8).map(|i| 8.0 * found.areas[0] - 7.0 * deleted(i)).collect();
        assert_near(&found.pseudo_values(0), &expected, 1e-12);
        let upside_down = Aurocs::new(&outside[1..], &inside[1..]).unwrap();
        near(upside_down.interval(0), [0.0, 1.0 - 0.566_156_768_468_538_1]);
    }

    /// The true area of normal scores a shift of 2.9 apart is Φ(2.9/√2) = .980: many of 20 + 20 rows separate perfectly.
    #[test]
    fn intervals_of_areas_cover_the_true_area() {
        for (shift, area) in [(2.9, 0.979_86), (1.19, 0.799_97)] {
            for (n_in, n_out) in [(20, 20), (100, 40)] {
                let mut covered = 0;
                for trial in 0..400 {
                    let mut draws = Generator::new(NoiseKey::new(trial));
                    let inside: Vec<f64> = (0..n_in).map(|_| draws.normal()).collect();
                    let outside = (0..n_out).map(|_| draws.normal() + shift).collect();
                    let (low, high) = Aurocs::new(&[inside], &[outside]).unwrap().interval(0);
                    covered += usize::from((low..=high).contains(&area));
                }
                assert!((364..=396).contains(&covered), "{shift}, {n_in} + {n_out}: {covered}");
            }
        }
    }
}
