//! A model's kind and sizes, which its `config.json` alone gives, and how it reads a text.

use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_core::baselines::LayerShape;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaConfig};
use lrvd_models::llama::gguf::GgufModel;
use lrvd_models::llama::{ADAPTER_TARGETS as LLAMA_TARGETS, LlamaConfig};
use lrvd_models::tokenizer::TextTokenizer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::data::{
    Dataset, InputForm, LETTERS, Labelled, QuestionForm, TextColumns, TextReader, Wording,
};
use crate::error::Result;
use crate::io::read_json;
use crate::settings::{TargetModules, WordingSettings};
use crate::task::{Goal, Task};

/// Every linear layer of a language model, by the end of the path.
const LLAMA_LAYERS: [&str; 8] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"];

#[derive(Clone, Debug)]
pub(crate) enum Architecture {
    /// DeBERTa-v2 or v3: an encoder that gets a head.
    Deberta(DebertaConfig),
    /// Llama: a decoder that answers by the logits of a few tokens.
    Llama(LlamaConfig),
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    model_type: String,
}

impl Architecture {
    /// Reads `config.json` in a folder, or the configuration in a GGUF file.
    pub(crate) fn read(model: &Path) -> Result<Self> {
        if GgufModel::is_at(model) {
            return Ok(Self::Llama(GgufModel::open(model)?.config().clone()));
        }
        let file = model.join("config.json");
        let Kind { model_type } = read_json(&file)?;
        Ok(match model_type.as_str() {
            "llama" => Self::Llama(LlamaConfig::read(&file)?),
            // Every other kind is rejected by name in there.
            _ => Self::Deberta(DebertaConfig::read(&file)?),
        })
    }

    /// Llama-2-7B by its published sizes, for plans without the files.
    pub(crate) fn llama_2_7b() -> lrvd_models::Result<Self> {
        let config = json!({
            "model_type": "llama", "vocab_size": 32_000, "hidden_size": 4096,
            "intermediate_size": 11_008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 32, "max_position_embeddings": 4096, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "tie_word_embeddings": false,
            "bos_token_id": 1, "eos_token_id": 2,
        });
        LlamaConfig::parse(&bytes(&config), Path::new("Llama-2-7B")).map(Self::Llama)
    }

    /// DeBERTa-v3-base by its published sizes, for plans without the files.
    pub(crate) fn deberta_v3_base() -> lrvd_models::Result<Self> {
        let config = json!({
            "model_type": "deberta-v2", "vocab_size": 128_100, "hidden_size": 768,
            "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
            "max_position_embeddings": 512, "relative_attention": true, "position_buckets": 256,
            "max_relative_positions": -1, "norm_rel_ebd": "layer_norm", "share_att_key": true,
            "pos_att_type": ["p2c", "c2p"], "position_biased_input": false, "type_vocab_size": 0,
            "layer_norm_eps": 1e-7, "hidden_act": "gelu", "pad_token_id": 0,
        });
        DebertaConfig::parse(&bytes(&config), Path::new("DeBERTa-v3-base")).map(Self::Deberta)
    }

    pub(crate) fn unrecognised(&self) -> &[String] {
        match self {
            Self::Deberta(config) => config.unrecognised(),
            Self::Llama(config) => config.unrecognised(),
        }
    }

    pub(crate) fn vocab_size(&self) -> usize {
        match self {
            Self::Deberta(config) => config.vocab_size,
            Self::Llama(config) => config.vocab_size,
        }
    }

    pub(crate) fn depth_and_width(&self) -> (usize, usize) {
        match self {
            Self::Deberta(config) => (config.num_hidden_layers, config.hidden_size),
            Self::Llama(config) => (config.num_hidden_layers, config.hidden_size),
        }
    }

    /// `targets`, unless all of them are names of the other kind of model: then what is usual for this one.
    pub(crate) fn target_modules(&self, targets: &TargetModules) -> TargetModules {
        let (own, other): (&[&str], &[&str]) = match self {
            Self::Deberta(_) => (&ADAPTER_TARGETS, &LLAMA_LAYERS),
            Self::Llama(_) => (&LLAMA_TARGETS, &ADAPTER_TARGETS),
        };
        let foreign = |name: &String| other.contains(&name.as_str());
        match targets {
            TargetModules::Names(names) if !names.is_empty() && names.iter().all(foreign) => {
                TargetModules::names(own)
            }
            _ => targets.clone(),
        }
    }

    /// How this kind of model is asked for the classes of `goal`: in words, or by a head and not at all.
    pub(crate) fn wording(
        &self,
        given: &WordingSettings,
        goal: &Goal,
        task: Option<Task>,
        pairs: bool,
    ) -> Result<Option<Wording>> {
        match (self, given.given()) {
            (Self::Deberta(_), Some(key)) => Err(anyhow!(
                "`{key}` words the prompt of a language model, and the model is an encoder with a head"
            )),
            (Self::Deberta(_), None) => Ok(None),
            (Self::Llama(_), _) => Wording::resolve(given, goal, task, pairs).map(Some),
        }
    }

    /// How it is asked for the classes of `data`; a question with choices has the prompt of a user's questions.
    pub(crate) fn wording_of(
        &self,
        data: &Dataset,
        given: &WordingSettings,
    ) -> Result<Option<Wording>> {
        let Labelled { goal, task, columns } = &data.kind;
        if !columns.as_ref().is_some_and(TextColumns::has_choices) {
            return self.wording(given, goal, *task, data.pairs());
        }
        if let Some(key) = given.given() {
            bail!(
                "`{key}` is the prompt of a question for a class; a question with choices has another prompt and \
                 is answered by a letter"
            );
        }
        Ok(self.question_wording(QuestionForm::default(), goal.n_labels(), data.pairs()))
    }

    /// The most tokens of a text, for a model with a vector for every position; `None` where only distances count.
    pub(crate) fn positions(&self) -> Option<usize> {
        match self {
            Self::Deberta(config) => {
                config.position_biased_input.then_some(config.max_position_embeddings)
            }
            Self::Llama(_) => None,
        }
    }

    /// Checks that the model has positions for texts of `max_length` tokens.
    pub(crate) fn check_length(&self, max_length: usize) -> Result<()> {
        match self.positions() {
            Some(most) if most < max_length => Err(anyhow!(
                "`max_length` is {max_length}, but the model has positions for {most} tokens: set `--max-length \
                 {most}` or less"
            )),
            _ => Ok(()),
        }
    }

    /// How texts, or a user's `questions` with choices, become what this kind of model reads for the classes of `goal`.
    pub(crate) fn reader<'a>(
        &self,
        tokenizer: &'a TextTokenizer,
        goal: &'a Goal,
        questions: Option<QuestionForm>,
        wording: Option<&'a Wording>,
        max_length: usize,
    ) -> Result<TextReader<'a>> {
        self.check_length(max_length)?;
        match (self, questions, wording) {
            (_, Some(form), _) => {
                let (kind, letters) = (self.input_form(), goal.n_labels());
                let labels = &LETTERS[..letters.min(LETTERS.len())];
                TextReader::questions(tokenizer, kind, form, labels, true, max_length)
            }
            (Self::Deberta(_), None, _) => Ok(TextReader::segments(tokenizer, max_length)),
            (Self::Llama(_), None, Some(wording)) => {
                TextReader::words(wording, &goal.name, tokenizer, max_length)
            }
            (Self::Llama(_), None, None) => Err(anyhow!(
                "classifier `{}` does not say in which words a language model is asked",
                goal.name
            )),
        }
    }

    /// How the questions of a task become what this kind of model reads, to be answered by `labels`.
    pub(crate) fn task_questions<'a>(
        &self,
        tokenizer: &'a TextTokenizer,
        form: QuestionForm,
        labels: &[&str],
        max_length: usize,
    ) -> Result<TextReader<'a>> {
        self.check_length(max_length)?;
        TextReader::questions(tokenizer, self.input_form(), form, labels, false, max_length)
    }

    /// How this kind of model is asked questions with `letters` choices, about a passage or not; `None` for an encoder.
    pub(crate) fn question_wording(
        &self,
        form: QuestionForm,
        letters: usize,
        passage: bool,
    ) -> Option<Wording> {
        (self.input_form() == InputForm::Decoder).then(|| form.wording(letters, passage))
    }

    pub(crate) fn input_form(&self) -> InputForm {
        match self {
            Self::Deberta(_) => InputForm::Encoder,
            Self::Llama(_) => InputForm::Decoder,
        }
    }

    pub(crate) fn parameters(&self) -> u64 {
        match self {
            Self::Deberta(c) => {
                let (d, wide) = (c.hidden_size as u64, c.intermediate_size as u64);
                let layer = 4 * (d * d + d) + 2 * d * wide + wide + d + 4 * d;
                c.vocab_size as u64 * d + c.num_hidden_layers as u64 * layer
            }
            Self::Llama(c) => {
                let (d, wide) = (c.hidden_size as u64, c.intermediate_size as u64);
                let heads = 2 * (c.num_attention_heads + c.num_key_value_heads) * c.head_dim;
                let layer = d * heads as u64 + 3 * d * wide + 2 * d;
                let tables = if c.tie_word_embeddings { 1 } else { 2 };
                tables * c.vocab_size as u64 * d + c.num_hidden_layers as u64 * layer + d
            }
        }
    }

    /// Shapes of the layers that `targets` mean.
    pub(crate) fn adapted_layers(&self, targets: &TargetModules) -> Vec<LayerShape> {
        let (n, _) = self.depth_and_width();
        let all: Vec<(&str, usize, usize, usize)> = match self {
            Self::Deberta(c) => {
                let (d, wide) = (c.hidden_size, c.intermediate_size);
                vec![
                    ("attention.self.query_proj", d, d, n),
                    ("attention.self.key_proj", d, d, n),
                    ("attention.self.value_proj", d, d, n),
                    ("attention.output.dense", d, d, n),
                    ("intermediate.dense", d, wide, n),
                    ("output.dense", wide, d, n),
                ]
            }
            Self::Llama(c) => {
                let (d, wide) = (c.hidden_size, c.intermediate_size);
                let query = c.num_attention_heads * c.head_dim;
                let key = c.num_key_value_heads * c.head_dim;
                vec![
                    ("self_attn.q_proj", d, query, n),
                    ("self_attn.k_proj", d, key, n),
                    ("self_attn.v_proj", d, key, n),
                    ("self_attn.o_proj", query, d, n),
                    ("mlp.gate_proj", d, wide, n),
                    ("mlp.up_proj", d, wide, n),
                    ("mlp.down_proj", wide, d, n),
                    ("lm_head", d, c.vocab_size, 1),
                ]
            }
        };
        let targets = targets.layers();
        all.into_iter()
            .filter(|(name, ..)| targets.select(name))
            .flat_map(|(_, d_input, d_output, layers)| {
                std::iter::repeat_n(LayerShape { d_input, d_output }, layers)
            })
            .collect()
    }
}

fn bytes(config: &Value) -> Vec<u8> {
    config.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use lrvd_core::baselines::CountedMethod;

    use super::*;

    /// Llama 2's are tested with the plan of its runs.
    #[test]
    fn the_published_model_has_its_published_sizes() {
        let deberta = Architecture::deberta_v3_base().unwrap();
        let layers = deberta.adapted_layers(&TargetModules::names(ADAPTER_TARGETS));
        assert_eq!(layers.len(), 72);
        assert_eq!(CountedMethod::Lora.parameter_count(&layers, 8), 1_327_104);
    }
}
