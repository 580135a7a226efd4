//! Products and decompositions of small matrices: flat row-major slices and their sizes.
//!
//! Every routine is deterministic to the last bit, signs of singular vectors included: the start of `ScalaBL` and rotated factors
//! depend on them. (A library's decomposition has other signs in nearly half of the vectors, and differs by up to 1e-11.) Sizes
//! are checked by `assert!`: a mismatch is a bug of this crate, since every public formula checks its slices first.

#![allow(clippy::missing_panics_doc, reason = "of sizes; see above")]

use crate::error::{Error, check_length};

/// `x · wᵀ` for `x [n, k]` and `w [m, k]`; the result is `[n, m]`.
pub fn times_transposed(x: &[f64], w: &[f64], n: usize, k: usize, m: usize) -> Vec<f64> {
    assert!(x.len() == n * k && w.len() == m * k, "sizes of a product");
    let mut out = vec![0.0; n * m];
    for (row, x_row) in rows(x, n, k).enumerate() {
        for (col, w_row) in rows(w, m, k).enumerate() {
            out[row * m + col] = dot(x_row, w_row);
        }
    }
    out
}

/// `x · w` for `x [n, k]` and `w [k, m]`; the result is `[n, m]`.
pub fn times(x: &[f64], w: &[f64], n: usize, k: usize, m: usize) -> Vec<f64> {
    assert!(x.len() == n * k && w.len() == k * m, "sizes of a product");
    let mut out = vec![0.0; n * m];
    for row in 0..n {
        let out_row = &mut out[row * m..(row + 1) * m];
        for inner in 0..k {
            let factor = x[row * k + inner];
            for (o, v) in out_row.iter_mut().zip(&w[inner * m..(inner + 1) * m]) {
                *o += factor * v;
            }
        }
    }
    out
}

/// `gᵀ · x` for `g [n, r]` and `x [n, d]`; the result is `[r, d]`.
pub fn transposed_times(g: &[f64], x: &[f64], n: usize, r: usize, d: usize) -> Vec<f64> {
    assert!(g.len() == n * r && x.len() == n * d, "sizes of a product");
    let mut out = vec![0.0; r * d];
    for row in 0..n {
        let x_row = &x[row * d..(row + 1) * d];
        for i in 0..r {
            let factor = g[row * r + i];
            for (o, v) in out[i * d..(i + 1) * d].iter_mut().zip(x_row) {
                *o += factor * v;
            }
        }
    }
    out
}

/// The transpose `[cols, rows]` of a matrix `[rows, cols]`.
pub fn transpose(matrix: &[f64], n_rows: usize, n_cols: usize) -> Vec<f64> {
    assert_eq!(matrix.len(), n_rows * n_cols, "sizes of a transpose");
    let mut out = vec![0.0; matrix.len()];
    for row in 0..n_rows {
        for col in 0..n_cols {
            out[col * n_rows + row] = matrix[row * n_cols + col];
        }
    }
    out
}

/// Scalar product.
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| a * b).sum()
}

/// Euclidean length.
pub fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

/// Entrywise square.
pub(crate) fn squared(x: &[f64]) -> Vec<f64> {
    x.iter().map(|v| v * v).collect()
}

/// The rows of a matrix; `n` empty slices if it has no columns.
pub(crate) fn rows(matrix: &[f64], n: usize, width: usize) -> impl Iterator<Item = &[f64]> {
    (0..n).map(move |row| &matrix[row * width..(row + 1) * width])
}

/// The identity matrix `[size, size]`.
pub fn identity(size: usize) -> Vec<f64> {
    let mut out = vec![0.0; size * size];
    for i in 0..size {
        out[i * size + i] = 1.0;
    }
    out
}

/// `factor · values`.
pub(crate) fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    values.iter().map(|v| factor * v).collect()
}

/// The lower triangular factor `L` of a symmetric positive definite matrix, `matrix = L·Lᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cholesky {
    lower: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// Factors a row-major matrix `[size, size]`, of which the lower triangle is read.
    pub fn new(name: &'static str, matrix: &[f64], size: usize) -> Result<Self, Error> {
        assert_eq!(matrix.len(), size * size, "sizes of a factorisation");
        let mut lower = vec![0.0; size * size];
        for row in 0..size {
            for col in 0..=row {
                let known: f64 =
                    (0..col).map(|k| lower[row * size + k] * lower[col * size + k]).sum();
                let rest = matrix[row * size + col] - known;
                lower[row * size + col] = if col < row {
                    rest / lower[col * size + col]
                } else if rest > 0.0 && rest.is_finite() {
                    rest.sqrt()
                } else {
                    return Err(Error::undefined(name, "is not positive definite"));
                };
            }
        }
        Ok(Self { lower, size })
    }

    /// The factorisation with the factor `lower`, `[size, size]`, row-major.
    pub fn from_lower(name: &'static str, lower: Vec<f64>, size: usize) -> Result<Self, Error> {
        check_length(name, lower.len(), size * size)?;
        let positive = |pivot: &f64| *pivot > 0.0 && pivot.is_finite();
        if !lower.iter().step_by(size + 1).all(positive) {
            return Err(Error::undefined(name, "has a pivot that is not positive"));
        }
        Ok(Self { lower, size })
    }

    /// Rows of the matrix.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The factor, `[size, size]`, row-major, zero above the diagonal.
    pub fn lower(&self) -> &[f64] {
        &self.lower
    }

    /// `L · z`, which turns standard-normal numbers into ones with the matrix as covariance.
    pub fn lower_times(&self, z: &[f64]) -> Vec<f64> {
        assert_eq!(z.len(), self.size, "sizes of a product");
        (0..self.size)
            .map(|row| (0..=row).map(|col| self.lower[row * self.size + col] * z[col]).sum())
            .collect()
    }

    /// The solution of `L · x = right`.
    pub fn lower_solve(&self, right: &[f64]) -> Vec<f64> {
        assert_eq!(right.len(), self.size, "sizes of a solution");
        let mut x = right.to_vec();
        for row in 0..self.size {
            let known: f64 = (0..row).map(|k| self.lower[row * self.size + k] * x[k]).sum();
            x[row] = (x[row] - known) / self.lower[row * self.size + row];
        }
        x
    }
}

/// Sweeps after which a non-finite matrix is abandoned; ten suffice for any other.
const MAX_SWEEPS: usize = 60;

/// An eigen-decomposition `matrix = Σ_k values[k] · v_k v_kᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct SymmetricEigen {
    /// Eigenvalues `[size]`, largest first.
    pub values: Vec<f64>,
    /// Orthonormal eigenvectors as rows, `[size, size]`.
    pub vectors: Vec<f64>,
}

/// Eigen-decomposition of a symmetric row-major matrix `[size, size]`.
///
/// Only the average of the matrix and its transpose is seen.
///
/// Cyclic Jacobi rotations: the residual and the loss of orthogonality stay at a few `ε·‖matrix‖`.
/// Eigenvalues of a singular matrix come out within that of 0, of either sign.
pub fn symmetric_eigen(matrix: &[f64], size: usize) -> SymmetricEigen {
    assert_eq!(matrix.len(), size * size, "sizes of a decomposition");
    let mut work: Vec<f64> =
        matrix.iter().zip(transpose(matrix, size, size)).map(|(a, b)| 0.5 * (a + b)).collect();
    let mut vectors = identity(size);
    let total = work.iter().map(|v| v * v).sum::<f64>().sqrt();
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for i in 0..size {
            for j in i + 1..size {
                let off = work[i * size + j];
                if off.is_nan() || off.abs() <= 0.5 * f64::EPSILON * total / size as f64 {
                    continue;
                }
                rotated = true;
                let angle = rotation_angle(work[i * size + i], work[j * size + j], off);
                rotate_pair(&mut vectors, size, (i, j), angle);
                rotate_pair(&mut work, size, (i, j), angle);
                for row in work.chunks_exact_mut(size) {
                    (row[i], row[j]) = rotate(row[i], row[j], angle);
                }
            }
        }
        if !rotated {
            break;
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&i, &j| work[j * size + j].total_cmp(&work[i * size + i]));
    SymmetricEigen {
        values: order.iter().map(|&i| work[i * size + i]).collect(),
        vectors: order.iter().flat_map(|&i| vectors[i * size..(i + 1) * size].to_vec()).collect(),
    }
}

/// Cosine and sine of the rotation that makes the off-diagonal entry of `[[ii, ij], [ij, jj]]` zero.
fn rotation_angle(ii: f64, jj: f64, ij: f64) -> (f64, f64) {
    let slope = (jj - ii) / (2.0 * ij);
    let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    (cosine, cosine * tangent)
}

/// A thin singular value decomposition `matrix = u · diag(values) · vᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Svd {
    /// Left singular vectors as rows, `[k, rows]` with `k = min(rows, cols)`; zero where the
    /// singular value is zero.
    pub left: Vec<f64>,
    /// Singular values `[k]`, largest first.
    pub values: Vec<f64>,
    /// Right singular vectors as rows, `[k, cols]`.
    pub right: Vec<f64>,
}

/// Thin singular value decomposition of a row-major matrix `[n_rows, n_cols]`.
///
/// One-sided Jacobi rotations on the shorter side: slow for large matrices, but small singular
/// values come out with small relative error, which methods on the Gram matrix cannot give.
pub fn svd(matrix: &[f64], n_rows: usize, n_cols: usize) -> Svd {
    assert_eq!(matrix.len(), n_rows * n_cols, "sizes of a decomposition");
    if n_rows < n_cols {
        // Vectors to be rotated are the rows themselves: matrix = (rotation)ᵀ · (rotated rows).
        let (rotated, rotation) = rotate_rows(matrix.to_vec(), n_rows, n_cols);
        let (values, right, left) = split_lengths(rotated, rotation, n_rows, n_cols);
        Svd { left, values, right }
    } else {
        let (rotated, rotation) = rotate_rows(transpose(matrix, n_rows, n_cols), n_cols, n_rows);
        let (values, left, right) = split_lengths(rotated, rotation, n_cols, n_rows);
        Svd { left, values, right }
    }
}

/// Rotates the `k` rows of length `width` until they are orthogonal; returns them and the rotation.
fn rotate_rows(mut work: Vec<f64>, k: usize, width: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rotation = identity(k);
    for _ in 0..MAX_SWEEPS {
        let mut rotated = false;
        for i in 0..k {
            for j in i + 1..k {
                let (mut ii, mut jj, mut ij) = (0.0, 0.0, 0.0);
                for c in 0..width {
                    let (p, q) = (work[i * width + c], work[j * width + c]);
                    ii += p * p;
                    jj += q * q;
                    ij += p * q;
                }
                if ij.is_nan() || ij.abs() <= f64::EPSILON * (ii * jj).sqrt() {
                    continue;
                }
                rotated = true;
                let angle = rotation_angle(ii, jj, ij);
                rotate_pair(&mut work, width, (i, j), angle);
                rotate_pair(&mut rotation, k, (i, j), angle);
            }
        }
        if !rotated {
            break;
        }
    }
    (work, rotation)
}

/// Applies one rotation to the rows `i` and `j`.
fn rotate_pair(rows: &mut [f64], width: usize, (i, j): (usize, usize), angle: (f64, f64)) {
    for (at_i, at_j) in (i * width..(i + 1) * width).zip(j * width..) {
        (rows[at_i], rows[at_j]) = rotate(rows[at_i], rows[at_j], angle);
    }
}

fn rotate(p: f64, q: f64, (cosine, sine): (f64, f64)) -> (f64, f64) {
    (cosine * p - sine * q, sine * p + cosine * q)
}

/// Splits orthogonal rows into lengths and directions, longest first.
fn split_lengths(
    rotated: Vec<f64>,
    rotation: Vec<f64>,
    k: usize,
    width: usize,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let lengths: Vec<f64> = (0..k).map(|i| norm(&rotated[i * width..(i + 1) * width])).collect();
    let mut order: Vec<usize> = (0..k).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let mut values = Vec::with_capacity(k);
    let mut directions = Vec::with_capacity(k * width);
    let mut rotations = Vec::with_capacity(k * k);
    for i in order {
        values.push(lengths[i]);
        let inverse = if lengths[i] > 0.0 { 1.0 / lengths[i] } else { 0.0 };
        directions.extend(rotated[i * width..(i + 1) * width].iter().map(|v| v * inverse));
        rotations.extend_from_slice(&rotation[i * k..(i + 1) * k]);
    }
    (values, directions, rotations)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::assert_near;

    #[test]
    fn a_cholesky_factor_by_hand_and_what_is_not_positive_definite() {
        // L = [[2], [1, 3], [-1, 1, 2]].
        let matrix = [4.0, 2.0, -2.0, 2.0, 10.0, 2.0, -2.0, 2.0, 6.0];
        let root = Cholesky::new("m", &matrix, 3).unwrap();
        assert_eq!(root.lower(), [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 1.0, 2.0]);
        assert_eq!(times_transposed(root.lower(), root.lower(), 3, 3, 3), matrix);
        assert_eq!(root.lower_times(&[1.0, 2.0, 3.0]), [2.0, 7.0, 7.0]);
        assert_eq!(root.lower_solve(&[2.0, 7.0, 7.0]), [1.0, 2.0, 3.0]);
        for matrix in [[1.0, 2.0, 2.0, 4.0], [1.0, 2.0, 2.0, 1.0], [0.0; 4], [f64::NAN; 4]] {
            let error = Error::undefined("m", "is not positive definite");
            assert_eq!(Cholesky::new("m", &matrix, 2), Err(error));
        }
        assert!(Cholesky::new("m", &[], 0).unwrap().lower().is_empty());
    }

    /// `Σ_k values[k] · u_k v_kᵀ`.
    fn rebuild(values: &[f64], left: &[f64], right: &[f64]) -> Vec<f64> {
        let k = values.len();
        let (n_rows, n_cols) = (left.len() / k, right.len() / k);
        let scaled: Vec<f64> =
            left.iter().enumerate().map(|(at, v)| values[at / n_rows] * v).collect();
        transposed_times(&scaled, right, k, n_rows, n_cols)
    }

    fn check(matrix: &[f64], size: usize) -> Vec<f64> {
        let found = symmetric_eigen(matrix, size);
        assert!(found.values.windows(2).all(|w| w[0] >= w[1]), "{:?}", found.values);
        let scale = matrix.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
        let rebuilt = rebuild(&found.values, &found.vectors, &found.vectors);
        assert_near(&rebuilt, matrix, 1e-13 * scale);
        let gram = times_transposed(&found.vectors, &found.vectors, size, size, size);
        assert_near(&gram, &identity(size), 1e-13);
        found.values
    }

    #[test]
    fn known_spectra() {
        // [[2, 1], [1, 2]]: 3 and 1. [[0, 1], [1, 0]]: 1 and -1.
        for (matrix, expected) in
            [([2.0, 1.0, 1.0, 2.0], [3.0, 1.0]), ([0.0, 1.0, 1.0, 0.0], [1.0, -1.0])]
        {
            assert_near(&check(&matrix, 2), &expected, 1e-15);
        }
        // Second difference matrix of size n: 2 − 2·cos(kπ/(n+1)).
        let n = 7;
        let mut matrix = vec![0.0; n * n];
        for i in 0..n {
            matrix[i * n + i] = 2.0;
            if i + 1 < n {
                matrix[i * n + i + 1] = -1.0;
                matrix[(i + 1) * n + i] = -1.0;
            }
        }
        for (k, f) in check(&matrix, n).iter().rev().enumerate() {
            let expected = 2.0 - 2.0 * (std::f64::consts::PI * (k + 1) as f64 / 8.0).cos();
            assert!((f - expected).abs() < 1e-14, "{f}, expected {expected}");
        }
    }

    #[test]
    fn singular_repeated_large_and_empty() {
        // The outer product of (1, 2, 3): 14 and twice 0.
        let values = check(&[1.0, 2.0, 3.0, 2.0, 4.0, 6.0, 3.0, 6.0, 9.0], 3);
        assert!((values[0] - 14.0).abs() < 1e-13 && values[2].abs() < 1e-14);
        assert_eq!(check(&identity(4), 4), [1.0; 4]);
        assert_eq!(check(&[0.0; 9], 3), [0.0; 3]);
        let size = 40;
        let matrix: Vec<f64> = (0..size * size)
            .map(|at| {
                let (i, j) = (at / size, at % size);
                ((i * j) as f64).sin() + ((i + j) as f64).cos() * 1e3
            })
            .collect();
        check(&matrix, size);
        assert!(symmetric_eigen(&[], 0).values.is_empty());
        assert!(symmetric_eigen(&[f64::NAN], 1).values[0].is_nan());
    }

    #[test]
    fn rebuilds_tall_wide_square_and_deficient_matrices() {
        let data = [2.0, -1.0, 0.5, 4.0, 1.5, -3.0, 0.25, 2.25, 1.0, -2.0, 0.125, 6.0];
        for (n_rows, n_cols) in [(4, 3), (3, 4), (2, 6), (12, 1), (1, 12)] {
            let found = svd(&data, n_rows, n_cols);
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
            assert_near(&rebuild(&found.values, &found.left, &found.right), &data, 1e-13);
        }
        let flat = svd(&[1.0, 2.0, 2.0, 4.0], 2, 2);
        assert!((flat.values[0] - 5.0).abs() < 1e-14 && flat.values[1] < 1e-15);
        assert!(svd(&[], 0, 4).values.is_empty());
    }

    #[test]
    fn small_singular_values_keep_relative_accuracy() {
        // [[1, 1], [1, 1 + 2e-9]]: determinant 2e-9, so the product of the values is 2e-9.
        let found = svd(&[1.0, 1.0, 1.0, 1.0 + 2e-9], 2, 2);
        let determinant = (1.0 + 2e-9) - 1.0;
        assert!((found.values[0] * found.values[1] / determinant - 1.0).abs() < 1e-6);
    }
}
