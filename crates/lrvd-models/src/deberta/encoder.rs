//! Embeddings, relative positions and the stack of layers.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use lrvd_burn::model::{Names, recomputed};
use lrvd_burn::sampling::Pass;

use super::config::DebertaConfig;
use super::convolution::Convolution;
use super::embeddings::Embeddings;
use super::layer::EncoderLayer;
use super::relative_position::Positions;
use crate::batch::TokenBatch;
use crate::norm::LayerNorm;
use crate::source::{Init, WeightSource};

/// Names of the checkpoints of `microsoft/deberta-v3-*`.
const NAMES: Names = Names::below("deberta").renamed(&[
    ("word", "word_embeddings.weight"),
    ("position", "position_embeddings.weight"),
    ("token_type", "token_type_embeddings.weight"),
    ("projection", "embed_proj"),
    ("norm", "LayerNorm"),
    ("rel_embeddings", "encoder.rel_embeddings.weight"),
    ("rel_norm", "encoder.LayerNorm"),
    ("convolution", "encoder.conv"),
    ("kernel", "conv.weight"),
    ("kernel_bias", "conv.bias"),
    ("layers", "encoder.layer"),
    ("attention", "attention.self"),
    ("attention_output", "attention.output"),
    ("intermediate", "intermediate.dense"),
]);

/// What is computed of a layer.
type LayerForward =
    fn(&EncoderLayer, Tensor<3>, Option<&Tensor<2>>, Option<&Positions>, &Pass) -> Tensor<3>;

/// The DeBERTa-v2/v3 encoder, without a head.
#[derive(Module, Debug)]
pub struct DebertaEncoder {
    names: Names,
    embeddings: Embeddings,
    rel_embeddings: Option<Param<Tensor<2>>>,
    rel_norm: Option<LayerNorm>,
    convolution: Option<Convolution>,
    layers: Vec<EncoderLayer>,
    recomputes: bool,
    #[module(skip)]
    config: DebertaConfig,
}

impl DebertaEncoder {
    /// Builds the encoder, whose parameters are below `deberta`.
    pub fn load(source: &mut WeightSource<'_>, config: &DebertaConfig) -> Self {
        let d = config.hidden_size;
        let stack = "deberta.encoder";
        let embeddings = Embeddings::load(source, "deberta.embeddings", config);
        let layout = config.relative_positions();
        let rel_embeddings = layout.map(|layout| {
            let name = format!("{stack}.rel_embeddings.weight");
            let init = Init::Normal(config.initializer_range);
            source.parameter(&name, [2 * layout.span(), d], init)
        });
        let rel_norm = (config.relative_attention && config.norm_rel_ebd).then(|| {
            LayerNorm::load(source, &format!("{stack}.LayerNorm"), d, config.layer_norm_eps)
        });
        let convolution = config
            .convolution
            .map(|conv| Convolution::load(source, &format!("{stack}.conv"), conv, config));
        let layers = (0..config.num_hidden_layers)
            .map(|i| EncoderLayer::load(source, &format!("{stack}.layer.{i}"), config))
            .collect();
        Self {
            names: NAMES,
            embeddings,
            rel_embeddings,
            rel_norm,
            convolution,
            layers,
            recomputes: false,
            config: config.clone(),
        }
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &DebertaConfig {
        &self.config
    }

    /// Gradient checkpointing: whether the backward pass computes a layer's activations again instead of holding those
    /// of all layers.
    pub fn recompute(&mut self, recomputes: bool) {
        self.recomputes = recomputes;
    }

    /// Whether the relative positions, which all layers share, have a gradient.
    fn trains_positions(&self) -> bool {
        let norm = self.rel_norm.iter().flat_map(|norm| [&norm.weight, &norm.bias]);
        let mut norm = norm.map(|p| p.base().is_require_grad());
        self.rel_embeddings.iter().any(|p| p.base().is_require_grad()) || norm.any(|trains| trains)
    }

    /// The last hidden state, `[batch, tokens, hidden]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        self.run(input, pass, &mut |_| (), EncoderLayer::forward)
    }

    /// The first token of the last hidden state, `[batch, 1, hidden]`, without those rows of the last layer that
    /// only other tokens need: to the bit what [`Self::forward`] gives in `f32` on a CPU, and so are the gradients.
    pub fn first_token(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        // A convolution behind the last layer reads all of them.
        let last = if self.convolution.is_some() && self.layers.len() == 1 {
            EncoderLayer::forward
        } else {
            EncoderLayer::first_row
        };
        self.run(input, pass, &mut |_| (), last).narrow(1, 0, 1)
    }

    /// Every hidden state: the embedding output, then the output of each layer.
    pub fn hidden_states(&self, input: &TokenBatch, pass: &Pass) -> Vec<Tensor<3>> {
        let mut states = Vec::with_capacity(self.layers.len() + 1);
        self.run(input, pass, &mut |state| states.push(state.clone()), EncoderLayer::forward);
        states
    }

    /// All layers, the last one by `last`.
    fn run(
        &self,
        input: &TokenBatch,
        pass: &Pass,
        seen: &mut dyn FnMut(&Tensor<3>),
        last: LayerForward,
    ) -> Tensor<3> {
        let tokens = input.ids.dims()[1];
        let embedded =
            self.embeddings.forward(input.ids.clone(), input.type_ids.clone(), &input.mask, pass);
        seen(&embedded);
        let layout = self.config.relative_positions();
        let positions = self.rel_embeddings.as_ref().zip(layout).map(|(table, layout)| {
            let table = table.val();
            let table = match &self.rel_norm {
                Some(norm) => norm.forward(table),
                None => table,
            };
            Positions::new(table, tokens, layout)
        });
        let mut x = embedded.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            let forward = if i + 1 == self.layers.len() { last } else { EncoderLayer::forward };
            x = if self.recomputes && !self.trains_positions() {
                let (mask, positions, pass) = (input.mask.clone(), positions.clone(), *pass);
                recomputed(layer, x, move |layer, x| {
                    forward(layer, x, Some(&mask), positions.as_ref(), &pass)
                })
            } else {
                forward(layer, x, Some(&input.mask), positions.as_ref(), pass)
            };
            if i == 0
                && let Some(convolution) = &self.convolution
            {
                x = convolution.forward(embedded.clone(), x, &input.mask, pass);
            }
            seen(&x);
        }
        x
    }
}
