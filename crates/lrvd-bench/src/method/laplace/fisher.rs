//! The exact Fisher matrix of a softmax, in as few backward passes as it needs.
//!
//! Summed over all labels, weighted with their probabilities, the Fisher matrix of one example's
//! logits is `Λ = diag(p) − p·pᵀ`. Its rank is `labels − 1`, so that with a root `R·Rᵀ = Λ` as many
//! backward passes do:
//!
//! ```text
//! Σ_c p_c·∇(−ln p_c)·∇(−ln p_c)ᵀ = Jᵀ·Λ·J = Σ_k (Jᵀ·R_k)·(Jᵀ·R_k)ᵀ          J: gradients of the logits
//! ```

/// Columns of the Cholesky root of `diag(p) − p·pᵀ` as rows, `[labels − 1, labels]`.
///
/// # Formula
///
/// With `s_k = Σ_{j ≥ k} p_j`:
///
/// ```text
/// R_k[k] = √(p_k·s_{k+1}/s_k)        R_k[c] = −p_c·√(p_k/(s_k·s_{k+1}))   for c > k
/// ```
///
/// # References
///
/// Tanabe and Sagae 1992, An exact Cholesky decomposition of the multinomial covariance.
pub(super) fn fisher_root(p: &[f64]) -> Vec<f64> {
    let labels = p.len();
    // Sums from the back: 1 − Σ would lose what is left of a confident answer.
    let mut tail = vec![0.0; labels + 1];
    for k in (0..labels).rev() {
        tail[k] = tail[k + 1] + p[k];
    }
    let mut root = vec![0.0; labels.saturating_sub(1) * labels];
    for (k, row) in root.chunks_exact_mut(labels).enumerate() {
        if p[k] > 0.0 && tail[k + 1] > 0.0 {
            row[k] = (p[k] * (tail[k + 1] / tail[k])).sqrt();
            let factor = (p[k] / tail[k]).sqrt() / tail[k + 1].sqrt();
            for c in k + 1..labels {
                row[c] = -p[c] * factor;
            }
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use lrvd_core::numeric::dense::transposed_times;

    use super::*;

    #[test]
    fn posthoc_roots_multiply_to_the_covariance_of_a_label() {
        let cases: [&[f64]; 6] = [
            &[0.3, 0.7],
            &[0.2, 0.1, 0.4, 0.3],
            &[1.0, 0.0, 0.0],
            &[0.0, 0.0, 1.0],
            &[1e-12, 1.0 - 1e-12],
            &[1.0 - 1e-12, 1e-12],
        ];
        for p in cases {
            let n = p.len();
            let root = fisher_root(p);
            let square = transposed_times(&root, &root, n - 1, n, n);
            for (at, value) in square.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let wanted = if i == j { p[i] * (1.0 - p[i]) } else { -p[i] * p[j] };
                let slack = 1e-15 + 1e-12 * wanted.abs();
                assert!((value - wanted).abs() <= slack, "{p:?} {i} {j}: {value} {wanted}");
            }
        }
    }
}
