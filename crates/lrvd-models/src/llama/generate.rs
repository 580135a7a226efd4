//! Continuation of texts.

use std::iter::repeat_n;
use std::ops::ControlFlow;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};
use lrvd_burn::adapter::{
    Axis, Extension, LowRankAdapter, OpExtension, OpLayer, OpParameter, ParameterSchema,
    PreparedUpdate, UpdateOp, repeat_for_members,
};
use lrvd_burn::model::{NamedModule, members};
use lrvd_burn::ops::standard_normal;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::noise::{NoiseKey, Stream};

use super::cache::KvCache;
use super::causal_lm::LlamaForCausalLm;
use super::choose::{GeneratedToken, NextTokenDistribution, TokenSampling};
use crate::error::{Error, Result};
use crate::source::frozen;

/// Length, weights and token selection of a continuation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateOptions {
    /// Most new tokens of a text.
    pub max_new_tokens: usize,
    /// Most tokens of a prompt and its text together; `None` for no limit. A prompt that is longer has no text.
    pub context: Option<usize>,
    /// Tokens that end a text; they are not returned.
    pub stop: Vec<u32>,
    /// The weight draws whose probabilities are averaged at every token, the same ones for the whole text; without any
    /// the posterior mean answers.
    pub draws: Vec<NoiseKey>,
    /// Sampling; without it the most likely token, the smallest id among equals.
    pub sampling: Option<TokenSampling>,
    /// Number of the most probable tokens that every token is returned with.
    pub top: usize,
    /// `true` if the tokens of the prompts are scored, too.
    pub score_prompts: bool,
}

/// A continuation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GeneratedText {
    /// Its tokens.
    pub tokens: Vec<GeneratedToken>,
    /// The token of [`GenerateOptions::stop`] that ended it.
    pub end: Option<GeneratedToken>,
    /// The tokens of its prompt from the second on, each by the distribution behind the tokens before it; empty without
    /// [`GenerateOptions::score_prompts`].
    pub prompt: Vec<GeneratedToken>,
}

/// Is called after a step with its tokens, each with the index of its prompt, and returns the prompts whose texts end there, or a
/// break that ends all.
pub type ContinueFn<'a> = dyn FnMut(&[(usize, GeneratedToken)]) -> ControlFlow<(), Vec<usize>> + 'a;

/// Most positions, times draws, whose distributions are computed at once for the tokens of a prompt.
const SCORED_TOGETHER: usize = 32;

impl LlamaForCausalLm {
    /// The continuation of every prompt, token by token, with the uncertainty of each.
    ///
    /// The prompts are read at once, padded on the left, and every further step feeds one token of each unfinished prompt
    /// through the cache; draws go through one pass as rows of it. Among equal probabilities the token with the smallest id wins.
    /// Positions beyond the training length are used as they are.
    pub fn generate(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<Vec<GeneratedText>> {
        self.generate_while(prompts, options, &mut |_| ControlFlow::Continue(Vec::new()))
    }

    /// [`generate`](Self::generate) that can be followed and stopped: `should_continue` is called after every step with the
    /// tokens that the step added, each with the index of its prompt, and returns which texts end there. [`Error::Stopped`] if
    /// it breaks before every text was finished.
    pub fn generate_while(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        should_continue: &mut ContinueFn<'_>,
    ) -> Result<Vec<GeneratedText>> {
        options.sampling.map_or(Ok(()), |sampling| sampling.check())?;
        self.check_prompts(prompts)?;
        let mut found = vec![GeneratedText::default(); prompts.len()];
        let room = |prompt: &Vec<u32>| {
            let room = options.context.map(|context| context.saturating_sub(prompt.len()));
            room.unwrap_or(usize::MAX).min(options.max_new_tokens)
        };
        let room: Vec<usize> = prompts.iter().map(room).collect();
        // Prompts that are not finished, and what the model reads next of each.
        let is_read = |row: &usize| room[*row] > 0 || options.score_prompts;
        let mut open: Vec<usize> = (0..prompts.len()).filter(is_read).collect();
        let mut scores_prompts = options.score_prompts;
        let mut pieces: Vec<Vec<u32>> = open.iter().map(|&row| prompts[row].clone()).collect();
        if open.is_empty() {
            return Ok(found);
        }
        let model = self.valid();
        let (model, pass) = match options.draws[..] {
            [] => (model, Pass::mean()),
            [key] => (model.drawn(key), Pass::sampled(Scheme::PerBatch, key)),
            _ => (model.drawn_together(&options.draws)?, Pass::mean()),
        };
        // Where no layer has a posterior there are no members, and one row answers for all draws.
        let members = members(&model)?;
        let vocab_size = self.config().vocab_size;
        let mut cache = KvCache::new();
        loop {
            let hidden = model.read_more(&pieces, members, &mut cache, &pass);
            if std::mem::take(&mut scores_prompts) {
                for (place, &row) in open.iter().enumerate() {
                    // Left padding: the tokens of a row are the last ones.
                    let own = (0..members).map(|member| {
                        let row = hidden.clone().narrow(0, member * open.len() + place, 1);
                        row.narrow(1, hidden.dims()[1] - pieces[place].len(), pieces[place].len())
                    });
                    let own = Tensor::cat(own.collect(), 0);
                    found[row].prompt = model.scored(own, &pieces[place], options.top, &pass)?;
                }
            }
            let last = hidden.dims()[1] - 1;
            let logits = model.logits(hidden.narrow(1, last, 1), &pass);
            let mut added = Vec::with_capacity(open.len());
            // Places in the batch of the prompts that have not ended.
            let mut going_on = Vec::with_capacity(open.len());
            pieces.clear();
            for (place, &row) in open.iter().enumerate() {
                let text = &mut found[row];
                if room[row] == 0 {
                    continue;
                }
                let of_member = |member| &logits[(member * open.len() + place) * vocab_size..];
                let draws = (0..members).map(|member| &of_member(member)[..vocab_size]);
                let next = NextTokenDistribution::new(draws)?;
                let id = next.choose(row, text.tokens.len(), options.sampling.as_ref());
                let token = next.token(id, options.top);
                if options.stop.contains(&token.id) {
                    text.end = Some(token);
                    continue;
                }
                text.tokens.push(token.clone());
                added.push((row, token));
                if text.tokens.len() < room[row] {
                    going_on.push(place);
                }
            }
            let followed = should_continue(&added);
            if let ControlFlow::Continue(ended) = &followed {
                going_on.retain(|&place| !ended.contains(&open[place]));
            }
            if going_on.is_empty() {
                return Ok(found);
            }
            if followed.is_break() {
                return Err(Error::Stopped);
            }
            let last = |&place: &usize| found[open[place]].tokens.last().map(|token| token.id);
            pieces.extend(going_on.iter().filter_map(last).map(|id| vec![id]));
            if going_on.len() < open.len() {
                let rows = open.len();
                let of_member = |member| going_on.iter().map(move |place| member * rows + place);
                cache.select_rows(&(0..members).flat_map(of_member).collect::<Vec<_>>());
                open = going_on.iter().map(|&place| open[place]).collect();
            }
        }
    }

    /// The ids alone of the most likely continuations.
    pub fn generate_greedy(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<Vec<Vec<u32>>> {
        let options = GenerateOptions { sampling: None, ..options.clone() };
        let texts = self.generate(prompts, &options)?;
        Ok(texts.into_iter().map(|text| text.tokens.iter().map(|t| t.id).collect()).collect())
    }

    /// Reads one more piece of every row, padded on the left, and returns the hidden states, `[members · rows, tokens, width]`.
    fn read_more(
        &self,
        rows: &[Vec<u32>],
        members: usize,
        cache: &mut KvCache,
        pass: &Pass,
    ) -> Tensor<3> {
        let device = self.model.embeddings().device();
        let tokens = rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut ids = Vec::new();
        let mut mask = Vec::new();
        for row in rows {
            let padding = tokens - row.len();
            ids.extend(repeat_n(0, padding).chain(row.iter().map(|&id| i64::from(id))));
            mask.extend(repeat_n(0.0_f32, padding).chain(repeat_n(1.0, row.len())));
        }
        let shape = [rows.len(), tokens];
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &device);
        let dtype = self.model.compute_dtype();
        let mask = Tensor::<2>::from_data(TensorData::new(mask, shape), (&device, dtype));
        let ids = repeat_for_members(ids, members);
        let mask = repeat_for_members(mask, members);
        self.model.read(ids, mask, cache, pass)
    }

    /// Logits behind hidden states, `[rows, tokens, vocab]`.
    fn logits(&self, hidden: Tensor<3>, pass: &Pass) -> Vec<f64> {
        let logits = self.head(hidden, pass).into_data();
        match logits.as_slice::<f32>() {
            Ok(logits) => logits.iter().map(|&logit| f64::from(logit)).collect(),
            Err(_) => logits.iter::<f64>().collect(),
        }
    }

    /// The tokens of `prompt` from the second on, by its hidden states, `[members, tokens, width]`.
    fn scored(
        &self,
        hidden: Tensor<3>,
        prompt: &[u32],
        top: usize,
        pass: &Pass,
    ) -> Result<Vec<GeneratedToken>> {
        let members = hidden.dims()[0];
        let vocab_size = self.config().vocab_size;
        let together = (SCORED_TOGETHER / members).max(1);
        let mut found = Vec::with_capacity(prompt.len());
        for (part, ids) in prompt[1..].chunks(together).enumerate() {
            let own = hidden.clone().narrow(1, part * together, ids.len());
            let logits = self.logits(own, pass);
            for (place, &id) in ids.iter().enumerate() {
                let of_member = |member| &logits[(member * ids.len() + place) * vocab_size..];
                let draws = (0..members).map(|member| &of_member(member)[..vocab_size]);
                found.push(NextTokenDistribution::new(draws)?.token(id as usize, top));
            }
        }
        Ok(found)
    }

    fn check_prompts(&self, prompts: &[Vec<u32>]) -> Result<()> {
        let members = members(self)?;
        if members > 1 {
            let text = format!("the model is an ensemble of {members} members: take one of them");
            return Err(Error::Adapter(text));
        }
        let vocab_size = self.config().vocab_size;
        for (index, prompt) in prompts.iter().enumerate() {
            if prompt.is_empty() {
                return Err(Error::Text(format!("prompt {index} has no tokens")));
            }
            let unknown = prompt.iter().position(|&id| id as usize >= vocab_size);
            if let Some(position) = unknown {
                return Err(Error::Text(format!(
                    "prompt {index} has token {} at position {position}, the model has {vocab_size} tokens",
                    prompt[position]
                )));
            }
        }
        Ok(())
    }

    /// The model with every posterior at one weight draw, as plain adapters: what a pass with one draw a batch under
    /// `noise` computes, without drawing again for every piece of text.
    ///
    /// Extensions of the baselines stay, and draw under the pass.
    #[must_use]
    pub fn drawn(&self, noise: NoiseKey) -> Self {
        let mut drawn = self.clone();
        drawn.visit_layers_mut(&mut |_, layer| {
            let key = noise.for_module(layer.noise_id());
            layer.edit(|adapter| {
                let Some([a, b]) = draw(adapter, key) else { return };
                adapter.take_posterior();
                (adapter.a, adapter.b) = (frozen(a), frozen(b));
            });
        });
        drawn
    }

    /// The model with every posterior at several weight draws side by side, as ensemble members that share a batch: rows
    /// `m·n .. (m+1)·n` are answered by draw `m`, as a pass under `keys[m]` answers them.
    ///
    /// The base product of all draws is one product, and nothing is drawn again for another piece of text.
    ///
    /// # Errors
    ///
    /// [`lrvd_burn::Error`] if a layer cannot hold members.
    pub fn drawn_together(&self, keys: &[NoiseKey]) -> Result<Self, lrvd_burn::Error> {
        let mut drawn = self.clone();
        let mut outcome = Ok(());
        drawn.visit_layers_mut(&mut |path, layer| {
            let Some(mut adapter) = layer.low_rank().cloned() else { return };
            let draws: Option<Vec<[Tensor<2>; 2]>> =
                keys.iter().map(|key| draw(&adapter, key.for_module(layer.noise_id()))).collect();
            let Some(draws) = draws.filter(|draws| !draws.is_empty()) else { return };
            let (a, b): (Vec<_>, Vec<_>) = draws.into_iter().map(|[a, b]| (a, b)).unzip();
            let initial_rank = layer.slot().map_or(adapter.rank(), |slot| slot.initial_rank);
            let op = Arc::new(DrawnMembers { a: Tensor::stack(a, 0), b: Tensor::stack(b, 0) });
            // It has no parameters that a key could draw.
            let extension = OpExtension::new(op, &mut adapter.a, &mut adapter.b, NoiseKey::new(0));
            let extended = extension.and_then(|extension| {
                let extension = Some(Extension::Op(extension));
                let adapter = LowRankAdapter { extension, dropout: 0.0, ..adapter };
                layer.attach(path, adapter, initial_rank)
            });
            if outcome.is_ok() {
                outcome = extended;
            }
        });
        outcome.map(|()| drawn)
    }
}

/// Weight draws of a layer as members of an ensemble: `a [draws, d_input, rank]` and `b [draws, rank, d_output]`.
#[derive(Debug)]
struct DrawnMembers {
    a: Tensor<3>,
    b: Tensor<3>,
}

const DRAWN_A: ParameterSchema =
    ParameterSchema::mean("lora_A_draws", &[Axis::Other, Axis::Input, Axis::Rank], 0);
const DRAWN_B: ParameterSchema =
    ParameterSchema::mean("lora_B_draws", &[Axis::Other, Axis::Rank, Axis::Output], 0);

impl UpdateOp for DrawnMembers {
    fn start(
        &self,
        _a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        _key: NoiseKey,
    ) -> Result<Vec<OpParameter>, lrvd_burn::Error> {
        let (a, b) = (frozen(self.a.clone()), frozen(self.b.clone()));
        Ok(vec![OpParameter::new(&DRAWN_A, a), OpParameter::new(&DRAWN_B, b)])
    }

    fn members(&self) -> usize {
        self.a.dims()[0]
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let (a, b) = (layer.extension.parameter::<3>(0), layer.extension.parameter::<3>(1));
        Box::new(move |x, use_index| layer.members_update(x, use_index, a.clone(), b.clone()))
    }
}

/// The factors at a draw; `None` of an adapter without a posterior.
fn draw(adapter: &LowRankAdapter, key: NoiseKey) -> Option<[Tensor<2>; 2]> {
    let posterior = adapter.posterior()?;
    let (a, b) = (adapter.a.val().without_autodiff(), adapter.b.val().without_autodiff());
    let (std_a, std_b) = posterior.deviations(&a, &b);
    let draw = |mean: Tensor<2>, std: Tensor<2>, stream| {
        let eps = standard_normal(&mean, mean.dims(), key.on_stream(stream));
        mean + eps * std.without_autodiff()
    };
    let b = match std_b {
        Some(std_b) => draw(b, std_b, Stream::WEIGHT_B),
        None => b,
    };
    Some([draw(a, std_a, Stream::WEIGHT_A), b])
}
