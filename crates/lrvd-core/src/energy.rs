//! The share of the update that the first `k` rank components carry, in a given order.

use crate::error::{Error, check_length, check_range};
use crate::linalg::times_transposed;
use crate::posterior::Factors;
use crate::svd::singular_factors;

/// Area under a curve `E(1..r)` by trapezoids from `E(0) = 0`: `(Σ_{k<r} E(k) + ½·E(r)) / r`.
pub fn area(curve: &[f64]) -> Result<f64, Error> {
    let last = curve.last().ok_or_else(|| Error::length("curve", 0, "at least 1"))?;
    Ok((curve.iter().sum::<f64>() - 0.5 * last) / curve.len() as f64)
}

/// The update of one adapter, `ΔW = Σ_k outer(b[k], a[k])`, prepared for energy questions.
#[derive(Debug, Clone)]
pub struct UpdateEnergy {
    /// `[rank, rank]`.
    overlap: Vec<f64>,
    total: f64,
    /// Singular values of the update, largest first, `min(rank, d_input, d_output)` of them.
    singular_values: Vec<f64>,
}

impl UpdateEnergy {
    /// Prepares the update of `factors`; `a[k]` is a row of A, `b[k]` a column of B.
    ///
    /// ```text
    /// H[i,j] = ⟨b[i], b[j]⟩ · ⟨a[i], a[j]⟩ = ⟨outer(b[i], a[i]), outer(b[j], a[j])⟩
    /// ‖ΔW‖² = 1ᵀ·H·1
    /// ```
    ///
    /// # Errors
    ///
    /// `‖ΔW‖²` is not positive (to working precision): there is nothing to capture. Rank 0 is legal.
    pub fn new(factors: &Factors) -> Result<Self, Error> {
        let mut singular_values = singular_factors(factors)?.values;
        let Factors { rank, d_input, d_output, ref a, .. } = *factors;
        let b = factors.b_by_rank();
        let a_gram = times_transposed(a, a, rank, d_input, rank);
        let b_gram = times_transposed(&b, &b, rank, d_output, rank);
        let overlap: Vec<f64> = a_gram.iter().zip(&b_gram).map(|(x, y)| x * y).collect();
        let total: f64 = overlap.iter().sum();
        let scale: f64 = overlap.iter().map(|v| v.abs()).sum();
        if rank > 0 {
            let least = (f64::EPSILON * scale).next_up();
            check_range("energy of the update", total, least, f64::MAX)?;
        }
        singular_values.truncate(d_input.min(d_output));
        Ok(Self { overlap, total, singular_values })
    }

    /// The number of components.
    pub fn rank(&self) -> usize {
        self.overlap.len().isqrt()
    }

    /// Singular values of the update, largest first, `min(rank, d_input, d_output)` of them.
    pub fn singular_values(&self) -> &[f64] {
        &self.singular_values
    }

    /// The captured share `1 − ‖ΔW − ΔW_k‖² / ‖ΔW‖²` after `k = 1..r` components in the given order; it may be negative.
    ///
    /// ```text
    /// 1 − 1_Rᵀ·H·1_R / 1ᵀ·H·1      R the components still missing
    /// ```
    pub fn curve(&self, order: &[usize]) -> Result<Vec<f64>, Error> {
        self.check_order(order)?;
        // The missing part grows backwards from nothing, which keeps E(r) = 1 exact.
        let r = self.rank();
        let mut share = vec![1.0; r];
        let mut missing = 0.0;
        for k in (1..r).rev() {
            let i = order[k];
            let with_later: f64 =
                order[k + 1..].iter().rev().map(|&j| self.overlap[i * r + j]).sum();
            missing += self.overlap[i * r + i] + 2.0 * with_later;
            share[k - 1] = 1.0 - missing / self.total;
        }
        Ok(share)
    }

    /// The upper bound for every order (Eckart–Young), `k = 1..r`.
    ///
    /// ```text
    /// E_svd(k) = Σ_{i≤k} ς_i² / Σ_i ς_i²
    /// ```
    pub fn singular_value_curve(&self) -> Vec<f64> {
        let squares: Vec<f64> = self.singular_values.iter().map(|s| s * s).collect();
        let total: f64 = squares.iter().sum();
        let mut sum = 0.0;
        (0..self.rank())
            .map(|k| {
                sum += squares.get(k).unwrap_or(&0.0);
                if k + 1 >= squares.len() { 1.0 } else { sum / total }
            })
            .collect()
    }

    /// The mean of the curve over all orders, in closed form.
    ///
    /// ```text
    /// f(m) = [m/r · Σ_i H_ii + m(m−1)/(r(r−1)) · Σ_{i≠j} H_ij] / 1ᵀ·H·1
    /// E(k) = 1 − f(r − k)
    /// ```
    pub fn permutation_mean(&self) -> Vec<f64> {
        let r = self.rank();
        let diagonal: f64 = (0..r).map(|i| self.overlap[i * r + i]).sum();
        let rest = self.overlap.iter().sum::<f64>() - diagonal;
        let share = |m: usize| {
            let single = m as f64 / r as f64;
            let pair = if r > 1 { single * (m as f64 - 1.0) / (r as f64 - 1.0) } else { 0.0 };
            (single * diagonal + pair * rest) / self.total
        };
        // An empty remainder must give 1 exactly, and −0·(…) would not.
        (1..=r).map(|k| if k == r { 1.0 } else { 1.0 - share(r - k) }).collect()
    }

    /// Components by falling `‖a[k]‖·‖b[k]‖`, the baseline without variances.
    pub fn order_by_norm_product(&self) -> Vec<usize> {
        let r = self.rank();
        let mut order: Vec<usize> = (0..r).collect();
        order.sort_by(|&i, &j| self.overlap[j * r + j].total_cmp(&self.overlap[i * r + i]));
        order
    }

    fn check_order(&self, order: &[usize]) -> Result<(), Error> {
        let r = self.rank();
        check_length("order", order.len(), r)?;
        let mut places = order.iter().enumerate();
        match places.find(|&(place, index)| *index >= r || order[..place].contains(index)) {
            Some((place, &index)) => {
                let expected = format!("every index below {r} once");
                Err(Error::entry("order", place, index as f64, expected))
            }
            None => Ok(()),
        }
    }
}

/// Components by rising prune statistic: the order the posterior proposes. Ties go to the lower
/// index; NaN comes last.
pub fn order_by_statistic(statistic: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..statistic.len()).collect();
    let key = |i: usize| if statistic[i].is_nan() { f64::NAN } else { statistic[i] };
    order.sort_by(|&i, &j| key(i).total_cmp(&key(j)));
    order
}

/// Area under the curve of an order, normalized so that random orders have 0 and the bound has 1.
///
/// ```text
/// gap = (auc − auc_random) / (auc_svd − auc_random)
/// ```
///
/// # Errors
///
/// Random orders are as good as the bound (rank 1), so the ratio has no value.
pub fn normalised_gap(auc: f64, auc_random: f64, auc_svd: f64) -> Result<f64, Error> {
    let room = auc_svd - auc_random;
    check_range("auc_svd - auc_random", room, f64::EPSILON, f64::MAX)?;
    Ok((auc - auc_random) / room)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{assert_near, factors};

    #[test]
    fn orders_areas_and_gaps() {
        assert_eq!(order_by_statistic(&[3.0, -1.0, f64::NAN, -1.0, 2.0]), [1, 3, 4, 0, 2]);
        assert_eq!(area(&[0.5, 1.0]).unwrap(), 0.5);
        assert!(area(&[]).is_err());
        assert!((normalised_gap(0.8, 0.6, 1.0).unwrap() - 0.5).abs() < 1e-15);
        assert!(normalised_gap(1.0, 1.0, 1.0).is_err());
        let b = [1.0, 1.0];
        let update = UpdateEnergy::new(&factors(2, &[1.0, 0.0, 0.0, 2.0], &b)).unwrap();
        for wrong in [&[0, 0][..], &[0, 2], &[0]] {
            assert!(update.curve(wrong).is_err(), "{wrong:?}");
        }
        assert!(UpdateEnergy::new(&factors(2, &[0.0; 4], &b)).is_err());
        let none = UpdateEnergy::new(&factors(0, &[], &[])).unwrap();
        assert!(none.curve(&[]).unwrap().is_empty());
        assert!(none.singular_value_curve().is_empty());
    }

    #[test]
    fn the_closed_mean_over_orders_is_the_mean() {
        let a = [0.5, -0.25, 1.5, 0.125, 1.0, 0.3, 0.75, -1.25, 0.2];
        let b = [0.2, -0.4, 0.6, 1.1, 0.9, -0.7];
        let update = UpdateEnergy::new(&factors(3, &a, &b)).unwrap();
        let mut mean = [0.0; 3];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for (m, v) in mean.iter_mut().zip(update.curve(&order).unwrap()) {
                *m += v / 6.0;
            }
        }
        assert_near(&update.permutation_mean(), &mean, 1e-12);
    }
}
