//! One decoder layer: attention and feed-forward, each behind a norm and beside a residual.

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::parameters::{NamedParameter, Role};
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
        let x = x + self.self_attn.forward(normed, turns, visible, cache, pass);
        let normed = self.post_attention_norm.forward(x.clone());
        x + self.mlp.forward(normed, pass)
    }

    pub(super) fn visit_parameters(
        &mut self,
        path: &str,
        visit: &mut dyn FnMut(NamedParameter<'_>),
    ) {
        self.input_norm.visit_parameters(&format!("{path}.input_layernorm"), visit);
        for (name, layer) in self.self_attn.layers_mut() {
            layer.visit_parameters(&format!("{path}.self_attn.{name}"), Role::Backbone, visit);
        }
        let norm = format!("{path}.post_attention_layernorm");
        self.post_attention_norm.visit_parameters(&norm, visit);
        for (name, layer) in self.mlp.layers_mut() {
            layer.visit_parameters(&format!("{path}.mlp.{name}"), Role::Backbone, visit);
        }
    }

    pub(super) fn visit_layers(&self, path: &str, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        for (name, layer) in self.self_attn.layers() {
            visit(&format!("{path}.self_attn.{name}"), layer);
        }
        for (name, layer) in self.mlp.layers() {
            visit(&format!("{path}.mlp.{name}"), layer);
        }
    }

    pub(super) fn visit_layers_mut(
        &mut self,
        path: &str,
        visit: &mut dyn FnMut(&str, &mut AdaptedLinear),
    ) {
        let attention = self.self_attn.layers_mut().map(|(name, l)| ("self_attn", name, l));
        let mlp = self.mlp.layers_mut().map(|(name, l)| ("mlp", name, l));
        for (block, name, layer) in attention.into_iter().chain(mlp) {
            visit(&format!("{path}.{block}.{name}"), layer);
        }
    }
}
