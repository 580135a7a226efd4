//! Every written backward against central differences, and a check that the check can fail.

use lrvd_core::factor::FactorView;
use lrvd_core::family::{LOG_VARIANCE_MAX, LOG_VARIANCE_MIN, VariationalFamily};
use lrvd_core::forward::{
    ForwardGradient, MomentMatchedPass, NestedNoise, NestedPass, WeightNoise, WeightPass,
};
use lrvd_core::moments::CrossTerm;
use lrvd_core::posterior::{NoiseParameters, ParameterGradient, Posterior};

use crate::support::{TestRng, gradient_error};

const RANK: usize = 4;
const D_IN: usize = 5;
const D_OUT: usize = 7;
const TOKENS: usize = 3;
const SCALING: f64 = 1.75;
/// What central differences resolve here; written errors show as 1e-2 and more.
const ALLOWED: f64 = 2e-8;

/// Everything a pass depends on, in one flat vector: means of A and B, parameters, inputs.
pub(crate) struct Problem {
    pub(crate) family: VariationalFamily,
    pub(crate) flat: Vec<f64>,
    output_weight: Vec<f64>,
    noise: Vec<f64>,
}

impl Problem {
    pub(crate) fn new(family: VariationalFamily, seed: u64) -> Self {
        let mut rng = TestRng::new(seed);
        let mut flat = rng.normals(RANK * (D_IN + D_OUT));
        let count = family.parameter_count(RANK, D_IN, D_OUT);
        flat.extend((0..count).map(|_| -1.0 + 0.7 * rng.normal()));
        flat.extend(rng.normals(TOKENS * D_IN));
        Self {
            family,
            flat,
            output_weight: rng.normals(TOKENS * D_OUT),
            noise: rng.normals(RANK * (D_IN + D_OUT) + TOKENS * (RANK + D_OUT)),
        }
    }

    /// Splits a flat vector back and hands the posterior and the inputs on.
    pub(crate) fn with<T>(&self, flat: &[f64], f: impl FnOnce(Posterior<'_>, &[f64]) -> T) -> T {
        let (a, rest) = flat.split_at(RANK * D_IN);
        let (b, rest) = rest.split_at(RANK * D_OUT);
        let count = self.family.parameter_count(RANK, D_IN, D_OUT);
        let (p, x) = rest.split_at(count);
        let parameters = match self.family {
            VariationalFamily::RankVariance => NoiseParameters::RankVariance(p),
            VariationalFamily::NoiseToSignal => NoiseParameters::NoiseToSignal(p),
            VariationalFamily::AsymRankVariance => NoiseParameters::AsymRankVariance(p),
            VariationalFamily::ElementVariance => {
                let (a, b) = p.split_at(RANK * D_IN);
                NoiseParameters::ElementVariance { a, b }
            }
        };
        let a = FactorView::new("a", a, RANK, D_IN).unwrap();
        let b = FactorView::new("b", b, RANK, D_OUT).unwrap();
        f(Posterior::new(a, b, parameters).unwrap(), x)
    }

    fn run(&self, scheme: Scheme, flat: &[f64]) -> (f64, ForwardGradient) {
        let (weights, tokens) = self.noise.split_at(RANK * (D_IN + D_OUT));
        let (a, b) = weights.split_at(RANK * D_IN);
        let (rank, output) = tokens.split_at(TOKENS * RANK);
        let g = &self.output_weight;
        let loss = |y: &[f64]| y.iter().zip(g).map(|(y, g)| y * g).sum();
        self.with(flat, |q, x| match scheme {
            Scheme::MomentMatched(cross) => {
                let pass = MomentMatchedPass::new(q, x, output, SCALING, cross).unwrap();
                (loss(pass.output()), pass.backward(g).unwrap())
            }
            Scheme::Nested => {
                let pass = NestedPass::new(q, x, NestedNoise { rank, output }, SCALING).unwrap();
                (loss(pass.output()), pass.backward(g).unwrap())
            }
            Scheme::Weight => {
                let pass = WeightPass::new(q, x, WeightNoise { a, b }, SCALING).unwrap();
                (loss(pass.output()), pass.backward(g).unwrap())
            }
        })
    }

    fn error(&self, scheme: Scheme) -> f64 {
        let written = flatten(self.run(scheme, &self.flat).1);
        gradient_error(&written, &self.flat, |flat| self.run(scheme, flat).0)
    }
}

#[derive(Debug, Clone, Copy)]
enum Scheme {
    MomentMatched(CrossTerm),
    Nested,
    Weight,
}

const SCHEMES: [Scheme; 4] = [
    Scheme::MomentMatched(CrossTerm::Exact),
    Scheme::MomentMatched(CrossTerm::Omitted),
    Scheme::Nested,
    Scheme::Weight,
];

pub(crate) fn flatten(gradient: ForwardGradient) -> Vec<f64> {
    let mut flat = gradient.posterior.a_mean;
    flat.extend(gradient.posterior.b_mean);
    match gradient.posterior.parameters {
        ParameterGradient::PerRank(values) => flat.extend(values),
        ParameterGradient::PerEntry(entries) => {
            flat.extend(entries.a);
            flat.extend(entries.b);
        }
    }
    flat.extend(gradient.x);
    flat
}

#[test]
fn every_scheme_of_every_family() {
    for family in VariationalFamily::ALL {
        for scheme in SCHEMES {
            let error = Problem::new(family, 7).error(scheme);
            assert!(error < ALLOWED, "{family}, {scheme:?}: {error}");
        }
    }
}

#[test]
fn the_checker_notices_a_wrong_gradient() {
    let problem = Problem::new(VariationalFamily::RankVariance, 7);
    // The gradient without the cross term, checked against the loss with it.
    let wrong = flatten(problem.run(Scheme::MomentMatched(CrossTerm::Omitted), &problem.flat).1);
    let right = Scheme::MomentMatched(CrossTerm::Exact);
    let error = gradient_error(&wrong, &problem.flat, |flat| problem.run(right, flat).0);
    assert!(error > 1e-3, "{error}");
    // One sign.
    let mut wrong = flatten(problem.run(right, &problem.flat).1);
    let last = wrong.len() - 1;
    wrong[last] = -wrong[last];
    assert!(gradient_error(&wrong, &problem.flat, |flat| problem.run(right, flat).0) > 1e-3);
}

#[test]
fn the_clamp_cuts_the_gradient_outside_and_passes_its_ends() {
    let start = RANK * (D_IN + D_OUT);
    for scheme in SCHEMES {
        let mut problem = Problem::new(VariationalFamily::RankVariance, 11);
        let at =
            [LOG_VARIANCE_MIN, LOG_VARIANCE_MAX, LOG_VARIANCE_MAX + 0.1, LOG_VARIANCE_MIN - 0.1];
        problem.flat[start..start + RANK].copy_from_slice(&at);
        let (_, gradient) = problem.run(scheme, &problem.flat);
        let by_l = gradient.posterior.parameters.per_rank().unwrap();
        assert!(by_l[0] != 0.0 && by_l[1] != 0.0, "{scheme:?}: {by_l:?}");
        assert_eq!(&by_l[2..], [0.0, 0.0], "{scheme:?}");
        // Just inside, the slope is the difference quotient; outside, both are 0.
        let inside = [LOG_VARIANCE_MIN + 0.1, LOG_VARIANCE_MAX - 0.1, 3.0, -21.0];
        problem.flat[start..start + RANK].copy_from_slice(&inside);
        assert!(problem.error(scheme) < ALLOWED, "{scheme:?}");
    }
}

#[test]
fn zero_means_have_finite_gradients() {
    for family in VariationalFamily::ALL {
        for scheme in SCHEMES {
            let mut problem = Problem::new(family, 3);
            problem.flat[..D_IN].fill(0.0);
            problem.flat[RANK * D_IN..RANK * D_IN + D_OUT].fill(0.0);
            let gradient = flatten(problem.run(scheme, &problem.flat).1);
            assert!(gradient.iter().all(|g| g.is_finite()), "{family}, {scheme:?}");
            // The square roots bend on the scale of their epsilon, 1e-4, so the quotient is coarser.
            let error = problem.error(scheme);
            assert!(error < 1e-3, "{family}, {scheme:?}: {error}");
        }
    }
}

#[test]
fn rank_zero_gives_exact_zeros() {
    let a = FactorView::new("a", &[], 0, D_IN).unwrap();
    let b = FactorView::new("b", &[], 0, D_OUT).unwrap();
    let q = Posterior::new(a, b, NoiseParameters::RankVariance(&[])).unwrap();
    let (x, ones) = ([1.0; 2 * D_IN], [1.0; 2 * D_OUT]);
    let matched = MomentMatchedPass::new(q, &x, &ones, SCALING, CrossTerm::Exact).unwrap();
    let nested = NestedNoise { rank: &[], output: &ones };
    let nested = NestedPass::new(q, &x, nested, SCALING).unwrap();
    let weight = WeightPass::new(q, &x, WeightNoise { a: &[], b: &[] }, SCALING).unwrap();
    for output in [matched.output(), nested.output(), weight.output()] {
        assert_eq!(output, [0.0; 2 * D_OUT]);
    }
    for gradient in [
        matched.backward(&ones).unwrap(),
        nested.backward(&ones).unwrap(),
        weight.backward(&ones).unwrap(),
    ] {
        assert_eq!(gradient.x, [0.0; 2 * D_IN]);
        assert!(gradient.posterior.a_mean.is_empty());
    }
}

#[test]
fn misfitting_noise_is_refused() {
    let problem = Problem::new(VariationalFamily::RankVariance, 5);
    problem.with(&problem.flat, |q, x| {
        let short = vec![0.0; TOKENS * D_OUT - 1];
        assert!(MomentMatchedPass::new(q, x, &short, 1.0, CrossTerm::Exact).is_err());
        let rank = vec![0.0; TOKENS * RANK];
        let noise = NestedNoise { rank: &rank, output: &short };
        assert!(NestedPass::new(q, x, noise, 1.0).is_err());
        let a = vec![0.0; RANK * D_IN];
        assert!(WeightPass::new(q, x, WeightNoise { a: &a, b: &a }, 1.0).is_err());
        let eps = vec![0.0; TOKENS * D_OUT];
        let pass = MomentMatchedPass::new(q, x, &eps, 1.0, CrossTerm::Exact).unwrap();
        assert!(pass.backward(&short).is_err());
    });
}
