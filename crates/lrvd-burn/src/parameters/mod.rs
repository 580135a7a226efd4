//! Parameters by name: what loading, saving, optimising and checking have in common.
//!
//! Burn identifies parameters by random ids and reaches them through visitors that know neither a
//! parameter's role nor its name in a checkpoint. Here every parameter is a leaf that carries its
//! checkpoint name, its role and its file layout, typed once where it is made; a model hands its
//! leaves out through [`AdaptedModel`](crate::model::AdaptedModel). Optimiser state, pruning and files are then keyed by names
//! that survive a reload.

mod value;

pub use value::ParameterValue;
pub(crate) use value::{plain, replace, select};

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

/// One stop of a reading walk over a model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct NamedParameter<'a> {
    /// Name in a checkpoint, e.g. `deberta.encoder.layer.0.output.dense.weight`.
    pub name: &'a str,
    /// What it is for.
    pub role: Role,
    /// How it is held relative to the checkpoint.
    pub layout: Layout,
    /// The parameter.
    pub value: &'a dyn ParameterValue,
}

/// One stop of a writing walk over a model's parameters.
#[derive(Debug)]
pub struct NamedParameterMut<'a> {
    /// As [`NamedParameter::name`].
    pub name: &'a str,
    /// What it is for.
    pub role: Role,
    /// How it is held relative to the checkpoint.
    pub layout: Layout,
    /// The parameter.
    pub value: &'a mut dyn ParameterValue,
}
