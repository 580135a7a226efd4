//! Inputs of the adapters in a pass, and the gradients that arrive there.
//!
//! Frameworks with hooks answer this by callbacks on modules. Here a zero tensor that asks for its
//! gradient, a probe, is added where the gradient is needed; after `backward` its gradient is that of
//! the sum. The pass itself is unchanged, and a layer without an observer does nothing of this.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{Gradients, Tensor};

/// Collects what observed layers do; a handle, so that clones share one collection.
///
/// Set it on layers with [`AdaptedLinear::observe`](super::AdaptedLinear::observe) or on a whole
/// model with [`model::observe`](crate::model::observe).
#[derive(Clone, Debug)]
pub struct Observer {
    /// The prior of divergences; uses are recorded without one.
    pub(super) prior_std: Option<f64>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    uses: Vec<ObservedUse>,
    divergences: Vec<ContextDivergence>,
}

/// One use of an adapter in a forward pass, with probes that receive gradients.
///
/// # Formula
///
/// ```text
/// h = input·A + rank_probe        s = c·h (⊙ E, or what the method does in rank space)
/// update = s·B + output_probe     rank_input = s
/// dL/dA = Σ_rows inputᵀ · dL/d rank_probe        dL/dB = Σ_rows rank_inputᵀ · dL/d output_probe
/// ```
///
/// B's input is recorded with the scaling `c` on it, so that both products are the gradients of the
/// parameters as they are held, exactly. For drawn weights A and B are the drawn ones.
///
/// # Shapes
///
/// `n` is the number of sequences; 1 for rows that all sequences share, unless they meet one draw
/// each; the number of members for a member ensemble, whose rows `tokens` then counts over its
/// sequences.
#[derive(Clone, Debug)]
pub struct ObservedUse {
    /// [`AdaptedLinear::noise_id`](super::AdaptedLinear::noise_id) of the layer.
    pub module: u32,
    /// 0 for tokens, 1 for rows that all sequences share.
    pub use_index: u32,
    /// What A multiplies, after dropout, `[n, tokens, d_input]`; cut off from the graph.
    pub input: Tensor<3>,
    /// What B multiplies, scaled, `[n, tokens, rank]`; cut off from the graph.
    pub rank_input: Tensor<3>,
    rank_probe: Tensor<3>,
    output_probe: Tensor<3>,
}

impl ObservedUse {
    /// The loss's gradient for the output of A, `[n, tokens, rank]`; `None` if the loss does not
    /// reach this use.
    pub fn rank_gradient(&self, gradients: &Gradients) -> Option<Tensor<3>> {
        self.rank_probe.grad(gradients)
    }

    /// The loss's gradient for the output of B, `[n, tokens, d_output]`; `None` if the loss does not
    /// reach this use.
    pub fn output_gradient(&self, gradients: &Gradients) -> Option<Tensor<3>> {
        self.output_probe.grad(gradients)
    }
}

/// Divergence of one use of a contextual adapter, one number per token, in the graph.
#[derive(Clone, Debug)]
pub struct ContextDivergence {
    /// [`AdaptedLinear::noise_id`](super::AdaptedLinear::noise_id) of the layer.
    pub module: u32,
    /// 0 for tokens, 1 for rows that all sequences share.
    pub use_index: u32,
    /// `KL(q ‖ p)` in nats, `[n, tokens]`. Padded positions are in it: the caller, who knows the mask, leaves
    /// them out.
    pub per_token: Tensor<2>,
}

impl Observer {
    /// Records inputs and probes of every use: Kronecker factors, gradients of single examples.
    pub fn of_gradients() -> Self {
        Self { prior_std: None, seen: Arc::default() }
    }

    /// Records the divergence of every use of a contextual adapter from `N(0, prior_std²)`.
    pub fn of_divergences(prior_std: f64) -> Self {
        Self { prior_std: Some(prior_std), seen: Arc::default() }
    }

    /// The uses since the last call, in the order of the forward pass.
    ///
    /// They keep memory until they are taken: take them after every pass.
    pub fn take_uses(&self) -> Vec<ObservedUse> {
        std::mem::take(&mut self.seen().uses)
    }

    /// The divergences since the last call, in the order of the forward pass; as
    /// [`Observer::take_uses`].
    pub fn take_divergences(&self) -> Vec<ContextDivergence> {
        std::mem::take(&mut self.seen().divergences)
    }

    pub(super) fn record_divergence(&self, divergence: ContextDivergence) {
        self.seen().divergences.push(divergence);
    }

    /// `up(middle(down(x)))` with probes after `down` and after `up`.
    pub(super) fn through(
        &self,
        (module, use_index): (u32, u32),
        x: Tensor<3>,
        down: impl FnOnce(Tensor<3>) -> Tensor<3>,
        middle: impl FnOnce(Tensor<3>) -> Tensor<3>,
        up: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let input = x.clone().without_autodiff();
        let h = down(x);
        let rank_probe = probe(&h);
        let s = middle(h + rank_probe.clone());
        let rank_input = s.clone().without_autodiff();
        let update = up(s);
        let output_probe = probe(&update);
        let out = update + output_probe.clone();
        let seen = ObservedUse { module, use_index, input, rank_input, rank_probe, output_probe };
        self.seen().uses.push(seen);
        out
    }

    /// The collection is plain data: a panic elsewhere leaves it usable.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Zeros of the shape of `like` that receive a gradient, under the autodiff settings of `like`.
fn probe(like: &Tensor<3>) -> Tensor<3> {
    let device = like.device();
    let device = if device.is_autodiff() { device } else { device.autodiff() };
    Tensor::zeros(like.dims(), (&device, like.dtype())).require_grad()
}
