//! Training a model of one's own: resume bit for bit, prunes, checkpoints, tokens.

#![cfg(feature = "flex")]
#![allow(missing_docs, clippy::unwrap_used)]

mod checkpoints;
mod loop_;
mod net;
mod resume;
mod tokens;
mod turn;

/// What nearly every test uses.
mod prelude {
    pub(crate) use crate::net::*;
    pub(crate) use burn::module::Module;
    pub(crate) use burn::tensor::{Device, Int, Tensor, TensorData};
    pub(crate) use lrvd_burn::adapter::AdaptedLinear;
    pub(crate) use lrvd_burn::model::{AdapterTargets, NamedModule, ranks};
    pub(crate) use lrvd_burn::optimizer::GroupRates;
    pub(crate) use lrvd_burn::sampling::Pass;
    pub(crate) use lrvd_burn::train::{
        BayesLora, Checkpoints, Event, Inputs, Lora, Method, Model, OrderConfig, Ordered, Outcome,
        ProgressSink, Pruning, RankSearch, Rows, Run, Targets, TrainConfig, Turn, Watch,
    };
    pub(crate) use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64};
    pub(crate) use lrvd_core::prune::{PruneRule, PruneSchedule};
}
