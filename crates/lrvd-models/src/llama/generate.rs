//! Continuation of texts.

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use lrvd_burn::adapter::repeat_for_members;
use lrvd_burn::model::members;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::NoiseKey;

use super::cache::KvCache;
use super::causal_lm::LlamaForCausalLm;
use super::choose::{Answers, GeneratedToken, TokenChoice};
use crate::error::{Error, Result};

/// How far to continue, with which weights, and which token is taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateOptions {
    /// Most new tokens of a text.
    pub max_new_tokens: usize,
    /// Tokens that end a text; they are not returned.
    pub stop: Vec<u32>,
    /// The weight draws whose probabilities are averaged at every token, the same ones for the whole text; without any
    /// the posterior mean answers.
    pub draws: Vec<NoiseKey>,
    /// Which token is taken.
    pub choice: TokenChoice,
}

/// A continuation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GeneratedText {
    /// Its tokens.
    pub tokens: Vec<GeneratedToken>,
    /// Whether a token of [`GenerateOptions::stop`] ended it.
    pub stopped: bool,
}

impl LlamaForCausalLm {
    /// The continuation of every prompt, token by token, with the uncertainty of each.
    ///
    /// The prompts are read at once, padded on the left, and every further step feeds one token a prompt through the
    /// cache; draws go through one pass as rows of it. Among equal probabilities the token with the smallest id wins.
    /// Positions beyond the training length are used as they are.
    pub fn generate(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<Vec<GeneratedText>> {
        self.generate_while(prompts, options, &mut |_| true)
    }

    /// [`generate`](Self::generate) that can be stopped: `go_on` is called after every step with the number of tokens that
    /// the step added to all texts together, and returns whether to continue. [`Error::Stopped`] if it returned false
    /// before every text was finished.
    pub fn generate_while(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<GeneratedText>> {
        options.choice.check()?;
        self.check_prompts(prompts)?;
        let mut found = vec![GeneratedText::default(); prompts.len()];
        if prompts.is_empty() || options.max_new_tokens == 0 {
            return Ok(found);
        }
        let model = self.valid();
        let (model, pass) = match options.draws[..] {
            [] => (model, Pass::mean()),
            [key] => (model.drawn(key), Pass::sampled(Scheme::Weights(DrawPer::Batch), key)),
            _ => (model.drawn_together(&options.draws)?, Pass::mean()),
        };
        // Where no layer has a posterior there are no members, and one row answers for all draws.
        let members = members(&model)?;
        let mut cache = KvCache::new();
        let mut open = vec![true; prompts.len()];
        let mut next = model.next_logits(prompts, members, &mut cache, &pass);
        loop {
            let answers = Answers::new(&next, members, self.config().vocab_size)?;
            let (mut step, mut added) = (Vec::with_capacity(prompts.len()), 0);
            for (row, (text, open)) in found.iter_mut().zip(&mut open).enumerate() {
                let token = answers.take(row, text.tokens.len(), &options.choice);
                step.push(vec![token.id]);
                text.stopped |= *open && options.stop.contains(&token.id);
                *open = *open && !text.stopped;
                if *open {
                    text.tokens.push(token);
                    added += 1;
                    *open = text.tokens.len() < options.max_new_tokens;
                }
            }
            let goes_on = go_on(added);
            if !open.contains(&true) {
                return Ok(found);
            }
            if !goes_on {
                return Err(Error::Stopped);
            }
            // A finished row continues with its token, and the result is not read.
            next = model.next_logits(&step, members, &mut cache, &pass);
        }
    }

    /// The ids alone of the most likely continuations.
    pub fn generate_greedy(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<Vec<Vec<u32>>> {
        let options = GenerateOptions { choice: TokenChoice::Greedy, ..options.clone() };
        let texts = self.generate(prompts, &options)?;
        Ok(texts.into_iter().map(|text| text.tokens.iter().map(|t| t.id).collect()).collect())
    }

    /// Reads one more piece of every row, padded on the left, and returns the logits after it, `[members · rows, vocab]`.
    fn next_logits(
        &self,
        rows: &[Vec<u32>],
        members: usize,
        cache: &mut KvCache,
        pass: &Pass,
    ) -> Vec<f64> {
        let (device, dtype) = (self.model().embeddings().device(), self.model().compute_dtype());
        let tokens = rows.iter().map(Vec::len).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in rows {
            let padding = tokens - row.len();
            ids.extend(std::iter::repeat_n(0, padding).chain(row.iter().map(|&id| i64::from(id))));
            mask.extend((0..tokens).map(|i| f32::from(u8::from(i >= padding))));
        }
        let shape = [rows.len(), tokens];
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, shape), &device);
        let mask = Tensor::<2>::from_data(TensorData::new(mask, shape), (&device, dtype));
        let (ids, mask) = (repeat_for_members(ids, members), repeat_for_members(mask, members));
        let x = self.model().run(ids, mask, Some(cache), pass, &mut |_| ());
        let last = self.model().normed(x.narrow(1, tokens - 1, 1));
        self.head(last, pass).into_data().iter::<f64>().collect()
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
}
