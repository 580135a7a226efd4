//! The two directions between [`PeftConfig`] and the JSON of `adapter_config.json`.

use std::num::NonZeroUsize;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::config::{AdaLoraConfig, PeftConfig, PeftMethod, TargetModules};
use super::config_reader::{Entry, OneOrMany, Reader};
use super::features::{check_bias, check_init, check_unread};
use crate::error::Error;
use crate::files::ordered_map::OrderedMap;

/// End of the names in an `AdaLoRA` rank pattern.
const E_SUFFIX: &str = ".lora_E";
/// PEFT's defaults, for keys that an old file may lack.
const DEFAULT_R: usize = 8;
const DEFAULT_LORA_ALPHA: f64 = 8.0;
/// Forms in messages.
const TEXT: &str = "a text";
const TEXTS: &str = "a list of texts";
const FLAG: &str = "true or false";
const COUNT: &str = "a whole number, 0 or more";
const RANK: &str = "a whole number, 1 or more";
const NUMBER: &str = "a number";

impl PeftConfig {
    /// The configuration in the text of `file`.
    pub(super) fn parse(file: &Path, text: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(file, text)?;
        let peft_type = reader.value("peft_type");
        let method = match peft_type.as_str() {
            Some("LORA") => PeftMethod::Lora,
            Some("ADALORA") => PeftMethod::AdaLora(read_adalora(&mut reader)?),
            _ => return Err(reader.error("peft_type", "`LORA` or `ADALORA`", &peft_type)),
        };
        check_bias(file, &reader.value("bias"))?;
        check_init(file, &reader.value("init_lora_weights"))?;
        let ranks = match method {
            PeftMethod::Lora => reader.pattern::<NonZeroUsize>("rank_pattern", RANK)?,
            PeftMethod::AdaLora(_) => Vec::new(),
        };
        let layers = reader.take("layers_to_transform", "a list of whole numbers")?;
        let config = Self {
            method,
            base_model_name_or_path: reader.take("base_model_name_or_path", TEXT)?,
            revision: reader.take("revision", TEXT)?,
            task_type: reader.take("task_type", TEXT)?,
            inference_mode: reader.take("inference_mode", FLAG)?.unwrap_or(false),
            r: rank(&mut reader, "r", DEFAULT_R)?,
            lora_alpha: reader.take("lora_alpha", NUMBER)?.unwrap_or(DEFAULT_LORA_ALPHA),
            lora_dropout: reader.take("lora_dropout", NUMBER)?.unwrap_or(0.0),
            use_rslora: reader.take("use_rslora", FLAG)?.unwrap_or(false),
            target_modules: match targets(&mut reader, "target_modules")? {
                Some(TargetModules::Regex(text)) if text.eq_ignore_ascii_case("all-linear") => {
                    TargetModules::AllLinear
                }
                Some(targets) => targets,
                // PEFT would look the names up by architecture; a saved adapter has them written
                // out.
                None => {
                    let expected = "a list of names or a text";
                    return Err(reader.error("target_modules", expected, &Value::Null));
                }
            },
            exclude_modules: targets(&mut reader, "exclude_modules")?.filter(|t| match t {
                TargetModules::Names(names) => !names.is_empty(),
                TargetModules::Regex(text) => !text.is_empty(),
                TargetModules::AllLinear => true,
            }),
            layers_to_transform: layers.map(OneOrMany::into_vec).filter(|l| !l.is_empty()),
            layers_pattern: texts(&mut reader, "layers_pattern")?,
            modules_to_save: texts(&mut reader, "modules_to_save")?,
            rank_pattern: ranks.into_iter().map(|(key, rank)| (key, rank.get())).collect(),
            alpha_pattern: reader.pattern("alpha_pattern", NUMBER)?,
        };
        config.check(&reader)?;
        for (key, value) in reader.rest() {
            check_unread(file, &key, &value)?;
        }
        Ok(config)
    }

    /// The checks of PEFT itself.
    fn check(&self, reader: &Reader<'_>) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&self.lora_dropout) {
            return Err(reader.error("lora_dropout", "a number from 0 to 1", &self.lora_dropout));
        }
        let names = matches!(self.target_modules, TargetModules::Names(_));
        if self.layers_to_transform.is_some() && !names {
            let (expected, found) = ("unset with a text target", &self.layers_to_transform);
            return Err(reader.error("layers_to_transform", expected, found));
        }
        if !self.layers_pattern.is_empty() && self.layers_to_transform.is_none() {
            let (expected, found) = ("unset without `layers_to_transform`", &self.layers_pattern);
            return Err(reader.error("layers_pattern", expected, found));
        }
        // PEFT puts the rank in the place of such a numerator, which cannot be meant.
        if matches!(self.method, PeftMethod::AdaLora(_)) && self.lora_alpha <= 0.0 {
            return Err(reader.error("lora_alpha", "above 0", &self.lora_alpha));
        }
        Ok(())
    }

    /// The document to write, keys sorted.
    pub(super) fn document(&self) -> impl Serialize {
        let mut plain = vec![
            ("base_model_name_or_path", json!(self.base_model_name_or_path)),
            ("bias", json!("none")),
            ("fan_in_fan_out", json!(false)),
            ("inference_mode", json!(self.inference_mode)),
            ("init_lora_weights", json!(true)),
            ("lora_alpha", number(self.lora_alpha)),
            ("lora_dropout", number(self.lora_dropout)),
            ("modules_to_save", list_or_null(&self.modules_to_save)),
            ("peft_type", json!(self.method.name())),
            ("r", json!(self.r)),
            ("revision", json!(self.revision)),
            ("target_modules", targets_json(&self.target_modules)),
            ("task_type", json!(self.task_type)),
            ("use_dora", json!(false)),
            ("use_rslora", json!(self.use_rslora)),
        ];
        if let Some(targets) = &self.exclude_modules {
            plain.push(("exclude_modules", targets_json(targets)));
        }
        if let Some(layers) = &self.layers_to_transform {
            plain.push(("layers_to_transform", json!(layers)));
            plain.push(("layers_pattern", list_or_null(&self.layers_pattern)));
        }
        let ranks = match &self.method {
            PeftMethod::Lora => object(&self.rank_pattern, String::clone, |rank| json!(rank)),
            PeftMethod::AdaLora(adalora) => {
                plain.extend([
                    ("beta1", number(adalora.beta1)),
                    ("beta2", number(adalora.beta2)),
                    ("deltaT", json!(adalora.delta_t)),
                    ("init_r", json!(adalora.init_r)),
                    ("orth_reg_weight", number(adalora.orth_reg_weight)),
                    ("target_r", json!(adalora.target_r)),
                    ("tfinal", json!(adalora.tfinal)),
                    ("tinit", json!(adalora.tinit)),
                    ("total_step", json!(adalora.total_step)),
                ]);
                let key = |path: &String| format!("{path}{E_SUFFIX}");
                let kept = adalora.kept.as_ref();
                kept.map_or(Entry::Plain(Value::Null), |kept| object(kept, key, |f| json!(f)))
            }
        };
        let plain = plain.into_iter().map(|(key, value)| (key, Entry::Plain(value)));
        let alphas = object(&self.alpha_pattern, String::clone, |&alpha| number(alpha));
        let mut pairs: Vec<_> = plain
            .chain([("alpha_pattern", alphas), ("rank_pattern", ranks)])
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        pairs.sort_by(|(one, _), (two, _)| one.cmp(two));
        OrderedMap(pairs)
    }
}

fn rank(reader: &mut Reader<'_>, key: &str, default: usize) -> Result<usize, Error> {
    Ok(reader.take::<NonZeroUsize>(key, RANK)?.map_or(default, NonZeroUsize::get))
}

/// A list of texts, or one text.
fn texts(reader: &mut Reader<'_>, key: &str) -> Result<Vec<String>, Error> {
    Ok(reader.take(key, TEXTS)?.map_or_else(Vec::new, OneOrMany::into_vec))
}

fn targets(reader: &mut Reader<'_>, key: &str) -> Result<Option<TargetModules>, Error> {
    let targets = reader.take(key, "a list of names or a regular expression")?;
    Ok(targets.map(|targets| match targets {
        OneOrMany::One(text) => TargetModules::Regex(text),
        OneOrMany::Many(names) => TargetModules::Names(names),
    }))
}

fn read_adalora(reader: &mut Reader<'_>) -> Result<AdaLoraConfig, Error> {
    let default = AdaLoraConfig::default();
    let init_r = rank(reader, "init_r", default.init_r)?;
    let mut count = |key, default| Ok::<_, Error>(reader.take(key, COUNT)?.unwrap_or(default));
    let (target_r, tinit) = (count("target_r", default.target_r)?, count("tinit", default.tinit)?);
    let (tfinal, delta_t) = (count("tfinal", default.tfinal)?, count("deltaT", default.delta_t)?);
    let mut value = |key, default| Ok::<_, Error>(reader.take(key, NUMBER)?.unwrap_or(default));
    Ok(AdaLoraConfig {
        init_r,
        target_r,
        tinit,
        tfinal,
        delta_t,
        beta1: value("beta1", default.beta1)?,
        beta2: value("beta2", default.beta2)?,
        orth_reg_weight: value("orth_reg_weight", default.orth_reg_weight)?,
        total_step: reader.take("total_step", COUNT)?,
        kept: read_kept(reader, init_r)?,
    })
}

/// Flags by key, in the order of the file.
type Flags = Vec<(String, Vec<bool>)>;

/// The kept triplets, by module path: keys end in `.lora_E`, in old files also in an adapter name.
fn read_kept(reader: &mut Reader<'_>, init_r: usize) -> Result<Option<Flags>, Error> {
    let expected = "one true or false per initial rank";
    let pattern: Flags = reader.pattern("rank_pattern", expected)?;
    let mut kept: Flags = Vec::with_capacity(pattern.len());
    for (key, flags) in pattern {
        if flags.len() != init_r {
            return Err(reader.error(&format!("rank_pattern.{key}"), expected, &flags));
        }
        let path = key.strip_suffix(E_SUFFIX).or_else(|| {
            let (start, adapter_name) = key.rsplit_once('.')?;
            start.strip_suffix(E_SUFFIX).filter(|_| !adapter_name.is_empty())
        });
        match path.filter(|path| !kept.iter().any(|(known, _)| known == path)) {
            Some(path) => kept.push((path.to_owned(), flags)),
            None => {
                let expected = "an object with one key that ends in `.lora_E` per module";
                return Err(reader.error("rank_pattern", expected, &key));
            }
        }
    }
    Ok((!kept.is_empty()).then_some(kept))
}

fn object<T>(
    pairs: &[(String, T)],
    key: impl Fn(&String) -> String,
    value: impl Fn(&T) -> Value,
) -> Entry {
    Entry::Object(OrderedMap(pairs.iter().map(|(k, v)| (key(k), value(v))).collect()))
}

fn list_or_null(names: &[String]) -> Value {
    if names.is_empty() { Value::Null } else { json!(names) }
}

fn targets_json(targets: &TargetModules) -> Value {
    match targets {
        TargetModules::Names(names) => json!(names),
        TargetModules::Regex(text) => json!(text),
        TargetModules::AllLinear => json!("all-linear"),
    }
}

/// A finite number, written as an integer where it is one. A value that is not finite becomes
/// null.
fn number(value: f64) -> Value {
    // Every integer up to 2^53 is exact in f64.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
