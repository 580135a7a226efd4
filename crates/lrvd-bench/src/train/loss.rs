//! The likelihood part of the objective.

use burn::tensor::{Tensor, activation};

use crate::data::batch::Targets;

/// Sum over the batch of the negative log-likelihood, `[1]`.
///
/// ```text
/// classes:  −Σ_n ln softmax(z_n)[y_n]          nats
/// scores:    Σ_n (z_n − y_n)²                  the squared error of the reference implementation
/// ```
pub fn negative_log_likelihood(logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    match targets {
        Targets::Classes(one_hot) => {
            (activation::log_softmax(logits, 1) * one_hot.clone()).sum().neg()
        }
        Targets::Scores(scores) => (logits - scores.clone()).square().sum(),
    }
}
