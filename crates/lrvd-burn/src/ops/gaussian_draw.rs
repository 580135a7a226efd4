//! Draws of a matrix with independent Gaussian entries.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Shape, Tensor};
use lrvd_core::noise::NoiseKey;

use super::op::{self, FusedOp, LrvdBackend, Operands};
use super::standard_normal::StandardNormal;
use super::value::Value;

/// `count` draws of a Gaussian matrix.
///
/// # Formula
///
/// ```text
/// out[s] = mean + std ⊙ eps[s]      dmean = Σ_s dout[s]      dstd = Σ_s eps[s] ⊙ dout[s]
/// ```
///
/// `eps` holds elements `0, 1, …` of `key` in row-major order, as
/// [`standard_normal()`](fn@super::standard_normal) gives them.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `mean` | `[rows, columns]` |
/// | `std` | `[rows \| 1, columns \| 1]` |
/// | *returns* | `[count, rows, columns]` |
///
/// # Numerics
///
/// The backward pass computes the noise again instead of keeping it.
///
/// # Panics
///
/// If `std` does not broadcast to the shape of `mean`.
pub fn gaussian_draw(mean: Tensor<2>, std: Tensor<2>, count: usize, key: NoiseKey) -> Tensor<3> {
    for (axis, (&size, &found)) in mean.dims().iter().zip(&std.dims()).enumerate() {
        assert!(found == 1 || found == size, "axis {axis} of `std` is {found}, of `mean` {size}");
    }
    op::fused(GaussianDraw { count, key }, Operands::of([mean, std].map(Tensor::into_dispatch)))
}

#[derive(Clone, Debug)]
struct GaussianDraw {
    count: usize,
    key: NoiseKey,
}

impl FusedOp for GaussianDraw {
    fn composite<B: LrvdBackend>(&self, x: Operands<B>) -> FloatTensor<B> {
        let [mean, std] = x.all();
        let shape = Shape::new([self.count, mean.shape()[0], mean.shape()[1]]);
        let normal = StandardNormal { shape, key: self.key };
        let eps = Value::<B>(B::fused(normal, Operands::of([mean.clone()])));
        let [mean, std] = [mean, std].map(|matrix| {
            let shape = matrix.shape();
            Value::<B>(matrix).reshape([1, shape[0], shape[1]])
        });
        (mean + eps * std).0
    }

    op::forms!(cpu, cube);
}

#[cfg(feature = "flex")]
mod cpu {
    use super::GaussianDraw;
    use crate::ops::cpu::prelude::*;

    wide! {
        /// `noise` becomes `mean + std ⊙ noise`.
        fn place<'a>(noise: &'a mut [f32], mean: &'a [f32], std: &'a [f32]) {
            for ((noise, &mean), &std) in noise.iter_mut().zip(mean).zip(std) {
                *noise = mean + *noise * std;
            }
        }

        /// Adds `grad` to `d_mean` and `grad ⊙ noise` to `d_std`.
        fn collect<'a>(
            grad: &'a [f32],
            noise: &'a [f32],
            d_mean: &'a mut [f32],
            d_std: &'a mut [f32],
        ) {
            for (d_mean, &grad) in d_mean.iter_mut().zip(grad) {
                *d_mean += grad;
            }
            for ((d_std, &grad), &noise) in d_std.iter_mut().zip(grad).zip(noise) {
                *d_std += grad * noise;
            }
        }
    }

    /// `std` for every entry of a matrix of `shape`.
    fn spread(std: &FlexTensor, [rows, columns]: [usize; 2]) -> Vec<f32> {
        let (shape, values) = (std.shape(), slice(std));
        let at = |row: usize, column: usize| {
            values[row.min(shape[0] - 1) * shape[1] + column.min(shape[1] - 1)]
        };
        (0..rows).flat_map(|row| (0..columns).map(move |column| at(row, column))).collect()
    }

    pub(crate) fn forward(op: &GaussianDraw, x: Operands<Flex>, save: bool) -> Fused<Flex> {
        let saved = x.keep(save, &[1]);
        let [mean, std] = x.all().map(contiguous);
        let [rows, columns] = mean.shape().dims();
        let size = rows * columns;
        let mut out = vec![0.0; op.count * size];
        let (mean, std) = (slice(&mean), spread(&std, [rows, columns]));
        // Chunks of one draw each: noise starts anew only at the first border.
        let tasks = out.chunks_exact_mut(size).enumerate().flat_map(|(draw, out)| {
            let pieces = out.chunks_mut(TASK).enumerate();
            pieces.map(move |(piece, out)| (draw * size, piece * TASK, out))
        });
        run(tasks.collect(), |(draw, first, out): (usize, usize, &mut [f32])| {
            fill_normal(op.key, draw + first, out);
            let range = first..first + out.len();
            place(out, &mean[range.clone()], &std[range]);
        });
        Fused { out: tensor(out, [op.count, rows, columns]), saved }
    }

    pub(crate) fn gradient(op: &GaussianDraw, x: Upstream<'_, Flex>) -> Operands<Flex> {
        let Upstream { saved, grad, needs_grad } = x;
        let ([std], grad) = (saved.all(), contiguous(grad));
        let narrow = std.shape();
        let [count, rows, columns] = grad.shape().dims();
        let size = rows * columns;
        let (mut d_mean, mut d_std) = (vec![0.0; size], vec![0.0; size]);
        let grad = slice(&grad);
        let tasks = d_mean.chunks_mut(TASK).zip(d_std.chunks_mut(TASK)).enumerate().collect();
        run(tasks, |(task, (d_mean, d_std)): (usize, (&mut [f32], &mut [f32]))| {
            let mut noise = vec![0.0; d_mean.len()];
            for draw in 0..count {
                let first = draw * size + task * TASK;
                if needs_grad[1] {
                    fill_normal(op.key, first, &mut noise);
                }
                collect(&grad[first..][..noise.len()], &noise, d_mean, d_std);
            }
        });
        let d_std = needs_grad[1].then(|| {
            let (mut sums, mut shape) = (d_std, [rows, columns]);
            if narrow[0] == 1 && rows != 1 {
                let lines: Vec<Vec<f32>> = sums.chunks(columns).map(<[f32]>::to_vec).collect();
                sums = sum_rows(&lines, columns);
                shape[0] = 1;
            }
            if narrow[1] == 1 && columns != 1 {
                sums = sums.chunks(columns).map(|line| line.iter().copied().sum()).collect();
                shape[1] = 1;
            }
            tensor(sums, shape)
        });
        let d_mean = needs_grad[0].then(|| tensor(d_mean, [rows, columns]));
        Operands::some([d_mean, d_std])
    }
}

/// The noise is that of [`StandardNormal`]; sums are Burn's, whose order is fixed.
#[cfg(feature = "cube")]
mod cube {
    use burn::tensor::{DType, Shape};
    use burn_cubecl::kernel::cast;

    use super::{GaussianDraw, StandardNormal};
    use crate::ops::cube::prelude::*;
    use crate::ops::op::LrvdBackend;
    use crate::ops::standard_normal::cube::{KernelKey, kernel_key, normals};

    /// `mean + std ⊙ eps`; one unit per four elements. Standard deviation of entry `[r, c]` at
    /// `r · row_stride + c · column_stride`.
    #[cube(launch)]
    fn draw_kernel<F: Float>(
        mean: &Tensor<F>,
        std: &Tensor<F>,
        out: &mut Tensor<F>,
        key: KernelKey,
        row_stride: u32,
        column_stride: u32,
        #[define(F)] _dtype: ElemType,
    ) {
        let start = ABSOLUTE_POS * 4;
        if start >= out.len() {
            terminate!();
        }
        let columns = mean.shape(1);
        let mut noise = Array::<f32>::new(4usize);
        normals(&key, ABSOLUTE_POS as u32, &mut noise);
        #[unroll]
        for lane in 0..4usize {
            let element = start + lane;
            if element < out.len() {
                let entry = element % mean.len();
                let (row, column) = (entry / columns, entry % columns);
                let at = row * row_stride as usize + column * column_stride as usize;
                let value = f32::cast_from(mean[entry]) + f32::cast_from(std[at]) * noise[lane];
                out[element] = F::cast_from(value);
            }
        }
    }

    pub(crate) fn forward(op: &GaussianDraw, x: Operands<Cube>, save: bool) -> Fused<Cube> {
        let saved = x.keep(save, &[1]);
        let [mean, std] = x.all().map(into_contiguous);
        let (shape, narrow) = (mean.shape(), std.shape());
        let out = empty(&mean, Shape::new([op.count, shape[0], shape[1]]));
        let row_stride = if narrow[0] == 1 { 0 } else { narrow[1] as u32 };
        let column_stride = u32::from(narrow[1] != 1);
        launch!(draw_kernel, sizes(&out, 4), out.dtype, [mean, std] => [out],
            kernel_key(op.key), row_stride, column_stride);
        Fused { out, saved }
    }

    pub(crate) fn gradient(op: &GaussianDraw, x: Upstream<'_, Cube>) -> Operands<Cube> {
        let Upstream { saved, grad, needs_grad } = x;
        let [std] = saved.all();
        let (dtype, shape, narrow) = (grad.dtype, grad.shape(), std.shape());
        let grad = cast(grad, DType::F32);
        let over_draws = |x: CubeTensor| Value::<Cube>(x).sum(0).reshape([shape[1], shape[2]]);
        let d_mean = needs_grad[0].then(|| cast(over_draws(grad.clone()).0, dtype));
        let d_std = needs_grad[1].then(|| {
            let normal = StandardNormal { shape: shape.clone(), key: op.key };
            let eps = Cube::fused(normal, Operands::of([grad.clone()]));
            let mut sums = over_draws((Value::<Cube>(grad) * Value(eps)).0);
            // Over the axes along which the standard deviation is one.
            for axis in (0..2).filter(|&axis| narrow[axis] == 1) {
                sums = sums.sum(axis);
            }
            cast(sums.0, dtype)
        });
        Operands::some([d_mean, d_std])
    }
}
