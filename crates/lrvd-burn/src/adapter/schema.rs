//! Schemas of adapter parameters: what files, optimisers, pruning and counts must know of each.

use burn::tensor::Tensor;

use crate::parameters::{Group, ParameterValue, select};

/// What one axis of an adapter parameter runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Features in.
    Input,
    /// Features out.
    Output,
    /// Rank directions.
    Rank,
    /// Entries of two matrices between rank directions, mean and deviation: `2·rank²`, row-major.
    RankMatrices,
    /// Units of a hidden layer.
    Hidden,
    /// Members of an ensemble.
    Members,
}

impl Axis {
    /// Length of the axis.
    fn len(self, sizes: &Sizes) -> usize {
        match self {
            Self::Input => sizes.d_input,
            Self::Output => sizes.d_output,
            Self::Rank => sizes.rank,
            Self::RankMatrices => 2 * sizes.rank * sizes.rank,
            Self::Hidden => sizes.hidden,
            Self::Members => sizes.members,
        }
    }

    /// Indices that are left of an axis of `len` entries when the rank directions `kept` are; `None`
    /// if rank directions do not matter to it.
    fn kept(self, len: usize, kept: &[usize]) -> Option<Vec<usize>> {
        match self {
            Self::Rank => Some(kept.to_vec()),
            Self::RankMatrices => {
                let rank = (len / 2).isqrt();
                let rows = (0..2).flat_map(|half| kept.iter().map(move |i| half * rank + i));
                Some(rows.flat_map(|row| kept.iter().map(move |j| row * rank + j)).collect())
            }
            Self::Input | Self::Output | Self::Hidden | Self::Members => None,
        }
    }
}

/// The sizes that fix every shape of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) d_input: usize,
    pub(crate) d_output: usize,
    pub(crate) rank: usize,
    /// Units of a contextual network; 0 without one.
    pub(crate) hidden: usize,
    /// Members of an ensemble; 1 without one.
    pub(crate) members: usize,
}

/// One parameter of a kind of adapter.
#[derive(Debug, PartialEq, Eq)]
pub struct ParameterSchema {
    /// Last component of its name in a checkpoint.
    pub name: &'static str,
    /// What it is for; the optimiser's groups follow from it.
    pub group: Group,
    /// What its axes run over, in memory.
    pub axes: &'static [Axis],
    /// Use index of its initial values on [`Stream::INIT`](lrvd_core::noise::Stream::INIT); those of
    /// further members of an ensemble follow.
    pub initial_use: u32,
}

impl ParameterSchema {
    /// A part of the posterior mean.
    pub(super) const fn mean(name: &'static str, axes: &'static [Axis], initial_use: u32) -> Self {
        Self { name, group: Group::AdapterMean, axes, initial_use }
    }

    /// A parameter of the noise.
    pub(super) const fn noise(name: &'static str, axes: &'static [Axis], initial_use: u32) -> Self {
        Self { name, group: Group::LogVariance, axes, initial_use }
    }

    /// Whether a file holds it transposed, as it does every matrix.
    pub fn transposed(&self) -> bool {
        self.axes.len() == 2
    }

    /// Shape in memory.
    pub(crate) fn shape(&self, sizes: &Sizes) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.len(sizes)).collect()
    }

    /// Shape in a file.
    pub(crate) fn stored_shape(&self, sizes: &Sizes) -> Vec<usize> {
        let mut shape = self.shape(sizes);
        if self.transposed() {
            shape.reverse();
        }
        shape
    }

    /// Keeps the rank directions `kept` of `value`, in order; identity and trainability stay.
    pub(super) fn cut(&self, value: &mut dyn ParameterValue, kept: &[usize]) {
        for (at, axis) in self.axes.iter().enumerate() {
            if let Some(kept) = axis.kept(value.shape()[at], kept) {
                value.select(at, &kept);
            }
        }
    }

    /// What the rank directions `kept` leave of a tensor of `shape`, given and returned flattened; `None` without any.
    pub(crate) fn cut_flat(
        &self,
        flat: Tensor<1>,
        shape: &[usize],
        kept: &[usize],
    ) -> Option<Tensor<1>> {
        if kept.is_empty() {
            return None;
        }
        let (mut flat, mut shape) = (flat, shape.to_vec());
        for (at, axis) in self.axes.iter().enumerate() {
            if let Some(kept) = axis.kept(shape[at], kept) {
                let around = |axes: &[usize]| axes.iter().product::<usize>();
                let cube = [around(&shape[..at]), shape[at], around(&shape[at + 1..])];
                let cut = select(flat.reshape(cube), 1, &kept);
                shape[at] = kept.len();
                flat = cut.reshape([around(&shape)]);
            }
        }
        Some(flat)
    }
}

/// Is given a parameter and its schema.
pub(crate) type Visit<'a> = dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue) + 'a;
