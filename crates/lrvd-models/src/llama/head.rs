//! Heads other than that over the vocabulary: a few of its tokens, and a layer for classes or a number.
//!
//! A head of 32 000 rows is most of the work behind a short text, and of its memory in training. A question with a
//! handful of possible answers needs a handful of rows: those of the base weight, and those of whatever the adapter
//! has for each output.
//!
//! # Noise
//!
//! With one weight draw a batch or a sequence the noise is that of the full head: entry `(k, id)` of a draw of B is
//! element `(draw·rank + k)·vocab + id` of the head's stream, and a counter-based generator computes a single element
//! as easily as a run. Only those of the answers are generated, on the host, so that the cost does not depend on the
//! vocabulary (a full draw at rank 8 of 32 000 tokens would be 256 000 numbers a sequence); on devices with their own
//! generator the two differ by its rounding, about `1e-6`. Noise on activations and signs per token have the same
//! distribution and are numbered by the outputs that exist: they are those of a head that has the answers' rows only.

use burn::module::Module;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::adapter::{AdaptedLinear, Extension, LowRankAdapter};
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Named;
use lrvd_burn::ops::{dropout, standard_normal};
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_normal_f64};

use super::config::LlamaConfig;
use super::model::LlamaModel;
use crate::batch::TokenBatch;
use crate::error::{Error, Result};
use crate::source::{Init, Layout, Loaded, Precision, WeightSource, check_depth};

/// A Llama with a linear head: `score · h`, with `h` the normed hidden state of each row's last real token. It gives a number, or
/// a logit for each class.
///
/// It is the `LlamaForSequenceClassification` of Hugging Face's transformers, whose names it has: no bias, and no head over the
/// vocabulary. transformers takes the last token that is not the padding token for the last real one; here the mask
/// decides, as in sentence-transformers. Where the decoder is held in half precision, the head is in single.
#[derive(Module, Debug)]
pub struct LlamaScore {
    pub(crate) model: LlamaModel,
    score: Named<AdaptedLinear>,
}

impl LlamaScore {
    /// Builds decoder and head of so many `labels` from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &LlamaConfig, labels: usize) -> Self {
        Self::on(LlamaModel::load(source, config), source, config, labels)
    }

    fn on(
        model: LlamaModel,
        source: &mut WeightSource<'_>,
        config: &LlamaConfig,
        labels: usize,
    ) -> Self {
        let shape = [config.hidden_size, labels];
        let init = Init::Normal(config.initializer_range);
        let dtype = model.compute_dtype();
        let weight = source.tensor("score.weight", shape, Layout::Transposed, init, dtype);
        let score = Named::new("score", Group::Head, AdaptedLinear::new(weight, None));
        Self { model, score }
    }

    /// Builds the model from a checkpoint: the decoder strictly, the head where the checkpoint has one of as many `labels`,
    /// and from `seed` where it has none. A head over the vocabulary may stay unused.
    pub fn from_pretrained(
        store: &WeightStore,
        config: &LlamaConfig,
        labels: usize,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let precision = precision.into();
        check_load(store, config, device, precision.dtype)?;
        let ignored = |name: &str| is_spare(name) || name.starts_with("lm_head.");
        let mut source =
            WeightSource::checkpoint(store, &is_score, &ignored, seed, device, precision);
        let model = Self::load(&mut source, config, labels);
        Ok((model, source.finish()?))
    }

    /// A head as [`from_pretrained`](Self::from_pretrained) reads it, on a decoder of the same checkpoint that is in
    /// memory, which is shared.
    pub fn with_decoder(
        decoder: LlamaModel,
        store: &WeightStore,
        labels: usize,
        seed: NoiseKey,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let config = decoder.config.clone();
        let ignored = |name: &str| !is_score(name);
        let mut source =
            WeightSource::checkpoint(store, &is_score, &ignored, seed, device, precision);
        let model = Self::on(decoder, &mut source, &config, labels);
        Ok((model, source.finish()?))
    }

    /// Scores `[batch, labels]` after each row's last real token. Segment ids are not read.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.score.forward_with(self.model.last_hidden(input, pass), pass).squeeze_dim(1)
    }
}

/// Checks what can be checked before anything is read.
pub(super) fn check_load(
    store: &WeightStore,
    config: &LlamaConfig,
    device: &Device,
    dtype: DType,
) -> Result<()> {
    if !device.supports_dtype(dtype) {
        let expected = "a float type that the device computes in";
        return Err(Error::argument("dtype", expected, format_args!("`{}`", dtype.name())));
    }
    check_depth(config.num_hidden_layers, store)
}

pub(super) fn is_score(name: &str) -> bool {
    name.starts_with("score")
}

/// Stored rotary frequencies of old checkpoints, which are computed here.
pub(super) fn is_spare(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

/// Logits of the tokens `answers` for the states `[batch, 1, hidden]`, `[batch, answers]`.
///
/// `weight` holds the answers' columns of the head's base weight, `[hidden, answers]`.
pub(super) fn answer_logits(
    head: &AdaptedLinear,
    weight: Tensor<2>,
    x: Tensor<3>,
    (answers, ids): (&[u32], &Tensor<1, Int>),
    pass: &Pass,
) -> Tensor<2> {
    let mut small = head.with_outputs(weight, ids);
    let logits = match drawn_update(head, &small, answers, &x, pass) {
        None => small.forward_with(x, pass),
        Some(update) => {
            small.detach();
            let [base, update] = pass.aligned([small.forward_with(x, pass), update]);
            base + update
        }
    };
    logits.squeeze_dim(1)
}

/// Update of the outputs of `small` by the drawn adapter of `head`, `[batch, 1, answers]`, if the pass draws weights once
/// a batch or a sequence and B is random. Where B is not, nothing random has an axis for the outputs, and the layer's own
/// pass will do.
fn drawn_update(
    head: &AdaptedLinear,
    small: &AdaptedLinear,
    answers: &[u32],
    x: &Tensor<3>,
    pass: &Pass,
) -> Option<Tensor<3>> {
    let draws = match pass.scheme {
        Scheme::PerSequence => x.dims()[0],
        Scheme::PerBatch => 1,
        _ => return None,
    };
    let adapter = small.low_rank()?;
    let (a, b) = (adapter.a.val(), adapter.b.val());
    let (std_a, std_b) = match &adapter.extension {
        Some(Extension::Gaussian(noise)) => noise.deviations(&a, &b),
        _ => return None,
    };
    let std_b = std_b?;
    let vocab = head.low_rank().map(LowRankAdapter::d_output)?;
    let [d_input, rank] = a.dims();
    // One group of rows a draw: the batch, a sequence, or the rows of each draw that the batch holds.
    let eps_a = pass.noise_of(head.noise_id(), |key| -> Tensor<3> {
        standard_normal(&a, [draws, d_input, rank], key.on_stream(Stream::WEIGHT_A))
    });
    let eps_b = pass.noise_of(head.noise_id(), |key| {
        columns(&b, draws, vocab, answers, key.on_stream(Stream::WEIGHT_B))
    });
    let a = a.unsqueeze_dim::<3>(0) + eps_a * std_a.unsqueeze_dim::<3>(0);
    let b = b.unsqueeze_dim::<3>(0) + eps_b * std_b.unsqueeze_dim::<3>(0);
    let x = match pass.adapter_dropout_key(small.noise_id()) {
        Some(key) if adapter.dropout > 0.0 => dropout(x.clone(), adapter.dropout, key.with_use(0)),
        _ => x.clone(),
    };
    if pass.draws == 1 {
        return Some(x.matmul(a).mul_scalar(adapter.scaling).matmul(b));
    }
    let groups = a.dims()[0];
    let x = pass.repeated(x, groups * pass.rows);
    let [rows, tokens, hidden] = x.dims();
    let x = x.reshape([groups, rows / groups * tokens, hidden]);
    let update = x.matmul(a).mul_scalar(adapter.scaling).matmul(b);
    Some(update.reshape([rows, tokens, answers.len()]))
}

/// Columns `answers` of the noise `[draws, rank, vocab]`, in the type and on the device of `like` `[rank, answers]`.
fn columns(
    like: &Tensor<2>,
    draws: usize,
    vocab: usize,
    answers: &[u32],
    key: NoiseKey,
) -> Tensor<3> {
    let rank = like.dims()[0];
    let rows = 0..(draws * rank) as u64;
    let elements = rows.flat_map(|row| answers.iter().map(move |&id| (row, id)));
    let elements = elements.map(|(row, id)| row * vocab as u64 + u64::from(id));
    let shape = [draws, rank, answers.len()];
    let data = if like.dtype() == DType::F64 {
        let number = |element| {
            let mut one = [0.0_f64];
            fill_normal_f64(key, element, &mut one);
            one[0]
        };
        TensorData::new(elements.map(number).collect::<Vec<_>>(), shape)
    } else {
        let number = |element| {
            let mut one = [0.0_f32];
            fill_normal(key, element, &mut one);
            one[0]
        };
        TensorData::new(elements.map(number).collect::<Vec<_>>(), shape)
    };
    Tensor::from_data(data, (&like.device().inner(), like.dtype()))
}
