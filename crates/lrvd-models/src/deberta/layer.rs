//! One encoder layer: attention, feed-forward, and the residual norm that follows each.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::ops::{dropout, gelu};
use lrvd_burn::parameters::{NamedParameter, Role};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::attention::SelfAttention;
use super::config::DebertaConfig;
use super::positions::Positions;
use crate::norm::LayerNorm;
use crate::source::WeightSource;

/// `norm(residual + dropout(dense(x)))`, the end of both halves of a layer.
#[derive(Module, Debug)]
pub(super) struct ResidualOutput {
    dense: AdaptedLinear,
    norm: LayerNorm,
    dropout: f64,
    site: u32,
}

impl ResidualOutput {
    fn load(
        source: &mut WeightSource<'_>,
        path: &str,
        d_input: usize,
        config: &DebertaConfig,
    ) -> Self {
        let d = config.hidden_size;
        let dense = format!("{path}.dense");
        Self {
            dense: source.linear(&dense, d_input, d, true, config.initializer_range),
            norm: LayerNorm::load(source, &format!("{path}.LayerNorm"), d, config.layer_norm_eps),
            dropout: config.hidden_dropout_prob,
            site: module_id(path),
        }
    }

    fn forward(&self, x: Tensor<3>, residual: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let mut x = self.dense.forward(x, pass);
        if let Some(key) = pass.dropout_key(self.site) {
            x = dropout(x, self.dropout, key);
        }
        self.norm.forward(x + residual)
    }
}

/// One encoder layer.
#[derive(Module, Debug)]
pub(super) struct EncoderLayer {
    attention: SelfAttention,
    attention_output: ResidualOutput,
    intermediate: AdaptedLinear,
    output: ResidualOutput,
}

impl EncoderLayer {
    pub(super) fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let (d, wide) = (config.hidden_size, config.intermediate_size);
        let intermediate = format!("{path}.intermediate.dense");
        Self {
            attention: SelfAttention::load(source, &format!("{path}.attention.self"), config),
            attention_output: ResidualOutput::load(
                source,
                &format!("{path}.attention.output"),
                d,
                config,
            ),
            intermediate: source.linear(&intermediate, d, wide, true, config.initializer_range),
            output: ResidualOutput::load(source, &format!("{path}.output"), wide, config),
        }
    }

    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        mask: Option<&Tensor<2>>,
        positions: Option<&Positions>,
        pass: &Pass,
    ) -> Tensor<3> {
        let context = self.attention.forward(x.clone(), mask, positions, pass);
        let x = self.attention_output.forward(context, x, pass);
        let wide = gelu(self.intermediate.forward(x.clone(), pass));
        self.output.forward(wide, x, pass)
    }

    pub(super) fn visit_parameters(
        &mut self,
        path: &str,
        visit: &mut dyn FnMut(NamedParameter<'_>),
    ) {
        self.attention.visit_parameters(&format!("{path}.attention.self"), visit);
        let halves = [
            ("attention.output", &mut self.attention_output, None),
            ("output", &mut self.output, Some(&mut self.intermediate)),
        ];
        for (name, half, before) in halves {
            if let Some(linear) = before {
                let path = format!("{path}.intermediate.dense");
                linear.visit_parameters(&path, Role::Backbone, visit);
            }
            let path = format!("{path}.{name}");
            half.dense.visit_parameters(&format!("{path}.dense"), Role::Backbone, visit);
            half.norm.visit_parameters(&format!("{path}.LayerNorm"), visit);
        }
    }

    pub(super) fn visit_layers(&self, path: &str, visit: &mut dyn FnMut(&str, &AdaptedLinear)) {
        self.attention.visit_layers(&format!("{path}.attention.self"), visit);
        visit(&format!("{path}.attention.output.dense"), &self.attention_output.dense);
        visit(&format!("{path}.intermediate.dense"), &self.intermediate);
        visit(&format!("{path}.output.dense"), &self.output.dense);
    }

    pub(super) fn visit_layers_mut(
        &mut self,
        path: &str,
        visit: &mut dyn FnMut(&str, &mut AdaptedLinear),
    ) {
        self.attention.visit_layers_mut(&format!("{path}.attention.self"), visit);
        visit(&format!("{path}.attention.output.dense"), &mut self.attention_output.dense);
        visit(&format!("{path}.intermediate.dense"), &mut self.intermediate);
        visit(&format!("{path}.output.dense"), &mut self.output.dense);
    }
}
