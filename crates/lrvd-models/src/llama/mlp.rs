//! The gated feed-forward block.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapted_model;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::ops::gated_silu;
use lrvd_burn::sampling::Pass;

use super::config::LlamaConfig;
use crate::source::WeightSource;

/// `down(silu(gate(x)) ⊙ up(x))`.
#[derive(Module, Debug)]
#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
pub(super) struct Mlp {
    gate_proj: AdaptedLinear,
    up_proj: AdaptedLinear,
    down_proj: AdaptedLinear,
}

impl Mlp {
    pub(super) fn load(source: &mut WeightSource<'_>, path: &str, config: &LlamaConfig) -> Self {
        let (d, wide) = (config.hidden_size, config.intermediate_size);
        let std = config.initializer_range;
        let mut linear = |name: &str, d_input, d_output| {
            source.linear(&format!("{path}.{name}"), d_input, d_output, false, std)
        };
        Self {
            gate_proj: linear("gate_proj", d, wide),
            up_proj: linear("up_proj", d, wide),
            down_proj: linear("down_proj", wide, d),
        }
    }

    /// `[batch, tokens, hidden]` to the same shape.
    pub(super) fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let gate = self.gate_proj.forward(x.clone(), pass);
        let up = self.up_proj.forward(x, pass);
        let [gate, up] = pass.aligned([gate, up]);
        self.down_proj.forward(gated_silu(gate, up), pass)
    }
}

adapted_model!(Mlp { gate_proj, up_proj, down_proj });
