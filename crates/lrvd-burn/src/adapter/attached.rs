//! Adapter attached to a linear weight, with its path and noise id.

use std::sync::Arc;

use burn::module::{
    Devices, Module, ModuleMapper, ModuleVisitor, Param, ParamId, Reparameterization,
    Reparameterizer,
};
use burn::tensor::{Device, Tensor, TensorData};
use lrvd_core::noise::module_id;
use lrvd_core::posterior::VariationalFamily;

use super::kind::{Gaussian, LowRankAdapter};
use crate::ops::packed::Packed;
use crate::sampling::Pass;

/// Rank, scale and family at attachment, for files; outlives the adapter when every rank is pruned.
///
/// A layer with an [`UpdateOp`](super::UpdateOp) has none: its mean is not a product of two factors.
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
    pub(super) fn of(adapter: &LowRankAdapter, initial_rank: usize) -> Option<Self> {
        let family = adapter.posterior().and_then(Gaussian::family);
        let slot = Self { initial_rank, scaling: adapter.scaling, family };
        adapter.op().is_none().then_some(slot)
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
    pub adapter: Option<LowRankAdapter>,
    /// Rank, scale and family at attachment, for files.
    pub slot: Option<AdapterSlot>,
    /// Path of the layer, which names it in files.
    pub path: Arc<str>,
    /// Identity of the layer in the noise streams, derived from its path.
    pub noise_id: u32,
    /// The pass of `forward` without an explicit one.
    pub(crate) pass: Pass,
    /// The weight as its product reads it, in a model that only predicts.
    pub(crate) packed: Option<Arc<Packed>>,
}

impl Attached {
    /// Nothing yet, on the layer at `path`.
    pub(crate) fn empty(path: &str) -> Self {
        let (noise_id, pass) = (module_id(path), Pass::mean());
        Self { adapter: None, slot: None, path: path.into(), noise_id, pass, packed: None }
    }

    /// `true` if there is no adapter, and there was none.
    pub(crate) fn is_bare(&self) -> bool {
        self.adapter.is_none() && self.slot.is_none()
    }

    /// An empty parameter that carries the whole: Burn's visitors and mappers see parameters only.
    pub(crate) fn handle(&self) -> Param<Tensor<1>> {
        let device = self.devices().into_iter().next().unwrap_or_default();
        let empty =
            |device: &Device, _| Tensor::from_data(TensorData::new(Vec::<f32>::new(), [0]), device);
        let handle = Param::uninitialized(ParamId::from(0), empty, device, false, [0].into());
        handle.apply_reparameterization(Attach(Some(self.clone())))
    }

    fn with(
        mut self,
        change: impl FnOnce(Option<LowRankAdapter>) -> Option<LowRankAdapter>,
    ) -> Self {
        self.adapter = change(self.adapter.take());
        self
    }
}

/// The parameters of the adapter are Burn's to move, record and differentiate. They follow a parameter without values, by
/// which walks read and replace the whole.
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
        visitor.visit_float(&self.handle());
        self.adapter.visit(visitor);
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let handle = mapper.map_float(self.handle());
        let changed = handle.reparameterization::<Self>().cloned().unwrap_or(self);
        changed.with(|adapter| Module::map(adapter, mapper))
    }
}

impl Reparameterization for Attached {
    const NAME: &'static str = "adapter";

    /// `W` where the update is not one matrix, and the base as it is where it is not a matrix.
    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let update = self.adapter.as_ref().filter(|_| D == 2);
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
