//! Matrices packed for the product kernel.

#![expect(clippy::inline_always, reason = "loops are compiled for a vector width as a whole")]

use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};
use rayon::prelude::*;

/// Numbers below which packing stays on the calling thread.
const SMALL: usize = 32 * 1024;
/// Side of the square blocks in which a transposed matrix is packed.
const SQUARE: usize = 8;
const WIDEST: usize = 32;

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

/// A matrix `[depth, columns]` in panels of `width` columns, each `[depth, width]`; the last panel is
/// filled up with zeros.
pub(crate) struct Panels {
    pub(crate) columns: usize,
    pub(crate) width: usize,
    values: Vec<Vec<f32>>,
}

impl Panels {
    /// Packs `matrix` in panels of `width` columns.
    pub(crate) fn pack(matrix: Matrix<'_>, width: usize) -> Self {
        let columns = matrix.columns;
        let arch = Arch::new();
        let pack = |first| arch.dispatch(PackPanel { matrix, first, width });
        let count = columns.div_ceil(width);
        let values = if matrix.rows * columns < SMALL {
            (0..count).map(|panel| pack(panel * width)).collect()
        } else {
            (0..count).into_par_iter().map(|panel| pack(panel * width)).collect()
        };
        Self { columns, width, values }
    }

    /// Number of panels.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// Rows of the matrix.
    pub(crate) fn depth(&self) -> usize {
        self.values.first().map_or(0, |panel| panel.len() / self.width)
    }

    /// Rows `first..first + depth` of panel `panel`.
    pub(crate) fn block(&self, panel: usize, first: usize, depth: usize) -> &[f32] {
        &self.values[panel][first * self.width..][..depth * self.width]
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
}

impl NullaryFnOnce for PackPanel<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call(self) -> Vec<f32> {
        let Self { matrix: Matrix { values, rows, columns, strides: [down, along] }, .. } = self;
        let Self { first, width, .. } = self;
        let live = width.min(columns - first);
        // Written once: memory that is set to zeros first would be written twice.
        let mut out = Vec::with_capacity(rows * width);
        if along == 1 && live == width {
            for row in 0..rows {
                out.extend_from_slice(&values[row * down + first..][..width]);
            }
            return out;
        }
        let mut done = 0;
        if down == 1 && live == width && width <= WIDEST {
            // Columns are contiguous: squares keep both sides in whole cache lines.
            let mut square = [[0.0f32; WIDEST]; SQUARE];
            while done + SQUARE <= rows {
                for column in 0..width {
                    let from = (first + column) * along + done;
                    let side = &values[from..][..SQUARE];
                    for (line, &value) in square.iter_mut().zip(side) {
                        line[column] = value;
                    }
                }
                for row in &square {
                    out.extend_from_slice(&row[..width]);
                }
                done += SQUARE;
            }
        }
        for row in done..rows {
            let line = (first..first + live).map(|column| values[row * down + column * along]);
            out.extend(line);
            out.resize((row + 1) * width, 0.0);
        }
        out
    }
}
