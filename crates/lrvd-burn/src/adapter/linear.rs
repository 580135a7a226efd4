//! A frozen linear layer with an optional adapter.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::linear;
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::{NoiseKey, module_id};

use super::low_rank::LowRankAdapter;
use crate::ops::dropout;
use crate::parameters::{Layout, NamedParameter, ParameterMut, Role};
use crate::sampling::{Pass, Scheme};

/// What was attached to a layer; it outlives the adapter when every rank is pruned.
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
    #[module(skip)]
    slot: Option<AdapterSlot>,
    /// Identity of this layer in the noise streams, derived from its path.
    noise_id: u32,
}

impl AdaptedLinear {
    /// A frozen layer at module path `path`, without an adapter.
    pub fn new(path: &str, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Self {
        Self {
            weight: Param::from_tensor(weight).set_require_grad(false),
            bias: bias.map(|b| Param::from_tensor(b).set_require_grad(false)),
            adapter: None,
            slot: None,
            noise_id: module_id(path),
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
        self.adapter.as_ref().map_or(0, LowRankAdapter::rank)
    }

    /// Puts `adapter` on the layer; rank 0 leaves only the slot, so that no work remains.
    pub fn attach(&mut self, adapter: LowRankAdapter, initial_rank: usize) {
        self.slot = Some(AdapterSlot {
            initial_rank,
            scaling: adapter.scaling,
            family: adapter.posterior.as_ref().map(super::Posterior::family),
        });
        self.adapter = (adapter.rank() > 0).then_some(adapter);
    }

    /// Leaves the slot of an adapter that has no rank left.
    pub fn attach_empty(&mut self, slot: AdapterSlot) {
        self.slot = Some(slot);
        self.adapter = None;
    }

    /// Takes the adapter and its slot off.
    pub fn detach(&mut self) -> Option<LowRankAdapter> {
        self.slot = None;
        self.adapter.take()
    }

    /// Keeps only the rank directions `kept` of the adapter.
    pub fn select_ranks(&mut self, kept: &[usize]) {
        if let Some(adapter) = self.adapter.take() {
            self.adapter = (!kept.is_empty()).then(|| adapter.select_ranks(kept));
        }
    }

    /// Base product plus update for one use of the layer.
    pub fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let n = x.dims()[0];
        self.prepare(pass, n).forward(x)
    }

    /// Draws this pass's weights once, for layers that are used more than once in a forward.
    ///
    /// `sequences` is the number of examples, used by draws per sequence.
    pub fn prepare(&self, pass: &Pass, sequences: usize) -> PreparedLinear<'_> {
        let key = pass.noise.for_module(self.noise_id);
        let update = match (&self.adapter, pass.scheme) {
            (None, _) => Update::None,
            (Some(adapter), Scheme::Weights(per)) => {
                let (a, b) = adapter.draw(per, sequences, key);
                Update::Weights { adapter, a, b }
            }
            (Some(adapter), Scheme::MomentMatched(_) | Scheme::Nested)
                if adapter.posterior.is_some() =>
            {
                Update::Activations { adapter, key }
            }
            (Some(adapter), _) => Update::Weights {
                adapter,
                a: adapter.a.val().unsqueeze_dim(0),
                b: adapter.b.val().unsqueeze_dim(0),
            },
        };
        PreparedLinear { layer: self, update, pass: *pass }
    }

    /// Hands out the layer's parameters under the checkpoint names below `path`.
    pub fn visit_parameters(
        &mut self,
        path: &str,
        role: Role,
        visit: &mut dyn FnMut(NamedParameter<'_>),
    ) {
        use super::Posterior as P;
        let mut give = |name: &str, role, layout, value: ParameterMut<'_>| {
            visit(NamedParameter { name: &format!("{path}.{name}"), role, layout, value });
        };
        give("weight", role, Layout::Transposed, ParameterMut::Matrix(&mut self.weight));
        if let Some(bias) = &mut self.bias {
            give("bias", role, Layout::AsStored, ParameterMut::Vector(bias));
        }
        let Some(adapter) = &mut self.adapter else { return };
        let mean = Role::AdapterMean;
        give("lora_A", mean, Layout::Transposed, ParameterMut::Matrix(&mut adapter.a));
        give("lora_B", mean, Layout::Transposed, ParameterMut::Matrix(&mut adapter.b));
        if let Some(e) = &mut adapter.e {
            give("lora_E", mean, Layout::AsStored, ParameterMut::Vector(e));
        }
        let noise = Role::LogVariance;
        match &mut adapter.posterior {
            Some(P::RankVariance(p) | P::AsymRankVariance(p)) => {
                give(
                    "rank_log_sigma2",
                    noise,
                    Layout::AsStored,
                    ParameterMut::Vector(&mut p.value),
                );
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
}

/// The adapter's part of a prepared layer.
#[expect(clippy::large_enum_variant, reason = "one lives on the stack for the time of a product")]
enum Update<'a> {
    /// Nothing to add.
    None,
    /// Means or drawn weights, `[1 | sequences, d_input, rank]` and `[1 | sequences, rank, d_output]`.
    Weights { adapter: &'a LowRankAdapter, a: Tensor<3>, b: Tensor<3> },
    /// Noise on activations, drawn anew for each use.
    Activations { adapter: &'a LowRankAdapter, key: NoiseKey },
}

/// A layer with the randomness of one forward pass fixed.
///
/// `DeBERTa` with shared keys sends both the tokens and the relative positions through its query and
/// key projections: the weight draw made here serves both, while activation noise is separate.
pub struct PreparedLinear<'a> {
    layer: &'a AdaptedLinear,
    update: Update<'a>,
    pass: Pass,
}

impl PreparedLinear<'_> {
    /// The layer applied to tokens, `[batch, tokens, d_input]` to `[batch, tokens, d_output]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let base = self.base(x.clone());
        match &self.update {
            Update::None => base,
            Update::Weights { adapter, a, b } => {
                base + weights_update(adapter, self.dropped(x, 0), a, b)
            }
            Update::Activations { adapter, key } => {
                base + self.activation_update(adapter, self.dropped(x, 0), *key, 0)
            }
        }
    }

    /// The layer applied to rows that all sequences share (relative positions):
    /// `[rows, d_input]` to `[1 | sequences, rows, d_output]`.
    ///
    /// The base product is computed once; with draws per sequence only the rank-space update is
    /// per sequence.
    pub fn forward_shared(&self, rows: Tensor<2>) -> Tensor<3> {
        let x: Tensor<3> = rows.unsqueeze_dim(0);
        let base = self.base(x.clone());
        match &self.update {
            Update::None => base,
            Update::Weights { adapter, a, b } => {
                base + weights_update(adapter, self.dropped(x, 1), a, b)
            }
            Update::Activations { adapter, key } => {
                base + self.activation_update(adapter, self.dropped(x, 1), *key, 1)
            }
        }
    }

    fn base(&self, x: Tensor<3>) -> Tensor<3> {
        linear(x, self.layer.weight.val(), self.layer.bias.as_ref().map(Param::val))
    }

    fn dropped(&self, x: Tensor<3>, site: u32) -> Tensor<3> {
        let rate = self.layer.adapter.as_ref().map_or(0.0, |a| a.dropout);
        match self.pass.dropout_key(self.layer.noise_id) {
            Some(key) if rate > 0.0 => dropout(x, rate, key.with_use(site)),
            _ => x,
        }
    }

    fn activation_update(
        &self,
        adapter: &LowRankAdapter,
        x: Tensor<3>,
        key: NoiseKey,
        use_index: u32,
    ) -> Tensor<3> {
        let [batch, tokens, d_input] = x.dims();
        let x = x.reshape([batch * tokens, d_input]);
        let update = match (&adapter.posterior, self.pass.scheme) {
            (Some(posterior), Scheme::MomentMatched(cross)) => {
                adapter.moment_matched(x, posterior, cross, key, use_index)
            }
            (Some(posterior), _) => adapter.nested(x, posterior, key, use_index),
            (None, _) => unreachable!("activation noise is prepared only for a posterior"),
        };
        update.mul_scalar(adapter.scaling).reshape([batch, tokens, adapter.d_output()])
    }
}

fn weights_update(
    adapter: &LowRankAdapter,
    x: Tensor<3>,
    a: &Tensor<3>,
    b: &Tensor<3>,
) -> Tensor<3> {
    let (draws, sequences) = (a.dims()[0], x.dims()[0]);
    if draws == 1 && b.dims()[0] == 1 {
        let s = linear(x, a.clone().squeeze_dim(0), None);
        return linear(adapter.scale_rank(s), b.clone().squeeze_dim(0), None);
    }
    // Rows shared by all sequences meet one weight draw each.
    let s = if sequences == 1 && draws > 1 {
        x.expand([draws as i64, -1, -1]).matmul(a.clone())
    } else {
        x.matmul(a.clone())
    };
    let s = adapter.scale_rank(s);
    if b.dims()[0] == 1 { linear(s, b.clone().squeeze_dim(0), None) } else { s.matmul(b.clone()) }
}
