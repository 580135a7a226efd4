//! One encoder layer: attention, feed-forward, and the residual norm that follows each.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::ops::{dropout, gelu};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::attention::SelfAttention;
use super::config::DebertaConfig;
use super::relative_position::Positions;
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
        let mut x = self.dense.forward_with(x, pass);
        if let Some(key) = pass.dropout_key(self.site) {
            x = dropout(x, self.dropout, key);
        }
        let [x, residual] = pass.aligned([x, residual]);
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
        self.output_block(context, x, pass)
    }

    /// The first token's row of [`Self::forward`], `[batch, 1, hidden]`. The other rows are not computed behind
    /// the attention, unless they share noise, a mask or an observer with the first.
    pub(super) fn first_row(
        &self,
        x: Tensor<3>,
        mask: Option<&Tensor<2>>,
        positions: Option<&Positions>,
        pass: &Pass,
    ) -> Tensor<3> {
        let context = self.attention.forward(x.clone(), mask, positions, pass);
        let dense = [&self.attention_output.dense, &self.intermediate, &self.output.dense];
        let first = |x: Tensor<3>| x.narrow(1, 0, 1);
        if pass.dropout.is_none() && dense.into_iter().all(|layer| layer.is_row_independent(pass)) {
            return self.output_block(first(context), first(x), pass);
        }
        first(self.output_block(context, x, pass))
    }

    /// Both residual outputs, row by row.
    fn output_block(&self, context: Tensor<3>, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let x = self.attention_output.forward(context, x, pass);
        let wide = gelu(self.intermediate.forward_with(x.clone(), pass));
        self.output.forward(wide, x, pass)
    }
}
