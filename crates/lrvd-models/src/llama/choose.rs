//! Next-token selection: greedy, temperature, top-p.

use lrvd_core::Error;
use lrvd_core::error::check_range;
use lrvd_core::metrics::{Uncertainty, argmax_rows, log_softmax, mean_probability, uncertainty};
use lrvd_core::noise::{Draws, NoiseKey};

/// Mixed into a seed, so that sampled tokens share no random number with weight draws.
const TOKEN_SALT: u64 = 0x544f_4b45_4e53_2121;

/// Settings of sampling.
///
/// # Formula
///
/// ```text
/// q ∝ p̄^(1/temperature)                           p̄ averaged over the draws of the weights
/// kept: the most likely tokens, in order, until their q sum to top_p or more
/// ```
///
/// Of a single model that is the softmax of `logits/temperature`. Token `t` of prompt `i` takes one uniform number, that
/// of `seed`, `first + i` and `t`: it does not depend on the prompts beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenSampling {
    /// Temperature, above 0.
    pub temperature: f64,
    /// Probability that is kept, above 0; 1 keeps every token.
    pub top_p: f64,
    /// Seed.
    pub seed: u64,
    /// Number of the first prompt.
    pub first: usize,
}

impl TokenSampling {
    /// Checks every range; [`Error::OutOfRange`] names the field.
    pub fn check(&self) -> Result<(), Error> {
        check_range("temperature", self.temperature, 1e-3, 1e3)?;
        check_range("top_p", self.top_p, f64::MIN_POSITIVE, 1.0)
    }
}

/// One token of a continuation, with the model's uncertainty.
///
/// ```text
/// p̄ = 1/k·Σ_d softmax(z_d),   entropy = H(p̄),   mutual_information = H(p̄) − 1/k·Σ_d H(softmax(z_d))
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeneratedToken {
    /// The token.
    pub id: u32,
    /// Its probability, before temperature and truncation.
    pub probability: f64,
    /// Entropy of the next token, nats.
    pub entropy: f64,
    /// Mutual information between the next token and the weights, nats; 0 of a single model.
    pub mutual_information: f64,
}

/// Distribution of the next token of every prompt, averaged over the draws.
pub(super) struct NextTokenDistributions {
    vocab: usize,
    /// `p̄`, `[prompts, vocab]`.
    probabilities: Vec<f64>,
    best: Vec<usize>,
    uncertainty: Uncertainty,
}

impl NextTokenDistributions {
    /// Distributions from logits `[members, prompts, vocab]`.
    pub(super) fn new(logits: &[f64], members: usize, vocab: usize) -> Result<Self, Error> {
        let logs = log_softmax(logits, vocab)?;
        let probabilities = mean_probability(&logs, members, vocab)?;
        let uncertainty = uncertainty(&logs, members, vocab)?;
        Ok(Self { vocab, best: argmax_rows(&probabilities, vocab)?, probabilities, uncertainty })
    }

    /// Token number `place` of prompt `row`: drawn, or the most likely one.
    pub(super) fn token_at(
        &self,
        row: usize,
        place: usize,
        sampling: Option<&TokenSampling>,
    ) -> GeneratedToken {
        let probabilities = &self.probabilities[row * self.vocab..][..self.vocab];
        let id = sampling.map_or(self.best[row], |sampling| {
            let key = NoiseKey::new(sampling.seed ^ TOKEN_SALT)
                .for_module((sampling.first + row) as u32)
                .at_step(place as u32);
            sampled(probabilities, sampling, Draws::new(key).uniform())
        });
        GeneratedToken {
            id: id as u32,
            probability: probabilities[id],
            entropy: self.uncertainty.predictive_entropy[row],
            mutual_information: self.uncertainty.mutual_information[row],
        }
    }
}

/// The token at which the sum of the kept `q` passes `uniform` of their total.
fn sampled(probabilities: &[f64], sampling: &TokenSampling, uniform: f64) -> usize {
    let most = probabilities.iter().copied().fold(0.0, f64::max);
    let weight = |p: f64| ((p.ln() - most.ln()) / sampling.temperature).exp();
    let mut kept: Vec<(usize, f64)> =
        probabilities.iter().map(|&p| weight(p)).enumerate().filter(|(_, w)| *w > 0.0).collect();
    let total: f64 = kept.iter().map(|(_, w)| w).sum();
    if sampling.top_p < 1.0 {
        kept.sort_by(|x, y| y.1.total_cmp(&x.1).then(x.0.cmp(&y.0)));
        let mut sum = 0.0;
        let enough = kept.iter().position(|(_, weight)| {
            sum += weight;
            sum >= sampling.top_p * total
        });
        kept.truncate(enough.map_or(kept.len(), |last| last + 1));
    }
    let goal = uniform * kept.iter().map(|(_, w)| w).sum::<f64>();
    let mut sum = 0.0;
    let found = kept.iter().find(|(_, weight)| {
        sum += weight;
        sum > goal
    });
    found.or(kept.last()).map_or(0, |(id, _)| *id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sampling(temperature: f64, top_p: f64) -> TokenSampling {
        TokenSampling { temperature, top_p, seed: 3, first: 0 }
    }

    #[test]
    fn frequencies_are_those_of_temperature_and_nucleus() {
        let (p, n) = ([0.1, 0.5, 0.0, 0.4], 20_000);
        for (temperature, top_p, expected) in [
            (1.0, 1.0, p),
            // Squares 0.01, 0.25, 0.16 over their sum 0.42.
            (0.5, 1.0, [0.01 / 0.42, 0.25 / 0.42, 0.0, 0.16 / 0.42]),
            // 0.5 is not enough for 0.6, and 0.5 + 0.4 is.
            (1.0, 0.6, [0.0, 5.0 / 9.0, 0.0, 4.0 / 9.0]),
            (1.0, 0.5, [0.0, 1.0, 0.0, 0.0]),
            (1e-3, 1.0, [0.0, 1.0, 0.0, 0.0]),
        ] {
            let mut found = [0.0; 4];
            for i in 0..n {
                let uniform = (f64::from(i) + 0.5) / f64::from(n);
                found[sampled(&p, &sampling(temperature, top_p), uniform)] += 1.0 / f64::from(n);
            }
            let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3);
            assert!(near, "{found:?}");
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (temperature, top_p, expected) in
            [(f64::NAN, 1.0, "temperature"), (1.0, 0.0, "top_p"), (1.0, 1.5, "top_p")]
        {
            let error = sampling(temperature, top_p).check().unwrap_err();
            assert!(matches!(error, Error::OutOfRange { name, .. } if name == expected));
        }
    }
}
