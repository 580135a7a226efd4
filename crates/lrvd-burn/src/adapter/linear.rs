//! A frozen linear layer with an optional adapter.

use std::sync::Arc;

use burn::module::{Module, Param, Reparameterization, Reparameterizer};
use burn::tensor::{Int, Tensor};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::module_id;

use super::kind::{Adapter, Extension, LowRankAdapter, Posterior};
use super::observer::Observer;
use super::prepared::PreparedLinear;
use super::schema::{Axis, ParameterSchema, Parameters};
use crate::error::Error;
use crate::parameters::{Layout, NamedParameter, NamedParameterMut, ParameterValue, Role};
use crate::sampling::{DrawPer, Pass, Scheme};

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

/// `y = x·W + b + update(x)`: a linear layer of a pretrained model and its adapter.
///
/// The base weight is an ordinary tensor without gradient: its backward computes `dX` and never
/// the `[d_input, d_output]` weight gradient (`cargo bench -p lrvd-perf -- frozen_base`
/// measures the difference). A layer whose adapter was pruned to rank 0 does the base product and
/// nothing else.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `weight` | `[d_input, d_output]` |
/// | `bias` | `[d_output]` |
/// | input | `[sequences, ..., d_input]`, two axes or more |
#[derive(Module, Debug)]
pub struct AdaptedLinear {
    /// Base weight, as Burn multiplies it.
    pub weight: Param<Tensor<2>>,
    /// Base bias.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    slot: Option<AdapterSlot>,
    #[module(skip)]
    path: Arc<str>,
    #[module(skip)]
    role: Role,
    /// Whether the weight is another parameter's, which hands it out.
    #[module(skip)]
    weight_is_tied: bool,
    /// Identity of this layer in the noise streams, derived from its path.
    noise_id: u32,
    #[module(skip)]
    pub(super) observer: Option<Observer>,
}

impl AdaptedLinear {
    /// A frozen layer of the backbone at module path `path`, without an adapter.
    ///
    /// The path names the layer in files and in the noise: it must be unique and stay the same.
    pub fn new(path: &str, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: Param::from_tensor(weight).set_require_grad(false),
            bias: bias.map(|b| Param::from_tensor(b).set_require_grad(false)),
            slot: None,
            path: path.into(),
            role: Role::Backbone,
            weight_is_tied: false,
            noise_id: module_id(path),
            observer: None,
        }
    }

    /// The role of weight and bias.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The same layer with weight and bias in another role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same layer with a weight that belongs to another parameter (a tied head's is the word
    /// embedding): it is not handed out under this layer's name.
    #[must_use]
    pub fn with_tied_weight(self) -> Self {
        Self { weight_is_tied: true, ..self }
    }

    /// Module path.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn shared_path(&self) -> Arc<str> {
        Arc::clone(&self.path)
    }

    /// Features in.
    pub fn d_input(&self) -> usize {
        self.weight.base().dims()[0]
    }

    /// Features out.
    pub fn d_output(&self) -> usize {
        self.weight.base().dims()[1]
    }

    /// Identity of the layer in the noise streams.
    pub fn noise_id(&self) -> u32 {
        self.noise_id
    }

    /// What was attached here, if anything was.
    pub fn slot(&self) -> Option<AdapterSlot> {
        self.slot
    }

    /// The adapter; `None` before one is attached and after its last rank is pruned.
    pub fn adapter(&self) -> Option<&Adapter> {
        self.weight.reparameterization()
    }

    /// The adapter, if it is one of two factors.
    pub fn low_rank(&self) -> Option<&LowRankAdapter> {
        match self.adapter() {
            Some(Adapter::LowRank(adapter)) => Some(adapter),
            _ => None,
        }
    }

    /// Changes the adapter, if it is one of two factors; shapes must stay, and so must the kind of the
    /// extension ([`AdaptedLinear::extend`] changes it).
    pub fn edit<T>(&mut self, change: impl FnOnce(&mut LowRankAdapter) -> T) -> Option<T> {
        let mut adapter = self.low_rank()?.clone();
        let outcome = change(&mut adapter);
        self.set_adapter(Some(adapter.into()));
        Some(outcome)
    }

    /// Replaces the base weight; the adapter stays.
    pub fn set_weight(&mut self, weight: Tensor<2>) {
        let adapter = self.adapter().cloned();
        self.weight = Param::initialized(self.weight.id, weight);
        self.set_adapter(adapter);
    }

    /// Puts `adapter` on the weight in place of what was there.
    fn set_adapter(&mut self, adapter: Option<Adapter>) {
        set_adapter(&mut self.weight, adapter);
    }

    /// What the adapter's kind adds to its two factors.
    pub fn extension(&self) -> Option<&Extension> {
        self.low_rank()?.extension.as_ref()
    }

    /// Current rank: 0 without an adapter and after the last rank is pruned.
    pub fn rank(&self) -> usize {
        self.adapter().map_or(0, Adapter::rank)
    }

    /// Number of ensemble members that share a batch here, if there are several adapters.
    pub fn members(&self) -> Option<usize> {
        match self.adapter() {
            Some(Adapter::Members(members)) => Some(members.count()),
            _ => None,
        }
    }

    /// Whether a pass of `scheme` has a meaning for the layer; see [`Adapter::supports`].
    pub fn supports(&self, scheme: Scheme) -> bool {
        self.adapter().is_none_or(|adapter| adapter.supports(scheme))
    }

    /// Whether the batch of `pass` holds several draws that differ from this layer on: its adapter is random.
    pub fn is_stochastic(&self, pass: &Pass) -> bool {
        let is_random = |e: &Extension| !matches!(e, Extension::SingularValues(_));
        pass.draws.count > 1 && self.extension().is_some_and(is_random)
    }

    /// Whether each row of the output is the same whatever rows are beside it: nothing is drawn row by row, and
    /// no observer is set.
    pub fn is_row_independent(&self, pass: &Pass) -> bool {
        let drawn_whole = matches!(
            pass.scheme,
            Scheme::Mean | Scheme::Weights(DrawPer::Sequence | DrawPer::Batch)
        );
        let by_token = matches!(self.extension(), Some(Extension::Contextual(_)));
        let drops = pass.dropout.is_some();
        let is_alone = self.adapter().is_none() || drawn_whole && !by_token && !drops;
        is_alone && self.observer.is_none()
    }

    /// Puts `adapter` on the layer in place of what was there; rank 0 leaves only the slot, so that no
    /// work remains.
    ///
    /// On an error the layer is unchanged.
    pub fn attach(
        &mut self,
        adapter: impl Into<Adapter>,
        initial_rank: usize,
    ) -> Result<(), Error> {
        let adapter = adapter.into();
        self.check(&adapter)?;
        self.place(adapter, initial_rank);
        Ok(())
    }

    /// Leaves the slot of an adapter that has no rank left.
    pub fn attach_empty(&mut self, slot: AdapterSlot) {
        self.slot = Some(slot);
        self.set_adapter(None);
    }

    /// Puts `extension` beside the factors, `None` for plain ones, and returns what was there.
    ///
    /// The [slot](AdaptedLinear::slot) goes with scales and contexts: no LoRA file can hold them, and a
    /// layer without a slot is none that is written to one. Plain factors are the mean of what was
    /// there but for singular values, scales and contexts.
    ///
    /// On an error the layer is unchanged.
    pub fn extend(&mut self, extension: Option<Extension>) -> Result<Option<Extension>, Error> {
        let Some(adapter) = self.low_rank().cloned() else {
            let what = format!("layer `{}` has no adapter of two factors", self.path);
            return Err(Error::Undefined(what));
        };
        let initial_rank = self.slot.map_or(adapter.rank(), |slot| slot.initial_rank);
        let old = adapter.extension.clone();
        self.attach(LowRankAdapter { extension, ..adapter }, initial_rank)?;
        Ok(old)
    }

    /// Takes the adapter and its slot off.
    pub fn detach(&mut self) -> Option<Adapter> {
        self.slot = None;
        let adapter = self.adapter().cloned();
        self.set_adapter(None);
        adapter
    }

    /// Keeps only the rank directions `kept` of the adapter.
    pub fn select_ranks(&mut self, kept: &[usize]) {
        let mut adapter = self.adapter().filter(|_| !kept.is_empty()).cloned();
        if let Some(adapter) = &mut adapter {
            adapter.select_ranks(kept);
        }
        self.set_adapter(adapter);
    }

    /// As [`AdaptedLinear::attach`], for shapes that are right.
    pub(crate) fn place(&mut self, adapter: impl Into<Adapter>, initial_rank: usize) {
        let adapter = adapter.into();
        self.slot = adapter.has_factors().then(|| AdapterSlot {
            initial_rank,
            scaling: adapter.scaling(),
            family: match &adapter {
                Adapter::LowRank(adapter) => adapter.posterior().map(Posterior::family),
                Adapter::Members(_) => None,
            },
        });
        self.set_adapter((adapter.rank() > 0).then_some(adapter));
    }

    fn check(&self, adapter: &Adapter) -> Result<(), Error> {
        match adapter.misfit(&adapter.sizes(self.d_input(), self.d_output())) {
            Some((name, expected, found)) => Err(Error::Shape(format!(
                "adapter `{}`: `{name}` should have shape {expected:?}, found {found:?}",
                self.path
            ))),
            None => Ok(()),
        }
    }

    /// The layer with its outputs `ids` only, as a part of the graph; `weight` holds those columns of the
    /// base weight, `[d_input, ids]`.
    ///
    /// Nothing is computed or held for the other outputs.
    #[must_use]
    pub fn with_outputs(&self, weight: Tensor<2>, ids: &Tensor<1, Int>) -> Self {
        let mut layer = self.clone();
        layer.set_weight(weight);
        if let Some(bias) = &mut layer.bias {
            bias.gather(0, ids);
        }
        let mut adapter = self.adapter().cloned();
        if let Some(adapter) = &mut adapter {
            adapter.each_mut(&mut |schema, value| {
                if let Some(axis) = schema.axes.iter().position(|axis| *axis == Axis::Output) {
                    value.gather(axis, ids);
                }
            });
        }
        layer.set_adapter(adapter);
        layer
    }

    /// Lets `observer` see every further use of the adapter; `None` ends it.
    ///
    /// Uses with noise on activations ([`Scheme::MomentMatched`](crate::sampling::Scheme),
    /// `Nested`) are not recorded: they have no weights that a gradient could belong to.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
    }

    /// Base product plus update for one use of the layer, `[n, ..., d_input]` to
    /// `[n, ..., d_output]` as Burn's `Linear`; the first axis counts sequences for draws per sequence.
    ///
    /// # Panics
    ///
    /// As [`AdaptedLinear::prepare`].
    pub fn forward<const D: usize>(&self, x: Tensor<D>, pass: &Pass) -> Tensor<D> {
        let n = x.dims()[0];
        self.prepare(pass, n).forward(x)
    }

    /// Draws this pass's weights once, for layers that are used more than once in a forward.
    ///
    /// `sequences` is the number of examples, used by draws per sequence and by member ensembles,
    /// for which it counts every member's.
    ///
    /// # Panics
    ///
    /// If the layer does not [support](AdaptedLinear::supports) the scheme of `pass`
    /// ([`model::check_scheme`](crate::model::check_scheme) asks a whole model beforehand), or if
    /// `sequences` is no multiple of the number of members.
    pub fn prepare(&self, pass: &Pass, sequences: usize) -> PreparedLinear<'_> {
        PreparedLinear::new(self, pass, sequences)
    }

    /// Hands out the adapter's parameters with their schemas.
    pub(crate) fn each_adapter_parameter(
        &self,
        visit: &mut dyn FnMut(&'static ParameterSchema, &dyn ParameterValue),
    ) {
        if let Some(adapter) = self.adapter() {
            adapter.each(visit);
        }
    }

    /// Hands out the layer's parameters under their checkpoint names.
    pub(crate) fn each_parameter(&self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        let mut give = |name: &str, role, layout, value: &dyn ParameterValue| {
            visit(NamedParameter { name: &format!("{}.{name}", self.path), role, layout, value });
        };
        if !self.weight_is_tied {
            give("weight", self.role, Layout::Transposed, &self.weight);
        }
        if let Some(bias) = &self.bias {
            give("bias", self.role, Layout::AsStored, bias);
        }
        self.each_adapter_parameter(&mut |s, value| give(s.name, s.role, s.layout, value));
    }

    /// The same, to write.
    pub(crate) fn each_parameter_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        let path = self.shared_path();
        let mut adapter = self.adapter().cloned();
        self.set_adapter(None);
        let mut give = |name: &str, role, layout, value: &mut dyn ParameterValue| {
            visit(NamedParameterMut { name: &format!("{path}.{name}"), role, layout, value });
        };
        if !self.weight_is_tied {
            give("weight", self.role, Layout::Transposed, &mut self.weight);
        }
        if let Some(bias) = &mut self.bias {
            give("bias", self.role, Layout::AsStored, bias);
        }
        if let Some(adapter) = &mut adapter {
            adapter.each_mut(&mut |s, value| give(s.name, s.role, s.layout, value));
        }
        self.set_adapter(adapter);
    }
}

/// Burn attaches once: what is there has to come off first.
fn set_adapter(weight: &mut Param<Tensor<2>>, adapter: Option<Adapter>) {
    let base = Param::initialized(weight.id, weight.base());
    *weight = match adapter {
        Some(adapter) => base.apply_reparameterization(Attach(Some(adapter))),
        None => base,
    };
}

/// Puts one adapter on one parameter.
struct Attach(Option<Adapter>);

impl Reparameterizer for Attach {
    type Reparam = Adapter;

    fn reparameterize<const D: usize>(
        &mut self,
        _: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<Adapter>) {
        (param, self.0.take())
    }
}

impl Reparameterization for Adapter {
    const NAME: &'static str = "adapter";

    /// `W + c·A·diag(E)·B` at the posterior mean; `W` where the mean is not one matrix.
    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let Self::LowRank(adapter) = self else { return base };
        if !self.has_dense_mean() {
            return base;
        }
        let update = adapter.scale_rank(adapter.a.val()).matmul(adapter.b.val());
        let shape = base.shape();
        base + update.reshape(shape)
    }
}
