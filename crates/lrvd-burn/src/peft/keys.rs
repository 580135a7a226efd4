//! Names of tensors in `adapter_model.safetensors`.
//!
//! | Name | Tensor |
//! |---|---|
//! | `base_model.model.{path}.lora_A.weight` | `LoRA`, `[rank, d_in]`; `lora_B` is `[d_out, rank]` |
//! | `base_model.model.{path}.lora_A` | `AdaLoRA`, also `lora_B` and `lora_E`, `[rank, 1]` |
//! | `base_model.model.{path}.{parameter}` | a parameter of a module that is stored whole |

use super::config::{PeftConfig, PeftMethod};

/// Start of every name.
const PREFIX: &str = "base_model.model.";
/// Part of the name of a frozen base weight that was saved along with an adapted embedding or head.
const BASE_LAYER: &str = ".base_layer.";
/// End of the name of an input embedding that PEFT saves along with an adapted head.
const EMBEDDING: &str = "embed_tokens.weight";
/// Parts that wrap a module which is stored whole, in files not written by PEFT's own saving.
const SAVED_COPY: &str = ".modules_to_save.";
const ORIGINAL_COPY: &str = ".original_module.";

/// Which factor of the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Factor {
    A,
    B,
    E,
}

impl Factor {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::A => "lora_A",
            Self::B => "lora_B",
            Self::E => "lora_E",
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// A factor of the module at `path`.
    Factor { path: String, factor: Factor },
    /// A parameter of a module that is stored whole, under its name in the model.
    Saved(String),
    /// Known and not used.
    Ignored(&'static str),
    /// Not known.
    Unknown,
}

/// Name of a factor in a file of the given method.
pub(super) fn factor_key(method: &PeftMethod, path: &str, factor: Factor) -> String {
    let end = match method {
        PeftMethod::Lora => ".weight",
        PeftMethod::AdaLora(_) => "",
    };
    format!("{PREFIX}{path}.{}{end}", factor.name())
}

/// Name of a parameter that is stored whole.
pub(super) fn saved_key(parameter: &str) -> String {
    format!("{PREFIX}{parameter}")
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
        return Key::Ignored("a frozen weight of the base model");
    }
    if name.contains(ORIGINAL_COPY) {
        return Key::Ignored("the base model's own copy of a module that is stored whole");
    }
    let parameter = match name.split_once(SAVED_COPY) {
        // `path.modules_to_save.NAME.parameter`: the adapter's name is one part.
        Some((path, rest)) => match rest.split_once('.') {
            Some((_, parameter)) => format!("{path}.{parameter}"),
            None => return Key::Unknown,
        },
        None => name.to_owned(),
    };
    if config.saves(&parameter) {
        Key::Saved(parameter)
    } else if name == EMBEDDING || name.ends_with(&format!(".{EMBEDDING}")) {
        Key::Ignored("the base model's embedding, saved along with an adapted head")
    } else {
        Key::Unknown
    }
}

/// `path.lora_X[.adapter_name].weight` for `LoRA`, `path.lora_X[.adapter_name]` for `AdaLoRA`.
fn parse_factor(method: &PeftMethod, name: &str) -> Option<Key> {
    let (stem, factors) = match method {
        PeftMethod::Lora => (name.strip_suffix(".weight")?, &[Factor::A, Factor::B][..]),
        PeftMethod::AdaLora(_) => (name, &[Factor::A, Factor::B, Factor::E][..]),
    };
    let find = |stem: &str| {
        let (path, last) = stem.rsplit_once('.')?;
        let factor = *factors.iter().find(|factor| factor.name() == last)?;
        Some(Key::Factor { path: path.to_owned(), factor })
    };
    find(stem).or_else(|| {
        let (start, adapter_name) = stem.rsplit_once('.')?;
        // `lora_A.weight` in an AdaLoRA file is a LoRA name, not an adapter called "weight".
        if matches!(adapter_name, "weight" | "bias") { None } else { find(start) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peft::config::{AdaLoraConfig, TargetModules};

    fn config(adalora: bool) -> PeftConfig {
        let targets = TargetModules::Names(vec!["q".into()]);
        let mut config = if adalora {
            PeftConfig::adalora(AdaLoraConfig::default(), 8.0, targets)
        } else {
            PeftConfig::lora(4, 8.0, targets)
        };
        config.modules_to_save = vec!["classifier".into()];
        config
    }

    fn factor(path: &str, factor: Factor) -> Key {
        Key::Factor { path: path.into(), factor }
    }

    #[test]
    fn factors_with_and_without_an_adapter_name() {
        let lora = config(false);
        for key in
            ["base_model.model.h.0.q.lora_A.weight", "base_model.model.h.0.q.lora_A.default.weight"]
        {
            assert_eq!(parse_key(&lora, key), factor("h.0.q", Factor::A), "{key}");
        }
        let adalora = config(true);
        for key in ["base_model.model.h.0.q.lora_E", "base_model.model.h.0.q.lora_E.mine"] {
            assert_eq!(parse_key(&adalora, key), factor("h.0.q", Factor::E), "{key}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for adalora in [false, true] {
            let config = config(adalora);
            for which in [Factor::A, Factor::B] {
                let key = factor_key(&config.method, "h.0.q", which);
                assert_eq!(parse_key(&config, &key), factor("h.0.q", which), "{key}");
            }
        }
        let key = saved_key("classifier.bias");
        assert_eq!(parse_key(&config(false), &key), Key::Saved("classifier.bias".into()));
    }

    #[test]
    fn the_other_methods_names_are_unknown() {
        assert_eq!(parse_key(&config(false), "base_model.model.q.lora_A"), Key::Unknown);
        assert_eq!(parse_key(&config(false), "base_model.model.q.lora_E.weight"), Key::Unknown);
        assert_eq!(parse_key(&config(true), "base_model.model.q.lora_A.weight"), Key::Unknown);
        for name in ["q.lora_magnitude_vector", "q.lora_B.bias", "q.lora_embedding_A"] {
            assert_eq!(
                parse_key(&config(false), &format!("base_model.model.{name}")),
                Key::Unknown
            );
        }
        assert_eq!(parse_key(&config(false), "h.0.q.lora_A.weight"), Key::Unknown);
    }

    #[test]
    fn copies_of_base_weights_are_passed_over() {
        for name in [
            "lm_head.base_layer.weight",
            "model.embed_tokens.weight",
            "classifier.original_module.weight",
        ] {
            let key = parse_key(&config(false), &format!("base_model.model.{name}"));
            assert!(matches!(key, Key::Ignored(_)), "{name}: {key:?}");
        }
        // Listed, the embedding is a trained parameter.
        let mut listed = config(false);
        listed.modules_to_save = vec!["embed_tokens".into()];
        let key = parse_key(&listed, "base_model.model.model.embed_tokens.weight");
        assert_eq!(key, Key::Saved("model.embed_tokens.weight".into()));
        assert_eq!(parse_key(&listed, "base_model.model.lm_head.weight"), Key::Unknown);
    }

    #[test]
    fn wrapped_modules_lose_their_wrapper() {
        let key = "base_model.model.classifier.modules_to_save.default.weight";
        assert_eq!(parse_key(&config(false), key), Key::Saved("classifier.weight".into()));
    }
}
