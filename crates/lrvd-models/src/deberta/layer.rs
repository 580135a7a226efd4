//! One encoder layer: attention and feed-forward. But in a ModernBERT, attention is disentangled and a residual norm follows each.

mod modern;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::Named;
use lrvd_burn::ops::disentangled_attention::{AttentionLayout, PositionRows};
use lrvd_burn::ops::{disentangled_attention, dropout};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::{NoiseKey, module_id};

use self::modern::ModernLayer;
use super::activation::Activation;
use super::config::DebertaConfig;
use super::family::{Family, FamilySpec};
use super::relative_position::Positions;
use crate::norm::LayerNorm;
use crate::rope::RotaryEmbedding;
use crate::source::WeightSource;

/// `norm(residual + dropout(dense(x)))`, the end of both halves of a layer.
#[derive(Module, Debug)]
struct ResidualOutput {
    dense: Named<AdaptedLinear>,
    norm: LayerNorm,
    dropout: f64,
    site: u32,
}

impl ResidualOutput {
    /// With the dense layer, the norm and the dropout of these names in the layer at `path`; without dropout where its name
    /// is empty.
    fn load(
        source: &mut WeightSource<'_>,
        path: &str,
        [dense, norm, dropout]: [&str; 3],
        d_input: usize,
        config: &DebertaConfig,
    ) -> Self {
        let d = config.hidden_size;
        let eps = config.layer_norm_eps;
        let std = config.initializer_range;
        Self {
            dense: source.linear(&format!("{path}.{dense}"), [d_input, d], true, std),
            norm: LayerNorm::load(source, &format!("{path}.{norm}"), d, eps),
            dropout: if dropout.is_empty() { 0.0 } else { config.hidden_dropout_prob },
            site: module_id(&format!("{path}.{dropout}")),
        }
    }

    fn forward(&self, x: Tensor<3>, residual: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let x = self.dense.forward_with(x, pass);
        let x = dropped(x, self.dropout, pass.dropout_key(self.site));
        let [x, residual] = pass.aligned([x, residual]);
        self.norm.forward(x + residual)
    }
}

/// Inputs of the layers beside the hidden state of a batch.
#[derive(Clone)]
pub(super) struct Surroundings {
    /// 1 for tokens, 0 for padding, `[batch, tokens]`.
    pub(super) mask: Tensor<2>,
    pub(super) positions: Option<Positions>,
    pub(super) rotary: Option<RotaryEmbedding>,
}

/// One encoder layer.
#[derive(Module, Debug)]
#[expect(clippy::large_enum_variant, reason = "a model has one of the two, in all its layers")]
pub(super) enum EncoderLayer {
    /// With a norm behind each half.
    Post(PostNormLayer),
    /// Of a ModernBERT, with a norm before each half.
    Modern(ModernLayer),
}

impl EncoderLayer {
    /// Layer `index` of the stack at `stack`.
    pub(super) fn load(
        source: &mut WeightSource<'_>,
        stack: &str,
        index: usize,
        config: &DebertaConfig,
    ) -> Self {
        let path = format!("{stack}.{index}");
        match config.family {
            Family::ModernBert => Self::Modern(ModernLayer::load(source, &path, index, config)),
            _ => Self::Post(PostNormLayer::load(source, &path, config)),
        }
    }

    /// With `first_only` at least the first token's row: the others are not computed behind the attention, unless they
    /// share a mask or an observer with the first.
    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        around: &Surroundings,
        first_only: bool,
        pass: &Pass,
    ) -> Tensor<3> {
        match self {
            Self::Post(layer) => layer.forward(x, around, first_only, pass),
            Self::Modern(layer) => layer.forward(x, around, first_only, pass),
        }
    }
}

/// Leaves the first token's row, if no other is asked for and the `dense` layers compute a row without the others.
pub(super) fn rows_of_first(
    first_only: bool,
    dense: [&AdaptedLinear; 3],
    pass: &Pass,
) -> impl Fn(Tensor<3>) -> Tensor<3> + use<> {
    let alone = first_only
        && pass.dropout.is_none()
        && dense.into_iter().all(|layer| layer.is_row_independent(pass));
    move |x| if alone { x.narrow(1, 0, 1) } else { x }
}

/// A layer of the families with a norm behind each half.
#[derive(Module, Debug)]
pub(super) struct PostNormLayer {
    attention: SelfAttention,
    attention_output: ResidualOutput,
    intermediate: Named<AdaptedLinear>,
    #[module(skip)]
    activation: Activation,
    output: ResidualOutput,
}

impl PostNormLayer {
    fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let (d, wide, std) =
            (config.hidden_size, config.intermediate_size, config.initializer_range);
        let [.., attention, intermediate, output] = config.family.spec().layers;
        let FamilySpec { norms, dropouts: [_, first, second], .. } = config.family.spec();
        let names = [[attention, norms[0], first], [output, norms[1], second]];
        let intermediate = format!("{path}.{intermediate}");
        Self {
            attention: SelfAttention::load(source, path, config),
            attention_output: ResidualOutput::load(source, path, names[0], d, config),
            intermediate: source.linear(&intermediate, [d, wide], true, std),
            activation: config.hidden_act,
            output: ResidualOutput::load(source, path, names[1], wide, config),
        }
    }

    fn forward(
        &self,
        x: Tensor<3>,
        around: &Surroundings,
        first_only: bool,
        pass: &Pass,
    ) -> Tensor<3> {
        let Surroundings { mask, positions, .. } = around;
        let context = self.attention.forward(x.clone(), mask, positions.as_ref(), pass);
        let dense = [&self.attention_output.dense, &self.intermediate, &self.output.dense];
        let rows = rows_of_first(first_only, dense.map(|layer| &**layer), pass);
        let x = self.attention_output.forward(rows(context), rows(x), pass);
        let wide = self.activation.apply(self.intermediate.forward_with(x.clone(), pass));
        self.output.forward(wide, x, pass)
    }
}

/// `x` after dropout, if the pass has it.
pub(super) fn dropped<const D: usize>(x: Tensor<D>, rate: f64, key: Option<NoiseKey>) -> Tensor<D> {
    match key {
        Some(key) => dropout(x, rate, key),
        None => x,
    }
}

/// Projections of one attention block; the position projections exist without shared keys only.
///
/// # Formula
///
/// ```text
/// score(i, j) = (q_i·k_j + q_i·pk[n] + k_j·pq[n]) / sqrt(3·d)      n = bucket(i − j) + span
/// score(i, j) = q_i·k_j / sqrt(d) + b[n, head]                     with a bias for each distance (MPNet)
/// ```
///
/// `pk` and `pq` are the key and query projections of the relative embeddings: with shared keys
/// those of the content themselves, whose adapters then act on both uses with one weight
/// draw. `d` is the head width; the 3 counts the terms in use.
///
/// # References
///
/// He et al. 2021, arXiv:2006.03654; He et al. 2023, arXiv:2111.09543.
#[derive(Module, Debug)]
struct SelfAttention {
    query: Named<AdaptedLinear>,
    key: Named<AdaptedLinear>,
    value: Named<AdaptedLinear>,
    pos_key_proj: Option<Named<AdaptedLinear>>,
    pos_query_proj: Option<Named<AdaptedLinear>>,
    heads: usize,
    c2p: bool,
    p2c: bool,
    biased: bool,
    attention_dropout: f64,
    position_dropout: f64,
    site: u32,
}

impl SelfAttention {
    fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let d = config.hidden_size;
        let std = config.initializer_range;
        let FamilySpec { dropouts: [site, ..], has_position_bias, .. } = config.family.spec();
        let [query, key, value, ..] = config.family.spec().layers;
        let mut linear = |name: &str| source.linear(&format!("{path}.{name}"), [d, d], true, std);
        let (c2p, p2c) =
            (config.relative_attention && config.c2p, config.relative_attention && config.p2c);
        let separate = !config.share_att_key;
        let of_positions = |name: &str| format!("{site}.{name}");
        Self {
            query: linear(query),
            key: linear(key),
            value: linear(value),
            pos_key_proj: (separate && c2p).then(|| linear(&of_positions("pos_key_proj"))),
            pos_query_proj: (separate && p2c).then(|| linear(&of_positions("pos_query_proj"))),
            heads: config.num_attention_heads,
            c2p,
            p2c,
            biased: *has_position_bias,
            attention_dropout: config.attention_probs_dropout_prob,
            position_dropout: config.hidden_dropout_prob,
            site: module_id(&format!("{path}.{site}")),
        }
    }

    /// `[batch, tokens, hidden]` to the same shape, before the output projection.
    fn forward(
        &self,
        x: Tensor<3>,
        mask: &Tensor<2>,
        positions: Option<&Positions>,
        pass: &Pass,
    ) -> Tensor<3> {
        let [batch, _, hidden] = x.dims();
        let query_proj = self.query.prepare(pass, batch);
        let key_proj = self.key.prepare(pass, batch);
        let query = query_proj.forward(x.clone());
        let key = key_proj.forward(x.clone());
        let value = self.value.forward_with(x, pass);
        let [mut query, key, value] = pass.aligned([query, key, value]);
        let separate = [&self.pos_key_proj, &self.pos_query_proj];
        if separate.into_iter().flatten().any(|p| p.is_stochastic(pass)) {
            query = pass.repeated(query, pass.draws * pass.rows);
        }
        let [query, key, value] = pass.aligned([query, key, value]);
        let batch = query.dims()[0];
        let mask = pass.repeated(mask.clone(), batch);

        let (mut keys, mut queries) = (None, None);
        let mut terms = 1;
        if let Some(positions) = positions {
            let key = pass.dropout_key(self.site).map(|key| key.with_use(1));
            let table = dropped(positions.table.clone(), self.position_dropout, key);
            if self.c2p {
                let separate = self.pos_key_proj.as_ref().map(|p| p.prepare(pass, batch));
                keys = Some(separate.as_ref().unwrap_or(&key_proj).position_rows(table.clone()));
                terms += 1;
            }
            if self.p2c {
                let separate = self.pos_query_proj.as_ref().map(|p| p.prepare(pass, batch));
                queries = Some(separate.as_ref().unwrap_or(&query_proj).position_rows(table));
                terms += 1;
            }
        }
        let layout = AttentionLayout {
            heads: self.heads,
            rows: positions.map_or_else(|| [].into(), |positions| Arc::clone(&positions.rows)),
            scale: 1.0 / ((hidden / self.heads * terms) as f64).sqrt(),
            dropout: pass
                .dropout_key(self.site)
                .filter(|_| self.attention_dropout > 0.0)
                .map(|key| (self.attention_dropout, key)),
        };
        match positions.filter(|_| self.biased) {
            Some(positions) => {
                biased_attention(query, key, value, positions.table.clone(), mask, layout)
            }
            None => disentangled_attention(query, key, value, keys, queries, Some(mask), layout),
        }
    }
}

/// Attention whose scores have the `bias` of their row and head, `[rows, heads]`.
///
/// Every head has one more feature: 1 in the queries, 0 in keys and values, and the bias over the factor of the scores
/// in the position rows, so that the operator of the position terms, and its gradient, serve here too.
fn biased_attention(
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    bias: Tensor<2>,
    mask: Tensor<2>,
    layout: AttentionLayout,
) -> Tensor<3> {
    let [batch, tokens, hidden] = query.dims();
    let (heads, width) = (layout.heads, hidden / layout.heads);
    let extended = |x: Tensor<3>, feature: f64| {
        let x = x.reshape([batch, tokens, heads, width]);
        let last = Tensor::full([batch, tokens, heads, 1], feature, (&x.device(), x.dtype()));
        Tensor::cat(vec![x, last], 3).reshape([batch, tokens, heads * (width + 1)])
    };
    let count = bias.dims()[0];
    // Burn's gradient of a division rounds the reciprocal to single precision.
    let bias =
        bias.cast(query.dtype()).mul_scalar(1.0 / layout.scale).reshape([1, count, heads, 1]);
    let zeros = Tensor::zeros([1, count, heads, width], (&bias.device(), bias.dtype()));
    let shared = Tensor::cat(vec![zeros, bias], 3).reshape([1, count, heads * (width + 1)]);
    let keys = Some(PositionRows { shared, low: None });
    let [query, key, value] = [(query, 1.0), (key, 0.0), (value, 0.0)].map(|(x, f)| extended(x, f));
    let out = disentangled_attention(query, key, value, keys, None, Some(mask), layout);
    let out = out.reshape([batch, tokens, heads, width + 1]).narrow(3, 0, width);
    out.reshape([batch, tokens, hidden])
}
