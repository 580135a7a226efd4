//! The singular values of a small matrix to full relative accuracy.

use super::dense::transpose;

/// Sweeps after which an ill-behaved (non-finite) matrix is given up; ten suffice for any other.
const MAX_SWEEPS: usize = 60;

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
    let mut rotation = super::dense::identity(k);
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
                let slope = (jj - ii) / (2.0 * ij);
                let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = cosine * tangent;
                rotate_pair(&mut work, width, i, j, cosine, sine);
                rotate_pair(&mut rotation, k, i, j, cosine, sine);
            }
        }
        if !rotated {
            break;
        }
    }
    (work, rotation)
}

fn rotate_pair(rows: &mut [f64], width: usize, i: usize, j: usize, cosine: f64, sine: f64) {
    for c in 0..width {
        let (p, q) = (rows[i * width + c], rows[j * width + c]);
        rows[i * width + c] = cosine * p - sine * q;
        rows[j * width + c] = sine * p + cosine * q;
    }
}

/// Splits orthogonal rows into lengths and directions, longest first.
fn normalise(
    rotated: Vec<f64>,
    rotation: Vec<f64>,
    k: usize,
    width: usize,
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let lengths: Vec<f64> =
        (0..k).map(|i| super::dense::norm(&rotated[i * width..(i + 1) * width])).collect();
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
    use super::*;
    use crate::testing::assert_near;

    fn rebuild(svd: &Svd, n_rows: usize, n_cols: usize) -> Vec<f64> {
        let mut out = vec![0.0; n_rows * n_cols];
        for (k, value) in svd.values.iter().enumerate() {
            for row in 0..n_rows {
                for col in 0..n_cols {
                    out[row * n_cols + col] +=
                        svd.left[k * n_rows + row] * value * svd.right[k * n_cols + col];
                }
            }
        }
        out
    }

    #[test]
    fn rebuilds_tall_wide_square_and_deficient_matrices() {
        let data = [2.0, -1.0, 0.5, 4.0, 1.5, -3.0, 0.25, 2.25, 1.0, -2.0, 0.125, 6.0];
        for (n_rows, n_cols) in [(4, 3), (3, 4), (2, 6), (12, 1), (1, 12)] {
            let found = svd(&data, n_rows, n_cols);
            assert!(found.values.windows(2).all(|w| w[0] >= w[1]));
            assert_near(&rebuild(&found, n_rows, n_cols), &data, 1e-13);
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
