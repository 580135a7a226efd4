//! Word embeddings, their norm and their mask.

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, module::embedding};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::ops::dropout;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::config::DebertaConfig;
use crate::norm::LayerNorm;
use crate::source::{Init, WeightSource};

/// Sum of the embedding tables in use, normalised and masked.
#[derive(Module, Debug)]
pub(super) struct Embeddings {
    word: Param<Tensor<2>>,
    position: Option<Param<Tensor<2>>>,
    token_type: Option<Param<Tensor<2>>>,
    projection: Option<AdaptedLinear>,
    norm: LayerNorm,
    dropout: f64,
    site: u32,
}

impl Embeddings {
    pub(super) fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let width = config.embedding_size;
        let init = Init::Normal(config.initializer_range);
        let mut table = |name: &str, rows: usize| {
            source.parameter(&format!("{path}.{name}.weight"), [rows, width], init)
        };
        let word = table("word_embeddings", config.vocab_size);
        let position = config
            .position_biased_input
            .then(|| table("position_embeddings", config.max_position_embeddings));
        let token_type = (config.type_vocab_size > 0)
            .then(|| table("token_type_embeddings", config.type_vocab_size));
        let projection = (width != config.hidden_size).then(|| {
            let path = format!("{path}.embed_proj");
            source.linear(&path, width, config.hidden_size, false, config.initializer_range)
        });
        let norm = LayerNorm::load(
            source,
            &format!("{path}.LayerNorm"),
            config.hidden_size,
            config.layer_norm_eps,
        );
        Self {
            word,
            position,
            token_type,
            projection,
            norm,
            dropout: config.hidden_dropout_prob,
            site: module_id(path),
        }
    }

    /// `[batch, tokens]` ids to `[batch, tokens, hidden]`; `mask` is 1 for tokens and 0 for padding.
    pub(super) fn forward(
        &self,
        ids: Tensor<2, Int>,
        type_ids: Tensor<2, Int>,
        mask: &Tensor<2>,
        pass: &Pass,
    ) -> Tensor<3> {
        let tokens = ids.dims()[1];
        let mut x = embedding(self.word.val(), ids);
        if let Some(position) = &self.position {
            x = x + position.val().narrow(0, 0, tokens).unsqueeze_dim(0);
        }
        if let Some(token_type) = &self.token_type {
            x = x + embedding(token_type.val(), type_ids);
        }
        if let Some(projection) = &self.projection {
            x = projection.forward_with(x, pass);
        }
        let mask = pass.repeated(mask.clone(), x.dims()[0]);
        let x = self.norm.forward(x) * mask.unsqueeze_dim(2);
        match pass.dropout_key(self.site) {
            Some(key) => dropout(x, self.dropout, key),
            None => x,
        }
    }
}
