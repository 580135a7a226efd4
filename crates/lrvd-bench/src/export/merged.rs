//! The base model with the adapter's mean multiplied in, as a Hugging Face folder.
//!
//! Every weight is `W + scaling · B · A`, summed in double precision and written in single precision, whatever the
//! base is stored or trained in. Memory holds one shard at a time.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::files::{AtomicDir, HostTensor, WeightStore, is_file, write_safetensors};
use lrvd_burn::peft::{PeftAdapter, PeftModule};
use lrvd_burn::train::DrawPolicy;
use lrvd_models::deberta::Pooling;
use lrvd_models::llama::gguf::GgufModel;
use lrvd_models::tokenizer::TextTokenizer;
use serde_json::{Value, json};

use super::card::{Card, CardFormat};
use super::differences;
use crate::adapter::{Adapter, Description, SavedClassifier, SavedLanguageModel, no_head};
use crate::answers::{AnswerSpace, Readout};
use crate::backbone::{
    Architecture, Backbone, GENERATION_FILE, ModelLocation, READ_FILES, shared_name,
};
use crate::data::Input;
use crate::error::{Kind, Result};
use crate::io::{JsonLayout, cannot, read_json, write_json};
use crate::settings::BasePrecision;

const SHARD: usize = 4_000_000_000;
const LM_HEAD: &str = "lm_head.weight";
const EMBEDDINGS: &str = "model.embed_tokens.weight";
const SCORE: &str = "score.weight";
/// Settings of a tokenizer, which may contain a chat template, and the file of a template alone, which comes first.
pub(super) const SETTINGS_FILE: &str = "tokenizer_config.json";
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Texts that the merged model and the adapter are compared on.
const PROBES: [&str; 6] = [
    "A fine film, and a long one.",
    "No.",
    "The committee met on Tuesday to discuss the budget, which nobody had read.",
    "2 + 2 = 5, said the machine; it was sure.",
    "Où est la bibliothèque?",
    "She sold sea shells by the sea shore until the tide came in and took the stall with it.",
];

#[derive(Clone, Debug, PartialEq)]
pub struct MergeReport {
    pub ranks: BTreeMap<String, usize>,
    pub tensors: usize,
    pub parameters: usize,
    /// `true` if the head got separate weights, because it was tied to the word embedding.
    pub untied: bool,
    pub difference: Option<(f64, usize)>,
    pub warnings: Vec<String>,
}

/// Writes the folder `out`, whole or not at all; it must not exist. `command` is for the model card.
/// With `verify` the logits of the merged model are compared with those of base and adapter. A difference above that, in units
/// of the largest logit or of 1 where that is larger, is an error.
pub fn export_merged(
    adapter: &Adapter,
    verify: Option<f64>,
    command: &str,
    out: &Path,
    device: &Device,
) -> Result<MergeReport> {
    let (backbone, warnings) = adapter.base()?;
    let info = adapter.described(&backbone)?;
    let model = backbone.location.folder.as_path();
    if let Some(pooling) = info.as_ref().map(|info| info.pooling)
        && pooling.is_bare()
    {
        bail!(
            "the adapter `{}` was trained with `pooling` = `{}`, and transformers has no classifier that reads {}: use `--to onnx`, \
             `--to sentence-transformers`, or `--to peft` for the adapter alone",
            adapter.folder.display(),
            pooling.name(),
            pooling.describe()
        );
    }
    let store = backbone.architecture.open_weights(model)?;
    let lora = adapter.files.peft.to_lora()?;
    let plan = Plan::new(&backbone.architecture, Pooling::First, &store, &lora)?;
    let untied = plan.untied;
    let building = AtomicDir::create(out)?;
    let folder = building.path();
    let (tensors, parameters) = plan.write(folder)?;
    let config = config(&backbone, info.as_ref(), untied)?;
    write_json(&folder.join("config.json"), &config, JsonLayout::Pretty)?;
    companions(model, folder)?;
    if info.is_none() {
        own_companions(&adapter.folder, folder)?;
        own_end(&backbone.architecture, &adapter.folder, folder)?;
    }
    let ranks: BTreeMap<String, usize> =
        lora.modules.iter().map(|(path, module)| (path.clone(), module.rank)).collect();
    let card = Card::of(adapter, info.as_ref(), &ranks, command)?;
    let encoder = info.as_ref().is_some_and(|info| info.layout.readout() == Readout::Head);
    card.write(CardFormat::Merged { encoder }, folder)?;
    let compare = |limit| {
        let answers = Answers::of(adapter, info.as_ref(), device)?;
        answers.compare(limit, &merged_logits(folder, info.as_ref(), device)?)
    };
    let difference = verify.map(compare).transpose()?;
    building.commit()?;
    let warnings = warnings.into_iter().chain(differences(info.as_ref(), false)).collect();
    Ok(MergeReport { ranks, tensors, parameters, untied, difference, warnings })
}

/// A tensor that one of the merged model is made of.
#[derive(Clone)]
enum Origin<'a> {
    /// The base's of this name.
    Base(String),
    Adapter(&'a HostTensor),
}

/// The weights of the merged model, under the names of a model with a head.
pub(super) struct Plan<'a> {
    store: &'a WeightStore,
    adapter: &'a PeftAdapter,
    tensors: BTreeMap<String, Origin<'a>>,
    untied: bool,
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        architecture: &Architecture,
        pooling: Pooling,
        store: &'a WeightStore,
        adapter: &'a PeftAdapter,
    ) -> Result<Self> {
        let tied =
            matches!(architecture, Architecture::Llama(config) if config.tie_word_embeddings);
        let scored = adapter.saved.contains_key(SCORE);
        let is_spare = |name: &str| match architecture {
            Architecture::Deberta(config) => config.family.is_spare(name),
            Architecture::Llama(_) => name.ends_with(".rotary_emb.inv_freq"),
        };
        let kept = |name: &&str| !(is_spare(name) || (tied || scored) && *name == LM_HEAD);
        let base = store.names().filter(kept);
        let base = base.map(|name| (name.to_owned(), Origin::Base(name.to_owned())));
        let mut tensors: BTreeMap<String, Origin<'_>> = base.collect();
        let other =
            |(name, tensor): (&String, &'a HostTensor)| (name.clone(), Origin::Adapter(tensor));
        if let Some(name) =
            adapter.base.keys().find(|name| !store.contains(name) && *name != LM_HEAD)
        {
            return Err(lrvd_burn::Error::no_tensor(store.path(), name).into());
        }
        let own = |name: &str| {
            let same = if tied && name == LM_HEAD { EMBEDDINGS } else { name };
            store.shape(same)
        };
        let heads = architecture.head();
        let is_head = |name: &str| heads.iter().any(|head| name.starts_with(head));
        for (name, tensor) in adapter.base.iter().chain(&adapter.saved) {
            // More rows, for added tokens, need another vocabulary.
            if let Some(expected) = own(name).filter(|own| *own != tensor.shape() && !is_head(name))
            {
                let found = tensor.shape();
                bail!(
                    "`{name}` of the adapter has the shape {found:?}, and in the base {expected:?}"
                );
            }
        }
        tensors.extend(adapter.base.iter().map(other));
        let replaced = |name: &&str| adapter.saved.contains_key(*name);
        let is_changed =
            adapter.modules.contains_key("lm_head") || [LM_HEAD, EMBEDDINGS].iter().any(replaced);
        let untied = tied && !scored && is_changed;
        if tied {
            // Of tied weights PEFT changes both, unless one is stored whole.
            let both = tensors.remove(LM_HEAD).or(tensors.get(EMBEDDINGS).cloned());
            if let Some(both) = both {
                let second = untied.then(|| (LM_HEAD.to_owned(), both.clone()));
                tensors.extend(second.into_iter().chain([(EMBEDDINGS.to_owned(), both)]));
            }
        }
        tensors.extend(adapter.saved.iter().map(other));
        if scored {
            tensors.remove(LM_HEAD);
        }
        if let Architecture::Deberta(config) = architecture {
            // The parameters of a pooler come first.
            let without = if pooling.has_pooler() { 0 } else { 2 };
            let head = config.family.head_parameters().into_iter().skip(without);
            let absent: Vec<String> = head.filter(|name| !tensors.contains_key(name)).collect();
            if !absent.is_empty() {
                return Err(no_head(store.path(), absent));
            }
        }
        let weight = |path: &String| format!("{path}.weight");
        if let Some(tensor) =
            adapter.modules.keys().map(weight).find(|name| !tensors.contains_key(name))
        {
            return Err(lrvd_burn::Error::no_tensor(store.path(), &tensor).into());
        }
        Ok(Self { store, adapter, tensors, untied })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        match self.tensors.get(name)? {
            Origin::Base(base) => self.store.shape(base),
            Origin::Adapter(tensor) => Some(tensor.shape()),
        }
    }

    /// Writes one file, or shards and their index; returns the numbers of tensors and of values.
    fn write(&self, folder: &Path) -> Result<(usize, usize)> {
        let sizes = self
            .tensors
            .keys()
            .map(|name| (name, self.shape(name).unwrap_or_default().iter().product::<usize>()));
        let sizes: Vec<(&String, usize)> = sizes.collect();
        let shards = shards(&sizes, SHARD);
        let mut map = BTreeMap::new();
        let metadata = [("format".to_owned(), "pt".to_owned())].into();
        for (i, names) in shards.iter().enumerate() {
            let file = match shards.len() {
                1 => "model.safetensors".to_owned(),
                n => format!("model-{:05}-of-{n:05}.safetensors", i + 1),
            };
            let mut tensors = BTreeMap::new();
            for &name in names {
                tensors.insert(name.clone(), self.tensor(name)?);
                map.insert(name.as_str(), file.clone());
            }
            write_safetensors(folder.join(file), &tensors, &metadata)?;
        }
        let parameters: usize = sizes.iter().map(|(_, size)| size).sum();
        if shards.len() > 1 {
            let index = json!({"metadata": {"total_size": 4 * parameters}, "weight_map": map});
            write_json(&folder.join("model.safetensors.index.json"), &index, JsonLayout::Pretty)?;
        }
        Ok((self.tensors.len(), parameters))
    }

    /// A weight of the plan, in single precision if it is a number.
    pub(super) fn tensor(&self, name: &str) -> Result<HostTensor> {
        let wrong = |source| anyhow!("module `{name}`: {source}");
        // Absent ones are not in the plan.
        let base = match &self.tensors[name] {
            Origin::Base(base) => self.store.read(base)?,
            Origin::Adapter(tensor) => (*tensor).clone(),
        };
        let update: Option<&PeftModule> =
            name.strip_suffix(".weight").and_then(|path| self.adapter.modules.get(path));
        match update {
            Some(module) => module.merged(&base).map_err(wrong),
            None if base.is_float() => {
                let values = base.to_f32().map_err(wrong)?;
                HostTensor::from_f32(base.shape(), &values).map_err(wrong)
            }
            None => Ok(base),
        }
    }
}

/// The weights in the adapter's file that are not those of its base.
pub(super) fn other_weights(
    backbone: &Backbone,
    adapter: &PeftAdapter,
) -> Result<BTreeMap<String, HostTensor>> {
    let store = backbone.architecture.open_weights(&backbone.location.folder)?;
    let mut others = BTreeMap::new();
    for (name, tensor) in &adapter.base {
        let is_tied = name == LM_HEAD && !store.contains(name);
        let own = store.read(if is_tied { EMBEDDINGS } else { name })?;
        if own.to_f32()? != tensor.to_f32()? {
            others.insert(name.clone(), tensor.clone());
        }
    }
    Ok(others)
}

/// Names in files of at most `limit` bytes of single-precision values, in order; a larger tensor has its own.
fn shards<'a>(sizes: &[(&'a String, usize)], limit: usize) -> Vec<Vec<&'a String>> {
    let mut shards: Vec<Vec<&String>> = vec![Vec::new()];
    let mut filled = 0_usize;
    for &(name, size) in sizes {
        let bytes = size.saturating_mul(size_of::<f32>());
        if filled > 0 && filled.saturating_add(bytes) > limit {
            shards.push(Vec::new());
            filled = 0;
        }
        filled = filled.saturating_add(bytes);
        if let Some(last) = shards.last_mut() {
            last.push(name);
        }
    }
    shards
}

/// The configuration of the merged model, with the names of its classes.
pub(super) fn config(
    backbone: &Backbone,
    info: Option<&Description>,
    untied: bool,
) -> Result<Value> {
    let model = backbone.location.folder.as_path();
    let file = model.join("config.json");
    let mut config: Value = if GgufModel::is_at(model) {
        let text = GgufModel::open(model)?.config_json;
        crate::io::parse_json(model, &text)?
    } else {
        read_json(&file)?
    };
    let mut set = |key: &str, value: Value| config[key] = value;
    set("torch_dtype", "float32".into());
    let (architecture, has_head) = match &backbone.architecture {
        Architecture::Llama(config) => {
            let has_head = info.is_some_and(|info| info.layout.readout() == Readout::Head);
            let head = if has_head { "SequenceClassification" } else { "CausalLM" };
            (format!("{}For{head}", config.family.class()), has_head)
        }
        Architecture::Deberta(config) => (config.family.architecture().to_owned(), true),
    };
    set("architectures", json!([architecture]));
    if let Some(pooling) = info.and_then(Description::classifier_pooling) {
        set("classifier_pooling", pooling.into());
    }
    if untied {
        set("tie_word_embeddings", false.into());
    }
    if has_head {
        let (names, kind) = match info.map(|info| &info.goal.answers) {
            None | Some(AnswerSpace::Score) => (vec!["LABEL_0".to_owned()], "regression"),
            Some(answers @ AnswerSpace::Labels { .. }) => {
                (answers.names(), "multi_label_classification")
            }
            Some(answers) => (answers.names(), "single_label_classification"),
        };
        let ids = || names.iter().enumerate();
        set("id2label", ids().map(|(i, name)| (i.to_string(), json!(name))).collect());
        set("label2id", ids().map(|(i, name)| (name.clone(), json!(i))).collect());
        set("problem_type", kind.into());
    }
    without_place(&mut config, "_name_or_path");
    if let Some(map) = config.as_object_mut() {
        // The other spelling of transformers 5; one of them is enough.
        map.remove("dtype");
        map.remove("num_labels");
    }
    Ok(config)
}

/// Leaves the last part of the path under `key`, where a model was when transformers saved it; whether there was more.
fn without_place(config: &mut Value, key: &str) -> bool {
    let Some(Value::String(name)) = config.get_mut(key) else { return false };
    let shared = shared_name(name).to_owned();
    let is_shorter = shared != *name;
    *name = shared;
    is_shorter
}

/// Copies the files of the tokenizer, or writes those of a GGUF file.
pub(super) fn companions(model: &Path, folder: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).map_err(cannot("write", folder))
    };
    if GgufModel::is_at(model) {
        let files = GgufModel::open(model).and_then(|model| model.tokenizer_files())?;
        write("tokenizer.json", &files.tokenizer)?;
        write("tokenizer_config.json", &files.settings)?;
        return Ok(());
    }
    let names = READ_FILES.iter().filter(|name| **name != "config.json");
    for name in names {
        if is_file(&model.join(name))? {
            std::fs::copy(model.join(name), folder.join(name)).map_err(cannot("copy", model))?;
        }
    }
    let file = folder.join(SETTINGS_FILE);
    if file.is_file() {
        let mut config = read_json(&file)?;
        if without_place(&mut config, "name_or_path") {
            write_json(&file, &config, JsonLayout::Pretty)?;
        }
    }
    Ok(())
}

/// Copies the tokenizer and the chat template of an adapter's folder, where it has them, in place of the base's.
fn own_companions(adapter: &Path, folder: &Path) -> Result<()> {
    let names =
        READ_FILES.into_iter().filter(|name| !["config.json", GENERATION_FILE].contains(name));
    for name in names {
        if !is_file(&adapter.join(name))? {
            continue;
        }
        std::fs::copy(adapter.join(name), folder.join(name)).map_err(cannot("copy", adapter))?;
        let template = folder.join(TEMPLATE_FILE);
        let has_template = || -> Result<bool> {
            Ok(read_json::<Value>(&adapter.join(name))?.get("chat_template").is_some())
        };
        if name == SETTINGS_FILE && template.is_file() && has_template()? {
            std::fs::remove_file(&template).map_err(cannot("remove", &template))?;
        }
    }
    Ok(())
}

/// Adds the token by which an adapter's own tokenizer ends a text to those of the model in `folder`: its answers end by both.
fn own_end(architecture: &Architecture, adapter: &Path, folder: &Path) -> Result<()> {
    let Architecture::Llama(config) = architecture else { return Ok(()) };
    let Some(tokenizer) = TextTokenizer::find(adapter)? else { return Ok(()) };
    let mut ends = config.eos_token_ids.clone();
    match tokenizer.special_tokens().eos {
        Some(own) if !ends.is_empty() && !ends.contains(&own) => ends.push(own),
        _ => return Ok(()),
    }
    for file in ["config.json", GENERATION_FILE].map(|name| folder.join(name)) {
        if file.is_file() {
            let mut settings: BTreeMap<String, Value> = read_json(&file)?;
            settings.insert("eos_token_id".to_owned(), json!(ends));
            write_json(&file, &settings, JsonLayout::Pretty)?;
        }
    }
    Ok(())
}

/// The logits of base and adapter on the probes, in single precision.
pub(super) struct Answers(Vec<f64>);

impl Answers {
    pub(super) fn of(
        adapter: &Adapter,
        info: Option<&Description>,
        device: &Device,
    ) -> Result<Self> {
        let single = Some(BasePrecision::F32);
        Ok(Self(match info {
            Some(info) => {
                let model = SavedClassifier::on(adapter, DrawPolicy::default(), single, device)?;
                model.mean_logits(&probes(info))?
            }
            None => SavedLanguageModel::on(adapter, single, device)?.mean_logits(&PROBES)?,
        }))
    }

    /// The largest difference from the `found` logits of the export, and their number.
    pub(super) fn compare(&self, limit: f64, found: &[f64]) -> Result<(f64, usize)> {
        let Self(expected) = self;
        let largest = expected.iter().map(|value| value.abs()).fold(1.0, f64::max);
        let differences =
            expected.iter().zip(found).map(|(expected, found)| (expected - found).abs());
        // A value that is not a number is a difference as well.
        let difference = differences.fold(0.0, |a: f64, b| if b > a || b.is_nan() { b } else { a });
        if difference <= limit * largest && expected.len() == found.len() {
            Ok((difference, expected.len()))
        } else {
            Err(Kind::Differs.mark(anyhow!(
                "a logit of the exported model is off by {difference:.3e}, more than {limit:e} of the \
                 largest, {largest:.3}: nothing was written"
            )))
        }
    }
}

/// The logits of the merged model in a folder on the probes.
fn merged_logits(folder: &Path, info: Option<&Description>, device: &Device) -> Result<Vec<f64>> {
    match info {
        Some(info) => SavedClassifier::merged(folder, info, device)?.mean_logits(&probes(info)),
        None => {
            let model = SavedLanguageModel::whole(ModelLocation::of_folder(folder), device)?;
            model.mean_logits(&PROBES)
        }
    }
}

/// Options of a question to both models.
const OPTIONS: usize = 8;

/// Inputs that an export and the adapter are compared on.
pub(super) fn probes(info: &Description) -> Vec<Input> {
    let pairs = PROBES.iter().zip(PROBES.iter().rev());
    // Few: a row seldom has as many options as there are letters, and a prompt need not hold more.
    let options = match info.goal.answers {
        AnswerSpace::Choice { max_options } | AnswerSpace::Questions { max_options, .. } => {
            max_options.min(OPTIONS)
        }
        _ => 0,
    };
    let names = info.goal.answers.names();
    let input = |(text, pair): (&&str, &&str)| Input {
        pair: (info.pairs == Some(true)).then(|| (*pair).to_owned()),
        choices: names.iter().take(options).cloned().collect(),
        ..Input::text(*text)
    };
    pairs.map(input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hold_what_fits() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let sizes: Vec<(&String, usize)> = names.iter().zip([1, 2, 9, 1]).collect();
        // 4, 8, 36 and 4 bytes.
        assert_eq!(shards(&sizes, 100), [names.iter().collect::<Vec<_>>()]);
        let cut = shards(&sizes, 12);
        assert_eq!(cut, [vec![&names[0], &names[1]], vec![&names[2]], vec![&names[3]]]);
    }
}
