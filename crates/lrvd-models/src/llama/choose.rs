//! Next-token selection: greedy, temperature, top-p.

use lrvd_core::Error;
use lrvd_core::error::{above_up_to, check_range};
use lrvd_core::noise::{Generator, NoiseKey};

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
        check_range("temperature", self.temperature, 1e-3..=1e3)?;
        check_range("top_p", self.top_p, above_up_to(0.0, 1.0))
    }
}

/// One token of a continuation, with the model's uncertainty.
///
/// ```text
/// p̄ = 1/k·Σ_d softmax(z_d),   entropy = H(p̄),   mutual_information = H(p̄) − 1/k·Σ_d H(softmax(z_d))
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedToken {
    /// The token.
    pub id: u32,
    /// Its probability, before temperature and truncation.
    pub probability: f64,
    /// Entropy of the next token, nats.
    pub entropy: f64,
    /// Mutual information between the next token and the weights, nats; 0 of a single model.
    pub mutual_information: f64,
    /// The most probable tokens at its place with their probabilities, the smallest id first among equals; as many as
    /// [`GenerateOptions::top`](super::GenerateOptions::top).
    pub top: Vec<(u32, f64)>,
}

/// Distribution of the next token of one prompt, averaged over the draws.
pub(super) struct NextTokenDistribution {
    /// `p̄`, `[vocab]`.
    probabilities: Vec<f64>,
    best: usize,
    entropy: f64,
    mutual_information: f64,
}

impl NextTokenDistribution {
    /// Distribution from the logits of each draw, `[vocab]`. One exponential for each of them:
    ///
    /// ```text
    /// e = exp(z − max z),   p = e/Σ e,   H(p) = ln Σ e − Σ e·(z − max z)/Σ e
    /// ```
    pub(super) fn new<'a>(draws: impl ExactSizeIterator<Item = &'a [f64]>) -> Result<Self, Error> {
        let count = draws.len() as f64;
        let mut probabilities = Vec::new();
        let mut expected_entropy = 0.0;
        for logits in draws {
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut total = 0.0;
            let mut moment = 0.0;
            let weight = |&logit: &f64| {
                let weight = (logit - most).exp();
                total += weight;
                moment += weight * (logit - most);
                weight
            };
            let weights: Vec<f64> = logits.iter().map(weight).collect();
            // A logit that is not finite makes one of the sums so.
            for value in [most, total, moment] {
                check_range("logits", value, ..)?;
            }
            expected_entropy += (total.ln() - moment / total) / count;
            let share = 1.0 / (total * count);
            probabilities.resize(weights.len(), 0.0);
            probabilities.iter_mut().zip(&weights).for_each(|(p, weight)| *p += weight * share);
        }
        let best = (0..probabilities.len()).rev();
        let best = best.max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b])).unwrap_or(0);
        let entropy = if count > 1.0 {
            -probabilities.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>()
        } else {
            expected_entropy
        };
        // Rounding may leave the difference a little below 0 where the draws agree.
        let mutual_information = (entropy - expected_entropy).max(0.0);
        Ok(Self { probabilities, best, entropy, mutual_information })
    }

    /// Id of token number `place` of prompt `row`: drawn, or the most likely one, the smallest id among equals.
    pub(super) fn choose(
        &self,
        row: usize,
        place: usize,
        sampling: Option<&TokenSampling>,
    ) -> usize {
        sampling.map_or(self.best, |sampling| {
            let key = NoiseKey::new(sampling.seed ^ TOKEN_SALT)
                .for_module((sampling.first + row) as u32)
                .at_step(place as u32);
            sampled(&self.probabilities, sampling, Generator::new(key).uniform())
        })
    }

    /// Token `id`, with the `top` most probable ones beside it.
    pub(super) fn token(&self, id: usize, top: usize) -> GeneratedToken {
        GeneratedToken {
            id: id as u32,
            probability: self.probabilities[id],
            entropy: self.entropy,
            mutual_information: self.mutual_information,
            top: self.most_probable(top),
        }
    }

    fn most_probable(&self, top: usize) -> Vec<(u32, f64)> {
        let Some(last) = top.min(self.probabilities.len()).checked_sub(1) else {
            return Vec::new();
        };
        let order = |x: &(u32, f64), y: &(u32, f64)| y.1.total_cmp(&x.1).then(x.0.cmp(&y.0));
        let mut all: Vec<(u32, f64)> = (0..).zip(self.probabilities.iter().copied()).collect();
        all.select_nth_unstable_by(last, order);
        all.truncate(last + 1);
        all.sort_by(order);
        all
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
        // Weights below this sum to less than what is left out: only the others are sorted.
        let least = (1.0 - sampling.top_p) * total / probabilities.len() as f64;
        kept.retain(|(_, weight)| *weight >= least);
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

    /// Of the weights 1, 3, 3 and 1: the smaller id is first among equals.
    #[test]
    fn the_most_probable_tokens_are_in_order() {
        let logits = [0.0, 3.0_f64.ln(), 3.0_f64.ln(), 0.0];
        let found = NextTokenDistribution::new([&logits[..]].into_iter()).unwrap();
        for (top, expected) in [(0, &[][..]), (3, &[(1, 0.375), (2, 0.375), (0, 0.125)])] {
            let token = found.token(3, top);
            assert!((token.probability - 0.125).abs() < 1e-12);
            let ids: Vec<u32> = token.top.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, expected.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            assert!(token.top.iter().zip(expected).all(|(a, b)| (a.1 - b.1).abs() < 1e-12));
        }
        assert_eq!(found.token(0, 9).top.len(), 4);
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (temperature, top_p, expected) in
            [(f64::NAN, 1.0, "temperature"), (1.0, 0.0, "top_p"), (1.0, 1.5, "top_p")]
        {
            let error = sampling(temperature, top_p).check().unwrap_err();
            assert!(matches!(error, Error::OutOfRange { name, .. } if name == expected));
        }
        for logit in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let found = NextTokenDistribution::new([&[0.0, logit][..]].into_iter()).map(drop);
            assert!(matches!(found, Err(Error::OutOfRange { name, .. }) if name == "logits"));
        }
    }
}
