//! C-LoRA: a Gaussian matrix between the factors that depends on the input.

use burn::module::{Module, Param};
use burn::tensor::module::linear;
use burn::tensor::{Tensor, activation};
use lrvd_core::noise::NoiseKey;

use crate::adapter::divergence::widened;
use crate::adapter::initialisation::Initialiser;
use crate::adapter::noise::{AdapterStream, LayerNoise};
use crate::adapter::schema::{Axis, ParameterSchema, Visit};
use crate::ops::standard_normal;
use crate::sampling::Scheme;

const W1: ParameterSchema =
    ParameterSchema::mean("lora_context_w1", &[Axis::Rank, Axis::Hidden], 4);
const B1: ParameterSchema = ParameterSchema::mean("lora_context_b1", &[Axis::Hidden], 5);
const W2: ParameterSchema =
    ParameterSchema::mean("lora_context_w2", &[Axis::Hidden, Axis::RankMatrices], 6);
const B2: ParameterSchema = ParameterSchema::mean("lora_context_b2", &[Axis::RankMatrices], 7);
pub(super) const SCHEMAS: &[&ParameterSchema] = &[&W1, &B1, &W2, &B2];

/// A small network that reads mean and standard deviation of a rank matrix off every token.
///
/// # Formula
///
/// ```text
/// z = x·A,   o = relu(z·w1 + b1)·w2 + b2                          [2·rank²]
/// mean = o[..rank²],   std = logistic(o[rank²..])²                [rank, rank], row-major
/// u_i = Σ_j (mean_ij + std_ij·eps_ij)·z_j,   update(x) = c·u·B
/// ```
///
/// `eps` is drawn once for a batch, once for a sequence, or anew for every token
/// ([`Scheme::PerToken`], as the published code does).
///
/// # References
///
/// Rahmati et al. 2025, arXiv:2505.17773.
#[derive(Module, Debug)]
pub struct ContextualGaussian {
    /// Weight of the first layer, `[rank, hidden]`; `lora_context_w1` in a checkpoint, transposed.
    pub w1: Param<Tensor<2>>,
    /// Bias of the first layer, `[hidden]`; `lora_context_b1`.
    pub b1: Param<Tensor<1>>,
    /// Weight of the second layer, `[hidden, 2·rank²]`; `lora_context_w2`, transposed.
    pub w2: Param<Tensor<2>>,
    /// Bias of the second layer, `[2·rank²]`; `lora_context_b2`.
    pub b2: Param<Tensor<1>>,
}

/// The noise of one pass.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one lives on the stack for the time of a product")]
pub(in crate::adapter) enum ContextNoise {
    /// The mean of the matrix.
    None,
    /// `[1 | sequences, 1, rank, rank]`, for several draws with the sequences of all of them.
    Drawn(Tensor<4>),
    /// Drawn for every token of a use.
    PerToken(NoiseKey),
}

impl ContextualGaussian {
    /// The noise of one pass for all uses of the layer.
    pub(in crate::adapter) fn draw(&self, noise: &LayerNoise<'_>) -> ContextNoise {
        if noise.scheme == Scheme::PerToken {
            return ContextNoise::PerToken(noise.key().on_stream(AdapterStream::CONTEXT_TOKEN));
        }
        let [rank, _] = self.w1.val().dims();
        let eps = noise.normal(&self.b1.val(), [rank, rank], AdapterStream::CONTEXT);
        ContextNoise::Drawn(noise.for_rows(eps).unsqueeze_dim(1))
    }

    /// `u` for `z [n, tokens, rank]`, and the divergence per token if a prior is given.
    pub(in crate::adapter) fn mix(
        &self,
        z: Tensor<3>,
        noise: &ContextNoise,
        use_index: u32,
        prior_std: Option<f64>,
    ) -> (Tensor<3>, Option<Tensor<2>>) {
        let [n, tokens, rank] = z.dims();
        let hidden = activation::relu(linear(z.clone(), self.w1.val(), Some(self.b1.val())));
        let out = linear(hidden, self.w2.val(), Some(self.b2.val()));
        let half =
            |start| out.clone().narrow(2, start, rank * rank).reshape([n, tokens, rank, rank]);
        let mean: Tensor<4> = half(0);
        let raw_std = || half(rank * rank);
        let divergence = prior_std.map(|std| divergence(mean.clone(), raw_std(), std));
        let eps = match noise {
            ContextNoise::None => None,
            ContextNoise::Drawn(eps) => Some(eps.clone()),
            ContextNoise::PerToken(key) => {
                Some(standard_normal(&mean, mean.dims(), key.with_use(use_index)))
            }
        };
        let matrix = match eps {
            Some(eps) => mean + activation::sigmoid(raw_std()).square() * eps,
            None => mean,
        };
        // Products and sums rather than a product of thousands of matrices of a few entries each.
        let mixed = (matrix * z.unsqueeze_dim::<4>(2)).sum_dim(3).squeeze_dim(3);
        (mixed, divergence)
    }

    /// Units of the hidden layer.
    pub(super) fn hidden(&self) -> usize {
        self.w1.val().dims()[1]
    }

    /// Both layers `U(±1/sqrt(inputs of the layer))`.
    pub(super) fn fresh(init: &Initialiser) -> Self {
        let [first, second] = [init.sizes.rank, init.sizes.hidden].map(Initialiser::bound_of);
        Self {
            w1: init.uniform(&W1, first),
            b1: init.uniform(&B1, first),
            w2: init.uniform(&W2, second),
            b2: init.uniform(&B2, second),
        }
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        visit(&W1, &mut self.w1);
        visit(&B1, &mut self.b1);
        visit(&W2, &mut self.w2);
        visit(&B2, &mut self.b2);
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
