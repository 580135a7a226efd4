//! One decoder layer: attention and feed-forward, each behind a norm and beside a residual.

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapted_model;
use lrvd_burn::sampling::Pass;

use super::attention::Attention;
use super::cache::LayerCache;
use super::config::LlamaConfig;
use super::mlp::Mlp;
use super::rope::Turns;
use super::visible::Visible;
use crate::norm::RmsNorm;
use crate::source::WeightSource;

/// `x ← x + attention(norm(x))`, then `x ← x + mlp(norm(x))`.
#[derive(Module, Debug)]
pub(super) struct DecoderLayer {
    input_norm: RmsNorm,
    self_attn: Attention,
    post_attention_norm: RmsNorm,
    mlp: Mlp,
}

impl DecoderLayer {
    pub(super) fn load(
        source: &mut WeightSource<'_>,
        path: &str,
        config: &LlamaConfig,
        compute: DType,
    ) -> Self {
        let (d, eps) = (config.hidden_size, config.rms_norm_eps);
        let norm = |source: &mut WeightSource<'_>, name: &str| {
            RmsNorm::load(source, &format!("{path}.{name}"), d, eps, compute)
        };
        Self {
            input_norm: norm(source, "input_layernorm"),
            self_attn: Attention::load(source, &format!("{path}.self_attn"), config),
            post_attention_norm: norm(source, "post_attention_layernorm"),
            mlp: Mlp::load(source, &format!("{path}.mlp"), config),
        }
    }

    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        turns: &Turns,
        visible: &Visible,
        cache: Option<&mut LayerCache>,
        pass: &Pass,
    ) -> Tensor<3> {
        let normed = self.input_norm.forward(x.clone());
        let mixed = self.self_attn.forward(normed, turns, visible, cache, pass);
        let [x, mixed] = pass.aligned([x, mixed]);
        let x = x + mixed;
        let normed = self.post_attention_norm.forward(x.clone());
        let [x, out] = pass.aligned([x, self.mlp.forward(normed, pass)]);
        x + out
    }
}

adapted_model!(DecoderLayer { input_norm, self_attn, post_attention_norm, mlp });
