//! Eigenvalues and eigenvectors of a small symmetric matrix.

use super::dense::{identity, transpose};

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
                let slope = (work[j * size + j] - work[i * size + i]) / (2.0 * off);
                let tangent = slope.signum() / (slope.abs() + slope.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                rotate(&mut work, &mut vectors, size, (i, j), (cosine, cosine * tangent));
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

/// Applies one rotation to both sides of `work` and to the rows of `vectors`.
fn rotate(
    work: &mut [f64],
    vectors: &mut [f64],
    size: usize,
    (i, j): (usize, usize),
    (cosine, sine): (f64, f64),
) {
    let turn = |p: f64, q: f64| (cosine * p - sine * q, sine * p + cosine * q);
    for c in 0..size {
        let (row_i, row_j) = (i * size + c, j * size + c);
        (work[row_i], work[row_j]) = turn(work[row_i], work[row_j]);
        (vectors[row_i], vectors[row_j]) = turn(vectors[row_i], vectors[row_j]);
    }
    for c in 0..size {
        let (col_i, col_j) = (c * size + i, c * size + j);
        (work[col_i], work[col_j]) = turn(work[col_i], work[col_j]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::dense::{times_transposed, transposed_times};
    use super::*;
    use crate::testing::assert_near;

    /// `Σ_k values[k] · v_k v_kᵀ`.
    fn rebuild(found: &SymmetricEigen, size: usize) -> Vec<f64> {
        let scaled: Vec<f64> =
            (0..size * size).map(|at| found.values[at / size] * found.vectors[at]).collect();
        transposed_times(&scaled, &found.vectors, size, size, size)
    }

    fn check(matrix: &[f64], size: usize) -> Vec<f64> {
        let found = symmetric_eigen(matrix, size);
        assert!(found.values.windows(2).all(|w| w[0] >= w[1]), "{:?}", found.values);
        let scale = matrix.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
        assert_near(&rebuild(&found, size), matrix, 1e-13 * scale);
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
}
