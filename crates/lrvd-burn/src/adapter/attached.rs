//! What stands on a layer's weight: an adapter, and what files and noise know of it.

use std::sync::Arc;

use burn::module::{
    Devices, Module, ModuleMapper, ModuleVisitor, Param, Reparameterization, Reparameterizer,
};
use burn::tensor::{Device, Tensor};
use lrvd_core::noise::module_id;
use lrvd_core::posterior::VariationalFamily;

use super::kind::{Adapter, Extension, Gaussian, LowRankAdapter};
use super::observer::Observer;
use crate::parameters::handing::{hand_out, hand_over};
use crate::sampling::Pass;

/// What was attached to a layer, for files; it outlives the adapter when every rank is pruned.
///
/// Layers with an [`Adapter`] whose mean is no product of two factors have none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterSlot {
    /// Rank at attachment.
    pub initial_rank: usize,
    /// The factor `c`, fixed for life.
    pub scaling: f64,
    /// Posterior family, if the adapter has one.
    pub family: Option<VariationalFamily>,
}

impl AdapterSlot {
    pub(super) fn of(adapter: &Adapter, initial_rank: usize) -> Option<Self> {
        let Adapter::LowRank(adapter) = adapter else { return None };
        if matches!(adapter.extension, Some(Extension::Scale(_) | Extension::Contextual(_))) {
            return None;
        }
        let family = adapter.posterior().and_then(Gaussian::family);
        Some(Self { initial_rank, scaling: adapter.scaling, family })
    }
}

/// A Burn [`Reparameterization`] of a linear layer's weight `[d_input, d_output]`.
///
/// `Param::val` gives `W + c·A·diag(E)·B` at the posterior mean, or at the one weight draw of the pass that
/// [`with_pass`](crate::model::with_pass) gave the model. Burn cannot take a reparameterization off a model
/// that it walks, so one whose last rank was pruned stays and adds nothing.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The adapter; `None` after its last rank was pruned.
    pub adapter: Option<Adapter>,
    /// What was attached, for files.
    pub slot: Option<AdapterSlot>,
    /// Path of the layer, which names it in files.
    pub path: Arc<str>,
    /// Identity of the layer in the noise streams, derived from its path.
    pub noise_id: u32,
    pub(super) observer: Option<Observer>,
    /// The pass of `forward` without an explicit one.
    pub(crate) pass: Pass,
}

impl Attached {
    /// Nothing yet, on the layer at `path`.
    pub(crate) fn empty(path: &str) -> Self {
        let (noise_id, pass) = (module_id(path), Pass::mean());
        Self { adapter: None, slot: None, path: path.into(), noise_id, observer: None, pass }
    }

    /// The adapter, if it is one of two factors.
    pub fn low_rank(&self) -> Option<&LowRankAdapter> {
        match &self.adapter {
            Some(Adapter::LowRank(adapter)) => Some(adapter),
            _ => None,
        }
    }

    /// Number of ensemble members that share a batch here, if there are several adapters.
    pub fn members(&self) -> Option<usize> {
        match &self.adapter {
            Some(Adapter::Members(members)) => Some(members.count()),
            _ => None,
        }
    }

    fn with(mut self, change: impl FnOnce(Option<Adapter>) -> Option<Adapter>) -> Self {
        self.adapter = change(self.adapter.take());
        self
    }
}

/// The adapter's parameters are Burn's to move, record and differentiate; a walk of ours is handed the whole.
impl Module for Attached {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.adapter.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.with(|adapter| adapter.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.with(|adapter| adapter.to_device(device))
    }

    fn train(self) -> Self {
        self.with(Module::train)
    }

    fn valid(&self) -> Self {
        self.clone().with(|adapter| adapter.valid())
    }

    fn materialize(self) -> Self {
        self.with(Module::materialize)
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        if !hand_out(visitor, || self.clone()) {
            self.adapter.visit(visitor);
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        match hand_over(mapper, self) {
            Ok(changed) => changed,
            Err(unchanged) => unchanged.with(|adapter| Module::map(adapter, mapper)),
        }
    }
}

impl Reparameterization for Attached {
    const NAME: &'static str = "adapter";

    /// `W` where the update is not one matrix.
    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let update = self.adapter.as_ref();
        let update = update.and_then(|adapter| adapter.dense(&self.pass, self.noise_id));
        let base = base.dequantize();
        match update {
            Some(update) => {
                let shape = base.shape();
                let update = update.cast(base.dtype()).reshape(shape);
                base + update
            }
            None => base,
        }
    }
}

/// Puts `attached` on `weight` in place of what was there. Burn attaches once: the old one has to come off first.
pub(crate) fn set(weight: &mut Param<Tensor<2>>, attached: Option<Attached>) {
    // Without what stood on it.
    let base = weight.clone().map(|value| value);
    *weight = match attached {
        Some(attached) => base.apply_reparameterization(Attach(Some(attached))),
        None => base,
    };
}

/// Puts one adapter on one parameter.
pub(crate) struct Attach(pub(crate) Option<Attached>);

impl Reparameterizer for Attach {
    type Reparam = Attached;

    fn reparameterize<const D: usize>(
        &mut self,
        _: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<Attached>) {
        (param, self.0.take())
    }
}
