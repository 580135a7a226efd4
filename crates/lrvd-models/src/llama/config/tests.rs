//! Tests of the configuration: literals in the layout of the published files, and one fault at a time.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::error::Error;

/// The layout of the published Llama-2 configuration.
fn base() -> Value {
    json!({
        "_name_or_path": "base", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
        "tie_word_embeddings": false, "torch_dtype": "float16",
        "transformers_version": "4.32.0.dev0", "use_cache": true, "vocab_size": 32000
    })
}

fn llama3() -> Value {
    json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"
    })
}

fn parse(value: &Value) -> Result<LlamaConfig> {
    LlamaConfig::parse(value.to_string().as_bytes(), "config.json".as_ref())
}

fn with(changes: &[(&str, Value)]) -> Result<LlamaConfig> {
    let mut config = base();
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    parse(&config)
}

#[test]
fn the_published_layout_is_read() {
    let config = parse(&base()).unwrap();
    assert_eq!((config.hidden_size, config.intermediate_size, config.head_dim), (4096, 11008, 128));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads), (32, 32));
    assert_eq!((config.rms_norm_eps, config.rope_theta), (1e-5, 10_000.0));
    assert_eq!(config.rope_scaling, None);
    assert_eq!((config.bos_token_id, config.pad_token_id), (Some(1), None));
    assert_eq!(config.eos_token_ids, [2]);
    assert!(!config.tie_word_embeddings && config.attention_dropout == 0.0);
    assert!(config.unrecognised().is_empty(), "{:?}", config.unrecognised());
}

#[test]
fn absent_keys_have_the_defaults_of_transformers() {
    let config = parse(&json!({
        "model_type": "llama", "hidden_size": 12, "num_attention_heads": 3,
        "num_hidden_layers": 2, "intermediate_size": 5, "vocab_size": 7
    }))
    .unwrap();
    assert_eq!((config.num_key_value_heads, config.head_dim), (3, 4));
    assert_eq!((config.rms_norm_eps, config.max_position_embeddings), (1e-6, 2048));
    assert_eq!((config.rope_theta, config.rope_scaling), (10_000.0, None));
    assert!(!config.tie_word_embeddings && config.eos_token_ids.is_empty());
}

#[test]
fn groups_and_head_widths_are_read() {
    let config = with(&[("num_key_value_heads", 8.into()), ("head_dim", 64.into())]).unwrap();
    assert_eq!(config.head_dim, 64);
    let ends = with(&[("eos_token_id", json!([128001, 128008])), ("pad_token_id", (-1).into())]);
    let ends = ends.unwrap();
    assert_eq!((ends.eos_token_ids.as_slice(), ends.pad_token_id), (&[128001, 128008][..], None));
}

#[test]
fn both_spellings_of_the_rotary_settings_say_the_same() {
    let expected = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let old = with(&[("rope_theta", 5e5.into()), ("rope_scaling", llama3())]).unwrap();
    assert_eq!((old.rope_theta, old.rope_scaling), (5e5, Some(expected)));
    let mut parameters = llama3();
    parameters["rope_theta"] = 5e5.into();
    let new = with(&[("rope_parameters", parameters.clone())]).unwrap();
    assert_eq!((new.rope_theta, new.rope_scaling), (5e5, Some(expected)));
    assert!(new.unrecognised().is_empty(), "{:?}", new.unrecognised());
    let both = with(&[("rope_scaling", llama3()), ("rope_parameters", parameters)]).unwrap();
    assert_eq!((both.rope_theta, both.rope_scaling), (5e5, Some(expected)));
    let plain = json!({"rope_type": "default", "rope_theta": 1e6});
    let plain = with(&[("rope_parameters", plain)]).unwrap();
    assert_eq!((plain.rope_theta, plain.rope_scaling), (1e6, None));
    // Older files call the type `type`.
    let older = with(&[("rope_scaling", json!({"type": "default"}))]).unwrap();
    assert_eq!(older.rope_scaling, None);
}

#[test]
fn values_that_cannot_be_used_are_named() {
    let changed = |key: &str, value: Value| {
        let mut scaling = llama3();
        scaling[key] = value;
        scaling
    };
    let one = |key, value: Value| vec![(key, value)];
    let size = "an integer from 1 to 2147483647, found";
    let kind = "rope_scaling.rope_type";
    for (changes, key, text) in [
        (one("model_type", "mistral".into()), "model_type", "is `mistral`, supported: `llama`"),
        (one("hidden_act", "gelu".into()), "hidden_act", "is `gelu`, supported: `silu`"),
        (one("attention_bias", true.into()), "attention_bias", "is `true`, supported: false"),
        (one("mlp_bias", true.into()), "mlp_bias", "is `true`"),
        (one("rope_scaling", changed("rope_type", "linear".into())), kind, "is `linear`"),
        (one("rope_scaling", json!({"type": "dynamic", "factor": 2.0})), kind, "is `dynamic`"),
        (
            one("rope_parameters", json!({"rope_type": "yarn"})),
            "rope_parameters.rope_type",
            "is `yarn`, supported: `default`, `llama3`",
        ),
        (one("partial_rotary_factor", 0.5.into()), "partial_rotary_factor", "is `0.5`"),
        (one("quantization_config", json!({"bits": 4})), "quantization_config", "is `{"),
        (one("sliding_window", 4096.into()), "sliding_window", "is `4096`"),
        (one("is_encoder_decoder", true.into()), "is_encoder_decoder", "is `true`"),
        (one("model_type", Value::Null), "model_type", "should be `llama`, found nothing"),
        (one("vocab_size", Value::Null), "vocab_size", "found nothing"),
        (one("hidden_size", Value::Null), "hidden_size", "found nothing"),
        (one("intermediate_size", Value::Null), "intermediate_size", "found nothing"),
        (one("vocab_size", 0.into()), "vocab_size", size),
        (one("vocab_size", (1_u64 << 31).into()), "vocab_size", size),
        (one("hidden_size", 4096.5.into()), "hidden_size", size),
        (one("num_key_value_heads", 5.into()), "num_key_value_heads", "a divisor of"),
        (
            vec![("num_attention_heads", 48.into()), ("num_key_value_heads", 48.into())],
            "hidden_size",
            "a multiple of `num_attention_heads` = 48, found `4096`",
        ),
        (one("head_dim", 7.into()), "head_dim", "an even number"),
        (one("head_dim", (1 << 30).into()), "head_dim", "at most 65536, found"),
        (one("rope_theta", 0.into()), "rope_theta", "a number from 1 to"),
        (one("tie_word_embeddings", "no".into()), "tie_word_embeddings", "found `\"no\"`"),
        (one("eos_token_id", json!([1, "two"])), "eos_token_id", "a list of tokens, found"),
        (one("rope_scaling", "llama3".into()), "rope_scaling", "an object or null, found"),
        (
            one("rope_scaling", changed("factor", Value::Null)),
            "rope_scaling.factor",
            "found nothing",
        ),
        (
            one("rope_scaling", changed("low_freq_factor", 4.into())),
            "rope_scaling.high_freq_factor",
            "more than `low_freq_factor` = 4, found `4.0`",
        ),
        (
            vec![
                ("rope_theta", 5e5.into()),
                ("rope_parameters", changed("rope_theta", 1e4.into())),
            ],
            "rope_parameters.rope_theta",
            "500000, as elsewhere, found `10000.0`",
        ),
        (
            vec![("rope_scaling", llama3()), ("rope_parameters", changed("factor", 32.into()))],
            "rope_parameters",
            "the same as `rope_scaling`, found",
        ),
    ] {
        let error = with(&changes).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`config.json`: `{key}` ")), "{error}");
        assert!(error.contains(text), "{error}");
    }
    let list = LlamaConfig::parse(b"[1]", "config.json".as_ref());
    assert!(matches!(list, Err(Error::Json { .. })), "{list:?}");
}

#[test]
fn unknown_keys_are_kept_for_the_loader_to_report() {
    let mut scaling = llama3();
    scaling["surprise"] = 1.into();
    let config = with(&[("use_magic", true.into()), ("rope_scaling", scaling)]).unwrap();
    assert_eq!(config.unrecognised(), ["rope_scaling.surprise", "use_magic"]);
}

#[test]
fn the_generation_settings_add_ends_of_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, base().to_string()).unwrap();
    let ends = |text: &str| {
        std::fs::write(folder.path().join("generation_config.json"), text).unwrap();
        LlamaConfig::read(&file).map(|config| config.eos_token_ids)
    };
    assert_eq!(LlamaConfig::read(&file).unwrap().eos_token_ids, [2]);
    assert_eq!(ends(r#"{"eos_token_id": [7, 2, 9]}"#).unwrap(), [2, 7, 9]);
    assert_eq!(ends(r#"{"eos_token_id": 5, "temperature": 0.6}"#).unwrap(), [2, 5]);
    assert_eq!(ends("{}").unwrap(), [2]);
    let error = ends(r#"{"eos_token_id": ["x"]}"#).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}
