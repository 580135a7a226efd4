//! One batch: what goes into the model, and what should come out.

use burn::tensor::{Int, Tensor, activation};

use crate::adapter::repeat_for_members;

/// What the model should answer.
#[derive(Clone, Debug)]
pub enum Targets {
    /// One-hot classes, `[rows, classes]`.
    Classes(Tensor<2>),
    /// Scores, `[rows, 1]`.
    Scores(Tensor<2>),
    /// Tokens, any number of them for a row.
    Tokens(TokenTargets),
}

/// The tokens that a model of language should predict.
#[derive(Clone, Debug)]
pub struct TokenTargets {
    /// Their ids, `[answers]`, row after row.
    pub ids: Tensor<1, Int>,
    /// How many of them are of each row.
    pub per_row: Vec<usize>,
}

impl Targets {
    /// Number of examples.
    pub fn rows(&self) -> usize {
        match self {
            Self::Classes(values) | Self::Scores(values) => values.dims()[0],
            Self::Tokens(tokens) => tokens.per_row.len(),
        }
    }

    /// Number of answers that are asked for, which the likelihood is averaged over: one for each example, or one for
    /// each token. The logits have as many rows.
    pub fn answers(&self) -> usize {
        match self {
            Self::Classes(values) | Self::Scores(values) => values.dims()[0],
            Self::Tokens(tokens) => tokens.ids.dims()[0],
        }
    }

    /// The class of every example; `None` where none is expected.
    pub fn classes(&self) -> Option<Vec<usize>> {
        let Self::Classes(one_hot) = self else { return None };
        let classes = one_hot.clone().argmax(1).into_data();
        Some(classes.iter::<i64>().map(|class| class as usize).collect())
    }

    /// The targets `times` over, copy after copy.
    #[must_use]
    pub fn repeat(&self, times: usize) -> Self {
        match self {
            _ if times == 1 => self.clone(),
            Self::Classes(one_hot) => Self::Classes(repeat_for_members(one_hot.clone(), times)),
            Self::Scores(scores) => Self::Scores(repeat_for_members(scores.clone(), times)),
            Self::Tokens(TokenTargets { ids, per_row }) => Self::Tokens(TokenTargets {
                ids: repeat_for_members(ids.clone(), times),
                per_row: per_row.repeat(times),
            }),
        }
    }
}

/// Inputs and targets of one forward pass.
#[derive(Clone, Debug)]
pub struct Batch<I> {
    /// What the model reads.
    pub input: I,
    /// What it should answer.
    pub targets: Targets,
    /// Tokens without padding, for a divergence that is divided by them; otherwise the rows do.
    pub tokens: usize,
}

impl<I> Batch<I> {
    /// A batch whose tokens are its rows.
    pub fn new(input: I, targets: Targets) -> Self {
        let tokens = targets.rows();
        Self { input, targets, tokens }
    }

    /// Number of answers that are asked for.
    pub fn answers(&self) -> usize {
        self.targets.answers()
    }

    /// Number of examples.
    pub fn rows(&self) -> usize {
        self.targets.rows()
    }
}

/// Sum over the batch of the negative log-likelihood, `[1]`.
///
/// ```text
/// classes:  −Σ_n ln softmax(z_n)[y_n]          nats
/// scores:    Σ_n (z_n − y_n)²                  the squared error of the reference implementation
/// tokens:   −Σ_n ln softmax(z_n)[y_n]          nats; n runs over all tokens of all rows
/// ```
pub fn negative_log_likelihood(logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    match targets {
        Targets::Classes(one_hot) => {
            (activation::log_softmax(logits, 1) * one_hot.clone()).sum().neg()
        }
        Targets::Scores(scores) => (logits - scores.clone()).square().sum(),
        Targets::Tokens(tokens) => log_probabilities(logits, &tokens.ids).sum().neg(),
    }
}

/// `ln softmax(logits)` of the tokens `ids`, `[answers]`: of a vocabulary one entry a row is read, and no one-hot
/// matrix of its size is made.
pub(super) fn log_probabilities(logits: Tensor<2>, ids: &Tensor<1, Int>) -> Tensor<1> {
    activation::log_softmax(logits, 1).gather(1, ids.clone().unsqueeze_dim(1)).squeeze_dim(1)
}
