//! Embeddings and the stack of layers.

use burn::module::{Module, Param};
use burn::tensor::module::embedding;
use burn::tensor::{DType, Int, Tensor, TensorData};
use lrvd_burn::adapter::adapter_dtype;
use lrvd_burn::model::{Named, recomputed};
use lrvd_burn::sampling::Pass;

use super::cache::KvCache;
use super::config::LlamaConfig;
use super::layer::{AttentionMask, DecoderLayer};
use crate::batch::TokenBatch;
use crate::norm::RmsNorm;
use crate::rope::{RotaryEmbedding, Table};
use crate::source::{Init, WeightSource};

/// The decoder, without a head.
///
/// Padding may stand on either side: a token's position counts the real tokens before it, and padding is never seen.
/// Values at padded columns are finite and have no meaning.
#[derive(Module, Debug)]
pub struct LlamaModel {
    pub(super) embed_tokens: Named<Param<Tensor<2>>>,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    pub(crate) recomputes: bool,
    #[module(skip)]
    pub(super) config: LlamaConfig,
    #[module(skip)]
    compute: DType,
}

impl LlamaModel {
    /// Builds the decoder, whose parameters are below `model`; matrices are held in the source's type, the
    /// rest in the compute type.
    pub fn load(source: &mut WeightSource<'_>, config: &LlamaConfig) -> Self {
        let d = config.hidden_size;
        let embed_tokens = source.parameter(
            "model.embed_tokens.weight",
            [config.vocab_size, d],
            Init::Normal(config.initializer_range),
        );
        let layers = (0..config.num_hidden_layers)
            .map(|i| DecoderLayer::load(source, &format!("model.layers.{i}"), config))
            .collect();
        Self {
            embed_tokens,
            layers,
            norm: RmsNorm::load(source, "model.norm", d, config.rms_norm_eps),
            recomputes: false,
            config: config.clone(),
            compute: adapter_dtype(source.dtype()),
        }
    }

    /// The float type of activations, norms and adapters: double precision beside double-precision weights, else
    /// single.
    pub fn compute_dtype(&self) -> DType {
        self.compute
    }

    /// The word embedding, `[vocab, hidden]`.
    pub fn embeddings(&self) -> Tensor<2> {
        self.embed_tokens.val()
    }

    /// The last hidden state after the final norm, `[batch, tokens, hidden]`. Segment ids are not read.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        self.normed(self.run(input.ids.clone(), input.mask.clone(), None, pass, &mut |_| ()))
    }

    /// As [`Self::forward`], for a piece of text that follows what `cache` holds, which then holds it, too.
    ///
    /// `mask` is that of the piece. The pass must be the same for all pieces; a scheme with noise on activations draws
    /// anew for every piece.
    ///
    /// # Panics
    ///
    /// If the batch is not that of the cache.
    pub fn read(
        &self,
        ids: Tensor<2, Int>,
        mask: Tensor<2>,
        cache: &mut KvCache,
        pass: &Pass,
    ) -> Tensor<3> {
        self.normed(self.run(ids, mask, Some(cache), pass, &mut |_| ()))
    }

    /// Every hidden state: the embeddings, the output of each layer but the last, and the normed output of the last.
    pub fn hidden_states(&self, input: &TokenBatch, pass: &Pass) -> Vec<Tensor<3>> {
        let mut states = Vec::with_capacity(self.layers.len() + 1);
        let keep = &mut |state: &Tensor<3>| states.push(state.clone());
        self.run(input.ids.clone(), input.mask.clone(), None, pass, keep);
        let last = states.pop().map(|last| self.normed(last));
        states.into_iter().chain(last).collect()
    }

    /// The hidden state of each row's last real token after the final norm, `[batch, 1, hidden]`; with padding on the
    /// left that is the last column. A row of nothing but padding gives its first column.
    pub fn last_hidden(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        let x = self.run(input.ids.clone(), input.mask.clone(), None, pass, &mut |_| ());
        let [batch, tokens, hidden] = x.dims();
        let device = input.mask.device();
        let columns = Tensor::<1, Int>::arange(0..tokens as i64, &device).float();
        let columns = columns.cast(input.mask.dtype()).unsqueeze_dim(0);
        let mask = pass.repeated(input.mask.clone(), batch);
        let last: Tensor<1, Int> = (mask * columns).argmax(1).squeeze_dim(1);
        let first = Tensor::<1, Int>::arange(0..batch as i64, &device).mul_scalar(tokens as i64);
        let x = x.reshape([batch * tokens, hidden]).select(0, last + first);
        self.norm.forward(x).unsqueeze_dim(1)
    }

    /// All layers, before the final norm; `seen` is shown the embeddings and every layer's output.
    pub(super) fn run(
        &self,
        ids: Tensor<2, Int>,
        mask: Tensor<2>,
        mut cache: Option<&mut KvCache>,
        pass: &Pass,
        seen: &mut dyn FnMut(&Tensor<3>),
    ) -> Tensor<3> {
        let tokens = ids.dims()[1];
        let mut mask = mask.cast(self.compute);
        if let Some(cache) = &mut cache {
            mask = cache.extend(mask);
        }
        let keys = mask.dims()[1];
        let table = match &mut cache {
            Some(cache) => cache.table(&self.config, keys, &mask),
            None => Table::new(&self.config.frequencies(), keys, &mask.device(), self.compute),
        };
        let positions = mask.clone().cumsum(1).sub_scalar(1.0).clamp_min(0.0);
        let rotary = table.at(positions.clone().narrow(1, keys - tokens, tokens).int());
        let whole = AttentionMask::new(mask.clone(), tokens);
        let near =
            self.window(keys).map(|window| AttentionMask::within(window, mask, positions, tokens));
        self.layered(ids, &rotary, (&whole, near.as_ref()), cache, pass, seen)
    }

    /// As [`Self::run`], for rows that hold a prefix and then a tree of tokens: each sees the prefix, its ancestors and itself,
    /// at the position behind its parent. `parents` are those of the tree's tokens, each before its children; those of the first
    /// tokens behind the prefix are `None`. There is no padding. A `cache` holds the prefix, and the rows then hold the tree alone.
    pub(super) fn run_branches(
        &self,
        ids: Tensor<2, Int>,
        parents: &[Option<usize>],
        mut cache: Option<&mut KvCache>,
        pass: &Pass,
    ) -> Tensor<3> {
        let device = ids.device();
        let [rows, tokens] = ids.dims();
        let before = cache.as_ref().map_or(tokens - parents.len(), |cache| cache.columns());
        let keys = before + parents.len();
        let mask = Tensor::ones([rows, before], (&device, self.compute));
        if parents.is_empty() {
            return self.run(ids, mask, cache, pass, &mut |_| ());
        }
        let mut positions: Vec<i64> = (0..before as i64).collect();
        for parent in parents {
            positions.push(parent.map_or(before as i64, |parent| positions[before + parent] + 1));
        }
        let longest = positions.iter().max().map_or(0, |&last| last as usize + 1);
        let positions: Tensor<2, Int> =
            Tensor::from_data(TensorData::new(positions, [1, keys]), &device);
        let positions = positions.repeat_dim(0, rows);
        let read = positions.clone().narrow(1, keys - tokens, tokens);
        let rotary =
            Table::new(&self.config.frequencies(), longest, &device, self.compute).at(read);
        let positions = positions.float().cast(self.compute);
        let is_cached = cache.is_some();
        let tree = |window| {
            let all = AttentionMask::tree(mask.clone(), parents, positions.clone(), window);
            if is_cached { all.after_prefix() } else { all }
        };
        let near = self.window(longest).map(|window| tree(Some(window)));
        if let Some(cache) = &mut cache {
            cache.extend(Tensor::ones([rows, tokens], (&device, self.compute)));
        }
        self.layered(ids, &rotary, (&tree(None), near.as_ref()), cache, pass, &mut |_| ())
    }

    /// The window of layers that have one, if it is shorter than `keys` positions.
    fn window(&self, keys: usize) -> Option<usize> {
        self.config.sliding_window.as_ref().map(|window| window.tokens).filter(|&most| most < keys)
    }

    /// All layers; those with a window see what `near` says, if that is given.
    fn layered(
        &self,
        ids: Tensor<2, Int>,
        rotary: &RotaryEmbedding,
        (whole, near): (&AttentionMask, Option<&AttentionMask>),
        mut cache: Option<&mut KvCache>,
        pass: &Pass,
        seen: &mut dyn FnMut(&Tensor<3>),
    ) -> Tensor<3> {
        let windowed = |i| self.config.sliding_window.as_ref().is_some_and(|own| own.is_of(i));
        let mut x = embedding(self.embed_tokens.val(), ids).cast(self.compute);
        seen(&x);
        for (i, layer) in self.layers.iter().enumerate() {
            let mask = near.filter(|_| windowed(i)).unwrap_or(whole);
            let cache = cache.as_deref_mut().map(|cache| (cache, i));
            x = if self.recomputes && cache.is_none() {
                let (rotary, mask, pass) = (rotary.clone(), mask.clone(), *pass);
                recomputed(layer, x, move |layer, x| layer.forward(x, &rotary, &mask, None, &pass))
            } else {
                layer.forward(x, rotary, mask, cache, pass)
            };
            seen(&x);
        }
        x
    }

    /// The final norm.
    pub(super) fn normed(&self, x: Tensor<3>) -> Tensor<3> {
        self.norm.forward(x)
    }
}
