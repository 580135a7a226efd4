//! The training objective and its parts.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `loss = nll + kl_weight / divisor · Σ KL + penalty`, with every part kept apart for the log.
///
/// The published code's `kl_scale` is `kl_weight / divisor`. The per-example ELBO has
/// `kl_weight = 1` and `divisor = n_train`.
#[derive(Debug)]
pub struct Objective {
    /// Mean negative log-likelihood of the batch, nats, `[1]`.
    pub nll: Tensor<1>,
    /// `Σ KL(q ‖ p)` over adapters, nats, `[1]`, if there is a posterior.
    pub kl: Option<Tensor<1>>,
    /// Other penalty (AdaLoRA's orthogonality term, already weighted), `[1]`.
    pub penalty: Option<Tensor<1>>,
    /// Factor of the KL.
    pub kl_weight: f64,
    /// Divisor of the KL.
    pub divisor: f64,
}

impl Objective {
    /// A likelihood alone.
    pub fn likelihood(nll: Tensor<1>) -> Self {
        Self { nll, kl: None, penalty: None, kl_weight: 0.0, divisor: 1.0 }
    }

    /// The scalar to differentiate, `[1]`.
    pub fn loss(&self) -> Tensor<1> {
        let mut loss = self.nll.clone();
        if let Some(kl) = &self.kl {
            loss = loss + kl.clone().mul_scalar(self.kl_weight / self.divisor);
        }
        if let Some(penalty) = &self.penalty {
            loss = loss + penalty.clone();
        }
        loss
    }

    /// Reader of the parts, `loss` being what [`Objective::loss`] returned. It waits for the device and reads all of them at
    /// once: a GPU works on while nothing of a step is read.
    pub fn unread(&self, loss: &Tensor<1>) -> impl FnOnce() -> ObjectiveParts + use<> {
        let zero = || Tensor::zeros([1], (&loss.clone().without_autodiff().device(), loss.dtype()));
        let part = |t: Option<&Tensor<1>>| t.map_or_else(zero, |t| t.clone().without_autodiff());
        let parts =
            [Some(loss), Some(&self.nll), self.kl.as_ref(), self.penalty.as_ref()].map(part);
        let packed = Tensor::cat(parts.to_vec(), 0);
        let Self { kl_weight, divisor, .. } = *self;
        move || {
            let parts: Vec<f64> = packed.into_data().iter::<f64>().collect();
            let [loss, nll, kl, penalty] = [parts[0], parts[1], parts[2], parts[3]];
            ObjectiveParts { loss, nll, kl, penalty, kl_weight, divisor }
        }
    }
}

/// [`Objective`] as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectiveParts {
    /// Everything together.
    pub loss: f64,
    /// Mean negative log-likelihood, nats.
    pub nll: f64,
    /// Unweighted KL, nats.
    pub kl: f64,
    /// Weighted penalty.
    pub penalty: f64,
    /// Factor of the KL.
    pub kl_weight: f64,
    /// Divisor of the KL.
    pub divisor: f64,
}

impl ObjectiveParts {
    /// The KL, if it is part of the objective.
    pub fn weighted_kl(&self) -> Option<f64> {
        (self.kl_weight != 0.0).then_some(self.kl)
    }
}
