//! Parameters by name: what loading, saving, optimising and checking have in common.
//!
//! Burn identifies parameters by random ids. Optimiser state, pruning and files are keyed by names of a checkpoint instead,
//! which survive a reload; [`NamedModule`](crate::model::NamedModule) gives them.

pub(crate) mod handing;
mod value;

pub use value::ParameterValue;
pub(crate) use value::{plain, replace, select};

/// What a parameter is for; its group in the optimiser, never found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
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

/// One stop of a reading walk over a model's parameters.
#[derive(Clone, Copy, Debug)]
pub struct NamedParameter<'a> {
    /// Name in a checkpoint, e.g. `deberta.encoder.layer.0.output.dense.weight`.
    pub name: &'a str,
    /// What it is for.
    pub group: Group,
    /// Whether a checkpoint holds it transposed, as it does linear weights: `[d_output, d_input]`.
    pub transposed: bool,
    /// The parameter.
    pub value: &'a dyn ParameterValue,
}

/// One stop of a writing walk over a model's parameters.
#[derive(Debug)]
pub struct NamedParameterMut<'a> {
    /// As [`NamedParameter::name`].
    pub name: &'a str,
    /// What it is for.
    pub group: Group,
    /// Whether a checkpoint holds it transposed, as it does linear weights: `[d_output, d_input]`.
    pub transposed: bool,
    /// The parameter.
    pub value: &'a mut dyn ParameterValue,
}
