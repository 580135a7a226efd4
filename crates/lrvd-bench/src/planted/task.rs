//! The network, the planted update, the rows.

use burn::tensor::{Device, Tensor, TensorData};
use lrvd_burn::train::{LabelledRows, Targets};
use lrvd_core::error::ParameterError;
use lrvd_core::noise::{Draws, NoiseKey, Stream};
use lrvd_core::numeric::dense::{times, times_transposed};
use lrvd_core::numeric::svd;

/// Width of the inputs.
pub(super) const INPUT: usize = 48;
/// Width of every layer's output.
pub(super) const HIDDEN: usize = 32;
/// Number of classes.
pub(super) const CLASSES: usize = 8;
/// Largest and smallest planted singular value.
const SINGULAR: (f64, f64) = (3.0, 1.5);
/// What multiplies the readout's unit-variance logits: about 0.9 nats are left to the truth.
const SHARPNESS: f64 = 4.0;

/// How the inputs are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InputLaw {
    /// `x ~ N(0, I)`.
    #[default]
    Independent,
    /// `x ~ N(0, Q·diag(λ)·Qᵀ)` with `λ_j ∝ 1/j` of mean 1 and a random orthogonal `Q`.
    Decaying,
}

/// Settings of a task.
///
/// | Field | Default | Range | Meaning |
/// |---|---|---|---|
/// | `rank` | 3 | 1 to 16 | rank of the planted update of every layer |
/// | `n` | 8000 | 64 to 10⁶ | training rows |
/// | `fresh` | 8000 | 2 to 10⁶ | rows that nobody learns from |
/// | `layers` | 1 | 1 or 2 | layers between input and readout |
/// | `inputs` | independent | | law of the inputs |
/// | `seed` | 1 | | of everything |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlantedConfig {
    /// Rank of the planted update of every layer.
    pub rank: usize,
    /// Training rows.
    pub n: usize,
    /// Rows that nobody learns from.
    pub fresh: usize,
    /// Layers between input and readout.
    pub layers: usize,
    /// Law of the inputs.
    pub inputs: InputLaw,
    /// Seed of network, update, rows and labels.
    pub seed: u64,
}

impl Default for PlantedConfig {
    fn default() -> Self {
        let inputs = InputLaw::Independent;
        Self { rank: 3, n: 8000, fresh: 8000, layers: 1, inputs, seed: 1 }
    }
}

impl PlantedConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`ParameterError::OutOfRange`] naming the field.
    pub fn check(&self) -> Result<(), ParameterError> {
        for (name, value, low, high) in [
            ("rank", self.rank, 1, super::recover::INITIAL_RANK),
            ("n", self.n, super::recover::BATCH, 1_000_000),
            ("fresh", self.fresh, 2, 1_000_000),
            ("layers", self.layers, 1, 2),
        ] {
            if !(low..=high).contains(&value) {
                let (value, low, high) = (value as f64, low as f64, high as f64);
                return Err(ParameterError::OutOfRange { name, value, low, high });
            }
        }
        Ok(())
    }
}

/// One layer: its frozen weight and what was planted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlantedLayer {
    /// Row-major `[HIDDEN, width]`.
    pub(super) frozen: Vec<f64>,
    /// The same plus the planted update.
    planted: Vec<f64>,
    /// Width of its input.
    pub(super) width: usize,
}

/// A frozen network, an update of known rank, and rows whose labels follow their sum.
///
/// # Formula
///
/// ```text
/// h_0 = x,   h_l = tanh((W_l + ΔW_l)·h_{l−1}),   y ~ softmax(4·H·h_L),   all of independent normal entries:
/// W_l [32, width] of variance 1/width,  H [8, 32] of variance 1/32,
/// ΔW_l = Σ_k ς_k·u_k·v_kᵀ with random orthonormal u, v and ς evenly from 3.0 to 1.5
/// ```
#[derive(Debug, Clone)]
pub struct PlantedTask {
    /// Its settings.
    pub config: PlantedConfig,
    /// Rows to learn from.
    pub train: LabelledRows<2>,
    /// Rows that nobody learns from.
    pub fresh: LabelledRows<2>,
    /// Mean negative log-likelihood of the truth on the fresh rows, nats.
    pub oracle: f64,
    pub(super) layers: Vec<PlantedLayer>,
    /// `4·H`, row-major `[CLASSES, HIDDEN]`.
    pub(super) readout: Vec<f64>,
}

impl PlantedTask {
    /// Makes the task that `config` names, on `device`.
    ///
    /// # Errors
    ///
    /// As [`PlantedConfig::check`].
    pub fn new(config: PlantedConfig, device: &Device) -> Result<Self, ParameterError> {
        config.check()?;
        let mut draws = Draws::new(NoiseKey::new(config.seed).on_stream(Stream::DATA));
        let readout = normals(&mut draws, CLASSES * HIDDEN, SHARPNESS / (HIDDEN as f64).sqrt());
        let layers: Vec<PlantedLayer> = (0..config.layers)
            .map(|l| plant(&mut draws, if l == 0 { INPUT } else { HIDDEN }, config.rank))
            .collect();
        let mixing = match config.inputs {
            InputLaw::Independent => None,
            InputLaw::Decaying => Some(mixing(&mut draws)),
        };
        let mut rows = |n: usize| {
            let x = normals(&mut draws, n * INPUT, 1.0);
            let x = mixing.as_ref().map_or(x.clone(), |m| times(&x, m, n, INPUT, INPUT));
            let (one_hot, nll) = label(&mut draws, &layers, &readout, &x, n);
            let tensor =
                |values, width| Tensor::<2>::from_data(TensorData::new(values, [n, width]), device);
            let targets = Targets::Classes(tensor(one_hot, CLASSES));
            (LabelledRows::new(tensor(x, INPUT), targets), nll)
        };
        let (train, _) = rows(config.n);
        let (fresh, oracle) = rows(config.fresh);
        Ok(Self { config, train, fresh, oracle, layers, readout })
    }

    /// The planted singular values, largest first.
    pub fn singular_values(&self) -> Vec<f64> {
        planted_values(self.config.rank)
    }
}

/// `n` values evenly over the range, both ends included.
fn planted_values(n: usize) -> Vec<f64> {
    let step = if n > 1 { (SINGULAR.0 - SINGULAR.1) / (n - 1) as f64 } else { 0.0 };
    (0..n).map(|k| SINGULAR.0 - step * k as f64).collect()
}

fn normals(draws: &mut Draws, n: usize, scale: f64) -> Vec<f64> {
    (0..n).map(|_| scale * draws.normal()).collect()
}

/// `n` orthonormal rows of length `width`.
fn orthonormal(draws: &mut Draws, n: usize, width: usize) -> Vec<f64> {
    svd(&normals(draws, n * width, 1.0), n, width).right
}

fn plant(draws: &mut Draws, width: usize, rank: usize) -> PlantedLayer {
    let frozen = normals(draws, HIDDEN * width, 1.0 / (width as f64).sqrt());
    let (u, v) = (orthonormal(draws, rank, HIDDEN), orthonormal(draws, rank, width));
    let mut planted = frozen.clone();
    for (k, value) in planted_values(rank).into_iter().enumerate() {
        for (o, row) in planted.chunks_mut(width).enumerate() {
            for (weight, v) in row.iter_mut().zip(&v[k * width..]) {
                *weight += value * u[k * HIDDEN + o] * v;
            }
        }
    }
    PlantedLayer { frozen, planted, width }
}

/// `diag(√λ)·Q`, for rows from the right.
fn mixing(draws: &mut Draws) -> Vec<f64> {
    let mut mixing = orthonormal(draws, INPUT, INPUT);
    let total: f64 = (1..=INPUT).map(|j| 1.0 / j as f64).sum();
    for (j, row) in mixing.chunks_mut(INPUT).enumerate() {
        let variance = INPUT as f64 / total / (j + 1) as f64;
        for value in row.iter_mut() {
            *value *= variance.sqrt();
        }
    }
    mixing
}

/// One-hot labels `[n, CLASSES]` and their mean negative log-likelihood under the truth.
fn label(
    draws: &mut Draws,
    layers: &[PlantedLayer],
    readout: &[f64],
    x: &[f64],
    n: usize,
) -> (Vec<f64>, f64) {
    let mut hidden = x.to_vec();
    for layer in layers {
        hidden = times_transposed(&hidden, &layer.planted, n, layer.width, HIDDEN);
        for value in &mut hidden {
            *value = value.tanh();
        }
    }
    let logits = times_transposed(&hidden, readout, n, HIDDEN, CLASSES);
    let (mut one_hot, mut nll) = (vec![0.0; n * CLASSES], 0.0);
    for (logits, label) in logits.chunks(CLASSES).zip(one_hot.chunks_mut(CLASSES)) {
        let total: f64 = logits.iter().map(|z| z.exp()).sum();
        let (u, mut sum) = (draws.uniform() * total, 0.0);
        let reached = |z: &f64| {
            sum += z.exp();
            u < sum
        };
        let class = logits.iter().position(reached).unwrap_or(CLASSES - 1);
        label[class] = 1.0;
        nll += total.ln() - logits[class];
    }
    (one_hot, nll / n as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_update_has_the_planted_singular_values() {
        let mut draws = Draws::new(NoiseKey::new(3));
        for (width, rank) in [(INPUT, 3), (HIDDEN, 6), (INPUT, 1)] {
            let layer = plant(&mut draws, width, rank);
            let update: Vec<f64> =
                layer.planted.iter().zip(&layer.frozen).map(|(p, f)| p - f).collect();
            let found = svd(&update, HIDDEN, width).values;
            let wanted = planted_values(rank);
            assert_eq!((wanted[0], wanted.len()), (3.0, rank));
            assert!(rank == 1 || (wanted[rank - 1] - 1.5).abs() < 1e-12);
            for (k, value) in found.iter().enumerate() {
                let wanted = wanted.get(k).copied().unwrap_or(0.0);
                assert!((value - wanted).abs() < 1e-9, "{found:?}");
            }
        }
    }

    #[test]
    fn the_truth_is_calibrated_and_leaves_something_open() {
        let config = PlantedConfig { n: 64, fresh: 4000, ..PlantedConfig::default() };
        let task = PlantedTask::new(config, &Device::flex()).unwrap();
        // ln 8 = 2.08 nats are a guess.
        assert!((0.7..1.2).contains(&task.oracle), "{}", task.oracle);
        let other = PlantedTask::new(PlantedConfig { seed: 2, ..config }, &Device::flex()).unwrap();
        assert_ne!(task.oracle, other.oracle);
    }

    #[test]
    fn decaying_inputs_have_mean_variance_one() {
        let mixing = mixing(&mut Draws::new(NoiseKey::new(1)));
        let trace: f64 = mixing.iter().map(|value| value * value).sum();
        assert!((trace / INPUT as f64 - 1.0).abs() < 1e-9, "{trace}");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let good = PlantedConfig::default();
        for (name, wrong) in [
            ("rank", PlantedConfig { rank: 17, ..good }),
            ("n", PlantedConfig { n: 63, ..good }),
            ("layers", PlantedConfig { layers: 3, ..good }),
            ("fresh", PlantedConfig { fresh: 1, ..good }),
        ] {
            assert!(wrong.check().unwrap_err().to_string().contains(name));
        }
    }
}
