//! Noise in one forward pass.
//!
//! Every scheme takes its standard-normal draws as an argument. Outputs are those of the adapter alone, `scaling · y`,
//! without the frozen layer, `[tokens, d_output]`.
//!
//! | Scheme              | Distribution for one token | Across tokens      |
//! |---------------------|----------------------------|--------------------|
//! | [`moment_matched`]  | mean and variance only     | independent        |
//! | [`nested`]          | exact                      | independent        |
//! | [`drawn_weights`]   | exact                      | exact for one draw |
//!
//! A weight draw serves every token it is given: pass the tokens of one sequence for a draw per
//! sequence, those of a whole batch for a draw per batch. A rank of 0 contributes exactly nothing,
//! not even the noise of [`EPS_VARIANCE`].

use crate::error::{Error, check_length};
use crate::family::EPS_VARIANCE;
use crate::linalg::{scaled, squared, times, times_transposed};
use crate::moments::{CrossTerm, count_tokens, moments};
use crate::posterior::{Entries, Posterior};

/// Output with noise of the right mean and variance, independent for every output (the published "local
/// reparameterisation").
///
/// ```text
/// out[n,o] = scaling · (m_y[n,o] + eps[n,o] · sqrt(v_y[n,o] + EPS_VARIANCE))
/// ```
///
/// `x` is `[tokens, d_input]`, `eps` is `[tokens, d_output]`, standard normal.
///
/// Right mean and variance of every output; drops the covariance between outputs and between
/// tokens, and the heavy tails of a product of Gaussians.
///
/// Source: Kingma et al. 2015, arXiv:1506.02557; Doyle et al., arXiv:2506.22809.
pub fn moment_matched(
    posterior: &Posterior<'_>,
    x: &[f64],
    eps: &[f64],
    scaling: f64,
    cross: CrossTerm,
) -> Result<Vec<f64>, Error> {
    let moments = moments(posterior, x, cross)?;
    check_length("eps", eps.len(), moments.mean.len())?;
    if posterior.rank() == 0 {
        return Ok(vec![0.0; eps.len()]);
    }
    let of = |((m, v), e): ((&f64, &f64), &f64)| scaling * (m + e * (v + EPS_VARIANCE).sqrt());
    Ok(moments.mean.iter().zip(&moments.variance).zip(eps).map(of).collect())
}

/// Output with the rank activations drawn first and the outputs given them.
///
/// ```text
/// s[n,k]   = m_s[n,k] + rank_noise[n,k] · sqrt(v_s[n,k] + EPS_VARIANCE)
/// ρ[n,o]   = Σ_k s[n,k]²·Var B[k,o]
/// out[n,o] = scaling · (Σ_k s[n,k]·b_mean[k,o] + output_noise[n,o] · sqrt(ρ[n,o] + EPS_VARIANCE))
/// ```
///
/// `rank_noise` is `[tokens, rank]`, `output_noise` is `[tokens, d_output]`. Where B is not random the last term is absent, so
/// that no noise enters that the posterior does not have, and `output_noise` is not read.
///
/// Up to `EPS_VARIANCE`, the exact distribution of one token's outputs, covariances and tails included.
/// Tokens are independent, which they are not under one weight draw.
///
/// Source: derived; the inner step is Kingma et al. 2015, arXiv:1506.02557, in rank space.
pub fn nested(
    posterior: &Posterior<'_>,
    x: &[f64],
    [rank_noise, output_noise]: [&[f64]; 2],
    scaling: f64,
) -> Result<Vec<f64>, Error> {
    let n = count_tokens(posterior, x)?;
    let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
    check_length("noise of the ranks", rank_noise.len(), n * rank)?;
    let b_is_random = posterior.family().has_random_b();
    if b_is_random {
        check_length("noise of the outputs", output_noise.len(), n * d_out)?;
    }
    let variance = posterior.variance();
    let rank_variance = times_transposed(&squared(x), &variance.a, n, d_in, rank);
    let mut s = times_transposed(x, posterior.a_mean(), n, d_in, rank);
    for ((s, v), e) in s.iter_mut().zip(&rank_variance).zip(rank_noise) {
        *s += e * (v + EPS_VARIANCE).sqrt();
    }
    let mut output = times(&s, posterior.b_mean(), n, rank, d_out);
    if rank > 0 && b_is_random {
        let conditional = times(&squared(&s), &variance.b, n, rank, d_out);
        for ((o, v), e) in output.iter_mut().zip(&conditional).zip(output_noise) {
            *o += e * (v + EPS_VARIANCE).sqrt();
        }
    }
    Ok(scaled(&output, scaling))
}

/// One draw of both factors.
///
/// ```text
/// A = a_mean + scale_A ∘ noise[0],   B alike;   scale as in Posterior::noise_scale
/// ```
///
/// `noise` is `[rank, d_input]` for A and `[rank, d_output]` for B, which is not read where B is not random.
pub fn sample_weights(posterior: &Posterior<'_>, noise: [&[f64]; 2]) -> Result<Entries, Error> {
    let scale = posterior.noise_scale();
    check_length("noise of A", noise[0].len(), scale.a.len())?;
    let draw = |mean: &[f64], scale: &[f64], noise: &[f64]| -> Vec<f64> {
        mean.iter().zip(scale).zip(noise).map(|((m, s), e)| m + s * e).collect()
    };
    let b_mean = posterior.b_mean();
    let b = if posterior.family().has_random_b() {
        check_length("noise of B", noise[1].len(), scale.b.len())?;
        draw(b_mean, &scale.b, noise[1])
    } else {
        b_mean.to_vec()
    };
    Ok(Entries { a: draw(posterior.a_mean(), &scale.a, noise[0]), b })
}

/// Output of one draw of the weights, `scaling · x·Aᵀ·B`.
///
/// One draw serves all tokens: their outputs have the exact joint distribution.
pub fn drawn_weights(
    posterior: &Posterior<'_>,
    x: &[f64],
    noise: [&[f64]; 2],
    scaling: f64,
) -> Result<Vec<f64>, Error> {
    let n = count_tokens(posterior, x)?;
    let (rank, d_in, d_out) = (posterior.rank(), posterior.d_input(), posterior.d_output());
    let weights = sample_weights(posterior, noise)?;
    let s = times_transposed(x, &weights.a, n, d_in, rank);
    let output = times(&s, &weights.b, n, rank, d_out);
    Ok(scaled(&output, scaling))
}
