//! The language model: decoder and head over the vocabulary.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::Named;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;

use super::cache::KvCache;
use super::config::LlamaConfig;
use super::head::{answer_logits, check_load, is_spare};
use super::model::LlamaModel;
use crate::batch::{Prefixes, TokenBatch, indices};
use crate::error::{Error, Result};
use crate::source::{Loaded, Precision, WeightSource, frozen};

/// Name of the head's weight in a checkpoint.
const HEAD_WEIGHT: &str = "lm_head.weight";
/// Columns whose logits over the vocabulary are held at once where options are scored.
const COLUMNS: usize = 256;
/// Name of the word embedding.
const EMBEDDINGS: &str = "model.embed_tokens.weight";

/// A Llama with its head over the vocabulary, or over a few [answer tokens](Self::answering).
///
/// Parameters are called what Hugging Face checkpoints call them, and every linear layer can carry an adapter, the
/// head included. A tied head shares the memory of the word embedding and has no separate parameter; an adapter on
/// it acts on the head's use only, as in PEFT.
///
/// # Shapes
///
/// | Name | Shape |
/// |---|---|
/// | ids, mask | `[batch, tokens]`, padding on either side |
/// | logits | `[batch, tokens, vocab]`; at column `t` those of the token after it |
///
/// # Numerics
///
/// Large weights may be stored as bf16 or f16; activations, norms, adapters and posteriors are then in single
/// precision, and only the base products run in the stored type. Per billion parameters the base takes 2.0 GB so, and
/// 4.1 GB in single precision. Loading goes tensor by tensor and adds a copy of one tensor at a time: 542 million
/// parameters from two bf16 shards took 1.11 GB as bf16 (1.24 GB at the peak) and 2.21 GB as f32 (2.34 GB), by the
/// example `load_llama`.
#[derive(Module, Debug)]
pub struct LlamaForCausalLm {
    /// The decoder.
    pub model: LlamaModel,
    lm_head: Named<AdaptedLinear>,
    tied: bool,
    #[module(skip)]
    pub(crate) answer_ids: Vec<u32>,
}

/// `true` if the file has the head and the embedding that it is tied to; an error if they differ.
fn has_spare_head(store: &WeightStore, config: &LlamaConfig) -> Result<bool> {
    let both = store.contains(HEAD_WEIGHT) && store.contains(EMBEDDINGS);
    if !config.tie_word_embeddings || !both {
        return Ok(false);
    }
    if store.read(HEAD_WEIGHT)? == store.read(EMBEDDINGS)? {
        return Ok(true);
    }
    let path = store.path();
    let file = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
    let expected = format!("false, or `{HEAD_WEIGHT}` the same as `{EMBEDDINGS}`");
    Err(Error::format(
        &file,
        "tie_word_embeddings",
        expected,
        "true and another head in the weights",
    ))
}

impl LlamaForCausalLm {
    /// Builds decoder and head from `source`.
    pub fn load(source: &mut WeightSource<'_>, config: &LlamaConfig) -> Self {
        Self::on(LlamaModel::load(source, config), source, config)
    }

    fn on(model: LlamaModel, source: &mut WeightSource<'_>, config: &LlamaConfig) -> Self {
        let tied = config.tie_word_embeddings;
        let lm_head = if tied {
            // The same id: a walk takes it for the embedding.
            let weight = Param::initialized(model.embed_tokens.id, model.embeddings().transpose());
            Named::new("lm_head", Group::Backbone, AdaptedLinear { weight, bias: None })
        } else {
            let shape = [config.hidden_size, config.vocab_size];
            source.head("lm_head", Group::Backbone, shape, false, config.initializer_range)
        };
        Self { model, lm_head, tied, answer_ids: Vec::new() }
    }

    /// Builds the model from a checkpoint, strictly; matrices are held in `precision`.
    ///
    /// Stored rotary frequencies of old checkpoints may stay unused, and so may a head that is stored beside a tied
    /// embedding, if it is the same.
    pub fn from_pretrained(
        store: &WeightStore,
        config: &LlamaConfig,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let precision = precision.into();
        check_load(store, config, device, precision.dtype)?;
        let spare = has_spare_head(store, config)?;
        let ignored = |name: &str| is_spare(name) || (spare && name == HEAD_WEIGHT);
        let seed = NoiseKey::new(0);
        let mut source =
            WeightSource::checkpoint(store, &|_| false, &ignored, seed, device, precision);
        let model = Self::load(&mut source, config);
        Ok((model, source.finish()?))
    }

    /// The head of a checkpoint on its decoder, which is in memory and shared.
    pub fn with_decoder(
        decoder: LlamaModel,
        store: &WeightStore,
        device: &Device,
        precision: impl Into<Precision>,
    ) -> Result<(Self, Loaded)> {
        let config = decoder.config.clone();
        has_spare_head(store, &config)?;
        // A head beside a tied embedding is not read.
        let ignored = |name: &str| name != HEAD_WEIGHT || config.tie_word_embeddings;
        let seed = NoiseKey::new(0);
        let mut source =
            WeightSource::checkpoint(store, &|_| false, &ignored, seed, device, precision);
        let model = Self::on(decoder, &mut source, &config);
        Ok((model, source.finish()?))
    }

    /// This model with a separate head, if one of the `parameters` that are to be replaced is the head or the
    /// embedding that it is tied to: PEFT replaces either without the other.
    #[must_use]
    pub fn untied_for<'a>(mut self, mut parameters: impl Iterator<Item = &'a str>) -> Self {
        if self.tied && parameters.any(|name| [EMBEDDINGS, HEAD_WEIGHT].contains(&name)) {
            self.lm_head.weight = frozen(self.model.embeddings().transpose());
            self.tied = false;
        }
        self
    }

    /// This model as a classifier among the answers `answer_ids`, in the order of the classes: as a
    /// [`Model`](lrvd_burn::train::Model) its logits are [those of the answers](Self::answer_logits).
    ///
    /// # Errors
    ///
    /// If there are fewer than two answers, one twice, or one that is not a token of the model.
    pub fn answering(self, answer_ids: Vec<u32>) -> Result<Self> {
        let vocab_size = self.config().vocab_size;
        let expected = if answer_ids.len() < 2 {
            "at least 2 tokens".to_owned()
        } else if answer_ids.iter().any(|&id| id as usize >= vocab_size) {
            format!("tokens below {vocab_size}, the size of the model's vocabulary")
        } else if answer_ids.iter().collect::<BTreeSet<_>>().len() < answer_ids.len() {
            "different tokens".to_owned()
        } else {
            return Ok(Self { answer_ids, ..self });
        };
        Err(Error::argument("answer_ids", expected, format_args!("{answer_ids:?}")))
    }

    /// The answer tokens, in the order of the classes; empty for a model of every next token.
    pub fn answer_ids(&self) -> &[u32] {
        &self.answer_ids
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &LlamaConfig {
        &self.model.config
    }

    /// Logits of every column, `[batch, tokens, vocab]`.
    pub fn forward(&self, input: &TokenBatch, pass: &Pass) -> Tensor<3> {
        self.head(self.model.forward(input, pass), pass)
    }

    /// Logits of normed hidden states, `[batch, tokens, hidden]` to `[batch, tokens, vocab]`. A tied head takes its weight
    /// from the embedding at every use, so that it follows it.
    pub fn head(&self, hidden: Tensor<3>, pass: &Pass) -> Tensor<3> {
        let mut head = self.lm_head.clone();
        if self.tied {
            head.set_weight(self.model.embeddings().transpose());
        }
        head.forward_with(hidden, pass)
    }

    /// Logits after each row's last real token, `[batch, vocab]`; with padding on the left that is the last column.
    pub fn last_logits(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        self.head(self.model.last_hidden(input, pass), pass).squeeze_dim(1)
    }

    /// As [`Self::last_logits`], for the tokens `answers` only, which must be below the size of the vocabulary:
    /// `[batch, answers]`. Nothing else of the head is computed, of an adapter on it neither.
    ///
    /// Under a scheme with one weight draw a batch or a sequence the noise is that of the full head.
    /// A [prefix](TokenBatch::prefix) of the input is read once a pass, if weights are drawn once a batch or not at all.
    pub fn answer_logits(&self, input: &TokenBatch, answers: &[u32], pass: &Pass) -> Tensor<2> {
        let hidden = match shared(input.prefix.as_ref(), pass) {
            Some(prefix) => self.last_hidden_with_prefix(input, prefix, pass),
            None => self.model.last_hidden(input, pass),
        };
        let ids = indices(answers.iter().map(|&id| id as usize), &hidden);
        let weight = if self.tied {
            self.model.embeddings().select(0, ids.clone()).transpose()
        } else {
            self.lm_head.weight.base().select(1, ids.clone())
        };
        answer_logits(&self.lm_head, weight, hidden, (answers, &ids), pass)
    }

    /// The last state of one row that starts with `prefix`, `[1, 1, hidden]`.
    fn last_hidden_with_prefix(
        &self,
        input: &TokenBatch,
        prefix: &Prefixed,
        pass: &Pass,
    ) -> Tensor<3> {
        let mut cache = self.read(&input.ids, prefix, pass);
        let first = prefix.0.len();
        let TokenBatch { ids, mask, .. } = input.clone();
        let behind = ids.dims()[1] - first;
        let ids = ids.narrow(1, first, behind);
        let mask = mask.narrow(1, first, behind);
        let states = self.model.run(ids, mask, Some(&mut cache), pass, &mut |_| ());
        self.model.normed(states.narrow(1, behind - 1, 1))
    }

    /// Cache of `prefix`, with which the one row of `ids` starts.
    fn read(&self, ids: &Tensor<2, Int>, (prefix, known): &Prefixed, pass: &Pass) -> KvCache {
        known.get_or_read(prefix, pass, || {
            let mut cache = KvCache::new();
            let ids = ids.clone().narrow(1, 0, prefix.len());
            let mask = Tensor::ones(ids.dims(), (&ids.device(), self.model.compute_dtype()));
            self.model.run(ids, mask, Some(&mut cache), pass, &mut |_| ());
            cache
        })
    }

    /// Logits at the [columns](TokenBatch::columns) of `input`, row after row, `[asked, vocab]`; for a pass that holds several draws
    /// `[draws · asked, vocab]`, draw after draw, unless no layer draws.
    ///
    /// The head over a vocabulary is most of the work for a short text, and its logits most of the memory of a training
    /// step: other columns do not reach it. An adapter on the head draws per sequence as other layers do: its states then
    /// stay apart by row, and short rows are filled up.
    ///
    /// # Panics
    ///
    /// If a column is not one of the batch.
    pub fn logits_at(&self, input: &TokenBatch, pass: &Pass) -> Tensor<2> {
        let TokenBatch { ids, mask, .. } = input.clone();
        let states = self.model.run(ids, mask, None, pass, &mut |_| ());
        let [rows, tokens, hidden] = states.dims();
        let states = states.reshape([rows * tokens, hidden]);
        // The columns of all rows as places in the states; a row of fewer than `width` is filled up by its first column.
        let places = |width: usize| {
            let places = (0..rows).zip(input.columns.iter().cycle()).flat_map(|(row, columns)| {
                let filled =
                    (0..width.max(columns.len())).map(|i| columns.get(i).copied().unwrap_or(0));
                filled.map(move |column| row * tokens + column)
            });
            states.clone().select(0, indices(places, &states))
        };
        if self.lm_head.low_rank().is_none() {
            return self.head(self.model.normed(places(0).unsqueeze_dim(0)), pass).squeeze_dim(0);
        }
        let width = input.columns.iter().map(Vec::len).max().unwrap_or(0);
        let filled = places(width).reshape([rows, width, hidden]);
        let logits = self.head(self.model.normed(filled), pass);
        // The head may be the first layer that draws.
        let [rows, _, vocab] = logits.dims();
        let real = (0..rows).zip(input.columns.iter().cycle());
        let real = real.flat_map(|(row, asked)| (0..asked.len()).map(move |i| row * width + i));
        let real = indices(real, &logits);
        logits.reshape([rows * width, vocab]).select(0, real)
    }

    /// Scores of `options`, texts that may follow the prompt `ids` `[rows, tokens]` without padding: `[rows, options]`, for a
    /// pass that holds several draws `[draws · rows, options]`.
    ///
    /// # Formula
    ///
    /// ```text
    /// score_o = 1/n_o·Σ_j ln p(t_oj | prompt, t_o1 … t_o,j−1)        t_o1 … t_o,n_o the tokens of option o
    /// ```
    ///
    /// The mean makes options of different lengths comparable. The prompt is read once, and the options are a tree behind it: a
    /// token sees the prompt and those of its option before it, and what several options start with is read once. The score of
    /// an option does not depend on the others. A `prefix` of the one row is read once a pass, if weights are drawn once a batch
    /// or not at all.
    ///
    /// # Panics
    ///
    /// If an option has no token.
    pub fn option_logits(
        &self,
        ids: Tensor<2, Int>,
        prefix: Option<&Prefixed>,
        options: &[Vec<u32>],
        pass: &Pass,
    ) -> Tensor<2> {
        let [rows, prompt] = ids.dims();
        let device = ids.device();
        // A node is a token of the tree behind its parent; the last token of an option is predicted and not read.
        let mut nodes = BTreeMap::new();
        let mut parents = Vec::new();
        let mut read = Vec::new();
        // The column behind which a token comes, 0 for the end of the prompt, the token, and its option.
        let mut tokens: Vec<(usize, u32, usize)> = Vec::new();
        for (option, ids) in options.iter().enumerate() {
            let mut parent = None;
            for (place, &id) in ids.iter().enumerate() {
                tokens.push((parent.map_or(0, |node| node + 1), id, option));
                if place + 1 < ids.len() {
                    parent = Some(*nodes.entry((parent, id)).or_insert_with(|| {
                        parents.push(parent);
                        read.push(i64::from(id));
                        read.len() - 1
                    }));
                }
            }
        }
        tokens.sort_unstable();
        let behind = read.len();
        let (ids, prompt, mut cache) = match shared(prefix, pass) {
            None => (ids, prompt, None),
            Some(prefix) => {
                let cache = self.read(&ids, prefix, pass);
                // The rest of the prompt is the stem of the tree.
                let first = prefix.0.len();
                let rest = prompt - first;
                let stem = (0..rest).map(|node| node.checked_sub(1));
                let tree = parents.iter().map(|parent| parent.map_or(rest - 1, |node| node + rest));
                parents = stem.chain(tree.map(Some)).collect();
                (ids.narrow(1, first, rest), rest, Some(cache))
            }
        };
        let ids = if behind == 0 {
            ids
        } else {
            let read = Tensor::from_data(TensorData::new(read, [1, behind]), &device);
            Tensor::cat(vec![ids, read.repeat_dim(0, rows)], 1)
        };
        let states = self.model.run_branches(ids, &parents, cache.as_mut(), pass);
        let states = states.narrow(1, prompt - 1, behind + 1);
        let mut found = Vec::new();
        for from in (0..=behind).step_by(COLUMNS) {
            let columns = from..(from + COLUMNS).min(behind + 1);
            let part = states.clone().narrow(1, from, columns.len());
            let logits = self.head(self.model.normed(part), pass);
            let [rows, n, vocab] = logits.dims();
            let logs = activation::log_softmax(logits, 2).reshape([rows, n * vocab]);
            let own = tokens.iter().filter(|(column, ..)| columns.contains(column));
            let places = own.map(|&(column, id, _)| (column - from) * vocab + id as usize);
            found.push(logs.clone().select(1, indices(places, &logs)));
        }
        let shares = tokens.iter().flat_map(|&(_, _, option)| {
            let share = 1.0 / options[option].len() as f64;
            (0..options.len()).map(move |o| if o == option { share } else { 0.0 })
        });
        let logs = Tensor::cat(found, 1);
        let shares = TensorData::new(shares.collect::<Vec<f64>>(), [tokens.len(), options.len()]);
        let shares = Tensor::from_data(shares, (&device, logs.dtype()));
        logs.matmul(shares)
    }
}

/// The first tokens of a row, and what is known of them.
type Prefixed = (Vec<u32>, Prefixes);

/// The prefix, if `pass` allows that it is read once: all its passes have the same weights, and nothing is dropped.
fn shared<'a>(prefix: Option<&'a Prefixed>, pass: &Pass) -> Option<&'a Prefixed> {
    prefix.filter(|_| pass.scheme.shares_weights() && pass.dropout.is_none())
}
