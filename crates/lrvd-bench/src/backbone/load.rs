//! Where the pretrained model is, and loading it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{anyhow, bail};
use burn::tensor::{DType, Device};
use lrvd_burn::adapter::BaseBits;
use lrvd_burn::device::is_cpu;
use lrvd_burn::files::{HostTensor, WeightStore, is_dir, is_file};
use lrvd_burn::model::packed;
use lrvd_burn::ops::Packing;
use lrvd_core::noise::NoiseKey;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig, Pooling, ProblemType};
use lrvd_models::llama::gguf::GgufModel;
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm, LlamaScore};
use lrvd_models::tokenizer::TextTokenizer;
use lrvd_models::{AutoModel, Precision};

use super::architecture::Architecture;
use super::hub;
use crate::answers::AnswerSpace;
use crate::data::PreparedTask;
use crate::error::{Error, Kind, Result};
use crate::hub::{MAIN, may_be_there, named};
use crate::io::{cannot, sha256_file};
use crate::settings::{BasePrecision, Config};
use crate::task::Goal;
use crate::text::quoted;

/// File of a folder with settings of generation, beside its configuration.
pub(crate) const GENERATION_FILE: &str = "generation_config.json";

/// Files of a folder that answers depend on, beside the weights. A GGUF file holds all of that.
pub(crate) const READ_FILES: [&str; 12] = [
    "config.json",
    GENERATION_FILE,
    "tokenizer.json",
    "tokenizer.model",
    "spm.model",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
];

/// The configuration of an adapter.
const ADAPTER_CONFIG: &str = "adapter_config.json";
/// Most labels of a base's classifier that a note lists.
const SHOWN_LABELS: usize = 8;

pub(crate) struct Backbone {
    pub(crate) location: ModelLocation,
    pub(crate) architecture: Architecture,
    pub(crate) tokenizer: TextTokenizer,
    /// SHA-256 of every weight file, by file name.
    pub(crate) hashes: BTreeMap<String, String>,
    /// SHA-256 of those of [`READ_FILES`] that there are.
    pub(crate) files: BTreeMap<String, String>,
    /// `true` if the weights have a classifier.
    has_head: bool,
    /// Of a base that several adapters share: its weights, once the first of them is loaded.
    shared: Option<Mutex<Option<Held>>>,
    /// Form in which the products of an encoder read its weights.
    packing: Option<Packing>,
}

/// A model without adapters, and how its weights are held.
struct Held {
    precision: Precision,
    model: AutoModel,
}

impl Backbone {
    pub(crate) fn open(location: ModelLocation) -> Result<Self> {
        let architecture = Architecture::read(&location.folder)?;
        let tokenizer = open_tokenizer(&location.folder)?;
        tokenizer.check_vocab(architecture.sizes().vocab)?;
        check_start(&location, &architecture, &tokenizer)?;
        let store = architecture.open_weights(&location.folder)?;
        let hash = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            Ok::<_, Error>((name.into_owned(), sha256_file(file)?))
        };
        let hashes = store.files().map(hash).collect::<Result<_>>()?;
        let mut files = BTreeMap::new();
        for file in READ_FILES.map(|name| location.folder.join(name)) {
            if is_file(&file)? {
                files.extend([hash(&file)?]);
            }
        }
        let [_, classifier] = architecture.head();
        let has_head = store.contains(&format!("{classifier}.weight"));
        let (shared, packing) = (None, None);
        Ok(Self { location, architecture, tokenizer, hashes, files, has_head, shared, packing })
    }

    /// Parts of the base that a training with `config` does not use, one sentence each.
    pub(crate) fn notes(&self, config: &Config) -> Vec<String> {
        let keys = self.architecture.unrecognised();
        let keys = (!keys.is_empty())
            .then(|| format!("`config.json` keys without a meaning here: {}", quoted(keys)));
        let head = (self.has_head && !config.keep_head).then(|| match &self.architecture {
            Architecture::Deberta(config) => {
                let names = match config.id2label.as_slice() {
                    few if few.len() <= SHOWN_LABELS => format!(": {}", quoted(few)),
                    _ => String::new(),
                };
                format!(
                    "the base's classifier ({} labels{names}) is not used, a new one is trained; `--keep-head` keeps one \
                     whose labels are those of the data",
                    config.num_labels()
                )
            }
            Architecture::Llama(_) => "the base's classifier (`score.weight`) is not used".to_owned(),
        });
        keys.into_iter().chain(head).collect()
    }

    /// The head of a training: a new one, or with `keep_head` the base's, whose labels must be those of `goal`.
    pub(crate) fn head_of(&self, config: &Config, goal: &Goal) -> Result<Head<'static>> {
        if !config.keep_head {
            return Ok(Head::New);
        }
        let what = "`--keep-head`";
        if !self.has_head {
            return Err(self.unfit(what, "needs a base with a classifier, and this one has none"));
        }
        let classes = goal.answers.names();
        let labels = match &self.architecture {
            Architecture::Llama(_) if goal.answers == AnswerSpace::Score => {
                return Ok(Head::Kept(vec![0]));
            }
            Architecture::Llama(_) => {
                return Err(self.unfit(
                    what,
                    "is for an encoder or a number: a language model answers by words, or by a new head",
                ));
            }
            Architecture::Deberta(encoder) => encoder.id2label.as_slice(),
        };
        let is_of_labels = matches!(goal.answers, AnswerSpace::Labels { .. });
        let encoder = self.encoder_for(what)?;
        if !is_of_labels {
            self.answering_encoder(what)?;
        } else if encoder.problem() != ProblemType::MultiLabel {
            return Err(self.unfit(
                what,
                "needs a head of several labels (`multi_label_classification` in `config.json`)",
            ));
        }
        if config.pooling != encoder.classifier_pooling {
            let why = match encoder.classifier_pooling {
                Pooling::PooledMean => {
                    "needs a head that reads the mean through the pooler (`pooling=pooled-mean`)"
                }
                _ => "needs a head that reads the first token (`pooling=first`)",
            };
            return Err(self.unfit(what, why));
        }
        if goal.answers == AnswerSpace::Score && encoder.problem() == ProblemType::Regression {
            return Ok(Head::Kept(vec![0]));
        }
        let place = |class: &String| labels.iter().position(|label| label == class);
        let order: Option<Vec<usize>> = classes.iter().map(place).collect();
        match order.filter(|order| order.len() == labels.len() && !order.is_empty()) {
            Some(order) => Ok(Head::Kept(order)),
            None => {
                let found = match classes.as_slice() {
                    [] => "a number".to_owned(),
                    classes => quoted(classes),
                };
                let why = format!(
                    "needs the labels of the data: the base has {}, the data {found}",
                    quoted(labels)
                );
                Err(self.unfit(what, &why))
            }
        }
    }

    /// The encoder, if its head gives answers of a supported kind.
    pub(crate) fn answering_encoder(&self, what: &str) -> Result<&DebertaConfig> {
        let encoder = self.encoder_for(what)?;
        let n = encoder.num_labels();
        match encoder.problem() {
            ProblemType::Regression if n != 1 => Err(self.unfit(
                what,
                &format!("needs a head that gives a class or one number, and `config.json` says regression of {n} numbers"),
            )),
            ProblemType::MultiLabel => Err(self.unfit(
                what,
                "needs a head that gives one class or number, and `config.json` says `multi_label_classification`",
            )),
            _ => Ok(encoder),
        }
    }

    /// The same, with an encoder whose products read its weights in the form of `packing`.
    pub(crate) fn packed(self, packing: Option<Packing>) -> Result<Self> {
        #[cfg(feature = "int8")]
        if packing == Some(Packing::Integer)
            && let Architecture::Llama(_) = self.architecture
        {
            return Err(self.unfit("`--int8`", "is for encoders, and this is a language model"));
        }
        Ok(Self { packing, ..self })
    }

    /// `model`, an encoder, in the form that was asked for.
    fn pack(
        &self,
        model: DebertaClassifier,
        device: &Device,
        precision: Precision,
    ) -> Result<DebertaClassifier> {
        let fits = is_cpu(device) && precision == DType::F32.into();
        match self.packing {
            #[cfg(feature = "int8")]
            Some(Packing::Integer) if !fits => {
                Err(self.unfit("`--int8`", "is for an encoder in single precision on the CPU"))
            }
            Some(packing) if fits => Ok(packed(&model, packing)),
            _ => Ok(model),
        }
    }

    /// This source for several adapters: the models that are loaded from it share the memory of its weights.
    pub(crate) fn shared(self) -> Self {
        Self { shared: Some(Mutex::default()), ..self }
    }

    /// The model that is in memory, if one is to be shared.
    fn held(&self, precision: Precision) -> Result<Option<AutoModel>> {
        let Some(shared) = &self.shared else { return Ok(None) };
        let held = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            None => Ok(None),
            Some(held) if held.precision == precision => Ok(Some(held.model.clone())),
            Some(held) => {
                let why = format!(
                    "is held with `base_precision` = `{}`, and the adapter was trained with `{}`",
                    setting(held.precision),
                    setting(precision)
                );
                Err(Kind::OtherBase.mark(self.unfit("the shared base", &why)))
            }
        }
    }

    /// Shares the memory of `model` from now on. A language model with its head takes the place of one without.
    fn hold(&self, precision: Precision, model: &AutoModel) {
        let Some(shared) = &self.shared else { return };
        let mut held = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let is_more = |held: &Held| {
            matches!((&held.model, model), (AutoModel::LlamaScore(_), AutoModel::Llama(_)))
        };
        if held.as_ref().is_none_or(is_more) {
            *held = Some(Held { precision, model: model.clone() });
        }
    }

    /// The weight files that are not those of `hashes`, in words; empty if all are.
    pub(crate) fn other_files(&self, hashes: &BTreeMap<String, String>) -> String {
        let differ = |(name, hash): &(&String, &String)| self.hashes.get(*name) != Some(*hash);
        let known = hashes.iter().filter(differ).map(|(name, _)| name);
        let new = self.hashes.keys().filter(|name| !hashes.contains_key(*name));
        quoted(known.chain(new))
    }

    pub(crate) fn decoder_for(&self, what: &str) -> Result<&LlamaConfig> {
        match &self.architecture {
            Architecture::Llama(config) => Ok(config),
            Architecture::Deberta(_) => {
                Err(self.unfit(what, "needs a language model, and this is an encoder"))
            }
        }
    }

    /// Input of a regression on the frozen encoder: that of the embeddings by the folder, without an entry the mean over all tokens.
    pub(crate) fn embedding_pooling(&self) -> Result<Pooling> {
        Ok(Pooling::of_embedding(&self.location.folder)?.unwrap_or(Pooling::Mean))
    }

    pub(crate) fn encoder_for(&self, what: &str) -> Result<&DebertaConfig> {
        match &self.architecture {
            Architecture::Deberta(config) => Ok(config),
            Architecture::Llama(_) => {
                Err(self
                    .unfit(what, "needs an encoder (DeBERTa, BERT), and this is a language model"))
            }
        }
    }

    /// The weights, without those of the base's head that another one takes the place of.
    fn open_weights(&self, head: &Head<'_>) -> Result<WeightStore> {
        let store = self.architecture.open_weights(&self.location.folder)?;
        let own = self.architecture.head();
        let is_of = |name: &str, path: &str| {
            name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
        };
        let kept = store.map(|name, _| {
            let same = Some((name.to_owned(), None));
            match head {
                Head::New if is_of(name, own[1]) => None,
                Head::Kept(order) if is_of(name, own[1]) => {
                    Some((name.to_owned(), Some(order.clone())))
                }
                Head::Adapters(saved) if saved.contains_key(name) => {
                    same.filter(|_| !own.iter().any(|path| is_of(name, path)))
                }
                _ => same,
            }
        });
        Ok(kept?)
    }

    fn unfit(&self, what: &str, why: &str) -> Error {
        anyhow!("model `{}`: {what} {why}", self.location.name)
    }

    /// Precision of the weights of this kind of model.
    pub(crate) fn stored_as(&self, precision: BasePrecision) -> Result<Precision> {
        match (&self.architecture, precision) {
            (Architecture::Deberta(_), BasePrecision::Bf16 | BasePrecision::F16) => {
                Err(self
                    .unfit("an encoder", "is held in single precision, or quantised: set `base_precision` to `f32`, `q8` or `q4`"))
            }
            _ => Ok(precision.precision()),
        }
    }

    fn config_for(
        encoder: &DebertaConfig,
        labels: usize,
        pooling: Pooling,
        dropout: bool,
    ) -> DebertaConfig {
        let names = (0..labels).map(|i| format!("LABEL_{i}")).collect();
        let mut config = DebertaConfig { pooling, ..encoder.clone().with_labels(names) };
        if !dropout {
            config.hidden_dropout_prob = 0.0;
            config.attention_probs_dropout_prob = 0.0;
            config.pooler_dropout = 0.0;
            config.cls_dropout = 0.0;
        }
        config
    }
}

/// Origin of a model's classifier.
pub(crate) enum Head<'a> {
    /// New: the base's answers another question. The layer before it is kept where the base has it.
    New,
    /// The base's, whose row of class `i` is number `order[i]`.
    Kept(Vec<usize>),
    /// These parameters of an adapter, and the base's where the adapter has none.
    Adapters(&'a BTreeMap<String, HostTensor>),
}

/// The value of `base_precision` that holds weights so.
fn setting(Precision { dtype, bits }: Precision) -> &'static str {
    match (bits, dtype) {
        (Some(BaseBits::Q8), _) => "q8",
        (Some(BaseBits::Q4), _) => "q4",
        (None, DType::BF16) => "bf16",
        (None, DType::F16) => "f16",
        (None, _) => "f32",
    }
}

pub(crate) fn open_tokenizer(model: &Path) -> Result<TextTokenizer> {
    if GgufModel::is_at(model) {
        return Ok(GgufModel::open(model)?.tokenizer()?);
    }
    Ok(TextTokenizer::from_dir(model)?)
}

/// Rejects a tokenizer that starts texts with another id than the decoder was trained with.
fn check_start(
    location: &ModelLocation,
    architecture: &Architecture,
    tokenizer: &TextTokenizer,
) -> Result<()> {
    let Architecture::Llama(config) = architecture else { return Ok(()) };
    if let Some((found, expected)) = tokenizer.special_tokens().bos.zip(config.bos_token_id)
        && found != expected
    {
        bail!(
            "model `{model}`: the tokenizer starts a text with id {found}, `config.json` with {expected}: it is \
             another model's",
            model = location.name
        );
    }
    Ok(())
}

/// Rejects a tokenizer that ends texts with another id than the decoder was trained with, which matters to texts that are
/// generated or learnt.
pub(crate) fn check_end(
    location: &ModelLocation,
    architecture: &Architecture,
    tokenizer: &TextTokenizer,
) -> Result<()> {
    let Architecture::Llama(LlamaConfig { eos_token_ids: ends, .. }) = architecture else {
        return Ok(());
    };
    match tokenizer.special_tokens().eos {
        Some(found) if !ends.is_empty() && !ends.contains(&found) => {
            let name = tokenizer.token(found)?;
            let expected = ends.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ");
            let all =
                ends.iter().chain([&found]).map(u32::to_string).collect::<Vec<_>>().join(", ");
            bail!(
                "model `{model}`: the tokenizer ends a text with `{name}` (id {found}), `config.json` with id {expected}: to \
                 choose, set `eos_token` in `tokenizer_config.json`, or name all that end a text in `{GENERATION_FILE}` \
                 (`{{\"eos_token_id\": [{all}]}}`)",
                model = location.name
            );
        }
        _ => Ok(()),
    }
}

fn undropped(config: &LlamaConfig, dropout: bool) -> LlamaConfig {
    let mut config = config.clone();
    if !dropout {
        config.attention_dropout = 0.0;
    }
    config
}

pub(crate) fn load_language_model(
    backbone: &Backbone,
    dropout: bool,
    device: &Device,
    precision: Precision,
) -> Result<LlamaForCausalLm> {
    let config = undropped(backbone.decoder_for("language modelling")?, dropout);
    let held = match backbone.held(precision)? {
        Some(AutoModel::Llama(model)) => return Ok(model),
        held => held,
    };
    let store = backbone.open_weights(&Head::New)?;
    if backbone.has_head && !config.tie_word_embeddings && !store.contains("lm_head.weight") {
        return Err(backbone.unfit(
            "a language model",
            "needs a head over the vocabulary (`lm_head.weight`), and this one has a classifier (`score.weight`) in its \
             place: name the model that it was made of",
        ));
    }
    let (model, _) = match held.as_ref().and_then(AutoModel::decoder) {
        Some(decoder) => {
            LlamaForCausalLm::with_decoder(decoder.clone(), &store, device, precision)?
        }
        None => LlamaForCausalLm::from_pretrained(&store, &config, device, precision)?,
    };
    backbone.hold(precision, &AutoModel::Llama(model.clone()));
    Ok(model)
}

/// A model that answers `task`, and the names of the parameters that the checkpoint did not have.
/// Values that `head` leaves out of the checkpoint come from `seed`. A language model answers by the logits of the
/// task's answer tokens, a number, and with the pooling of the last token classes and labels, by a head like an encoder's, and
/// texts by the logits of every next token.
pub(crate) fn load_model(
    backbone: &Backbone,
    task: &PreparedTask,
    (pooling, head): (Pooling, &Head<'_>),
    dropout: bool,
    seed: u64,
    device: &Device,
    precision: Precision,
) -> Result<(AutoModel, Vec<String>)> {
    let store = backbone.open_weights(head)?;
    let seed = NoiseKey::new(seed);
    let held = backbone.held(precision)?;
    let (model, report) = match &backbone.architecture {
        Architecture::Deberta(_) if pooling == Pooling::Last => {
            return Err(backbone.unfit(
                "`pooling` = `last`",
                "is for language models, and this is an encoder: set `pooling` to `first` or `mean`",
            ));
        }
        Architecture::Deberta(encoder)
            if pooling == Pooling::PooledMean && !encoder.family.reads_mean() =>
        {
            return Err(backbone.unfit(
                "`pooling` = `pooled-mean`",
                "is for a ModernBERT, whose pooler reads a mean: set `pooling` to `first` or `mean`",
            ));
        }
        Architecture::Deberta(encoder) if task.goal.answers != AnswerSpace::Tokens => {
            let config = Backbone::config_for(encoder, task.labels, pooling, dropout);
            let (model, report) = match held {
                Some(AutoModel::Deberta(held)) => {
                    held.with_head(&store, &config, seed, device, precision)?
                }
                _ => {
                    let (model, report) = DebertaClassifier::from_pretrained(
                        &store, &config, seed, device, precision,
                    )?;
                    (backbone.pack(model, device, precision)?, report)
                }
            };
            (AutoModel::Deberta(model), report)
        }
        Architecture::Llama(_) if pooling.is_bare() || pooling == Pooling::PooledMean => {
            return Err(backbone.unfit(
                &format!("`pooling` = `{}`", pooling.name()),
                "is for encoders, and this is a language model",
            ));
        }
        Architecture::Llama(config) if task.has_decoder_head(pooling) => {
            let config = undropped(config, dropout);
            let labels = task.labels;
            let (model, report) = match held.as_ref().and_then(AutoModel::decoder) {
                Some(held) => {
                    let decoder = held.clone();
                    LlamaScore::with_decoder(decoder, &store, labels, seed, device, precision)?
                }
                None => {
                    LlamaScore::from_pretrained(&store, &config, labels, seed, device, precision)?
                }
            };
            (AutoModel::LlamaScore(model), report)
        }
        _ => {
            let model = load_language_model(backbone, dropout, device, precision)?;
            let model = if task.answers.is_empty() {
                model
            } else {
                model.answering(task.answers.clone())?
            };
            return Ok((AutoModel::Llama(model), Vec::new()));
        }
    };
    backbone.hold(precision, &model);
    Ok((model, report.fresh))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelLocation {
    pub(crate) name: String,
    /// The folder, or the one GGUF file that holds all of it.
    pub(crate) folder: PathBuf,
    /// Remark on files that may be missing in the hub's cache.
    pub(crate) note: Option<String>,
}

impl ModelLocation {
    pub(crate) fn of_folder(folder: &Path) -> Self {
        Self { name: folder.display().to_string(), folder: folder.to_owned(), note: None }
    }

    /// A name that still finds the model from another working directory.
    pub(crate) fn lasting_name(&self) -> String {
        // A repository keeps its name: where its files lie is the cache's business.
        if named(&self.name).is_some() && !may_be_there(&self.name) {
            return self.name.clone();
        }
        let folder = self.folder.canonicalize();
        folder.unwrap_or_else(|_| self.folder.clone()).display().to_string()
    }
}

/// `true` if `name` is the id of a repository with its owner, and not a place on this machine. A name without an owner may be
/// the last part of a path.
pub(crate) fn is_hub_id(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.@".contains(c);
    let is_owned = named(name).is_some_and(|(id, _)| id.contains('/'));
    is_owned && name.chars().all(plain) && !may_be_there(name)
}

/// The name of a model without the revision of a repository, and the revision.
pub(crate) fn split_revision(name: &str) -> (&str, Option<&str>) {
    match named(name) {
        Some(found) if !may_be_there(name) => found,
        _ => (name, None),
    }
}

/// The name of a base model for files that leave this machine: the id of a repository as it is, of a path its last part.
pub(crate) fn shared_name(name: &str) -> &str {
    let last = || name.rsplit(['/', '\\']).find(|part| !part.is_empty());
    if is_hub_id(name) { name } else { last().unwrap_or(name) }
}

/// Finds a folder, a GGUF file, or a repository (`owner/name`, `name`, either with `@REVISION`) in the cache or, unless
/// offline, on the Hub.
pub(crate) fn locate_model(model: &str) -> Result<ModelLocation> {
    locate(model, hub::snapshot)
}

pub(crate) fn locate_config(model: &str) -> Result<ModelLocation> {
    locate(model, hub::config)
}

fn locate(
    model: &str,
    from_hub: impl Fn(&str, &str) -> Result<(PathBuf, Option<String>)>,
) -> Result<ModelLocation> {
    let path = Path::new(model);
    let has = |file: &str| is_file(&path.join(file));
    if !has("config.json")? && (has(ADAPTER_CONFIG)? || has("adapter/adapter_config.json")?) {
        bail!(
            "model `{model}`: this is an adapter (`{ADAPTER_CONFIG}`), and a model is needed: pass the base that the adapter \
             was trained on, or to continue from it a merged model (`lrvd export --to merged {model} --out FOLDER`, or where its \
             head reads the mean or the first token `--to sentence-transformers`)"
        );
    }
    let name = model.to_owned();
    if let Some(folder) = local(path)? {
        return Ok(ModelLocation { name, folder, note: None });
    }
    let Some((id, revision)) = named(model) else {
        bail!(
            "model `{model}`: no such folder or `.gguf` file, and not a repository id of the form `owner/name`"
        );
    };
    let (folder, note) = from_hub(id, revision.unwrap_or(MAIN))?;
    Ok(ModelLocation { name, folder, note })
}

/// The folder or GGUF file at `path`. A folder without `config.json` that holds one GGUF file is that file.
pub(crate) fn local(path: &Path) -> Result<Option<PathBuf>> {
    if GgufModel::is_at(path) {
        return Ok(Some(path.to_owned()));
    }
    if !is_dir(path)? {
        return Ok(None);
    }
    if is_file(&path.join("config.json"))? {
        return Ok(Some(path.to_owned()));
    }
    let entries = std::fs::read_dir(path).map_err(cannot("list", path))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|file| GgufModel::is_at(file)).collect();
    files.sort();
    match files.as_slice() {
        [] => Ok(Some(path.to_owned())),
        [file] => Ok(Some(file.clone())),
        _ => Err(anyhow!(
            "model `{model}`: the folder has no `config.json` and more than one GGUF file: name one of {}",
            quoted(files.iter().map(|file| file.display().to_string())),
            model = path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shipped encoder with a classifier of three labels, whose row `i` is `i` everywhere.
    #[cfg(feature = "flex")]
    #[test]
    fn the_classifier_of_a_base_is_kept_in_the_order_of_the_data_or_not_at_all() {
        use lrvd_burn::files::write_safetensors;
        use lrvd_burn::model::NamedModule as _;

        let nano = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/deberta-v3-nano");
        let base = tempfile::tempdir().unwrap();
        for file in READ_FILES.map(|name| nano.join(name)).iter().filter(|file| file.is_file()) {
            std::fs::copy(file, base.path().join(file.file_name().unwrap())).unwrap();
        }
        let mut tensors = WeightStore::open(&nano).unwrap().read_all().unwrap();
        let file = base.path().join("config.json");
        let mut config: serde_json::Value = crate::io::read_json(&file).unwrap();
        let width = config["hidden_size"].as_u64().unwrap() as usize;
        let rows: Vec<f32> = (0..3 * width).map(|i| (i / width) as f32).collect();
        let mut put = |name: &str, shape: &[usize], values: &[f32]| {
            tensors.insert(name.to_owned(), HostTensor::from_f32(shape, values).unwrap());
        };
        put("classifier.weight", &[3, width], &rows);
        put("classifier.bias", &[3], &[0.0, 1.0, 2.0]);
        write_safetensors(base.path().join("model.safetensors"), &tensors, &BTreeMap::new())
            .unwrap();
        config["id2label"] = serde_json::json!({"0": "zeta", "1": "bad", "2": "good"});
        std::fs::write(&file, config.to_string()).unwrap();

        let backbone = Backbone::open(ModelLocation::of_folder(base.path())).unwrap();
        let keep = Config { keep_head: true, ..Config::default() };
        let new = Config::default();
        let goal = |classes: &[&str]| {
            Goal::classification("c", classes.iter().map(|&class| class.to_owned()).collect())
        };
        let load = |config: &Config, goal: Goal| {
            let head = backbone.head_of(config, &goal)?;
            let task = PreparedTask::without_examples(goal);
            let device = Device::flex();
            let of = (Pooling::First, &head);
            load_model(&backbone, &task, of, false, 3, &device, DType::F32.into())
        };
        let bias = |model: &AutoModel| {
            let mut found = Vec::new();
            model.visit_parameters(&mut |p| {
                if p.name == "classifier.bias" {
                    found = p.value.flat().into_data().iter::<f32>().collect();
                }
            });
            found
        };
        let all = ["bad", "good", "zeta"];
        let (model, _) = load(&keep, goal(&all)).unwrap();
        assert_eq!(bias(&model), [1.0, 2.0, 0.0]);
        for classes in [&all[..], &all[..2]] {
            let (model, fresh) = load(&new, goal(classes)).unwrap();
            assert!(fresh.iter().any(|name| name == "classifier.weight"), "{fresh:?}");
            assert_eq!(bias(&model), vec![0.0; classes.len()]);
        }
        for classes in [&all[..2], &["bad", "good", "eta"]] {
            let error = load(&keep, goal(classes)).unwrap_err().to_string();
            assert!(
                error.contains("the base has `zeta`, `bad`, `good`, the data `bad`"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_repository_has_an_owner_or_none_and_may_have_a_revision() {
        let found = |name| named(name);
        assert_eq!(found("gpt2"), Some(("gpt2", None)));
        assert_eq!(found("bert-base-uncased@v1.0"), Some(("bert-base-uncased", Some("v1.0"))));
        assert_eq!(found("a/b@refs/pr/3"), Some(("a/b", Some("refs/pr/3"))));
        for path in
            ["", "/", "a/", "./a", "../a", "a/b/c", "/a/b", "C:\\nano", "m.gguf", ".", "a b"]
        {
            assert_eq!(found(path), None, "{path}");
        }
        assert_eq!(split_revision("a/b@v1"), ("a/b", Some("v1")));
        assert_eq!(split_revision("/srv/models/b@v1"), ("/srv/models/b@v1", None));
        assert!(is_hub_id("a/b@v1") && is_hub_id("a/b") && !is_hub_id("gpt2"));
    }

    /// A loop of links stands for a folder that may not be searched.
    #[cfg(unix)]
    #[test]
    fn a_place_that_cannot_be_seen_is_not_asked_of_the_hub() {
        let folder = tempfile::tempdir().unwrap();
        let looped = folder.path().join("loop");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        let name = looped.join("base").display().to_string();
        let found = locate(&name, |_, _| panic!("asked of the hub"));
        let error = found.unwrap_err().to_string();
        assert!(error.starts_with("cannot look at `"), "{error}");
        assert!(may_be_there(&name) && split_revision(&name) == (&*name, None));
    }

    #[test]
    fn a_shared_name_has_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("nano").display().to_string();
        for (name, shared) in [
            ("microsoft/deberta-v3-base", "microsoft/deberta-v3-base"),
            ("bert-base-uncased", "bert-base-uncased"),
            ("/srv/me/models/nano/", "nano"),
            ("./models/nano", "nano"),
            ("../nano", "nano"),
            ("C:\\models\\nano.gguf", "nano.gguf"),
            (local.as_str(), "nano"),
            ("/", "/"),
        ] {
            assert_eq!(shared_name(name), shared, "{name}");
        }
    }
}
