//! Greedy continuation of texts.

use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use lrvd_burn::error::AdapterError;
use lrvd_burn::model::members;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::NoiseKey;

use super::cache::KvCache;
use super::causal_lm::LlamaForCausalLm;

/// How far to continue, and with which weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateOptions {
    /// Most new tokens of a text.
    pub max_new_tokens: usize,
    /// Tokens that end a text; they are not returned.
    pub stop: Vec<u32>,
    /// The adapters at one weight draw under this key; at their posterior mean without one.
    pub draw: Option<NoiseKey>,
}

/// A text cannot be continued.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A text without a token; a model needs at least the token that starts a text.
    #[error("prompt {index} has no tokens")]
    Empty {
        /// Its place among the prompts.
        index: usize,
    },
    /// The layers are ensembles of different sizes.
    #[error(transparent)]
    Layers(#[from] AdapterError),
    /// An ensemble of adapters in one model has a continuation for each of them.
    #[error("the model is an ensemble of {members} members: take one of them")]
    Members {
        /// Number of members.
        members: usize,
    },
    /// A token that the model does not have.
    #[error(
        "prompt {index} has token {id} at position {position}, the model has {vocab_size} tokens"
    )]
    Unknown {
        /// Place among the prompts.
        index: usize,
        /// Place in the prompt.
        position: usize,
        /// The token.
        id: u32,
        /// Size of the model's vocabulary.
        vocab_size: usize,
    },
}

impl LlamaForCausalLm {
    /// The most likely continuation of every prompt, one token after another.
    ///
    /// The prompts are read at once, padded on the left, and every further step feeds one token a prompt through the
    /// cache. Among equal logits the token with the smallest id wins. Positions beyond the training length are used as
    /// they are.
    ///
    /// # Errors
    ///
    /// [`GenerateError`] if a prompt is empty or has a token that the model does not have, or if the model is an
    /// ensemble in one.
    pub fn generate_greedy(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<Vec<Vec<u32>>, GenerateError> {
        self.check_prompts(prompts)?;
        let mut found = vec![Vec::new(); prompts.len()];
        if prompts.is_empty() || options.max_new_tokens == 0 {
            return Ok(found);
        }
        let (model, pass) = match options.draw {
            Some(key) => {
                (self.valid().drawn(key), Pass::sampled(Scheme::Weights(DrawPer::Batch), key))
            }
            None => (self.valid(), Pass::mean()),
        };
        let mut cache = KvCache::new();
        let mut open = vec![true; prompts.len()];
        let mut next = model.next_tokens(prompts, &mut cache, &pass);
        loop {
            for ((text, open), &id) in found.iter_mut().zip(&mut open).zip(&next) {
                *open = *open && !options.stop.contains(&id);
                if *open {
                    text.push(id);
                    *open = text.len() < options.max_new_tokens;
                }
            }
            if !open.contains(&true) {
                return Ok(found);
            }
            // A finished row goes on with its token; nobody looks at what comes of it.
            let step: Vec<Vec<u32>> = next.iter().map(|&id| vec![id]).collect();
            next = model.next_tokens(&step, &mut cache, &pass);
        }
    }

    /// Reads one more piece of every row, padded on the left, and returns the most likely token after it.
    fn next_tokens(&self, rows: &[Vec<u32>], cache: &mut KvCache, pass: &Pass) -> Vec<u32> {
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
        let x = self.model().run(ids, mask, Some(cache), pass, &mut |_| ());
        let last = self.model().normed(x.narrow(1, tokens - 1, 1));
        let logits: Tensor<2> = self.head(last, pass).squeeze_dim(1);
        logits.argmax(1).into_data().iter::<i64>().map(|id| id as u32).collect()
    }

    fn check_prompts(&self, prompts: &[Vec<u32>]) -> Result<(), GenerateError> {
        let members = members(self)?;
        if members > 1 {
            return Err(GenerateError::Members { members });
        }
        let vocab_size = self.config().vocab_size;
        for (index, prompt) in prompts.iter().enumerate() {
            if prompt.is_empty() {
                return Err(GenerateError::Empty { index });
            }
            let unknown = prompt.iter().position(|&id| id as usize >= vocab_size);
            if let Some(position) = unknown {
                let id = prompt[position];
                return Err(GenerateError::Unknown { index, position, id, vocab_size });
            }
        }
        Ok(())
    }
}
