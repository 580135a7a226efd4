//! Dropout whose mask is a function of a key.

#[cfg(feature = "flex")]
pub(super) mod cpu;
#[cfg(feature = "cube")]
pub(super) mod cube;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::{Tensor, TensorData};
use lrvd_core::noise::{NoiseKey, fill_uniform};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// Inverted dropout.
///
/// # Formula
///
/// ```text
/// out[e] = x[e] / (1 - rate)  if uniform[e] >= rate,  else 0
/// uniform[e] = (word >> 8) · 2^-24,   word = lane e mod 4 of block e div 4 of `key`
/// ```
///
/// `e` counts elements in row-major order. The backward pass computes the mask again from `key`.
/// `rate = 0` returns `x` itself, `rate = 1` zeros. The layer does not look at the device: whoever
/// does not want dropout does not call it.
///
/// # Panics
///
/// If `rate` is not in `[0, 1]`.
///
/// # References
///
/// Srivastava et al. 2014, JMLR 15.
pub fn dropout<const D: usize>(x: Tensor<D>, rate: f64, key: NoiseKey) -> Tensor<D> {
    assert!((0.0..=1.0).contains(&rate), "dropout rate `{rate}` is outside 0..=1");
    if rate == 0.0 {
        return x;
    }
    op::fused(Dropout { rate, key }, operands(x))
}

/// [`dropout()`](fn@dropout) from Burn's operations and a mask made on the host.
pub fn dropout_composite<const D: usize>(x: Tensor<D>, rate: f64, key: NoiseKey) -> Tensor<D> {
    op::composite(Dropout { rate, key }, operands(x))
}

fn operands<const D: usize>(x: Tensor<D>) -> Operands<Dispatch> {
    Operands::of([x.into_dispatch()])
}

#[derive(Clone, Debug)]
pub(super) struct Dropout {
    pub(super) rate: f64,
    pub(super) key: NoiseKey,
}

impl FusedOp for Dropout {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [x] = x.all();
        let shape = x.shape();
        if shape.num_elements() == 0 {
            return x;
        }
        let (_, factor) = threshold_and_factor(self.rate);
        let mut mask = vec![0.0f32; shape.num_elements()];
        fill_uniform(self.key, 0, &mut mask);
        for number in &mut mask {
            *number = f32::from(u8::from(f64::from(*number) >= self.rate));
        }
        let x = Value::<B>(x);
        let mask = x.host(TensorData::new(mask, shape));
        (x * mask * factor).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: burn::tensor::DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        op::real_form!(dtype, cpu::{forward, gradient})
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, gradient: Some(cube::gradient) })
    }
}

/// Smallest `word >> 8` that is kept, and the factor of what is kept.
///
/// `uniform >= rate` on the grid of `2^-24` is a comparison of integers, the same everywhere.
fn threshold_and_factor(rate: f64) -> (u32, f64) {
    const GRID: f64 = 16_777_216.0;
    let factor = if rate < 1.0 { 1.0 / (1.0 - rate) } else { 0.0 };
    ((rate * GRID).ceil() as u32, factor)
}

#[cfg(test)]
mod tests {
    use super::threshold_and_factor;

    #[test]
    fn threshold_is_the_first_grid_point_that_is_kept() {
        assert_eq!(threshold_and_factor(0.5), (1 << 23, 2.0));
        assert_eq!(threshold_and_factor(1.0), (1 << 24, 0.0));
        let (threshold, factor) = threshold_and_factor(0.1);
        assert!(f64::from(threshold) / 16_777_216.0 >= 0.1);
        assert!(f64::from(threshold - 1) / 16_777_216.0 < 0.1);
        assert_eq!(factor, 1.0 / 0.9);
    }
}
