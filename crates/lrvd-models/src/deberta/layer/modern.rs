//! Layer of a ModernBERT.

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::Named;
use lrvd_burn::ops::{Window, attention};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;

use super::{Surroundings, rows_of_first};
use crate::deberta::activation::Activation;
use crate::deberta::config::DebertaConfig;
use crate::norm::LayerNorm;
use crate::source::WeightSource;

/// `x ← x + Wo(attention(norm(x)))`, then `x ← x + Wo(act(first) ⊙ second)` of the halves `(first | second) = Wi(norm(x))`.
///
/// # Formula
///
/// ```text
/// (q | k | v) = Wqkv(norm(x))
/// out         = concat_h softmax_j(q_h,i·k_h,j / sqrt(d))·v_h,j       real tokens only; with a window of w: |i − j| ≤ w
/// ```
///
/// `q` and `k` are rotated by their positions. The first layer has no norm before its attention: it reads what the embeddings
/// have normalised.
///
/// # References
///
/// Warner et al. 2024, arXiv:2412.13663; Shazeer 2020, arXiv:2002.05202 (`GeGLU`).
#[derive(Module, Debug)]
pub(in crate::deberta) struct ModernLayer {
    attention_norm: Option<LayerNorm>,
    qkv: Named<AdaptedLinear>,
    attention_output: Named<AdaptedLinear>,
    mlp_norm: LayerNorm,
    wide: Named<AdaptedLinear>,
    output: Named<AdaptedLinear>,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    window: Window,
    heads: usize,
}

impl ModernLayer {
    pub(super) fn load(
        source: &mut WeightSource<'_>,
        path: &str,
        index: usize,
        config: &DebertaConfig,
    ) -> Self {
        let (d, wide, std) =
            (config.hidden_size, config.intermediate_size, config.initializer_range);
        let norm = |source: &mut WeightSource<'_>, name: &str| {
            let path = format!("{path}.{name}");
            LayerNorm::unshifted(source, &path, Group::Backbone, d, config.layer_norm_eps)
        };
        let linear = |source: &mut WeightSource<'_>, name: &str, shape| {
            source.linear(&format!("{path}.{name}"), shape, false, std)
        };
        let window = config.layer_attention.get(index).and_then(|own| own.window);
        Self {
            attention_norm: (index > 0).then(|| norm(source, "attn_norm")),
            qkv: linear(source, "attn.Wqkv", [d, 3 * d]),
            attention_output: linear(source, "attn.Wo", [d, d]),
            mlp_norm: norm(source, "mlp_norm"),
            wide: linear(source, "mlp.Wi", [d, 2 * wide]),
            output: linear(source, "mlp.Wo", [wide, d]),
            activation: config.hidden_act,
            window: window.map_or(Window::ALL, Window::around),
            heads: config.num_attention_heads,
        }
    }

    /// `[batch, tokens, hidden]` to the same shape, or with `first_only` to at least the first token.
    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        around: &Surroundings,
        first_only: bool,
        pass: &Pass,
    ) -> Tensor<3> {
        let normed = match &self.attention_norm {
            Some(norm) => norm.forward(x.clone()),
            None => x.clone(),
        };
        let context = self.attend(normed, around, pass);
        let dense = [&self.attention_output, &self.wide, &self.output];
        let rows = rows_of_first(first_only, dense.map(|layer| &**layer), pass);
        let mixed = self.attention_output.forward_with(rows(context), pass);
        let [x, mixed] = pass.aligned([rows(x), mixed]);
        let x = x + mixed;
        let wide = self.wide.forward_with(self.mlp_norm.forward(x.clone()), pass);
        let half = wide.dims()[2] / 2;
        let [first, second] = [0, half].map(|start| wide.clone().narrow(2, start, half));
        let gated = self.activation.apply(first) * second;
        let [x, out] = pass.aligned([x, self.output.forward_with(gated, pass)]);
        x + out
    }

    /// Mixture of the heads, before the output projection.
    fn attend(&self, x: Tensor<3>, around: &Surroundings, pass: &Pass) -> Tensor<3> {
        let qkv = self.qkv.forward_with(x, pass);
        let [batch, tokens, all] = qkv.dims();
        let (d, width) = (all / 3, all / 3 / self.heads);
        let part =
            |i: usize| qkv.clone().narrow(2, i * d, d).reshape([batch, tokens, self.heads, width]);
        let rotated = |x: Tensor<4>| match &around.rotary {
            Some(rotary) => rotary.apply(x, pass),
            None => x,
        };
        let mask = pass.repeated(around.mask.clone(), batch);
        let scale = 1.0 / (width as f64).sqrt();
        let (query, key) = (rotated(part(0)), rotated(part(1)));
        attention(query, key, part(2), mask, self.window, scale).reshape([batch, tokens, d])
    }
}
