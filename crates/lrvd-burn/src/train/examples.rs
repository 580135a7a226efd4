//! Examples that can be put together to batches.

use burn::tensor::{Int, Tensor, TensorData};

use super::batch::{Batch, Targets};
use super::error::TrainError;

/// Inputs that a model can be asked about, by number.
pub trait Examples {
    /// What the model reads.
    type Input;

    /// Number of examples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tokens of example `index`, 1 where there is no such thing: what like examples are found by.
    fn size(&self, _index: usize) -> usize {
        1
    }

    /// The examples at `indices`, in that order, as one input.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if they do not go together.
    fn input(&self, indices: &[usize]) -> Result<Self::Input, TrainError>;
}

/// Examples with answers: what training and validation need.
pub trait LabelledExamples: Examples {
    /// The answers to the examples at `indices`, in that order.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if they do not go together.
    fn targets(&self, indices: &[usize]) -> Result<Targets, TrainError>;

    /// Both as one batch.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the examples do not go together.
    fn batch(&self, indices: &[usize]) -> Result<Batch<Self::Input>, TrainError> {
        Ok(Batch {
            input: self.input(indices)?,
            targets: self.targets(indices)?,
            tokens: indices.iter().map(|&index| self.size(index)).sum(),
        })
    }
}

impl<E: Examples + ?Sized> Examples for &E {
    type Input = E::Input;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn size(&self, index: usize) -> usize {
        (**self).size(index)
    }

    fn input(&self, indices: &[usize]) -> Result<Self::Input, TrainError> {
        (**self).input(indices)
    }
}

impl<E: LabelledExamples + ?Sized> LabelledExamples for &E {
    fn targets(&self, indices: &[usize]) -> Result<Targets, TrainError> {
        (**self).targets(indices)
    }
}

/// Examples that are the rows of one tensor, `[n, ...]`.
#[derive(Clone, Debug)]
pub struct Rows<const D: usize>(pub Tensor<D>);

impl<const D: usize> Examples for Rows<D> {
    type Input = Tensor<D>;

    fn len(&self) -> usize {
        self.0.dims()[0]
    }

    fn input(&self, indices: &[usize]) -> Result<Tensor<D>, TrainError> {
        Ok(rows(&self.0, indices))
    }
}

/// [`Rows`] with their answers.
#[derive(Clone, Debug)]
pub struct LabelledRows<const D: usize> {
    /// The inputs, `[n, ...]`.
    pub inputs: Rows<D>,
    /// The answers, `[n, classes]` or `[n, 1]`.
    pub targets: Targets,
}

impl<const D: usize> LabelledRows<D> {
    /// Inputs `[n, ...]` with answers `[n, ...]`.
    pub fn new(inputs: Tensor<D>, targets: Targets) -> Self {
        Self { inputs: Rows(inputs), targets }
    }
}

impl<const D: usize> Examples for LabelledRows<D> {
    type Input = Tensor<D>;

    fn len(&self) -> usize {
        self.inputs.len()
    }

    fn input(&self, indices: &[usize]) -> Result<Tensor<D>, TrainError> {
        self.inputs.input(indices)
    }
}

impl<const D: usize> LabelledExamples for LabelledRows<D> {
    fn targets(&self, indices: &[usize]) -> Result<Targets, TrainError> {
        Ok(match &self.targets {
            Targets::Classes(one_hot) => Targets::Classes(rows(one_hot, indices)),
            Targets::Scores(scores) => Targets::Scores(rows(scores, indices)),
        })
    }
}

fn rows<const D: usize>(tensor: &Tensor<D>, indices: &[usize]) -> Tensor<D> {
    let numbers: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    let data = TensorData::new(numbers, [indices.len()]);
    tensor.clone().select(0, Tensor::<1, Int>::from_data(data, &tensor.device()))
}
