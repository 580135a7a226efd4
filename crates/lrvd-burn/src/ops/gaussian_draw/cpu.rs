//! Gaussian draws on slices.

use burn::backend::{Flex, TensorMetadata};
use burn::tensor::Shape;
use burn_flex::FlexTensor;

use super::GaussianDraw;
use crate::ops::cpu::{Real, TASK, contiguous, run, sum_rows, wide};
use crate::ops::op::{Fused, Operands};

wide! {
    /// `noise` becomes `mean + std ⊙ noise`.
    fn place<'a, E>(noise: &'a mut [E], mean: &'a [E], std: &'a [E]) {
        for ((noise, &mean), &std) in noise.iter_mut().zip(mean).zip(std) {
            *noise = mean + *noise * std;
        }
    }

    /// Adds `grad` to `d_mean` and `grad ⊙ noise` to `d_std`.
    fn collect<'a, E>(grad: &'a [E], noise: &'a [E], d_mean: &'a mut [E], d_std: &'a mut [E]) {
        for (d_mean, &grad) in d_mean.iter_mut().zip(grad) {
            *d_mean += grad;
        }
        for ((d_std, &grad), &noise) in d_std.iter_mut().zip(grad).zip(noise) {
            *d_std += grad * noise;
        }
    }
}

/// `std` for every entry of a matrix of `shape`.
fn spread<E: Real>(std: &FlexTensor, [rows, columns]: [usize; 2]) -> Vec<E> {
    let (shape, values) = (std.shape(), E::slice(std));
    if shape[0] == rows && shape[1] == columns {
        return values.to_vec();
    }
    let at = |row: usize, column: usize| {
        values[row.min(shape[0] - 1) * shape[1] + column.min(shape[1] - 1)]
    };
    (0..rows).flat_map(|row| (0..columns).map(move |column| at(row, column))).collect()
}

pub(super) fn forward<E: Real>(op: &GaussianDraw, x: Operands<Flex>, save: bool) -> Fused<Flex> {
    let saved = x.keep(save, &[1]);
    let [mean, std] = x.all().map(contiguous);
    let shape = [mean.shape()[0], mean.shape()[1]];
    let size = shape[0] * shape[1];
    let mut out = vec![E::ZERO; op.count * size];
    let (mean, std) = (E::slice(&mean), spread::<E>(&std, shape));
    // Chunks of one draw each: noise starts anew only at the first border.
    let tasks = out.chunks_exact_mut(size).enumerate().flat_map(|(draw, out)| {
        let pieces = out.chunks_mut(TASK).enumerate();
        pieces.map(move |(piece, out)| (draw * size, piece * TASK, out))
    });
    run(tasks.collect(), |(draw, first, out): (usize, usize, &mut [E])| {
        E::fill_normal(op.key, (draw + first) as u64, out);
        let range = first..first + out.len();
        place(out, &mean[range.clone()], &std[range]);
    });
    Fused { out: E::tensor(out, Shape::new([op.count, shape[0], shape[1]])), saved }
}

pub(super) fn gradient<E: Real>(
    op: &GaussianDraw,
    saved: Operands<Flex>,
    grad: FlexTensor,
    needs_grad: &[bool],
) -> Operands<Flex> {
    let ([std], grad) = (saved.all(), contiguous(grad));
    let narrow = std.shape();
    let (count, rows, columns) = (grad.shape()[0], grad.shape()[1], grad.shape()[2]);
    let size = rows * columns;
    let (mut d_mean, mut d_std) = (vec![E::ZERO; size], vec![E::ZERO; size]);
    let grad = E::slice(&grad);
    let tasks = d_mean.chunks_mut(TASK).zip(d_std.chunks_mut(TASK)).enumerate().collect();
    run(tasks, |(task, (d_mean, d_std)): (usize, (&mut [E], &mut [E]))| {
        let mut noise = vec![E::ZERO; d_mean.len()];
        for draw in 0..count {
            let first = draw * size + task * TASK;
            if needs_grad[1] {
                E::fill_normal(op.key, first as u64, &mut noise);
            }
            collect(&grad[first..][..noise.len()], &noise, d_mean, d_std);
        }
    });
    let d_std = needs_grad[1].then(|| {
        let mut sums = d_std;
        let mut shape = [rows, columns];
        if narrow[0] == 1 && rows != 1 {
            let lines: Vec<Vec<E>> = sums.chunks(columns.max(1)).map(<[E]>::to_vec).collect();
            sums = sum_rows(&lines, columns);
            shape[0] = 1;
        }
        if narrow[1] == 1 && columns != 1 {
            sums = sums.chunks(columns.max(1)).map(|line| line.iter().copied().sum()).collect();
            shape[1] = 1;
        }
        E::tensor(sums, Shape::new(shape))
    });
    let d_mean = needs_grad[0].then(|| E::tensor(d_mean, Shape::new([rows, columns])));
    Operands::some([d_mean, d_std])
}
