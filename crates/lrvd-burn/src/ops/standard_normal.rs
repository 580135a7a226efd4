//! Counter-based standard-normal noise.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, Tensor, TensorData};
use lrvd_core::noise::{NoiseKey, fill_normal, fill_normal_f64};

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::value::Value;

/// Standard-normal numbers, elements `0, 1, …` of `key` in row-major order; a constant for gradients.
///
/// Device and element type are those of `like`, whose values do not matter.
///
/// # Numerics
///
/// The definition is [`lrvd_core::noise::fill_normal`]; on the CPU the bits are its bits. Other
/// backends use the same words and formula and their own `ln`, `cos`, `sin`: about `1e-6` apart.
pub fn standard_normal<const K: usize, const D: usize>(
    like: &Tensor<K>,
    shape: [usize; D],
    key: NoiseKey,
) -> Tensor<D> {
    let op = StandardNormal { shape: Shape::new(shape), key };
    op::fused(op, Operands::of([like.clone().into_dispatch()]))
}

#[derive(Clone, Debug)]
pub(super) struct StandardNormal {
    pub(super) shape: Shape,
    pub(super) key: NoiseKey,
}

impl FusedOp for StandardNormal {
    /// Made on the host, for backends without a generator.
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [like] = x.all().map(Value::<B>);
        let (shape, count) = (self.shape.clone(), self.shape.num_elements());
        let data = if like.dtype() == DType::F64 {
            let mut numbers = vec![0.0f64; count];
            fill_normal_f64(self.key, 0, &mut numbers);
            TensorData::new(numbers, shape)
        } else {
            let mut numbers = vec![0.0f32; count];
            fill_normal(self.key, 0, &mut numbers);
            TensorData::new(numbers, shape)
        };
        like.host(data).0
    }

    #[cfg(feature = "flex")]
    fn cpu(dtype: DType) -> Option<op::Form<burn::backend::Flex, Self>> {
        (dtype == DType::F32)
            .then_some(op::Form { forward: cpu::forward, derivative: op::Derivative::Zero })
    }

    #[cfg(feature = "cube")]
    fn cube() -> Option<op::Form<burn_cubecl::CubeBackend, Self>> {
        Some(op::Form { forward: cube::forward, derivative: op::Derivative::Zero })
    }
}

#[cfg(feature = "flex")]
mod cpu {
    use super::StandardNormal;
    use crate::ops::cpu::prelude::*;

    pub(crate) fn forward(op: &StandardNormal, _like: Operands<Flex>, _: bool) -> Fused<Flex> {
        let mut numbers = vec![0.0; op.shape.num_elements()];
        let tasks = numbers.chunks_mut(TASK).enumerate().collect();
        run(tasks, |(task, chunk)| fill_normal(op.key, task * TASK, chunk));
        Fused { out: tensor(numbers, op.shape.clone()), saved: Operands::of([]) }
    }
}

/// Counter-based random numbers in kernels: the same words as `lrvd_core::noise`.
#[cfg(feature = "cube")]
pub(super) mod cube {
    use lrvd_core::noise::NoiseKey;

    use super::StandardNormal;
    use crate::ops::cube::prelude::*;

    /// The address of a stream, as a kernel sees it; see [`lrvd_core::noise::NoiseKey`].
    #[derive(CubeLaunch, CubeType, Clone, Copy)]
    pub(crate) struct KernelKey {
        seed_low: u32,
        seed_high: u32,
        step: u32,
        module: u32,
        stream: u32,
    }

    /// Philox4x32-10: writes the four words of `block`. `u32` arithmetic wraps.
    #[cube]
    pub(crate) fn philox(key: &KernelKey, block: u32, words: &mut Array<u32>) {
        let mut c0 = block;
        let mut c1 = key.module;
        let mut c2 = key.step;
        let mut c3 = key.stream;
        let mut k0 = key.seed_low;
        let mut k1 = key.seed_high;
        #[unroll]
        for _ in 0..10u32 {
            let low_0 = c0 * 0xd251_1f53u32;
            let high_0 = c0.mul_hi(0xd251_1f53u32);
            let low_1 = c2 * 0xcd9e_8d57u32;
            let high_1 = c2.mul_hi(0xcd9e_8d57u32);
            c0 = high_1 ^ c1 ^ k0;
            c1 = low_1;
            c2 = high_0 ^ c3 ^ k1;
            c3 = low_0;
            k0 += 0x9e37_79b9u32;
            k1 += 0xbb67_ae85u32;
        }
        words[0] = c0;
        words[1] = c1;
        words[2] = c2;
        words[3] = c3;
    }

    /// `sqrt(-2 ln(k 2^-24))` for `1 <= k <= 2^24`.
    ///
    /// Near 1 the device's `ln` has an absolute error the root would magnify; there the difference to 1
    /// is exact in integers and the series of `2 artanh` takes over.
    #[cube]
    fn radius(k: u32) -> f32 {
        let below = f32::cast_from(16_777_216u32 - k) * 5.960_464_5e-8f32;
        let s = below / (2.0f32 - below);
        let z = s * s;
        let tail = 0.285_714_3f32 + z * 0.222_222_22f32;
        let tail = 0.666_666_7f32 + z * (0.4f32 + z * tail);
        let near = 2.0f32 * s + s * z * tail;
        let far = -(f32::cast_from(k) * 5.960_464_5e-8f32).ln();
        (2.0f32 * select(below < 0.3f32, near, far)).sqrt()
    }

    /// One Box-Muller pair: writes `out[first]` and `out[first + 1]`.
    ///
    /// The quarter turn is split off in integers and the rest, within an eighth of a turn, goes through
    /// Taylor series: devices are free to compute `sin` and `cos` with few digits.
    #[cube]
    fn box_muller(x: u32, y: u32, out: &mut Array<f32>, #[comptime] first: usize) {
        let length = radius((x >> 8u32) + 1u32);
        let turn = y >> 8u32;
        let quarter = (turn + 2_097_152u32) >> 22u32;
        let rest = f32::cast_from(turn) - f32::cast_from(quarter) * 4_194_304.0f32;
        let angle = rest * 3.745_070_3e-7f32;
        let z = angle * angle;
        let tail = -1.984_127e-4f32 + z * 2.755_731_9e-6f32;
        let tail = -0.166_666_67f32 + z * (8.333_334e-3f32 + z * tail);
        let sin = angle + angle * z * tail;
        let tail = -1.388_888_9e-3f32 + z * 2.480_158_7e-5f32;
        let cos = 1.0f32 + z * (-0.5f32 + z * (0.041_666_668f32 + z * tail));
        let odd = (quarter & 1u32) == 1u32;
        let c = select(odd, sin, cos);
        let s = select(odd, cos, sin);
        let c_negative = ((quarter + 1u32) & 2u32) == 2u32;
        let s_negative = (quarter & 2u32) == 2u32;
        out[first] = length * select(c_negative, -c, c);
        out[first + 1] = length * select(s_negative, -s, s);
    }

    /// The four normals of `block`.
    #[cube]
    pub(crate) fn normals(key: &KernelKey, block: u32, out: &mut Array<f32>) {
        let mut words = Array::<u32>::new(4usize);
        philox(key, block, &mut words);
        box_muller(words[0], words[1], out, 0usize);
        box_muller(words[2], words[3], out, 2usize);
    }

    /// One unit per block of four elements.
    #[cube(launch)]
    fn standard_normal_kernel<F: Float>(
        out: &mut Tensor<F>,
        key: KernelKey,
        #[define(F)] _dtype: ElemType,
    ) {
        let start = ABSOLUTE_POS * 4;
        if start >= out.len() {
            terminate!();
        }
        let mut noise = Array::<f32>::new(4usize);
        normals(&key, ABSOLUTE_POS as u32, &mut noise);
        #[unroll]
        for lane in 0..4usize {
            if start + lane < out.len() {
                out[start + lane] = F::cast_from(noise[lane]);
            }
        }
    }

    /// A key as a kernel argument.
    pub(crate) fn kernel_key(key: NoiseKey) -> KernelKeyLaunch {
        let [seed_low, seed_high] = key.philox_key();
        KernelKeyLaunch::new(seed_low, seed_high, key.step, key.module, key.stream)
    }

    pub(crate) fn forward(op: &StandardNormal, x: Operands<Cube>, _: bool) -> Fused<Cube> {
        let [like] = x.all();
        let out = empty(&like, op.shape.clone());
        launch!(standard_normal_kernel, sizes(&out, 4), out.dtype, [] => [out], kernel_key(op.key));
        Fused { out, saved: Operands::of([]) }
    }
}
