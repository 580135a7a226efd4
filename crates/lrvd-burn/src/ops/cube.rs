//! Which implementation runs on CubeCL's devices: kernels for `f32`, `f16` and `bf16`, which compute
//! in `f32`; the composite for `f64` and for every operator without a kernel.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::{CubeCount, CubeDim};
use lrvd_core::noise::NoiseKey;

use super::backend::LrvdBackend;
use super::{dropout, gelu, rank_two_noise, standard_normal};

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
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        by_element!(x, gelu::forward(x))
    }

    fn fused_gelu_grad(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        by_element!(x, gelu::backward(x, grad))
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

    fn fused_rank_two_noise(
        mean: FloatTensor<Self>,
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        by_element!(mean, rank_two_noise::forward(mean, q, w, t, key))
    }

    fn fused_rank_two_noise_grad(
        q: FloatTensor<Self>,
        w: FloatTensor<Self>,
        t: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        key: NoiseKey,
        wanted: [bool; 3],
    ) -> (Option<FloatTensor<Self>>, Option<FloatTensor<Self>>, Option<FloatTensor<Self>>) {
        by_element!(grad, rank_two_noise::backward(q, w, t, grad, key, wanted))
    }

    fn fused_gaussian_noise(
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        by_element!(mean, rank_two_noise::gaussian_forward(mean, variance, key))
    }

    fn fused_gaussian_noise_grad(
        variance: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        key: NoiseKey,
    ) -> FloatTensor<Self> {
        by_element!(grad, rank_two_noise::gaussian_backward(variance, grad, key))
    }
}

/// An uninitialised tensor beside `like`, contiguous on every device: the kernels index linearly,
/// and CUDA's own layout pads rows.
pub(super) fn empty(like: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_device_contiguous_dtype(like.client.clone(), like.device.clone(), shape, like.dtype)
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
