//! Rows, the batches made of them, and the model that answers them.

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use lrvd_core::metrics::mean_and_variance;

use crate::error::Error;
use crate::model::NamedModule;
use crate::parameters::values;
use crate::sampling::Pass;

/// A model that can be trained.
pub trait Model: NamedModule + Module {
    /// Its input: a tensor, or several of them.
    type Input;

    /// `true` if a pass may hold several draws of the weights ([`Pass::draws`]), which
    /// then cost far less than as many passes.
    ///
    /// Such a model brings tensors of which one has passed a layer with draws and another has not
    /// together, by [`Pass::repeated`] or [`Pass::aligned`]: the two sides of a residual, a mask and the
    /// activations it meets.
    const HOLDS_DRAWS: bool = false;

    /// Logits `[rows, classes]`, or scores `[rows, 1]`, of one pass; for [tokens](Targets::Tokens) logits
    /// `[answers, vocabulary]`, those of one example after those of another.
    ///
    /// A model whose adapters hold ensemble members repeats the input for them
    /// ([`repeat_for_members`](crate::adapter::repeat_for_members)) and answers `[members · rows, ...]`,
    /// member after member. For a pass that holds several draws the answer is `[count · rows, ...]`, draw
    /// after draw, or `[rows, ...]` if no layer draws.
    fn logits(&self, input: &Self::Input, pass: &Pass) -> Tensor<2>;
}

/// Expected answers.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Shares of the classes, one-hot where a row has one class, `[rows, classes]`.
    Classes(Tensor<2>),
    /// Shares of labels that are there or not, independent of each other, `[rows, labels]`: 1 where a row has the label.
    Labels(Tensor<2>),
    /// Scores, `[rows, 1]`.
    Scores(Tensor<2>),
    /// Tokens that a language model should predict, any number of them for a row.
    Tokens {
        /// Their ids, `[answers]`, row after row.
        ids: Tensor<1, Int>,
        /// Number of tokens of each row.
        per_row: Vec<usize>,
    },
}

impl Targets {
    /// Number of examples.
    pub fn rows(&self) -> usize {
        match self {
            Self::Classes(values) | Self::Labels(values) | Self::Scores(values) => values.dims()[0],
            Self::Tokens { per_row, .. } => per_row.len(),
        }
    }

    /// Number of answers, over which the likelihood is averaged: one for each example, or one for
    /// each token. The logits have as many rows.
    pub fn answers(&self) -> usize {
        match self {
            Self::Classes(values) | Self::Labels(values) | Self::Scores(values) => values.dims()[0],
            Self::Tokens { ids, .. } => ids.dims()[0],
        }
    }

    /// The class with the largest share of every example; `None` of other targets.
    pub fn classes(&self) -> Option<Vec<usize>> {
        let Self::Classes(one_hot) = self else { return None };
        let classes = one_hot.clone().argmax(1).into_data();
        Some(classes.iter::<i64>().map(|class| class as usize).collect())
    }

    /// Variance of scores around their mean; `None` of other targets, and of scores that are all equal.
    pub fn variance(&self) -> Option<f64> {
        let Self::Scores(scores) = self else { return None };
        let (_, variance) = mean_and_variance(&values(scores.clone())).ok().flatten()?;
        Some(variance)
    }

    /// The targets `times` over, copy after copy.
    #[must_use]
    pub fn repeat(&self, times: usize) -> Self {
        if times == 1 {
            return self.clone();
        }
        self.select(&(0..self.rows()).collect::<Vec<_>>().repeat(times))
    }

    /// Targets of the rows at `indices`, in that order.
    pub(super) fn select(&self, indices: &[usize]) -> Self {
        match self {
            Self::Classes(one_hot) => Self::Classes(select(one_hot, indices)),
            Self::Labels(present) => Self::Labels(select(present, indices)),
            Self::Scores(scores) => Self::Scores(select(scores, indices)),
            Self::Tokens { ids, per_row } => {
                let start = |index: usize| per_row[..index].iter().sum::<usize>();
                let of_row = |&index: &usize| (start(index)..).take(per_row[index]);
                let places: Vec<usize> = indices.iter().flat_map(of_row).collect();
                let ids = ids.clone().select(0, index_tensor(&places, &ids.device()));
                let per_row = indices.iter().map(|&index| per_row[index]).collect();
                Self::Tokens { ids, per_row }
            }
        }
    }
}

/// Sum over the batch of the negative log-likelihood, `[1]`.
///
/// ```text
/// classes:  −Σ_n ln softmax(z_n)[y_n]          nats
/// labels:   −Σ_n Σ_k [y_nk ln σ(z_nk) + (1 − y_nk) ln σ(−z_nk)]    nats: binary cross-entropy, summed over the labels
/// scores:    Σ_n (z_n − y_n)²                  the squared error of the reference implementation
/// tokens:   −Σ_n ln softmax(z_n)[y_n]          nats; n runs over all tokens of all rows
/// ```
pub fn negative_log_likelihood(logits: Tensor<2>, targets: &Targets) -> Tensor<1> {
    match targets {
        Targets::Classes(one_hot) => {
            (activation::log_softmax(logits, 1) * one_hot.clone()).sum().neg()
        }
        // ln σ(z) = z + ln σ(−z), so that one logarithm serves both terms.
        Targets::Labels(present) => {
            (activation::log_sigmoid(logits.clone().neg()) + logits * present.clone()).sum().neg()
        }
        Targets::Scores(scores) => (logits - scores.clone()).square().sum(),
        Targets::Tokens { ids, .. } => {
            // One entry a row is read: no one-hot matrix of the size of a vocabulary is made.
            let ids = ids.clone().unsqueeze_dim(1);
            activation::log_softmax(logits, 1).gather(1, ids).squeeze_dim::<1>(1).sum().neg()
        }
    }
}

/// Inputs and targets of one forward pass.
#[derive(Clone, Debug)]
pub struct Batch<I> {
    /// Input of the model.
    pub input: I,
    /// Expected answers.
    pub targets: Targets,
    /// Tokens without padding, for a divergence that is divided by them; otherwise the rows.
    pub tokens: usize,
}

impl<I> Batch<I> {
    /// A batch whose tokens are its rows.
    pub fn new(input: I, targets: Targets) -> Self {
        Self { input, tokens: targets.rows(), targets }
    }
}

/// Inputs by number, with answers for training and validation.
pub trait Examples {
    /// Input of the model.
    type Input;

    /// Number of examples.
    fn len(&self) -> usize;

    /// `true` if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens of example `index`, 1 where there is no such thing; batches are made of examples of like sizes.
    fn size(&self, _index: usize) -> usize {
        1
    }

    /// Sizes of all examples.
    fn sizes(&self) -> Vec<usize> {
        (0..self.len()).map(|index| self.size(index)).collect()
    }

    /// The examples at `indices`, in that order, as one input.
    fn input(&self, indices: &[usize]) -> Result<Self::Input, Error>;

    /// The answers to the examples at `indices`, in that order; an error where they are not known.
    fn targets(&self, _indices: &[usize]) -> Result<Targets, Error> {
        Err(Error::NoLabels)
    }

    /// Answers of example `index`: 1, unless they are tokens.
    fn answers(&self, _index: usize) -> usize {
        1
    }

    /// Inputs and answers as one batch.
    fn batch(&self, indices: &[usize]) -> Result<Batch<Self::Input>, Error> {
        self.batch_with(indices, self.targets(indices)?)
    }

    /// Inputs as one batch with these `targets`.
    fn batch_with(&self, indices: &[usize], targets: Targets) -> Result<Batch<Self::Input>, Error> {
        let tokens = indices.iter().map(|&index| self.size(index)).sum();
        Ok(Batch { input: self.input(indices)?, targets, tokens })
    }

    /// The answers to all examples.
    fn all_targets(&self) -> Result<Targets, Error> {
        self.targets(&(0..self.len()).collect::<Vec<_>>())
    }
}

/// Some of other examples.
pub struct Subset<'a, I> {
    /// All of them.
    pub of: &'a dyn Examples<Input = I>,
    /// Numbers of those that belong to it.
    pub rows: Vec<usize>,
}

impl<I> Subset<'_, I> {
    fn among_all(&self, indices: &[usize]) -> Vec<usize> {
        indices.iter().map(|&index| self.rows[index]).collect()
    }
}

impl<I> Examples for Subset<'_, I> {
    type Input = I;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn size(&self, index: usize) -> usize {
        self.of.size(self.rows[index])
    }

    fn input(&self, indices: &[usize]) -> Result<I, Error> {
        self.of.input(&self.among_all(indices))
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        self.of.targets(&self.among_all(indices))
    }

    fn answers(&self, index: usize) -> usize {
        self.of.answers(self.rows[index])
    }
}

/// Examples that are the rows of one tensor.
#[derive(Clone, Debug)]
pub struct Rows<const D: usize> {
    /// The inputs, `[n, ...]`.
    pub inputs: Tensor<D>,
    /// The answers, if they are known: `[n, classes]`, `[n, 1]`, or tokens of `n` rows.
    pub targets: Option<Targets>,
}

impl<const D: usize> Rows<D> {
    /// Inputs `[n, ...]` with their answers.
    pub fn new(inputs: Tensor<D>, targets: Targets) -> Self {
        Self { inputs, targets: Some(targets) }
    }
}

impl<const D: usize> Examples for Rows<D> {
    type Input = Tensor<D>;

    fn len(&self) -> usize {
        self.inputs.dims()[0]
    }

    fn input(&self, indices: &[usize]) -> Result<Tensor<D>, Error> {
        Ok(select(&self.inputs, indices))
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        let answers = self.targets.as_ref().map(|targets| targets.select(indices));
        answers.ok_or(Error::NoLabels)
    }

    fn answers(&self, index: usize) -> usize {
        match &self.targets {
            Some(Targets::Tokens { per_row, .. }) => per_row[index],
            _ => 1,
        }
    }
}

fn select<const D: usize>(tensor: &Tensor<D>, indices: &[usize]) -> Tensor<D> {
    tensor.clone().select(0, index_tensor(indices, &tensor.device()))
}

fn index_tensor(indices: &[usize], device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    Tensor::from_data(TensorData::new(numbers, [indices.len()]), device)
}
