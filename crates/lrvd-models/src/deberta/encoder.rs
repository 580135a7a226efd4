//! Embeddings, relative positions, the stack of layers, and the convolution beside the first of some v2 checkpoints.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::{conv1d, embedding};
use burn::tensor::ops::ConvOptions;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::{Named, recomputed};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::activation::Activation;
use super::config::{ConvolutionConfig, DebertaConfig};
use super::family::Family;
use super::layer::{EncoderLayer, Surroundings, dropped};
use super::relative_position::{BIAS_ROWS, Positions, bias_row};
use crate::batch::TokenBatch;
use crate::norm::LayerNorm;
use crate::rope::{RotaryEmbedding, Table, frequencies};
use crate::source::{Init, WeightSource};

/// An encoder of any [family](super::Family), without a head.
#[derive(Module, Debug)]
pub struct DebertaEncoder {
    embeddings: Embeddings,
    rel_embeddings: Option<Named<Param<Tensor<2>>>>,
    rel_norm: Option<LayerNorm>,
    convolution: Option<Convolution>,
    layers: Vec<EncoderLayer>,
    final_norm: Option<LayerNorm>,
    pub(crate) recomputes: bool,
    #[module(skip)]
    config: DebertaConfig,
}

impl DebertaEncoder {
    /// Builds the encoder, whose parameters are below the prefix of its family.
    pub fn load(source: &mut WeightSource<'_>, config: &DebertaConfig) -> Self {
        let d = config.hidden_size;
        let prefix = config.family.prefix();
        let stack = config.family.stack();
        let embeddings = Embeddings::load(source, &format!("{prefix}.embeddings"), config);
        let terms = config.relative_positions();
        let terms = terms.map(|layout| ("rel_embeddings", [2 * layout.span(), d]));
        let bias = ("relative_attention_bias", [BIAS_ROWS, config.num_attention_heads]);
        let bias = config.family.spec().has_position_bias.then_some(bias);
        let rel_embeddings = terms.or(bias).map(|(name, shape)| {
            let init = Init::Normal(config.initializer_range);
            source.parameter(&format!("{stack}.{name}.weight"), shape, init)
        });
        let rel_norm = (config.relative_attention && config.norm_rel_ebd).then(|| {
            LayerNorm::load(source, &format!("{stack}.LayerNorm"), d, config.layer_norm_eps)
        });
        let convolution = config
            .convolution
            .map(|conv| Convolution::load(source, &format!("{stack}.conv"), conv, config));
        let is_modern = config.family == Family::ModernBert;
        let all = if is_modern { stack } else { format!("{stack}.layer") };
        let layers = (0..config.num_hidden_layers)
            .map(|i| EncoderLayer::load(source, &all, i, config))
            .collect();
        let final_norm = is_modern.then(|| {
            let path = format!("{prefix}.final_norm");
            LayerNorm::unshifted(source, &path, Group::Backbone, d, config.layer_norm_eps)
        });
        Self {
            embeddings,
            rel_embeddings,
            rel_norm,
            convolution,
            layers,
            final_norm,
            recomputes: false,
            config: config.clone(),
        }
    }

    /// `true` if the relative positions, which all layers share, have a gradient.
    fn trains_positions(&self) -> bool {
        let mut norm =
            self.rel_norm.iter().flat_map(|norm| std::iter::once(&norm.weight).chain(&norm.bias));
        self.rel_embeddings.iter().any(|p| p.base().is_require_grad())
            || norm.any(|p| p.base().is_require_grad())
    }

    /// The last hidden state, `[batch, tokens, hidden]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        self.run(input, pass, &mut |_| (), false)
    }

    /// The first token of the last hidden state, `[batch, 1, hidden]`, without those rows of the last layer that
    /// only other tokens need: to the bit what [`Self::forward`] gives in `f32` on a CPU, and so are the gradients. Noise drawn for
    /// each token has another stream there.
    pub fn first_token(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        // A convolution behind the last layer reads all of them.
        let first_only = self.convolution.is_none() || self.layers.len() > 1;
        self.run(input, pass, &mut |_| (), first_only).narrow(1, 0, 1)
    }

    /// Every hidden state: the embedding output, then the output of each layer, that of the last one behind the final norm of
    /// a ModernBERT.
    pub fn hidden_states(&self, input: &TokenBatch, pass: &Pass) -> Vec<Tensor<3>> {
        let mut states = Vec::with_capacity(self.layers.len() + 1);
        self.run(input, pass, &mut |state| states.push(state.clone()), false);
        states
    }

    /// Rotations of the tokens of a batch, by the number of tokens before each.
    fn rotary(&self, theta: f64, mask: &Tensor<2>) -> RotaryEmbedding {
        let width = self.config.hidden_size / self.config.num_attention_heads;
        let frequencies = frequencies(theta, width);
        let table = Table::new(&frequencies, mask.dims()[1], &mask.device(), mask.dtype());
        table.at(mask.clone().cumsum(1).sub_scalar(1.0).clamp_min(0.0).int())
    }

    /// All layers; with `first_only` of the last one only what the first token needs.
    fn run(
        &self,
        input: &TokenBatch,
        pass: &Pass,
        seen: &mut dyn FnMut(&Tensor<3>),
        first_only: bool,
    ) -> Tensor<3> {
        let tokens = input.ids.dims()[1];
        let embedded = self.embeddings.forward(input, pass);
        seen(&embedded);
        let layout = self.config.relative_positions();
        let positions = self.rel_embeddings.as_ref().map(|table| {
            let mut table = table.val();
            if let Some(norm) = &self.rel_norm {
                table = norm.forward(table);
            }
            let row = |distance| layout.map_or_else(|| bias_row(distance), |l| l.row(distance));
            Positions::new(table, tokens, row)
        });
        let mut around = Surroundings { mask: input.mask.clone(), positions, rotary: None };
        let mut rotations: Vec<(f64, RotaryEmbedding)> = Vec::new();
        let mut x = embedded.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            let is_last = i + 1 == self.layers.len();
            let first_only = first_only && is_last;
            if let Some(theta) = self.config.layer_attention.get(i).map(|own| own.rope_theta) {
                let known = rotations.iter().find(|(own, _)| *own == theta);
                let known = known.map(|(_, rotary)| rotary.clone());
                let rotary = known.unwrap_or_else(|| {
                    let rotary = self.rotary(theta, &input.mask);
                    rotations.push((theta, rotary.clone()));
                    rotary
                });
                around.rotary = Some(rotary);
            }
            x = if self.recomputes && !self.trains_positions() {
                let (around, pass) = (around.clone(), *pass);
                recomputed(layer, x, move |layer, x| layer.forward(x, &around, first_only, &pass))
            } else {
                layer.forward(x, &around, first_only, pass)
            };
            if let Some(norm) = self.final_norm.as_ref().filter(|_| is_last) {
                x = norm.forward(x);
            }
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

/// Sum of the embedding tables in use, normalised and masked.
#[derive(Module, Debug)]
struct Embeddings {
    word: Named<Param<Tensor<2>>>,
    position: Option<Named<Param<Tensor<2>>>>,
    /// The padding token, if positions are counted from it.
    counted_from: Option<usize>,
    token_type: Option<Named<Param<Tensor<2>>>>,
    projection: Option<Named<AdaptedLinear>>,
    norm: LayerNorm,
    dropout: f64,
    site: u32,
}

impl Embeddings {
    fn load(source: &mut WeightSource<'_>, path: &str, config: &DebertaConfig) -> Self {
        let width = config.embedding_size;
        let init = Init::Normal(config.initializer_range);
        let mut table = |name: &str, rows: usize| {
            source.parameter(&format!("{path}.{name}.weight"), [rows, width], init)
        };
        let is_modern = config.family == Family::ModernBert;
        let words = if is_modern { "tok_embeddings" } else { "word_embeddings" };
        let word = table(words, config.vocab_size);
        let position = config
            .position_biased_input
            .then(|| table("position_embeddings", config.max_position_embeddings));
        let token_type = (config.type_vocab_size > 0)
            .then(|| table("token_type_embeddings", config.type_vocab_size));
        let d = config.hidden_size;
        let projection = (width != d).then(|| {
            let path = format!("{path}.embed_proj");
            source.linear(&path, [width, d], false, config.initializer_range)
        });
        let epsilon = config.layer_norm_eps;
        let norm = if is_modern {
            let path = format!("{path}.norm");
            LayerNorm::unshifted(source, &path, Group::Backbone, d, epsilon)
        } else {
            LayerNorm::load(source, &format!("{path}.LayerNorm"), d, epsilon)
        };
        Self {
            word,
            position,
            counted_from: config.counted_from(),
            token_type,
            projection,
            norm,
            dropout: config.hidden_dropout_prob,
            site: module_id(path),
        }
    }

    /// `[batch, tokens, hidden]`.
    fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        let tokens = input.ids.dims()[1];
        let mut x = embedding(self.word.val(), input.ids.clone());
        if let Some(position) = &self.position {
            x = x + match self.counted_from {
                None => position.val().narrow(0, 0, tokens).unsqueeze_dim(0),
                Some(pad) => {
                    let real = input.ids.clone().not_equal_elem(pad as i64).int();
                    embedding(position.val(), real.clone().cumsum(1) * real + pad as i64)
                }
            };
        }
        if let Some(token_type) = &self.token_type {
            x = x + match token_type.dims()[0] {
                // RoBERTa's segments are all the first.
                1 => token_type.val().unsqueeze_dim(0),
                _ => embedding(token_type.val(), input.type_ids.clone()),
            };
        }
        if let Some(projection) = &self.projection {
            x = projection.forward_with(x, pass);
        }
        let mask = pass.repeated(input.mask.clone(), x.dims()[0]);
        let x = self.norm.forward(x) * mask.unsqueeze_dim(2);
        dropped(x, self.dropout, pass.dropout_key(self.site))
    }
}

/// `norm(after_layer_0 + act(dropout(conv(embeddings))))`, masked.
#[derive(Module, Debug)]
struct Convolution {
    kernel: Named<Param<Tensor<3>>>,
    kernel_bias: Named<Param<Tensor<1>>>,
    norm: LayerNorm,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
    site: u32,
}

impl Convolution {
    fn load(
        source: &mut WeightSource<'_>,
        path: &str,
        convolution: ConvolutionConfig,
        config: &DebertaConfig,
    ) -> Self {
        let d = config.hidden_size;
        let init = Init::Normal(config.initializer_range);
        let shape = [d, d, convolution.kernel_size];
        Self {
            kernel: source.parameter(&format!("{path}.conv.weight"), shape, init),
            kernel_bias: source.parameter(&format!("{path}.conv.bias"), [d], Init::Constant(0.0)),
            norm: LayerNorm::load(source, &format!("{path}.LayerNorm"), d, config.layer_norm_eps),
            activation: convolution.activation,
            dropout: config.hidden_dropout_prob,
            site: module_id(path),
        }
    }

    /// `embeddings` and `after_layer` are `[batch, tokens, hidden]`, `mask` is `[batch, tokens]`.
    fn forward(
        &self,
        embeddings: Tensor<3>,
        after_layer: Tensor<3>,
        mask: &Tensor<2>,
        pass: &Pass,
    ) -> Tensor<3> {
        let kernel = self.kernel.val().dims()[2];
        let options = ConvOptions::new([1], [(kernel - 1) / 2], [1], 1);
        let [embeddings, after_layer] = pass.aligned([embeddings, after_layer]);
        let mask = pass.repeated(mask.clone(), after_layer.dims()[0]);
        let channels_first = embeddings.swap_dims(1, 2);
        let out = conv1d(channels_first, self.kernel.val(), Some(self.kernel_bias.val()), options);
        let mask: Tensor<3> = mask.unsqueeze_dim(2);
        let out = out.swap_dims(1, 2) * mask.clone();
        let out = dropped(out, self.dropout, pass.dropout_key(self.site));
        self.norm.forward(after_layer + self.activation.apply(out)) * mask
    }
}
