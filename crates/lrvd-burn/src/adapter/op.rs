//! Updates of other methods: what a comparison method puts in place of the product of the two factors.

use std::fmt::Debug;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::kind::Basic;
use burn::tensor::{Tensor, TensorData};
use lrvd_core::noise::NoiseKey;

use super::noise::{LayerNoise, SHARED, each_repeated};
use super::schema::{ParameterSchema, Visit};
use crate::error::Error;
use crate::parameters::ParameterValue;
use crate::sampling::Scheme;

/// Update of a layer that is not the product of the adapter's factors alone.
///
/// One more method is one more implementation: its parameters are moved, saved, loaded, optimized and counted as the
/// factors are. No LoRA file can hold it, and it is not merged into a weight.
pub trait UpdateOp: Debug + Send + Sync {
    /// Parameters beside the factors `a [d_input, rank]` and `b [rank, d_output]` of a fresh LoRA, which may be changed;
    /// `key` names seed and layer.
    fn start(
        &self,
        _a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        _key: NoiseKey,
    ) -> Result<Vec<OpParameter>, Error> {
        Ok(Vec::new())
    }

    /// Number of values of the parameters beside the factors `[d_input, rank]` and `[rank, d_output]`.
    fn parameter_count(&self, _rank: usize, _d_input: usize, _d_output: usize) -> usize {
        0
    }

    /// Members of an ensemble that share a batch, each with its own rows.
    fn members(&self) -> usize {
        1
    }

    /// `true` if draws of the pass change the update.
    fn is_random(&self) -> bool {
        false
    }

    /// `true` if the op draws for the extent of `scheme`. Under any other scheme a random op is prepared with every token as a
    /// sequence of its draws per sequence, which is the exact distribution of one token.
    fn draws_by(&self, scheme: Scheme) -> bool {
        matches!(scheme, Scheme::PerBatch | Scheme::PerSequence)
    }

    /// `true` if each row of the output is the same whatever rows are beside it.
    fn is_row_independent(&self) -> bool {
        true
    }

    /// Update of one layer in one pass, with what the pass draws once.
    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>>;
}

/// Update of an input after dropout: `[n, tokens, d_input]` to `[n, tokens, d_output]`.
///
/// The second argument is 0 for tokens and 1 for rows that all sequences share (`n = 1`), whose result may have an entry
/// for each sequence.
pub type PreparedUpdate<'a> = dyn Fn(Tensor<3>, u32) -> Tensor<3> + 'a;

/// Adapter of a layer and what a pass draws for it.
#[derive(Clone, Copy)]
pub struct OpLayer<'a> {
    /// Down-projection, `[d_input, rank]`.
    pub a: &'a Param<Tensor<2>>,
    /// Up-projection, `[rank, d_output]`.
    pub b: &'a Param<Tensor<2>>,
    /// The factor `c`.
    pub scaling: f64,
    /// The op's own parameters.
    pub extension: &'a OpExtension,
    /// Identity of the layer in the noise streams.
    pub module: u32,
    /// Sequences of the batch, those of all members and draws.
    pub sequences: usize,
    /// Draws of weights; `None` of a pass at the mean.
    pub noise: Option<LayerNoise>,
}

impl OpLayer<'_> {
    /// Update `scaling · x·A_m·B_m` of the rows of every member `m`, from `a [members, d_input, rank]` and
    /// `b [members, rank, d_output]`: one batched product.
    ///
    /// Rows `m·n .. (m+1)·n` of a batch repeated by [`repeat_for_members`] belong to member `m`; rows that all sequences
    /// share reach each of them through its member.
    pub fn members_update(
        &self,
        x: Tensor<3>,
        use_index: u32,
        a: Tensor<3>,
        b: Tensor<3>,
    ) -> Tensor<3> {
        let [n, tokens, d_input] = x.dims();
        let [members, _, d_output] = b.dims();
        let product = |x: Tensor<3>| x.matmul(a).mul_scalar(self.scaling).matmul(b);
        if use_index == SHARED {
            let update = product(x.expand([members as i64, -1, -1]));
            if members == 1 { update } else { each_repeated(update, self.sequences / members) }
        } else {
            let update = product(x.reshape([members, n / members * tokens, d_input]));
            update.reshape([n, tokens, d_output])
        }
    }
}

/// An [`UpdateOp`] on a layer, with its parameters.
#[derive(Module, Debug)]
pub struct OpExtension {
    /// The op.
    #[module(skip)]
    pub op: Arc<dyn UpdateOp>,
    parameters: Vec<OpParameter>,
}

impl OpExtension {
    /// The op on the factors of a fresh LoRA.
    pub fn new(
        op: Arc<dyn UpdateOp>,
        a: &mut Param<Tensor<2>>,
        b: &mut Param<Tensor<2>>,
        key: NoiseKey,
    ) -> Result<Self, Error> {
        let parameters = op.start(a, b, key)?;
        Ok(Self { op, parameters })
    }

    /// Parameter `index` of those that [`UpdateOp::start`] gave, which has `D` axes, as a part of the graph.
    pub fn parameter<const D: usize>(&self, index: usize) -> Tensor<D> {
        Tensor::from_dispatch(match &self.parameters[index].value {
            OpValue::Vector(p) => p.val().into_dispatch(),
            OpValue::Matrix(p) => p.val().into_dispatch(),
            OpValue::Cube(p) => p.val().into_dispatch(),
        })
    }

    pub(super) fn each(&mut self, visit: &mut Visit<'_>) {
        for OpParameter { schema, value } in &mut self.parameters {
            visit(schema, value.get_mut());
        }
    }
}

/// Parameter of an [`UpdateOp`].
#[derive(Module, Debug)]
pub struct OpParameter {
    #[module(skip)]
    schema: &'static ParameterSchema,
    value: OpValue,
}

/// A parameter by number of axes.
#[derive(Module, Debug)]
pub enum OpValue {
    /// One axis.
    Vector(Param<Tensor<1>>),
    /// Two axes.
    Matrix(Param<Tensor<2>>),
    /// Three axes.
    Cube(Param<Tensor<3>>),
}

impl From<Param<Tensor<1>>> for OpValue {
    fn from(value: Param<Tensor<1>>) -> Self {
        Self::Vector(value)
    }
}

impl From<Param<Tensor<2>>> for OpValue {
    fn from(value: Param<Tensor<2>>) -> Self {
        Self::Matrix(value)
    }
}

impl From<Param<Tensor<3>>> for OpValue {
    fn from(value: Param<Tensor<3>>) -> Self {
        Self::Cube(value)
    }
}

impl OpParameter {
    /// `value` under the name, the group and the axes of `schema`.
    pub fn new(schema: &'static ParameterSchema, value: impl Into<OpValue>) -> Self {
        Self { schema, value: value.into() }
    }

    /// A trainable parameter in the precision of `like`, on its device, with `values` in row-major order.
    pub fn trainable<const D: usize>(
        schema: &'static ParameterSchema,
        like: &Param<Tensor<2>>,
        values: Vec<f32>,
        shape: [usize; D],
    ) -> Self
    where
        Param<Tensor<D>>: Into<OpValue>,
    {
        let like = like.val();
        let (data, device) = (TensorData::new(values, shape), like.device().inner().autodiff());
        let value = Tensor::<D>::from_data(data, (&device, like.dtype()));
        Self::new(schema, Param::from_tensor(value.require_grad()))
    }
}

impl OpValue {
    fn get_mut(&mut self) -> &mut dyn ParameterValue {
        match self {
            Self::Vector(p) => p,
            Self::Matrix(p) => p,
            Self::Cube(p) => p,
        }
    }
}

/// Batch repeated member by member, `[n, ...]` to `[members·n, ...]`.
///
/// Row `m·n + i` is example `i` for member `m`. Token identifiers, masks and activations are repeated alike.
pub fn repeat_for_members<const D: usize, K: Basic>(
    batch: Tensor<D, K>,
    members: usize,
) -> Tensor<D, K> {
    batch.repeat_dim(0, members)
}
