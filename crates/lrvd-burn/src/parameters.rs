//! Parameters by name: the one walk that loading, saving, optimising and checking share.
//!
//! Burn identifies parameters by random ids and reaches them through visitors that know neither a
//! parameter's role nor its name in a checkpoint. Models here implement [`NamedParameters`]
//! instead: one method that hands out every parameter with its checkpoint name, its role and its
//! file layout. Optimiser state, pruning and files are then keyed by names that survive a reload.

use burn::module::Param;
use burn::tensor::{Device, Gradients, Tensor, TensorData};

/// What a parameter is for; the optimiser's groups are built from this, never from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Pretrained weight of the frozen model.
    Backbone,
    /// Adapter factor: posterior mean of A or B, AdaLoRA's singular values, members, the mean of
    /// random scales, a contextual network.
    AdapterMean,
    /// Posterior parameter of the adapter: log-variance, log noise-to-signal ratio, or what stands
    /// for a standard deviation.
    LogVariance,
    /// Layer between encoder and head that fine-tuning starts anew, at the adapter's rate.
    Pooler,
    /// Task head, trained from scratch.
    Head,
}

/// How the tensor in memory relates to the tensor in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The same shape and order.
    AsStored,
    /// A matrix held transposed: checkpoints store linear weights `[d_output, d_input]`, Burn
    /// multiplies by `[d_input, d_output]`.
    Transposed,
}

/// A borrowed parameter of rank 1, 2 or 3.
#[derive(Debug)]
pub enum ParameterMut<'a> {
    /// Bias, scale or log-variance.
    Vector(&'a mut Param<Tensor<1>>),
    /// Linear or embedding weight.
    Matrix(&'a mut Param<Tensor<2>>),
    /// Convolution weight, or one matrix per ensemble member.
    Volume(&'a mut Param<Tensor<3>>),
}

/// Runs `$body` with `$p` bound to the parameter, whatever its rank.
macro_rules! each_rank {
    ($self:expr, $p:ident => $body:expr) => {
        match $self {
            ParameterMut::Vector($p) => $body,
            ParameterMut::Matrix($p) => $body,
            ParameterMut::Volume($p) => $body,
        }
    };
}

impl ParameterMut<'_> {
    /// Shape in memory.
    pub fn shape(&self) -> Vec<usize> {
        each_rank!(self, p => p.val().dims().to_vec())
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the parameter holds no value, as the factors of rank 0 do.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a backward pass gives it a gradient.
    pub fn is_trainable(&self) -> bool {
        each_rank!(self, p => p.val().is_require_grad())
    }

    /// The values, flattened in memory order, cut off from any graph.
    pub fn flat(&self) -> Tensor<1> {
        let len = self.len();
        each_rank!(self, p => plain(p.val()).reshape([len]))
    }

    /// The gradient that `gradients` holds for it, flattened in memory order.
    pub fn gradient(&self, gradients: &Gradients) -> Option<Tensor<1>> {
        let len = self.len();
        each_rank!(self, p => p.val().grad(gradients).map(|g| g.reshape([len])))
    }

    /// Replaces the values; shape, identity and trainability stay.
    pub fn set_flat(&mut self, values: Tensor<1>) {
        each_rank!(self, p => {
            let shape = p.val().dims();
            replace(p, values.reshape(shape));
        });
    }

    /// Freezes or unfreezes the parameter.
    pub fn set_trainable(&mut self, trainable: bool) {
        each_rank!(self, p => {
            let value = plain(p.val());
            let value = if trainable { value.autodiff().require_grad() } else { value };
            **p = Param::initialized(p.id, value);
        });
    }

    /// Replaces the values from host data of the same shape, keeping dtype and trainability.
    pub fn set_data(&mut self, data: TensorData) {
        each_rank!(self, p => {
            let old = p.val();
            let device: Device = old.device().inner();
            replace(p, Tensor::from_data(data, (&device, old.dtype())));
        });
    }
}

/// The tensor without its autodiff association.
pub(crate) fn plain<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if tensor.device().is_autodiff() { tensor.inner() } else { tensor }
}

/// Puts `value` into `param`, trainable exactly if the old value was.
pub(crate) fn replace<const D: usize>(param: &mut Param<Tensor<D>>, value: Tensor<D>) {
    let value = if param.val().is_require_grad() { value.autodiff().require_grad() } else { value };
    *param = Param::initialized(param.id, value);
}

/// One stop of the walk over a model's parameters.
#[derive(Debug)]
pub struct NamedParameter<'a> {
    /// Name in a checkpoint, e.g. `deberta.encoder.layer.0.output.dense.weight`.
    pub name: &'a str,
    /// What it is for.
    pub role: Role,
    /// How it is held relative to the checkpoint.
    pub layout: Layout,
    /// The parameter.
    pub value: ParameterMut<'a>,
}

/// A model whose parameters can be walked by name, in a fixed order.
pub trait NamedParameters {
    /// Calls `visit` for every parameter, adapters included, always in the same order.
    fn visit_parameters(&mut self, visit: &mut dyn FnMut(NamedParameter<'_>));
}

/// Numbers of trainable values by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainableCounts {
    /// Adapter factors.
    pub adapter: usize,
    /// Posterior parameters.
    pub posterior: usize,
    /// Pooler and head.
    pub head: usize,
    /// Unfrozen backbone weights.
    pub backbone: usize,
}

/// Counts the trainable values of `model` by role.
pub fn trainable_counts(model: &mut impl NamedParameters) -> TrainableCounts {
    let mut counts = TrainableCounts::default();
    model.visit_parameters(&mut |p| {
        if p.value.is_trainable() {
            let n = p.value.len();
            match p.role {
                Role::AdapterMean => counts.adapter += n,
                Role::LogVariance => counts.posterior += n,
                Role::Pooler | Role::Head => counts.head += n,
                Role::Backbone => counts.backbone += n,
            }
        }
    });
    counts
}
