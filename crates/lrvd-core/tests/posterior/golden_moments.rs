use lrvd_core::factor::FactorView;
use lrvd_core::forward::{NestedNoise, NestedPass, WeightNoise, WeightPass};
use lrvd_core::moments::{CrossTerm, moments, output_covariance};
use lrvd_core::posterior::{NoiseParameters, Posterior};

use crate::support::{Case, GOLDEN, TestRng, assert_close};

const DRAWS: usize = 200_000;

fn with_posterior(case: &Case, family: &str, check: impl FnOnce(Posterior<'_>, &[f64])) {
    let (a_shape, b_shape) = (case.input_shape("mu_A"), case.input_shape("mu_B"));
    let (a_mean, b_mean) = (case.input("mu_A"), case.input_transposed("mu_B"));
    let (log_alpha, log_variance) = (case.input("log_alpha"), case.input("log_sigma2"));
    let parameters = if family == "additive" {
        NoiseParameters::RankVariance(&log_variance)
    } else {
        NoiseParameters::NoiseToSignal(&log_alpha)
    };
    let a = FactorView::new("mu_A", &a_mean, a_shape[0], a_shape[1]).unwrap();
    let b = FactorView::new("mu_B", &b_mean, b_shape[1], b_shape[0]).unwrap();
    check(Posterior::new(a, b, parameters).unwrap(), &case.input("x"));
}

#[test]
fn closed_form_moments() {
    let case = Case::load("variance_monte_carlo");
    for family in ["additive", "multiplicative"] {
        with_posterior(&case, family, |q, x| {
            let exact = moments(&q, x, CrossTerm::Exact).unwrap();
            let omitted = moments(&q, x, CrossTerm::Omitted).unwrap();
            let covariance = output_covariance(&q, x, CrossTerm::Exact).unwrap();
            let check = |key: &str, found: &[f64]| {
                let key = format!("{family}.formula.{key}");
                assert_close(&key, found, &case.expected(&key), GOLDEN);
            };
            check("mean", &exact.mean);
            check("v_exact", &exact.variance);
            check("v_paper", &omitted.variance);
            check("cov_exact", &covariance);
        });
    }
}

/// Moments of draws, with the standard errors that the fixture's generator uses.
struct Drawn {
    mean: Vec<f64>,
    variance: Vec<f64>,
    mean_error: Vec<f64>,
    variance_error: Vec<f64>,
    /// Pairs of outputs of token 0.
    covariance: Vec<f64>,
}

fn draw(size: usize, d_out: usize, mut sample: impl FnMut() -> Vec<f64>) -> Drawn {
    let n = DRAWS as f64;
    let draws: Vec<Vec<f64>> = (0..DRAWS).map(|_| sample()).collect();
    let mean: Vec<f64> = (0..size).map(|i| draws.iter().map(|d| d[i]).sum::<f64>() / n).collect();
    let moment =
        |i: usize, power: i32| draws.iter().map(|d| (d[i] - mean[i]).powi(power)).sum::<f64>() / n;
    let variance: Vec<f64> = (0..size).map(|i| moment(i, 2)).collect();
    let mean_error = variance.iter().map(|v| (v / n).sqrt()).collect();
    let variance_error =
        (0..size).map(|i| ((moment(i, 4) - variance[i] * variance[i]) / n).sqrt()).collect();
    let mut covariance = Vec::new();
    for o in 0..d_out {
        for p in 0..d_out {
            let products = draws.iter().map(|d| (d[o] - mean[o]) * (d[p] - mean[p]));
            covariance.push(products.sum::<f64>() / n);
        }
    }
    Drawn { mean, variance, mean_error, variance_error, covariance }
}

#[test]
fn own_samplers_have_the_exact_moments_and_not_the_published_ones() {
    let case = Case::load("variance_monte_carlo");
    for family in ["additive", "multiplicative"] {
        with_posterior(&case, family, |q, x| {
            let (rank, d_in, d_out) = (q.rank(), q.d_input(), q.d_output());
            let tokens = x.len() / d_in;
            let mut rng = TestRng::new(20_251);
            let weight = draw(tokens * d_out, d_out, || {
                let (a, b) = (rng.normals(rank * d_in), rng.normals(rank * d_out));
                let noise = WeightNoise { a: &a, b: &b };
                WeightPass::new(q, x, noise, 1.0).unwrap().output().to_vec()
            });
            check_draws(&case, &format!("{family}, weights"), family, &weight);
            let nested = draw(tokens * d_out, d_out, || {
                let (s, y) = (rng.normals(tokens * rank), rng.normals(tokens * d_out));
                let noise = NestedNoise { rank: &s, output: &y };
                NestedPass::new(q, x, noise, 1.0).unwrap().output().to_vec()
            });
            check_draws(&case, &format!("{family}, nested"), family, &nested);
        });
    }
}

fn check_draws(case: &Case, what: &str, family: &str, drawn: &Drawn) {
    let wanted = |key: &str| case.expected(&format!("{family}.formula.{key}"));
    let (mean, exact, paper) = (wanted("mean"), wanted("v_exact"), wanted("v_paper"));
    for i in 0..mean.len() {
        let z_mean = (drawn.mean[i] - mean[i]) / drawn.mean_error[i];
        let z_exact = (drawn.variance[i] - exact[i]) / drawn.variance_error[i];
        let z_paper = (drawn.variance[i] - paper[i]) / drawn.variance_error[i];
        assert!(z_mean.abs() < 5.0, "{what}: mean {i} off by {z_mean} standard errors");
        assert!(z_exact.abs() < 5.0, "{what}: variance {i} off by {z_exact} standard errors");
        assert!(z_paper > 20.0, "{what}: the omitted term should show, {z_paper}");
    }
    // Five standard errors of a covariance are at most 5·sqrt((v_o·v_p·kurtosis)/n); the heavy
    // tails of these products have a kurtosis below 16.
    let covariance = wanted("cov_exact");
    let largest = exact.iter().copied().fold(0.0, f64::max);
    let allowed = 5.0 * largest * (16.0 / DRAWS as f64).sqrt();
    for (found, wanted) in drawn.covariance.iter().zip(&covariance) {
        assert!((found - wanted).abs() < allowed, "{what}: {found} and {wanted} ({allowed})");
    }
}
