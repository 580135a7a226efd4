//! Which implementation runs on CubeCL's devices: kernels for `f32`, `f16` and `bf16`, which compute
//! in `f32`, for what the method needs; the composite for `f64` and for every operator without a kernel.

mod rows;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::{CubeCount, CubeDim};
use lrvd_core::noise::NoiseKey;

use super::backend::{LrvdBackend, Maybe};
use super::disentangled_attention::{AttentionLayout, PositionTerm};
use super::rank_two_noise::Noise;
use super::{
    disentangled_attention, dropout, gaussian_draw, kl_log_uniform, rank_two_noise, standard_normal,
};

pub(super) use rows::{LOWEST, cube_max, cube_sum, exp_below, row_sizes};

/// `$op::launch::$name`, or the composite for `f64`.
macro_rules! by_element {
    ($tensor:expr, $op:ident :: $name:ident ( $($argument:expr),* )) => {
        if $tensor.dtype == DType::F64 {
            $op::composite::$name::<Self>($($argument),*)
        } else {
            $op::launch::$name($($argument),*)
        }
    };
}

impl LrvdBackend for CubeBackend {
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
        by_element!(
            query,
            disentangled_attention::forward([query, key, value], terms, mask, &layout)
        )
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
        let (operands, terms) = ([query, key, value], [keys.into_parts(), queries.into_parts()]);
        by_element!(
            grad,
            disentangled_attention::backward(
                operands,
                terms,
                probability,
                grad,
                &layout,
                needs_grad
            )
        )
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

/// An uninitialised tensor beside `like`, contiguous on every device: the kernels index linearly,
/// and CUDA's own layout pads rows.
pub(super) fn empty(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
}

/// [`empty`] in single precision, whatever `like` holds.
pub(super) fn empty_single(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, DType::F32)
}

/// [`empty`] of the shape of `like`.
pub(super) fn empty_like(like: &CubeTensor) -> CubeTensor {
    empty(like, like.shape())
}

/// Cubes and units for one unit per `per_unit` elements; nothing to launch for an empty tensor.
pub(super) fn sizes(out: &CubeTensor, per_unit: usize) -> Option<(CubeCount, CubeDim)> {
    let units = out.shape().num_elements().div_ceil(per_unit);
    if units == 0 {
        return None;
    }
    let dim = CubeDim::new(&out.client, units);
    Some((calculate_cube_count_elemwise(&out.client, units, dim), dim))
}
