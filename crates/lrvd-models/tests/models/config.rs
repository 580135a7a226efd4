//! Configurations in the layout of the published files, and one fault at a time.

use std::fmt::Debug;

use serde_json::{Value, json};

use lrvd_models::deberta::{
    Activation, ConvolutionConfig, DebertaConfig, Family, LayerAttention, Pooling, ProblemType,
};
use lrvd_models::llama::{Llama3Scaling, LlamaConfig};
use lrvd_models::{Error, Result};

const LLAMA: &str = include_str!("../golden/llama/mha_right_padded/config.json");

/// A recorded configuration of an encoder with changes.
fn encoder(folder: &str, changes: &[(&str, Value)]) -> Result<DebertaConfig> {
    let base = match folder {
        "deberta" => include_str!("../golden/deberta/v3_base_style/config.json"),
        "bert" => include_str!("../golden/bert/pair/config.json"),
        "distilbert" => include_str!("../golden/distilbert/one_word/config.json"),
        "mpnet" => include_str!("../golden/mpnet/one_word/config.json"),
        "modernbert" => include_str!("../golden/modernbert/windows/config.json"),
        _ => include_str!("../golden/roberta/right_padded/config.json"),
    };
    DebertaConfig::parse(&changed(base, changes), "config.json".as_ref())
}

fn deberta(changes: &[(&str, Value)]) -> Result<DebertaConfig> {
    encoder("deberta", changes)
}

/// A recorded configuration with changes.
fn llama(changes: &[(&str, Value)]) -> Result<LlamaConfig> {
    LlamaConfig::parse(&changed(LLAMA, changes), "config.json".as_ref())
}

fn changed(base: &str, changes: &[(&str, Value)]) -> Vec<u8> {
    let mut config: Value = serde_json::from_str(base).unwrap();
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    config.to_string().into_bytes()
}

/// Llama 3's settings of the rotary wavelengths with one changed.
fn scaling(key: &str, value: impl Into<Value>) -> Value {
    let mut scaling = json!({
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"
    });
    scaling[key] = value.into();
    scaling
}

/// A configuration with the sizes that none may leave out, and `rest`.
fn least(kind: &str, rest: &str) -> Vec<u8> {
    let text = format!(
        r#"{{"model_type": "{kind}", "hidden_size": 128, "num_attention_heads": 32,
            "num_hidden_layers": 30, "intermediate_size": 5, "vocab_size": 7{rest}}}"#
    );
    text.into_bytes()
}

fn smallest(kind: &str, rest: &str) -> Result<LlamaConfig> {
    LlamaConfig::parse(&least(kind, rest), "config.json".as_ref())
}

#[test]
fn absent_keys_have_the_defaults_of_transformers() {
    let config = DebertaConfig::parse(&least("deberta-v2", ""), "x".as_ref()).unwrap();
    assert!(!config.relative_attention && config.position_biased_input);
    assert!(!config.share_att_key && !config.norm_rel_ebd);
    assert_eq!((config.layer_norm_eps, config.max_position_embeddings), (1e-7, 512));
    assert_eq!((config.pad_token_id, config.relative_positions()), (Some(0), None));
    assert_eq!((config.embedding_size, config.cls_dropout), (128, 0.1));
    assert_eq!(config.problem(), ProblemType::Classification);
    let config = smallest("llama", "").unwrap();
    assert_eq!((config.rms_norm_eps, config.rope_theta), (1e-6, 10_000.0));
    assert!(config.rope_scaling.is_none() && config.sliding_window.is_none());
    assert!(!config.tie_word_embeddings && config.eos_token_ids.is_empty());
    assert_eq!((config.attention_dropout, config.initializer_range), (0.0, 0.02));
}

#[test]
fn each_family_has_its_own_defaults() {
    for (kind, key_heads, head_dim, positions, [bias, output_bias, norms]) in [
        ("llama", 32, 4, 2048, [false, false, false]),
        ("mistral", 8, 4, 131_072, [false, false, false]),
        ("qwen2", 32, 4, 32_768, [true, false, false]),
        ("qwen3", 32, 128, 32_768, [false, false, true]),
    ] {
        let config = smallest(kind, "").unwrap();
        assert_eq!((config.num_key_value_heads, config.head_dim), (key_heads, head_dim), "{kind}");
        assert_eq!(config.max_position_embeddings, positions, "{kind}");
        assert_eq!(config.family.model_type(), kind);
        let vectors = [config.attention_bias, config.output_bias(), config.head_norms()];
        assert_eq!(vectors, [bias, output_bias, norms], "{kind}");
        let as_many = smallest(kind, r#", "num_key_value_heads": null"#).unwrap();
        assert_eq!(as_many.num_key_value_heads, 32, "{kind}");
    }
    for kind in ["llama", "qwen3"] {
        let config = smallest(kind, r#", "attention_bias": true"#).unwrap();
        assert!(config.attention_bias && config.output_bias(), "{kind}");
    }
}

/// The window and the layers that have it.
#[test]
fn windows_are_those_of_the_family() {
    let listed = |kind: &str, n| format!(r#", "layer_types": [{}]"#, vec![kind; n].join(","));
    let (full, sliding) = (r#""full_attention""#, r#""sliding_attention""#);
    let mixed =
        format!(r#", "use_sliding_window": true{}"#, listed(full, 30)).replacen(full, sliding, 1);
    let from = r#", "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3"#;
    for (kind, rest, tokens, layers) in [
        ("llama", listed(full, 30), 0, 0..0),
        ("mistral", String::new(), 4096, 0..30),
        ("mistral", format!(r#", "sliding_window": 5{}"#, listed(sliding, 30)), 5, 0..30),
        ("mistral", r#", "sliding_window": null"#.to_owned(), 0, 0..0),
        ("qwen2", r#", "sliding_window": 9"#.to_owned(), 0, 0..0),
        ("qwen2", r#", "use_sliding_window": true"#.to_owned(), 4096, 28..30),
        ("qwen3", from.to_owned(), 9, 3..30),
        ("qwen3", mixed, 4096, 0..1),
    ] {
        let config = smallest(kind, &rest).unwrap();
        assert!(config.unrecognised.is_empty(), "{:?}", config.unrecognised);
        let window = config.sliding_window.as_ref();
        assert_eq!(window.map_or(0, |window| window.tokens), tokens, "{kind}{rest}");
        let has = |&layer: &usize| window.is_some_and(|window| window.is_of(layer));
        assert!((0..30).filter(has).eq(layers), "{kind}{rest}");
    }
    let short = listed(full, 2);
    for (kind, rest, key, text) in [
        ("mistral", r#", "sliding_window": 0"#, "sliding_window", "an integer from 1 to"),
        (
            "mistral",
            &listed(full, 30),
            "layer_types[0]",
            "`sliding_attention` with a window of 4096",
        ),
        ("llama", &listed(sliding, 30), "layer_types[0]", "`full_attention` with no window, found"),
        ("qwen2", &listed(sliding, 30), "layer_types[0]", "with no window, found"),
        ("qwen2", &short, "layer_types", "a list of 30 names"),
        (
            "qwen2",
            &listed(r#""chunked""#, 30),
            "layer_types[0]",
            "`full_attention` or `sliding_attention`, found `\"chunked\"`",
        ),
        ("qwen2", r#", "use_sliding_window": 1"#, "use_sliding_window", "true or false"),
        ("qwen2", r#", "attention_bias": false"#, "attention_bias", "is `false`, supported: true"),
        ("mistral", r#", "attention_bias": true"#, "attention_bias", "is `true`, supported: false"),
        ("qwen3", r#", "mlp_bias": true"#, "mlp_bias", "is `true`"),
        (
            "qwen3",
            r#", "rope_scaling": {"type": "yarn", "factor": 4}"#,
            "rope_scaling.type",
            "is `yarn`",
        ),
        ("qwen3_moe", "", "model_type", "supported: `llama`, `mistral`, `qwen2`, `qwen3`"),
    ] {
        is_error(smallest(kind, rest), key, text);
    }
}

#[test]
fn other_encoders_have_their_own_defaults() {
    for (family, pad, positions, pooler_dropout) in [
        (Family::Bert, 0, 512, 0.0),
        (Family::Roberta, 1, 510, 0.25),
        (Family::XlmRoberta, 1, 510, 0.25),
    ] {
        let read = |rest: &str| {
            let rest = format!(r#", "hidden_dropout_prob": 0.25{rest}"#);
            DebertaConfig::parse(&least(family.model_type(), &rest), "x".as_ref()).unwrap()
        };
        let config = read("");
        assert_eq!((config.family, config.pad_token_id), (family, Some(pad)));
        assert_eq!((config.layer_norm_eps, config.type_vocab_size), (1e-12, 2));
        assert_eq!((config.positions(), config.hidden_act), (Some(positions), Activation::Gelu));
        assert_eq!((config.cls_dropout, config.pooler_dropout), (0.25, pooler_dropout));
        assert!(config.unrecognised.is_empty() && !config.relative_attention);
        let config = read(r#", "classifier_dropout": 0.5"#);
        assert_eq!((config.cls_dropout, config.pooler_dropout), (0.5, 2.0 * pooler_dropout));
    }
    for folder in ["distilbert", "mpnet"] {
        let config = encoder(folder, &[]).unwrap();
        assert_eq!((config.hidden_size, config.intermediate_size), (32, 48));
        assert_eq!((config.num_hidden_layers, config.num_attention_heads), (2, 4));
        let is_mpnet = folder == "mpnet";
        let (pad, positions, eps) = if is_mpnet { (1, 150, 1e-5) } else { (0, 70, 1e-12) };
        assert_eq!((config.pad_token_id, config.positions()), (Some(pad), Some(positions)));
        assert_eq!((config.layer_norm_eps, config.type_vocab_size), (eps, 0));
        let dropouts = if is_mpnet { (0.1, 0.1) } else { (0.2, 0.0) };
        assert_eq!((config.cls_dropout, config.pooler_dropout), dropouts);
        assert!(config.unrecognised.is_empty() && config.relative_positions().is_none());
    }
    let unset = [("pad_token_id", Value::Null)];
    assert_eq!(encoder("mpnet", &unset).unwrap().pad_token_id, Some(1));
    let changes = [("hidden_act", json!("gelu_new")), ("pooler_type", json!("first_token"))];
    let config = encoder("bert", &changes).unwrap();
    assert_eq!(config.hidden_act, Activation::GeluTanh);
    assert!(config.unrecognised.is_empty());
}

/// Window and wavelengths of every layer, in both spellings.
#[test]
fn layers_of_a_modernbert_are_global_or_have_a_window() {
    let global = |theta| LayerAttention { rope_theta: theta, window: None };
    let local = |theta, window| LayerAttention { rope_theta: theta, window: Some(window) };
    let types = r#", "layer_types": ["sliding_attention", "full_attention"]"#;
    let thetas = r#", "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 7e4},
        "sliding_attention": {"rope_theta": 500}}"#;
    for (rest, expected) in [
        (String::new(), [global(160_000.0), local(10_000.0, 64)]),
        (r#", "global_attn_every_n_layers": 1"#.to_owned(), [global(160_000.0), global(160_000.0)]),
        (
            r#", "global_rope_theta": 5e4, "local_rope_theta": 300"#.to_owned(),
            [global(5e4), local(300.0, 64)],
        ),
        (
            r#", "global_rope_theta": 5e4, "local_rope_theta": null"#.to_owned(),
            [global(5e4), local(5e4, 64)],
        ),
        (format!(r#"{types}{thetas}, "local_attention": 20"#), [local(500.0, 10), global(7e4)]),
        (format!(r#"{types}, "sliding_window": 9"#), [local(10_000.0, 9), global(160_000.0)]),
    ] {
        let rest = format!(r#"{rest}, "num_hidden_layers": 2, "pad_token_id": null"#);
        let config = least("modernbert", &rest);
        let config = String::from_utf8(config).unwrap().replace(r#""num_hidden_layers": 30,"#, "");
        let config = DebertaConfig::parse(config.as_bytes(), "x".as_ref()).unwrap();
        assert_eq!(config.layer_attention, expected, "{rest}");
        assert!(config.unrecognised.is_empty(), "{:?}", config.unrecognised);
        assert_eq!((config.pad_token_id, config.layer_norm_eps), (None, 1e-5));
        assert_eq!((config.positions(), config.cls_dropout), (Some(8192), 0.0));
        assert_eq!((config.pooling, config.hidden_act), (Pooling::First, Activation::Gelu));
    }
    let changes = [("classifier_pooling", json!("mean")), ("classifier_dropout", json!(0.25))];
    let config = encoder("modernbert", &changes).unwrap();
    assert_eq!(
        (config.pooling, config.cls_dropout, config.pooler_dropout),
        (Pooling::PooledMean, 0.25, 0.0)
    );
    let layers = [
        ("attn.Wqkv", [32, 96]),
        ("attn.Wo", [32, 32]),
        ("mlp.Wi", [32, 48]),
        ("mlp.Wo", [24, 32]),
    ];
    assert_eq!(config.linear_layers(), layers);
}

#[test]
fn values_that_other_encoders_cannot_use_are_named() {
    for (folder, key, value, text) in [
        ("bert", "position_embedding_type", json!("relative_key"), "is `relative_key`"),
        ("bert", "is_decoder", json!(true), "is `true`"),
        ("bert", "add_cross_attention", json!(true), "is `true`"),
        ("bert", "hidden_act", json!("silu"), "is `silu`, supported: `gelu`, `gelu_new`"),
        ("bert", "relative_attention", json!(true), "is `true`, supported: none in a `bert`"),
        ("bert", "embedding_size", json!(16), "is `16`, supported: none in a `bert`"),
        ("bert", "classifier_dropout", json!(2), "a number from 0 to 1, found `2`"),
        ("distilbert", "dim", Value::Null, "a value, found nothing"),
        ("distilbert", "dim", json!(30), "a multiple of `num_attention_heads` = 4, found `30`"),
        ("distilbert", "activation", json!("silu"), "is `silu`, supported: `gelu`, `gelu_new`"),
        ("distilbert", "seq_classif_dropout", json!(2), "a number from 0 to 1, found `2`"),
        ("distilbert", "layer_norm_eps", json!(1e-5), "is `0.00001`, supported: 1e-12"),
        ("mpnet", "relative_attention_num_buckets", json!(64), "is `64`, supported: 32"),
        ("mpnet", "pad_token_id", json!(0), "is `0`, supported: 1"),
        ("roberta", "pad_token_id", Value::Null, "positions are counted, found nothing"),
        ("roberta", "pad_token_id", json!(-1), "positions are counted, found nothing"),
        ("roberta", "max_position_embeddings", json!(2), "more than 2, for rows above"),
        ("modernbert", "attention_bias", json!(true), "is `true`, supported: false"),
        ("modernbert", "attention_dropout", json!(0.1), "is `0.1`, supported: 0"),
        ("modernbert", "hidden_activation", json!("silu"), "is `silu`, supported: `gelu`"),
        ("modernbert", "classifier_pooling", json!("max"), "is `max`, supported: `cls`, `mean`"),
        ("modernbert", "hidden_size", json!(36), "a multiple of 2·`num_attention_heads` = 8"),
        ("modernbert", "sliding_window", json!(8), "4, half of `local_attention`, found `8`"),
        ("modernbert", "layer_types", json!(["full_attention"]), "a list of 4 names"),
        ("modernbert", "local_attention", json!(0), "an integer from 1 to"),
        ("modernbert", "global_rope_theta", json!(0.5), "a number from 1 to"),
        ("modernbert", "relative_attention", json!(true), "none in a `modernbert`"),
        ("modernbert", "rope_scaling", json!({"type": "yarn"}), "is `{\"type\":\"yarn\"}`"),
    ] {
        is_error(encoder(folder, &[(key, value)]), key, text);
    }
}

#[test]
fn positions_labels_and_convolution_of_an_encoder_are_read() {
    for (value, c2p, p2c) in [
        (json!("p2c|C2P"), true, true),
        (json!(["c2p"]), true, false),
        (json!(["", "p2c"]), false, true),
    ] {
        let found = deberta(&[("pos_att_type", value)]).unwrap();
        assert_eq!((found.c2p, found.p2c), (c2p, p2c));
    }
    let plain = deberta(&[("position_buckets", json!(-1)), ("pad_token_id", Value::Null)]).unwrap();
    assert_eq!((plain.position_buckets, plain.pad_token_id), (None, None));
    assert_eq!(plain.relative_positions().unwrap().span(), 64);
    let config = deberta(&[
        ("id2label", json!({"0": "no", "2": "maybe", "1": "yes"})),
        ("conv_kernel_size", json!(3)),
        ("conv_act", json!("gelu")),
        ("embedding_size", json!(128)),
        ("max_relative_positions", json!(300)),
    ]);
    let config = config.unwrap();
    assert_eq!(config.id2label, ["no", "yes", "maybe"]);
    let activation = Activation::Gelu;
    assert_eq!(config.convolution, Some(ConvolutionConfig { kernel_size: 3, activation }));
    assert_eq!((config.embedding_size, config.max_relative_positions), (128, 300));
    let renamed = config.with_labels(vec!["score".into()]);
    assert_eq!((renamed.num_labels(), renamed.problem()), (1, ProblemType::Regression));
}

#[test]
fn both_spellings_of_the_rotary_settings_say_the_same() {
    let expected = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192,
    };
    let (old, new) = (scaling("factor", 8.0), scaling("rope_theta", 5e5));
    let plain = json!({"rope_type": "default", "rope_theta": 1e6});
    for (changes, theta, scaling) in [
        (vec![("rope_theta", 5e5.into()), ("rope_scaling", old.clone())], 5e5, Some(expected)),
        (vec![("rope_parameters", new.clone())], 5e5, Some(expected)),
        (vec![("rope_scaling", old), ("rope_parameters", new)], 5e5, Some(expected)),
        (vec![("rope_parameters", plain)], 1e6, None),
        // Older files call the type `type`.
        (vec![("rope_scaling", json!({"type": "default"}))], 1e4, None),
    ] {
        let config = llama(&changes).unwrap();
        assert_eq!((config.rope_theta, config.rope_scaling), (theta, scaling));
        assert!(config.unrecognised.is_empty(), "{:?}", config.unrecognised);
    }
}

#[test]
fn tokens_that_end_a_text_are_one_or_several_in_two_files() {
    let ends = json!([128_001, 128_008]);
    let config =
        llama(&[("eos_token_id", ends), ("pad_token_id", (-1).into()), ("head_dim", 64.into())]);
    let config = config.unwrap();
    assert_eq!(config.eos_token_ids, [128_001, 128_008]);
    assert_eq!((config.pad_token_id, config.head_dim), (None, 64));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    std::fs::write(&file, LLAMA).unwrap();
    assert_eq!(LlamaConfig::read(&file).unwrap().eos_token_ids, [2]);
    let ends = |text: &str| {
        std::fs::write(folder.path().join("generation_config.json"), text).unwrap();
        LlamaConfig::read(&file).map(|config| config.eos_token_ids)
    };
    assert_eq!(ends(r#"{"eos_token_id": [7, 2, 9]}"#).unwrap(), [2, 7, 9]);
    assert_eq!(ends(r#"{"eos_token_id": 5, "temperature": 0.6}"#).unwrap(), [2, 5]);
    let error = ends(r#"{"eos_token_id": ["x"]}"#).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}

#[test]
fn unknown_keys_are_kept_for_the_loader_to_report() {
    let changes =
        [("attention_flavour", json!("x")), ("pruned_heads", json!({})), ("legacy", json!(true))];
    assert_eq!(deberta(&changes).unwrap().unrecognised, ["attention_flavour"]);
    let changes = [("use_magic", json!(true)), ("rope_scaling", scaling("surprise", 1))];
    assert_eq!(llama(&changes).unwrap().unrecognised, ["rope_scaling.surprise", "use_magic"]);
}

#[track_caller]
fn is_error<T: Debug>(config: Result<T>, key: &str, text: &str) {
    let error = config.unwrap_err().to_string();
    assert!(error.starts_with(&format!("`config.json`: `{key}` ")), "{error}");
    assert!(error.contains(text), "{error}");
}

#[test]
fn values_that_no_model_can_use_are_named() {
    let size = "should be an integer from 1 to 2147483647, found";
    for (key, value, text) in [
        ("is_decoder", json!(true), "is `true`, supported: null, false or empty"),
        ("pruned_heads", json!({"1": [0]}), "is `{\"1\":[0]}`"),
        ("hidden_size", Value::Null, "should be a value, found nothing"),
        ("hidden_size", json!(33), "a multiple of `num_attention_heads` ="),
        ("hidden_size", json!(0), size),
        ("hidden_size", json!("768"), size),
        ("num_hidden_layers", json!(-2), size),
        ("vocab_size", json!(1_u64 << 31), size),
        ("initializer_range", json!(-1), "a number of at least 0, found `-1`"),
    ] {
        is_error(deberta(&[(key, value.clone())]), key, text);
        is_error(llama(&[(key, value)]), key, text);
    }
    let list = LlamaConfig::parse(b"[1]", "config.json".as_ref());
    assert!(matches!(list, Err(Error::Json { .. })), "{list:?}");
}

#[test]
fn values_that_an_encoder_cannot_use_are_named() {
    for (key, value, text) in [
        ("model_type", json!("deberta"), "is `deberta`, supported: `deberta-v2`, `bert`, `rob"),
        (
            "model_type",
            Value::Null,
            "should be `deberta-v2`, `bert`, `roberta`, `xlm-roberta`, `distilbert`, `mpnet`, `modernbert`, found nothing",
        ),
        ("pooler_hidden_act", json!("tanh"), "is `tanh`"),
        ("pooler_hidden_size", json!(100), "is `100`, supported: 32"),
        ("attention_head_size", json!(16), "is `16`, supported: 8"),
        ("norm_rel_ebd", json!("rms_norm"), "is `rms_norm`, supported: `layer_norm`, `none`"),
        ("problem_type", json!("ranking"), "one of `regression`, `single_label_classification`, "),
        ("conv_kernel_size", json!(4), "is `4`, supported: odd widths"),
        ("conv_groups", json!(2), "is `2`, supported: 1"),
        ("pad_token_id", json!(200), "an id below `vocab_size` = 200, found `200`"),
        ("layer_norm_eps", json!(0.0), "a number above 0 and at most 1, found `0.0`"),
        ("hidden_dropout_prob", json!(1.5), "a number from 0 to 1, found `1.5`"),
        ("pos_att_type", json!(["c2p", "p2p"]), "supported: `c2p`, `p2c`"),
        ("pos_att_type", json!([1]), "found `[1]`"),
        ("position_buckets", json!(1), "2 to 1073741823, or -1 for none, found `1`"),
        ("num_labels", json!(1 << 20), "should be 1 to 65536, found `1048576`"),
        ("id2label", json!({"1": "x"}), "without a gap, found"),
        ("id2label", json!(["x"]), "an object, found"),
    ] {
        is_error(deberta(&[(key, value)]), key, text);
    }
    // The formula of the buckets would divide by `ln 1`.
    let range = [("max_relative_positions", json!(9))];
    is_error(deberta(&range), range[0].0, "other than 9 for 16 `position_buckets`, found `9`");
    let labels = [("num_labels", json!(3)), ("id2label", json!({"0": "x"}))];
    is_error(deberta(&labels), "num_labels", "should be 1, as `id2label` has it, found `3`");
}

#[test]
fn values_that_a_decoder_cannot_use_are_named() {
    let kind = "rope_scaling.type";
    for (key, value, at, text) in [
        (
            "tie_word_embeddings",
            json!("no"),
            "tie_word_embeddings",
            "true or false, found `\"no\"`",
        ),
        ("mlp_bias", json!(true), "mlp_bias", "is `true`, supported: false"),
        ("rope_scaling", json!({"type": "dynamic", "factor": 2.0}), kind, "is `dynamic`"),
        (
            "rope_parameters",
            json!({"rope_type": "yarn"}),
            "rope_parameters.rope_type",
            "is `yarn`, supported: `default`, `llama3`",
        ),
        ("partial_rotary_factor", json!(0.5), "partial_rotary_factor", "is `0.5`"),
        ("sliding_window", json!(4096), "sliding_window", "is `4096`"),
        ("num_key_value_heads", json!(3), "num_key_value_heads", "a divisor of"),
        ("head_dim", json!(7), "head_dim", "an even number"),
        ("head_dim", json!(1 << 30), "head_dim", "at most 65536, found"),
        ("rope_theta", json!(0), "rope_theta", "a number from 1 to"),
        ("eos_token_id", json!([1, "two"]), "eos_token_id", "a token or a list of tokens, found"),
        ("rope_scaling", json!("llama3"), "rope_scaling", "an object or null, found"),
        ("rope_scaling", scaling("factor", Value::Null), "rope_scaling.factor", "found nothing"),
        (
            "rope_scaling",
            scaling("low_freq_factor", 4),
            "rope_scaling.high_freq_factor",
            "more than `low_freq_factor` = 4, found `4`",
        ),
    ] {
        is_error(llama(&[(key, value)]), at, text);
    }
    let theta = [("rope_theta", 5e5.into()), ("rope_parameters", scaling("rope_theta", 1e4))];
    let text = "500000, as elsewhere, found `10000`";
    is_error(llama(&theta), "rope_parameters.rope_theta", text);
    let both = [("rope_scaling", scaling("factor", 8)), ("rope_parameters", scaling("factor", 32))];
    is_error(llama(&both), "rope_parameters", "the same as `rope_scaling`, found");
}
