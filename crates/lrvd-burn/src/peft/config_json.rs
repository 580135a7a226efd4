//! The two directions between [`PeftConfig`] and the JSON of `adapter_config.json`.

use std::path::Path;

use super::config::{AdaLoraConfig, PeftConfig, PeftMethod, TargetModules};
use super::config_reader::{Reader, as_rank, as_usize};
use super::error::PeftError;
use super::features::{check_bias, check_init, check_unread};
use crate::files::json::Json;

/// Keys read for every method.
const COMMON: [&str; 18] = [
    "alpha_pattern",
    "base_model_name_or_path",
    "bias",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_alpha",
    "lora_dropout",
    "modules_to_save",
    "peft_type",
    "r",
    "rank_pattern",
    "revision",
    "target_modules",
    "task_type",
    "use_rslora",
];
/// Keys read for `AdaLoRA` only.
const ADALORA: [&str; 9] = [
    "beta1",
    "beta2",
    "deltaT",
    "init_r",
    "orth_reg_weight",
    "target_r",
    "tfinal",
    "tinit",
    "total_step",
];
/// End of the names in an `AdaLoRA` rank pattern.
const E_SUFFIX: &str = ".lora_E";
/// PEFT's defaults, for keys that an old file may lack.
const DEFAULT_R: usize = 8;
const DEFAULT_LORA_ALPHA: f64 = 8.0;

impl PeftConfig {
    /// The configuration in a parsed document.
    pub(super) fn from_json(file: &Path, document: &Json) -> Result<Self, PeftError> {
        let reader = Reader { file, document };
        let pairs = document
            .as_object()
            .ok_or_else(|| reader.error("configuration", "an object", Some(document)))?;
        let adalora = match reader.get("peft_type").and_then(Json::as_str) {
            Some("LORA") => false,
            Some("ADALORA") => true,
            _ => {
                let found = reader.get("peft_type");
                return Err(reader.error("peft_type", "`LORA` or `ADALORA`", found));
            }
        };
        for (key, value) in pairs {
            let read =
                COMMON.contains(&key.as_str()) || (adalora && ADALORA.contains(&key.as_str()));
            if !read {
                check_unread(file, key, value)?;
            }
        }
        check_bias(file, reader.get("bias").unwrap_or(&Json::Null))?;
        check_init(file, reader.get("init_lora_weights").unwrap_or(&Json::Null))?;
        let method =
            if adalora { PeftMethod::AdaLora(read_adalora(&reader)?) } else { PeftMethod::Lora };
        let rank_pattern = if adalora {
            Vec::new()
        } else {
            reader.pattern("rank_pattern", "a whole number, 1 or more", as_rank)?
        };
        let config = Self {
            method,
            base_model_name_or_path: reader.text("base_model_name_or_path")?,
            revision: reader.text("revision")?,
            task_type: reader.text("task_type")?,
            inference_mode: reader.flag("inference_mode", false)?,
            r: reader.rank("r", DEFAULT_R)?,
            lora_alpha: reader.number("lora_alpha", DEFAULT_LORA_ALPHA)?,
            lora_dropout: reader.probability("lora_dropout")?,
            use_rslora: reader.flag("use_rslora", false)?,
            target_modules: read_targets(&reader)?,
            exclude_modules: reader.targets("exclude_modules")?.filter(|targets| {
                !matches!(targets, TargetModules::Names(names) if names.is_empty())
                    && !matches!(targets, TargetModules::Regex(text) if text.is_empty())
            }),
            layers_to_transform: reader.layers()?,
            layers_pattern: reader.texts("layers_pattern")?,
            modules_to_save: reader.texts("modules_to_save")?,
            rank_pattern,
            alpha_pattern: reader.pattern("alpha_pattern", "a number", Json::as_f64)?,
        };
        config.check(&reader)?;
        Ok(config)
    }

    /// What PEFT itself refuses.
    fn check(&self, reader: &Reader<'_>) -> Result<(), PeftError> {
        let names = matches!(self.target_modules, TargetModules::Names(_));
        if self.layers_to_transform.is_some() && !names {
            let found = reader.get("layers_to_transform");
            return Err(reader.error("layers_to_transform", "unset with a text target", found));
        }
        if !self.layers_pattern.is_empty() && self.layers_to_transform.is_none() {
            let found = reader.get("layers_pattern");
            return Err(reader.error(
                "layers_pattern",
                "unset without `layers_to_transform`",
                found,
            ));
        }
        // PEFT puts the rank in the place of such a numerator, which nobody means.
        if matches!(self.method, PeftMethod::AdaLora(_)) && self.lora_alpha <= 0.0 {
            return Err(reader.error("lora_alpha", "above 0", reader.get("lora_alpha")));
        }
        Ok(())
    }

    /// The document to write, keys sorted.
    pub(super) fn to_json(&self) -> Json {
        let text = |text: &Option<String>| text.clone().map_or(Json::Null, Json::String);
        let mut pairs = vec![
            ("alpha_pattern", object(&self.alpha_pattern, |&alpha| Json::number(alpha))),
            ("base_model_name_or_path", text(&self.base_model_name_or_path)),
            ("bias", Json::String("none".to_owned())),
            ("fan_in_fan_out", Json::Bool(false)),
            ("inference_mode", Json::Bool(self.inference_mode)),
            ("init_lora_weights", Json::Bool(true)),
            ("lora_alpha", Json::number(self.lora_alpha)),
            ("lora_dropout", Json::number(self.lora_dropout)),
            ("modules_to_save", list_or_null(&self.modules_to_save)),
            ("peft_type", Json::String(self.method.name().to_owned())),
            ("r", self.r.into()),
            ("rank_pattern", object(&self.rank_pattern, |&rank| rank.into())),
            ("revision", text(&self.revision)),
            ("target_modules", targets_json(&self.target_modules)),
            ("task_type", text(&self.task_type)),
            ("use_dora", Json::Bool(false)),
            ("use_rslora", Json::Bool(self.use_rslora)),
        ];
        if let Some(targets) = &self.exclude_modules {
            pairs.push(("exclude_modules", targets_json(targets)));
        }
        if let Some(layers) = &self.layers_to_transform {
            let layers = layers.iter().map(|&layer| layer.into()).collect();
            pairs.push(("layers_to_transform", Json::Array(layers)));
            pairs.push(("layers_pattern", list_or_null(&self.layers_pattern)));
        }
        if let PeftMethod::AdaLora(adalora) = &self.method {
            pairs.retain(|(key, _)| *key != "rank_pattern");
            pairs.extend(adalora_json(adalora));
        }
        pairs.sort_by_key(|(key, _)| *key);
        Json::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

fn read_targets(reader: &Reader<'_>) -> Result<TargetModules, PeftError> {
    match reader.targets("target_modules")? {
        Some(TargetModules::Regex(text)) if text.eq_ignore_ascii_case("all-linear") => {
            Ok(TargetModules::AllLinear)
        }
        Some(targets) => Ok(targets),
        // PEFT would look the names up by architecture; a saved adapter has them written out.
        None => Err(reader.error("target_modules", "a list of names or a text", None)),
    }
}

fn read_adalora(reader: &Reader<'_>) -> Result<AdaLoraConfig, PeftError> {
    let default = AdaLoraConfig::default();
    let init_r = reader.rank("init_r", default.init_r)?;
    let kept = match reader.get("rank_pattern") {
        None => None,
        Some(pattern) if pattern.is_unset() => None,
        Some(_) => Some(read_kept(reader, init_r)?),
    };
    Ok(AdaLoraConfig {
        init_r,
        target_r: reader.count("target_r", default.target_r)?,
        tinit: reader.count("tinit", default.tinit)?,
        tfinal: reader.count("tfinal", default.tfinal)?,
        delta_t: reader.count("deltaT", default.delta_t)?,
        beta1: reader.number("beta1", default.beta1)?,
        beta2: reader.number("beta2", default.beta2)?,
        orth_reg_weight: reader.number("orth_reg_weight", default.orth_reg_weight)?,
        total_step: reader.take("total_step", "a whole number, 0 or more", as_usize)?,
        kept,
    })
}

/// The kept triplets, by module path: keys end in `.lora_E`, in old files also in an adapter name.
fn read_kept(reader: &Reader<'_>, init_r: usize) -> Result<Vec<(String, Vec<bool>)>, PeftError> {
    let flags = |value: &Json| -> Option<Vec<bool>> {
        let flags = value.as_array()?.iter().map(Json::as_bool).collect::<Option<Vec<_>>>()?;
        (flags.len() == init_r).then_some(flags)
    };
    let pattern = reader.pattern("rank_pattern", "one true or false per initial rank", flags)?;
    let mut kept: Vec<(String, Vec<bool>)> = Vec::with_capacity(pattern.len());
    for (key, flags) in pattern {
        let path = key.strip_suffix(E_SUFFIX).or_else(|| {
            let (start, adapter_name) = key.rsplit_once('.')?;
            start.strip_suffix(E_SUFFIX).filter(|_| !adapter_name.is_empty())
        });
        let wanted = "an object with one key that ends in `.lora_E` per module";
        let path =
            path.filter(|path| !kept.iter().any(|(known, _)| known == path)).ok_or_else(|| {
                reader.error("rank_pattern", wanted, Some(&Json::String(key.clone())))
            })?;
        kept.push((path.to_owned(), flags));
    }
    Ok(kept)
}

fn adalora_json(adalora: &AdaLoraConfig) -> Vec<(&'static str, Json)> {
    let kept = adalora.kept.as_ref().map_or(Json::Null, |kept| {
        let pairs = kept.iter().map(|(path, flags)| {
            let flags = flags.iter().map(|&flag| Json::Bool(flag)).collect();
            (format!("{path}{E_SUFFIX}"), Json::Array(flags))
        });
        Json::Object(pairs.collect())
    });
    vec![
        ("beta1", Json::number(adalora.beta1)),
        ("beta2", Json::number(adalora.beta2)),
        ("deltaT", adalora.delta_t.into()),
        ("init_r", adalora.init_r.into()),
        ("orth_reg_weight", Json::number(adalora.orth_reg_weight)),
        ("rank_pattern", kept),
        ("target_r", adalora.target_r.into()),
        ("tfinal", adalora.tfinal.into()),
        ("tinit", adalora.tinit.into()),
        ("total_step", adalora.total_step.map_or(Json::Null, Json::from)),
    ]
}

fn object<T>(pairs: &[(String, T)], convert: impl Fn(&T) -> Json) -> Json {
    Json::Object(pairs.iter().map(|(key, value)| (key.clone(), convert(value))).collect())
}

fn list_or_null(names: &[String]) -> Json {
    if names.is_empty() { Json::Null } else { Json::strings(names) }
}

fn targets_json(targets: &TargetModules) -> Json {
    match targets {
        TargetModules::Names(names) => Json::strings(names),
        TargetModules::Regex(pattern) => Json::String(pattern.clone()),
        TargetModules::AllLinear => Json::String("all-linear".to_owned()),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
