//! `llama.*` keys as the text of a `config.json`.

use std::f64::consts::TAU;

use lrvd_burn::files::GgufFile;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Stretching of the rotary wavelengths, as a tensor.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";
/// Word embedding, whose rows are the vocabulary.
const EMBEDDING: &str = "token_embd.weight";
/// Base of the rotary wavelengths where none is stated.
const THETA: f64 = 10_000.0;
// Llama 3's settings of stretched wavelengths, all but the factor: llama.cpp's converter writes only what they
// amount to.
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;
const LENGTH: f64 = 8192.0;

/// The text of a `config.json`.
pub(super) fn config_json(file: &GgufFile) -> Result<String> {
    check_kind(file)?;
    let needed =
        |key: &str| -> Result<u64> { Ok(file.count(key)?.ok_or_else(|| file.missing(key))?) };
    let hidden = needed("llama.embedding_length")?;
    let heads = needed("llama.attention.head_count")?;
    let groups = file.count("llama.attention.head_count_kv")?.unwrap_or(heads);
    let whole = hidden.checked_div(heads).unwrap_or(0);
    let head_dim = file.count("llama.attention.key_length")?.unwrap_or(whole);
    let same = "the width of a head, which is `llama.attention.key_length` or the embedding's over the heads";
    for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
        if file.count(key)?.is_some_and(|found| found != head_dim) {
            return Err(file.unexpected(key, same).into());
        }
    }
    let theta = file.float("llama.rope.freq_base")?.unwrap_or(THETA);
    let epsilon = "llama.attention.layer_norm_rms_epsilon";
    let mut ends: Vec<u64> = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        ends.extend(file.count(key)?.filter(|id| !ends.contains(id)));
    }
    let vocab_size = file.tensors().shape(EMBEDDING).and_then(|shape| shape.first().copied());
    let vocab_size =
        vocab_size.ok_or_else(|| lrvd_burn::Error::no_tensor(file.path(), EMBEDDING))?;
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": false,
        "bos_token_id": file.count("tokenizer.ggml.bos_token_id")?,
        "eos_token_id": ends,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": needed("llama.feed_forward_length")?,
        "max_position_embeddings": needed("llama.context_length")?,
        "mlp_bias": false,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": needed("llama.block_count")?,
        "num_key_value_heads": groups,
        "pad_token_id": file.count("tokenizer.ggml.padding_token_id")?,
        "rms_norm_eps": file.float(epsilon)?.ok_or_else(|| file.missing(epsilon))?,
        "rope_scaling": scaling(file, theta, head_dim)?,
        "rope_theta": theta,
        "tie_word_embeddings": !file.tensors().contains("output.weight"),
        "torch_dtype": "float32",
        "vocab_size": vocab_size,
    });
    Ok(format!("{config:#}\n"))
}

/// A whole model of llama.cpp's architecture `llama`, without experts.
fn check_kind(file: &GgufFile) -> Result<()> {
    const ARCHITECTURE: &str = "general.architecture";
    let unsupported = |key: &str, found: &str, supported: &str| {
        Err(Error::unsupported(file.path(), key, found, supported))
    };
    let architecture = file.text(ARCHITECTURE)?.ok_or_else(|| file.missing(ARCHITECTURE))?;
    if architecture != "llama" {
        return unsupported(ARCHITECTURE, architecture, "`llama`");
    }
    if let Some(kind) = file.text("general.type")?.filter(|kind| *kind != "model") {
        return unsupported("general.type", kind, "`model`");
    }
    for key in ["llama.expert_count", "llama.attention.sliding_window"] {
        if let Some(found) = file.count(key)?.filter(|&found| found > 0) {
            return unsupported(key, &found.to_string(), "none or 0");
        }
    }
    Ok(())
}

/// Stretched wavelengths, from the factors that the file holds for every one of them.
fn scaling(file: &GgufFile, theta: f64, head_dim: u64) -> Result<Value> {
    const KIND: &str = "llama.rope.scaling.type";
    const FACTOR: &str = "llama.rope.scaling.factor";
    if let Some(kind) = file.text(KIND)? {
        let idle = kind == "none" || (kind == "linear" && file.float(FACTOR)? == Some(1.0));
        if !idle {
            let supported = "`none`, or the factors of Llama 3 as the tensor `rope_freqs.weight`";
            return Err(Error::unsupported(file.path(), KIND, kind, supported));
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
