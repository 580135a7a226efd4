//! Products of small row-major matrices.
//!
//! Matrices are flat row-major slices with their sizes given beside them.

use crate::error::Error;

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

/// The triangular factor `R [min(rows, cols), cols]` of a QR factorisation, row-major.
///
/// ```text
/// matrix = Q · R,   Qᵀ Q = I
/// ```
///
/// # Numerics
///
/// Householder reflections; backward stable for any rank.
pub fn qr_triangle(matrix: &[f64], n_rows: usize, n_cols: usize) -> Vec<f64> {
    assert_eq!(matrix.len(), n_rows * n_cols, "sizes of a factorisation");
    let mut work = matrix.to_vec();
    let steps = n_rows.min(n_cols);
    for k in 0..steps {
        let length = (k..n_rows).map(|i| work[i * n_cols + k].powi(2)).sum::<f64>().sqrt();
        if length == 0.0 {
            continue;
        }
        let pivot = work[k * n_cols + k];
        let target = if pivot > 0.0 { -length } else { length };
        let mut reflector: Vec<f64> = (k..n_rows).map(|i| work[i * n_cols + k]).collect();
        reflector[0] -= target;
        let scale = 2.0 / dot(&reflector, &reflector);
        for col in k..n_cols {
            let along: f64 =
                reflector.iter().zip(k..).map(|(v, i)| v * work[i * n_cols + col]).sum();
            for (v, i) in reflector.iter().zip(k..) {
                work[i * n_cols + col] -= scale * along * v;
            }
        }
    }
    let mut triangle = work[..steps * n_cols].to_vec();
    for row in 0..steps {
        triangle[row * n_cols..row * n_cols + row].fill(0.0);
    }
    triangle
}

/// The inverse of a square matrix `[size, size]`, row-major.
///
/// # Errors
///
/// A pivot vanishes against the largest entry of the matrix.
///
/// # Numerics
///
/// Gauss–Jordan elimination with partial pivoting.
pub fn inverse(name: &'static str, matrix: &[f64], size: usize) -> Result<Vec<f64>, Error> {
    assert_eq!(matrix.len(), size * size, "sizes of an inverse");
    let singular = || Error::undefined(name, "is singular to working precision");
    let largest = matrix.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let mut left = matrix.to_vec();
    let mut right = identity(size);
    for k in 0..size {
        let pivot_row = (k..size)
            .max_by(|&i, &j| left[i * size + k].abs().total_cmp(&left[j * size + k].abs()))
            .unwrap_or(k);
        let pivot = left[pivot_row * size + k];
        if !pivot.is_finite() || pivot.abs() <= f64::EPSILON * largest * size as f64 {
            return Err(singular());
        }
        for col in 0..size {
            left.swap(k * size + col, pivot_row * size + col);
            right.swap(k * size + col, pivot_row * size + col);
        }
        for col in 0..size {
            left[k * size + col] /= pivot;
            right[k * size + col] /= pivot;
        }
        for row in (0..size).filter(|&row| row != k) {
            let factor = left[row * size + k];
            for col in 0..size {
                left[row * size + col] -= factor * left[k * size + col];
                right[row * size + col] -= factor * right[k * size + col];
            }
        }
    }
    Ok(right)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::assert_near;

    const X: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0];
    const W: [f64; 6] = [0.5, -1.0, 2.0, 0.0, 3.0, 1.0];

    #[test]
    fn the_three_products_agree_with_hand_calculation() {
        // X [2, 3], W [2, 3]: 0.5 − 2 + 6, 6 + 3; 2 − 5 + 14, 15 + 7.
        assert_eq!(times_transposed(&X, &W, 2, 3, 2), [4.5, 9.0, 11.0, 22.0]);
        // X [2, 3], W [3, 2]: 0.5 + 4 + 9, −1 + 0 + 3; 2 + 10 + 21, −4 + 0 + 7.
        assert_eq!(times(&X, &W, 2, 3, 2), [13.5, 2.0, 33.0, 3.0]);
        // X [3, 2]ᵀ, W [3, 1].
        assert_eq!(transposed_times(&X, &W[..3], 3, 2, 1), [7.5, 11.0]);
        assert_eq!(transpose(&X, 2, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 7.0]);
        assert_eq!(norm(&[3.0, 4.0]), 5.0);
    }

    #[test]
    fn the_triangle_keeps_the_gram_matrix() {
        for (n_rows, n_cols) in [(3, 2), (2, 3), (6, 1), (1, 6)] {
            let r = qr_triangle(&X, n_rows, n_cols);
            let steps = n_rows.min(n_cols);
            let expected = transposed_times(&X, &X, n_rows, n_cols, n_cols);
            let found = transposed_times(&r, &r, steps, n_cols, n_cols);
            assert_near(&found, &expected, 1e-12);
        }
        assert!(qr_triangle(&[], 0, 3).is_empty());
    }

    #[test]
    fn an_inverse_undoes_the_product_and_singular_is_an_error() {
        let m = [0.0, 2.0, 1.0, 1.0, -1.0, 0.5, 3.0, 0.25, 4.0];
        let inv = inverse("m", &m, 3).unwrap();
        assert_near(&times(&m, &inv, 3, 3, 3), &identity(3), 1e-14);
        let flat = [1.0, 2.0, 2.0, 4.0];
        assert_eq!(
            inverse("flat", &flat, 2),
            Err(Error::undefined("flat", "is singular to working precision"))
        );
        assert!(inverse("nan", &[f64::NAN], 1).is_err());
        assert!(inverse("none", &[], 0).unwrap().is_empty());
    }
}
