//! A frozen linear layer with an optional adapter.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_core::baselines::StdMap;
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::module_id;

use super::extension::Extension;
use super::low_rank::LowRankAdapter;
use super::observer::Observer;
use super::prepared::PreparedLinear;
use crate::parameters::{Layout, NamedParameter, NamedParameterMut, ParameterValue, Role};
use crate::sampling::Pass;

/// Gives name, role, layout and reference of every parameter of a layer.
macro_rules! each_parameter {
    ($layer:ident, $give:ident, $($reference:tt)+) => {
        use super::Posterior as P;
        let (mean, noise) = (Role::AdapterMean, Role::LogVariance);
        let (same, turned) = (Layout::AsStored, Layout::Transposed);
        if !$layer.borrows_weight {
            $give("weight", $layer.role, turned, $($reference)+ $layer.weight);
        }
        if let Some(bias) = $($reference)+ $layer.bias {
            $give("bias", $layer.role, same, bias);
        }
        if let Some(adapter) = $($reference)+ $layer.adapter {
            $give("lora_A", mean, turned, $($reference)+ adapter.a);
            $give("lora_B", mean, turned, $($reference)+ adapter.b);
            if let Some(e) = $($reference)+ adapter.e {
                $give("lora_E", mean, same, e);
            }
            match $($reference)+ adapter.posterior {
                Some(P::RankVariance(p) | P::AsymRankVariance(p)) => {
                    $give("rank_log_sigma2", noise, same, $($reference)+ p.value);
                }
                Some(P::NoiseToSignal(p)) => {
                    $give("rank_log_alpha", noise, same, $($reference)+ p.value);
                }
                Some(P::ElementVariance(p)) => {
                    $give("log_sigma2_a", noise, turned, $($reference)+ p.a);
                    $give("log_sigma2_b", noise, turned, $($reference)+ p.b);
                }
                None => {}
            }
        }
        match $($reference)+ $layer.extension {
            Some(Extension::Gaussian(e)) => {
                let (of_a, of_b) = match e.std_map() {
                    StdMap::Softplus => ("lora_A_rho", "lora_B_rho"),
                    StdMap::Square => ("lora_A_G", "lora_B_G"),
                };
                $give(of_a, noise, turned, $($reference)+ e.a);
                if let Some(b) = $($reference)+ e.b {
                    $give(of_b, noise, turned, b);
                }
            }
            Some(Extension::Scale(e)) => {
                $give("lora_scale_log_mean", mean, same, $($reference)+ e.log_mean);
                $give("lora_scale_log_std", noise, same, $($reference)+ e.log_std);
            }
            Some(Extension::Contextual(e)) => {
                $give("lora_context_w1", mean, turned, $($reference)+ e.w1);
                $give("lora_context_b1", mean, same, $($reference)+ e.b1);
                $give("lora_context_w2", mean, turned, $($reference)+ e.w2);
                $give("lora_context_b2", mean, same, $($reference)+ e.b2);
            }
            Some(Extension::Members(e)) => {
                $give("lora_A_members", mean, same, $($reference)+ e.a);
                $give("lora_B_members", mean, same, $($reference)+ e.b);
            }
            None => {}
        }
    };
}

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
/// | input | `[sequences, ..., d_input]`, two axes or more |
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
    #[module(skip)]
    path: Arc<str>,
    #[module(skip)]
    role: Role,
    /// Whether the weight is another parameter's, which hands it out.
    #[module(skip)]
    borrows_weight: bool,
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
            adapter: None,
            extension: None,
            slot: None,
            path: path.into(),
            role: Role::Backbone,
            borrows_weight: false,
            noise_id: module_id(path),
            observer: None,
        }
    }

    /// The same layer with weight and bias in another role.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same layer with a weight that belongs to another parameter (a tied head's is the word
    /// embedding): it is not handed out under this layer's name.
    #[must_use]
    pub fn with_borrowed_weight(self) -> Self {
        Self { borrows_weight: true, ..self }
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

    /// Hands out the layer's parameters under their checkpoint names.
    pub(crate) fn each_parameter(&self, visit: &mut dyn FnMut(NamedParameter<'_>)) {
        let mut give = |name: &str, role, layout, value: &dyn ParameterValue| {
            visit(NamedParameter { name: &format!("{}.{name}", self.path), role, layout, value });
        };
        each_parameter!(self, give, &);
    }

    /// The same, to write.
    pub(crate) fn each_parameter_mut(&mut self, visit: &mut dyn FnMut(NamedParameterMut<'_>)) {
        let path = self.shared_path();
        let mut give = |name: &str, role, layout, value: &mut dyn ParameterValue| {
            visit(NamedParameterMut { name: &format!("{path}.{name}"), role, layout, value });
        };
        each_parameter!(self, give, &mut);
    }
}
