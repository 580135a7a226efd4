//! The linearised predictive: Gaussian logits, and probabilities from them.

use burn::tensor::Tensor;
use lrvd_burn::host::values;
use lrvd_burn::train::{evaluation_batches, restore_order};
use lrvd_core::baselines::laplace::{
    LogitCovariance, laplace_bridge, monte_carlo_softmax, probit_softmax,
};
use lrvd_core::noise::{NoiseKey, fill_normal_f64};

use super::factors::Curvatures;
use super::watch::{Seen, Watch};
use crate::error::Burn;
use crate::method::Inputs;
use crate::settings::{LaplacePredictive as Predictive, LaplaceSettings as Settings};

/// Mixed into the run's seed, so that the random numbers here are used nowhere else.
pub(super) const SALT: u64 = 0x4c41_504c_4143_4521;

#[derive(Clone, Debug)]
pub(super) struct GaussianLogits {
    pub(super) mean: Vec<f64>,
    pub(super) covariances: Vec<LogitCovariance>,
}

/// The logits of every example of `inputs`, in order, with a covariance for each of `precisions`.
///
/// # Formula
///
/// ```text
/// f ~ N(f*(x), Σ_W J_W·(S ⊗ A + δ·I)⁻¹·J_Wᵀ)        J_W[c] = Σ_rows g_c·aᵀ
/// ```
pub(super) fn gaussian_logits(
    watch: &Watch,
    curvatures: &Curvatures,
    inputs: &Inputs<'_>,
    precisions: &[f64],
) -> Burn<Vec<GaussianLogits>> {
    let (labels, examples) = (watch.labels(), inputs.examples);
    let sizes: Vec<usize> = (0..examples.len()).map(|i| examples.size(i)).collect();
    let size = (inputs.batch_size / labels).max(1);
    let batches = evaluation_batches(&sizes, size)?;
    let mut all = Vec::with_capacity(examples.len());
    for indices in &batches {
        let batch = examples.input(indices)?;
        let seen = watch.gradients(&batch, labels, |_| one_hot(labels, indices.len()));
        let mut examples: Vec<GaussianLogits> = seen
            .logits
            .chunks_exact(labels)
            .map(|mean| GaussianLogits {
                mean: mean.to_vec(),
                covariances: vec![LogitCovariance::new(labels); precisions.len()],
            })
            .collect();
        for (module, place) in curvatures.places.iter().enumerate() {
            let (Some(place), Some(jacobians)) = (place, jacobians(&seen, module, labels)) else {
                continue;
            };
            for (&at, jacobian) in place.iter().zip(jacobians) {
                add(&mut examples, &jacobian, labels, |sum, jacobian, which| {
                    Ok(sum.add(&curvatures.blocks[at], jacobian, precisions[which])?)
                })?;
            }
        }
        all.extend(examples);
    }
    restore_order(&batches, all)
}

/// Calls `share` for every example and precision with the example's `[labels, …]` part of
/// `jacobian [labels, n, …]`.
fn add(
    examples: &mut [GaussianLogits],
    jacobian: &[f64],
    labels: usize,
    share: impl Fn(&mut LogitCovariance, &[f64], usize) -> Burn<()>,
) -> Burn<()> {
    let n = examples.len();
    let width = jacobian.len() / (labels * n).max(1);
    let mut part = Vec::with_capacity(labels * width);
    for (i, example) in examples.iter_mut().enumerate() {
        part.clear();
        for c in 0..labels {
            part.extend_from_slice(&jacobian[(c * n + i) * width..][..width]);
        }
        for (which, sum) in example.covariances.iter_mut().enumerate() {
            share(sum, &part, which)?;
        }
    }
    Ok(())
}

/// Seeds that pick one logit each, `[labels, n, labels]`.
pub(super) fn one_hot(labels: usize, n: usize) -> Vec<f64> {
    let mut seeds = vec![0.0; labels * n * labels];
    for (at, row) in seeds.chunks_exact_mut(labels).enumerate() {
        row[at / n] = 1.0;
    }
    seeds
}

/// Gradients of every logit of every example by A `[labels, n, rank, d_input]` and by B
/// `[labels, n, d_output, rank]` of one layer, over all its uses; `None` if it was not used.
pub(super) fn jacobians(seen: &Seen, module: usize, labels: usize) -> Option<[Vec<f64>; 2]> {
    let product = |gradient: &Tensor<3>, input: &Tensor<3>| {
        gradient.clone().swap_dims(1, 2).matmul(input.clone().repeat_dim(0, labels))
    };
    let uses = seen.uses.iter().filter(|used| used.module == module);
    let parts = uses.map(|used| {
        let a = product(&used.rank_gradient, &used.input);
        [a, product(&used.output_gradient, &used.rank_input)]
    });
    parts.reduce(|[a, b], [c, d]| [a + c, b + d]).map(|both| both.map(values))
}

/// Probabilities `[n, labels]` under the precision number `which`.
pub(super) fn probabilities(
    examples: &[GaussianLogits],
    which: usize,
    settings: &Settings,
    seed: u64,
) -> Burn<Vec<f64>> {
    let mut all = Vec::new();
    let mut normals = Vec::new();
    for (i, example) in examples.iter().enumerate() {
        let (mean, covariance) = (&example.mean, example.covariances[which].values());
        let answer: Result<Vec<f64>, lrvd_core::Error> = match settings.predictive {
            Predictive::Probit => probit_softmax(mean, covariance),
            Predictive::Bridge => laplace_bridge(mean, covariance),
            Predictive::MonteCarlo => {
                normals.resize(settings.samples * mean.len(), 0.0);
                let key = NoiseKey::new(seed ^ SALT).at_step(i as u32);
                fill_normal_f64(key, 0, &mut normals);
                monte_carlo_softmax(mean, covariance, &normals)
            }
        };
        all.extend(answer?);
    }
    Ok(all)
}
