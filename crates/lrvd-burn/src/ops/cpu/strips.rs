//! Products of some rows: the columns of the dense matrix are shared out over the threads, and packed where they are used.
//!
//! Packed as a whole, the matrix goes through memory once more, which costs as much as some hundred rows. Every element of a result is the
//! chain of fused multiply-adds of [`Product`], as in a product of more rows.

#![expect(clippy::inline_always, reason = "kernels are compiled for a vector width as a whole")]

use std::ops::Range;

use pulp::{Arch, Simd};

use super::panels::{Matrix, Panels};
use super::product::{
    DEPTH, InTiles, Product, REST, SMALL, Start, Tiled, accumulate, pack, panel_width, store, zeros,
};
use super::run;

/// Rows that a product in strips has at most.
pub(crate) const FEW: usize = 128;

/// The dense matrix of a product in strips.
#[derive(Clone, Copy)]
pub(crate) enum StripBase<'a> {
    /// Row-major; a strip packs its part.
    Rows(Matrix<'a>),
    /// In panels of [`panel_width`].
    Panels(&'a Panels),
}

impl Product<'_> {
    /// As [`run`](Self::run) with the matrix `base`, for rows in one group.
    pub(crate) fn run_in_strips(self, base: StripBase<'_>, out: &mut [f32], hidden: &mut [f32]) {
        let columns = match base {
            StripBase::Rows(matrix) => matrix.columns,
            StripBase::Panels(panels) => panels.columns,
        };
        let (rows, depth) = (self.x.rows, self.x.columns);
        if rows == 0 || columns == 0 {
            return;
        }
        Product { base: None, ..self }.run(&mut [], hidden);
        let width = panel_width();
        let panels = columns.div_ceil(width);
        let is_small = rows * depth * columns < SMALL;
        // Two tasks for each thread even out their ends.
        let tasks = if is_small { 1 } else { 2 * rayon::current_num_threads() };
        let per_task = panels.div_ceil(tasks);
        let mut strips: Vec<_> = (0..panels)
            .step_by(per_task)
            .map(|first| (first..panels.min(first + per_task), Vec::with_capacity(rows)))
            .collect();
        for mut row in out.chunks_exact_mut(columns) {
            for (_, parts) in &mut strips {
                let (part, rest) = row.split_at_mut((per_task * width).min(row.len()));
                parts.push(part);
                row = rest;
            }
        }
        let arch = Arch::new();
        let x = arch.dispatch(InTiles(Pack(self.x)));
        let hidden = Matrix::new(hidden, rows, hidden.len() / rows);
        let hidden = arch.dispatch(InTiles(Pack(hidden)));
        run(strips, |(panels, out)| {
            let (x, hidden) = (&x, &hidden);
            let product = self;
            arch.dispatch(InTiles(Strip { product, base, columns, x, hidden, panels, out }));
        });
    }
}

/// Rows packed in tiles, each `[depth, rows of a tile]`: whole tiles, and those that end a product.
struct Tiles {
    whole: Vec<f32>,
    rest: Vec<f32>,
}

struct Pack<'a>(Matrix<'a>);

impl Tiled for Pack<'_> {
    type Output = Tiles;

    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(self, _: S) -> Tiles {
        let Self(x) = self;
        let whole = x.rows / MR * MR;
        let [whole, rest] = [x.part(0, whole), x.part(whole, x.rows - whole)];
        Tiles { whole: tiles::<MR>(whole), rest: tiles::<REST>(rest) }
    }
}

#[inline(always)]
fn tiles<const MR: usize>(x: Matrix<'_>) -> Vec<f32> {
    let count = x.rows.div_ceil(MR);
    let mut all = vec![0.0; count * MR * x.columns];
    for (tile, packed) in all.chunks_exact_mut((MR * x.columns).max(1)).enumerate() {
        let (packed, _) = packed.as_chunks_mut::<MR>();
        pack(x.part(tile * MR, MR.min(x.rows - tile * MR)), 0, packed);
    }
    all
}

/// Some panels of the columns, and their part of every row of the output.
struct Strip<'a, 'o> {
    product: Product<'a>,
    base: StripBase<'a>,
    /// Columns of the matrix.
    columns: usize,
    x: &'a Tiles,
    hidden: &'a Tiles,
    panels: Range<usize>,
    out: Vec<&'o mut [f32]>,
}

/// A panel of the dense matrix, and of the second factor where it is its turn.
struct Panel<'a, S: Simd> {
    dense: &'a [S::f32s],
    up: Option<&'a [S::f32s]>,
    /// Place in the rows of the strip.
    columns: Range<usize>,
    start: Start<'a>,
}

impl Tiled for Strip<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(self, simd: S) {
        let Self { product: Product { x, bias, low, adds, .. }, base, panels, mut out, .. } = self;
        let all = self.columns;
        let (depth, width) = (x.columns, NV * S::F32_LANES);
        let origin = panels.start * width;
        let (whole, rest) = out.split_at_mut(x.rows / MR * MR);
        let block = DEPTH.min(depth) * width;
        let packs = if let StripBase::Rows(_) = base { panels.len() * block } else { 0 };
        let mut values = vec![0.0; packs];
        for first in (0..depth).step_by(DEPTH) {
            let deep = DEPTH.min(depth - first);
            if let StripBase::Rows(base) = base {
                // Row by row, so that memory is read in its order.
                for p in 0..deep {
                    let line = &base.values[(first + p) * base.strides[0]..][..all];
                    for (panel, values) in panels.clone().zip(values.chunks_exact_mut(block)) {
                        let out = &mut values[p * width..][..width];
                        let source = &line[panel * width..];
                        // A whole line has a length that is known.
                        if source.len() >= width {
                            out.copy_from_slice(&source[..width]);
                        } else {
                            out[..source.len()].copy_from_slice(source);
                        }
                    }
                }
            }
            let low = low.filter(|_| first + deep == depth);
            for panel in panels.clone() {
                let from = panel * width - origin;
                let columns = from..from + width.min(all - panel * width);
                let dense = match base {
                    StripBase::Rows(_) => &values[(panel - panels.start) * block..][..deep * width],
                    StripBase::Panels(base) => base.block(panel, first, deep),
                };
                let (dense, _) = S::as_simd_f32s(dense);
                let start = Start::new(bias.map(|bias| &bias[origin..]), first > 0 || adds);
                let up = low.map(|low| {
                    let rank = low.up[0].depth();
                    S::as_simd_f32s(low.up[0].block(panel, 0, rank)).0
                });
                let panel = Panel::<S> { dense, up, columns, start };
                let (x, hidden) = (self.x, self.hidden);
                panel.meet::<MR, NV>(simd, [&x.whole, &hidden.whole], [first, depth], whole);
                panel.meet::<REST, NV>(simd, [&x.rest, &hidden.rest], [first, depth], rest);
            }
        }
    }
}

impl<S: Simd> Panel<'_, S> {
    /// Adds the products with all tiles of `x` and `hidden`, of which those of `x` are at `first` of their `depth`.
    #[inline(always)]
    fn meet<const MR: usize, const NV: usize>(
        &self,
        simd: S,
        [x, hidden]: [&[f32]; 2],
        [first, depth]: [usize; 2],
        out: &mut [&mut [f32]],
    ) {
        let deep = self.dense.len() / NV;
        for (tile, rows) in out.chunks_mut(MR).enumerate() {
            let (x, _) = x[(tile * depth + first) * MR..][..deep * MR].as_chunks::<MR>();
            let mut sums = accumulate::<S, MR, NV>(simd, zeros(simd), x, self.dense);
            if let Some(up) = self.up {
                let rank = up.len() / NV;
                let (hidden, _) = hidden[tile * rank * MR..][..rank * MR].as_chunks::<MR>();
                sums = accumulate::<S, MR, NV>(simd, sums, hidden, up);
            }
            let rows = rows.iter_mut().map(|row| &mut **row);
            store(simd, sums, rows, self.columns.clone(), self.start);
        }
    }
}
