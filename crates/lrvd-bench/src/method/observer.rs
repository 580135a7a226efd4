//! A model whose adapters show inputs and arriving gradients, example by example.
//!
//! Frameworks with hooks answer this by callbacks on modules. Here a zero tensor that requires its gradient, a probe, is
//! added where the gradient is needed; after `backward` its gradient is that of the sum.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::module::linear;
use burn::tensor::{Gradients, Tensor};
use lrvd_burn::adapter::{
    AdaptedLinear, Extension, OpExtension, OpLayer, PreparedUpdate, UpdateOp,
};
use lrvd_burn::model::NamedModule;
use lrvd_core::noise::NoiseKey;

use crate::error::Burn;

/// Use of an adapter in a forward pass, with probes that receive gradients.
///
/// ```text
/// h = input·A + rank_probe        s = c·h        update = s·B + output_probe
/// dL/dA = Σ_rows inputᵀ · dL/d rank_probe        dL/dB = Σ_rows rank_inputᵀ · dL/d output_probe
/// ```
///
/// Rows that all sequences share are repeated for each, so that the first axis counts examples.
#[derive(Clone, Debug)]
pub struct ObservedUse {
    /// [`AdaptedLinear::noise_id`] of the layer.
    pub module: u32,
    /// 0 for tokens, 1 for rows that all sequences share.
    pub use_index: u32,
    /// Input of A after dropout, `[n, tokens, d_input]`; cut off from the graph.
    pub input: Tensor<3>,
    /// Input of B, scaled, `[n, tokens, rank]`; cut off from the graph.
    pub rank_input: Tensor<3>,
    rank_probe: Tensor<3>,
    output_probe: Tensor<3>,
}

impl ObservedUse {
    /// The loss's gradient for the output of A, `[n, tokens, rank]`; `None` if the loss does not reach this use.
    pub fn rank_gradient(&self, gradients: &Gradients) -> Option<Tensor<3>> {
        self.rank_probe.grad(gradients)
    }

    /// The loss's gradient for the output of B, `[n, tokens, d_output]`; `None` if the loss does not reach this use.
    pub fn output_gradient(&self, gradients: &Gradients) -> Option<Tensor<3>> {
        self.output_probe.grad(gradients)
    }
}

/// Collection of uses; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Observer(Arc<Mutex<Vec<ObservedUse>>>);

impl Observer {
    /// Puts the observer on the adapters that `meant` names, at their posterior mean.
    pub fn observe(
        &self,
        model: &mut impl NamedModule,
        meant: impl Fn(&AdaptedLinear) -> bool,
    ) -> Burn<()> {
        let mut outcome = Ok(());
        model.visit_layers_mut(&mut |_, layer| {
            let Some(mut adapter) = layer.low_rank().cloned() else { return };
            let extension = if meant(layer) {
                // It has no parameters that a key could draw.
                OpExtension::new(
                    Arc::new(self.clone()),
                    &mut adapter.a,
                    &mut adapter.b,
                    NoiseKey::new(0),
                )
                .map(|extension| Some(Extension::Op(extension)))
            } else {
                Ok(None)
            };
            let changed = extension.and_then(|extension| layer.extend(extension));
            if outcome.is_ok() {
                outcome = changed.map(drop);
            }
        });
        outcome
    }

    /// The uses since the last call, in the order of the forward pass.
    ///
    /// They keep memory until they are taken: take them after every pass.
    pub fn take(&self) -> Vec<ObservedUse> {
        // Plain data: a panic elsewhere leaves it usable.
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl UpdateOp for Observer {
    fn is_row_independent(&self) -> bool {
        false
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        Box::new(move |x, use_index| {
            // A gradient for each example of what they share.
            let x = if use_index == 0 { x } else { x.expand([layer.sequences as i64, -1, -1]) };
            let input = x.clone().without_autodiff();
            let h = linear(x, layer.a.val(), None);
            let rank_probe = probe(&h);
            let s = (h + rank_probe.clone()).mul_scalar(layer.scaling);
            let rank_input = s.clone().without_autodiff();
            let update = linear(s, layer.b.val(), None);
            let output_probe = probe(&update);
            let out = update + output_probe.clone();
            let module = layer.module;
            let used =
                ObservedUse { module, use_index, input, rank_input, rank_probe, output_probe };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(used);
            out
        })
    }
}

/// Zeros of the shape of `like` that receive a gradient, under the autodiff settings of `like`.
fn probe(like: &Tensor<3>) -> Tensor<3> {
    let device = like.device();
    let device = if device.is_autodiff() { device } else { device.autodiff() };
    Tensor::zeros(like.dims(), (&device, like.dtype())).require_grad()
}
