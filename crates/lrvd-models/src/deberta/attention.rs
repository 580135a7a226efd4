//! Disentangled self-attention.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::ops::disentangled_attention::AttentionLayout;
use lrvd_burn::ops::{disentangled_attention, dropout};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::config::DebertaConfig;
use super::relative_position::Positions;
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
        let [batch, _, hidden] = x.dims();
        let query_proj = self.query_proj.prepare(pass, batch);
        let key_proj = self.key_proj.prepare(pass, batch);
        let query = query_proj.forward(x.clone());
        let key = key_proj.forward(x.clone());
        let value = self.value_proj.forward_with(x, pass);
        let [mut query, key, value] = pass.aligned([query, key, value]);
        let separate = [&self.pos_key_proj, &self.pos_query_proj];
        if separate.into_iter().flatten().any(|p| p.is_stochastic(pass)) {
            query = pass.repeated(query, pass.draws.count * pass.draws.rows);
        }
        let [query, key, value] = pass.aligned([query, key, value]);
        let batch = query.dims()[0];
        let mask = mask.map(|mask| pass.repeated(mask.clone(), batch));

        let (mut keys, mut queries) = (None, None);
        let mut terms = 1;
        if let Some(positions) = positions {
            let table = self.dropped_table(positions, pass);
            if self.content_to_position {
                let separate = self.pos_key_proj.as_ref().map(|p| p.prepare(pass, batch));
                keys = Some(separate.as_ref().unwrap_or(&key_proj).position_rows(table.clone()));
                terms += 1;
            }
            if self.position_to_content {
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
        disentangled_attention(query, key, value, keys, queries, mask, layout)
    }

    fn dropped_table(&self, positions: &Positions, pass: &Pass) -> Tensor<2> {
        let table = positions.table.clone();
        match pass.dropout_key(self.site) {
            Some(key) => dropout(table, self.position_dropout, key.with_use(1)),
            None => table,
        }
    }
}
