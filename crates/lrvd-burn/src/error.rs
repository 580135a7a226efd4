//! Errors of the adapter layer.

use crate::sampling::Scheme;

/// Something about an adapter, its configuration or its files cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// A factor does not fit the layer it is attached to.
    #[error("adapter `{path}`: `{name}` should have shape {wanted:?}, found {found:?}")]
    Shape {
        /// Module path of the adapted layer.
        path: String,
        /// The factor, in the file's spelling.
        name: &'static str,
        /// Shape that the base layer and the rank ask for.
        wanted: Vec<usize>,
        /// Shape that was given.
        found: Vec<usize>,
    },
    /// Some targets select nothing.
    #[error("the targets {targets:?} match none of the {layers} adaptable layers")]
    NoTarget {
        /// Those targets, as given.
        targets: Vec<String>,
        /// Number of layers looked at.
        layers: usize,
    },
    /// Two layers have the same path.
    #[error(
        "two layers of the model have the path `{path}`: a path names one layer in files, noise and optimiser state"
    )]
    DuplicatePath {
        /// The path.
        path: String,
    },
    /// More directions than a product of the factors can have.
    #[error(
        "rank {rank} is above {width}, the smaller width of layer `{path}` ({d_input} to {d_output}): take {width} or less, \
         or leave that layer out of the targets",
        width = .d_input.min(.d_output)
    )]
    Rank {
        /// Module path of the narrowest layer that is to be adapted.
        path: String,
        /// The rank asked for.
        rank: usize,
        /// Features into the layer.
        d_input: usize,
        /// Features out of it.
        d_output: usize,
    },
    /// There is no pair of factors to put something between or around.
    #[error("layer `{path}` has no adapter of two factors")]
    NoFactors {
        /// Module path of the layer.
        path: String,
    },
    /// Layers would share a batch in different ways.
    #[error("adapter `{path}` has {found} members, others have {wanted}")]
    Members {
        /// Module path of the layer.
        path: String,
        /// Members of the first layer that has some.
        wanted: usize,
        /// Members of this one.
        found: usize,
    },
    /// The adapter's noise belongs to its basis.
    #[error(
        "adapter `{path}` cannot be turned: wanted two factors with at most one variance per rank"
    )]
    Gauge {
        /// Module path of the layer.
        path: String,
    },
    /// The scheme of a pass has no meaning for the adapter of a layer.
    #[error("adapter `{path}` cannot be sampled by {scheme:?}")]
    Scheme {
        /// Module path of the layer.
        path: String,
        /// The scheme.
        scheme: Scheme,
    },
    /// The relevance statistic of a rank has no value.
    #[error(
        "the relevance statistic of rank {rank} of adapter `{path}` is {value}, expected a finite number"
    )]
    Statistic {
        /// Module path of the layer.
        path: String,
        /// Rank direction, counted from 0.
        rank: usize,
        /// The value found.
        value: f64,
    },
    /// A tensor holds a value that is not finite.
    #[error("`{name}` is not finite at step {step}: {value}")]
    NonFinite {
        /// What was looked at.
        name: String,
        /// Optimiser step, counted from 0.
        step: usize,
        /// The value found.
        value: f64,
    },
    /// The state to restore does not belong to this model.
    #[error(
        "optimiser state does not fit the model: missing {missing:?}, unexpected {unexpected:?}"
    )]
    OptimizerState {
        /// Trainable parameters without state.
        missing: Vec<String>,
        /// States without a trainable parameter.
        unexpected: Vec<String>,
    },
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
}

/// The device asked for cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The spelling is not one of ours.
    #[error("unknown device `{name}`; wanted one of `cpu`, `wgpu`, `wgpu:N`, `cuda`, `cuda:N`")]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The backend was left out of this build.
    #[error(
        "device `{name}` is not built in; rebuild with `--features {feature}` (built in: {built_in})"
    )]
    NotBuiltIn {
        /// The name as given.
        name: String,
        /// The cargo feature that adds it.
        feature: &'static str,
        /// What this build has.
        built_in: String,
    },
    /// The backend is there, the hardware or its driver is not.
    #[error("device `{name}` is not there: {reason}")]
    NotThere {
        /// The name as given.
        name: String,
        /// What the runtime said.
        reason: String,
    },
}
