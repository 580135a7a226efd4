//! `llama.*`, `qwen2.*` and `qwen3.*` keys as the text of a `config.json`.

use std::f64::consts::TAU;

use lrvd_burn::files::GgufFile;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::llama::family::LlamaFamily;

/// Stretching of the rotary wavelengths, as a tensor.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// Word embedding, whose rows are the vocabulary.
const EMBEDDING: &str = "token_embd.weight";
/// Bias of the first query projection, which tells whether a model has such.
const BIAS: &str = "blk.0.attn_q.bias";
const ARCHITECTURE: &str = "general.architecture";
/// Base of the rotary wavelengths where none is stated.
const THETA: f64 = 10_000.0;
// Llama 3's settings of stretched wavelengths, all but the factor: llama.cpp's converter writes only what they
// amount to.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
const LENGTH: f64 = 8192.0;

/// The text of a `config.json`.
pub(super) fn config_json(file: &GgufFile) -> Result<String> {
    let family = check_kind(file)?;
    let key = |name: &str| format!("{}.{name}", family.spec().gguf);
    let needed = |name: &str| -> Result<u64> {
        let key = key(name);
        Ok(file.count(&key)?.ok_or_else(|| file.missing(&key))?)
    };
    let hidden = needed("embedding_length")?;
    let heads = needed("attention.head_count")?;
    let groups = file.count(&key("attention.head_count_kv"))?.unwrap_or(heads);
    let whole = hidden
        .checked_div(heads)
        .ok_or_else(|| file.unexpected(&key("attention.head_count"), "a number from 1"))?;
    let head_dim = file.count(&key("attention.key_length"))?.unwrap_or(whole);
    let same =
        "the width of a head, which is `attention.key_length` or the embedding's over the heads";
    for other in ["attention.value_length", "rope.dimension_count"].map(key) {
        if file.count(&other)?.is_some_and(|found| found != head_dim) {
            return Err(file.unexpected(&other, same).into());
        }
    }
    let theta = file.float(&key("rope.freq_base"))?.unwrap_or(THETA);
    let epsilon = key("attention.layer_norm_rms_epsilon");
    let mut ends: Vec<u64> = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        ends.extend(file.count(key)?.filter(|id| !ends.contains(id)));
    }
    let vocab_size = file.tensors().shape(EMBEDDING).and_then(|shape| shape.first().copied());
    let vocab_size =
        vocab_size.ok_or_else(|| lrvd_burn::Error::no_tensor(file.path(), EMBEDDING))?;
    let config = json!({
        "architectures": [format!("{}ForCausalLM", family.class())],
        "attention_bias": file.tensors().contains(BIAS),
        "bos_token_id": file.count("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": ends,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": needed("feed_forward_length")?,
        "max_position_embeddings": needed("context_length")?,
        "mlp_bias": false,
        "model_type": family.model_type(),
        "num_attention_heads": heads,
        "num_hidden_layers": needed("block_count")?,
        "num_key_value_heads": groups,
        "pad_token_id": file.count("tokenizer.ggml.padding_token_id")?,
        "rms_norm_eps": file.float(&epsilon)?.ok_or_else(|| file.missing(&epsilon))?,
        "rope_scaling": scaling(file, family, theta, head_dim)?,
        "rope_theta": theta,
        "tie_word_embeddings": !file.tensors().contains("output.weight"),
        "torch_dtype": "float32",
        "vocab_size": vocab_size,
    });
    Ok(format!("{config:#}\n"))
}

/// The architecture of a file, as llama.cpp calls it.
pub(super) fn architecture(file: &GgufFile) -> Result<&str> {
    Ok(file.text(ARCHITECTURE)?.ok_or_else(|| file.missing(ARCHITECTURE))?)
}

/// The family of a whole model without experts and windows.
fn check_kind(file: &GgufFile) -> Result<LlamaFamily> {
    let unsupported = |key: &str, found: &str, supported: &str| {
        Err(Error::unsupported(file.path(), key, found, supported))
    };
    let architecture = architecture(file)?;
    let Some(family) = LlamaFamily::from_gguf(architecture) else {
        return unsupported(ARCHITECTURE, architecture, "`llama`, `qwen2`, `qwen3`");
    };
    if let Some(kind) = file.text("general.type")?.filter(|kind| *kind != "model") {
        return unsupported("general.type", kind, "`model`");
    }
    for name in ["expert_count", "attention.sliding_window"] {
        let key = format!("{architecture}.{name}");
        if let Some(found) = file.count(&key)?.filter(|&found| found > 0) {
            return unsupported(&key, &found.to_string(), "none or 0");
        }
    }
    Ok(family)
}

/// Stretched wavelengths, from the factors that the file holds for every one of them.
fn scaling(file: &GgufFile, family: LlamaFamily, theta: f64, head_dim: u64) -> Result<Value> {
    let key = |name: &str| format!("{}.rope.scaling.{name}", family.spec().gguf);
    if let Some(kind) = file.text(&key("type"))? {
        let factor = file.float(&key("factor"))?;
        let idle = kind == "none" || (kind == "linear" && factor == Some(1.0));
        if !idle {
            let supported = "`none`, or the factors of Llama 3 as the tensor `rope_freqs.weight`";
            return Err(Error::unsupported(file.path(), key("type"), kind, supported));
        }
    }
    if !file.tensors().contains(ROPE_FACTORS) {
        return Ok(Value::Null);
    }
    let factors =
        file.tensors().read(ROPE_FACTORS)?.to_f64().map_err(|source| {
            Error::format(file.path(), ROPE_FACTORS, "a tensor of floats", source)
        })?;
    let factor = factors.iter().copied().fold(1.0, f64::max);
    let expected = (0..head_dim / 2).map(|i| {
        let wavelength = TAU * theta.powf(2.0 * i as f64 / head_dim as f64);
        let share = ((LENGTH / wavelength - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
        1.0 / ((1.0 - share) / factor + share)
    });
    let near = |(found, expected): (&f64, f64)| (found - expected).abs() <= 1e-4 * expected;
    if factors.len() as u64 != head_dim / 2 || !factors.iter().zip(expected).all(near) {
        let found = format!("{} factors up to {factor}", factors.len());
        let supported = "those of Llama 3 with low_freq_factor 1, high_freq_factor 4 and a training length of 8192";
        return Err(Error::unsupported(file.path(), ROPE_FACTORS, found, supported));
    }
    Ok(json!({
        "factor": factor,
        "high_freq_factor": HIGH,
        "low_freq_factor": LOW,
        "original_max_position_embeddings": LENGTH as u64,
        "rope_type": "llama3",
    }))
}
