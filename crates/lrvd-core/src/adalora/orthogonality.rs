//! The penalty that keeps the triplets close to singular vectors.

use super::importance::TripletShape;
use super::state::check_len;
use crate::error::Error;

/// The two factors of one module that the penalty reads.
#[derive(Clone, Copy, Debug)]
pub struct TripletFactors<'a> {
    /// Widths of the module.
    pub shape: TripletShape,
    /// Rank of the module.
    pub rank: usize,
    /// `A`, `[rank, d_input]`, row-major.
    pub a: &'a [f64],
    /// `B`, `[d_output, rank]`, row-major.
    pub b: &'a [f64],
}

/// Mean distance of the factors from orthonormal rows (`A`) and columns (`B`).
///
/// # Formula
///
/// ```text
/// 1/(2M) · Σ_m ( ‖A Aᵀ − I‖_F + ‖Bᵀ B − I‖_F )
/// ```
///
/// The norm itself, as PEFT computes it; the publication squares it. 0 without modules.
pub fn orthogonality(modules: &[TripletFactors<'_>]) -> Result<f64, Error> {
    let mut sum = 0.0;
    for (module, factors) in modules.iter().enumerate() {
        check(module, factors)?;
        sum += norm(&gram_excess(Rows::of_a(factors))) + norm(&gram_excess(Rows::of_b(factors)));
    }
    Ok(if modules.is_empty() { 0.0 } else { sum / (2 * modules.len()) as f64 })
}

/// Both factors as `rank` vectors of `width` entries: entry `j` of vector `i` lies at `i·step + j·stride`.
#[derive(Clone, Copy)]
struct Rows<'a> {
    values: &'a [f64],
    rank: usize,
    width: usize,
    step: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    fn of_a(factors: &TripletFactors<'a>) -> Self {
        let width = factors.shape.d_input;
        Self { values: factors.a, rank: factors.rank, width, step: width, stride: 1 }
    }

    fn of_b(factors: &TripletFactors<'a>) -> Self {
        let (rank, width) = (factors.rank, factors.shape.d_output);
        Self { values: factors.b, rank, width, step: 1, stride: rank }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.step + j * self.stride]
    }
}

/// Inner products of the vectors, minus the identity: `[rank, rank]`.
fn gram_excess(rows: Rows<'_>) -> Vec<f64> {
    let mut excess = vec![0.0; rows.rank * rows.rank];
    for i in 0..rows.rank {
        for k in 0..rows.rank {
            let product: f64 = (0..rows.width).map(|j| rows.at(i, j) * rows.at(k, j)).sum();
            excess[i * rows.rank + k] = product - if i == k { 1.0 } else { 0.0 };
        }
    }
    excess
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn check(module: usize, factors: &TripletFactors<'_>) -> Result<(), Error> {
    let wanted = [
        ("A", factors.rank * factors.shape.d_input, factors.a.len()),
        ("B", factors.shape.d_output * factors.rank, factors.b.len()),
    ];
    for (name, wanted, found) in wanted {
        check_len(module, name, wanted, found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SHAPE: TripletShape = TripletShape { d_input: 5, d_output: 3 };

    #[test]
    fn value_by_hand() {
        // A Aᵀ = diag(4, 1): excess 3. Columns of B: (1, 0, 0) and (1, 2, 0): Bᵀ B = [[1, 1], [1, 5]], excess
        // [[0, 1], [1, 4]], norm √18. Mean (3 + √18)/2.
        let a = [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0];
        let b = [1.0, 1.0, 0.0, 2.0, 0.0, 0.0];
        let module = TripletFactors { shape: SHAPE, rank: 2, a: &a, b: &b };
        let value = orthogonality(&[module]).unwrap();
        assert!((value - f64::midpoint(3.0, 18f64.sqrt())).abs() < 1e-15, "{value}");
        assert_eq!(orthogonality(&[]), Ok(0.0));
    }

    #[test]
    fn orthonormal_factors_cost_nothing() {
        let a = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let b = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let module = TripletFactors { shape: SHAPE, rank: 2, a: &a, b: &b };
        assert_eq!(orthogonality(&[module]), Ok(0.0));
    }

    #[test]
    fn wrong_lengths_name_module_and_factor() {
        let good = TripletFactors { shape: SHAPE, rank: 1, a: &[0.0; 5], b: &[0.0; 3] };
        let bad = TripletFactors { b: &[0.0; 4], ..good };
        let error = Error::length("B of module 1", 4, 3);
        assert_eq!(orthogonality(&[good, bad]), Err(error));
    }
}
