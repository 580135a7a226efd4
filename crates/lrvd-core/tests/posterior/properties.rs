//! Properties of every posterior.

use lrvd_core::Error;
use lrvd_core::energy::{AucRule, Capture, UpdateEnergy, normalised_gap, order_by_statistic};
use lrvd_core::gauge::Gauge;
use lrvd_core::kl::{LogUniformOptions, kl_fit, kl_log_uniform};
use lrvd_core::linalg::transposed_times;
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::posterior::{Entries, Posterior};
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};
use proptest::prelude::*;

const RANK: usize = 3;
const D_IN: usize = 5;
const D_OUT: usize = 4;
const ORDERS: [[usize; RANK]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

type Family = for<'a> fn(&'a [f64], &'a [f64], &'a [f64]) -> Result<Posterior<'a>, Error>;

const ADDITIVE: Family = |a, b, l| Posterior::rank_variance(a, b, l);
const MULTIPLICATIVE: Family = |a, b, l| Posterior::noise_to_signal(a, b, l);

/// Means away from zero, where `EPS_MEAN` does not show.
fn mean() -> impl Strategy<Value = f64> {
    (0.05_f64..2.0, any::<bool>()).prop_map(|(m, negative)| if negative { -m } else { m })
}

fn factors() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    let a = proptest::collection::vec(mean(), RANK * D_IN);
    (a, proptest::collection::vec(mean(), RANK * D_OUT))
}

fn total(q: &Posterior<'_>) -> f64 {
    kl_log_uniform(q, LogUniformOptions::default()).total()
}

fn statistic(q: &Posterior<'_>) -> Vec<f64> {
    rank_statistic(q, StatisticOptions::default()).unwrap()
}

/// Variances of the outputs for two fixed inputs.
fn variances(q: &Posterior<'_>) -> Vec<f64> {
    let x = [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, 1.0, 0.0, 3.0, -0.5];
    moments(q, &x, CrossTerm::Exact).unwrap().variance
}

fn rotation(angle: f64) -> Gauge {
    let (s, c) = angle.sin_cos();
    Gauge::new(&[c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0], RANK).unwrap()
}

fn close(x: &[f64], y: &[f64], tolerance: f64) -> bool {
    x.len() == y.len()
        && x.iter().zip(y).all(|(x, y)| (x - y).abs() <= tolerance * y.abs().max(1.0))
}

proptest! {
    #[test]
    fn kl_is_not_negative_and_falls(a in -60.0_f64..60.0, step in 1e-3_f64..5.0) {
        prop_assert!(kl_fit(a) >= 0.0);
        prop_assert!(kl_fit(a + step) < kl_fit(a));
    }

    #[test]
    fn signed_permutations_leave_everything_alone((a, b) in factors(), l in [-9.0_f64..1.0, -9.0..1.0, -9.0..1.0]) {
        // Row 0 → 2, row 1 → 0 with its sign turned, row 2 → 1.
        let gauge = Gauge::new(&[0.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0], RANK).unwrap();
        let moved = gauge.apply(&a, &b).unwrap();
        let moved_l = [l[1], l[2], l[0]];
        prop_assert!(gauge.diagonal_action(&l).unwrap().off_diagonal == 0.0);
        for family in [ADDITIVE, MULTIPLICATIVE] {
            let q = family(&a, &b, &l).unwrap();
            let moved = family(&moved.a, &moved.b, &moved_l).unwrap();
            prop_assert!(close(&variances(&moved), &variances(&q), 1e-12));
            prop_assert!(close(&[total(&moved)], &[total(&q)], 1e-13));
            let s = statistic(&q);
            prop_assert_eq!(statistic(&moved), vec![s[1], s[2], s[0]]);
        }
    }

    #[test]
    fn rescaling_a_rank((a, b) in factors(), l in -9.0_f64..1.0, scale in 1.3_f64..3.0) {
        let gauge = Gauge::new(&[scale, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], RANK).unwrap();
        let Entries { a: moved_a, b: moved_b } = gauge.apply(&a, &b).unwrap();
        let l = [l; RANK];
        let of = |family: Family| [
            family(&a, &b, &l).unwrap(),
            family(&moved_a, &moved_b, &l).unwrap(),
        ];
        let [ratio, moved] = of(MULTIPLICATIVE);
        prop_assert!(close(&variances(&moved), &variances(&ratio), 1e-12));
        prop_assert!(close(&[total(&moved)], &[total(&ratio)], 1e-13));
        prop_assert!(close(&statistic(&moved), &statistic(&ratio), 1e-13));
        // The additive family changes, its statistic does not: both medians move, in opposite directions.
        let [additive, moved] = of(ADDITIVE);
        prop_assert!(!close(&variances(&moved), &variances(&additive), 1e-9));
        prop_assert!(close(&statistic(&moved), &statistic(&additive), 1e-5));
    }

    #[test]
    fn rotations((a, b) in factors(), l in -9.0_f64..1.0, angle in 0.1_f64..1.4) {
        let gauge = rotation(angle);
        let moved = gauge.apply(&a, &b).unwrap();
        let of = |family: Family, l: &[f64]| [
            variances(&family(&a, &b, l).unwrap()),
            variances(&family(&moved.a, &moved.b, l).unwrap()),
        ];
        // Only of equal variances, and of those of the additive family alone.
        let equal = [l, l, l - 1.0];
        prop_assert!(gauge.is_residual(&equal, 1e-12).unwrap());
        let [before, after] = of(ADDITIVE, &equal);
        prop_assert!(close(&after, &before, 1e-12));
        let unequal = [l, l + 0.5, l];
        prop_assert!(!gauge.is_residual(&unequal, 1e-3).unwrap());
        let [before, after] = of(MULTIPLICATIVE, &equal);
        prop_assert!(after.iter().zip(&before).any(|(x, y)| (x / y - 1.0).abs() > 1e-9));
    }

    #[test]
    fn the_product_survives_any_gauge((a, b) in factors(), m in proptest::collection::vec(-1.0_f64..1.0, RANK * RANK)) {
        // Diagonally dominant, hence invertible.
        let matrix: Vec<f64> =
            m.iter().enumerate().map(|(i, v)| if i % (RANK + 1) == 0 { v + 4.0 } else { *v }).collect();
        let moved = Gauge::new(&matrix, RANK).unwrap().apply(&a, &b).unwrap();
        let before = transposed_times(&b, &a, RANK, D_OUT, D_IN);
        let after = transposed_times(&moved.b, &moved.a, RANK, D_OUT, D_IN);
        prop_assert!(close(&after, &before, 1e-12));
    }

    #[test]
    fn pruning_is_idempotent_and_complete(
        (a, b) in factors(),
        l in [-9.0_f64..2.0, -9.0..2.0, -9.0..2.0],
        threshold in -4.0_f64..4.0,
        min_rank in 0_usize..4,
    ) {
        let rule = PruneRule::new(threshold, min_rank).unwrap();
        let kept = rule.kept(&statistic(&ADDITIVE(&a, &b, &l).unwrap())).unwrap();
        prop_assert!(kept.is_sorted() && kept.iter().all(|&k| k < RANK));
        prop_assert!(kept.len() >= min_rank.min(RANK));
        let rows = |values: &[f64], width: usize| -> Vec<f64> {
            kept.iter().flat_map(|&k| values[k * width..][..width].to_vec()).collect()
        };
        let (a, b, l) = (rows(&a, D_IN), rows(&b, D_OUT), rows(&l, 1));
        let pruned = ADDITIVE(&a, &b, &l).unwrap();
        prop_assert_eq!(rule.kept(&statistic(&pruned)).unwrap().len(), kept.len());
    }

    #[test]
    fn energy_curves_stay_in_their_bounds((a, b) in factors(), turn in 0_usize..6) {
        let update = UpdateEnergy::new(&a, &b, RANK);
        prop_assume!(update.is_ok());
        let update = update.unwrap();
        let order = ORDERS[turn];
        let bound = update.singular_value_curve();
        let residual = update.curve(Capture::Residual, &order).unwrap();
        prop_assert!(residual.iter().zip(&bound).all(|(r, b)| *r <= b + 1e-9));
        for curve in [&residual, &bound] {
            prop_assert!((curve[RANK - 1] - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_closed_mean_over_orders_is_the_mean((a, b) in factors()) {
        let update = UpdateEnergy::new(&a, &b, RANK);
        prop_assume!(update.as_ref().is_ok_and(|u| u.total() > 0.1));
        let update = update.unwrap();
        for capture in [Capture::Residual, Capture::PartialNorm] {
            let mut mean = [0.0; RANK];
            for order in &ORDERS {
                for (m, v) in mean.iter_mut().zip(update.curve(capture, order).unwrap()) {
                    *m += v / 6.0;
                }
            }
            prop_assert!(close(&update.permutation_mean(capture), &mean, 1e-10));
        }
    }
}

#[test]
fn rotating_equal_variances_changes_the_kl() {
    let a = [0.5, -0.25, 0.125, 1.0, 0.3, 0.01, 0.02, -0.03, 0.7, 0.2, 0.4, 0.1, -0.6, 0.9, 0.8];
    let b = [0.2, -0.4, 0.6, 0.1, -0.01, 0.02, 0.5, 0.3, 0.3, -0.2, 0.1, 0.7];
    let at = |angle| {
        let moved = rotation(angle).apply(&a, &b).unwrap();
        total(&ADDITIVE(&moved.a, &moved.b, &[-4.0; RANK]).unwrap())
    };
    assert!((at(0.0) - total(&ADDITIVE(&a, &b, &[-4.0; RANK]).unwrap())).abs() < 1e-12);
    assert!((at(0.1) - at(0.0)).abs() > 0.01 && (at(0.6) - at(0.1)).abs() > 0.01);
}

#[test]
fn orders_areas_and_gaps() {
    assert_eq!(order_by_statistic(&[3.0, -1.0, f64::NAN, -1.0, 2.0]), [1, 3, 4, 0, 2]);
    assert_eq!(AucRule::Trapezoid.area(&[0.5, 1.0]).unwrap(), 0.5);
    assert_eq!(AucRule::Mean.area(&[0.5, 1.0]).unwrap(), 0.75);
    assert!(AucRule::Trapezoid.area(&[]).is_err());
    assert!((normalised_gap(0.8, 0.6, 1.0).unwrap() - 0.5).abs() < 1e-15);
    assert!(normalised_gap(1.0, 1.0, 1.0).is_err());
    let (a, b) = ([1.0, 0.0, 0.0, 2.0], [1.0, 1.0]);
    let update = UpdateEnergy::new(&a, &b, 2).unwrap();
    for wrong in [&[0, 0][..], &[0, 2], &[0]] {
        assert!(update.curve(Capture::Residual, wrong).is_err(), "{wrong:?}");
    }
    // ‖ΔW‖² = 1 + 4; the terms are orthogonal.
    assert_eq!(update.curve(Capture::Residual, &[1, 0]).unwrap(), [0.8, 1.0]);
    assert!(UpdateEnergy::new(&[0.0; 4], &b, 2).is_err());
    let none = UpdateEnergy::new(&[], &[], 0).unwrap();
    assert!(none.curve(Capture::Residual, &[]).unwrap().is_empty());
    assert!(none.singular_value_curve().is_empty());
}
