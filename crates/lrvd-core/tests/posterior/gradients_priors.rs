//! Derivatives of every prior term against central differences.

use lrvd_core::factor::FactorView;
use lrvd_core::family::VariationalFamily;
use lrvd_core::forward::ForwardGradient;
use lrvd_core::kl::{
    ArdPrior, ArdScales, KlReduction, LogUniformOptions, gaussian_kl, kl_ard, kl_fit, kl_fit_slope,
    kl_gaussian, kl_log_uniform,
};
use lrvd_core::log_alpha::{AlphaFloor, log_alpha};
use lrvd_core::posterior::PosteriorGradient;

use crate::gradients::{Problem, flatten};
use crate::support::{TestRng, central_difference, gradient_error};

/// Flat like a [`Problem`], whose inputs a prior does not see.
fn prior_gradient(problem: &Problem, posterior: PosteriorGradient) -> Vec<f64> {
    let mut flat = flatten(ForwardGradient { x: Vec::new(), posterior });
    flat.resize(problem.flat.len(), 0.0);
    flat
}

#[test]
fn slope_of_the_curve() {
    for a in [-19.0, -8.0, -4.4, -4.3, -1.55, -0.2, 0.0, 0.7, 3.0, 6.0] {
        let error = gradient_error(&[kl_fit_slope(a)], &[a], |x| kl_fit(x[0]));
        assert!(error < 1e-7, "at {a}: {error}");
    }
    // The stable softplus differentiated naively is off by a quarter at 0; this must be noticed.
    assert!(gradient_error(&[kl_fit_slope(0.0) - 0.25], &[0.0], |x| kl_fit(x[0])) > 0.1);
}

#[test]
fn ratio_of_one_weight() {
    for floor in [AlphaFloor::NONE, AlphaFloor::AUTHORS] {
        for (mean, l) in [(0.7, -3.0), (-0.2, -17.5), (1.5, -19.9), (-2.0, 1.9)] {
            let found = log_alpha(mean, l, floor);
            let numeric = central_difference(&[mean, l], |p| log_alpha(p[0], p[1], floor).value);
            assert!((found.by_mean - numeric[0]).abs() < 1e-8, "{floor:?} at {mean}, {l}");
            assert!((found.by_parameter - numeric[1]).abs() < 1e-8, "{floor:?} at {mean}, {l}");
        }
        assert_eq!(log_alpha(0.5, -20.1, floor).by_parameter, 0.0);
        assert_eq!(log_alpha(0.5, 2.1, floor).by_parameter, 0.0);
    }
}

#[test]
fn log_uniform_of_every_family() {
    for family in VariationalFamily::ALL {
        let problem = Problem::new(family, 21);
        for reduction in [KlReduction::Element, KlReduction::PerRank] {
            for alpha_floor in [AlphaFloor::NONE, AlphaFloor::AUTHORS] {
                let options = LogUniformOptions { reduction, alpha_floor };
                let kl = |flat: &[f64]| problem.with(flat, |q, _| kl_log_uniform(&q, options));
                let written = prior_gradient(&problem, kl(&problem.flat).gradient);
                let error = gradient_error(&written, &problem.flat, |flat| kl(flat).total());
                // Near a zero mean the curve bends on the scale of the mean itself.
                assert!(error < 1e-6, "{family}, {options:?}: {error}");
            }
        }
    }
}

#[test]
fn hierarchical_prior_of_every_additive_family() {
    let priors = [
        ArdPrior::EmpiricalBayes,
        ArdPrior::InverseGamma { shape: 1e-3, rate: 1e-3 },
        ArdPrior::InverseGamma { shape: 2.0, rate: 0.7 },
    ];
    for family in VariationalFamily::ALL {
        if family == VariationalFamily::NoiseToSignal {
            continue;
        }
        let problem = Problem::new(family, 22);
        for prior in priors {
            for scales in [ArdScales::Shared, ArdScales::Separate] {
                let kl =
                    |flat: &[f64]| problem.with(flat, |q, _| kl_ard(&q, prior, scales).unwrap());
                let found = kl(&problem.flat);
                assert!(found.per_rank.iter().all(|&kl| kl >= 0.0), "{family}, {prior:?}");
                let written = prior_gradient(&problem, found.gradient);
                let error = gradient_error(&written, &problem.flat, |flat| kl(flat).total());
                assert!(error < 1e-7, "{family}, {prior:?}, {scales:?}: {error}");
            }
        }
    }
}

#[test]
fn gaussian_prior() {
    let mut rng = TestRng::new(23);
    let mean = rng.normals(6);
    let std_dev: Vec<f64> = (0..6).map(|_| 0.3 + rng.uniform()).collect();
    let kl = |mean: &[f64], std_dev: &[f64]| {
        kl_gaussian(FactorView::new("a", mean, 2, 3).unwrap(), std_dev, 0.6).unwrap()
    };
    let found = kl(&mean, &std_dev);
    assert!(gradient_error(&found.by_mean, &mean, |m| kl(m, &std_dev).total()) < 1e-8);
    assert!(gradient_error(&found.by_std_dev, &std_dev, |s| kl(&mean, s).total()) < 1e-8);
    let by_log = gaussian_kl(0.3, 0.5, 0.6).by_log_variance;
    let at = [0.25_f64.ln()];
    let error = gradient_error(&[by_log], &at, |l| gaussian_kl(0.3, (0.5 * l[0]).exp(), 0.6).value);
    assert!(error < 1e-8, "{error}");
}
