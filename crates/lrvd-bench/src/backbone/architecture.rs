//! A model's kind and sizes, which its `config.json` alone gives, and how it reads a text.

use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_burn::files::WeightStore;
use lrvd_models::deberta::{ADAPTER_TARGETS, DebertaConfig, Family, Pooling};
use lrvd_models::llama::gguf::GgufModel;
use lrvd_models::llama::{ADAPTER_TARGETS as LLAMA_TARGETS, LlamaConfig, LlamaFamily};
use lrvd_models::tokenizer::TextTokenizer;
use serde_json::Value;

use crate::answers::{AnswerSpace, LETTERS, Readout};
use crate::data::{Dataset, InputForm, InputLayout, Labelled, QuestionForm, TextReader, Wording};
use crate::error::Result;
use crate::io::read_json;
use crate::settings::{BasePrecision, ModelFacts, TargetModules, WordingSettings};
use crate::task::{Goal, Task};

/// Every linear layer of a language model, by the end of the path.
const LLAMA_LAYERS: [&str; 8] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", LM_HEAD];
const LM_HEAD: &str = "lm_head";
/// Tokens of a state with a question and its options, of which a row of texts needs fewer.
const QUESTION_LENGTH: usize = 512;

#[derive(Clone, Debug)]
pub(crate) enum Architecture {
    /// DeBERTa, BERT, ModernBERT and others: an encoder that gets a head.
    Deberta(DebertaConfig),
    /// Llama, Mistral or Qwen: a decoder that answers by the logits of a few tokens.
    Llama(LlamaConfig),
}

pub(crate) struct Sizes {
    pub layers: usize,
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub vocab: usize,
    pub positions: usize,
}

impl Architecture {
    pub(crate) fn read(model: &Path) -> Result<Self> {
        if GgufModel::is_at(model) {
            return Ok(Self::Llama(GgufModel::open(model)?.config));
        }
        let file = model.join("config.json");
        let config: Value = read_json(&file)?;
        let found = &config["model_type"];
        match found.as_str() {
            Some(kind) if LlamaFamily::from_model_type(kind).is_some() => {
                Ok(Self::Llama(LlamaConfig::read(&file)?))
            }
            Some(kind) if Family::from_model_type(kind).is_some() => {
                Ok(Self::Deberta(DebertaConfig::read(&file)?))
            }
            _ => {
                let supported = [&Family::model_types()[..], &LlamaFamily::model_types()].concat();
                let supported = supported.iter().map(|name| format!("`{name}`"));
                let supported = supported.collect::<Vec<_>>().join(", ");
                bail!("`{}`: `model_type` is {found}, supported: {supported}", file.display())
            }
        }
    }

    pub(crate) fn llama_2_7b() -> lrvd_models::Result<Self> {
        let config = include_bytes!("published/llama-2-7b.json");
        LlamaConfig::parse(config, Path::new("Llama-2-7B")).map(Self::Llama)
    }

    pub(crate) fn deberta_v3_base() -> lrvd_models::Result<Self> {
        let config = include_bytes!("published/deberta-v3-base.json");
        DebertaConfig::parse(config, Path::new("DeBERTa-v3-base")).map(Self::Deberta)
    }

    /// The weights of a folder or of a GGUF file, under the names of a model with a head.
    pub(crate) fn open_weights(&self, model: &Path) -> Result<WeightStore> {
        Ok(match self {
            Self::Deberta(config) => config.open_weights(model)?,
            Self::Llama(_) if GgufModel::is_at(model) => GgufModel::open(model)?.weights()?,
            Self::Llama(_) => LlamaConfig::open_weights(model)?,
        })
    }

    /// Paths of the layer before the classifier and of the classifier, which has one row for each class or number.
    pub(crate) fn head(&self) -> [&'static str; 2] {
        match self {
            Self::Deberta(config) => config.family.head(),
            Self::Llama(_) => ["score"; 2],
        }
    }

    pub(crate) fn unrecognised(&self) -> &[String] {
        match self {
            Self::Deberta(config) => &config.unrecognised,
            Self::Llama(config) => &config.unrecognised,
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        macro_rules! sizes {
            ($config:expr) => {
                Sizes {
                    layers: $config.num_hidden_layers,
                    hidden: $config.hidden_size,
                    intermediate: $config.intermediate_size,
                    heads: $config.num_attention_heads,
                    vocab: $config.vocab_size,
                    positions: $config.max_position_embeddings,
                }
            };
        }
        match self {
            Self::Deberta(config) => Sizes {
                positions: config.positions().unwrap_or(config.max_position_embeddings),
                ..sizes!(config)
            },
            Self::Llama(config) => sizes!(config),
        }
    }

    /// Wording by which this kind of model is asked for the classes of `goal`; `None` where a head answers.
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

    /// Decides what a model of this kind answers to rows like those of `data`, and the layout in which it reads them. Typed
    /// questions are answered by their options; an encoder answers the one question that all rows have. A language model that
    /// reads the last token (`pooling`) has a head for classes and labels, as an encoder.
    pub(crate) fn resolve(
        &self,
        data: &mut Dataset,
        given: &WordingSettings,
        pooling: Pooling,
    ) -> Result<InputLayout> {
        let form = self.input_form();
        if let (Self::Llama(_), Pooling::Last) = (self, pooling) {
            return last_token(data, given);
        }
        let Labelled { goal, columns, .. } = &mut data.kind;
        let has_own = columns.as_ref().is_some_and(|columns| columns.questions.is_some());
        if let AnswerSpace::Questions { usual, .. } = &mut goal.answers {
            match (form, usual.take()) {
                (InputForm::Decoder, question) => *usual = question.filter(|_| !has_own),
                (InputForm::Encoder, Some(question)) => {
                    goal.answers = AnswerSpace::Question { question };
                }
                (InputForm::Encoder, None) => bail!(
                    "the rows of `{}` ask several questions, and an encoder answers one: train a language model, or an \
                     encoder for each question on a file of its own",
                    data.name
                ),
            }
        }
        if let (AnswerSpace::Labels { .. }, InputForm::Decoder) = (&data.kind.goal.answers, form) {
            bail!(
                "the rows of `{}` have several labels, which a head answers: train an encoder, or give the language model a head \
                 that reads its last token (`--set pooling=last`)",
                data.name
            );
        }
        if !matches!(
            data.kind.goal.answers,
            AnswerSpace::Choice { .. } | AnswerSpace::Questions { .. }
        ) {
            let goal = &data.kind.goal;
            let pairs = data.pairs();
            let wording = self.wording(given, goal, data.kind.task, pairs)?;
            return Ok(wording.map_or(InputLayout::Segments, InputLayout::Prompt));
        }
        let words = WordingSettings { readout: None, ..given.clone() };
        let readout = match (words.given(), given.readout, form) {
            (Some(key), ..) => bail!(
                "`{key}` is the prompt of a question for a class; a question with choices has another prompt and \
                 is answered by one of them"
            ),
            (None, Some(_), InputForm::Encoder) => bail!(
                "`wording.readout` says how a language model answers, and the model is an encoder with a class for each \
                 letter"
            ),
            (None, None, InputForm::Encoder) => Readout::Head,
            (None, readout, InputForm::Decoder) => readout.unwrap_or_default(),
        };
        if form == InputForm::Decoder && !Readout::OF_OPTIONS.contains(&readout) {
            bail!("`wording.readout` is `{}`, expected `letters` or `options`", readout.name());
        }
        Ok(InputLayout::Question(QuestionForm::own(readout)))
    }

    /// The most tokens of a text, for a model with a vector for every position; `None` where only distances count.
    pub(crate) fn positions(&self) -> Option<usize> {
        match self {
            Self::Deberta(config) => config.positions(),
            Self::Llama(_) => None,
        }
    }

    pub(crate) fn check_length(&self, max_length: usize) -> Result<()> {
        match self.positions() {
            Some(most) if most < max_length => Err(anyhow!(
                "`max_length` is {max_length}, but the model has positions for {most} tokens: set `--max-length \
                 {most}` or less"
            )),
            _ => Ok(()),
        }
    }

    /// Reader of rows in this `layout` for the answers of `goal`.
    pub(crate) fn reader<'a>(
        &self,
        tokenizer: &'a TextTokenizer,
        goal: &'a Goal,
        layout: &'a InputLayout,
        max_length: usize,
    ) -> Result<TextReader<'a>> {
        self.check_length(max_length)?;
        match (self, layout) {
            (_, InputLayout::Question(form)) => {
                let labels = &LETTERS[..goal.answers.width().min(LETTERS.len())];
                TextReader::questions(tokenizer, self.input_form(), *form, labels, true, max_length)
            }
            (Self::Deberta(_), _) | (Self::Llama(_), InputLayout::Segments) => {
                Ok(TextReader::segments(tokenizer, max_length))
            }
            (Self::Llama(_), InputLayout::Prompt(wording)) => {
                TextReader::words(wording, &goal.name, tokenizer, max_length)
            }
            (Self::Llama(_), _) => Err(anyhow!(
                "classifier `{}` does not say in which words a language model is asked",
                goal.name
            )),
        }
    }

    /// Questions of a task in the form that this kind of model reads, to be answered by `labels`.
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

    pub(crate) fn input_form(&self) -> InputForm {
        match self {
            Self::Deberta(_) => InputForm::Encoder,
            Self::Llama(_) => InputForm::Decoder,
        }
    }

    /// Number of parameters, without a head that training adds.
    pub(crate) fn parameters(&self) -> u64 {
        let Sizes { layers, hidden, vocab, .. } = self.sizes();
        // Of a norm: weight and bias, or weight alone.
        let (bias, norms, tied, own) = match self {
            Self::Deberta(config) if config.family == Family::ModernBert => {
                (0, 2 * layers + 1, false, 0)
            }
            Self::Deberta(_) => (1, 4 * layers, false, 0),
            Self::Llama(config) => {
                let own = layers * attention_vectors(config);
                (0, 2 * layers + 1, config.tie_word_embeddings, own)
            }
        };
        let tables = match self {
            Self::Deberta(config) if config.position_biased_input => {
                config.max_position_embeddings + config.type_vocab_size
            }
            _ => 0,
        };
        let linear = self.linear_layers().into_iter();
        let linear = linear.filter(|(name, ..)| !(tied && *name == LM_HEAD));
        let linear: usize = linear.map(|(_, input, output, n)| n * (input + bias) * output).sum();
        ((vocab + tables + norms) * hidden + linear + own) as u64
    }

    /// Widths of the input and of the output of every adapted layer.
    pub(crate) fn adapted_layers(&self, targets: &TargetModules) -> Vec<[usize; 2]> {
        let targets = targets.layers();
        let layers = self.linear_layers().into_iter().filter(|(name, ..)| targets.contains(name));
        let shapes =
            layers.map(|(_, d_input, d_output, n)| std::iter::repeat_n([d_input, d_output], n));
        shapes.flatten().collect()
    }

    /// Name, features in and out, and number of the linear layers.
    fn linear_layers(&self) -> Vec<(&'static str, usize, usize, usize)> {
        let Sizes { layers: n, hidden: d, intermediate: wide, vocab, .. } = self.sizes();
        match self {
            Self::Deberta(config) => {
                let layers = config.linear_layers().into_iter();
                layers.map(|(name, [d_input, d_output])| (name, d_input, d_output, n)).collect()
            }
            Self::Llama(c) => {
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
                    (LM_HEAD, d, vocab, 1),
                ]
            }
        }
    }
}

impl ModelFacts for Architecture {
    /// The longest input of typed questions by default: 512 tokens, or fewer if the model has fewer positions.
    fn question_length(&self) -> usize {
        QUESTION_LENGTH.min(self.sizes().positions)
    }

    /// Pooling by default: the one that the folder of an encoder names.
    fn pooling(&self) -> Pooling {
        match self {
            Self::Deberta(config) => config.pooling,
            Self::Llama(config) => config.pooling,
        }
    }

    /// An encoder is not held in half precision.
    fn base_precision(&self, set: BasePrecision) -> BasePrecision {
        match (self, set) {
            (Self::Deberta(_), BasePrecision::Bf16 | BasePrecision::F16) => BasePrecision::F32,
            _ => set,
        }
    }

    /// `targets`, unless all of them are names of the other kind of model: then what is usual for this one. An encoder
    /// calls the layers that DeBERTa's names mean by its own names.
    fn target_modules(&self, targets: &TargetModules) -> TargetModules {
        let TargetModules::Names(names) = targets else { return targets.clone() };
        let (usual, other): (&[&str], &[&str]) = match self {
            Self::Deberta(config) => (&config.family.adapter_targets(), &LLAMA_LAYERS),
            Self::Llama(_) => (&LLAMA_TARGETS, &ADAPTER_TARGETS),
        };
        let foreign = |name: &String| other.contains(&name.as_str());
        if !names.is_empty() && names.iter().all(foreign) {
            return distinct(usual.iter().map(ToString::to_string));
        }
        let Self::Deberta(_) = self else { return targets.clone() };
        let own = |name: &String| {
            let at = ADAPTER_TARGETS.iter().position(|known| known == name);
            at.map_or_else(|| name.clone(), |at| usual[at].to_owned())
        };
        distinct(names.iter().map(own))
    }
}

/// The layout of a language model whose head reads the last token of a text.
fn last_token(data: &Dataset, given: &WordingSettings) -> Result<InputLayout> {
    let goal = &data.kind.goal;
    let is_asked = !matches!(
        goal.answers,
        AnswerSpace::Classes { .. } | AnswerSpace::Labels { .. } | AnswerSpace::Score
    );
    match given.given() {
        Some(key) => bail!(
            "`{key}` words the prompt of a language model, and with `pooling` = `last` a head reads the last token of the text \
             alone: `--set pooling=first` asks in words"
        ),
        None if is_asked => bail!(
            "the rows of `{}` are questions with options, and with `pooling` = `last` a head answers classes, labels or a \
             number: `--set pooling=first` asks in words",
            data.name
        ),
        None => Ok(InputLayout::Segments),
    }
}

/// Each name once: a fused layer is several of another encoder's.
fn distinct(names: impl Iterator<Item = String>) -> TargetModules {
    let mut found = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    TargetModules::Names(found)
}

/// Parameters of the biases and head norms in one block's attention.
fn attention_vectors(config: &LlamaConfig) -> usize {
    let width = config.head_dim;
    let queries_keys_values = (config.num_attention_heads + 2 * config.num_key_value_heads) * width;
    let of = |is_there: bool, n: usize| if is_there { n } else { 0 };
    of(config.attention_bias, queries_keys_values)
        + of(config.output_bias(), config.hidden_size)
        + of(config.head_norms(), 2 * width)
}

#[cfg(test)]
mod tests {
    use lrvd_burn::files::WeightStore;

    use super::*;

    #[test]
    fn an_unknown_kind_of_model_is_an_error_that_names_all_that_are_supported() {
        let folder = tempfile::tempdir().unwrap();
        for (config, found) in [(r#"{"model_type": "gpt2"}"#, "\"gpt2\""), ("{}", "null")] {
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            let error = Architecture::read(folder.path()).unwrap_err().to_string();
            let (_, message) = error.split_once("config.json`: ").unwrap();
            let supported = "`deberta-v2`, `bert`, `roberta`, `xlm-roberta`, `distilbert`, `mpnet`, `modernbert`, `llama`, `mistral`, `qwen2`, `qwen3`";
            assert_eq!(message, format!("`model_type` is {found}, supported: {supported}"));
        }
    }

    /// All that `parameters` counts is in the file: heads are tied or stored, biases and norms are there or not.
    #[test]
    fn parameters_are_those_of_the_file() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden");
        for folder in [
            "llama/gqa_theta500000_left_padded",
            "llama/attention_bias",
            "mistral/window",
            "qwen/qwen2_tied",
            "qwen/qwen3_head_dim",
            "qwen/qwen3_bias_listed_window",
            "modernbert/bare_bf16",
        ] {
            let folder = golden.join(folder);
            let store = WeightStore::open(&folder).unwrap();
            let sizes = store.names().filter_map(|name| store.shape(name));
            let stored: usize = sizes.map(|shape| shape.iter().product::<usize>()).sum();
            let counted = Architecture::read(&folder).unwrap().parameters();
            assert_eq!(counted, stored as u64, "{}", folder.display());
        }
    }
}
