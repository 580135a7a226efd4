//! The operators a backend may replace by a fused implementation.

#![allow(clippy::type_complexity, reason = "the macro reads result types word by word")]

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType, backend_extension};
use burn::tensor::Shape;
use lrvd_core::noise::NoiseKey;

use super::adapted_linear::OutputNoise;
use super::disentangled_attention::{AttentionLayout, PositionTerm};
use super::rank_two_noise::Noise;
use super::{
    adapted_linear, causal_attention, disentangled_attention, dropout, gated_silu, gaussian_draw,
    gelu, kl_log_uniform, layer_norm, rank_two_noise, rms_norm, row_energy, standard_normal,
};

/// A tensor argument that may be left out.
#[derive(ExtensionType)]
pub enum Maybe<B: Backend> {
    /// The argument.
    Given(FloatTensor<B>),
    /// No argument.
    Absent,
}

impl<B: Backend> Maybe<B> {
    /// The tensor, if there is one.
    pub fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Self::Given(tensor) => Some(tensor),
            Self::Absent => None,
        }
    }
}

impl<B: Backend> From<Option<FloatTensor<B>>> for Maybe<B> {
    fn from(tensor: Option<FloatTensor<B>>) -> Self {
        tensor.map_or(Self::Absent, Self::Given)
    }
}

/// Fused operators and their gradients on backend tensors.
///
/// The default bodies are the composite forms. Shapes have been checked by the public functions of
/// the operators' modules, which also define them; nothing else should call these methods.
/// Methods ending in `_grad` map the gradient of the output to those of the inputs; `needs_grad` says,
/// in the order of the results, which of them are needed.
#[backend_extension(Autodiff, Flex: cfg(feature = "flex"), Cube: cfg(feature = "cube"))]
pub trait LrvdBackend: Backend {
    /// See [`adapted_linear()`](fn@super::adapted_linear); with factors also `s`, for the gradient.
    fn fused_adapted_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Maybe<Self>,
        #[extension_type] a: Maybe<Self>,
        #[extension_type] b: Maybe<Self>,
        scale: f64,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (bias, a, b) = (bias.into_option(), a.into_option(), b.into_option());
        adapted_linear::composite::forward::<Self>(x, weight, bias, a, b, scale)
    }

    /// Gradients for `x`, `weight`, `bias`, `a` and `b`; those of `x` and of `x·A` are added to what another
    /// path has accumulated.
    #[allow(
        clippy::too_many_arguments,
        reason = "the operands of the forward pass and what it saved"
    )]
    fn fused_adapted_linear_grad(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] a: Maybe<Self>,
        #[extension_type] b: Maybe<Self>,
        #[extension_type] hidden: Maybe<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
        needs_grad: [bool; 5],
        #[extension_type] grad_x_acc: Maybe<Self>,
        #[extension_type] grad_h_acc: Maybe<Self>,
    ) -> (
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
    ) {
        let (a, b, hidden) = (a.into_option(), b.into_option(), hidden.into_option());
        let acc = [grad_x_acc.into_option(), grad_h_acc.into_option()];
        adapted_linear::composite::backward::<Self>(
            x, weight, a, b, hidden, grad, scale, needs_grad, acc,
        )
    }

    /// See [`moment_matched_linear()`](fn@super::moment_matched_linear).
    #[allow(clippy::too_many_arguments, reason = "the operands of the layer")]
    fn fused_moment_matched_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        #[extension_type] bias: Maybe<Self>,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: OutputNoise,
    ) -> FloatTensor<Self> {
        let bias = bias.into_option();
        adapted_linear::moment_matched::run::<Self>(x, weight, bias, [a, b, variance], noise).0
    }

    /// See [`gelu()`](fn@super::gelu).
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::composite::forward::<Self>(x)
    }

    /// Gradient for `x`.
    fn fused_gelu_grad(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::composite::backward::<Self>(x, grad)
    }

    /// See [`gated_silu()`](fn@super::gated_silu).
    fn fused_gated_silu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        gated_silu::composite::forward::<Self>(gate, up)
    }

    /// Gradients for `gate` and `up`.
    fn fused_gated_silu_grad(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        gated_silu::composite::backward::<Self>(gate, up, grad, needs_grad)
    }

    /// See [`causal_attention()`](fn@super::causal_attention).
    fn fused_causal_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        causal_attention::composite::forward::<Self>(query, key, value, mask, scale)
    }

    /// Gradients for `query`, `key` and `value`.
    fn fused_causal_attention_grad(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        let arguments = [query, key, value, mask];
        causal_attention::composite::backward::<Self>(arguments, grad, scale, needs_grad)
    }

    /// See [`disentangled_attention()`](fn@super::disentangled_attention); also the probabilities before
    /// dropout, for the gradient.
    #[allow(clippy::too_many_arguments, reason = "operands, position terms and layout")]
    fn fused_disentangled_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] keys: PositionTerm<Self>,
        #[extension_type] queries: PositionTerm<Self>,
        #[extension_type] mask: Maybe<Self>,
        layout: AttentionLayout,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let terms = [keys.into_parts(), queries.into_parts()];
        let mask = mask.into_option();
        disentangled_attention::composite::forward::<Self>(
            [query, key, value],
            terms,
            mask,
            &layout,
        )
    }

    /// Gradients for query, key and value, and for shared rows, `hidden` and `up` of either term.
    #[allow(clippy::too_many_arguments, reason = "what the forward pass had and saved")]
    fn fused_disentangled_attention_grad(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] keys: PositionTerm<Self>,
        #[extension_type] queries: PositionTerm<Self>,
        probability: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        layout: AttentionLayout,
        needs_grad: [bool; 9],
    ) -> Vec<Option<FloatTensor<Self>>> {
        let terms = [keys.into_parts(), queries.into_parts()];
        disentangled_attention::composite::backward::<Self>(
            [query, key, value],
            terms,
            probability,
            grad,
            &layout,
            needs_grad,
        )
    }

    /// See [`layer_norm()`](fn@super::layer_norm).
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        layer_norm::composite::forward::<Self>(x, gamma, beta, eps)
    }

    /// Gradients for `x`, `gamma` and `beta`.
    fn fused_layer_norm_grad(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        layer_norm::composite::backward::<Self>(x, gamma, grad, eps, needs_grad)
    }

    /// See [`rms_norm()`](fn@super::rms_norm).
    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        rms_norm::composite::forward::<Self>(x, gamma, eps)
    }

    /// Gradients for `x` and `gamma`.
    fn fused_rms_norm_grad(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        rms_norm::composite::backward::<Self>(x, gamma, grad, eps, needs_grad)
    }

    /// See [`dropout()`](fn@super::dropout). It is its own gradient.
    fn fused_dropout(x: FloatTensor<Self>, rate: f64, key: NoiseKey) -> FloatTensor<Self> {
        dropout::composite::forward::<Self>(x, rate, key)
    }

    /// See [`standard_normal()`](fn@super::standard_normal).
    fn fused_standard_normal(
        like: FloatTensor<Self>,
        shape: Shape,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        standard_normal::composite::forward::<Self>(like, shape, key)
    }

    /// See [`gaussian_draw()`](fn@super::gaussian_draw).
    fn fused_gaussian_draw(
        mean: FloatTensor<Self>,
        std: FloatTensor<Self>,
        count: usize,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        gaussian_draw::composite::forward::<Self>(mean, std, count, key)
    }

    /// Gradients for `mean` and `std`.
    fn fused_gaussian_draw_grad(
        std: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        key: NoiseKey,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        gaussian_draw::composite::backward::<Self>(std, grad, key, needs_grad)
    }

    /// See [`row_energy()`](fn@super::row_energy).
    fn fused_row_energy(
        x: FloatTensor<Self>,
        #[extension_type] weight: Maybe<Self>,
    ) -> FloatTensor<Self> {
        row_energy::composite::forward::<Self>(x, weight.into_option())
    }

    /// Gradients for `x` and `weight`.
    fn fused_row_energy_grad(
        x: FloatTensor<Self>,
        #[extension_type] weight: Maybe<Self>,
        grad: FloatTensor<Self>,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        row_energy::composite::backward::<Self>(x, weight.into_option(), grad, needs_grad)
    }

    /// See [`add_rank_two_noise`](super::add_rank_two_noise).
    fn fused_rank_two_noise(
        mean: FloatTensor<Self>,
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        rank_two_noise::composite::forward::<Self>(mean, q, w, t, noise)
    }

    /// Gradients for `q`, `w` and `t`; that for the mean is `grad` itself.
    fn fused_rank_two_noise_grad(
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        noise: Noise,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        rank_two_noise::composite::backward::<Self>(q, w, t, grad, noise, needs_grad)
    }

    /// See [`add_gaussian_noise`](super::add_gaussian_noise).
    fn fused_gaussian_noise(
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        rank_two_noise::composite::gaussian_forward::<Self>(mean, variance, noise)
    }

    /// Gradient for `variance`; that for the mean is `grad` itself.
    fn fused_gaussian_noise_grad(
        variance: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        rank_two_noise::composite::gaussian_backward::<Self>(variance, grad, noise)
    }

    /// See [`kl_log_uniform()`](fn@super::kl_log_uniform).
    fn fused_kl_log_uniform(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        rank_axis: usize,
    ) -> FloatTensor<Self> {
        kl_log_uniform::composite::forward::<Self>(mean, log_variance, rank_axis)
    }

    /// Gradients for `mean` and `log_variance`.
    fn fused_kl_log_uniform_grad(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        rank_axis: usize,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        kl_log_uniform::composite::backward::<Self>(mean, log_variance, grad, rank_axis, needs_grad)
    }
}
