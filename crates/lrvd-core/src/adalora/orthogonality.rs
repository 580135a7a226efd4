//! The penalty that keeps the triplets close to singular vectors.

use super::importance::TripletShape;
use super::state::check_len;
use crate::error::Error;
use crate::numeric::dense::{identity, norm, times_transposed, transposed_times};

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
/// ```text
/// 1/(2M) · Σ_m ( ‖A Aᵀ − I‖_F + ‖Bᵀ B − I‖_F )
/// ```
///
/// The norm itself, as PEFT computes it; the publication squares it. 0 without modules.
pub fn orthogonality(modules: &[TripletFactors<'_>]) -> Result<f64, Error> {
    let mut sum = 0.0;
    for (module, factors) in modules.iter().enumerate() {
        let (rank, TripletShape { d_input, d_output }) = (factors.rank, factors.shape);
        check_len(module, "A", rank * d_input, factors.a.len())?;
        check_len(module, "B", d_output * rank, factors.b.len())?;
        let of_a = times_transposed(factors.a, factors.a, rank, d_input, rank);
        let of_b = transposed_times(factors.b, factors.b, d_output, rank, rank);
        sum += excess(&of_a, rank) + excess(&of_b, rank);
    }
    Ok(if modules.is_empty() { 0.0 } else { sum / (2 * modules.len()) as f64 })
}

/// `‖gram − I‖_F` of a Gram matrix `[rank, rank]`.
fn excess(gram: &[f64], rank: usize) -> f64 {
    norm(&gram.iter().zip(identity(rank)).map(|(g, i)| g - i).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lengths_name_module_and_factor_and_no_module_costs_nothing() {
        let shape = TripletShape { d_input: 5, d_output: 3 };
        let good = TripletFactors { shape, rank: 1, a: &[0.0; 5], b: &[0.0; 3] };
        let bad = TripletFactors { b: &[0.0; 4], ..good };
        let error = Error::length("B of module 1", 4, 3);
        assert_eq!(orthogonality(&[good, bad]), Err(error));
        assert_eq!(orthogonality(&[]), Ok(0.0));
    }
}
