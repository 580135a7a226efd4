//! How noise enters one forward pass.
//!
//! Every stochastic choice of a pass is an argument: a [`Pass`] says whether the adapters run at
//! their posterior mean or are sampled, by which scheme, and which counter-based stream feeds them.
//! Nothing reads a process-wide seed, so the same `Pass` gives the same output on every call, and
//! the backward pass can recompute the noise instead of storing it.

use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream};

/// How many examples share one draw of the adapter weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawPer {
    /// One draw for each sequence of the batch: the exact ELBO integrand, with gradient noise that
    /// is independent across examples. The default in training.
    #[default]
    Sequence,
    /// One draw for the whole batch. With a key that names the draw rather than the step this is
    /// a reproducible member of a Monte Carlo ensemble: the default in prediction.
    Batch,
}

/// Where the posterior's noise enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// No noise: the posterior mean, `k = 0`.
    #[default]
    Mean,
    /// Weights are drawn: `A = mean_a + std * eps`.
    Weights(DrawPer),
    /// Outputs are drawn with the exact per-coordinate mean and variance ("local
    /// reparameterisation"); covariance across outputs and tokens is dropped.
    MomentMatched(CrossTerm),
    /// Rank activations are drawn first, then outputs given them: the exact joint law of one token.
    Nested,
}

/// The randomness of one forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// How the adapters are sampled.
    pub scheme: Scheme,
    /// Seed and step (training) or seed and draw (prediction) of the adapters' noise.
    pub noise: NoiseKey,
    /// Key of the dropout masks; `None` switches every dropout off.
    pub dropout: Option<NoiseKey>,
}

impl Pass {
    /// The posterior mean without dropout: the deterministic model.
    #[must_use]
    pub fn mean() -> Self {
        Self { scheme: Scheme::Mean, noise: NoiseKey::new(0), dropout: None }
    }

    /// A pass sampled by `scheme` from the stream of `noise`, without dropout.
    #[must_use]
    pub fn sampled(scheme: Scheme, noise: NoiseKey) -> Self {
        Self { scheme, noise, dropout: None }
    }

    /// The same pass with dropout masks keyed by `key`.
    #[must_use]
    pub fn with_dropout(self, key: NoiseKey) -> Self {
        Self { dropout: Some(key), ..self }
    }

    /// Key of the dropout mask at the site with identity `site`, if dropout is on.
    #[must_use]
    pub fn dropout_key(&self, site: u32) -> Option<NoiseKey> {
        self.dropout.map(|key| key.for_module(site).on_stream(Stream::DROPOUT))
    }
}
