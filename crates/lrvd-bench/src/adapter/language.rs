//! A language model that was trained on texts, or none: its measurement, and continuation of texts with what the model thinks of
//! every token.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use burn::module::Module as _;
use burn::tensor::{DType, Device};
use lrvd_burn::files::is_file;
use lrvd_burn::parameters::values;
use lrvd_burn::sampling::Pass;
use lrvd_burn::sampling::{Draws, check_seed};
use lrvd_burn::train::{Inputs, token_answers};
use lrvd_models::TokenBatch;
use lrvd_models::chat::ChatTemplate;
use lrvd_models::llama::{
    GenerateOptions, GeneratedText, GeneratedToken, LlamaForCausalLm, TokenSampling,
};
use lrvd_models::tokenizer::{TextStream, TextTokenizer};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::description::Description;
use super::evaluate::{Evaluation, with_mean};
use super::open::{Adapter, OpenOptions};
use super::saved::SavedModel;
use crate::answers::AnswerSpace;
use crate::backbone::{
    Backbone, GENERATION_FILE, ModelLocation, check_end, load_language_model, locate_model,
};
use crate::data::{Content, LanguageColumns, PreparedTask, TextRow};
use crate::error::{Kind, Result};
use crate::eval::score_tokens;
use crate::io::read_unique;
use crate::language::{LanguageReader, encoded, places};
use crate::method::LabelThresholds;
use crate::settings::BasePrecision;
use crate::task::Goal;
use crate::unused::Unused;

const TASK_TYPE: &str = "CAUSAL_LM";
const BATCH_SIZE: usize = 8;

pub const NEW_TOKENS: usize = 128;

/// Length and token selection of a continuation, and the numbers that are returned with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    pub max_tokens: usize,
    /// Temperature and the share of probability that is kept; `None` takes the most likely token.
    pub sampling: Option<(f64, f64)>,
    /// Texts that end a continuation, which is cut before the first of them. None of them is empty.
    pub stop: Vec<String>,
    /// Number of alternatives that every token is [scored](ScoredToken) with; `None` for tokens without a name.
    pub scored: Option<usize>,
    /// `true` if the tokens of the prompt are scored, too.
    pub score_prompt: bool,
}

/// A text to continue.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// A text, or a conversation that the assistant continues.
    Content(Content),
    /// Its tokens.
    Tokens(Vec<u32>),
}

impl From<Content> for Prompt {
    fn from(content: Content) -> Self {
        Self::Content(content)
    }
}

/// Continuation of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Continuation {
    /// The texts of its tokens. Without the part of a character that the largest number of tokens may have cut off.
    pub text: String,
    pub tokens: Vec<ContinuedToken>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// `true` if the model ended the text, or one of [`Generation::stop`] did.
    pub stopped: bool,
    /// `true` if the text was cut because prompt and text fill the model's context, before the largest number of tokens.
    pub context_full: bool,
    /// Mean over the tokens, nats; null without a token.
    pub mean_log_probability: Option<f64>,
    /// The tokens of the prompt, with [`Generation::score_prompt`].
    #[serde(skip)]
    pub prompt: Vec<ScoredToken>,
    /// The token by which the model ended the text, with [`Generation::scored`].
    #[serde(skip)]
    pub end: Option<ScoredToken>,
}

/// A token with its name and its most probable alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredToken {
    /// Text that it adds to the text before it.
    pub text: String,
    /// This text, or the vocabulary's where it adds none: a special token, or a part of a character.
    pub name: String,
    /// Averaged over the draws, before temperature and truncation; `None` of the first token of a text.
    pub probability: Option<f64>,
    /// Names and probabilities of the most probable tokens at its place, the most probable one first.
    pub top: Vec<(String, f64)>,
}

/// One token of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Token")]
pub struct ContinuedToken {
    /// Text that it adds: the texts of all tokens joined are the text. Empty while a character is incomplete; the token
    /// that completes it adds the character. What may be the start of a text of [`Generation::stop`] is added by the token that
    /// shows that it is not, and by none at the end.
    pub text: String,
    pub id: u32,
    /// Averaged over the draws, before temperature and truncation.
    pub probability: f64,
    /// Of the next token, nats.
    pub entropy: f64,
    /// Between the next token and the weights, nats; null without several draws.
    pub mutual_information: Option<f64>,
    /// With [`Generation::scored`].
    #[serde(skip)]
    pub scored: Option<ScoredToken>,
}

impl Generation {
    /// The sampling that is meant by a temperature and a share: none without both, else 1 for what is not named.
    pub fn sampling(temperature: Option<f64>, top_p: Option<f64>) -> Option<(f64, f64)> {
        (temperature.is_some() || top_p.is_some())
            .then(|| (temperature.unwrap_or(1.0), top_p.unwrap_or(1.0)))
    }

    pub fn check(&self) -> Result<(), lrvd_core::Error> {
        self.token_sampling(0, 0).map_or(Ok(()), |sampling| sampling.check())
    }

    fn token_sampling(&self, seed: u64, first: usize) -> Option<TokenSampling> {
        let (temperature, top_p) = self.sampling?;
        Some(TokenSampling { temperature, top_p, seed, first })
    }
}

pub type SavedLanguageModel = SavedModel<LlamaForCausalLm, Option<Description>>;

impl SavedLanguageModel {
    /// Loads a run on texts, one of its checkpoints, or any PEFT folder of the task `CAUSAL_LM`.
    pub fn load(dir: &Path, options: &OpenOptions, device: &Device) -> Result<Self> {
        Self::on(&Adapter::open(dir, options, device)?, None, device)
    }

    /// The language model of an opened adapter; `precision` takes the place of the one that the base was held in.
    pub fn on(
        adapter: &Adapter,
        precision: Option<BasePrecision>,
        device: &Device,
    ) -> Result<Self> {
        let info = match &adapter.files.description {
            Some(info) if info.goal.answers == AnswerSpace::Tokens => Some(info.clone()),
            _ if adapter.files.peft.config.task_type.as_deref() == Some(TASK_TYPE) => {
                adapter.check_made_elsewhere()?;
                None
            }
            _ => {
                let dir = adapter.folder.display();
                return Err(anyhow!("`{dir}` holds no adapter of the task `{TASK_TYPE}`"));
            }
        };
        let (backbone, changed) = adapter.base()?;
        let usual = info.as_ref().map_or(BasePrecision::F32, |info| info.base_precision);
        let dtype = backbone.stored_as(precision.unwrap_or(usual))?;
        let model = load_language_model(&backbone, false, device, dtype)?;
        let model = model.untied_for(adapter.files.peft.saved.keys().map(String::as_str));
        let mut saved = Self::of(info, adapter, backbone, model, device)?;
        saved.model = saved.model.valid();
        saved.tokenizer = TextTokenizer::find(&adapter.folder)?;
        saved.warnings.extend(changed);
        Ok(saved)
    }

    pub fn base(name: &str, device: &Device) -> Result<Self> {
        Self::whole(locate_model(name)?, device)
    }

    pub(crate) fn whole(location: ModelLocation, device: &Device) -> Result<Self> {
        let backbone = Arc::new(Backbone::open(location.clone())?);
        let folder = location.folder;
        let dtype = backbone.stored_as(BasePrecision::F32)?;
        let model = load_language_model(&backbone, false, device, dtype)?.valid();
        Ok(Self::bare(None, &folder, backbone, model, device))
    }

    /// Draws of a measurement: those asked for, or as many as in training.
    pub fn draws(&self, asked: Option<usize>) -> Result<usize> {
        self.possible_draws(asked, self.info.as_ref().map_or(0, |info| info.run.draws))
    }

    /// Reads texts by the tokenizer and the chat template of the adapter's folder where it has them, else by those of the base.
    pub(super) fn reader(&self) -> Result<LanguageReader<'_>> {
        let Backbone { location, architecture, .. } = &*self.backbone;
        // The tokenizer of an adapter is chosen.
        if self.tokenizer.is_none() {
            check_end(location, architecture, &self.backbone.tokenizer)?;
        }
        let mut reader =
            LanguageReader::new(location, architecture, self.tokenizer(), self.max_length())?;
        if self.dir != location.folder {
            let own = ChatTemplate::from_dir(&self.dir, self.tokenizer())?;
            reader.chat = own.or(reader.chat);
        }
        Ok(reader)
    }

    fn tokenizer(&self) -> &TextTokenizer {
        self.tokenizer.as_ref().unwrap_or(&self.backbone.tokenizer)
    }

    fn max_length(&self) -> usize {
        let own = self.info.as_ref().map(|info| info.run.max_length);
        self.max_length.or(own).unwrap_or_else(|| self.context())
    }

    pub fn has_chat(&self) -> Result<bool> {
        Ok(self.reader()?.chat.is_some())
    }

    /// Settings of generation that the model's folder states and that are not used: a continuation takes the most likely token, or
    /// samples by the options of the call.
    pub fn unused(&self) -> Result<Unused> {
        let mut unused = Unused::default();
        let base = &self.backbone.location.folder;
        let own = (self.dir != *base).then_some(&self.dir);
        for folder in own.into_iter().chain([base]) {
            let file = folder.join(GENERATION_FILE);
            if is_file(&file)? {
                let settings = read_unique(&file)?;
                let keys = unused_settings(&settings);
                unused.add_names("key", &keys, format_args!("`{}`", file.display()));
            }
        }
        Ok(unused)
    }

    /// Tokens that a prompt and its continuation may have together.
    pub fn context(&self) -> usize {
        self.model.config().max_position_embeddings
    }

    pub fn columns(&self) -> Option<&LanguageColumns> {
        self.info.as_ref()?.columns.as_ref()?.texts()
    }

    pub fn seed(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.run.seed)
    }

    pub(crate) fn mean_logits(&self, texts: &[&str]) -> Result<Vec<f64>> {
        let reader = self.reader()?;
        let mut logits = Vec::new();
        for &text in texts {
            let ids =
                reader.prompt(&Content::Text { prompt: text.to_owned(), completion: None })?;
            let ids = &ids[..ids.len().min(self.context())];
            let batch = TokenBatch::padded(&[(ids, &[])], 0, &self.device, DType::F32);
            let all = values(self.model.forward(&batch, &Pass::mean()));
            logits.extend(all.iter().skip(all.len() / ids.len() * (ids.len() - 1)));
        }
        Ok(logits)
    }

    /// Metrics at the mean and, unless that is 0, at `draws` draws; and what is to be known of the rows, one sentence each.
    pub fn evaluate(
        &self,
        rows: &[TextRow],
        draws: usize,
        seed: u64,
    ) -> Result<(Evaluation, Vec<String>)> {
        let reader = self.reader()?;
        let mut notes = Vec::new();
        let batch_size = self.info.as_ref().map_or(BATCH_SIZE, |info| info.run.batch_size);
        let (validation_ids, validation): (Vec<_>, _) =
            encoded(None, rows, &reader, self.max_length(), &mut notes)?.into_iter().unzip();
        let goal = Goal::new("data", AnswerSpace::Tokens);
        let pad_id = reader.pad_id;
        let task = PreparedTask::without_examples(goal);
        let validation_places = places(rows, &validation_ids);
        let task = PreparedTask { validation, validation_ids, validation_places, pad_id, ..task };
        let examples = task.examples(&task.validation, &self.device);
        let scored = with_mean(draws, |count| {
            let draws = Draws { count, seed };
            let inputs = Inputs { batch_size, draws, ..Inputs::new(&examples) };
            score_tokens(token_answers(&self.model, &inputs)?, count)
        })?;
        Ok((
            Evaluation { scored, task, kinds: Vec::new(), thresholds: LabelThresholds::default() },
            notes,
        ))
    }

    /// Continues `prompts`, of which the first is number `first` among all that are asked: what is drawn for a prompt does
    /// not depend on the others. `draws` are the draws of the weights whose probabilities are averaged, 0 for the mean; `seed`
    /// addresses them, and the tokens where those are drawn.
    ///
    /// No text goes beyond the length that the model was made for. After every step `go_on` receives the tokens that the texts
    /// have more, and returns whether to continue.
    pub fn generate(
        &self,
        prompts: &[Prompt],
        first: usize,
        (draws, seed): (usize, u64),
        options: &Generation,
        go_on: &mut dyn FnMut(&[ContinuedToken]) -> bool,
    ) -> Result<Vec<Continuation>> {
        let draws = self.draws(Some(draws))?;
        let reader = self.reader()?;
        let read = |prompt: &Prompt| match prompt {
            Prompt::Content(content) => reader.prompt(content),
            Prompt::Tokens(ids) => Ok(ids.clone()),
        };
        let ids: Vec<Vec<u32>> = prompts.iter().map(read).collect::<Result<_>>()?;
        let most = self.context();
        let is_long = |ids: &Vec<u32>| ids.len() + usize::from(options.max_tokens > 0) > most;
        if let Some((place, prompt)) = ids.iter().enumerate().find(|(_, ids)| is_long(ids)) {
            let number = first + place + 1;
            let found = prompt.len();
            return Err(Kind::Input.mark(anyhow!(
                "prompt {number} has {found} tokens, and the model was trained on texts of up to {most}")));
        }
        check_seed(seed)?;
        let addressed = Draws { count: draws, seed };
        let generate = GenerateOptions {
            max_new_tokens: options.max_tokens,
            context: Some(most),
            stop: reader.stops.iter().copied().collect(),
            draws: (0..draws).map(|draw| addressed.key(draw)).collect(),
            sampling: options.token_sampling(seed, first),
            top: options.scored.unwrap_or(0),
            score_prompts: options.score_prompt,
        };
        let tokenizer = self.tokenizer();
        let start = |prompt: &Vec<u32>| Spelled::after(tokenizer, prompt);
        let mut spelled: Vec<Spelled> = ids.iter().map(start).collect::<Result<_>>()?;
        let mut failed = None;
        let texts = self.model.generate_while(&ids, &generate, &mut |tokens| {
            let mut add = |(row, token): &(usize, GeneratedToken)| {
                spelled[*row].push(tokenizer, token, draws, options)
            };
            match tokens.iter().map(&mut add).collect::<Result<Vec<_>>>() {
                Ok(added) if go_on(&added) => {
                    let is_cut = |row: &usize| spelled[*row].is_cut;
                    ControlFlow::Continue(
                        tokens.iter().map(|(row, _)| *row).filter(is_cut).collect(),
                    )
                }
                Ok(_) => ControlFlow::Break(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let texts = texts.map_err(|error| match error {
            lrvd_models::Error::Stopped => Kind::Stopped.mark(error),
            error => error.into(),
        })?;
        let continued = ids.iter().zip(spelled).zip(texts);
        let finish = |((prompt, text), found): ((&Vec<u32>, Spelled), GeneratedText)| {
            let is_full = prompt.len() + found.tokens.len() >= most
                && found.tokens.len() < options.max_tokens;
            let end = match (&found.end, options.scored) {
                (Some(end), Some(_)) => {
                    Some(ScoredToken::new(&mut text.stream.clone(), tokenizer, end.id, Some(end))?)
                }
                _ => None,
            };
            let stopped = found.end.is_some() || text.is_cut;
            let scored = if options.score_prompt {
                ScoredToken::of_prompt(tokenizer, prompt, &found.prompt)?
            } else {
                Vec::new()
            };
            let context_full = is_full && !stopped;
            let continued = text.finish(prompt.len(), stopped, context_full);
            Ok(Continuation { prompt: scored, end, ..continued })
        };
        continued.map(finish).collect()
    }
}

impl ScoredToken {
    /// The token `id` of the text that `stream` has spelled so far, which it adds to.
    fn new(
        stream: &mut TextStream,
        tokenizer: &TextTokenizer,
        id: u32,
        token: Option<&GeneratedToken>,
    ) -> Result<Self> {
        let named = |text: String, id| if text.is_empty() { tokenizer.token(id) } else { Ok(text) };
        let alternative = |&(id, probability): &(u32, f64)| {
            Ok((named(stream.clone().push(tokenizer, id)?, id)?, probability))
        };
        let top = token.iter().flat_map(|token| &token.top).map(alternative);
        let top = top.collect::<Result<_>>()?;
        let text = stream.push(tokenizer, id)?;
        let name = named(text.clone(), id)?;
        Ok(Self { text, name, probability: token.map(|token| token.probability), top })
    }

    /// The tokens of a prompt, of which the first has no probability.
    fn of_prompt(
        tokenizer: &TextTokenizer,
        prompt: &[u32],
        found: &[GeneratedToken],
    ) -> Result<Vec<Self>> {
        let mut stream = TextStream::after(tokenizer, &[])?;
        let tokens = std::iter::once(None).chain(found.iter().map(Some));
        prompt
            .iter()
            .zip(tokens)
            .map(|(&id, token)| Self::new(&mut stream, tokenizer, id, token))
            .collect()
    }
}

/// Keys of a `generation_config.json` that would change a continuation: all but those that are read, that name other tokens, or
/// that have the value of an absent key.
fn unused_settings(settings: &Value) -> Vec<&str> {
    const READ: [&str; 6] = [
        "_from_model_config",
        "transformers_version",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "use_cache",
    ];
    const ONE: [&str; 7] = [
        "temperature",
        "top_p",
        "typical_p",
        "num_beams",
        "repetition_penalty",
        "length_penalty",
        "num_return_sequences",
    ];
    let is_unset = |key: &str, value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => {
            number.as_f64() == Some(if ONE.contains(&key) { 1.0 } else { 0.0 })
        }
        _ => false,
    };
    let keys = settings.as_object().into_iter().flatten();
    keys.filter(|(key, value)| !READ.contains(&key.as_str()) && !is_unset(key, value))
        .map(|(key, _)| key.as_str())
        .collect()
}

/// A continuation while it grows.
struct Spelled {
    stream: TextStream,
    text: String,
    /// Bytes of the text that are in the texts of the tokens.
    given: usize,
    /// `true` once a text of [`Generation::stop`] has ended it.
    is_cut: bool,
    tokens: Vec<ContinuedToken>,
}

impl Spelled {
    fn after(tokenizer: &TextTokenizer, prompt: &[u32]) -> Result<Self> {
        let stream = TextStream::after(tokenizer, prompt)?;
        Ok(Self { stream, text: String::new(), given: 0, is_cut: false, tokens: Vec::new() })
    }

    fn push(
        &mut self,
        tokenizer: &TextTokenizer,
        token: &GeneratedToken,
        draws: usize,
        options: &Generation,
    ) -> Result<ContinuedToken> {
        let (piece, scored) = match options.scored {
            Some(_) => {
                let scored = ScoredToken::new(&mut self.stream, tokenizer, token.id, Some(token))?;
                (scored.text.clone(), Some(scored))
            }
            None => (self.stream.push(tokenizer, token.id)?, None),
        };
        let token = ContinuedToken {
            text: self.add(&piece, &options.stop),
            id: token.id,
            probability: token.probability,
            entropy: token.entropy,
            mutual_information: (draws > 1).then_some(token.mutual_information),
            scored,
        };
        self.tokens.push(token.clone());
        Ok(token)
    }

    /// Adds the text of a token, and returns what no later token can cut.
    fn add(&mut self, piece: &str, stop: &[String]) -> String {
        self.text.push_str(piece);
        let open = self.text.split_off(self.given);
        let cut = stop.iter().filter_map(|stop| open.find(&**stop)).min();
        self.is_cut = cut.is_some();
        let settled = cut.unwrap_or_else(|| open.len() - longest_start(&open, stop));
        let (settled, rest) = open.split_at(settled);
        self.text.push_str(settled);
        self.given = self.text.len();
        if !self.is_cut {
            self.text.push_str(rest);
        }
        settled.to_owned()
    }

    fn finish(self, prompt_tokens: usize, stopped: bool, context_full: bool) -> Continuation {
        let Self { text, tokens, .. } = self;
        let logarithms: f64 = tokens.iter().map(|token| token.probability.ln()).sum();
        Continuation {
            text,
            mean_log_probability: (!tokens.is_empty()).then(|| logarithms / tokens.len() as f64),
            tokens,
            prompt_tokens,
            stopped,
            context_full,
            prompt: Vec::new(),
            end: None,
        }
    }
}

/// Bytes of the longest end of `text` by which a text of `stop` may start.
fn longest_start(text: &str, stop: &[String]) -> usize {
    let starts = stop.iter().flat_map(|stop| stop.char_indices().map(|(at, _)| &stop[..at]));
    starts.filter(|start| text.ends_with(start)).map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Pieces, the text that each settles, and the whole text.
    #[test]
    fn a_text_is_cut_before_a_stop_and_what_may_be_its_start_is_held_back() {
        let stories = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/stories260K");
        let tokenizer = TextTokenizer::from_dir(stories.as_ref()).unwrap();
        let stop = ["\n\n", "END", "né"].map(str::to_owned);
        for (pieces, settled, text, is_cut) in [
            (&["a", "b\n", "c"][..], &["a", "b", "\nc"][..], "ab\nc", false),
            (&["a\n", "\nb"], &["a", ""], "a", true),
            (&["E", "N", "T END"], &["", "", "ENT "], "ENT ", true),
            (&["E", "EN"], &["", "E"], "EEN", false),
            (&["n", "é"], &["", ""], "", true),
            (&["nn", ""], &["n", ""], "nn", false),
            (&["b né a END"], &["b "], "b ", true),
        ] {
            let mut spelled = Spelled::after(&tokenizer, &[]).unwrap();
            let found: Vec<String> = pieces.iter().map(|piece| spelled.add(piece, &stop)).collect();
            assert_eq!(found, settled);
            assert_eq!((&*spelled.text, spelled.is_cut), (text, is_cut));
        }
    }

    /// The files of SmolLM2-135M-Instruct and Qwen2.5-0.5B-Instruct, and defaults of transformers.
    #[test]
    fn settings_that_would_change_a_text_are_named() {
        let smol = json!({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
                          "transformers_version": "4.42.3"});
        let qwen = json!({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643],
                          "pad_token_id": 151643, "repetition_penalty": 1.1, "temperature": 0.7, "top_k": 20,
                          "top_p": 0.8, "transformers_version": "4.37.0"});
        let neutral = json!({"do_sample": false, "temperature": 1.0, "top_p": 1, "num_beams": 1, "stop_strings": null,
                             "no_repeat_ngram_size": 0});
        assert_eq!(unused_settings(&smol), Vec::<&str>::new());
        let named = ["do_sample", "repetition_penalty", "temperature", "top_k", "top_p"];
        assert_eq!(unused_settings(&qwen), named);
        assert_eq!(unused_settings(&neutral), Vec::<&str>::new());
        assert_eq!(unused_settings(&json!({"stop_strings": ["###"]})), ["stop_strings"]);
    }
}
