//! Passes with noise on activations, in f64: definitions that operators are compared with.
//!
//! Outputs are those of the adapter alone, `scaling · y`, without the frozen layer, `[tokens, d_output]`. A rank of 0 contributes
//! nothing, not even the noise of [`EPS_VARIANCE`]. `lrvd-models` compares both with golden files.

use lrvd_core::linalg::times_transposed;
use lrvd_core::moments::{CrossTerm, moments};
use lrvd_core::posterior::EPS_VARIANCE;
use lrvd_core::{Error, Factors, Posterior};

/// Output with noise of the right mean and variance, independent for every output, from `eps [tokens, d_output]`.
///
/// ```text
/// out[n,o] = scaling · (m_y[n,o] + eps[n,o] · sqrt(v_y[n,o] + EPS_VARIANCE))
/// ```
///
/// Source: Kingma et al. 2015, arXiv:1506.02557; Doyle et al., arXiv:2506.22809.
pub(crate) fn moment_matched(
    posterior: &Posterior,
    x: &[f64],
    eps: &[f64],
    scaling: f64,
    cross: CrossTerm,
) -> Result<Vec<f64>, Error> {
    let m = moments(posterior, x, cross)?;
    if posterior.factors().rank == 0 {
        return Ok(m.mean);
    }
    let of = |((m, v), e): ((&f64, &f64), &f64)| scaling * (m + e * (v + EPS_VARIANCE).sqrt());
    Ok(m.mean.iter().zip(&m.variance).zip(eps).map(of).collect())
}

/// Output with the rank activations drawn first, from `rank_noise [tokens, rank]`, and the outputs given them, from
/// `output_noise [tokens, d_output]`, which is not read where B is not random.
///
/// ```text
/// s[n,k]   = m_s[n,k] + rank_noise[n,k] · sqrt(v_s[n,k] + EPS_VARIANCE)
/// ρ[n,o]   = Σ_k s[n,k]²·Var B[o,k]
/// out[n,o] = scaling · (Σ_k s[n,k]·b[o,k] + output_noise[n,o] · sqrt(ρ[n,o] + EPS_VARIANCE))
/// ```
///
/// Up to `EPS_VARIANCE`, the exact distribution of one token's outputs, covariances and tails included. Source: derived.
pub(crate) fn nested(
    posterior: &Posterior,
    x: &[f64],
    [rank_noise, output_noise]: [&[f64]; 2],
    scaling: f64,
) -> Result<Vec<f64>, Error> {
    let m = moments(posterior, x, CrossTerm::Exact)?;
    let Factors { rank, d_input, d_output, ref b, .. } = *posterior.factors();
    let n = x.len() / d_input;
    let draw = |mean: &[f64], variance: &[f64], noise: &[f64]| -> Vec<f64> {
        let entries = mean.iter().zip(variance).zip(noise);
        entries.map(|((m, v), e)| m + e * (v + EPS_VARIANCE).sqrt()).collect()
    };
    let s = draw(&m.rank_mean, &m.rank_variance, rank_noise);
    let mut output = times_transposed(&s, b, n, rank, d_output);
    if rank > 0 && posterior.family().has_random_b() {
        let squares: Vec<f64> = s.iter().map(|s| s * s).collect();
        let conditional = times_transposed(&squares, &posterior.variance().b, n, rank, d_output);
        output = draw(&output, &conditional, output_noise);
    }
    Ok(output.into_iter().map(|y| scaling * y).collect())
}
