//! Products of a few rows: the dense matrix is read once in place, and nothing is packed.
//!
//! Every element of a result is the chain of fused multiply-adds of [`Product`](super::product::Product): a row has the
//! same bits alone and among others.

#![expect(clippy::inline_always, reason = "loops vectorise only with the functions inside")]

use std::array::from_fn;
use std::ops::Range;

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_flex::{FlexQTensor, FlexTensor};
use half::bf16;

use super::panels::Matrix;
use super::product::{DEPTH, SMALL};
use super::{contiguous, rows_per_task, run, slice, tensor, wide, zeros};

/// Rows that a thin product has at most.
pub(crate) const THIN: usize = 8;
/// Columns of a task are a multiple of this, so that tasks do not share lines of the cache.
const STRIP: usize = 64;
/// Sums of a task at most: they fit the first cache.
const SUMS: usize = 4096;
/// Columns that are summed together, each in a separate chain: as many hide the latency of an addition.
const CHAINS: usize = 8;

/// A dense matrix `[depth, columns]` whose numbers are contiguous along one of its axes.
#[derive(Clone, Copy)]
pub(crate) struct Dense<'a> {
    numbers: Numbers<'a>,
    depth: usize,
    columns: usize,
    /// `true` if the numbers of a row are contiguous, `false` if those of a column are.
    by_row: bool,
}

/// Elements in their stored type; they are widened to single precision as they are read.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    Single(&'a [f32]),
    Half(&'a [bf16]),
    /// `scales` has a number for each `block` lines.
    Quantized {
        values: &'a [i8],
        scales: &'a [f32],
        block: usize,
    },
}

/// A weight that is read in place.
pub(crate) struct Weight<'a> {
    tensor: FlexTensor,
    /// `true` if `tensor` is the transpose of the weight.
    transposed: bool,
    /// Scales of a quantised weight, and the lines that share one.
    scales: Option<(&'a [f32], usize)>,
}

impl<'a> Weight<'a> {
    /// A float matrix; a transposed view is read as it is stored, any other view is copied.
    pub(crate) fn new(weight: &FlexTensor) -> Self {
        let turned = weight.transpose(0, 1);
        let transposed = !weight.is_contiguous() && turned.is_contiguous();
        let tensor = if transposed { turned } else { contiguous(weight.clone()) };
        Self { tensor, transposed, scales: None }
    }

    /// A quantised matrix with one scale for some neighbours in a column; `None` if its blocks have another shape.
    pub(crate) fn quantized(weight: &'a FlexQTensor) -> Option<Self> {
        let (tensor, scales) = (weight.tensor().clone(), weight.scales());
        let DType::QFloat(scheme) = weight.dtype() else { return None };
        let block = scheme.block_size()?;
        let &[size, 1] = block.as_slice() else { return None };
        let size = usize::from(size);
        let fits = scales.len() * size == tensor.shape().num_elements();
        (fits && tensor.is_contiguous() && scheme.tensor_scale().is_none()).then_some(Self {
            tensor,
            transposed: false,
            scales: Some((scales, size)),
        })
    }

    /// The matrix, or its transpose.
    pub(crate) fn dense(&self, transposed: bool) -> Dense<'_> {
        let [lines, length] = self.tensor.shape().dims();
        let by_row = self.transposed == transposed;
        let [depth, columns] = if by_row { [lines, length] } else { [length, lines] };
        let numbers = match self.scales {
            Some((scales, block)) => {
                let values = self.tensor.as_slice().expect("contiguous values of eight bits");
                Numbers::Quantized { values, scales, block }
            }
            None => self
                .tensor
                .as_slice()
                .map_or_else(|| Numbers::Single(slice(&self.tensor)), Numbers::Half),
        };
        Dense { numbers, depth, columns, by_row }
    }

    /// The matrix in single precision; the transpose of one that is stored transposed.
    pub(crate) fn widened(&self) -> FlexTensor {
        let dense = self.dense(self.transposed);
        let width = dense.columns.max(1);
        let mut values = zeros(dense.depth * dense.columns);
        let lines = rows_per_task(width);
        run(values.chunks_mut(lines * width).enumerate().collect(), |(task, part)| {
            for (i, row) in part.chunks_mut(width).enumerate() {
                dense.line(task * lines + i, 0..width, row);
            }
        });
        let stored = tensor(values, [dense.depth, dense.columns]);
        if self.transposed { stored.transpose(0, 1) } else { stored }
    }

    /// The matrix in single precision, or its transpose.
    pub(crate) fn matrix(&self, transposed: bool) -> Matrix<'_> {
        let [lines, length] = self.tensor.shape().dims();
        let matrix = Matrix::new(slice(&self.tensor), lines, length);
        if self.transposed == transposed { matrix } else { matrix.transposed() }
    }
}

impl<'a> Dense<'a> {
    pub(crate) fn columns(self) -> usize {
        self.columns
    }

    /// A matrix without gaps.
    fn of(matrix: Matrix<'a>) -> Self {
        let Matrix { values, rows: depth, columns, strides } = matrix;
        Self { numbers: Numbers::Single(values), depth, columns, by_row: strides[1] == 1 }
    }

    /// Numbers `range` of a row, or of a column if those are contiguous.
    #[inline(always)]
    fn line<'b>(self, line: usize, range: Range<usize>, buffer: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        let length = if self.by_row { self.columns } else { self.depth };
        let buffer = &mut buffer[..range.len()];
        match self.numbers {
            Numbers::Single(values) => return &values[line * length..][range],
            Numbers::Half(values) => {
                let values = &values[line * length..][range];
                for (out, value) in buffer.iter_mut().zip(values) {
                    *out = f32::from_bits(u32::from(value.to_bits()) << 16);
                }
            }
            Numbers::Quantized { values, scales, block } => {
                let values = &values[line * length..][range.clone()];
                let scales = &scales[line / block * length..][range];
                for ((out, &value), &scale) in buffer.iter_mut().zip(values).zip(scales) {
                    *out = scale * f32::from(value);
                }
            }
        }
        buffer
    }
}

/// `out = x·base + bias + hidden·up`, `hidden = scale · x·down`, for at most [`THIN`] rows in groups of equal size with
/// separate factors.
#[derive(Clone, Copy)]
pub(crate) struct ThinProduct<'a> {
    /// `[rows, depth]`, row-major.
    pub(crate) x: &'a [f32],
    pub(crate) base: Option<Dense<'a>>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) low: Option<ThinLow<'a>>,
    /// `true` if the products are added to `out` and `hidden`, without a bias.
    pub(crate) adds: bool,
}

/// Factors of each group of rows, and what multiplies their product.
#[derive(Clone, Copy)]
pub(crate) struct ThinLow<'a> {
    /// `[depth, rank]` each.
    pub(crate) down: &'a [Matrix<'a>],
    /// `[rank, columns]` each.
    pub(crate) up: &'a [Matrix<'a>],
    pub(crate) scale: f32,
}

impl ThinProduct<'_> {
    /// Writes `out`, `[rows, columns]`, and `hidden`, `[rows, rank]`, of `rows` rows.
    pub(crate) fn run(self, rows: usize, out: &mut [f32], hidden: &mut [f32]) {
        if let Some(ThinLow { down, scale, .. }) = self.low {
            let (rank, depth, per_group) = (down[0].columns, down[0].rows, rows / down.len());
            let of_groups = self.x.chunks_exact((per_group * depth).max(1));
            for ((x, down), hidden) in
                of_groups.zip(down).zip(hidden.chunks_mut((per_group * rank).max(1)))
            {
                let mut sums = vec![0.0; hidden.len()];
                strip(x, Dense::of(*down), 0..rank, &[], &mut sums);
                for (hidden, sum) in hidden.iter_mut().zip(sums) {
                    let kept = if self.adds { *hidden } else { 0.0 };
                    *hidden = sum * scale + kept;
                }
            }
        }
        let Some(base) = self.base else { return };
        let columns = base.columns;
        let small = rows * base.depth * columns < SMALL;
        let width = if small {
            columns
        } else {
            let tasks = 2 * rayon::current_num_threads();
            columns.div_ceil(tasks).next_multiple_of(STRIP).min(SUMS / rows / STRIP * STRIP)
        };
        // Each group of products has its rows of B.
        let hidden = &*hidden;
        let ups: Vec<_> = self.low.map_or_else(Vec::new, |low| {
            let (rank, per_group) = (low.down[0].columns, rows / low.down.len());
            (0..rows).map(|row| (&hidden[row * rank..][..rank], low.up[row / per_group])).collect()
        });
        let start = &*out;
        let strips =
            (0..columns).step_by(width.max(1)).map(|first| first..columns.min(first + width));
        let parts = run(strips.collect(), |strip_columns: Range<usize>| {
            let mut part = Vec::with_capacity(rows * strip_columns.len());
            for row in 0..rows {
                match self.bias {
                    Some(bias) => part.extend_from_slice(&bias[strip_columns.clone()]),
                    None => part.extend_from_slice(&start[row * columns..][strip_columns.clone()]),
                }
            }
            strip(self.x, base, strip_columns.clone(), &ups, &mut part);
            (strip_columns, part)
        });
        for (strip_columns, part) in parts {
            for (out, part) in
                out.chunks_exact_mut(columns).zip(part.chunks_exact(strip_columns.len()))
            {
                out[strip_columns.clone()].copy_from_slice(part);
            }
        }
    }
}

/// A row's products with A, and the B that they meet.
type Up<'a> = (&'a [f32], Matrix<'a>);

wide! {
    /// Adds `columns` of `x·base` and of the low-rank part to `out`, `[rows, columns]`.
    fn strip<'a>(
        x: &'a [f32],
        base: Dense<'a>,
        columns: Range<usize>,
        ups: &'a [Up<'a>],
        out: &'a mut [f32],
    ) {
        if base.by_row {
            by_rows(x, base, columns, ups, out);
        } else if x.len() == base.depth {
            by_columns::<1>(x, base, columns, ups, out);
        } else {
            by_columns::<THIN>(x, base, columns, ups, out);
        }
    }
}

/// `sums += Σ x·line`, in order.
#[inline(always)]
fn add_lines<const N: usize>(sums: &mut [f32], x: [f32; N], lines: [&[f32]; N]) {
    let lines = lines.map(|line| &line[..sums.len()]);
    for (i, sum) in sums.iter_mut().enumerate() {
        for n in 0..N {
            *sum = x[n].mul_add(lines[n][i], *sum);
        }
    }
}

/// The sums of a block of the depth stay in the first cache while its rows go past.
#[inline(always)]
fn by_rows(x: &[f32], base: Dense<'_>, columns: Range<usize>, ups: &[Up<'_>], out: &mut [f32]) {
    let (depth, width) = (base.depth, columns.len());
    let mut sums = vec![0.0; out.len()];
    let mut buffers: [Vec<f32>; 4] = from_fn(|_| vec![0.0; width]);
    for first in (0..depth).step_by(DEPTH) {
        let end = depth.min(first + DEPTH);
        sums.fill(0.0);
        let mut p = first;
        while p < end {
            let [b0, b1, b2, b3] = &mut buffers;
            if p + 4 <= end {
                let lines = [
                    base.line(p, columns.clone(), b0),
                    base.line(p + 1, columns.clone(), b1),
                    base.line(p + 2, columns.clone(), b2),
                    base.line(p + 3, columns.clone(), b3),
                ];
                for (sums, x) in sums.chunks_exact_mut(width).zip(x.chunks_exact(depth)) {
                    add_lines(sums, [x[p], x[p + 1], x[p + 2], x[p + 3]], lines);
                }
                p += 4;
            } else {
                let line = base.line(p, columns.clone(), b0);
                for (sums, x) in sums.chunks_exact_mut(width).zip(x.chunks_exact(depth)) {
                    add_lines(sums, [x[p]], [line]);
                }
                p += 1;
            }
        }
        if end == depth {
            for (sums, &(hidden, up)) in sums.chunks_exact_mut(width).zip(ups) {
                add_up(sums, hidden, up, columns.start);
            }
        }
        for (out, sum) in out.iter_mut().zip(&sums) {
            *out += sum;
        }
    }
}

/// Columns `first..` of `hidden·up`, in order of the rank.
#[inline(always)]
fn add_up(sums: &mut [f32], hidden: &[f32], up: Matrix<'_>, first: usize) {
    let [down, along] = up.strides;
    for (k, &hidden) in hidden.iter().enumerate() {
        let values = &up.values[k * down + first * along..];
        if along == 1 {
            add_lines(sums, [hidden], [values]);
        } else {
            for (sum, &value) in sums.iter_mut().zip(values.iter().step_by(along)) {
                *sum = hidden.mul_add(value, *sum);
            }
        }
    }
}

/// Some columns at a time meet all rows of `x`, which has at most `R`.
#[inline(always)]
fn by_columns<const R: usize>(
    x: &[f32],
    base: Dense<'_>,
    columns: Range<usize>,
    ups: &[Up<'_>],
    out: &mut [f32],
) {
    // The rows side by side: a number of the matrix meets all of them as one vector. Rows that are missing are zeros.
    let mut rows = vec![[0.0f32; R]; base.depth];
    for (r, x) in x.chunks_exact(base.depth).enumerate() {
        for (rows, &x) in rows.iter_mut().zip(x) {
            rows[r] = x;
        }
    }
    let mut buffers = [[0.0f32; DEPTH]; CHAINS];
    let mut sums = [[0.0f32; R]; CHAINS];
    let mut first = columns.start;
    while first < columns.end {
        let out = (&mut *out, first - columns.start, columns.len());
        if first + CHAINS <= columns.end {
            chains::<R, CHAINS>(&rows, base, first, ups, (&mut buffers, &mut sums), out);
            first += CHAINS;
        } else {
            chains::<R, 1>(&rows, base, first, ups, (&mut buffers, &mut sums), out);
            first += 1;
        }
    }
}

/// `C` columns from `first` on, into the places of `out` from `at` on, which has `width` columns.
#[inline(always)]
fn chains<const R: usize, const C: usize>(
    rows: &[[f32; R]],
    base: Dense<'_>,
    first: usize,
    ups: &[Up<'_>],
    (buffers, done): (&mut [[f32; DEPTH]; CHAINS], &mut [[f32; R]; CHAINS]),
    (out, at, width): (&mut [f32], usize, usize),
) {
    let depth = base.depth;
    for begin in (0..depth).step_by(DEPTH) {
        let end = depth.min(begin + DEPTH);
        let mut buffers = buffers.iter_mut();
        let lines: [&[f32]; C] = from_fn(|c| {
            let buffer = buffers.next().expect("a buffer for each chain");
            base.line(first + c, begin..end, buffer)
        });
        let rows = &rows[begin..end];
        let lines = lines.map(|line| &line[..rows.len()]);
        let mut sums = [[0.0f32; R]; C];
        for (p, x) in rows.iter().enumerate() {
            for c in 0..C {
                for r in 0..R {
                    sums[c][r] = x[r].mul_add(lines[c][p], sums[c][r]);
                }
            }
        }
        // The sums stay in registers up to here: no place among them is computed.
        done[..C].copy_from_slice(&sums);
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            for (c, done) in done[..C].iter().enumerate() {
                let mut sum = done[row];
                if let (true, Some(&(hidden, up))) = (end == depth, ups.get(row)) {
                    for (k, &hidden) in hidden.iter().enumerate() {
                        let value = up.values[k * up.strides[0] + (first + c) * up.strides[1]];
                        sum = hidden.mul_add(value, sum);
                    }
                }
                out[at + c] += sum;
            }
        }
    }
}
