//! Which keys of `adapter_config.json` may be passed over, and which must not be.
//!
//! PEFT gains keys with every version. A key is either read (`config_json`), harmless, refused
//! unless unset, or unknown. An unknown key is accepted only while it says "not set", so that a
//! future option which changes the result is an error here instead of a wrong number.

use std::path::Path;

use super::error::PeftError;
use crate::files::json::Json;

/// Keys that cannot change what a trained adapter computes. The `*_config` entries steer
/// initialisations; those which also alter base weights are refused through `init_lora_weights`.
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
const REFUSED: [(&str, &str); 15] = [
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
pub(super) fn check_unread(file: &Path, key: &str, value: &Json) -> Result<(), PeftError> {
    if HARMLESS.contains(&key) || value.is_unset() {
        return Ok(());
    }
    let (file, key, value) = (file.to_path_buf(), key.to_owned(), value.to_string());
    match REFUSED.iter().find(|(name, _)| *name == key) {
        Some(&(_, reason)) => Err(PeftError::Unsupported { file, key, value, reason }),
        None => Err(PeftError::UnknownKey { file, key, value }),
    }
}

/// Checks `init_lora_weights`. PEFT resets it to `true` when it converts an adapter that had
/// changed the base weights into one that has not, so a converted adapter passes.
pub(super) fn check_init(file: &Path, value: &Json) -> Result<(), PeftError> {
    let plain = match value {
        Json::Null | Json::Bool(_) => true,
        Json::String(name) => PLAIN_INITS.contains(&name.to_ascii_lowercase().as_str()),
        _ => false,
    };
    if plain {
        return Ok(());
    }
    Err(PeftError::Unsupported {
        file: file.to_path_buf(),
        key: "init_lora_weights".to_owned(),
        value: value.to_string(),
        reason: "it may have changed the base weights; convert the adapter in PEFT with \
                 `path_initial_model_for_weight_conversion` first",
    })
}

/// Checks `bias`.
pub(super) fn check_bias(file: &Path, value: &Json) -> Result<(), PeftError> {
    if value.is_unset() || value.as_str() == Some("none") {
        return Ok(());
    }
    Err(PeftError::Unsupported {
        file: file.to_path_buf(),
        key: "bias".to_owned(),
        value: value.to_string(),
        reason: "biases of the base would be replaced",
    })
}
