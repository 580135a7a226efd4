//! Schemas of adapter parameters: what files, optimisers, pruning and counts must know of each.
//!
//! Every kind of adapter lists its parameters once, in its file below `kind`. Walks by name, shape
//! checks, pruning of values, moments and gradients, and counts are derived from the list.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// How it is held relative to a file.
    pub transposed: bool,
    /// What its axes run over, in memory.
    pub axes: &'static [Axis],
    /// Use index of its initial values on [`Stream::INIT`](lrvd_core::noise::Stream::INIT); those of
    /// further members of an ensemble follow.
    pub initial_use: u32,
}

impl ParameterSchema {
    /// Shape in memory.
    pub(crate) fn shape(&self, sizes: &Sizes) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.len(sizes)).collect()
    }

    /// Shape in a file.
    pub(crate) fn stored_shape(&self, sizes: &Sizes) -> Vec<usize> {
        let mut shape = self.shape(sizes);
        if self.transposed {
            shape.reverse();
        }
        shape
    }

    /// What the rank directions `kept` leave of a tensor of `shape`, given and returned flattened.
    fn select_flat(&self, flat: Tensor<1>, shape: &[usize], kept: &[usize]) -> Tensor<1> {
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
        flat
    }
}

/// A part of an adapter that hands its parameters out with their schemas.
pub(crate) trait Parameters {
    /// Calls `visit` for every parameter, always in the same order.
    fn each(&self, visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue));

    /// The same, to write.
    fn each_mut(
        &mut self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &mut dyn ParameterValue),
    );

    /// Keeps the rank directions `kept`, in order; identity and trainability stay.
    fn select_ranks(&mut self, kept: &[usize]) {
        self.each_mut(&mut |schema, value| {
            for (at, axis) in schema.axes.iter().enumerate() {
                if let Some(kept) = axis.kept(value.shape()[at], kept) {
                    value.select(at, &kept);
                }
            }
        });
    }

    /// The first parameter whose shape is not what `sizes` ask for, with expected and found shape.
    fn misfit(&self, sizes: &Sizes) -> Option<(&'static str, Vec<usize>, Vec<usize>)> {
        let mut misfit = None;
        self.each(&mut |schema, value| {
            let (expected, found) = (schema.shape(sizes), value.shape());
            if misfit.is_none() && expected != found {
                misfit = Some((schema.name, expected, found));
            }
        });
        misfit
    }
}

/// Makes a struct [`Parameters`] by naming the schema of each of its fields.
macro_rules! parameters {
    ($name:ty { $($field:ident: $schema:expr),+ $(,)? }) => {
        impl $crate::adapter::schema::Parameters for $name {
            fn each(
                &self,
                visit: &mut dyn FnMut(
                    &'static $crate::adapter::ParameterSchema,
                    &dyn $crate::parameters::ParameterValue,
                ),
            ) {
                $(visit(&$schema, &self.$field);)+
            }

            fn each_mut(
                &mut self,
                visit: &mut dyn FnMut(
                    &'static $crate::adapter::ParameterSchema,
                    &mut dyn $crate::parameters::ParameterValue,
                ),
            ) {
                $(visit(&$schema, &mut self.$field);)+
            }
        }
    };
}
pub(super) use parameters;

/// A cut of one named adapter parameter: what a prune does to its moments and its gradient.
pub(crate) struct RankCut<'a> {
    /// Name in a checkpoint.
    pub(crate) name: String,
    pub(crate) schema: &'static ParameterSchema,
    /// Shape before the cut.
    pub(crate) shape: Vec<usize>,
    /// Rank directions that stay.
    pub(crate) kept: &'a [usize],
}

impl RankCut<'_> {
    /// What stays of a tensor of the parameter's shape, flattened; `None` without a rank.
    pub(crate) fn apply(&self, flat: Tensor<1>) -> Option<Tensor<1>> {
        if self.kept.is_empty() {
            return None;
        }
        Some(self.schema.select_flat(flat, &self.shape, self.kept))
    }
}
