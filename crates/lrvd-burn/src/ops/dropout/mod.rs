//! Dropout whose mask is a function of a key.

pub(crate) mod composite;
#[cfg(feature = "flex")]
pub(crate) mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;

use burn::backend::Dispatch;
use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;

use super::backend::LrvdBackend;

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
    Tensor::from_dispatch(<Dispatch as LrvdBackend>::fused_dropout(x.into_dispatch(), rate, key))
}

/// [`dropout()`](fn@dropout) from Burn's operations and a mask made on the host.
pub fn dropout_composite<const D: usize>(x: Tensor<D>, rate: f64, key: NoiseKey) -> Tensor<D> {
    Tensor::from_dispatch(composite::forward::<Dispatch>(x.into_dispatch(), rate, key))
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
