//! Sequence classification and regression on the first token, with or without a pooler, or on the mean over all.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Named;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::{NoiseKey, module_id};

use super::activation::Activation;
use super::config::{DebertaConfig, Pooling};
use super::encoder::DebertaEncoder;
use super::family::Family;
use super::layer::dropped;
use crate::batch::TokenBatch;
use crate::error::Result;
use crate::norm::LayerNorm;
use crate::source::{Loaded, Precision, WeightSource, check_depth};

/// An encoder and its head, which reads the first token or the mean over all tokens of the last hidden state `h`.
///
/// ```text
/// first         logits = classifier(dropout(pooled))   pooled = act(pooler(dropout(h_0)))
/// first-token   logits = classifier(dropout(pooled))   pooled = h_0
/// mean          logits = classifier(dropout(pooled))   pooled = Σ_t mask_t · h_t / Σ_t mask_t
/// ```
///
/// `act` is GELU in a DeBERTa, ReLU in a DistilBERT and tanh in every other [family](super::Family); BERT and DistilBERT have
/// no dropout before the pooler. The pooler of a ModernBERT is `norm(GELU(dense(·)))`, and reads the first token or the mean.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | pooled | `[batch, hidden]` |
/// | logits | `[batch, labels]`, one label for regression |
#[derive(Module, Debug)]
pub struct DebertaClassifier {
    /// The encoder.
    pub encoder: DebertaEncoder,
    /// The pooler, if the pooling [has one](Pooling::has_pooler).
    pooler: Option<Named<AdaptedLinear>>,
    pooler_norm: Option<LayerNorm>,
    #[module(skip)]
    pooling: Pooling,
    #[module(skip)]
    activation: Activation,
    classifier: Named<AdaptedLinear>,
    pooler_dropout: f64,
    classifier_dropout: f64,
}

impl DebertaClassifier {
    /// Builds encoder and head from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &DebertaConfig) -> Self {
        Self::headed(DebertaEncoder::load(source, config), source, config)
    }

    fn headed(
        encoder: DebertaEncoder,
        source: &mut WeightSource<'_>,
        config: &DebertaConfig,
    ) -> Self {
        let d = config.hidden_size;
        let std = config.initializer_range;
        let [pooler, classifier] = config.family.head();
        let is_modern = config.family == Family::ModernBert;
        let has_pooler = config.pooling.has_pooler();
        let pooler_norm = (has_pooler && is_modern).then(|| {
            let norm = format!("{pooler}.norm");
            LayerNorm::unshifted(source, &norm, Group::Pooler, d, config.layer_norm_eps)
        });
        let dense = if is_modern { format!("{pooler}.dense") } else { pooler.to_owned() };
        let pooler =
            has_pooler.then(|| source.head(&dense, Group::Pooler, [d, d], !is_modern, std));
        Self {
            encoder,
            pooler,
            pooler_norm,
            pooling: config.pooling,
            activation: config.family.spec().head_activation,
            classifier: source.head(classifier, Group::Head, [d, config.num_labels()], true, std),
            pooler_dropout: config.pooler_dropout,
            classifier_dropout: config.cls_dropout,
        }
    }

    /// Builds the classifier from a checkpoint folder: the encoder strictly, the head where the
    /// checkpoint has one of the right shape for `config`, and from `seed` where it has none.
    ///
    /// Heads of pretraining and a pooler that is not read may stay unused. `store` has the names of a model with a head
    /// ([`DebertaConfig::open_weights`]).
    pub fn from_pretrained(
        store: &WeightStore,
        config: &DebertaConfig,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        check_depth(config.num_hidden_layers, store)?;
        Self::build(None, store, config, seed, device, precision.into())
    }

    /// This encoder, whose memory is shared, under another head: the one for `config`, as
    /// [`from_pretrained`](Self::from_pretrained) reads it from the checkpoint of the encoder.
    pub fn with_head(
        &self,
        store: &WeightStore,
        config: &DebertaConfig,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        Self::build(Some(self.encoder.clone()), store, config, seed, device, precision.into())
    }

    fn build(
        encoder: Option<DebertaEncoder>,
        store: &WeightStore,
        config: &DebertaConfig,
        seed: NoiseKey,
        device: &Device,
        precision: Precision,
    ) -> Result<(Self, Loaded)> {
        let family = config.family;
        let [pooler, classifier] = family.head().map(|path| format!("{path}."));
        let fresh = |name: &str| name.starts_with(&pooler) || name.starts_with(&classifier);
        let has_encoder = encoder.is_some();
        let ignored = |name: &str| {
            family.is_spare(name) || name.starts_with(&pooler) || (has_encoder && !fresh(name))
        };
        let mut source = WeightSource::checkpoint(store, &fresh, &ignored, seed, device, precision);
        let encoder = encoder.unwrap_or_else(|| DebertaEncoder::load(&mut source, config));
        let model = Self::headed(encoder, &mut source, config);
        Ok((model, source.finish()?))
    }

    /// Logits `[batch, labels]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.head(self.states(input, pass), input, pass).1
    }

    /// Input of the classifier, `[batch, hidden]`.
    pub fn features(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.head(self.states(input, pass), input, pass).0
    }

    /// Rows of the last hidden state that the head reads.
    fn states(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        match self.pooling {
            Pooling::First | Pooling::FirstToken => self.encoder.first_token(input, pass),
            // The last token is for language models.
            Pooling::Mean | Pooling::PooledMean | Pooling::Last => {
                self.encoder.forward(input, pass)
            }
        }
    }

    /// Pooled state and logits of the last hidden state `[batch, tokens, hidden]`, of which the first token is enough
    /// for a head that reads no other.
    pub fn head(
        &self,
        hidden: Tensor<3>,
        input: &TokenBatch,
        pass: &Pass,
    ) -> (Tensor<2>, Tensor<2>) {
        // Named unlike every layer, whose path names the dropout of its adapter.
        let key = |site| pass.dropout_key(module_id(site));
        let mut pooled = match self.pooling {
            Pooling::First | Pooling::FirstToken => hidden.narrow(1, 0, 1),
            Pooling::Mean | Pooling::PooledMean | Pooling::Last => {
                let weights = input.mask.clone() / input.mask.clone().sum_dim(1);
                let weights = pass.repeated(weights, hidden.dims()[0]);
                (hidden * weights.unsqueeze_dim(2)).sum_dim(1)
            }
        };
        if let Some(pooler) = &self.pooler {
            let input = dropped(pooled, self.pooler_dropout, key("pooler"));
            pooled = self.activation.apply(pooler.forward_with(input, pass));
        }
        if let Some(norm) = &self.pooler_norm {
            pooled = norm.forward(pooled);
        }
        let head_input =
            dropped(pooled.clone(), self.classifier_dropout, key("classifier.dropout"));
        let logits = self.classifier.forward_with(head_input, pass);
        (pooled.squeeze_dim(1), logits.squeeze_dim(1))
    }
}
