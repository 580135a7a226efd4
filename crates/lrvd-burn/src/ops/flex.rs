//! Which implementation runs on Burn's CPU backend: slices for `f32` and `f64`, else the composite.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use lrvd_core::noise::NoiseKey;

use super::backend::{LrvdBackend, Maybe};
use super::disentangled_attention::{AttentionLayout, PositionTerm};
use super::rank_two_noise::Noise;
use super::{
    adapted_linear, causal_attention, disentangled_attention, dropout, gated_silu, gaussian_draw,
    gelu, kl_log_uniform, layer_norm, rank_two_noise, rms_norm, row_energy, standard_normal,
};

/// `$op::cpu::$name` for the element type of `$tensor`, or `$op::composite::$name` on Flex.
macro_rules! by_element {
    ($tensor:expr, $op:ident :: $name:ident ( $($argument:expr),* )) => {
        match $tensor.dtype() {
            DType::F32 => $op::cpu::$name::<f32>($($argument),*),
            DType::F64 => $op::cpu::$name::<f64>($($argument),*),
            _ => $op::composite::$name::<Self>($($argument),*),
        }
    };
}

impl LrvdBackend for Flex {
    fn fused_adapted_linear(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Maybe<Self>,
        a: Maybe<Self>,
        b: Maybe<Self>,
        scale: f64,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (bias, a, b) = (bias.into_option(), a.into_option(), b.into_option());
        if x.dtype() == DType::F32 {
            adapted_linear::cpu::forward(x, weight, bias, a, b, scale)
        } else {
            adapted_linear::composite::forward::<Self>(x, weight, bias, a, b, scale)
        }
    }

    fn fused_adapted_linear_grad(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        a: Maybe<Self>,
        b: Maybe<Self>,
        hidden: Maybe<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
        needs_grad: [bool; 5],
        grad_x_acc: Maybe<Self>,
        grad_h_acc: Maybe<Self>,
    ) -> (
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
        Option<FloatTensor<Self>>,
    ) {
        let (a, b, hidden) = (a.into_option(), b.into_option(), hidden.into_option());
        let acc = [grad_x_acc.into_option(), grad_h_acc.into_option()];
        if x.dtype() == DType::F32 {
            adapted_linear::cpu::backward(x, weight, a, b, hidden, grad, scale, needs_grad, acc)
        } else {
            adapted_linear::composite::backward::<Self>(
                x, weight, a, b, hidden, grad, scale, needs_grad, acc,
            )
        }
    }

    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        by_element!(x, gelu::forward(x))
    }

    fn fused_gelu_grad(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        by_element!(x, gelu::backward(x, grad))
    }

    fn fused_gated_silu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        by_element!(gate, gated_silu::forward(gate, up))
    }

    fn fused_gated_silu_grad(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(gate, gated_silu::backward(gate, up, grad, needs_grad))
    }

    fn fused_causal_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        let run = match query.dtype() {
            DType::F32 => causal_attention::cpu::forward,
            _ => causal_attention::composite::forward::<Self>,
        };
        run(query, key, value, mask, scale)
    }

    fn fused_causal_attention_grad(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        mask: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        let run = match grad.dtype() {
            DType::F32 => causal_attention::cpu::backward,
            _ => causal_attention::composite::backward::<Self>,
        };
        run([query, key, value, mask], grad, scale, needs_grad)
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
        let run = match query.dtype() {
            DType::F32 => disentangled_attention::cpu::forward,
            _ => disentangled_attention::composite::forward::<Self>,
        };
        let terms = [keys.into_parts(), queries.into_parts()];
        run([query, key, value], terms, mask.into_option(), &layout)
    }

    fn fused_disentangled_attention_grad(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        keys: PositionTerm<Self>,
        queries: PositionTerm<Self>,
        probability: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        layout: AttentionLayout,
        needs_grad: [bool; 9],
    ) -> Vec<Option<FloatTensor<Self>>> {
        let run = match query.dtype() {
            DType::F32 => disentangled_attention::cpu::backward,
            _ => disentangled_attention::composite::backward::<Self>,
        };
        let terms = [keys.into_parts(), queries.into_parts()];
        run([query, key, value], terms, probability, grad, &layout, needs_grad)
    }

    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        by_element!(x, layer_norm::forward(x, gamma, beta, eps))
    }

    fn fused_layer_norm_grad(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(x, layer_norm::backward(x, gamma, grad, eps, needs_grad))
    }

    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        eps: f64,
    ) -> FloatTensor<Self> {
        by_element!(x, rms_norm::forward(x, gamma, eps))
    }

    fn fused_rms_norm_grad(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        eps: f64,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(x, rms_norm::backward(x, gamma, grad, eps, needs_grad))
    }

    fn fused_dropout(x: FloatTensor<Self>, rate: f64, key: NoiseKey) -> FloatTensor<Self> {
        by_element!(x, dropout::forward(x, rate, key))
    }

    fn fused_standard_normal(
        like: FloatTensor<Self>,
        shape: Shape,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        by_element!(like, standard_normal::forward(like, shape, key))
    }

    fn fused_gaussian_draw(
        mean: FloatTensor<Self>,
        std: FloatTensor<Self>,
        count: usize,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        by_element!(mean, gaussian_draw::forward(mean, std, count, key))
    }

    fn fused_gaussian_draw_grad(
        std: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        key: NoiseKey,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(grad, gaussian_draw::backward(std, grad, key, needs_grad))
    }

    fn fused_row_energy(x: FloatTensor<Self>, weight: Maybe<Self>) -> FloatTensor<Self> {
        by_element!(x, row_energy::forward(x, weight.into_option()))
    }

    fn fused_row_energy_grad(
        x: FloatTensor<Self>,
        weight: Maybe<Self>,
        grad: FloatTensor<Self>,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(grad, row_energy::backward(x, weight.into_option(), grad, needs_grad))
    }

    fn fused_rank_two_noise(
        mean: FloatTensor<Self>,
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        by_element!(mean, rank_two_noise::forward(mean, q, w, t, noise))
    }

    fn fused_rank_two_noise_grad(
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        noise: Noise,
        needs_grad: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(grad, rank_two_noise::backward(q, w, t, grad, noise, needs_grad))
    }

    fn fused_gaussian_noise(
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        by_element!(mean, rank_two_noise::gaussian_forward(mean, variance, noise))
    }

    fn fused_gaussian_noise_grad(
        variance: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        noise: Noise,
    ) -> FloatTensor<Self> {
        by_element!(grad, rank_two_noise::gaussian_backward(variance, grad, noise))
    }

    fn fused_kl_log_uniform(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        rank_axis: usize,
    ) -> FloatTensor<Self> {
        by_element!(mean, kl_log_uniform::forward(mean, log_variance, rank_axis))
    }

    fn fused_kl_log_uniform_grad(
        mean: FloatTensor<Self>,
        log_variance: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        rank_axis: usize,
        needs_grad: [bool; 2],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(mean, kl_log_uniform::backward(mean, log_variance, grad, rank_axis, needs_grad))
    }
}
