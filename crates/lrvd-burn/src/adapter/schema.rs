//! Schemas of adapter parameters: what files, optimizers, pruning and counts must know of each.

use burn::tensor::Tensor;

use crate::parameters::{Group, ParameterValue, select};

/// Index set of an axis of an adapter parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Features in.
    Input,
    /// Features out.
    Output,
    /// Rank directions.
    Rank,
    /// Another list, of any length: units of a network or members of an ensemble.
    Other,
}

impl Axis {
    /// Length of the axis; `None` if it may be any.
    fn len(self, sizes: &Sizes) -> Option<usize> {
        match self {
            Self::Input => Some(sizes.d_input),
            Self::Output => Some(sizes.d_output),
            Self::Rank => Some(sizes.rank),
            Self::Other => None,
        }
    }
}

/// The sizes that fix every shape of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) d_input: usize,
    pub(crate) d_output: usize,
    pub(crate) rank: usize,
}

/// One parameter of a kind of adapter.
#[derive(Debug, PartialEq, Eq)]
pub struct ParameterSchema {
    /// Last component of its name in a checkpoint.
    pub name: &'static str,
    /// Role; the optimizer's groups follow from it.
    pub group: Group,
    /// Index sets of its axes, in memory.
    pub axes: &'static [Axis],
    /// Use index of its initial values on [`Stream::INIT`](lrvd_core::noise::Stream::INIT).
    pub initial_use: u32,
}

impl ParameterSchema {
    /// A part of the posterior mean.
    pub const fn mean(name: &'static str, axes: &'static [Axis], initial_use: u32) -> Self {
        Self { name, group: Group::AdapterMean, axes, initial_use }
    }

    /// A parameter of the noise.
    pub const fn noise(name: &'static str, axes: &'static [Axis], initial_use: u32) -> Self {
        Self { name, group: Group::LogVariance, axes, initial_use }
    }

    /// `true` if it is transposed in files, as every matrix is.
    pub fn transposed(&self) -> bool {
        self.axes.len() == 2
    }

    /// Shape in memory of a parameter without an axis of any length.
    pub(crate) fn shape(&self, sizes: &Sizes) -> Vec<usize> {
        self.axes.iter().filter_map(|axis| axis.len(sizes)).collect()
    }

    /// Shape in memory of a parameter found with `shape`.
    pub(super) fn expected(&self, sizes: &Sizes, shape: &[usize]) -> Vec<usize> {
        let axes = self.axes.iter().zip(shape);
        axes.map(|(axis, &found)| axis.len(sizes).unwrap_or(found)).collect()
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
            if *axis == Axis::Rank {
                value.select(at, kept);
            }
        }
    }

    /// Selects the rank directions `kept` of a tensor of `shape`, given and returned flattened; `None` without any.
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
            if *axis == Axis::Rank {
                let around = |axes: &[usize]| axes.iter().product::<usize>();
                let cube = [around(&shape[..at]), shape[at], around(&shape[at + 1..])];
                let cut = select(flat.reshape(cube), 1, kept);
                shape[at] = kept.len();
                flat = cut.reshape([around(&shape)]);
            }
        }
        Some(flat)
    }
}

/// Is given a parameter and its schema.
pub(crate) type Visit<'a> = dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue) + 'a;
