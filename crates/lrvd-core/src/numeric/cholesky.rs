//! The triangular root of a positive definite matrix, and what it solves.

use crate::error::Error;

/// The lower triangular factor `L` of a symmetric positive definite matrix, `matrix = L·Lᵀ`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cholesky {
    lower: Vec<f64>,
    size: usize,
}

impl Cholesky {
    /// Factors a row-major matrix `[size, size]`, of which the lower triangle is read.
    ///
    /// # Errors
    ///
    /// A pivot is not positive.
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
    ///
    /// # Errors
    ///
    /// Another length, or a pivot that is not positive.
    pub fn from_lower(name: &'static str, lower: Vec<f64>, size: usize) -> Result<Self, Error> {
        if lower.len() != size * size {
            return Err(Error::length(name, lower.len(), size * size));
        }
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

    /// `ln det matrix = 2·Σ ln L[i,i]`.
    pub fn log_det(&self) -> f64 {
        (0..self.size).map(|i| 2.0 * self.lower[i * self.size + i].ln()).sum()
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

    /// The solution of `matrix · x = right`.
    pub fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut x = self.lower_solve(right);
        for row in (0..self.size).rev() {
            let known: f64 =
                (row + 1..self.size).map(|k| self.lower[k * self.size + row] * x[k]).sum();
            x[row] = (x[row] - known) / self.lower[row * self.size + row];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numeric::dense::{times, times_transposed};
    use crate::testing::assert_near;

    const MATRIX: [f64; 9] = [4.0, 2.0, -2.0, 2.0, 10.0, 2.0, -2.0, 2.0, 6.0];

    #[test]
    fn the_factor_by_hand() {
        // L = [[2], [1, 3], [-1, 1, 2]]; det = (2·3·2)² = 144.
        let root = Cholesky::new("m", &MATRIX, 3).unwrap();
        assert_eq!(root.lower(), [2.0, 0.0, 0.0, 1.0, 3.0, 0.0, -1.0, 1.0, 2.0]);
        assert_eq!(times_transposed(root.lower(), root.lower(), 3, 3, 3), MATRIX);
        assert!((root.log_det() - 144.0_f64.ln()).abs() < 1e-14);
        assert_eq!(root.lower_times(&[1.0, 2.0, 3.0]), [2.0, 7.0, 7.0]);
        let x = [0.5, -1.0, 2.0];
        assert_near(&root.solve(&times(&MATRIX, &x, 3, 3, 1)), &x, 1e-14);
    }

    #[test]
    fn what_is_not_positive_definite_is_an_error() {
        for matrix in [[1.0, 2.0, 2.0, 4.0], [1.0, 2.0, 2.0, 1.0], [0.0; 4], [f64::NAN; 4]] {
            let error = Error::undefined("m", "is not positive definite");
            assert_eq!(Cholesky::new("m", &matrix, 2), Err(error));
        }
        assert_eq!(Cholesky::new("m", &[], 0).unwrap().log_det(), 0.0);
    }
}
