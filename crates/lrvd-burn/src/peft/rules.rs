//! Modules that a configuration adapts, with their ranks and scales, and the names of tensors in `adapter_model.safetensors`.
//!
//! | Name | Tensor |
//! |---|---|
//! | `base_model.model.{path}.lora_A.weight` | `LoRA`, `[rank, d_in]`; `lora_B` is `[d_out, rank]` |
//! | `base_model.model.{path}.lora_A` | `AdaLoRA`, also `lora_B` and `lora_E`, `[rank, 1]` |
//! | `base_model.model.{path}.{parameter}` | a parameter of a module that is stored whole |
//! | `base_model.model.{path}.base_layer.{parameter}` | a weight of the base, below an adapter |
//! | `base_model.model.{path}.{parameter}` of an embedding | a weight of the base |
//!
//! Python's regular expressions are evaluated by the `regex` crate. It has no look-around and no
//! back-references; a pattern with one is an error, never a different set of modules.

use lrvd_core::adalora::adalora_scaling;
use regex::Regex;

use super::config::{PeftConfig, PeftMethod, TargetModules};
use crate::error::Error;
use crate::selection::{OUTPUT_LAYER, has_end};

/// Start of every name.
const PREFIX: &str = "base_model.model.";
/// Ends of the names of the embeddings that PEFT saves along with an adapted or a resized one.
const EMBEDDINGS: [&str; 2] = ["embed_tokens.weight", "lm_head.weight"];
/// The part of a name for the base's weight of an adapted layer.
const BASE_LAYER: &str = ".base_layer.";

/// A configuration with its patterns compiled.
///
/// # Formula
///
/// ```text
/// LoRA     scaling = lora_alpha / rank           with use_rslora: lora_alpha / sqrt(rank)
/// AdaLoRA  scaling = lora_alpha / (init_r + 1e-5)
/// ```
///
/// `rank` and `lora_alpha` are those of the first pattern, in file order, for which
/// `^(.*\.)?(key)$` matches the path, else the general ones. `AdaLoRA` has neither pattern nor
/// root, and divides by the initial rank for good.
#[derive(Debug)]
pub(super) struct ModuleRules<'a> {
    config: &'a PeftConfig,
    /// The pattern of text targets.
    targets: Option<Regex>,
    excluded: Option<Regex>,
    saved: Vec<Regex>,
    /// Patterns of the number of a layer, where only some layers are adapted.
    layers: Vec<Regex>,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

impl PeftConfig {
    /// Compiles the patterns.
    pub(super) fn rules(&self) -> Result<ModuleRules<'_>, Error> {
        let whole_path = |key, targets: Option<&TargetModules>| match targets {
            Some(TargetModules::Regex(text)) => {
                compile(key, text, &format!("^(?:{text})$")).map(Some)
            }
            _ => Ok(None),
        };
        // Listed names are put into the expression as they are, as PEFT does.
        let saved = self.saved_modules().into_iter().map(|name| {
            compile("modules_to_save", name, &format!(r"^(?:.*\.)?(?:{name})(?:$|\.)"))
        });
        // Without names, the first numbered part of the path.
        let any = [r".*?\.[^.]*".to_owned()];
        let (start, lists) = match self.layers_pattern.as_slice() {
            [] => ("^", &any[..]),
            names => (r"^(?:^|.*?\.)", names),
        };
        let layers = lists.iter().map(|list| {
            compile("layers_pattern", list, &format!(r"{start}{list}\.(?P<idx>\d+)\."))
        });
        // Without effect for `AdaLoRA`.
        let is_lora = self.method == PeftMethod::Lora;
        let alphas = if is_lora { self.alpha_pattern.as_slice() } else { &[] };
        Ok(ModuleRules {
            config: self,
            targets: whole_path("target_modules", Some(&self.target_modules))?,
            excluded: whole_path("exclude_modules", self.exclude_modules.as_ref())?,
            saved: saved.collect::<Result<_, _>>()?,
            layers: layers.collect::<Result<_, _>>()?,
            ranks: compile_keys("rank_pattern", &self.rank_pattern)?,
            alphas: compile_keys("alpha_pattern", alphas)?,
        })
    }
}

impl ModuleRules<'_> {
    /// `true` if the linear layer at `path` is adapted.
    pub(super) fn targets(&self, path: &str) -> bool {
        let PeftConfig { target_modules, exclude_modules, .. } = self.config;
        let excluded = exclude_modules.as_ref();
        if excluded.is_some_and(|targets| is_meant(targets, self.excluded.as_ref(), path))
            || self.saved.iter().any(|pattern| pattern.is_match(path))
        {
            return false;
        }
        // A path that is listed in full is taken whatever its layer, as PEFT does.
        let in_full = matches!(target_modules, TargetModules::Names(names) if names.iter().any(|n| n == path));
        in_full
            || (is_meant(target_modules, self.targets.as_ref(), path) && self.accepts_layer(path))
    }

    fn accepts_layer(&self, path: &str) -> bool {
        if self.config.layers_to_transform.is_empty() {
            return true;
        }
        let found = self.layers.iter().find_map(|pattern| pattern.captures(path));
        let layer = found.and_then(|captures| captures.name("idx")?.as_str().parse().ok());
        layer.is_some_and(|layer: usize| self.config.layers_to_transform.contains(&layer))
    }

    /// Of the module at `path`: rank of its tensors in the file, rank before any reallocation, and the factor before
    /// the product of its tensors.
    pub(super) fn of(&self, path: &str) -> (usize, usize, f64) {
        let PeftConfig { lora_alpha, r, use_rslora, .. } = *self.config;
        match &self.config.method {
            PeftMethod::Lora => {
                let lora_alpha = first_match(&self.alphas, path).unwrap_or(lora_alpha);
                let rank = first_match(&self.ranks, path).unwrap_or(r);
                let root = if use_rslora { (rank as f64).sqrt() } else { rank as f64 };
                (rank, rank, lora_alpha / root)
            }
            PeftMethod::AdaLora(adalora) => {
                let count = |flags: &Vec<bool>| flags.iter().filter(|&&flag| flag).count();
                let rank = adalora.kept.get(path).map_or(adalora.init_r, count);
                (rank, adalora.init_r, adalora_scaling(lora_alpha, adalora.init_r))
            }
        }
    }
}

/// `true` if a pattern key matches the path; an invalid pattern matches nothing.
pub(super) fn key_matches(key: &str, path: &str) -> bool {
    compile_key("rank_pattern", key).is_ok_and(|pattern| pattern.is_match(path))
}

/// `true` if the module at `path` is one of the targets, which have the `pattern` if they are a text.
fn is_meant(targets: &TargetModules, pattern: Option<&Regex>, path: &str) -> bool {
    match targets {
        TargetModules::Names(names) => names.iter().any(|name| has_end(path, name)),
        TargetModules::Regex(_) => pattern.is_some_and(|pattern| pattern.is_match(path)),
        TargetModules::AllLinear => path.rsplit('.').next() != Some(OUTPUT_LAYER),
    }
}

fn first_match<T: Copy>(patterns: &[(Regex, T)], path: &str) -> Option<T> {
    patterns.iter().find(|(pattern, _)| pattern.is_match(path)).map(|&(_, value)| value)
}

fn compile_keys<T: Copy>(
    key: &'static str,
    patterns: &[(String, T)],
) -> Result<Vec<(Regex, T)>, Error> {
    patterns.iter().map(|(pattern, value)| Ok((compile_key(key, pattern)?, *value))).collect()
}

fn compile_key(key: &'static str, pattern: &str) -> Result<Regex, Error> {
    compile(key, pattern, &format!(r"^(?:.*\.)?(?:{pattern})$"))
}

fn compile(key: &'static str, pattern: &str, full: &str) -> Result<Regex, Error> {
    Regex::new(full).map_err(|error| {
        Error::argument(key, "a regular expression", format_args!("`{pattern}`: {error}"))
    })
}

/// A factor of the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Factor {
    A,
    B,
    E,
}

impl Factor {
    /// Factors of a module.
    pub(super) fn of(method: &PeftMethod) -> &'static [Self] {
        let all = &[Self::A, Self::B, Self::E];
        if *method == PeftMethod::Lora { &all[..2] } else { all }
    }
}

/// Meaning of a tensor's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// A factor of the module at `path`.
    Factor {
        path: String,
        factor: Factor,
    },
    /// A parameter of a module that is stored whole, under its name in the model.
    Saved(String),
    /// A weight of the base, under its name in the model.
    Base(String),
    /// Known and not used.
    Ignored(&'static str),
    Unknown,
}

/// Name of a factor in a file of the given method.
pub(super) fn factor_key(method: &PeftMethod, path: &str, factor: Factor) -> String {
    let end = if *method == PeftMethod::Lora { ".weight" } else { "" };
    format!("{PREFIX}{path}.lora_{factor:?}{end}")
}

/// Name of a parameter that is stored whole.
pub(super) fn saved_key(parameter: &str) -> String {
    format!("{PREFIX}{parameter}")
}

/// Name of a weight of the base, with the part `base_layer` if its layer is adapted.
pub(super) fn base_key(parameter: &str, is_adapted: impl Fn(&str) -> bool) -> String {
    match parameter.rsplit_once('.').filter(|(path, _)| is_adapted(path)) {
        Some((path, end)) => format!("{PREFIX}{path}{BASE_LAYER}{end}"),
        None => saved_key(parameter),
    }
}

/// Reads a name; an adapter name inside it, as some tools leave there, is dropped.
pub(super) fn parse_key(config: &PeftConfig, key: &str) -> Key {
    let Some(name) = key.strip_prefix(PREFIX) else {
        return Key::Unknown;
    };
    if let Some(factor) = parse_factor(&config.method, name) {
        return factor;
    }
    if name.contains(BASE_LAYER) {
        return Key::Base(name.replacen(BASE_LAYER, ".", 1));
    }
    if name.contains(".original_module.") {
        return Key::Ignored("the base model's own copy of a module that is stored whole");
    }
    let parameter = match name.split_once(".modules_to_save.") {
        // `path.modules_to_save.NAME.parameter`, in files not written by PEFT's own saving: the adapter's name is one part.
        Some((path, rest)) => match rest.split_once('.') {
            Some((_, parameter)) => format!("{path}.{parameter}"),
            None => return Key::Unknown,
        },
        None => name.to_owned(),
    };
    if config.saves(&parameter) {
        Key::Saved(parameter)
    } else if EMBEDDINGS.iter().any(|end| has_end(name, end)) {
        Key::Base(name.to_owned())
    } else {
        Key::Unknown
    }
}

/// `path.lora_X[.adapter_name].weight` for `LoRA`, `path.lora_X[.adapter_name]` for `AdaLoRA`.
fn parse_factor(method: &PeftMethod, name: &str) -> Option<Key> {
    let stem = if *method == PeftMethod::Lora { name.strip_suffix(".weight")? } else { name };
    let find = |stem: &str| {
        let (path, last) = stem.rsplit_once('.')?;
        let mut factors = Factor::of(method).iter();
        let factor = *factors.find(|factor| last == format!("lora_{factor:?}"))?;
        Some(Key::Factor { path: path.to_owned(), factor })
    };
    find(stem).or_else(|| {
        let (start, adapter_name) = stem.rsplit_once('.')?;
        // `lora_A.weight` in an AdaLoRA file is a LoRA name, not an adapter called "weight".
        if matches!(adapter_name, "weight" | "bias") { None } else { find(start) }
    })
}
