//! A frozen linear layer with an optional adapter.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::module_id;

use super::extension::Extension;
use super::low_rank::LowRankAdapter;
use super::observer::Observer;
use super::prepared::PreparedLinear;
use crate::parameters::{Layout, NamedParameter, ParameterMut, Role};
use crate::sampling::Pass;

/// What was attached to a layer, for files; it outlives the adapter when every rank is pruned.
///
/// Layers with an [`Extension`] whose mean is no product of two factors have none.
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
/// the `[d_input, d_output]` weight gradient (`cargo bench -p lrvd-perf --bench frozen_base`
/// measures the difference). A layer whose adapter was pruned to rank 0 does the base product and
/// nothing else.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | `weight` | `[d_input, d_output]` |
/// | `bias` | `[d_output]` |
/// | input | `[batch, tokens, d_input]` |
#[derive(Module, Debug)]
pub struct AdaptedLinear {
    /// Base weight, as Burn multiplies it.
    pub weight: Param<Tensor<2>>,
    /// Base bias.
    pub bias: Option<Param<Tensor<1>>>,
    /// The adapter; `None` before one is attached and after its last rank is pruned.
    pub adapter: Option<LowRankAdapter>,
    /// What a baseline adds to the adapter, or puts in its place.
    pub(super) extension: Option<Extension>,
    #[module(skip)]
    pub(super) slot: Option<AdapterSlot>,
    /// Identity of this layer in the noise streams, derived from its path.
    noise_id: u32,
    #[module(skip)]
    pub(super) observer: Option<Observer>,
}

impl AdaptedLinear {
    /// A frozen layer at module path `path`, without an adapter.
    pub fn new(path: &str, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: Param::from_tensor(weight).set_require_grad(false),
            bias: bias.map(|b| Param::from_tensor(b).set_require_grad(false)),
            adapter: None,
            extension: None,
            slot: None,
            noise_id: module_id(path),
            observer: None,
        }
    }

    /// Features in.
    pub fn d_input(&self) -> usize {
        self.weight.val().dims()[0]
    }

    /// Features out.
    pub fn d_output(&self) -> usize {
        self.weight.val().dims()[1]
    }

    /// Identity of the layer in the noise streams.
    pub fn noise_id(&self) -> u32 {
        self.noise_id
    }

    /// What was attached here, if anything was.
    pub fn slot(&self) -> Option<AdapterSlot> {
        self.slot
    }

    /// Current rank: 0 without an adapter and after the last rank is pruned.
    pub fn rank(&self) -> usize {
        match &self.extension {
            Some(Extension::Members(members)) => members.rank(),
            _ => self.adapter.as_ref().map_or(0, LowRankAdapter::rank),
        }
    }

    /// Puts `adapter` on the layer, without an extension; rank 0 leaves only the slot, so that no
    /// work remains.
    pub fn attach(&mut self, adapter: LowRankAdapter, initial_rank: usize) {
        self.slot = Some(AdapterSlot {
            initial_rank,
            scaling: adapter.scaling,
            family: adapter.posterior.as_ref().map(super::Posterior::family),
        });
        self.adapter = (adapter.rank() > 0).then_some(adapter);
        self.extension = None;
    }

    /// Leaves the slot of an adapter that has no rank left.
    pub fn attach_empty(&mut self, slot: AdapterSlot) {
        self.slot = Some(slot);
        self.adapter = None;
        self.extension = None;
    }

    /// Takes the adapter, its slot and its extension off.
    pub fn detach(&mut self) -> Option<LowRankAdapter> {
        self.slot = None;
        self.extension = None;
        self.adapter.take()
    }

    /// Keeps only the rank directions `kept` of the adapter and of its extension.
    ///
    /// Nothing prunes adapters with an extension by itself: the relevance statistic is one of
    /// posteriors. Moments of an optimiser for an extension's parameters are not cut along.
    pub fn select_ranks(&mut self, kept: &[usize]) {
        if let Some(adapter) = self.adapter.take() {
            self.adapter = (!kept.is_empty()).then(|| adapter.select_ranks(kept));
        }
        if let Some(extension) = self.extension.take() {
            self.extension = (!kept.is_empty()).then(|| extension.select(kept));
        }
    }

    /// Lets `observer` see every further use of the adapter; `None` ends it.
    ///
    /// Uses with noise on activations ([`Scheme::MomentMatched`](crate::sampling::Scheme),
    /// `Nested`) are not recorded: they have no weights that a gradient could belong to.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
    }

    /// Base product plus update for one use of the layer.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
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

    /// Hands out the layer's parameters under the checkpoint names below `path`.
    pub fn visit_parameters(
        &mut self,
        path: &str,
        role: Role,
        visit: &mut dyn FnMut(NamedParameter<'_>),
    ) {
        let mut give = |name: &str, role, layout, value: ParameterMut<'_>| {
            visit(NamedParameter { name: &format!("{path}.{name}"), role, layout, value });
        };
        give("weight", role, Layout::Transposed, ParameterMut::Matrix(&mut self.weight));
        if let Some(bias) = &mut self.bias {
            give("bias", role, Layout::AsStored, ParameterMut::Vector(bias));
        }
        if let Some(adapter) = &mut self.adapter {
            visit_adapter(adapter, &mut give);
        }
        if let Some(extension) = &mut self.extension {
            extension.visit(&mut give);
        }
    }
}

/// Hands out the factors and the posterior's parameters.
fn visit_adapter(
    adapter: &mut LowRankAdapter,
    give: &mut dyn FnMut(&str, Role, Layout, ParameterMut<'_>),
) {
    use super::Posterior as P;
    let mean = Role::AdapterMean;
    give("lora_A", mean, Layout::Transposed, ParameterMut::Matrix(&mut adapter.a));
    give("lora_B", mean, Layout::Transposed, ParameterMut::Matrix(&mut adapter.b));
    if let Some(e) = &mut adapter.e {
        give("lora_E", mean, Layout::AsStored, ParameterMut::Vector(e));
    }
    let noise = Role::LogVariance;
    match &mut adapter.posterior {
        Some(P::RankVariance(p) | P::AsymRankVariance(p)) => {
            give("rank_log_sigma2", noise, Layout::AsStored, ParameterMut::Vector(&mut p.value));
        }
        Some(P::NoiseToSignal(p)) => {
            give("rank_log_alpha", noise, Layout::AsStored, ParameterMut::Vector(&mut p.value));
        }
        Some(P::ElementVariance(p)) => {
            give("log_sigma2_a", noise, Layout::Transposed, ParameterMut::Matrix(&mut p.a));
            give("log_sigma2_b", noise, Layout::Transposed, ParameterMut::Matrix(&mut p.b));
        }
        None => {}
    }
}
