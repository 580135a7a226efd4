#![allow(clippy::unwrap_used)]

use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::files::ordered_map::OrderedMap;
use crate::peft::{PeftConfig, PeftMethod, TargetModules};

/// A file as PEFT 0.18 writes it, with every key it has.
const LORA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../lrvd-models/tests/golden/peft/deberta_lora_rank_alpha_pattern/adapter/adapter_config.json"
));
const ADALORA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../lrvd-models/tests/golden/peft/deberta_adalora_reallocated/adapter/adapter_config.json"
));

/// Reads `base` with one key set.
fn with(base: &str, key: &str, value: &str) -> Result<PeftConfig, Error> {
    let OrderedMap(mut pairs) = serde_json::from_str::<OrderedMap<Value>>(base).unwrap();
    pairs.retain(|(name, _)| name != key);
    let others = serde_json::to_string(&OrderedMap(pairs)).unwrap();
    let text = format!("{},\"{key}\":{value}}}", others.strip_suffix('}').unwrap());
    PeftConfig::parse(Path::new("c.json"), text.as_bytes())
}

/// Writes and reads back.
fn through(config: &PeftConfig) -> Result<PeftConfig, Error> {
    let text = serde_json::to_vec(&config.document()).unwrap();
    PeftConfig::parse(Path::new("c.json"), &text)
}

#[test]
fn reads_what_peft_writes() {
    let config = with(LORA, "revision", "null").unwrap();
    assert_eq!((config.r, config.lora_alpha, config.method.name()), (4, 16.0, "LORA"));
    let keys: Vec<_> =
        config.rank_pattern.iter().map(|(key, rank)| (key.as_str(), *rank)).collect();
    assert_eq!(
        keys,
        [
            ("deberta.encoder.layer.1.attention.self.query_proj", 6),
            ("layer.0.intermediate.dense", 1),
            ("value_proj", 2)
        ]
    );
    assert_eq!(config.alpha_pattern[1], ("layer.0.intermediate.dense".into(), 3.0));
    assert_eq!(config.saved_modules(), ["classifier", "score"]);
}

#[test]
fn reads_the_kept_triplets_of_adalora() {
    let config = with(ADALORA, "revision", "null").unwrap();
    let PeftMethod::AdaLora(adalora) = &config.method else { panic!() };
    assert_eq!((adalora.init_r, adalora.total_step, adalora.orth_reg_weight), (4, Some(14), 0.1));
    let kept = adalora.kept.as_ref().unwrap();
    assert_eq!(kept.len(), 12);
    let query = "deberta.encoder.layer.0.attention.self.query_proj";
    let flags = &kept.iter().find(|(path, _)| path == query).unwrap().1;
    assert_eq!(flags, &[true, false, true, true]);
}

#[test]
fn what_is_written_is_read() {
    for text in [LORA, ADALORA] {
        let config = with(text, "revision", "\"v1\"").unwrap();
        assert_eq!(through(&config).unwrap(), config);
        let document = serde_json::to_string(&config.document()).unwrap();
        let OrderedMap(pairs) = serde_json::from_str::<OrderedMap<Value>>(&document).unwrap();
        assert!(pairs.is_sorted_by_key(|(key, _)| key.clone()), "{document}");
    }
    let config = with(LORA, "layers_to_transform", "3").unwrap();
    assert_eq!(config.layers_to_transform, Some(vec![3]));
    assert_eq!(through(&config).unwrap(), config);
    // The first pattern that matches wins, so the order is part of the meaning.
    let config = with(LORA, "rank_pattern", r#"{"z":3,"a":2,"m":9}"#).unwrap();
    assert_eq!(config.rank_pattern, [("z".into(), 3), ("a".into(), 2), ("m".into(), 9)]);
    assert_eq!(through(&config).unwrap(), config);
}

#[test]
fn numbers_are_written_as_integers_only_where_they_are() {
    let mut config = with(LORA, "lora_alpha", "16").unwrap();
    config.lora_dropout = 0.1;
    let text = serde_json::to_string(&config.document()).unwrap();
    assert!(text.contains("\"lora_alpha\":16,\"lora_dropout\":0.1,"), "{text}");
}

#[test]
fn keys_that_are_there_twice_are_errors() {
    let text = r#"{"peft_type":"LORA","target_modules":["q"],"r":8,"r":16}"#;
    let error = PeftConfig::parse(Path::new("c.json"), text.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("holds JSON that cannot be read"), "{error}");
    let error = with(LORA, "rank_pattern", r#"{"q":2,"q":3}"#).unwrap_err();
    assert!(error.to_string().contains("as `rank_pattern`, found"), "{error}");
}

#[test]
fn options_that_change_the_result_are_errors_by_name() {
    for (key, value) in [
        ("use_dora", "true"),
        ("fan_in_fan_out", "true"),
        ("lora_bias", "true"),
        ("bias", "\"lora_only\""),
        ("bias", "\"all\""),
        ("alora_invocation_tokens", "[1]"),
        ("layer_replication", "[[0,4]]"),
        ("target_parameters", "[\"w\"]"),
        ("megatron_config", "{\"a\":1}"),
        ("use_qalora", "true"),
        ("trainable_token_indices", "[0]"),
        ("arrow_config", "{\"top_k\":3}"),
        ("kasa_config", "{\"beta\":1}"),
        ("ensure_weight_tying", "true"),
        ("init_lora_weights", "\"pissa\""),
        ("init_lora_weights", "\"pissa_niter_16\""),
        ("init_lora_weights", "\"olora\""),
        ("init_lora_weights", "\"corda\""),
        ("init_lora_weights", "\"loftq\""),
    ] {
        for base in [LORA, ADALORA] {
            let error = with(base, key, value).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{key}: {error}");
            assert!(error.to_string().contains(&format!("has `{key}` = ")), "{error}");
        }
    }
}

#[test]
fn harmless_and_unset_keys_are_accepted() {
    for (key, value) in [
        ("init_lora_weights", "\"gaussian\""),
        ("init_lora_weights", "false"),
        ("eva_config", "{\"rho\":2.0}"),
        ("lora_dropout", "0.1"),
        ("peft_version", "\"9.9\""),
        ("layer_replication", "[]"),
        ("a_key_of_the_future", "null"),
        ("a_key_of_the_future", "false"),
        ("a_key_of_the_future", "{}"),
        ("exclude_modules", "[]"),
    ] {
        with(LORA, key, value).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

#[test]
fn unknown_keys_that_are_set_are_errors() {
    for value in ["true", "3", "\"x\"", "[1]"] {
        let error = with(LORA, "a_key_of_the_future", value).unwrap_err().to_string();
        assert!(error.contains("has the unknown key `a_key_of_the_future` = "), "{error}");
    }
    // Keys of the other method are not read, so they are unknown.
    let error = with(LORA, "init_r", "12").unwrap_err().to_string();
    assert!(error.contains("has the unknown key `init_r` = `12`"), "{error}");
}

#[test]
fn values_of_the_wrong_form_are_named() {
    for (key, value) in [
        ("r", "0"),
        ("r", "8.5"),
        ("lora_alpha", "\"16\""),
        ("lora_dropout", "1.5"),
        ("target_modules", "null"),
        ("target_modules", "[1]"),
        ("modules_to_save", "{}"),
        ("peft_type", "\"LOHA\""),
        ("use_rslora", "1"),
        ("layers_pattern", "[\"h\"]"),
    ] {
        let error = with(LORA, key, value).unwrap_err().to_string();
        assert!(error.contains(&format!("as `{key}`, found")), "{error}");
    }
    for (base, key, value, named) in [
        (LORA, "rank_pattern", "{\"q\":0}", "rank_pattern.q"),
        (LORA, "alpha_pattern", "{\"q\":null}", "alpha_pattern.q"),
        (ADALORA, "rank_pattern", "{\"q.lora_E\":[true]}", "rank_pattern.q.lora_E"),
        (ADALORA, "rank_pattern", "{\"q.lora_A\":[true,true,true,true]}", "rank_pattern"),
        (ADALORA, "lora_alpha", "0", "lora_alpha"),
    ] {
        let error = with(base, key, value).unwrap_err().to_string();
        assert!(error.contains(&format!("as `{named}`, found")), "{error}");
    }
}

#[test]
fn text_targets() {
    let all = with(LORA, "target_modules", "\"All-Linear\"").unwrap();
    assert_eq!(all.target_modules, TargetModules::AllLinear);
    let mut regex = with(LORA, "target_modules", "\".*q\"").unwrap();
    assert_eq!(regex.target_modules, TargetModules::Regex(".*q".into()));
    regex.layers_to_transform = Some(vec![0]);
    let error = through(&regex).unwrap_err();
    assert!(error.to_string().contains("as `layers_to_transform`, found"), "{error}");
}

#[test]
fn heads_are_saved_for_their_task() {
    let mut config = with(LORA, "modules_to_save", "[\"pooler\"]").unwrap();
    assert_eq!(config.saved_modules(), ["pooler", "classifier", "score"]);
    assert!(config.saves("pooler.dense.weight") && config.saves("classifier.bias"));
    assert!(!config.saves("deberta.embeddings.LayerNorm.weight"));
    config.task_type = None;
    assert!(!config.saves("classifier.bias"));
}
