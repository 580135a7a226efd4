//! KL and statistic of a fresh adapter, against the specification's totals.
//!
//! The initial distributions are replaced by their quantiles (stratified points), which leaves the exact
//! expectation up to the curvature between points.

use lrvd_core::family::{INITIAL_B_BOUND, INITIAL_LOG_VARIANCE};
use lrvd_core::kl::{LogUniformOptions, kl_log_uniform};
use lrvd_core::posterior::Posterior;
use lrvd_core::prune::{StatisticOptions, rank_statistic};

fn uniform_quantiles(n: usize, bound: f64) -> Vec<f64> {
    (0..n).map(|i| bound * ((2 * i + 1) as f64 / n as f64 - 1.0)).collect()
}

/// KL and statistic of one rank component of a fresh module.
fn fresh(d_in: usize, d_out: usize, options: StatisticOptions) -> (f64, f64) {
    let a = uniform_quantiles(d_in, 1.0 / (d_in as f64).sqrt());
    let b = uniform_quantiles(d_out, INITIAL_B_BOUND);
    let q = Posterior::rank_variance(&a, &b, &[INITIAL_LOG_VARIANCE]).unwrap();
    let kl = kl_log_uniform(&q, LogUniformOptions::default()).total();
    (kl, rank_statistic(&q, options).unwrap()[0])
}

fn total(rank: usize, modules: &[(usize, usize, usize)]) -> f64 {
    let kl = |d_in, d_out| fresh(d_in, d_out, StatisticOptions::default()).0;
    modules.iter().map(|&(n, d_in, d_out)| (n * rank) as f64 * kl(d_in, d_out)).sum()
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 2e-3, "{found}, expected {expected}");
}

#[test]
fn totals_of_the_published_configurations() {
    let deberta = [(48, 768, 768), (12, 768, 3072), (12, 3072, 768)];
    assert_near(total(8, &deberta), 217_049.0);
    assert_near(total(16, &deberta), 434_108.0);
    let llama = [(64, 4096, 4096), (1, 4096, 32_000)];
    assert_near(total(8, &llama), 248_022.0);
    let gpt2 = [(12, 768, 2304), (12, 768, 768), (12, 768, 3072), (12, 3072, 768)];
    assert_near(total(32, &gpt2), 592_200.0);
}

#[test]
fn statistics_of_fresh_modules() {
    for (d_in, d_out, expected) in [(768, 768, 3.59), (3072, 768, 4.29), (4096, 4096, 4.43)] {
        let found = fresh(d_in, d_out, StatisticOptions::default()).1;
        assert!((found - expected).abs() < 0.01, "{d_in}: {found}, expected {expected}");
        // Closed form: medians of a uniform distribution.
        let a = INITIAL_LOG_VARIANCE + (4.0 * d_in as f64).ln();
        let b = INITIAL_LOG_VARIANCE - (2.5e-7_f64 + 1e-8).ln();
        assert!((found - 0.5 * (a + b)).abs() < 0.01);
    }
}

#[test]
fn the_fan_in_correction_puts_all_modules_at_the_same_start() {
    let options = StatisticOptions { fan_in_correction: Some(768.0), ..Default::default() };
    let corrected = |d_in| fresh(d_in, 768, options).1;
    assert!((corrected(768) - corrected(3072)).abs() < 5e-3);
    assert!((corrected(768) - 3.59).abs() < 0.01);
}
