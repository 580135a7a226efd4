//! C-LoRA: a random matrix between the factors whose law a small network reads off the input.
//!
//! ```text
//! z = x·A,   o = relu(z·w1 + b1)·w2 + b2                          [2·rank²]
//! mean = o[..rank²],   std = logistic(o[rank²..])²                [rank, rank], row-major
//! u_i = Σ_j (mean_ij + std_ij·eps_ij)·z_j,   update(x) = c·u·B
//! ```
//!
//! `eps` is drawn once for a batch, once for a sequence, or anew for every token, as the published code does.
//! Objective: mean negative log-likelihood with a draw for every token plus
//!
//! ```text
//! π_i · kl_weight / modules · Σ_modules Σ_tokens KL(q(E | x) ‖ N(0, 0.2²))        kl_weight = 1e-6
//! ```
//!
//! over the tokens of the batch, padding included as published, with BLoB's `π_i`. `AdamW` moves A, B and the head; the network
//! that reads the law of `E` off the input follows the gradient of both by plain descent at 0.01, unclipped. Draws have noise for
//! every token. Parameters: `rank·(d_input + d_output) + hidden·(rank + 1) + 2·rank²·(hidden + 1)` per layer. Source: Rahmati et
//! al. 2025, arXiv:2505.17773, without its factors of the likelihood per task and its choice of the checkpoint.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Param;
use burn::tensor::module::linear;
use burn::tensor::{Tensor, activation};
use lrvd_burn::adapter::{
    AdapterConfig, Axis, Extension, LayerNoise, OpLayer, OpParameter, ParameterSchema,
    PreparedUpdate, UpdateOp, initial_uniform, widened,
};
use lrvd_burn::model::NamedModule;
use lrvd_burn::objective::Objective;
use lrvd_burn::ops::standard_normal;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::Scheme;
use lrvd_burn::train::{
    Method, Prediction, RankCause, Setup, StepContext, StepState, TrainConfig, UpdatePhase,
};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;

use super::setup::{KlCycle, SecondOptimizer, plain_lora};
use super::{Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{self, Config};

const W1: ParameterSchema = ParameterSchema::mean("lora_context_w1", &[Axis::Rank, Axis::Other], 4);
const B1: ParameterSchema = ParameterSchema::mean("lora_context_b1", &[Axis::Other], 5);
const W2: ParameterSchema =
    ParameterSchema::mean("lora_context_w2", &[Axis::Other, Axis::Other], 6);
const B2: ParameterSchema = ParameterSchema::mean("lora_context_b2", &[Axis::Other], 7);

/// Stream of the normals of a matrix, `[1 | sequences, rank, rank]`.
pub const CONTEXT: u32 = 69;
/// Stream of the normals of a matrix for each token, `[n, tokens, rank, rank]`.
pub const CONTEXT_TOKEN: u32 = 70;

/// Divergence of one use of an adapter, one number per token, in the graph.
#[derive(Clone, Debug)]
pub struct ContextDivergence {
    /// Identity of the layer in the noise streams.
    pub module: u32,
    /// `KL(q ‖ p)` in nats, `[n, tokens]`. Padded positions are in it.
    pub per_token: Tensor<2>,
}

/// Divergences from `N(0, prior_std²)` since the last call of [`Divergences::take`]; clones share them.
///
/// They hold their graphs until they are taken.
#[derive(Clone, Debug)]
pub struct Divergences {
    prior_std: f64,
    seen: Arc<Mutex<Vec<ContextDivergence>>>,
}

impl Divergences {
    pub fn from_prior(prior_std: f64) -> Self {
        Self { prior_std, seen: Arc::default() }
    }

    /// In the order of the forward pass.
    pub fn take(&self) -> Vec<ContextDivergence> {
        // Plain data: a panic elsewhere leaves it usable.
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, divergence: ContextDivergence) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }
}

/// Network `w1`, `b1`, `w2`, `b2` that reads mean and standard deviation of a rank matrix off every token.
#[derive(Clone, Debug)]
pub struct ContextMatrix {
    /// Width of the hidden layer.
    pub hidden: usize,
    /// Receives the divergence of every use.
    pub divergences: Option<Divergences>,
}

impl UpdateOp for ContextMatrix {
    /// Both layers start at `U(±1/sqrt(inputs of the layer))`.
    fn start(
        &self,
        a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        key: NoiseKey,
    ) -> Burn<Vec<OpParameter>> {
        let [_, rank] = a.val().dims();
        let hidden = self.hidden;
        let uniform = |schema: &ParameterSchema, inputs: usize, len: usize| {
            let bound = 1.0 / (inputs as f64).sqrt();
            initial_uniform(key, schema.initial_use, len, |u| (2.0 * u - 1.0) * bound as f32)
        };
        let matrices = 2 * rank * rank;
        let [w1, b1] = [(&W1, rank * hidden), (&B1, hidden)].map(|(p, len)| uniform(p, rank, len));
        let second = [(&W2, hidden * matrices), (&B2, matrices)];
        let [w2, b2] = second.map(|(p, len)| uniform(p, hidden, len));
        Ok(vec![
            OpParameter::trainable(&W1, a, w1, [rank, hidden]),
            OpParameter::trainable(&B1, a, b1, [hidden]),
            OpParameter::trainable(&W2, a, w2, [hidden, matrices]),
            OpParameter::trainable(&B2, a, b2, [matrices]),
        ])
    }

    fn parameter_count(&self, rank: usize, _: usize, _: usize) -> usize {
        self.hidden * (rank + 1) + 2 * rank * rank * (self.hidden + 1)
    }

    fn is_random(&self) -> bool {
        true
    }

    fn draws_by(&self, scheme: Scheme) -> bool {
        scheme.draws_weights()
    }

    fn is_row_independent(&self) -> bool {
        false
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let [_, rank] = layer.a.val().dims();
        let normals = |noise: LayerNoise| {
            let eps = noise.normal(&layer.extension.parameter::<1>(1), [rank, rank], CONTEXT);
            noise.for_rows(eps).unsqueeze_dim::<4>(1)
        };
        let per_token = layer.noise.filter(|noise| noise.scheme == Scheme::PerToken);
        let drawn = layer.noise.filter(|noise| noise.scheme != Scheme::PerToken).map(normals);
        Box::new(move |x, use_index| {
            let z = linear(x, layer.a.val(), None);
            let [n, tokens, rank] = z.dims();
            let w1 = layer.extension.parameter(0);
            let b1 = layer.extension.parameter(1);
            let w2 = layer.extension.parameter(2);
            let b2 = layer.extension.parameter(3);
            let hidden = activation::relu(linear(z.clone(), w1, Some(b1)));
            let out = linear(hidden, w2, Some(b2));
            let half = |start| -> Tensor<4> {
                out.clone().narrow(2, start, rank * rank).reshape([n, tokens, rank, rank])
            };
            let mean = half(0);
            let raw_std = || half(rank * rank);
            if let Some(divergences) = &self.divergences {
                let per_token = divergence(mean.clone(), raw_std(), divergences.prior_std);
                divergences.record(ContextDivergence { module: layer.module, per_token });
            }
            let eps = match per_token {
                None => drawn.clone(),
                Some(noise) => {
                    let key = noise.key().on_stream(CONTEXT_TOKEN).with_use(use_index);
                    Some(standard_normal(&mean, mean.dims(), key))
                }
            };
            let matrix = match eps {
                Some(eps) => mean + activation::sigmoid(raw_std()).square() * eps,
                None => mean,
            };
            // Products and sums rather than a product of thousands of matrices of a few entries each.
            let u: Tensor<3> = (matrix * z.unsqueeze_dim::<4>(2)).sum_dim(3).squeeze_dim(3);
            linear(u.mul_scalar(layer.scaling), layer.b.val(), None)
        })
    }
}

/// `KL(q ‖ N(0, prior_std²))` of every token, `[n, tokens]`.
///
/// ```text
/// Σ_ij ln(prior/std) + (std² + mean²)/(2·prior²) − ½,     ln std = 2·ln logistic(raw_std)
/// ```
fn divergence(mean: Tensor<4>, raw_std: Tensor<4>, prior_std: f64) -> Tensor<2> {
    let dtype = mean.dtype();
    let precision = (prior_std * prior_std).recip();
    let log_std = activation::log_sigmoid(widened(raw_std)).mul_scalar(2.0);
    let second = widened(mean).square() + log_std.clone().mul_scalar(2.0).exp();
    let terms = second.mul_scalar(0.5 * precision) - log_std;
    let terms = terms.add_scalar(prior_std.ln() - 0.5).sum_dim(3).sum_dim(2);
    terms.squeeze_dim::<3>(3).squeeze_dim::<2>(2).cast(dtype)
}

const C_LORA_STEPS: usize = 2000;

#[derive(Clone, Debug)]
pub(super) struct CLora {
    adapter: AdapterConfig,
    kl_weight: f64,
    cycle: KlCycle,
    second: SecondOptimizer,
    hidden: usize,
    /// Divergence of every use of an adapter in training.
    divergences: Divergences,
}

impl CLora {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let settings::CLoraSettings { hidden, prior_std, kl_weight, gamma, learning_rate } =
            config.methods.c_lora;
        let adapter = plain_lora(config, request);
        let cycle = KlCycle::new(config, gamma, C_LORA_STEPS);
        let second = SecondOptimizer::new(learning_rate, |p| p.name.contains(".lora_context_"));
        let divergences = Divergences::from_prior(prior_std);
        Ok(Self { adapter, kl_weight, cycle, second, hidden, divergences })
    }
}

impl Method<AutoModel> for CLora {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        let divergences = Some(self.divergences.clone());
        let op = Arc::new(ContextMatrix { hidden: self.hidden, divergences });
        // Noise for every token.
        let setup = Setup::new(self.adapter, config);
        Ok(Setup { scheme: Scheme::PerToken, op: Some(op), ..setup })
    }

    fn objective(
        &self,
        _model: &AutoModel,
        step: &StepContext,
        likelihood: Objective,
    ) -> Burn<Objective> {
        let seen = self.divergences.take();
        let modules: BTreeSet<u32> = seen.iter().map(|seen| seen.module).collect();
        let rows = |seen: &ContextDivergence| seen.per_token.dims()[0];
        // A step of several micro-batches requests it once, after the first, for all of them.
        let rows = seen.iter().map(rows).max().unwrap_or(1).max(1);
        let share = step.examples as f64 / rows as f64;
        let kl = seen.into_iter().map(|seen| seen.per_token.sum()).reduce(|a, b| a + b);
        let weight = self.cycle.weight(step.step, step.n_train)?;
        let weight = weight * self.kl_weight * share / modules.len().max(1) as f64;
        Ok(Objective { kl, kl_weight: weight, ..likelihood })
    }

    fn update(
        &mut self,
        when: UpdatePhase,
        step: StepState<'_, AutoModel>,
    ) -> Burn<Option<RankCause>> {
        match when {
            UpdatePhase::BeforeUpdate => {
                // Divergences of further micro-batches keep their graphs until they are taken.
                drop(self.divergences.take());
                self.second.before_update(step);
            }
            UpdatePhase::AfterUpdate => {
                self.second.descend(step.model, step.rate_factor, &NamedGradients::default());
            }
        }
        Ok(None)
    }

    /// Without divergences.
    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        let mut model = model.clone();
        let op = Arc::new(ContextMatrix { hidden: self.hidden, divergences: None });
        model.visit_layers_mut(&mut |_, layer| {
            layer.edit(|adapter| {
                if let Some(Extension::Op(extension)) = &mut adapter.extension {
                    extension.op = op.clone();
                }
            });
        });
        inputs.predict_by(Scheme::PerToken, &model)
    }
}
