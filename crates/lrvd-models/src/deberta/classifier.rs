//! Sequence classification and regression on the first token.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Names;
use lrvd_burn::ops::gelu;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::{NoiseKey, module_id};

use super::config::DebertaConfig;
use super::encoder::DebertaEncoder;
use super::layer::dropped;
use crate::batch::TokenBatch;
use crate::error::Result;
use crate::source::{Loaded, Precision, WeightSource, check_depth};

/// `logits = classifier(dropout(gelu(pooler(dropout(h_0)))))`.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | pooled | `[batch, pooler_hidden]` |
/// | logits | `[batch, labels]`, one label for regression |
#[derive(Module, Debug)]
pub struct DebertaClassifier {
    names: Names,
    /// The encoder.
    pub encoder: DebertaEncoder,
    pooler: AdaptedLinear,
    classifier: AdaptedLinear,
    pooler_dropout: f64,
    classifier_dropout: f64,
}

impl DebertaClassifier {
    /// Builds encoder and head from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &DebertaConfig) -> Self {
        let (d, std) = (config.hidden_size, config.initializer_range);
        Self {
            names: Names::below("")
                .renamed(&[("pooler", "pooler.dense")])
                .with_groups(&[("pooler", Group::Pooler), ("classifier", Group::Head)]),
            encoder: DebertaEncoder::load(source, config),
            pooler: source.head("pooler.dense", [d, d], true, std),
            classifier: source.head("classifier", [d, config.num_labels()], true, std),
            pooler_dropout: config.pooler_dropout,
            classifier_dropout: config.cls_dropout,
        }
    }

    /// Builds the classifier from a checkpoint folder: the encoder strictly, the head where the
    /// checkpoint has one of the right shape for `config`, and from `seed` where it has none.
    ///
    /// Heads of pretraining (`lm_predictions`, `mask_predictions`, `cls`) may stay unused.
    pub fn from_pretrained(
        store: &WeightStore,
        config: &DebertaConfig,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        check_depth(config.num_hidden_layers, store)?;
        let fresh = |name: &str| name.starts_with("pooler.") || name.starts_with("classifier.");
        let ignored = |name: &str| {
            let unread = ["lm_predictions.", "mask_predictions.", "cls."];
            unread.iter().any(|head| name.starts_with(head)) || name.ends_with(".position_ids")
        };
        let mut source = WeightSource::checkpoint(store, &fresh, &ignored, seed, device, precision);
        let model = Self::load(&mut source, config);
        Ok((model, source.finish()?))
    }

    /// Logits `[batch, labels]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.head(self.encoder.first_token(input, pass), pass).1
    }

    /// Pooled first token and logits of the last hidden state `[batch, tokens, hidden]`, of which the first
    /// token is enough.
    pub fn head(&self, hidden: Tensor<3>, pass: &Pass) -> (Tensor<2>, Tensor<2>) {
        let first = hidden.narrow(1, 0, 1);
        let key = |site| pass.dropout_key(module_id(site));
        let first = dropped(first, self.pooler_dropout, key("pooler"));
        let pooled = gelu(self.pooler.forward_with(first, pass));
        let head_input = dropped(pooled.clone(), self.classifier_dropout, key("classifier"));
        let logits = self.classifier.forward_with(head_input, pass);
        (pooled.squeeze_dim(1), logits.squeeze_dim(1))
    }
}
