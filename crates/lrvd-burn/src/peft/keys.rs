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
    /// Factors of a module.
    pub(super) fn of(method: &PeftMethod) -> &'static [Self] {
        match method {
            PeftMethod::Lora => &[Self::A, Self::B],
            PeftMethod::AdaLora(_) => &[Self::A, Self::B, Self::E],
        }
    }

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
    let stem = match method {
        PeftMethod::Lora => name.strip_suffix(".weight")?,
        PeftMethod::AdaLora(_) => name,
    };
    let find = |stem: &str| {
        let (path, last) = stem.rsplit_once('.')?;
        let factor = *Factor::of(method).iter().find(|factor| factor.name() == last)?;
        Some(Key::Factor { path: path.to_owned(), factor })
    };
    find(stem).or_else(|| {
        let (start, adapter_name) = stem.rsplit_once('.')?;
        // `lora_A.weight` in an AdaLoRA file is a LoRA name, not an adapter called "weight".
        if matches!(adapter_name, "weight" | "bias") { None } else { find(start) }
    })
}
