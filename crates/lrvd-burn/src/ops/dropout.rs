//! Dropout whose mask is a function of a key.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
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
/// `rate = 0` returns `x` itself, `rate = 1` zeros. The device does not matter: dropout happens wherever this is
/// called.
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
    op::fused(Dropout { rate, key }, Operands::of([x.into_dispatch()]))
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
        let mut mask = vec![0.0f32; shape.num_elements()];
        fill_uniform(self.key, 0, &mut mask);
        for number in &mut mask {
            *number = f32::from(u8::from(f64::from(*number) >= self.rate));
        }
        let x = Value::<B>(x);
        let mask = x.host(TensorData::new(mask, shape));
        (x * mask * self.factor()).0
    }

    op::forms!(cpu, cube);
}

impl Dropout {
    /// Smallest `word >> 8` that is kept: `uniform >= rate` on the grid of `2^-24` is a comparison of integers, the same
    /// everywhere.
    #[cfg(any(feature = "flex", feature = "cube"))]
    fn threshold(&self) -> u32 {
        const GRID: f64 = 16_777_216.0;
        (self.rate * GRID).ceil() as u32
    }

    /// Factor of the elements that are kept.
    fn factor(&self) -> f64 {
        if self.rate < 1.0 { 1.0 / (1.0 - self.rate) } else { 0.0 }
    }
}

#[cfg(feature = "flex")]
pub(super) mod cpu {
    use lrvd_core::noise::words;

    use super::Dropout;
    use crate::ops::cpu::prelude::*;

    /// Words drawn at a time.
    const WORDS: usize = 256;

    pub(crate) fn forward(op: &Dropout, x: Operands<Flex>, _: bool) -> Fused<Flex> {
        let [x] = x.all();
        let out = in_place(x, TASK, |first, chunk| apply(chunk, first, op));
        Fused { out, saved: Operands::of([]) }
    }

    /// Linear, so that its gradient is the same operation.
    pub(crate) fn gradient(op: &Dropout, x: Upstream<'_, Flex>) -> Operands<Flex> {
        Operands::of([forward(op, Operands::of([x.grad]), false).out])
    }

    /// Drops elements `first..` of the mask.
    pub(in crate::ops) fn apply(values: &mut [f32], first: usize, op: &Dropout) {
        let (threshold, factor) = (op.threshold(), op.factor() as f32);
        // Words come in blocks of four; the first block may begin before the first element.
        let skipped = first % 4;
        let mut random = [0u32; WORDS];
        let (head, rest) = values.split_at_mut((WORDS - skipped).min(values.len()));
        let pieces = std::iter::once((head, skipped)).chain(rest.chunks_mut(WORDS).map(|c| (c, 0)));
        for (i, (values, skipped)) in pieces.enumerate() {
            let first_block = (first / 4 + i * WORDS / 4) as u32;
            let random = &mut random[..skipped + values.len()];
            words(op.key, first_block, random);
            for (value, &word) in values.iter_mut().zip(&random[skipped..]) {
                *value = if word >> 8 >= threshold { *value * factor } else { 0.0 };
            }
        }
    }
}

#[cfg(feature = "cube")]
mod cube {
    use super::Dropout;
    use crate::ops::cube::prelude::*;
    use crate::ops::standard_normal::cube::{KernelKey, kernel_key, philox};

    /// One unit per block of four elements.
    #[cube(launch)]
    fn dropout_kernel<F: Float>(
        x: &Tensor<F>,
        out: &mut Tensor<F>,
        key: KernelKey,
        threshold: u32,
        factor: f32,
        #[define(F)] _dtype: ElemType,
    ) {
        let start = ABSOLUTE_POS * 4;
        if start >= out.len() {
            terminate!();
        }
        let mut words = Array::<u32>::new(4usize);
        philox(&key, ABSOLUTE_POS as u32, &mut words);
        #[unroll]
        for lane in 0..4usize {
            if start + lane < out.len() {
                let value = f32::cast_from(x[start + lane]) * factor;
                out[start + lane] =
                    F::cast_from(select((words[lane] >> 8u32) >= threshold, value, 0.0f32));
            }
        }
    }

    pub(crate) fn forward(op: &Dropout, x: Operands<Cube>, _: bool) -> Fused<Cube> {
        let [x] = x.all().map(into_contiguous);
        let out = empty(&x, x.shape());
        launch!(dropout_kernel, sizes(&out, 4), out.dtype, [x] => [out],
            kernel_key(op.key), op.threshold(), op.factor() as f32);
        Fused { out, saved: Operands::of([]) }
    }

    /// Linear, so that its gradient is the same operation.
    pub(crate) fn gradient(op: &Dropout, x: Upstream<'_, Cube>) -> Operands<Cube> {
        Operands::of([forward(op, Operands::of([x.grad]), false).out])
    }
}
