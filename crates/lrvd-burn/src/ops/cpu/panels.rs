//! Matrices packed for the product kernel.

#![expect(clippy::inline_always, reason = "loops are compiled for a vector width as a whole")]

use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;

/// Numbers below which packing stays on the calling thread.
const SMALL: usize = 32 * 1024;
/// Side of the square blocks in which a transposed matrix is packed.
const SQUARE: usize = 8;

/// A matrix in a slice, by strides.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Distance of neighbours in a column and in a row.
    pub(crate) strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// Row-major values.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self { values, rows, columns, strides: [columns, 1] }
    }

    /// The rows `first..first + count`.
    pub(crate) fn part(self, first: usize, count: usize) -> Self {
        let start = (first * self.strides[0]).min(self.values.len());
        Self { values: &self.values[start..], rows: count, ..self }
    }

    /// The matrix with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        let [row, column] = self.strides;
        Self { rows: self.columns, columns: self.rows, strides: [column, row], ..self }
    }
}

/// A matrix `[depth, columns]` in panels of `width` columns, `[panel][depth][width]`; the last panel is
/// filled up with zeros.
pub(crate) struct Panels {
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    pub(crate) width: usize,
    values: Vec<f32>,
}

impl Panels {
    /// Packs `matrix` in panels of `width` columns.
    pub(crate) fn pack(matrix: Matrix<'_>, width: usize) -> Self {
        let (depth, columns) = (matrix.rows, matrix.columns);
        let size = depth * width;
        let mut values = vec![0.0; columns.div_ceil(width) * size];
        let arch = Arch::new();
        let pack = |(panel, out): (usize, &mut [f32])| {
            arch.dispatch(PackPanel { matrix, first: panel * width, width, out });
        };
        if values.len() < SMALL {
            values.chunks_mut(size.max(1)).enumerate().for_each(pack);
        } else {
            values.par_chunks_mut(size).enumerate().for_each(pack);
        }
        Self { depth, columns, width, values }
    }

    /// Number of panels.
    pub(crate) fn count(&self) -> usize {
        self.columns.div_ceil(self.width)
    }

    /// Rows `first..first + depth` of panel `panel`.
    pub(crate) fn block(&self, panel: usize, first: usize, depth: usize) -> &[f32] {
        &self.values[(panel * self.depth + first) * self.width..][..depth * self.width]
    }
}

/// Numbers in one vector of this machine.
pub(crate) fn lanes() -> usize {
    struct Lanes;
    impl WithSimd for Lanes {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }
    Arch::new().dispatch(Lanes)
}

struct PackPanel<'a> {
    matrix: Matrix<'a>,
    first: usize,
    width: usize,
    out: &'a mut [f32],
}

impl NullaryFnOnce for PackPanel<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { matrix: Matrix { values, rows, columns, strides: [down, along] }, .. } = self;
        let Self { first, width, out, .. } = self;
        let live = width.min(columns - first);
        if along == 1 {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                out[..live].copy_from_slice(&values[row * down + first..][..live]);
            }
            return;
        }
        let mut done = 0;
        if down == 1 && live == width && width.is_multiple_of(SQUARE) {
            // Columns are contiguous: squares keep both sides in whole cache lines.
            while done + SQUARE <= rows {
                for column in (0..width).step_by(SQUARE) {
                    let mut square = [[0.0f32; SQUARE]; SQUARE];
                    for (i, side) in square.iter_mut().enumerate() {
                        let from = (first + column + i) * along + done;
                        side.copy_from_slice(&values[from..][..SQUARE]);
                    }
                    for row in 0..SQUARE {
                        let out = &mut out[(done + row) * width + column..][..SQUARE];
                        for (out, side) in out.iter_mut().zip(&square) {
                            *out = side[row];
                        }
                    }
                }
                done += SQUARE;
            }
        }
        for (row, out) in out.chunks_exact_mut(width).enumerate().skip(done) {
            for (column, out) in out[..live].iter_mut().enumerate() {
                *out = values[row * down + (first + column) * along];
            }
        }
    }
}
