//! Products of a few rows: sums over tokens for the gradients of low-rank factors.

#![expect(clippy::inline_always, reason = "kernels are compiled for a vector width as a whole")]

use pulp::{Arch, Simd, WithSimd};

use super::run;

/// Columns of a task.
const COLUMNS: usize = 256;
/// Rows of `v` that stay in the first cache while all of `u` meets them.
const ROWS: usize = 32;
/// Columns of `u` that are summed together.
const RANKS: usize = 8;

/// `uᵀ·v` for each of `groups` equal parts of the rows, `[groups, rank, columns]`.
///
/// `u` is `[rows, rank]`, `v` is `[rows, columns]`. Every sum runs over the rows in order: the bits
/// depend neither on the number of threads nor on the width of the vectors.
pub(crate) fn transposed_product(
    u: &[f32],
    v: &[f32],
    rank: usize,
    columns: usize,
    groups: usize,
) -> Vec<f32> {
    let mut out = vec![0.0; groups * rank * columns];
    if out.is_empty() || u.is_empty() {
        return out;
    }
    let rows = u.len() / rank / groups;
    let arch = Arch::new();
    let tasks = (0..groups)
        .flat_map(|group| (0..columns).step_by(COLUMNS).map(move |first| (group, first)))
        .collect();
    let parts = run(tasks, |(group, first)| {
        let width = COLUMNS.min(columns - first);
        let mut part = vec![0.0; rank * width];
        let u = &u[group * rows * rank..][..rows * rank];
        let v = &v[group * rows * columns..][..rows * columns];
        arch.dispatch(Part { u, v, rank, columns, first, width, out: &mut part });
        (group * rank * columns + first, part)
    });
    for (start, part) in parts {
        let width = part.len() / rank;
        for (i, row) in part.chunks_exact(width).enumerate() {
            out[start + i * columns..][..width].copy_from_slice(row);
        }
    }
    out
}

/// The columns `first..first + width` of one group's product.
struct Part<'a> {
    u: &'a [f32],
    v: &'a [f32],
    rank: usize,
    columns: usize,
    first: usize,
    width: usize,
    out: &'a mut [f32],
}

impl WithSimd for Part<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for (u, v) in self.u.chunks(ROWS * self.rank).zip(self.v.chunks(ROWS * self.columns)) {
            let mut done = 0;
            while done + RANKS <= self.rank {
                self.add::<S, RANKS>(simd, u, v, done);
                done += RANKS;
            }
            let rest = self.rank - done;
            if rest & 4 != 0 {
                self.add::<S, 4>(simd, u, v, done);
                done += 4;
            }
            if rest & 2 != 0 {
                self.add::<S, 2>(simd, u, v, done);
                done += 2;
            }
            if rest & 1 != 0 {
                self.add::<S, 1>(simd, u, v, done);
            }
        }
    }
}

impl Part<'_> {
    /// Adds what the rows of `u` and `v` give to `R` rows of the result from `at` on.
    #[inline(always)]
    fn add<S: Simd, const R: usize>(&mut self, simd: S, u: &[f32], v: &[f32], at: usize) {
        let lanes = S::F32_LANES;
        let whole = self.width / lanes * lanes;
        for c in (0..whole).step_by(lanes) {
            let mut sums: [S::f32s; R] = std::array::from_fn(|i| {
                let (vector, _) = S::as_simd_f32s(&self.out[(at + i) * self.width + c..][..lanes]);
                vector[0]
            });
            for (u, v) in u.chunks_exact(self.rank).zip(v.chunks_exact(self.columns)) {
                let (vector, _) = S::as_simd_f32s(&v[self.first + c..][..lanes]);
                let vector = vector[0];
                let u = &u[at..][..R];
                for i in 0..R {
                    sums[i] = simd.mul_add_f32s(simd.splat_f32s(u[i]), vector, sums[i]);
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                let out = &mut self.out[(at + i) * self.width + c..][..lanes];
                let (vector, _) = S::as_mut_simd_f32s(out);
                vector[0] = sum;
            }
        }
        for i in at..at + R {
            for c in whole..self.width {
                let out = &mut self.out[i * self.width + c];
                for (u, v) in u.chunks_exact(self.rank).zip(v.chunks_exact(self.columns)) {
                    *out = u[i].mul_add(v[self.first + c], *out);
                }
            }
        }
    }
}
