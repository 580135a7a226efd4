//! The conformance vectors of the specification: one small adapter, every quantity in digits.
//!
//! The printed values have ten significant digits; where a value is a small difference of larger
//! ones the last digit may be off by one unit.

use lrvd_core::factor::FactorView;
use lrvd_core::forward::MomentMatchedPass;
use lrvd_core::kl::{LogUniformOptions, kl_fit, kl_log_uniform};
use lrvd_core::log_alpha::{AlphaFloor, log_alpha_entries};
use lrvd_core::moments::{CrossTerm, additive_structure, moments};
use lrvd_core::numeric::dense::{times_transposed, transpose};
use lrvd_core::numeric::lower_median;
use lrvd_core::posterior::{NoiseParameters, Posterior};
use lrvd_core::prune::{PruneRule, StatisticOptions, rank_statistic};

use crate::support::assert_close;

const A: [f64; 6] = [0.5, -0.25, 0.125, 0.01, 0.02, -0.03];
/// Rank-major; the specification prints `[d_out, r]`.
const B: [f64; 4] = [0.2, -0.4, -0.001, 0.002];
const X: [f64; 6] = [1.0, 2.0, -1.0, 0.5, 0.0, 0.25];
const E: [f64; 4] = [0.5, -1.0, 2.0, 0.25];
const G: [f64; 4] = [1.0, 2.0, -1.0, 0.5];
const ADDITIVE: NoiseParameters<'static> = NoiseParameters::RankVariance(&[-4.0, -3.0]);
const MULTIPLICATIVE: NoiseParameters<'static> = NoiseParameters::NoiseToSignal(&[-1.0, 0.5]);
/// Ten printed digits.
const PRINTED: f64 = 2e-9;

fn posterior(parameters: NoiseParameters<'_>) -> Posterior<'_> {
    let a = FactorView::new("a", &A, 2, 3).unwrap();
    Posterior::new(a, FactorView::new("b", &B, 2, 2).unwrap(), parameters).unwrap()
}

/// A printed `[d_out, r]` table, rank-major.
fn b_table(printed: [f64; 4]) -> Vec<f64> {
    transpose(&printed, 2, 2)
}

#[test]
fn additive_kl() {
    let kl = kl_log_uniform(&posterior(ADDITIVE), LogUniformOptions::default());
    let parts = [kl.total(), kl.a_per_rank.iter().sum(), kl.b_per_rank.iter().sum()];
    assert_close("KL", &parts, &[5.778_160_380_6, 3.347_007_498_0, 2.431_152_882_6], PRINTED);
    let by_l = kl.gradient.parameters.per_rank().unwrap().to_vec();
    assert_close("dKL/dl, rank 1", &by_l[..1], &[-2.663_347_32], PRINTED);
    assert_close("dKL/dl, rank 2", &by_l[1..], &[-0.014_413_419_5], PRINTED);
    let by_a = [2.256_503_429, -4.983_053_462, 5.142_182_228];
    assert_close("dKL/dA, rank 1", &kl.gradient.a_mean[..3], &by_a, PRINTED);
    let by_a = [0.203_288_209_9, 0.409_644_913_7, -0.616_645_148_5];
    assert_close("dKL/dA, rank 2", &kl.gradient.a_mean[3..], &by_a, PRINTED);
    let by_b = b_table([5.517_257_614, -0.020_115_386_47, -3.016_135_63, 0.040_286_266_15]);
    assert_close("dKL/dB, rank 1", &kl.gradient.b_mean[..2], &by_b[..2], PRINTED);
    assert_close("dKL/dB, rank 2", &kl.gradient.b_mean[2..], &by_b[2..], PRINTED);
}

#[test]
fn statistic_and_plan() {
    let q = posterior(ADDITIVE);
    let ratios = log_alpha_entries(&q, AlphaFloor::NONE);
    let medians = |values: &[f64], width| -> Vec<f64> {
        values.chunks(width).map(|row| lower_median(row).unwrap()).collect()
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
    let q = posterior(ADDITIVE);
    let s = additive_structure(&q, &X).unwrap().unwrap();
    assert_close("q", &s.q, &[6.0, 0.3125], 1e-15);
    assert_close("w", &s.w, &[0.000_732_675_342_6, 0.002_930_701_37], PRINTED);
    assert_close("u", &[s.u], &[0.002_814_214_805], PRINTED);
    assert_close("t", &s.t, &[0.000_604_819_095_2, 0.001_449_106_823], PRINTED);
    let exact = moments(&q, &X, CrossTerm::Exact).unwrap();
    assert_close("S", &exact.rank_mean, &[-0.125, 0.08, 0.281_25, -0.002_5], 1e-14);
    let v = [0.021_886_159_98, 0.035_074_316_15, 0.002_557_509_994, 0.003_244_393_128];
    assert_close("V", &exact.variance, &v, PRINTED);
    assert_close("V from the structure", &s.variance(CrossTerm::Exact), &v, PRINTED);
    let v = [0.005_000_871_151, 0.018_189_027_32, 0.001_678_067_868, 0.002_364_951_002];
    let omitted = moments(&q, &X, CrossTerm::Omitted).unwrap().variance;
    assert_close("V without the cross term", &omitted, &v, PRINTED);
}

#[test]
fn additive_pass() {
    let pass = MomentMatchedPass::new(posterior(ADDITIVE), &X, &E, 1.0, CrossTerm::Exact).unwrap();
    let y = [0.048_889_875_59, -0.137_121_409, 0.157_396_357_8, -0.098_265_084_43];
    assert_close("Y", pass.output(), &y, PRINTED);
    let loss: f64 = pass.output().iter().zip(&G).map(|(y, g)| y * g).sum();
    assert_close("L", &[loss], &[-0.431_881_842_4], PRINTED);
    let d = pass.backward(&G).unwrap();
    let by_a = [
        -0.879_496_444_6,
        -1.166_576_879,
        0.435_184_436_8,
        -0.022_748_481_77,
        -0.052_146_216_38,
        0.027_735_421_4,
    ];
    assert_close("dA", &d.posterior.a_mean, &by_a, PRINTED);
    let by_b = b_table([-0.377_238_428_7, 0.082_105_691_87, 0.355_028_333_2, 0.152_438_104_3]);
    assert_close("dB", &d.posterior.b_mean, &by_b, PRINTED);
    let by_l = d.posterior.parameters.per_rank().unwrap();
    assert_close("dl", by_l, &[-0.136_690_265_6, -0.138_668_796_2], PRINTED);
    let by_x = [
        -0.341_267_963_4,
        0.046_574_622_47,
        -0.022_765_849_07,
        -0.359_973_353_4,
        0.148_236_987_7,
        -0.106_167_399_3,
    ];
    assert_close("dX", &d.x, &by_x, PRINTED);
}

#[test]
fn multiplicative_kl_and_moments() {
    let q = posterior(MULTIPLICATIVE);
    assert_close("KL", &[kl_fit(-1.0), kl_fit(0.5)], &[0.913_872_285, 0.280_316_535_2], PRINTED);
    let kl = kl_log_uniform(&q, LogUniformOptions::default());
    assert_close("element sum", &[kl.total()], &[5.970_944_101_3], PRINTED);
    assert_eq!(kl.gradient.a_mean, [0.0; 6]);
    assert_eq!(kl.gradient.b_mean, [0.0; 4]);

    let squares = |v: &[f64]| -> Vec<f64> { v.iter().map(|v| v * v).collect() };
    let u = times_transposed(&squares(&X), &squares(&A), 2, 3, 2);
    assert_close("U", &u, &[0.515_625, 0.002_6, 0.063_476_562_5, 0.000_081_25], 1e-14);
    let v = [0.010_608_750_25, 0.042_435_000_99, 0.002_441_687_546, 0.009_766_750_183];
    assert_close("V", &moments(&q, &X, CrossTerm::Exact).unwrap().variance, &v, PRINTED);
    let v = [0.007_817_452_963, 0.031_269_811_85, 0.002_098_062_582, 0.008_392_250_329];
    let omitted = moments(&q, &X, CrossTerm::Omitted).unwrap().variance;
    assert_close("V without the cross term", &omitted, &v, PRINTED);
}

#[test]
fn multiplicative_pass() {
    let q = posterior(MULTIPLICATIVE);
    let pass = MomentMatchedPass::new(q, &X, &E, 1.0, CrossTerm::Exact).unwrap();
    let y = [0.026_419_418_07, -0.155_837_599_5, 0.155_079_572_1, -0.087_798_269_92];
    assert_close("Y", pass.output(), &y, PRINTED);
    let d = pass.backward(&G).unwrap();
    let by_a = [-1.241_883_638, -0.391_001_776, 0.309_784_679_4];
    assert_close("dA, rank 1", &d.posterior.a_mean[..3], &by_a, PRINTED);
    let by_a = [0.003_993_720_376, 0.005_979_164_37, -0.002_490_739_656];
    assert_close("dA, rank 2", &d.posterior.a_mean[3..], &by_a, PRINTED);
    let by_b = b_table([-0.642_886_947, 0.082_408_437_15, 0.889_727_251_5, 0.158_325_559]);
    assert_close("dB", &d.posterior.b_mean, &by_b, PRINTED);
    let by_ratio = d.posterior.parameters.per_rank().unwrap();
    assert_close("da, rank 1", &by_ratio[..1], &[-0.276_994_335_8], PRINTED);
    assert_close("da, rank 2", &by_ratio[1..], &[-5.026_513_568e-7], 1e-8);
    let by_x = [
        -0.439_715_095_6,
        0.048_935_013_64,
        -0.056_589_335_98,
        -0.362_373_572_2,
        0.136_682_922_5,
        -0.071_166_115_42,
    ];
    assert_close("dX", &d.x, &by_x, PRINTED);
}
