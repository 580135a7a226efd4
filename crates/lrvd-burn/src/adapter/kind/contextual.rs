//! C-LoRA: a Gaussian matrix between the factors that depends on the input.

use burn::module::{Module, Param};
use burn::tensor::module::linear;
use burn::tensor::{Tensor, activation};
use lrvd_core::noise::NoiseKey;

use crate::adapter::initialisation::Initialiser;
use crate::adapter::layer_noise::LayerNoise;
use crate::adapter::schema::{Axis, ParameterSchema, parameters};
use crate::adapter::streams::AdapterStream;
use crate::adapter::wide::widened;
use crate::ops::standard_normal;
use crate::parameters::Group;
use crate::sampling::DrawPer;

const fn mean(
    name: &'static str,
    transposed: bool,
    axes: &'static [Axis],
    initial_use: u32,
) -> ParameterSchema {
    ParameterSchema { name, group: Group::AdapterMean, transposed, axes, initial_use }
}

/// Weight of the first layer.
pub(super) const W1: ParameterSchema =
    mean("lora_context_w1", true, &[Axis::Rank, Axis::Hidden], 4);
/// Bias of the first layer.
pub(super) const B1: ParameterSchema = mean("lora_context_b1", false, &[Axis::Hidden], 5);
/// Weight of the second layer.
pub(super) const W2: ParameterSchema =
    mean("lora_context_w2", true, &[Axis::Hidden, Axis::RankMatrices], 6);
/// Bias of the second layer.
pub(super) const B2: ParameterSchema = mean("lora_context_b2", false, &[Axis::RankMatrices], 7);

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
/// ([`DrawPer::Token`], as the published code does).
///
/// # Shapes
///
/// | Name | Shape | In a checkpoint |
/// |---|---|---|
/// | `w1`, `b1` | `[rank, hidden]`, `[hidden]` | `lora_context_w1`, transposed; `lora_context_b1` |
/// | `w2`, `b2` | `[hidden, 2·rank²]`, `[2·rank²]` | `lora_context_w2`, transposed; `lora_context_b2` |
///
/// # References
///
/// The divergence: `lrvd_core::baselines::context_kl`. Rahmati et al. 2025, arXiv:2505.17773.
#[derive(Module, Debug)]
pub struct ContextualGaussian {
    /// Weight of the first layer.
    pub w1: Param<Tensor<2>>,
    /// Bias of the first layer.
    pub b1: Param<Tensor<1>>,
    /// Weight of the second layer.
    pub w2: Param<Tensor<2>>,
    /// Bias of the second layer.
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

/// Mean and the standard deviation before its map, both `[n, tokens, rank, rank]`.
struct Law {
    mean: Tensor<4>,
    raw_std: Tensor<4>,
}

impl ContextualGaussian {
    /// Rank of the adapter that the network fits.
    pub fn rank(&self) -> usize {
        self.w1.val().dims()[0]
    }

    /// The noise of one pass for all uses of the layer.
    pub(in crate::adapter) fn draw(&self, noise: &LayerNoise<'_>) -> ContextNoise {
        if noise.per == DrawPer::Token {
            return ContextNoise::PerToken(noise.key().on_stream(AdapterStream::CONTEXT_TOKEN));
        }
        let rank = self.rank();
        let eps: Tensor<3> = noise.normal(&self.b1.val(), [rank, rank], AdapterStream::CONTEXT);
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
        let law = self.law(z.clone());
        let divergence = prior_std.map(|prior_std| law.divergence(prior_std));
        let Law { mean, raw_std } = law;
        let eps = match noise {
            ContextNoise::None => return (applied(mean, z), divergence),
            ContextNoise::Drawn(eps) => eps.clone(),
            ContextNoise::PerToken(key) => {
                standard_normal(&mean, mean.dims(), key.with_use(use_index))
            }
        };
        let std = activation::sigmoid(raw_std).square();
        (applied(mean + std * eps, z), divergence)
    }

    fn law(&self, z: Tensor<3>) -> Law {
        let [n, tokens, rank] = z.dims();
        let hidden = activation::relu(linear(z, self.w1.val(), Some(self.b1.val())));
        let out = linear(hidden, self.w2.val(), Some(self.b2.val()));
        let half =
            |start| out.clone().narrow(2, start, rank * rank).reshape([n, tokens, rank, rank]);
        Law { mean: half(0), raw_std: half(rank * rank) }
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
}

parameters!(ContextualGaussian { w1: W1, b1: B1, w2: W2, b2: B2 });

impl Law {
    /// `KL(q ‖ N(0, prior_std²))` of every token, `[n, tokens]`.
    ///
    /// ```text
    /// Σ_ij ln(prior/std) + (std² + mean²)/(2·prior²) − ½,     ln std = 2·ln logistic(o)
    /// ```
    fn divergence(&self, prior_std: f64) -> Tensor<2> {
        let dtype = self.mean.dtype();
        let precision = (prior_std * prior_std).recip();
        let log_std = activation::log_sigmoid(widened(self.raw_std.clone())).mul_scalar(2.0);
        let second = widened(self.mean.clone()).square() + log_std.clone().mul_scalar(2.0).exp();
        let terms = second.mul_scalar(0.5 * precision) - log_std;
        let terms = terms.add_scalar(prior_std.ln() - 0.5).sum_dim(3).sum_dim(2);
        terms.squeeze_dim::<3>(3).squeeze_dim::<2>(2).cast(dtype)
    }
}

/// `Σ_j matrix_ij·z_j` of every token.
///
/// Products and sums rather than a product of thousands of matrices of a few entries each.
fn applied(matrix: Tensor<4>, z: Tensor<3>) -> Tensor<3> {
    (matrix * z.unsqueeze_dim::<4>(2)).sum_dim(3).squeeze_dim(3)
}
