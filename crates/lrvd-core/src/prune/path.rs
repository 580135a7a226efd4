//! The fewest ranks that held-out rows cannot tell from the best.

use crate::error::{Error, check_at_least, check_length, check_numbers, check_range};

/// How much worse than the best a model may be.
///
/// The same rows show which model is best and which ones are within the tolerance: the loss of the chosen model on them is
/// biased downwards, and a tolerance of one standard error among many models is no test at a known level. Rows that had no
/// part in the choice give the loss to report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathTolerance {
    /// In standard errors of the difference.
    pub standard_errors: f64,
    /// In nats per row: models that hardly differ do so with a tiny error, and a direction that is worth
    /// less than this is not worth its weights.
    pub nats: f64,
}

impl Default for PathTolerance {
    fn default() -> Self {
        Self { standard_errors: 1.0, nats: 1e-3 }
    }
}

impl PathTolerance {
    /// Whether a model whose losses differ from the best one's by `apart` is as good:
    /// `mean ≤ max(standard_errors · se, nats)`.
    pub fn allows(&self, apart: PairedDifference) -> bool {
        apart.mean <= (self.standard_errors * apart.standard_error).max(self.nats)
    }
}

/// How two models differ on the same rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifference {
    /// Mean difference of their losses, row by row.
    pub mean: f64,
    /// Its standard error, `sd/√rows` with n − 1; 0 for one row.
    pub standard_error: f64,
}

/// The 95 % quantile of the standard normal distribution.
const NORMAL_95: f64 = 1.644_853_626_951_472_7;

impl PairedDifference {
    /// The upper end of the one-sided 95 % interval of the mean difference, `mean + 1.645·standard_error`, by the normal
    /// distribution: for a hundred rows or more.
    pub fn upper(self) -> f64 {
        self.mean + NORMAL_95 * self.standard_error
    }

    /// That of `losses` less `others`.
    ///
    /// Rows that are hard for both add nothing to its error.
    pub fn new(losses: &[f64], others: &[f64]) -> Result<Self, Error> {
        check_at_least("losses", losses.len(), 1)?;
        check_length("others", others.len(), losses.len())?;
        let differences: Vec<f64> = losses.iter().zip(others).map(|(x, y)| x - y).collect();
        let n = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / n;
        let squares: f64 = differences.iter().map(|d| (d - mean).powi(2)).sum();
        let standard_error = if n < 2.0 { 0.0 } else { (squares / (n - 1.0) / n).sqrt() };
        Ok(Self { mean, standard_error })
    }
}

/// One model of a [`RankPath`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathPoint {
    /// Its number of ranks.
    pub rank: usize,
    /// Mean loss over the held-out rows.
    pub loss: f64,
    /// Standard error of the mean difference to the best model, over the same rows; 0 for the best.
    pub standard_error: f64,
}

/// Models of falling or rising rank, by their loss on the same held-out rows.
#[derive(Debug, Clone, PartialEq)]
pub struct RankPath {
    /// In the order given.
    pub points: Vec<PathPoint>,
    /// Place of the smallest loss; the fewer ranks among equals.
    pub best: usize,
    /// Place of the fewest ranks whose loss is within the tolerance of the best; the smaller loss among
    /// equals.
    pub chosen: usize,
}

impl RankPath {
    /// Compares models by their losses, row-major `[models, rows]`, in nats.
    ///
    /// ```text
    /// d_n      = loss[m, n] − loss[best, n]
    /// se       = sd(d) / √rows                         sd with n − 1; 0 for one row
    /// chosen   = argmin rank[m]  over  mean(d) ≤ max(standard_errors · se, nats)
    /// ```
    ///
    /// The difference is taken row by row: rows that are hard for every model add nothing to its error.
    ///
    /// # Errors
    ///
    /// No model, no row, a loss that is NaN, or a negative tolerance.
    ///
    /// Source: Breiman et al. 1984, section 3.4.3, the one-standard-error rule; with paired differences.
    pub fn new(ranks: &[usize], losses: &[f64], tolerance: PathTolerance) -> Result<Self, Error> {
        check_range("standard_errors", tolerance.standard_errors, 0.0, f64::MAX)?;
        check_range("nats", tolerance.nats, 0.0, f64::MAX)?;
        check_at_least("ranks", ranks.len(), 1)?;
        check_at_least("losses", losses.len(), 1)?;
        let rows = losses.len() / ranks.len();
        check_length("losses", losses.len(), rows.max(1) * ranks.len())?;
        check_numbers("losses", losses)?;
        let of = |m: usize| &losses[m * rows..(m + 1) * rows];
        let mean = |m: usize| of(m).iter().sum::<f64>() / rows as f64;
        let means: Vec<f64> = (0..ranks.len()).map(mean).collect();
        let smaller =
            |&i: &usize, &j: &usize| means[i].total_cmp(&means[j]).then(ranks[i].cmp(&ranks[j]));
        let best = (0..ranks.len()).min_by(smaller).unwrap_or(0);
        let apart = (0..ranks.len())
            .map(|m| PairedDifference::new(of(m), of(best)))
            .collect::<Result<Vec<_>, Error>>()?;
        let point = |m: usize| PathPoint {
            rank: ranks[m],
            loss: means[m],
            standard_error: apart[m].standard_error,
        };
        let points: Vec<PathPoint> = (0..ranks.len()).map(point).collect();
        let within = |&m: &usize| tolerance.allows(apart[m]);
        let fewer =
            |&i: &usize, &j: &usize| ranks[i].cmp(&ranks[j]).then(means[i].total_cmp(&means[j]));
        let chosen = (0..ranks.len()).filter(within).min_by(fewer).unwrap_or(best);
        Ok(Self { points, best, chosen })
    }

    /// The chosen number of ranks.
    pub fn rank(&self) -> usize {
        self.points[self.chosen].rank
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Three models on four rows: means 2, 1.1, 1. Against the best the second differs by
    /// 0.4, -0.2, 0.4, -0.2: mean 0.1, sd √(0.36/3) = 0.34641, standard error 0.17321.
    const LOSSES: [f64; 12] = [2.0, 3.0, 1.0, 2.0, 1.4, 1.3, 0.9, 0.8, 1.0, 1.5, 0.5, 1.0];

    fn errors(standard_errors: f64) -> PathTolerance {
        PathTolerance { standard_errors, nats: 0.0 }
    }

    #[test]
    fn the_fewest_within_one_standard_error() {
        let path = RankPath::new(&[0, 2, 5], &LOSSES, errors(1.0)).unwrap();
        assert_eq!((path.best, path.chosen, path.rank()), (2, 1, 2));
        assert!((path.points[1].loss - 1.1).abs() < 1e-15);
        assert!((path.points[1].standard_error - 0.03_f64.sqrt()).abs() < 1e-12);
        assert_eq!(path.points[2].standard_error, 0.0);
        // 0.1 / 0.17321 = 0.577 standard errors.
        assert_eq!(RankPath::new(&[0, 2, 5], &LOSSES, errors(0.57)).unwrap().rank(), 5);
        assert_eq!(RankPath::new(&[0, 2, 5], &LOSSES, errors(0.58)).unwrap().rank(), 2);
        // The order of the models does not matter, their ranks do.
        assert_eq!(RankPath::new(&[5, 2, 0], &LOSSES, errors(1.0)).unwrap().rank(), 0);
    }

    #[test]
    fn the_upper_bound_of_a_difference() {
        let apart = PairedDifference::new(&LOSSES[4..8], &LOSSES[8..]).unwrap();
        // 0.1 + 1.644854 · √0.03
        assert!((apart.upper() - 0.384_897).abs() < 1e-6, "{apart:?}");
    }

    #[test]
    fn hard_rows_do_not_hide_a_difference() {
        // Each row is 0.1 worse, whatever its own loss: the difference has no error at all.
        let path = RankPath::new(&[1, 2], &[9.1, 0.1, 9.0, 0.0], errors(1.0)).unwrap();
        assert_eq!(path.rank(), 2);
        // Unless it is too small to matter.
        let tolerance = PathTolerance { nats: 0.11, ..errors(1.0) };
        let path = RankPath::new(&[1, 2], &[9.1, 0.1, 9.0, 0.0], tolerance).unwrap();
        assert_eq!((path.rank(), path.best), (1, 1));
    }

    #[test]
    fn equals_go_to_fewer_ranks_and_nonsense_is_an_error() {
        assert_eq!(RankPath::new(&[3, 1, 2], &[0.5, 0.5, 0.5], errors(0.0)).unwrap().rank(), 1);
        for (ranks, losses, tolerance) in [
            (&[][..], &[][..], 1.0),
            (&[1], &[], 1.0),
            (&[1, 2], &[0.5], 1.0),
            (&[1, 2], &[0.5, 0.5, 0.5], 1.0),
            (&[1], &[f64::NAN], 1.0),
            (&[1], &[0.5], -1.0),
        ] {
            assert!(
                RankPath::new(ranks, losses, errors(tolerance)).is_err(),
                "{ranks:?} {losses:?}"
            );
        }
    }
}
