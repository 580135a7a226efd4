//! The leading eigenvectors of a matrix that is too wide to be diagonalised in full.

use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use lrvd_core::numeric::dense::{times, times_transposed};
use lrvd_core::numeric::{svd, symmetric_eigen};

/// Directions iterated beyond the wanted ones: convergence is as fast as the gap to the first
/// direction left out.
const SURPLUS: usize = 10;
/// Iterations after which the best so far is taken.
const MAX_ITERATIONS: usize = 100;
/// Relative change of the wanted eigenvalues' sum at which the iteration ends: what is summed comes
/// from `f32` activations.
const TOLERANCE: f64 = 1e-9;

/// Rows `√λ_i·v_i` of the `k` largest eigenvalues of a symmetric positive semi-definite matrix
/// `[width, width]`, `[≤ k, width]`, longest first: the columns `U·diag(S)` of any matrix whose Gram
/// matrix this is.
///
/// # Numerics
///
/// Subspace iteration with a fixed random start, then one Rayleigh-Ritz step.
pub(super) fn leading_rows(gram: &[f64], width: usize, k: usize) -> Vec<f64> {
    let block = (k + SURPLUS).min(width);
    let mut basis = vec![0.0; block * width];
    fill_normal_f64(NoiseKey::new(0), 0, &mut basis);
    let mut last = 0.0;
    for _ in 0..MAX_ITERATIONS {
        // Two products for one orthogonalisation.
        let product = times(&basis, gram, block, width, width);
        let parts = svd(&times(&product, gram, block, width, width), block, width);
        basis = parts.right;
        let sum: f64 = parts.values.iter().take(k).map(|v| v.sqrt()).sum();
        if (sum - last).abs() <= TOLERANCE * sum {
            break;
        }
        last = sum;
    }
    let product = times(&basis, gram, block, width, width);
    let small = symmetric_eigen(&times_transposed(&product, &basis, block, width, block), block);
    let vectors = times(&small.vectors, &basis, block, block, width);
    let kept = small.values.iter().take(k).take_while(|&&value| value > 0.0);
    kept.zip(vectors.chunks_exact(width))
        .flat_map(|(value, vector)| vector.iter().map(move |v| value.sqrt() * v))
        .collect()
}

#[cfg(test)]
mod tests {
    use lrvd_core::numeric::dense::transposed_times;

    use super::*;

    fn gram(width: usize, rank: usize) -> Vec<f64> {
        let mut rows = vec![0.0; rank * width];
        fill_normal_f64(NoiseKey::new(7), 0, &mut rows);
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            for value in row {
                *value *= 0.8_f64.powi(i as i32);
            }
        }
        transposed_times(&rows, &rows, rank, width, width)
    }

    #[test]
    fn posthoc_leading_rows_are_those_of_the_full_decomposition() {
        let (width, k) = (40, 10);
        let gram = gram(width, 35);
        let rows = leading_rows(&gram, width, k);
        let full = symmetric_eigen(&gram, width);
        assert_eq!(rows.len(), k * width);
        for (i, row) in rows.chunks_exact(width).enumerate() {
            let square: f64 = row.iter().map(|v| v * v).sum();
            assert!((square / full.values[i] - 1.0).abs() < 1e-6, "{i}: {square}");
            let vector = &full.vectors[i * width..(i + 1) * width];
            let cosine: f64 = row.iter().zip(vector).map(|(a, b)| a * b).sum::<f64>().abs();
            assert!((cosine / square.sqrt() - 1.0).abs() < 1e-4, "{i}: {cosine}");
        }
    }

    #[test]
    fn posthoc_leading_rows_stop_at_the_rank() {
        let gram = gram(12, 3);
        let rows = leading_rows(&gram, 12, 10);
        let back = transposed_times(&rows, &rows, rows.len() / 12, 12, 12);
        for (found, wanted) in back.iter().zip(&gram) {
            assert!((found - wanted).abs() < 1e-10 * gram[0].max(1.0), "{found} {wanted}");
        }
        assert!(leading_rows(&[0.0; 9], 3, 2).is_empty());
    }
}
