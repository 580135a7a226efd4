//! A change of basis, as it acts on factors and on one number per rank.

use crate::error::{Error, check_length};
use crate::factor::FactorView;
use crate::numeric::dense::{identity, inverse, times, times_transposed, transpose};
use crate::posterior::Entries;

/// An invertible change of basis of rank space.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    size: usize,
    matrix: Vec<f64>,
    inverse: Vec<f64>,
}

impl Gauge {
    /// Checks a matrix `R [size, size]`.
    ///
    /// # Errors
    ///
    /// The matrix cannot be inverted.
    pub fn new(matrix: &[f64], size: usize) -> Result<Self, Error> {
        check_length("gauge", matrix.len(), size * size)?;
        let inverse = inverse("gauge", matrix, size)?;
        Ok(Self { size, matrix: matrix.to_vec(), inverse })
    }

    /// The number of rank components it acts on.
    pub fn size(&self) -> usize {
        self.size
    }

    /// `R`, row-major.
    pub fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// `R⁻¹`, row-major.
    pub fn inverse(&self) -> &[f64] {
        &self.inverse
    }

    /// Transforms both factors, rank-major.
    ///
    /// # Formula
    ///
    /// ```text
    /// A' = R·A,   B' = B·R⁻¹      (rank-major: Bᵀ' = R⁻ᵀ·Bᵀ)
    /// ```
    pub fn apply(&self, a: FactorView<'_>, b: FactorView<'_>) -> Result<Entries, Error> {
        check_length("rows of a", a.rank(), self.size)?;
        check_length("rows of b", b.rank(), self.size)?;
        let inverse_t = transpose(&self.inverse, self.size, self.size);
        Ok(Entries {
            a: times(&self.matrix, a.values(), self.size, self.size, a.width()),
            b: times(&inverse_t, b.values(), self.size, self.size, b.width()),
        })
    }

    /// `max |R·Rᵀ − I|`: 0 for an orthogonal gauge.
    pub fn orthogonality_residual(&self) -> f64 {
        let gram = times_transposed(&self.matrix, &self.matrix, self.size, self.size, self.size);
        gram.iter().zip(identity(self.size)).map(|(g, i)| (g - i).abs()).fold(0.0, f64::max)
    }

    /// `max |R − round(R)|`: 0 together with orthogonality means a signed permutation.
    pub fn integer_residual(&self) -> f64 {
        self.matrix.iter().map(|v| (v - v.round()).abs()).fold(0.0, f64::max)
    }

    /// How the gauge acts on one number per rank.
    pub fn diagonal_action(&self, diagonal: &[f64]) -> Result<DiagonalAction, Error> {
        check_length("diagonal", diagonal.len(), self.size)?;
        let r = self.size;
        let at = |i: usize, j: usize| self.matrix[i * r + j];
        let mut commutator = 0.0_f64;
        let mut off_diagonal = 0.0_f64;
        let mut transformed = vec![0.0; r];
        for i in 0..r {
            for j in 0..r {
                commutator = commutator.max((at(i, j) * (diagonal[j] - diagonal[i])).abs());
                let entry: f64 = (0..r).map(|k| at(i, k) * diagonal[k] * at(j, k)).sum();
                if i == j {
                    transformed[i] = entry;
                } else {
                    off_diagonal = off_diagonal.max(entry.abs());
                }
            }
        }
        Ok(DiagonalAction { commutator, off_diagonal, transformed })
    }

    /// Whether the gauge is a symmetry that the tied additive family leaves unbroken: orthogonal,
    /// and mixing only ranks whose parameter is equal.
    pub fn is_residual(&self, diagonal: &[f64], tolerance: f64) -> Result<bool, Error> {
        let action = self.diagonal_action(diagonal)?;
        Ok(self.orthogonality_residual() <= tolerance && action.commutator <= tolerance)
    }
}

/// How a gauge acts on a diagonal matrix `D`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiagonalAction {
    /// `max |R·D − D·R|`.
    pub commutator: f64,
    /// `max` off-diagonal entry of `R·D·Rᵀ`.
    pub off_diagonal: f64,
    /// The diagonal of `R·D·Rᵀ`.
    pub transformed: Vec<f64>,
}
