//! Examples that can be put together to batches.

use burn::tensor::{Device, Int, Tensor, TensorData};

use super::batch::{Batch, Targets, TokenTargets};
use crate::error::Error;

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
    fn input(&self, indices: &[usize]) -> Result<Self::Input, Error>;
}

/// Examples with answers: what training and validation need.
pub trait LabelledExamples: Examples {
    /// The answers to the examples at `indices`, in that order.
    fn targets(&self, indices: &[usize]) -> Result<Targets, Error>;

    /// Answers that example `index` asks for: 1, unless they are tokens.
    fn answers(&self, _index: usize) -> usize {
        1
    }

    /// Both as one batch.
    fn batch(&self, indices: &[usize]) -> Result<Batch<Self::Input>, Error> {
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

    fn input(&self, indices: &[usize]) -> Result<Self::Input, Error> {
        (**self).input(indices)
    }
}

impl<E: LabelledExamples + ?Sized> LabelledExamples for &E {
    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        (**self).targets(indices)
    }

    fn answers(&self, index: usize) -> usize {
        (**self).answers(index)
    }
}

/// Some of other examples, labelled where those are.
pub struct Subset<'a, E: ?Sized> {
    /// All of them.
    pub of: &'a E,
    /// Numbers of those that belong to it.
    pub rows: Vec<usize>,
}

impl<E: ?Sized> Subset<'_, E> {
    fn among_all(&self, indices: &[usize]) -> Result<Vec<usize>, Error> {
        let absent = |index| {
            Error::other(format!("there is no example {index}: there are {}", self.rows.len()))
        };
        indices
            .iter()
            .map(|&index| self.rows.get(index).copied().ok_or_else(|| absent(index)))
            .collect()
    }
}

impl<E: Examples + ?Sized> Examples for Subset<'_, E> {
    type Input = E::Input;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn size(&self, index: usize) -> usize {
        self.of.size(self.rows[index])
    }

    fn input(&self, indices: &[usize]) -> Result<E::Input, Error> {
        self.of.input(&self.among_all(indices)?)
    }
}

impl<E: LabelledExamples + ?Sized> LabelledExamples for Subset<'_, E> {
    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        self.of.targets(&self.among_all(indices)?)
    }

    fn answers(&self, index: usize) -> usize {
        self.of.answers(self.rows[index])
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

    fn input(&self, indices: &[usize]) -> Result<Tensor<D>, Error> {
        Ok(rows(&self.0, indices))
    }
}

/// [`Rows`] with their answers.
#[derive(Clone, Debug)]
pub struct LabelledRows<const D: usize> {
    /// The inputs, `[n, ...]`.
    pub inputs: Rows<D>,
    /// The answers, `[n, classes]`, `[n, 1]`, or tokens of `n` rows.
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

    fn input(&self, indices: &[usize]) -> Result<Tensor<D>, Error> {
        self.inputs.input(indices)
    }
}

impl<const D: usize> LabelledExamples for LabelledRows<D> {
    fn targets(&self, indices: &[usize]) -> Result<Targets, Error> {
        Ok(match &self.targets {
            Targets::Classes(one_hot) => Targets::Classes(rows(one_hot, indices)),
            Targets::Scores(scores) => Targets::Scores(rows(scores, indices)),
            Targets::Tokens(TokenTargets { ids, per_row }) => {
                let start = |index: usize| per_row[..index].iter().sum::<usize>();
                let places: Vec<usize> = indices
                    .iter()
                    .flat_map(|&index| (start(index)..).take(per_row[index]))
                    .collect();
                let per_row = indices.iter().map(|&index| per_row[index]).collect();
                Targets::Tokens(TokenTargets { ids: picked(ids, &places), per_row })
            }
        })
    }

    fn answers(&self, index: usize) -> usize {
        match &self.targets {
            Targets::Tokens(tokens) => tokens.per_row[index],
            Targets::Classes(_) | Targets::Scores(_) => 1,
        }
    }
}

fn rows<const D: usize>(tensor: &Tensor<D>, indices: &[usize]) -> Tensor<D> {
    tensor.clone().select(0, places(indices, &tensor.device()))
}

fn picked(ids: &Tensor<1, Int>, indices: &[usize]) -> Tensor<1, Int> {
    ids.clone().select(0, places(indices, &ids.device()))
}

fn places(indices: &[usize], device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
    Tensor::from_data(TensorData::new(numbers, [indices.len()]), device)
}
