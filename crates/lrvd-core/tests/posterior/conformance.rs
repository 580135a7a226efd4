//! The conformance vectors of the specification: one small adapter, every quantity in digits.
//!
//! The printed values have ten significant digits; where a value is a small difference of larger
//! ones the last digit may be off by one unit.

use lrvd_core::forward::moment_matched;
use lrvd_core::kl::{LogUniformOptions, kl_fit, kl_log_uniform};
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::posterior::{AlphaFloor, Posterior};
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};
use lrvd_core::special::MedianKind;

use crate::assert_close;

static A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
/// Rank-major; the specification prints `[d_out, r]`.
static B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];
const X: [f64; 6] = [1.0, 2.0, -1.0, 0.5, 0.0, 0.25];
const E: [f64; 4] = [0.5, -1.0, 2.0, 0.25];
/// Ten printed digits.
const PRINTED: f64 = 2e-9;

fn additive() -> Posterior<'static> {
    Posterior::rank_variance(&A, &B, &[-4.0, -3.0]).unwrap()
}

fn multiplicative() -> Posterior<'static> {
    Posterior::noise_to_signal(&A, &B, &[-1.0, 0.5]).unwrap()
}

#[test]
fn additive_kl() {
    let kl = kl_log_uniform(&additive(), LogUniformOptions::default());
    let parts = [kl.total(), kl.a_per_rank.iter().sum(), kl.b_per_rank.iter().sum()];
    assert_close("KL", &parts, &[5.778_160_380_6, 3.347_007_498_0, 2.431_152_882_6], PRINTED);
}

#[test]
fn statistic_and_plan() {
    let q = additive();
    let ratios = q.log_alpha(AlphaFloor::NONE);
    let medians = |values: &[f64], width| -> Vec<f64> {
        values.chunks(width).map(|row| MedianKind::Lower.of(row).unwrap()).collect()
    };
    let printed = [-1.227_411_438, 4.824_021_011];
    assert_close("medians of A", &medians(&ratios.a, 3), &printed, PRINTED);
    let printed = [-2.167_418_599, 9.426_719_317];
    assert_close("medians of B", &medians(&ratios.b, 2), &printed, PRINTED);
    let statistic = rank_statistic(&q, StatisticOptions::default()).unwrap();
    assert_close("statistic", &statistic, &[-1.697_415_018, 7.125_370_164], PRINTED);
    assert_eq!(PruneRule::default().kept(&statistic).unwrap(), [0]);
}

#[test]
fn additive_moments() {
    let q = additive();
    let exact = moments(&q, &X, CrossTerm::Exact).unwrap();
    assert_close("S", &exact.rank_mean, &[-0.125, 0.08, 0.281_25, -0.002_5], 1e-14);
    let v = [0.021_886_159_98, 0.035_074_316_15, 0.002_557_509_994, 0.003_244_393_128];
    assert_close("V", &exact.variance, &v, PRINTED);
    let v = [0.005_000_871_151, 0.018_189_027_32, 0.001_678_067_868, 0.002_364_951_002];
    let omitted = moments(&q, &X, CrossTerm::Omitted).unwrap().variance;
    assert_close("V without the cross term", &omitted, &v, PRINTED);
}

#[test]
fn multiplicative_kl_and_moments() {
    let q = multiplicative();
    assert_close("KL", &[kl_fit(-1.0), kl_fit(0.5)], &[0.913_872_285, 0.280_316_535_2], PRINTED);
    let kl = kl_log_uniform(&q, LogUniformOptions::default());
    assert_close("element sum", &[kl.total()], &[5.970_944_101_3], PRINTED);
    let v = [0.010_608_750_25, 0.042_435_000_99, 0.002_441_687_546, 0.009_766_750_183];
    assert_close("V", &moments(&q, &X, CrossTerm::Exact).unwrap().variance, &v, PRINTED);
    let v = [0.007_817_452_963, 0.031_269_811_85, 0.002_098_062_582, 0.008_392_250_329];
    let omitted = moments(&q, &X, CrossTerm::Omitted).unwrap().variance;
    assert_close("V without the cross term", &omitted, &v, PRINTED);
}

#[test]
fn outputs() {
    for (q, y) in [
        (additive(), [0.048_889_875_59, -0.137_121_409, 0.157_396_357_8, -0.098_265_084_43]),
        (
            multiplicative(),
            [0.026_419_418_07, -0.155_837_599_5, 0.155_079_572_1, -0.087_798_269_92],
        ),
    ] {
        let found = moment_matched(&q, &X, &E, 1.0, CrossTerm::Exact).unwrap();
        assert_close("Y", &found, &y, PRINTED);
    }
}
