//! The operators as nodes of the autodiff graph, over any backend that has them.
//!
//! The gradient methods keep their composite bodies, which Burn differentiates by itself: only a
//! second derivative would ever reach them.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use lrvd_core::noise::NoiseKey;

use super::adapted_linear::OutputNoise;
use super::backend::{LrvdBackend, Maybe};
use super::disentangled_attention::{AttentionLayout, PositionTerm};
use super::rank_two_noise::Noise;
use super::{
    adapted_linear, causal_attention, disentangled_attention, dropout, gated_silu, gaussian_draw,
    gelu, kl_log_uniform, layer_norm, rank_two_noise, rms_norm, row_energy, standard_normal,
};

impl<B: LrvdBackend, C: CheckpointStrategy> LrvdBackend for Autodiff<B, C> {
    fn fused_adapted_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Maybe<Self>,
        a: Maybe<Self>,
        b: Maybe<Self>,
        scale: f64,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (bias, a, b) = (bias.into_option(), a.into_option(), b.into_option());
        adapted_linear::backward::forward::<B, C>(x, weight, bias, a, b, scale)
    }

    fn fused_moment_matched_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Maybe<Self>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: OutputNoise,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        adapted_linear::moment_matched::forward::<B, C>(x, weight, bias, [a, b, variance], noise)
    }

    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::backward::forward::<B, C>(x)
    }

    fn fused_gated_silu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        gated_silu::backward::forward::<B, C>(gate, up)
    }

    fn fused_causal_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        causal_attention::backward::forward::<B, C>(query, key, value, mask, scale)
    }

    fn fused_disentangled_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        keys: PositionTerm<Self>,
        queries: PositionTerm<Self>,
        mask: Maybe<Self>,
        layout: AttentionLayout,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let terms = [keys.into_parts(), queries.into_parts()];
        let mask = mask.into_option();
        disentangled_attention::backward::forward::<B, C>([query, key, value], terms, mask, layout)
    }

    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        layer_norm::backward::forward::<B, C>(x, gamma, beta, eps)
    }

    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        rms_norm::backward::forward::<B, C>(x, gamma, eps)
    }

    fn fused_dropout(x: FloatTensor<Self>, rate: f64, key: NoiseKey) -> FloatTensor<Self> {
        dropout::backward::forward::<B, C>(x, rate, key)
    }

    fn fused_standard_normal(
        like: FloatTensor<Self>,
        shape: Shape,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        standard_normal::backward::forward::<B, C>(like, shape, key)
    }

    fn fused_gaussian_draw(
        mean: FloatTensor<Self>,
        std: FloatTensor<Self>,
        count: usize,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        gaussian_draw::backward::forward::<B, C>(mean, std, count, key)
    }

    fn fused_row_energy(x: FloatTensor<Self>, weight: Maybe<Self>) -> FloatTensor<Self> {
        row_energy::backward::forward::<B, C>(x, weight.into_option())
    }

    fn fused_rank_two_noise(
        mean: FloatTensor<Self>,
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        rank_two_noise::backward::forward::<B, C>(mean, q, w, t, noise)
    }

    fn fused_gaussian_noise(
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        rank_two_noise::backward::gaussian_forward::<B, C>(mean, variance, noise)
    }

    fn fused_kl_log_uniform(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        rank_axis: usize,
    ) -> FloatTensor<Self> {
        kl_log_uniform::backward::forward::<B, C>(mean, log_variance, rank_axis)
    }
}

/// Hands gradients on to those parents that want one.
pub(super) fn register<B: LrvdBackend, const N: usize>(
    grads: &mut Gradients,
    parents: [Option<NodeId>; N],
    gradients: impl IntoIterator<Item = Option<FloatTensor<B>>>,
) {
    for (parent, gradient) in parents.into_iter().zip(gradients) {
        if let (Some(parent), Some(gradient)) = (parent, gradient) {
            grads.register::<B>(parent, gradient);
        }
    }
}
