//! Tests of the configuration: literals in the layout of the published files, and one fault at a time.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

/// The layout of the published v3 base configuration.
fn base() -> Value {
    json!({
        "_name_or_path": "base", "architectures": ["DebertaV2Model"], "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
        "layer_norm_eps": 1e-07, "max_position_embeddings": 512, "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm", "num_attention_heads": 12, "num_hidden_layers": 12,
        "pad_token_id": 0, "pooler_dropout": 0, "pooler_hidden_act": "gelu",
        "pooler_hidden_size": 768, "pos_att_type": ["p2c", "c2p"], "position_biased_input": false,
        "position_buckets": 256, "relative_attention": true, "share_att_key": true,
        "torch_dtype": "float32", "transformers_version": "4.38.2", "type_vocab_size": 0,
        "vocab_size": 128_100, "bos_token_id": null, "legacy": true, "tie_word_embeddings": true
    })
}

fn parse(value: &Value) -> Result<DebertaConfig> {
    DebertaConfig::parse(value.to_string().as_bytes(), "config.json".as_ref())
}

fn with(key: &str, value: Value) -> Result<DebertaConfig> {
    let mut config = base();
    config[key] = value;
    parse(&config)
}

#[test]
fn the_published_layout_is_read() {
    let config = parse(&base()).unwrap();
    assert_eq!((config.hidden_size, config.attention_head_size), (768, 64));
    assert_eq!((config.embedding_size, config.hidden_size), (768, 768));
    assert_eq!((config.max_relative_positions, config.position_buckets), (512, Some(256)));
    assert_eq!(config.pos_att_type, PositionAttention { c2p: true, p2c: true });
    assert!(config.norm_rel_ebd && config.share_att_key && !config.position_biased_input);
    assert_eq!((config.num_labels(), config.problem()), (2, ProblemType::Classification));
    assert_eq!(config.cls_dropout, 0.1, "as the hidden dropout");
    assert_eq!(config.relative_positions().unwrap().span(), 256);
    assert_eq!(config.convolution, None);
    assert!(config.unrecognised().is_empty(), "{:?}", config.unrecognised());
}

#[test]
fn absent_keys_have_the_defaults_of_transformers() {
    let config = parse(&json!({
        "model_type": "deberta-v2", "hidden_size": 6, "num_attention_heads": 3,
        "num_hidden_layers": 2, "intermediate_size": 5, "vocab_size": 7
    }))
    .unwrap();
    assert!(!config.relative_attention && config.position_biased_input);
    assert!(!config.share_att_key && !config.norm_rel_ebd);
    assert_eq!((config.layer_norm_eps, config.max_position_embeddings), (1e-7, 512));
    assert_eq!((config.pad_token_id, config.relative_positions()), (Some(0), None));
    assert_eq!(with("pad_token_id", Value::Null).unwrap().pad_token_id, None);
}

#[test]
fn positions_are_read_in_all_spellings() {
    for (value, c2p, p2c) in [
        (json!("p2c|C2P"), true, true),
        (json!(["c2p"]), true, false),
        (json!(["", "p2c"]), false, true),
    ] {
        let found = with("pos_att_type", value).unwrap().pos_att_type;
        assert_eq!(found, PositionAttention { c2p, p2c });
    }
    let plain = with("position_buckets", json!(-1)).unwrap();
    assert_eq!((plain.position_buckets, plain.relative_positions().unwrap().span()), (None, 512));
    assert_eq!(with("max_relative_positions", json!(300)).unwrap().max_relative_positions, 300);
}

#[test]
fn heads_labels_and_convolution_are_read() {
    let mut value = base();
    value["id2label"] = json!({"0": "no", "2": "maybe", "1": "yes"});
    value["conv_kernel_size"] = json!(3);
    value["conv_act"] = json!("gelu");
    value["embedding_size"] = json!(128);
    let config = parse(&value).unwrap();
    assert_eq!(config.id2label, ["no", "yes", "maybe"]);
    let activation = ConvolutionActivation::Gelu;
    assert_eq!(config.convolution, Some(Convolution { kernel_size: 3, activation }));
    assert_eq!((config.embedding_size, config.hidden_size), (128, 768));
    assert_eq!(with("num_labels", json!(1)).unwrap().problem(), ProblemType::Regression);
    let renamed = config.with_labels(vec!["score".into()]);
    assert_eq!((renamed.num_labels(), renamed.problem()), (1, ProblemType::Regression));
}

#[test]
fn unknown_keys_are_reported_and_harmless_ones_are_not() {
    for (key, value, unknown) in [
        ("attention_flavour", json!("x"), &["attention_flavour"][..]),
        ("pruned_heads", json!({}), &[]),
    ] {
        assert_eq!(with(key, value).unwrap().unrecognised(), unknown);
    }
}

#[test]
fn values_that_cannot_be_used_are_named() {
    let size = "an integer from 1 to 2147483647, found";
    for (key, value, text) in [
        ("model_type", json!("deberta"), "is `deberta`, supported: `deberta-v2`"),
        ("hidden_act", json!("gelu_new"), "is `gelu_new`"),
        ("pooler_hidden_act", json!("tanh"), "is `tanh`"),
        ("pooler_hidden_size", json!(100), "is `100`, supported: 768"),
        ("pos_att_type", json!(["c2p", "p2p"]), "supported: `c2p`, `p2c`"),
        ("norm_rel_ebd", json!("rms_norm"), "is `rms_norm`, supported: `layer_norm`, `none`"),
        ("attention_head_size", json!(32), "is `32`, supported: 64"),
        ("problem_type", json!("multi_label_classification"), "is `multi_label_classification`"),
        ("problem_type", json!("regression"), "is `regression with 2 labels`"),
        ("conv_kernel_size", json!(4), "is `4`, supported: odd widths"),
        ("conv_groups", json!(2), "is `2`, supported: 1"),
        ("is_decoder", json!(true), "is `true`, supported: null, false or empty"),
        ("pruned_heads", json!({"1": [0]}), "is `{\"1\":[0]}`"),
        ("quantization_config", json!({"bits": 4}), "is `{\"bits\":4}`"),
        ("model_type", Value::Null, "should be `deberta-v2`, found nothing"),
        ("hidden_size", Value::Null, "should be an integer of at least 1, found nothing"),
        ("num_hidden_layers", Value::Null, "found nothing"),
        ("num_attention_heads", Value::Null, "found nothing"),
        ("intermediate_size", Value::Null, "found nothing"),
        ("vocab_size", Value::Null, "found nothing"),
        ("hidden_size", json!(770), "a multiple of `num_attention_heads` = 12, found `770`"),
        ("hidden_size", json!(0), size),
        ("hidden_size", json!("768"), size),
        ("hidden_size", json!(1.5), size),
        ("num_hidden_layers", json!(-2), size),
        ("vocab_size", json!(1_u64 << 40), size),
        ("pad_token_id", json!(128_100), "an id below `vocab_size` = 128100, found `128100`"),
        ("layer_norm_eps", json!(0.0), "a number above 0 and at most 1, found `0.0`"),
        ("hidden_dropout_prob", json!(1.5), "a number from 0 to 1, found `1.5`"),
        ("relative_attention", json!(1), "true or false, found `1`"),
        ("pos_att_type", json!("none"), "is `none`"),
        ("pos_att_type", json!([1]), "found `[1]`"),
        ("pos_att_type", json!(1), "found `1`"),
        ("position_buckets", json!(1), "2 to 1073741823, or -1 for none, found `1`"),
        ("id2label", json!({}), "without a gap, found `{}`"),
        ("id2label", json!({"1": "x"}), "without a gap, found"),
        ("id2label", json!(["x"]), "a map from class numbers to names"),
    ] {
        let error = with(key, value).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`config.json`: `{key}` ")), "{error}");
        assert!(error.contains(text), "{error}");
    }
    let list = DebertaConfig::parse(b"[]", "config.json".as_ref());
    assert!(matches!(list, Err(Error::Json { .. })), "{list:?}");
}

#[test]
fn every_fixture_configuration_is_accepted() {
    for (text, n_labels) in [
        (include_str!("../../../tests/golden/deberta/v2_conv_layer/config.json"), 2),
        (include_str!("../../../tests/golden/deberta/v2_no_share_att_key/config.json"), 2),
        (include_str!("../../../tests/golden/deberta/v3_base_style/config.json"), 2),
        (include_str!("../../../tests/golden/deberta/v3_len2/config.json"), 3),
        (include_str!("../../../tests/golden/deberta/v3_regression/config.json"), 1),
    ] {
        let config = DebertaConfig::parse(text.as_bytes(), "config.json".as_ref()).unwrap();
        assert_eq!(config.num_labels(), n_labels);
        assert!(config.unrecognised().is_empty(), "{:?}", config.unrecognised());
    }
}
