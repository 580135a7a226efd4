//! Every written backward against central differences, and a check that the check can fail.

use lrvd_core::baselines::{
    ContextAdapter, ContextGradient, ContextNetwork, ContextNoise, ContextPass, ElementGaussian,
    ElementReduction, FlipoutAdapter, FlipoutNoise, FlipoutPass, KlDirection, ScalaBlAdapter,
    ScalaBlPass, ScaleMixture, StdMap, scala_bl_kl,
};
use lrvd_core::factor::FactorView;

use crate::support::{TestRng, dot, gradient_error, split};

const RANK: usize = 3;
const D_IN: usize = 5;
const D_OUT: usize = 4;
const TOKENS: usize = 2;
const HIDDEN: usize = 7;
const SCALING: f64 = 1.75;
const PRIOR: f64 = 0.2;
/// What central differences resolve here; written errors show as 1e-2 and more.
const ALLOWED: f64 = 2e-8;

#[test]
fn element_divergences() {
    let mut rng = TestRng::new(3);
    let eps = rng.normals(4);
    let prior = ScaleMixture::new(0.25, 1.0, 0.1).unwrap();
    let at = [0.1, -0.4, 0.03, 0.7, -1.2, 0.6, -0.8, 1.1];
    for map in StdMap::ALL {
        for reduction in [ElementReduction::Sum, ElementReduction::Mean] {
            let kl = |flat: &[f64], sampled: bool| {
                let q = ElementGaussian::new(&flat[..4], &flat[4..], map).unwrap();
                if sampled {
                    q.sampled_kl(&prior, &eps, reduction).unwrap()
                } else {
                    q.kl(PRIOR, reduction).unwrap()
                }
            };
            for sampled in [false, true] {
                let found = kl(&at, sampled);
                let written = [found.by_mean, found.by_rho].concat();
                let error = gradient_error(&written, &at, |flat| kl(flat, sampled).value);
                assert!(error < ALLOWED, "{map:?} {reduction:?} {sampled}: {error}");
            }
        }
        let by_weight = rng.normals(4);
        let q = ElementGaussian::new(&at[..4], &at[4..], map).unwrap();
        let found = q.pull_back(&by_weight, &eps).unwrap();
        let error = gradient_error(&[found.by_mean, found.by_rho].concat(), &at, |flat| {
            let q = ElementGaussian::new(&flat[..4], &flat[4..], map).unwrap();
            dot(&q.sample(&eps).unwrap(), &by_weight)
        });
        assert!(error < ALLOWED, "{map:?}: {error}");
    }
}

#[test]
fn flipout() {
    let lengths = [TOKENS * D_IN, RANK * D_IN, RANK * D_IN, RANK * D_OUT];
    let mut rng = TestRng::new(5);
    let at = rng.normals(lengths.iter().sum());
    let (eps, grad_output) = (rng.normals(RANK * D_IN), rng.normals(TOKENS * D_OUT));
    let (input_sign, rank_sign) = (rng.signs(TOKENS * D_IN), rng.signs(TOKENS * RANK));
    let noise = FlipoutNoise { eps: &eps, input_sign: &input_sign, rank_sign: &rank_sign };
    for map in StdMap::ALL {
        let run = |flat: &[f64]| {
            let [x, a_mean, a_rho, b] = split(flat, lengths);
            let a = FactorView::new("a", a_mean, RANK, D_IN).unwrap();
            let b = FactorView::new("b", b, RANK, D_OUT).unwrap();
            let adapter = FlipoutAdapter::new(a, a_rho, map, b, SCALING).unwrap();
            let pass = FlipoutPass::new(adapter, x, noise).unwrap();
            let g = pass.backward(&grad_output).unwrap();
            (dot(pass.output(), &grad_output), [g.x, g.a_mean, g.a_rho, g.b].concat())
        };
        let error = gradient_error(&run(&at).1, &at, |flat| run(flat).0);
        assert!(error < ALLOWED, "{map:?}: {error}");
        // One wrong sign shows.
        let mut wrong = run(&at).1;
        wrong[lengths[0]] = -wrong[lengths[0]];
        assert!(gradient_error(&wrong, &at, |flat| run(flat).0) > 1e-3);
    }
}

#[test]
fn scala_bl() {
    let lengths = [TOKENS * D_IN, RANK * D_IN, RANK, RANK, RANK * D_OUT];
    let mut rng = TestRng::new(7);
    let at = rng.normals(lengths.iter().sum());
    let (eps, grad_output) = (rng.normals(RANK), rng.normals(TOKENS * D_OUT));
    for noise in [Some(eps.as_slice()), None] {
        let run = |flat: &[f64]| {
            let [x, v_h, log_mean, log_std_dev, b] = split(flat, lengths);
            let v_h = FactorView::new("v_h", v_h, RANK, D_IN).unwrap();
            let b = FactorView::new("b", b, RANK, D_OUT).unwrap();
            let adapter = ScalaBlAdapter::new(v_h, log_mean, log_std_dev, b, SCALING).unwrap();
            let pass = ScalaBlPass::new(adapter, x, noise).unwrap();
            let g = pass.backward(&grad_output).unwrap();
            let gradient = [g.x, g.v_h, g.log_mean, g.log_std_dev, g.b].concat();
            (dot(pass.output(), &grad_output), gradient)
        };
        let error = gradient_error(&run(&at).1, &at, |flat| run(flat).0);
        assert!(error < ALLOWED, "{error}");
    }
    let at = [0.3, -0.7, -1.5, 0.0, -2.0, 0.4];
    for direction in [KlDirection::PosteriorFromPrior, KlDirection::PriorFromPosterior] {
        let kl = |flat: &[f64]| scala_bl_kl(&flat[..3], &flat[3..], direction).unwrap();
        let written = [kl(&at).by_log_mean, kl(&at).by_log_std_dev].concat();
        let error = gradient_error(&written, &at, |flat| kl(flat).total());
        assert!(error < ALLOWED, "{direction:?}: {error}");
    }
}

/// `⟨grad_output, out⟩ + Σ kl_weight·KL` and its gradient.
fn context_loss(
    flat: &[f64],
    noise: Option<ContextNoise<'_>>,
    grad_output: &[f64],
    kl_weight: &[f64],
) -> (f64, ContextGradient) {
    let [x, a, b, w1, b1, w2, b2] = split(flat, CONTEXT_LENGTHS);
    let network = ContextNetwork {
        w1: FactorView::new("w1", w1, HIDDEN, RANK).unwrap(),
        b1,
        w2: FactorView::new("w2", w2, 2 * RANK * RANK, HIDDEN).unwrap(),
        b2,
    };
    let a = FactorView::new("a", a, RANK, D_IN).unwrap();
    let b = FactorView::new("b", b, RANK, D_OUT).unwrap();
    let adapter = ContextAdapter::new(a, b, network, SCALING).unwrap();
    let pass = ContextPass::new(adapter, x, noise).unwrap();
    let kl = pass.kl_per_token(PRIOR).unwrap();
    let loss = dot(pass.output(), grad_output) + dot(&kl, kl_weight);
    (loss, pass.backward(grad_output, kl_weight, PRIOR).unwrap())
}

const CONTEXT_LENGTHS: [usize; 7] = [
    TOKENS * D_IN,
    RANK * D_IN,
    RANK * D_OUT,
    HIDDEN * RANK,
    HIDDEN,
    2 * RANK * RANK * HIDDEN,
    2 * RANK * RANK,
];

#[test]
fn c_lora() {
    let mut rng = TestRng::new(11);
    let at: Vec<f64> = rng.normals(CONTEXT_LENGTHS.iter().sum()).iter().map(|v| 0.4 * v).collect();
    let eps = rng.normals(TOKENS * RANK * RANK);
    let (input_sign, output_sign) = (rng.signs(TOKENS * RANK), rng.signs(TOKENS * RANK));
    let grad_output = rng.normals(TOKENS * D_OUT);
    let noise = ContextNoise { eps: &eps, input_sign: &input_sign, output_sign: &output_sign };
    for (noise, kl_weight) in
        [(Some(noise), [0.03, 0.01]), (Some(noise), [0.0, 0.0]), (None, [0.02, 0.0])]
    {
        let run = |flat: &[f64]| context_loss(flat, noise, &grad_output, &kl_weight);
        let g = run(&at).1;
        let written = [g.x, g.a, g.b, g.w1, g.b1, g.w2, g.b2].concat();
        let error = gradient_error(&written, &at, |flat| run(flat).0);
        assert!(error < ALLOWED, "{kl_weight:?}: {error}");
    }
}

#[test]
fn c_lora_underflowing_scales_keep_a_finite_divergence() {
    let mut rng = TestRng::new(13);
    let mut at = rng.normals(CONTEXT_LENGTHS.iter().sum());
    // logistic(−800)² underflows; its logarithm is −1600.
    let last = at.len() - 1;
    at[last] = -800.0;
    let (loss, gradient) = context_loss(&at, None, &[0.0; TOKENS * D_OUT], &[1.0; TOKENS]);
    assert!(loss.is_finite() && loss > 2.0 * 1500.0, "{loss}");
    // d KL/d o = −2·logistic(−o) = −2 per token.
    let by_bias = gradient.b2[2 * RANK * RANK - 1];
    assert!((by_bias + 2.0 * TOKENS as f64).abs() < 1e-12, "{by_bias}");
}
