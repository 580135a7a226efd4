//! Products of dense matrices with a low-rank part beside them.
//!
//! Every element of a result is a chain of fused multiply-adds over the depth, cut at multiples of
//! [`DEPTH`]: the bits depend neither on the number of threads nor on the width of the vectors.

#![expect(clippy::inline_always, reason = "kernels are compiled for a vector width as a whole")]

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::panels::{Matrix, Panels, lanes};

/// Depth of a block: a panel of it and the rows that meet it fit the first caches.
pub(super) const DEPTH: usize = 192;
/// Rows that meet all panels of a block before the next rows: they and their results stay in the first caches, and their
/// pages in the table of pages.
const NEAR: usize = 48;
/// Rows of the tiles that end a task.
pub(super) const REST: usize = 4;
/// Numbers of the widest tile's row.
const WIDEST: usize = 32;
/// Multiplications below which a product stays on the calling thread.
pub(super) const SMALL: usize = 1 << 18;

/// Columns of a panel of the dense matrix on this machine.
pub(crate) fn panel_width() -> usize {
    match lanes() {
        4 => 16,
        lanes => 2 * lanes,
    }
}

/// `matrix` as the right side of a [`Product`].
pub(crate) fn pack_wide(matrix: Matrix<'_>) -> Panels {
    Panels::pack(matrix, panel_width())
}

/// `x·base` on the calling thread.
pub(crate) fn product(x: Matrix<'_>, base: &Panels) -> Vec<f32> {
    let mut out = vec![0.0; x.rows * base.columns];
    Product::plain(x, base).run_here(&mut out);
    out
}

/// `out = x·base + bias + hidden·up`, `hidden = scale · x·down`, for rows in groups of equal size with
/// separate factors.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// `[rows, depth]`.
    pub(crate) x: Matrix<'a>,
    /// `[depth, columns]` in panels of [`panel_width`]; without it only `hidden` is computed.
    pub(crate) base: Option<&'a Panels>,
    /// `[columns]`.
    pub(crate) bias: Option<&'a [f32]>,
    /// The low-rank part.
    pub(crate) low: Option<Low<'a>>,
    /// `true` if the products are added to `out` and `hidden`, without a bias.
    pub(crate) adds: bool,
}

/// Factors of each group of rows.
#[derive(Clone, Copy)]
pub(crate) struct Low<'a> {
    /// `[depth, rank]` each, in panels of one vector.
    pub(crate) down: &'a [Panels],
    /// `[rank, columns]` each, in panels of [`panel_width`]; not read without a base.
    pub(crate) up: &'a [Panels],
    pub(crate) scale: f32,
}

impl<'a> Product<'a> {
    /// `x·base` alone.
    pub(crate) fn plain(x: Matrix<'a>, base: &'a Panels) -> Self {
        Self { x, base: Some(base), bias: None, low: None, adds: false }
    }

    /// A product that is added to the output.
    pub(crate) fn added(self) -> Self {
        Self { adds: true, ..self }
    }

    fn columns(&self) -> usize {
        self.base.map_or(0, |base| base.columns)
    }

    fn rank(&self) -> usize {
        self.low.map_or(0, |low| low.down.first().map_or(0, |down| down.columns))
    }

    /// Writes `out`, `[rows, columns]`, and `hidden`, `[rows, rank]`; both start at zero, or at
    /// what is added to.
    pub(crate) fn run(self, out: &mut [f32], hidden: &mut [f32]) {
        let (columns, rank) = (self.columns(), self.rank());
        let groups = self.low.map_or(1, |low| low.down.len());
        let (rows, depth) = (self.x.rows, self.x.columns);
        if rows == 0 || columns + rank == 0 || groups == 0 {
            return;
        }
        let small = rows * depth * (columns + rank) < SMALL;
        let per_group = rows / groups;
        // Four tasks for each thread even out their ends; tiles of twelve or six rows are whole.
        let threads = if small { 1 } else { rayon::current_num_threads() };
        let per_task = rows.div_ceil(4 * threads).next_multiple_of(12).min(per_group);
        let mut tasks = Vec::new();
        let (mut out, mut hidden) = (out, hidden);
        for group in 0..groups {
            let mut first = 0;
            while first < per_group {
                let count = per_task.min(per_group - first);
                let (out_part, out_rest) = out.split_at_mut(count * columns);
                let (hidden_part, hidden_rest) = hidden.split_at_mut(count * rank);
                (out, hidden) = (out_rest, hidden_rest);
                let x = self.x.part(group * per_group + first, count);
                tasks.push(Rows { product: self, group, x, out: out_part, hidden: hidden_part });
                first += count;
            }
        }
        let arch = Arch::new();
        if small {
            for task in tasks {
                arch.dispatch(InTiles(task));
            }
        } else {
            tasks.into_par_iter().for_each(|task| arch.dispatch(InTiles(task)));
        }
    }

    /// Writes `out` on the calling thread; without a low-rank part.
    pub(crate) fn run_here(self, out: &mut [f32]) {
        if self.x.rows > 0 {
            let rows = Rows { product: self, group: 0, x: self.x, out, hidden: &mut [] };
            Arch::new().dispatch(InTiles(rows));
        }
    }
}

/// Some rows of one group.
struct Rows<'a> {
    product: Product<'a>,
    group: usize,
    x: Matrix<'a>,
    out: &'a mut [f32],
    hidden: &'a mut [f32],
}

/// A computation in tiles.
pub(super) trait Tiled {
    type Output;

    /// With tiles of `MR` rows and `NV` vectors; a rest of rows is in tiles of [`REST`].
    fn run<S: Simd, const MR: usize, const NV: usize>(self, simd: S) -> Self::Output;
}

/// A computation in the tiles that the registers of a vector width hold.
pub(super) struct InTiles<T>(pub(super) T);

impl<T: Tiled> WithSimd for InTiles<T> {
    type Output = T::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> T::Output {
        match S::F32_LANES {
            16 => self.0.run::<S, 12, 2>(simd),
            4 => self.0.run::<S, 6, 4>(simd),
            // Eight numbers, or one at a time, which no machine of ours does.
            _ => self.0.run::<S, 6, 2>(simd),
        }
    }
}

impl Tiled for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const MR: usize, const NV: usize>(self, simd: S) {
        let rows = self.x.rows;
        let whole = rows / MR * MR;
        let (x, x_rest) = (self.x.part(0, whole), self.x.part(whole, rows - whole));
        let (out, out_rest) = self.out.split_at_mut(whole * self.product.columns());
        let (hidden, hidden_rest) = self.hidden.split_at_mut(whole * self.product.rank());
        let (product, group) = (self.product, self.group);
        Rows { product, group, x, out, hidden }.tiles::<S, MR, NV>(simd);
        Rows { product, group, x: x_rest, out: out_rest, hidden: hidden_rest }
            .tiles::<S, REST, NV>(simd);
    }
}

impl Rows<'_> {
    /// The rows in tiles of `MR`; the last one repeats its last row.
    #[inline(always)]
    fn tiles<S: Simd, const MR: usize, const NV: usize>(self, simd: S) {
        let Self { product: Product { base, bias, low, adds, .. }, group, x, out, hidden } = self;
        let (rows, depth, rank) = (x.rows, x.columns, self.product.rank());
        if rows == 0 {
            return;
        }
        let tiles = rows.div_ceil(MR);
        // Packed for one panel, rows would be read once more than the product reads them.
        let in_place = base.is_none() && rank <= S::F32_LANES && x.strides[1] == 1;
        let packs = if in_place { 0 } else { tiles * DEPTH.min(depth) };
        let mut packed = vec![[0.0f32; MR]; packs];
        let mut packed_hidden = vec![[0.0f32; MR]; tiles * rank];
        for first in (0..depth).step_by(DEPTH) {
            let deep = DEPTH.min(depth - first);
            let last = first + deep == depth;
            for (tile, packed) in packed.chunks_exact_mut(deep).take(tiles).enumerate() {
                pack(x.part((tile * MR).min(rows), MR.min(rows - tile * MR)), first, packed);
            }
            let tile_of = |tile: usize| &packed[tile * deep..][..deep];
            if let Some(low) = low {
                let down = &low.down[group];
                for panel in 0..down.count() {
                    let (factor, _) = S::as_simd_f32s(down.block(panel, first, deep));
                    let columns = panel * down.width..rank.min((panel + 1) * down.width);
                    for tile in 0..tiles {
                        let sums = if in_place {
                            let row =
                                |i: usize| (tile * MR + i).min(rows - 1) * x.strides[0] + first;
                            let lines = std::array::from_fn(|i| &x.values[row(i)..][..deep]);
                            accumulate_lines::<S, MR>(simd, lines, factor)
                        } else {
                            accumulate::<S, MR, 1>(simd, zeros(simd), tile_of(tile), factor)
                        };
                        let hidden = &mut packed_hidden[tile * rank..][..rank][columns.clone()];
                        add_columns::<S, MR>(sums, hidden);
                    }
                }
                if last {
                    for value in packed_hidden.as_flattened_mut() {
                        *value *= low.scale;
                    }
                    for (row, hidden) in hidden.chunks_exact_mut(rank.max(1)).enumerate() {
                        let tile = &mut packed_hidden[row / MR * rank..][..rank];
                        for (hidden, column) in hidden.iter_mut().zip(tile) {
                            if adds {
                                column[row % MR] += *hidden;
                            }
                            *hidden = column[row % MR];
                        }
                    }
                }
            }
            let Some(base) = base else { continue };
            for near in (0..tiles).step_by(NEAR / MR) {
                for panel in 0..base.count() {
                    let (dense, _) = S::as_simd_f32s(base.block(panel, first, deep));
                    let columns = panel * base.width..base.columns.min((panel + 1) * base.width);
                    for tile in near..tiles.min(near + NEAR / MR) {
                        let mut sums = accumulate(simd, zeros(simd), tile_of(tile), dense);
                        if let (true, Some(low)) = (last, low) {
                            let (up, _) = S::as_simd_f32s(low.up[group].block(panel, 0, rank));
                            let hidden = &packed_hidden[tile * rank..][..rank];
                            sums = accumulate::<S, MR, NV>(simd, sums, hidden, up);
                        }
                        let live = MR.min(rows - tile * MR);
                        let out = &mut out[tile * MR * base.columns..][..live * base.columns];
                        let start = Start::new(bias, first > 0 || adds);
                        let out = out.chunks_exact_mut(base.columns);
                        store(simd, sums, out, columns.clone(), start);
                    }
                }
            }
        }
    }
}

/// Columns `first..` of a tile's rows side by side, the last row repeated.
#[inline(always)]
pub(super) fn pack<const MR: usize>(x: Matrix<'_>, first: usize, packed: &mut [[f32; MR]]) {
    let [down, along] = x.strides;
    if along == 1 {
        let source: [&[f32]; MR] =
            std::array::from_fn(|i| &x.values[i.min(x.rows - 1) * down + first..][..packed.len()]);
        for (p, packed) in packed.iter_mut().enumerate() {
            for i in 0..MR {
                packed[i] = source[i][p];
            }
        }
    } else if down == 1 && x.rows == MR {
        for (p, packed) in packed.iter_mut().enumerate() {
            packed.copy_from_slice(&x.values[(first + p) * along..][..MR]);
        }
    } else {
        for (p, packed) in packed.iter_mut().enumerate() {
            for (i, value) in packed.iter_mut().enumerate() {
                *value = x.values[(first + p) * along + i.min(x.rows - 1) * down];
            }
        }
    }
}

#[inline(always)]
pub(super) fn zeros<S: Simd, const MR: usize, const NV: usize>(simd: S) -> [[S::f32s; NV]; MR] {
    [[simd.splat_f32s(0.0); NV]; MR]
}

/// `sums[i] += Σ_p x[p][i] · panel[p]`.
#[inline(always)]
pub(super) fn accumulate<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    mut sums: [[S::f32s; NV]; MR],
    x: &[[f32; MR]],
    panel: &[S::f32s],
) -> [[S::f32s; NV]; MR] {
    let (panel, _) = panel.as_chunks::<NV>();
    for (vectors, x) in panel.iter().zip(x) {
        for i in 0..MR {
            let factor = simd.splat_f32s(x[i]);
            for v in 0..NV {
                sums[i][v] = simd.mul_add_f32s(factor, vectors[v], sums[i][v]);
            }
        }
    }
    sums
}

/// `Σ_p x[i][p] · panel[p]`.
#[inline(always)]
fn accumulate_lines<S: Simd, const MR: usize>(
    simd: S,
    x: [&[f32]; MR],
    panel: &[S::f32s],
) -> [[S::f32s; 1]; MR] {
    let (mut sums, x) = (zeros::<S, MR, 1>(simd), x.map(|line| &line[..panel.len()]));
    for (p, &vector) in panel.iter().enumerate() {
        for i in 0..MR {
            let factor = simd.splat_f32s(x[i][p]);
            sums[i][0] = simd.mul_add_f32s(factor, vector, sums[i][0]);
        }
    }
    sums
}

/// Adds a tile to columns that are stored with their rows side by side.
#[inline(always)]
fn add_columns<S: Simd, const MR: usize>(sums: [[S::f32s; 1]; MR], columns: &mut [[f32; MR]]) {
    let mut row = [0.0f32; WIDEST];
    for (i, sums) in sums.iter().enumerate() {
        let (vectors, _) = S::as_mut_simd_f32s(&mut row[..S::F32_LANES]);
        vectors.copy_from_slice(sums);
        for (column, &value) in columns.iter_mut().zip(&row) {
            column[i] += value;
        }
    }
}

/// Summand of a tile.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    There,
    Zero,
    Bias(&'a [f32]),
}

impl<'a> Start<'a> {
    /// Nothing or a `bias`, unless the output holds the summand.
    pub(super) fn new(bias: Option<&'a [f32]>, is_there: bool) -> Self {
        match bias {
            _ if is_there => Self::There,
            Some(bias) => Self::Bias(bias),
            None => Self::Zero,
        }
    }
}

/// Adds a tile to `columns` of the rows of the output, or writes it there at the `start`.
#[inline(always)]
pub(super) fn store<'o, S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    sums: [[S::f32s; NV]; MR],
    rows: impl Iterator<Item = &'o mut [f32]>,
    columns: std::ops::Range<usize>,
    start: Start<'_>,
) {
    if columns.len() == NV * S::F32_LANES {
        for (row, sums) in rows.zip(&sums) {
            let (row, _) = S::as_mut_simd_f32s(&mut row[columns.clone()]);
            let row = &mut row[..NV];
            match start {
                Start::There => {
                    for v in 0..NV {
                        row[v] = simd.add_f32s(row[v], sums[v]);
                    }
                }
                Start::Zero => row.copy_from_slice(sums),
                Start::Bias(bias) => {
                    let (bias, _) = S::as_simd_f32s(&bias[columns.clone()]);
                    let bias = &bias[..NV];
                    for v in 0..NV {
                        row[v] = simd.add_f32s(sums[v], bias[v]);
                    }
                }
            }
        }
        return;
    }
    let mut line = [0.0f32; WIDEST];
    for (row, sums) in rows.zip(&sums) {
        let (vectors, _) = S::as_mut_simd_f32s(&mut line[..NV * S::F32_LANES]);
        vectors.copy_from_slice(sums);
        for (c, (out, &sum)) in columns.clone().zip(row[columns.clone()].iter_mut().zip(&line)) {
            *out = match start {
                Start::There => *out + sum,
                Start::Zero => sum,
                Start::Bias(bias) => sum + bias[c],
            };
        }
    }
}
