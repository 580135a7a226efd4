//! One decoder layer: attention and feed-forward, each behind a norm and beside a residual.

use burn::module::Module;
use burn::tensor::{DType, Int, Tensor, TensorData, activation};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::Named;
use lrvd_burn::ops::{Window, attention, dropout, gated_silu};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::{NoiseKey, module_id};

use super::cache::KvCache;
use super::config::LlamaConfig;
use crate::norm::RmsNorm;
use crate::rope::RotaryEmbedding;
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
    pub(super) fn load(source: &mut WeightSource<'_>, path: &str, config: &LlamaConfig) -> Self {
        let d = config.hidden_size;
        let eps = config.rms_norm_eps;
        let at = |name: &str| format!("{path}.{name}");
        Self {
            input_norm: RmsNorm::load(source, &at("input_layernorm"), d, eps),
            self_attn: Attention::load(source, &at("self_attn"), config),
            post_attention_norm: RmsNorm::load(source, &at("post_attention_layernorm"), d, eps),
            mlp: Mlp::load(source, &at("mlp"), config),
        }
    }

    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        rotary: &RotaryEmbedding,
        mask: &AttentionMask,
        cache: Option<(&mut KvCache, usize)>,
        pass: &Pass,
    ) -> Tensor<3> {
        let normed = self.input_norm.forward(x.clone());
        let mixed = self.self_attn.forward(normed, rotary, mask, cache, pass);
        let [x, mixed] = pass.aligned([x, mixed]);
        let x = x + mixed;
        let normed = self.post_attention_norm.forward(x.clone());
        let [x, out] = pass.aligned([x, self.mlp.forward(normed, pass)]);
        x + out
    }
}

/// Projections of one attention block.
///
/// # Formula
///
/// ```text
/// out = o(concat_h softmax_j(q_h,i·k_g(h),j / sqrt(d))·v_g(h),j)       j ≤ i, real tokens only; with a window of w: i − w < j
/// ```
///
/// `q` and `k` are rotated by their positions, in Qwen3 after a norm over each head; `g(h)` is the key head that query head `h` shares with its group.
/// Without a cache, without dropout on the weights and without a window that is shorter than the text this is one fused operation. Else the queries of a group are
/// stacked as rows of one product, so that keys and values are never repeated.
///
/// # References
///
/// Touvron et al. 2023, arXiv:2307.09288; Ainslie et al. 2023, arXiv:2305.13245 (groups).
#[derive(Module, Debug)]
struct Attention {
    q_proj: Named<AdaptedLinear>,
    k_proj: Named<AdaptedLinear>,
    v_proj: Named<AdaptedLinear>,
    o_proj: Named<AdaptedLinear>,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    heads: usize,
    key_heads: usize,
    head_dim: usize,
    dropout: f64,
    site: u32,
}

impl Attention {
    fn load(source: &mut WeightSource<'_>, path: &str, config: &LlamaConfig) -> Self {
        let hidden = config.hidden_size;
        let std = config.initializer_range;
        let heads = config.num_attention_heads;
        let key_heads = config.num_key_value_heads;
        let [wide, narrow] = [heads, key_heads].map(|heads| heads * config.head_dim);
        let mut linear =
            |name: &str, shape, bias| source.linear(&format!("{path}.{name}"), shape, bias, std);
        let bias = config.attention_bias;
        let norm = |source: &mut WeightSource<'_>, name: &str| {
            let path = format!("{path}.{name}");
            let load = || RmsNorm::load(source, &path, config.head_dim, config.rms_norm_eps);
            config.head_norms().then(load)
        };
        Self {
            q_proj: linear("q_proj", [hidden, wide], bias),
            k_proj: linear("k_proj", [hidden, narrow], bias),
            v_proj: linear("v_proj", [hidden, narrow], bias),
            o_proj: linear("o_proj", [wide, hidden], config.output_bias()),
            q_norm: norm(source, "q_norm"),
            k_norm: norm(source, "k_norm"),
            heads,
            key_heads,
            head_dim: config.head_dim,
            dropout: config.attention_dropout,
            site: module_id(path),
        }
    }

    /// `[batch, tokens, hidden]` to the same shape.
    fn forward(
        &self,
        x: Tensor<3>,
        rotary: &RotaryEmbedding,
        mask: &AttentionMask,
        cache: Option<(&mut KvCache, usize)>,
        pass: &Pass,
    ) -> Tensor<3> {
        let tokens = x.dims()[1];
        let groups = self.key_heads;
        let width = self.head_dim;
        let split = |x: Tensor<3>, heads| {
            let rows = x.dims()[0];
            x.reshape([rows, tokens, heads, width])
        };
        let normed = |norm: &Option<RmsNorm>, x| match norm {
            Some(norm) => norm.forward(x),
            None => x,
        };
        let q = split(self.q_proj.forward_with(x.clone(), pass), self.heads);
        let k = split(self.k_proj.forward_with(x.clone(), pass), groups);
        let v = split(self.v_proj.forward_with(x, pass), groups);
        let q = rotary.apply(normed(&self.q_norm, q), pass);
        let k = rotary.apply(normed(&self.k_norm, k), pass);
        let mixed = self.mixed([q, k, v], mask, cache, pass);
        let batch = mixed.dims()[0];
        self.o_proj.forward_with(mixed.reshape([batch, tokens, self.heads * width]), pass)
    }

    /// Attention output, `[batch, tokens, heads, head_dim]`; keys and values have the heads of the keys.
    fn mixed(
        &self,
        [q, k, v]: [Tensor<4>; 3],
        mask: &AttentionMask,
        cache: Option<(&mut KvCache, usize)>,
        pass: &Pass,
    ) -> Tensor<4> {
        match (mask, &cache) {
            (AttentionMask::Tree { prefix, own }, _) => {
                let [q, k, v] = pass.aligned([q, k, v]);
                let all = q.dims()[1];
                let tokens = own.dims()[2];
                let first = |x: &Tensor<4>| x.clone().narrow(1, 0, all - tokens);
                let before = self.mixed([&q, &k, &v].map(first), prefix, None, pass);
                let q = q.narrow(1, all - tokens, tokens);
                let behind = self.composed([q, k, v], mask, None, pass);
                Tensor::cat(vec![before, behind], 1)
            }
            (AttentionMask::Causal(mask), None) if self.dropout_key(pass).is_none() => {
                let [q, k, v] = pass.aligned([q, k, v]);
                let mask = pass.repeated(mask.clone(), q.dims()[0]);
                attention(q, k, v, mask, Window::CAUSAL, self.scale())
            }
            _ => self.composed([q, k, v], mask, cache, pass),
        }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.head_dim as f64).sqrt()
    }

    /// The key by which attention weights are dropped, if they are.
    fn dropout_key(&self, pass: &Pass) -> Option<NoiseKey> {
        pass.dropout_key(self.site).filter(|_| self.dropout > 0.0)
    }

    /// Attention from single operations: with the keys of a cache, with dropout on the weights, with a window, or with branches.
    fn composed(
        &self,
        [q, k, v]: [Tensor<4>; 3],
        mask: &AttentionMask,
        cache: Option<(&mut KvCache, usize)>,
        pass: &Pass,
    ) -> Tensor<4> {
        let groups = self.key_heads;
        let piece = [k.swap_dims(1, 2), v.swap_dims(1, 2)];
        let [k, v] = match cache {
            Some((cache, layer)) => cache.append(layer, piece),
            None => piece,
        };
        // A cache keeps what the draws of the batch share once.
        let [q, k, v] = pass.aligned([q, k, v]);
        let [batch, tokens, _, width] = q.dims();
        let stacked = self.heads / groups * tokens;
        let keys = k.dims()[2];
        let q: Tensor<4> = if groups == self.heads {
            q.swap_dims(1, 2)
        } else {
            let q = q.reshape([batch, tokens, groups, self.heads / groups, width]);
            q.permute([0, 2, 3, 1, 4]).reshape([batch, groups, stacked, width])
        };
        let scores = q.matmul(k.swap_dims(2, 3)).reshape([batch, self.heads, tokens, keys]);
        let mut weights = mask.weights(scores, self.scale(), pass);
        if let Some(key) = self.dropout_key(pass) {
            weights = dropout(weights, self.dropout, key);
        }
        let mixed = weights.reshape([batch, groups, stacked, keys]).matmul(v);
        mixed.reshape([batch, self.heads, tokens, width]).swap_dims(1, 2)
    }
}

/// `down(silu(gate(x)) ⊙ up(x))`.
#[derive(Module, Debug)]
#[expect(clippy::struct_field_names, reason = "the checkpoint's names")]
struct Mlp {
    gate_proj: Named<AdaptedLinear>,
    up_proj: Named<AdaptedLinear>,
    down_proj: Named<AdaptedLinear>,
}

impl Mlp {
    fn load(source: &mut WeightSource<'_>, path: &str, config: &LlamaConfig) -> Self {
        let d = config.hidden_size;
        let wide = config.intermediate_size;
        let std = config.initializer_range;
        let mut linear =
            |name: &str, shape| source.linear(&format!("{path}.{name}"), shape, false, std);
        Self {
            gate_proj: linear("gate_proj", [d, wide]),
            up_proj: linear("up_proj", [d, wide]),
            down_proj: linear("down_proj", [wide, d]),
        }
    }

    fn forward(&self, x: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let gate = self.gate_proj.forward_with(x.clone(), pass);
        let up = self.up_proj.forward_with(x, pass);
        let [gate, up] = pass.aligned([gate, up]);
        self.down_proj.forward_with(gated_silu(gate, up), pass)
    }
}

/// Added to the score of a masked key: far below any score, and finite, so that a query without any key (a padded one)
/// has weights without a meaning instead of values that are not numbers.
const MASK_VALUE: f64 = -1.0e30;

/// Visibility of one batch, shared by all layers with the same window.
///
/// A query sees the real tokens up to its own column; columns of the cache come before those of the input.
#[derive(Clone)]
pub(super) enum AttentionMask {
    /// No past, as many keys as queries, no window: 1 for tokens, 0 for padding, `[batch, tokens]`.
    Causal(Tensor<2>),
    /// Any other: a sum of [`MASK_VALUE`], `[batch, 1, tokens, past + tokens]`.
    Additive(Tensor<4>),
    /// A tree of tokens behind a prefix.
    Tree {
        /// Of the queries of the prefix.
        prefix: Box<AttentionMask>,
        /// Of those behind it, as [`Additive`](Self::Additive), `[batch, 1, behind, prefix + behind]`.
        own: Tensor<4>,
    },
}

impl AttentionMask {
    /// `mask` is that of all keys, `[batch, past + tokens]`, 1 for tokens and 0 for padding.
    pub(super) fn new(mask: Tensor<2>, tokens: usize) -> Self {
        if mask.dims()[1] == tokens {
            return Self::Causal(mask);
        }
        Self::Additive(unseen(mask, tokens))
    }

    /// Mask of a tree of tokens after the prefix that `mask` covers: a token attends to the prefix, its ancestors and itself.
    /// `parents` has the parent of each token, which comes before its children. `positions` has all keys, in the mask's type;
    /// layers with a `window` attend to as many.
    pub(super) fn tree(
        mask: Tensor<2>,
        parents: &[Option<usize>],
        positions: Tensor<2>,
        window: Option<usize>,
    ) -> Self {
        let [rows, before] = mask.dims();
        let behind = parents.len();
        let keys = before + behind;
        let mut elsewhere = vec![0.0_f32; behind * keys];
        for (token, parent) in parents.iter().enumerate() {
            let (known, own) = elsewhere.split_at_mut(token * keys);
            match parent {
                Some(parent) => own[..keys].copy_from_slice(&known[parent * keys..][..keys]),
                None => own[before..keys].fill(MASK_VALUE as f32),
            }
            own[before + token] = 0.0;
        }
        let elsewhere = TensorData::new(elsewhere, [1, 1, behind, keys]);
        let own = Tensor::<4>::from_data(elsewhere, (&mask.device(), mask.dtype()));
        let own = own.repeat_dim(0, rows);
        match window {
            None => Self::Tree { prefix: Box::new(Self::Causal(mask)), own },
            Some(window) => {
                let far = far(window, positions.clone(), behind, mask.dtype());
                let own = own + far.mul_scalar(MASK_VALUE).unsqueeze_dim::<4>(1);
                let prefix = Self::within(window, mask, positions.narrow(1, 0, before), before);
                Self::Tree { prefix: Box::new(prefix), own }
            }
        }
    }

    /// Of the tokens behind the prefix alone, whose keys a cache holds.
    pub(super) fn after_prefix(self) -> Self {
        match self {
            Self::Tree { own, .. } => Self::Additive(own),
            other => other,
        }
    }

    /// For layers that see `window` positions; `positions` are those of all keys, in the mask's type.
    pub(super) fn within(
        window: usize,
        mask: Tensor<2>,
        positions: Tensor<2>,
        tokens: usize,
    ) -> Self {
        let far = far(window, positions, tokens, mask.dtype());
        Self::Additive(unseen(mask, tokens) + far.mul_scalar(MASK_VALUE).unsqueeze_dim::<4>(1))
    }

    /// Attention weights of scores `[batch, heads, tokens, keys]`, which are multiplied by `scale` first.
    fn weights(&self, scores: Tensor<4>, scale: f64, pass: &Pass) -> Tensor<4> {
        let unseen = match self {
            Self::Causal(mask) => unseen(mask.clone(), mask.dims()[1]),
            Self::Additive(unseen) | Self::Tree { own: unseen, .. } => unseen.clone(),
        };
        let unseen = pass.repeated(unseen, scores.dims()[0]);
        activation::softmax(scores.mul_scalar(scale) + unseen, 3)
    }
}

/// [`MASK_VALUE`] where a query must not look, once for padding and once for later keys.
fn unseen(mask: Tensor<2>, tokens: usize) -> Tensor<4> {
    let [batch, keys] = mask.dims();
    let columns = |from: usize| Tensor::<1, Int>::arange(from as i64..keys as i64, &mask.device());
    let query: Tensor<2, Int> = columns(keys - tokens).unsqueeze_dim(1);
    let key: Tensor<2, Int> = columns(0).unsqueeze_dim(0);
    let later = key.expand([tokens, keys]).greater(query.expand([tokens, keys]));
    let later = later.float().cast(mask.dtype()).mul_scalar(MASK_VALUE);
    let padding = mask.sub_scalar(1.0).mul_scalar(-MASK_VALUE);
    padding.reshape([batch, 1, 1, keys]) + later.reshape([1, 1, tokens, keys])
}

/// 1 where a key is `window` positions or more before the query, `[batch, tokens, keys]`, for the last `tokens` of the keys.
fn far(window: usize, positions: Tensor<2>, tokens: usize, dtype: DType) -> Tensor<3> {
    let keys = positions.dims()[1];
    let queries = positions.clone().narrow(1, keys - tokens, tokens);
    let distance = queries.unsqueeze_dim::<3>(2) - positions.unsqueeze_dim::<3>(1);
    distance.greater_equal_elem(window as f64).float().cast(dtype)
}
