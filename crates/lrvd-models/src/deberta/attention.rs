//! Disentangled self-attention.

use burn::module::Module;
use burn::tensor::{Int, Tensor};
use lrvd_burn::adapted_model;
use lrvd_burn::adapter::{AdaptedLinear, PreparedLinear};
use lrvd_burn::ops::{dropout, relative_softmax};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::config::DebertaConfig;
use super::positions::Positions;
use crate::source::WeightSource;

/// Projections of one attention block; the position projections exist without shared keys only.
///
/// # Formula
///
/// ```text
/// score(i, j) = (q_i·k_j + q_i·pk[n] + k_j·pq[n]) / sqrt(3·d)      n = bucket(i − j) + span
/// ```
///
/// `pk` and `pq` are the key and query projections of the relative embeddings: with shared keys
/// `key_proj` and `query_proj` themselves, whose adapters then act on both uses with one weight
/// draw. `d` is the head width; the 3 counts the terms in use.
///
/// # References
///
/// He et al. 2021, arXiv:2006.03654; He et al. 2023, arXiv:2111.09543.
#[derive(Module, Debug)]
pub(super) struct SelfAttention {
    query_proj: AdaptedLinear,
    key_proj: AdaptedLinear,
    value_proj: AdaptedLinear,
    pos_key_proj: Option<AdaptedLinear>,
    pos_query_proj: Option<AdaptedLinear>,
    heads: usize,
    content_to_position: bool,
    position_to_content: bool,
    attention_dropout: f64,
    position_dropout: f64,
    site: u32,
}

impl SelfAttention {
    pub(super) fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let (d, std) = (config.hidden_size, config.initializer_range);
        let mut linear = |name: &str| source.linear(&format!("{path}.{name}"), d, d, true, std);
        let separate = config.relative_attention && !config.share_att_key;
        Self {
            query_proj: linear("query_proj"),
            key_proj: linear("key_proj"),
            value_proj: linear("value_proj"),
            pos_key_proj: (separate && config.pos_att_type.c2p).then(|| linear("pos_key_proj")),
            pos_query_proj: (separate && config.pos_att_type.p2c).then(|| linear("pos_query_proj")),
            heads: config.num_attention_heads,
            content_to_position: config.relative_attention && config.pos_att_type.c2p,
            position_to_content: config.relative_attention && config.pos_att_type.p2c,
            attention_dropout: config.attention_probs_dropout_prob,
            position_dropout: config.hidden_dropout_prob,
            site: module_id(path),
        }
    }

    /// `[batch, tokens, hidden]` to the same shape, before the output projection.
    pub(super) fn forward(
        &self,
        x: Tensor<3>,
        mask: Option<&Tensor<2>>,
        positions: Option<&Positions>,
        pass: &Pass,
    ) -> Tensor<3> {
        let [batch, tokens, hidden] = x.dims();
        let query_proj = self.query_proj.prepare(pass, batch);
        let key_proj = self.key_proj.prepare(pass, batch);
        let q = query_proj.forward(x.clone());
        let k = key_proj.forward(x.clone());
        let v = self.value_proj.forward(x, pass);
        let [mut q, k, v] = pass.aligned([q, k, v]);
        let separate = [&self.pos_key_proj, &self.pos_query_proj];
        if separate.into_iter().flatten().any(|p| p.tells_draws_apart(pass)) {
            q = pass.repeated(q, pass.draws.count * pass.draws.rows);
        }
        let [q, k, v] = pass.aligned([q, k, v]).map(|x| self.split(x));
        let batch = q.dims()[0];
        let mask = mask.map(|mask| pass.repeated(mask.clone(), batch));

        let (mut c2p, mut p2c) = (None, None);
        let mut terms = 1;
        if let Some(positions) = positions {
            let table = self.dropped_table(positions, pass);
            if self.content_to_position {
                let separate = self.pos_key_proj.as_ref().map(|p| p.prepare(pass, batch));
                let proj = separate.as_ref().unwrap_or(&key_proj);
                let keys = self.project(proj, &table, &positions.falling, positions.select_first);
                c2p = Some(q.clone().matmul(keys));
                terms += 1;
            }
            if self.position_to_content {
                let separate = self.pos_query_proj.as_ref().map(|p| p.prepare(pass, batch));
                let proj = separate.as_ref().unwrap_or(&query_proj);
                let queries = self.project(proj, &table, &positions.rising, positions.select_first);
                p2c = Some(k.clone().matmul(queries));
                terms += 1;
            }
        }
        let scale = 1.0 / ((hidden / self.heads * terms) as f64).sqrt();
        let content = q.matmul(k.swap_dims(2, 3));
        let mut probs = relative_softmax(content, c2p, p2c, mask, scale);
        if let Some(key) = pass.dropout_key(self.site) {
            probs = dropout(probs, self.attention_dropout, key);
        }
        probs.matmul(v).swap_dims(1, 2).reshape([batch, tokens, hidden])
    }

    /// `[n, tokens, hidden]` to `[n, heads, tokens, d]`.
    fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [n, tokens, hidden] = x.dims();
        x.reshape([n, tokens, self.heads, hidden / self.heads]).swap_dims(1, 2)
    }

    /// Projected position rows, `[1 | batch, heads, d, 2L−1]`.
    fn project(
        &self,
        projection: &PreparedLinear<'_>,
        table: &Tensor<2>,
        rows: &Tensor<1, Int>,
        select_first: bool,
    ) -> Tensor<4> {
        let projected = if select_first {
            projection.forward_shared(table.clone().select(0, rows.clone()))
        } else {
            projection.forward_shared(table.clone()).select(1, rows.clone())
        };
        self.split(projected).swap_dims(2, 3)
    }

    fn dropped_table(&self, positions: &Positions, pass: &Pass) -> Tensor<2> {
        let table = positions.table.clone();
        match pass.dropout_key(self.site) {
            Some(key) => dropout(table, self.position_dropout, key.with_use(1)),
            None => table,
        }
    }
}

adapted_model!(SelfAttention { query_proj, key_proj, value_proj, pos_key_proj, pos_query_proj });
