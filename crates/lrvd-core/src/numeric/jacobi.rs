//! Eigenvalues and singular values of small matrices by Jacobi rotations.

use super::dense::{identity, norm, transpose};

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
/// # Numerics
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
                    (row[i], row[j]) = turned(row[i], row[j], angle);
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
/// # Numerics
///
/// One-sided Jacobi rotations on the shorter side: slow for large matrices, but small singular
/// values come out with small relative error, which methods on the Gram matrix cannot give.
pub fn svd(matrix: &[f64], n_rows: usize, n_cols: usize) -> Svd {
    assert_eq!(matrix.len(), n_rows * n_cols, "sizes of a decomposition");
    if n_rows < n_cols {
        // Vectors to be rotated are the rows themselves: matrix = (rotation)ᵀ · (rotated rows).
        let (rotated, rotation) = rotate_rows(matrix.to_vec(), n_rows, n_cols);
        let (values, right, left) = normalise(rotated, rotation, n_rows, n_cols);
        Svd { left, values, right }
    } else {
        let (rotated, rotation) = rotate_rows(transpose(matrix, n_rows, n_cols), n_cols, n_rows);
        let (values, left, right) = normalise(rotated, rotation, n_cols, n_rows);
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
        (rows[at_i], rows[at_j]) = turned(rows[at_i], rows[at_j], angle);
    }
}

fn turned(p: f64, q: f64, (cosine, sine): (f64, f64)) -> (f64, f64) {
    (cosine * p - sine * q, sine * p + cosine * q)
}

/// Splits orthogonal rows into lengths and directions, longest first.
fn normalise(
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
    use crate::numeric::dense::{times_transposed, transposed_times};
    use crate::testing::assert_near;

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
