//! The laws of flipout, exactly: every sign on a small case, every direction of the noise.

use lrvd_core::baselines::{FlipoutAdapter, FlipoutNoise, FlipoutPass, StdMap};
use lrvd_core::factor::FactorView;
use lrvd_core::forward::{WeightNoise, WeightPass};
use lrvd_core::posterior::{NoiseParameters, Posterior};

use crate::support::{TestRng, assert_close};

const RANK: usize = 2;
const D_IN: usize = 3;
const D_OUT: usize = 4;
const TOKENS: usize = 2;
const SCALING: f64 = 1.75;

struct Case {
    a: Vec<f64>,
    rho: Vec<f64>,
    b: Vec<f64>,
    x: Vec<f64>,
    eps: Vec<f64>,
}

impl Case {
    fn new() -> Self {
        let mut rng = TestRng::new(17);
        Self {
            a: rng.normals(RANK * D_IN),
            // Within the clamp of the posterior it is compared to.
            rho: rng.normals(RANK * D_IN).iter().map(|v| 0.5 * v).collect(),
            b: rng.normals(RANK * D_OUT),
            x: rng.normals(TOKENS * D_IN),
            eps: rng.normals(RANK * D_IN),
        }
    }

    fn output(&self, eps: &[f64], input_sign: &[f64], rank_sign: &[f64]) -> Vec<f64> {
        let a = FactorView::new("a", &self.a, RANK, D_IN).unwrap();
        let b = FactorView::new("b", &self.b, RANK, D_OUT).unwrap();
        let adapter = FlipoutAdapter::new(a, &self.rho, StdMap::Square, b, SCALING).unwrap();
        let noise = FlipoutNoise { eps, input_sign, rank_sign };
        FlipoutPass::new(adapter, &self.x, noise).unwrap().output().to_vec()
    }

    fn mean(&self) -> Vec<f64> {
        self.output(&[0.0; RANK * D_IN], &[1.0; TOKENS * D_IN], &[1.0; TOKENS * RANK])
    }

    /// Covariance of all outputs over `eps` at fixed signs; exact, for the pass is linear in `eps`.
    fn covariance(&self, input_sign: &[f64], rank_sign: &[f64]) -> Vec<f64> {
        let (n, mean) = (TOKENS * D_OUT, self.mean());
        let mut covariance = vec![0.0; n * n];
        for direction in 0..RANK * D_IN {
            let mut eps = [0.0; RANK * D_IN];
            eps[direction] = 1.0;
            let moved = self.output(&eps, input_sign, rank_sign);
            let noise: Vec<f64> = moved.iter().zip(&mean).map(|(y, m)| y - m).collect();
            for (i, v) in noise.iter().enumerate() {
                for (j, w) in noise.iter().enumerate() {
                    covariance[i * n + j] += v * w;
                }
            }
        }
        covariance
    }
}

/// The signs that the bits of `pattern` stand for.
fn signs<const N: usize>(pattern: u32) -> [f64; N] {
    std::array::from_fn(|i| if pattern >> i & 1 == 1 { -1.0 } else { 1.0 })
}

/// All signs of all tokens: inputs and ranks.
fn all_signs() -> impl Iterator<Item = ([f64; TOKENS * D_IN], [f64; TOKENS * RANK])> {
    (0..1u32 << (TOKENS * (D_IN + RANK)))
        .map(|pattern| (signs(pattern), signs(pattern >> (TOKENS * D_IN))))
}

#[test]
fn the_mean_over_signs_is_the_mean_pass_for_every_draw() {
    let case = Case::new();
    let mut sum = vec![0.0; TOKENS * D_OUT];
    for (input_sign, rank_sign) in all_signs() {
        for (sum, y) in sum.iter_mut().zip(case.output(&case.eps, &input_sign, &rank_sign)) {
            *sum += y / f64::from(1 << (TOKENS * (D_IN + RANK)));
        }
    }
    assert_close("mean", &sum, &case.mean(), 1e-13);
}

#[test]
fn each_token_has_the_covariance_of_weight_sampling_and_tokens_are_uncorrelated() {
    let case = Case::new();
    let n = TOKENS * D_OUT;
    let weight_sampling = case.covariance(&[1.0; TOKENS * D_IN], &[1.0; TOKENS * RANK]);
    let of_token = |covariance: &[f64], row: usize, col: usize| -> Vec<f64> {
        (0..D_OUT)
            .flat_map(|i| (0..D_OUT).map(move |j| (row * D_OUT + i) * n + col * D_OUT + j))
            .map(|at| covariance[at])
            .collect()
    };
    let mut mean_cross = vec![0.0; D_OUT * D_OUT];
    for (input_sign, rank_sign) in all_signs() {
        let covariance = case.covariance(&input_sign, &rank_sign);
        for token in 0..TOKENS {
            let wanted = of_token(&weight_sampling, token, token);
            assert_close("token", &of_token(&covariance, token, token), &wanted, 1e-13);
        }
        for (sum, v) in mean_cross.iter_mut().zip(of_token(&covariance, 0, 1)) {
            *sum += v;
        }
    }
    let shared = of_token(&weight_sampling, 0, 1);
    let largest = |values: &[f64]| values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    assert!(largest(&shared) > 1e-3);
    assert!(largest(&mean_cross) < 1e-9 * largest(&shared), "{mean_cross:?}");
    // The covariance of one token by formula: scaling²·Bᵀ diag(Σ_j sigma²·x²) B.
    let variance: Vec<f64> = (0..RANK)
        .map(|k| (0..D_IN).map(|j| (case.rho[k * D_IN + j].powi(2) * case.x[j]).powi(2)).sum())
        .collect();
    let wanted: Vec<f64> = (0..D_OUT * D_OUT)
        .map(|at| {
            let (i, j) = (at / D_OUT, at % D_OUT);
            let b = |k: usize, o: usize| case.b[k * D_OUT + o];
            (0..RANK).map(|k| SCALING.powi(2) * variance[k] * b(k, i) * b(k, j)).sum()
        })
        .collect();
    assert_close("formula", &of_token(&weight_sampling, 0, 0), &wanted, 1e-13);
}

#[test]
fn positive_signs_draw_the_weights() {
    let case = Case::new();
    let log_variance: Vec<f64> = case.rho.iter().map(|g| (g * g).powi(2).ln()).collect();
    let b_log_variance = [-20.0; RANK * D_OUT];
    let posterior = Posterior::new(
        FactorView::new("a", &case.a, RANK, D_IN).unwrap(),
        FactorView::new("b", &case.b, RANK, D_OUT).unwrap(),
        NoiseParameters::ElementVariance { a: &log_variance, b: &b_log_variance },
    )
    .unwrap();
    let noise = WeightNoise { a: &case.eps, b: &[0.0; RANK * D_OUT] };
    let wanted = WeightPass::new(posterior, &case.x, noise, SCALING).unwrap();
    let found = case.output(&case.eps, &[1.0; TOKENS * D_IN], &[1.0; TOKENS * RANK]);
    assert_close("weights", &found, wanted.output(), 1e-13);
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = Case::new();
    let a = FactorView::new("a", &case.a, RANK, D_IN).unwrap();
    let b = FactorView::new("b", &case.b, RANK, D_OUT).unwrap();
    let taller = FactorView::new("b", &case.b, D_OUT, RANK).unwrap();
    let new = |rho, b| FlipoutAdapter::new(a, rho, StdMap::Softplus, b, SCALING);
    assert!(new(&case.rho[1..], b).is_err() && new(&case.rho, taller).is_err());
    let adapter = new(&case.rho, b).unwrap();
    let (input, rank) = ([1.0; TOKENS * D_IN], [1.0; TOKENS * RANK]);
    let good = FlipoutNoise { eps: &case.eps, input_sign: &input, rank_sign: &rank };
    assert!(FlipoutPass::new(adapter, &case.x[1..], good).is_err());
    for noise in [
        FlipoutNoise { eps: &case.eps[1..], ..good },
        FlipoutNoise { input_sign: &input[1..], ..good },
        FlipoutNoise { rank_sign: &rank[1..], ..good },
        FlipoutNoise { rank_sign: &[1.0, 1.0, 0.0, 1.0], ..good },
        FlipoutNoise { input_sign: &[0.5; TOKENS * D_IN], ..good },
    ] {
        assert!(FlipoutPass::new(adapter, &case.x, noise).is_err());
    }
    let pass = FlipoutPass::new(adapter, &case.x, good).unwrap();
    assert!(pass.backward(&[0.0; TOKENS * D_OUT - 1]).is_err());
    assert_eq!(pass.backward(&[0.0; TOKENS * D_OUT]).unwrap().b, [0.0; RANK * D_OUT]);
}
