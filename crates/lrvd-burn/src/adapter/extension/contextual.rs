//! A Gaussian matrix between the factors that depends on the input: C-LoRA.

use burn::module::{Module, Param};
use burn::tensor::module::linear;
use burn::tensor::{Tensor, activation};
use lrvd_core::noise::NoiseKey;

use crate::adapter::posterior::select;
use crate::adapter::streams::AdapterStream;
use crate::adapter::wide::widened;
use crate::ops::standard_normal;
use crate::sampling::DrawPer;

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
/// The definition: `lrvd_core::baselines::ContextPass`. Rahmati et al. 2025, arXiv:2505.17773.
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
    /// `[1 | sequences, 1, rank, rank]`.
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
    pub(in crate::adapter) fn draw(
        &self,
        per: DrawPer,
        sequences: usize,
        key: NoiseKey,
    ) -> ContextNoise {
        let draws = match per {
            DrawPer::Token => {
                return ContextNoise::PerToken(key.on_stream(AdapterStream::CONTEXT_TOKEN));
            }
            DrawPer::Sequence => sequences,
            DrawPer::Batch => 1,
        };
        let (like, rank) = (self.b1.val(), self.rank());
        let key = key.on_stream(AdapterStream::CONTEXT);
        ContextNoise::Drawn(standard_normal(&like, [draws, 1, rank, rank], key))
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

    /// Keeps the rank directions `kept`, in order: as if A's other columns and B's other rows were 0.
    pub(super) fn select(self, kept: &[usize]) -> Self {
        let rank = self.rank();
        let entries: Vec<usize> = (0..2)
            .flat_map(|half| kept.iter().map(move |i| (half, i)))
            .flat_map(|(half, i)| kept.iter().map(move |j| (half * rank + i) * rank + j))
            .collect();
        Self {
            w1: select(self.w1, 0, kept),
            b1: self.b1,
            w2: select(self.w2, 1, &entries),
            b2: select(self.b2, 0, &entries),
        }
    }
}

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
