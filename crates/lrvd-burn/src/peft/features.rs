//! Keys of `adapter_config.json` that may be passed over, and those that must not be.
//!
//! PEFT gains keys with every version. A key is either read (`config_json`), harmless, unsupported
//! unless unset, or unknown. An unknown key is accepted only while it says "not set", so that a
//! future option which changes the result is an error here instead of a wrong number.

use std::path::Path;

use crate::error::Error;
use serde_json::Value;

/// Keys that cannot change what a trained adapter computes. The `*_config` entries steer
/// initialisations; those which also alter base weights are errors through `init_lora_weights`.
const HARMLESS: [&str; 9] = [
    "auto_mapping",
    "corda_config",
    "eva_config",
    "loftq_config",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "runtime_config",
];

/// Keys that must be unset, and what they would change.
const UNSUPPORTED: [(&str, &str); 15] = [
    ("alora_invocation_tokens", "the adapter would act from an invocation token on"),
    ("arrow_config", "several adapters would be routed by token"),
    ("ensure_weight_tying", "adapters of tied layers would be tied"),
    ("fan_in_fan_out", "base weights would be stored transposed"),
    ("kasa_config", "base weights would be truncated and the adapter gain a diagonal"),
    ("layer_replication", "base layers would be repeated"),
    ("lora_bias", "the up-projection would have a bias"),
    ("megatron_config", "layers would be split over devices"),
    ("monteclora_config", "the adapter would be sampled by another method"),
    ("target_parameters", "bare parameters would be adapted"),
    ("trainable_token_indices", "rows of the embedding would be replaced"),
    ("use_bdlora", "factors would be block-diagonal"),
    ("use_dora", "weights would be renormalised by column"),
    ("use_qalora", "inputs would be pooled in groups"),
    ("velora_config", "the backward pass would be approximated"),
];

/// Initialisations that leave the base weights alone.
const PLAIN_INITS: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// Checks a key that is not read by the typed configuration.
pub(super) fn check_unread(file: &Path, key: &str, value: &Value) -> Result<(), Error> {
    if HARMLESS.contains(&key) || is_unset(value) {
        return Ok(());
    }
    match UNSUPPORTED.iter().find(|(name, _)| *name == key) {
        Some(&(_, reason)) => Err(unsupported(file, key, value, reason)),
        None => Err(Error::file(
            file,
            format!(
                "has the unknown key `{key}` = `{value}`; only null, false or empty can be passed over"
            ),
        )),
    }
}

/// Checks `init_lora_weights`. PEFT resets it to `true` when it converts an adapter that had
/// changed the base weights into one that has not, so a converted adapter passes.
pub(super) fn check_init(file: &Path, value: &Value) -> Result<(), Error> {
    let plain = match value {
        Value::Null | Value::Bool(_) => true,
        Value::String(name) => PLAIN_INITS.contains(&name.to_ascii_lowercase().as_str()),
        _ => false,
    };
    let reason = "it may have changed the base weights; convert the adapter in PEFT with \
                  `path_initial_model_for_weight_conversion` first";
    if plain { Ok(()) } else { Err(unsupported(file, "init_lora_weights", value, reason)) }
}

/// Checks `bias`.
pub(super) fn check_bias(file: &Path, value: &Value) -> Result<(), Error> {
    if is_unset(value) || value == "none" {
        return Ok(());
    }
    Err(unsupported(file, "bias", value, "biases of the base would be replaced"))
}

/// Whether the value says "not set": null, false, or an empty text, list or object.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(pairs) => pairs.is_empty(),
    }
}

fn unsupported(file: &Path, key: &str, value: &Value, reason: &'static str) -> Error {
    let what = format!("has `{key}` = `{value}`, which is not supported: {reason}");
    Error::Unsupported { path: file.to_path_buf(), what }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn unset_values() {
        for text in ["null", "false", "\"\"", "[]", "{}"] {
            assert!(is_unset(&serde_json::from_str(text).unwrap()), "{text}");
        }
        for text in ["0", "true", "\"x\"", "[0]", "{\"a\":null}"] {
            assert!(!is_unset(&serde_json::from_str(text).unwrap()), "{text}");
        }
    }
}
