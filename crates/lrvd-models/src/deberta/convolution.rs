//! The convolution beside the first layer of some DeBERTa-v2 checkpoints.

use burn::module::{Module, Param};
use burn::tensor::module::conv1d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, activation};
use lrvd_burn::ops::{dropout, gelu};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::module_id;

use super::config::{Convolution as ConvolutionConfig, ConvolutionActivation, DebertaConfig};
use crate::norm::LayerNorm;
use crate::source::{Init, WeightSource};

/// `norm(after_layer_0 + act(dropout(conv(embeddings))))`, masked.
#[derive(Module, Debug)]
pub(super) struct Convolution {
    kernel: Param<Tensor<3>>,
    kernel_bias: Param<Tensor<1>>,
    norm: LayerNorm,
    #[module(skip)]
    activation: ConvolutionActivation,
    dropout: f64,
    site: u32,
}

impl Convolution {
    pub(super) fn load(
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
    pub(super) fn forward(
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
        let mut out = out.swap_dims(1, 2) * mask.clone();
        if let Some(key) = pass.dropout_key(self.site) {
            out = dropout(out, self.dropout, key);
        }
        let out = match self.activation {
            ConvolutionActivation::Gelu => gelu(out),
            ConvolutionActivation::Tanh => activation::tanh(out),
        };
        self.norm.forward(after_layer + out) * mask
    }
}
