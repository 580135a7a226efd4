//! Reader and writer of `adapter_config.json`.
//!
//! PEFT gains keys with every version. A key is either read, harmless, unsupported unless unset, or unknown. An unknown
//! key is accepted only if it is unset, so that a future option which changes the result is an error here instead of a
//! wrong number.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::Error;
use crate::files::ordered_map::{self, OrderedMap};
use crate::files::{from_json, is_unset, write_atomic};

/// File name of the configuration in an adapter folder.
pub(super) const CONFIG_FILE: &str = "adapter_config.json";
/// Form of a rank.
const RANK: &str = "a whole number, 1 or more";
/// End of the names in an `AdaLoRA` rank pattern.
const E_SUFFIX: &str = ".lora_E";
/// Keys that are read of an `AdaLoRA` configuration alone.
const ADALORA_KEYS: [&str; 2] = ["init_r", "orth_reg_weight"];

/// Keys that are not read: name, allowed values besides unset, and effect on the result. A key without an effect may have
/// any value; the `*_config` entries among them steer initialisations, and those which also alter base weights are errors
/// through `init_lora_weights`. PEFT resets that key to `true` when it converts an adapter that had changed the base
/// weights into one that has not.
const UNREAD: [(&str, &[&str], &str); 33] = [
    ("alora_invocation_tokens", &[], "the adapter would act from an invocation token on"),
    ("arrow_config", &[], "several adapters would be routed by token"),
    ("auto_mapping", &[], ""),
    ("beta1", &[], ""),
    ("beta2", &[], ""),
    ("bias", &["none"], "biases of the base would be replaced"),
    ("corda_config", &[], ""),
    ("deltaT", &[], ""),
    ("ensure_weight_tying", &[], "adapters of tied layers would be tied"),
    ("eva_config", &[], ""),
    ("fan_in_fan_out", &[], "base weights would be stored transposed"),
    (
        "init_lora_weights",
        &["true", "gaussian", "eva", "orthogonal", "mica"],
        "it may have changed the base weights; convert the adapter in PEFT with \
         `path_initial_model_for_weight_conversion` first",
    ),
    ("kasa_config", &[], "base weights would be truncated and the adapter gain a diagonal"),
    ("layer_replication", &[], "base layers would be repeated"),
    ("loftq_config", &[], ""),
    ("lora_bias", &[], "the up-projection would have a bias"),
    ("lora_ga_config", &[], ""),
    ("megatron_config", &[], "layers would be split over devices"),
    ("megatron_core", &[], ""),
    ("monteclora_config", &[], "the adapter would be sampled by another method"),
    ("peft_version", &[], ""),
    ("qalora_group_size", &[], ""),
    ("runtime_config", &[], ""),
    ("target_parameters", &[], "bare parameters would be adapted"),
    ("target_r", &[], ""),
    ("tfinal", &[], ""),
    ("tinit", &[], ""),
    ("total_step", &[], ""),
    ("trainable_token_indices", &[], "rows of the embedding would be replaced"),
    ("use_bdlora", &[], "factors would be block-diagonal"),
    ("use_dora", &[], "weights would be renormalised by column"),
    ("use_qalora", &[], "inputs would be pooled in groups"),
    ("velora_config", &[], "the backward pass would be approximated"),
];

/// Modules that are adapted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a list of names or a text")]
#[non_exhaustive]
pub enum TargetModules {
    /// Modules whose path is one of the names, or ends in a dot and one of the names.
    Names(Vec<String>),
    /// Modules whose whole path matches the regular expression.
    Regex(String),
    /// Every linear layer but the output layer.
    #[serde(skip_deserializing, serialize_with = "all_linear")]
    AllLinear,
}

/// The adapter method with what only it has.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub enum PeftMethod {
    /// Low-rank adaptation.
    #[default]
    Lora,
    /// Low-rank adaptation with a diagonal and a rank budget.
    AdaLora(AdaLoraConfig),
}

impl PeftMethod {
    /// Name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lora => "LORA",
            Self::AdaLora(_) => "ADALORA",
        }
    }
}

/// Settings of `AdaLoRA` that an adapter needs; defaults are those of PEFT.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct AdaLoraConfig {
    /// Initial rank of every module; the divisor of the scale for good.
    pub init_r: usize,
    /// Weight of the orthogonality penalty.
    pub orth_reg_weight: f64,
    /// Kept triplets by module path, one flag per initial rank; empty before the reallocation.
    #[serde(rename = "rank_pattern", deserialize_with = "kept_triplets")]
    pub kept: BTreeMap<String, Vec<bool>>,
}

impl Default for AdaLoraConfig {
    fn default() -> Self {
        Self { init_r: 12, orth_reg_weight: 0.5, kept: BTreeMap::new() }
    }
}

/// A PEFT adapter configuration, without the keys that cannot matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeftConfig {
    /// The method.
    #[serde(skip)]
    pub method: PeftMethod,
    /// Name or folder of the base model.
    pub base_model_name_or_path: Option<String>,
    /// Revision of the base model.
    pub revision: Option<String>,
    /// PEFT's task, such as `SEQ_CLS` or `CAUSAL_LM`.
    pub task_type: Option<String>,
    /// `true` if the adapter was saved for inference.
    #[serde(deserialize_with = "or_default")]
    pub inference_mode: bool,
    /// Rank where no pattern applies; not used by `AdaLoRA`.
    pub r: usize,
    /// Numerator of the scale where no pattern applies.
    pub lora_alpha: f64,
    /// Dropout on the adapter's input in training.
    pub lora_dropout: f64,
    /// `true` if the scale is divided by the root of the rank instead of the rank; without effect for
    /// `AdaLoRA`.
    #[serde(deserialize_with = "or_default")]
    pub use_rslora: bool,
    /// Modules to adapt.
    pub target_modules: TargetModules,
    /// Modules not to adapt after all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_modules: Option<TargetModules>,
    /// Numbers of the layers to adapt; all if empty.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub layers_to_transform: Vec<usize>,
    /// Names of the list of layers, as regular expressions; any if empty.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub layers_pattern: Vec<String>,
    /// Modules that are stored whole, as listed.
    #[serde(deserialize_with = "one_or_many", serialize_with = "null_if_empty")]
    pub modules_to_save: Vec<String>,
    /// Ranks by pattern, first match first; empty for `AdaLoRA`, whose key has another form.
    #[serde(skip_deserializing, serialize_with = "ordered_map::serialize")]
    pub rank_pattern: Vec<(String, usize)>,
    /// Numerators by pattern, first match first; without effect for `AdaLoRA`.
    #[serde(with = "ordered_map")]
    pub alpha_pattern: Vec<(String, f64)>,
}

/// PEFT's values of keys that an old file may lack.
impl Default for PeftConfig {
    fn default() -> Self {
        Self {
            method: PeftMethod::Lora,
            base_model_name_or_path: None,
            revision: None,
            task_type: None,
            inference_mode: false,
            r: 8,
            lora_alpha: 8.0,
            lora_dropout: 0.0,
            use_rslora: false,
            target_modules: TargetModules::Names(Vec::new()),
            exclude_modules: None,
            layers_to_transform: Vec::new(),
            layers_pattern: Vec::new(),
            modules_to_save: Vec::new(),
            rank_pattern: Vec::new(),
            alpha_pattern: Vec::new(),
        }
    }
}

impl PeftConfig {
    /// A plain `LoRA` configuration.
    pub fn lora(r: usize, lora_alpha: f64, target_modules: TargetModules) -> Self {
        Self { inference_mode: true, r, lora_alpha, target_modules, ..Self::default() }
    }

    /// An `AdaLoRA` configuration. `r` keeps PEFT's default, which PEFT demands and ignores.
    pub fn adalora(adalora: AdaLoraConfig, lora_alpha: f64, target_modules: TargetModules) -> Self {
        let method = PeftMethod::AdaLora(adalora);
        Self { method, ..Self::lora(8, lora_alpha, target_modules) }
    }

    /// Writes a `LoRA` configuration: the keys that every PEFT version knows, sorted as PEFT does, and later options where
    /// they are set.
    pub(super) fn write(&self, file: &Path) -> Result<(), Error> {
        let text = self.document().and_then(|document| serde_json::to_vec_pretty(&document));
        let mut text = text.map_err(|source| Error::json(file, source))?;
        text.push(b'\n');
        write_atomic(file, &text)
    }

    /// Kept triplets of `AdaLoRA` by module path; `None` for `LoRA`.
    pub(super) fn kept(&self) -> Option<&BTreeMap<String, Vec<bool>>> {
        match &self.method {
            PeftMethod::AdaLora(adalora) => Some(&adalora.kept),
            PeftMethod::Lora => None,
        }
    }

    /// This configuration with these modules alone as its targets, without patterns and filters.
    pub(super) fn of_modules(&self, paths: Vec<String>) -> Self {
        Self {
            target_modules: TargetModules::Names(paths),
            exclude_modules: None,
            layers_to_transform: Vec::new(),
            layers_pattern: Vec::new(),
            rank_pattern: Vec::new(),
            alpha_pattern: Vec::new(),
            ..self.clone()
        }
    }

    /// Modules that PEFT stores whole: those listed, once each, and the heads it adds for the task.
    pub fn saved_modules(&self) -> Vec<&str> {
        let heads: &[&str] = match self.task_type.as_deref() {
            Some("SEQ_CLS" | "TOKEN_CLS") => &["classifier", "score"],
            Some("QUESTION_ANS") => &["qa_outputs"],
            _ => &[],
        };
        let mut modules: Vec<&str> = Vec::new();
        let listed = self.modules_to_save.iter().map(String::as_str);
        for name in listed.chain(heads.iter().copied()) {
            if !modules.contains(&name) {
                modules.push(name);
            }
        }
        modules
    }

    /// `true` if a parameter is in one of the modules that are stored whole.
    ///
    /// As in PEFT, a module is one of them if its path *ends* in a listed name, dot or no dot.
    pub fn saves(&self, parameter: &str) -> bool {
        let modules = self.saved_modules();
        parameter.match_indices('.').any(|(dot, _)| {
            modules.iter().any(|name| !name.is_empty() && parameter[..dot].ends_with(name))
        })
    }

    /// The configuration in the text of `file`.
    pub(super) fn parse(file: &Path, text: &[u8]) -> Result<Self, Error> {
        let json = |source| Error::json(file, source);
        let OrderedMap(keys) = serde_json::from_slice(text).map_err(json)?;
        let document: Value = Value::Object(keys.into_iter().collect());
        let peft_type = document.get("peft_type");
        let method = match peft_type.and_then(Value::as_str) {
            Some("LORA") => PeftMethod::Lora,
            Some("ADALORA") => PeftMethod::AdaLora(read(file, text, &document)?),
            _ => return Err(value_error(file, "peft_type", "`LORA` or `ADALORA`", peft_type)),
        };
        // PEFT would look the names up by architecture; a saved adapter has them written out.
        if document["target_modules"].is_null() {
            return Err(value_error(file, "target_modules", "a list of names or a text", None));
        }
        let mut config = Self { method, ..read(file, text, &document)? };
        if config.method == PeftMethod::Lora {
            config.rank_pattern = read::<Ranks>(file, text, &document)?.rank_pattern;
        }
        if matches!(&config.target_modules, TargetModules::Regex(text) if text.eq_ignore_ascii_case("all-linear"))
        {
            config.target_modules = TargetModules::AllLinear;
        }
        config.exclude_modules =
            config.exclude_modules.filter(|targets| !is_unset(&json!(targets)));
        if let Some((key, expected, found)) = config.invalid_key() {
            return Err(value_error(file, &key, expected, Some(&found)));
        }
        let known = config.document().map_err(json)?;
        for (key, value) in document.as_object().into_iter().flatten() {
            let is_unread = UNREAD.iter().any(|(unread, ..)| unread == key);
            let is_known = known.contains_key(key)
                || ADALORA_KEYS.contains(&key.as_str()) && config.method != PeftMethod::Lora;
            if is_unread || !is_known {
                check_unread(file, key, value)?;
            }
        }
        Ok(config)
    }

    /// The first value that fails the checks of PEFT itself, as key, expected and found.
    fn invalid_key(&self) -> Option<(String, &'static str, Value)> {
        let fault = |key: &str, expected, found| Some((key.to_owned(), expected, found));
        let numbers = &self.layers_to_transform;
        let lists = &self.layers_pattern;
        if self.r == 0 {
            return fault("r", RANK, json!(0));
        }
        if let Some((key, _)) = self.rank_pattern.iter().find(|(_, rank)| *rank == 0) {
            return fault(&format!("rank_pattern.{key}"), RANK, json!(0));
        }
        if !(0.0..=1.0).contains(&self.lora_dropout) {
            return fault("lora_dropout", "a number from 0 to 1", json!(self.lora_dropout));
        }
        if !numbers.is_empty() && !matches!(self.target_modules, TargetModules::Names(_)) {
            return fault("layers_to_transform", "unset with a text target", json!(numbers));
        }
        if !lists.is_empty() && numbers.is_empty() {
            return fault("layers_pattern", "unset without `layers_to_transform`", json!(lists));
        }
        let PeftMethod::AdaLora(AdaLoraConfig { init_r, .. }) = self.method else { return None };
        // PEFT puts the rank in the place of such a numerator, which cannot be meant.
        if self.lora_alpha <= 0.0 {
            return fault("lora_alpha", "above 0", json!(self.lora_alpha));
        }
        if init_r == 0 {
            return fault("init_r", RANK, json!(0));
        }
        let (path, flags) = self.kept()?.iter().find(|(_, flags)| flags.len() != init_r)?;
        let expected = "one true or false per initial rank";
        fault(&format!("rank_pattern.{path}{E_SUFFIX}"), expected, json!(flags))
    }

    /// The document to write, keys sorted.
    pub(super) fn document(&self) -> serde_json::Result<BTreeMap<String, Entry>> {
        let mut entries: BTreeMap<_, _> = serde_json::from_slice(&serde_json::to_vec(self)?)?;
        for entry in entries.values_mut() {
            match entry {
                Entry::Object(OrderedMap(pairs)) => {
                    for (_, value) in pairs {
                        shorten(value);
                    }
                }
                Entry::Plain(value) => shorten(value),
            }
        }
        let fixed = [
            ("bias", json!("none")),
            ("fan_in_fan_out", json!(false)),
            ("init_lora_weights", json!(true)),
            ("peft_type", json!("LORA")),
            ("use_dora", json!(false)),
        ];
        entries.extend(fixed.map(|(key, value)| (key.to_owned(), Entry::Plain(value))));
        Ok(entries)
    }
}

/// Value of the document. An object keeps the order of its keys.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Object(OrderedMap<Value>),
    Plain(Value),
}

/// The key of a `LoRA` configuration that has another form in one of `AdaLoRA`.
#[derive(Deserialize)]
struct Ranks {
    #[serde(default, deserialize_with = "ordered_map::deserialize")]
    rank_pattern: Vec<(String, usize)>,
}

/// Reads the keys of a `T`; the error names the first that does not fit.
fn read<'de, T: Deserialize<'de>>(
    file: &Path,
    text: &'de [u8],
    document: &Value,
) -> Result<T, Error> {
    from_json(&mut serde_json::Deserializer::from_slice(text), document)
        .map_err(|error| value_error(file, &error.key, error.expected, error.found.as_ref()))
}

/// Error of the value of a key.
fn value_error(
    file: &Path,
    key: &str,
    expected: impl std::fmt::Display,
    found: Option<&Value>,
) -> Error {
    let found = found.filter(|found| !found.is_null());
    let found = found.map_or_else(|| "nothing".to_owned(), Value::to_string);
    Error::value(file, key, expected, format_args!("`{found}`"))
}

/// Checks a key that is not read.
fn check_unread(file: &Path, key: &str, value: &Value) -> Result<(), Error> {
    if is_unset(value) {
        return Ok(());
    }
    let Some((_, allowed, effect)) = UNREAD.iter().find(|(name, ..)| *name == key) else {
        let what = format!(
            "has the unknown key `{key}` = `{value}`; unknown keys are only ignored if null, false or empty"
        );
        return Err(Error::file(file, what));
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_ascii_lowercase);
    if effect.is_empty() || allowed.contains(&text.as_str()) {
        return Ok(());
    }
    let value = value.to_string();
    Err(Error::UnsupportedKey { path: file.to_path_buf(), key: key.to_owned(), value, effect })
}

/// Makes a whole number an integer, as PEFT writes it.
fn shorten(value: &mut Value) {
    // Every integer up to 2^53 is exact in f64.
    let whole = |number: &f64| number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0;
    if let Some(number) = value.as_f64().filter(whole) {
        *value = json!(number as i64);
    }
}

/// Reads a value; null is the default.
fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn all_linear<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str("all-linear")
}

/// Reads a list; one of one entry may be the entry itself.
fn one_or_many<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list, or one value of it")]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(OneOrMany::One(value)) => vec![value],
        Some(OneOrMany::Many(values)) => values,
    })
}

fn null_if_empty<S: Serializer>(list: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    (!list.is_empty()).then_some(list).serialize(serializer)
}

/// Reads the kept triplets by module path: keys end in `.lora_E`, in old files also in an adapter name.
fn kept_triplets<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<bool>>, D::Error> {
    let mut kept = BTreeMap::new();
    for (key, flags) in ordered_map::deserialize(deserializer)? {
        let path = key.strip_suffix(E_SUFFIX).or_else(|| {
            let (start, adapter_name) = key.rsplit_once('.')?;
            start.strip_suffix(E_SUFFIX).filter(|_| !adapter_name.is_empty())
        });
        if path.is_none_or(|path| kept.insert(path.to_owned(), flags).is_some()) {
            let what = "expected an object with one key that ends in `.lora_E` per module";
            return Err(D::Error::custom(what));
        }
    }
    Ok(kept)
}
