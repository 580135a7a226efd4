//! `adapter_config.json`.

use std::path::Path;

use rstest::rstest;
use serde_json::Value;

use crate::error::Error;
use crate::files::ordered_map::OrderedMap;
use crate::peft::{PeftConfig, TargetModules};

/// A file as PEFT 0.18 writes it, with every key it has.
const LORA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../lrvd-models/tests/golden/peft/deberta_lora_rank_alpha_pattern/adapter/adapter_config.json"
));
const ADALORA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../lrvd-models/tests/golden/peft/deberta_adalora_reallocated/adapter/adapter_config.json"
));

fn parse(text: &str) -> Result<PeftConfig, Error> {
    PeftConfig::parse(Path::new("c.json"), text.as_bytes())
}

/// Reads `base` with one key set.
fn with(base: &str, key: &str, value: &str) -> Result<PeftConfig, Error> {
    let OrderedMap(mut pairs) = serde_json::from_str::<OrderedMap<Value>>(base).unwrap();
    pairs.retain(|(name, _)| name != key);
    let others = serde_json::to_string(&OrderedMap(pairs)).unwrap();
    parse(&format!("{},\"{key}\":{value}}}", others.strip_suffix('}').unwrap()))
}

fn written(config: &PeftConfig) -> String {
    serde_json::to_string(&config.document().unwrap()).unwrap()
}

#[rstest]
#[case(LORA, "revision", "\"v1\"")]
#[case(LORA, "lora_dropout", "0.1")]
#[case(LORA, "layers_to_transform", "3")]
#[case(LORA, "exclude_modules", "\".*1.*\"")]
#[case(LORA, "target_modules", "\"All-linear\"")]
// The first pattern that matches wins, so the order is part of the meaning.
#[case(LORA, "rank_pattern", r#"{"z":3,"a":2,"m":9}"#)]
fn what_is_written_is_read(#[case] base: &str, #[case] key: &str, #[case] value: &str) {
    let config = with(base, key, value).unwrap();
    assert_eq!(parse(&written(&config)).unwrap(), config);
    assert_eq!(config.target_modules == TargetModules::AllLinear, key == "target_modules");
}

#[rstest]
#[case(LORA, "use_dora", "true")]
#[case(ADALORA, "bias", "\"all\"")]
#[case(LORA, "layer_replication", "[[0,4]]")]
#[case(LORA, "megatron_config", "{\"a\":1}")]
#[case(LORA, "init_lora_weights", "\"pissa_niter_16\"")]
fn options_that_change_the_result_are_errors_by_name(
    #[case] base: &str,
    #[case] key: &str,
    #[case] value: &str,
) {
    let error = with(base, key, value).unwrap_err();
    assert!(error.to_string().contains(&format!("has `{key}` = ")), "{error}");
    assert!(matches!(error, Error::UnsupportedKey { key: found, .. } if found == key));
}

#[test]
fn harmless_and_unset_keys_are_accepted_and_unknown_ones_are_errors() {
    for (key, value) in [
        ("init_lora_weights", "\"gaussian\""),
        ("init_lora_weights", "\"mica\""),
        ("init_lora_weights", "false"),
        ("eva_config", "{\"rho\":2.0}"),
        ("layer_replication", "[]"),
        ("exclude_modules", "[]"),
    ] {
        with(LORA, key, value).unwrap();
    }
    for value in ["null", "false", "\"\"", "[]", "{}"] {
        with(LORA, "a_key_of_the_future", value).unwrap();
    }
    for value in ["0", "true", "\"x\"", "[0]", "{\"a\":null}"] {
        let error = with(LORA, "a_key_of_the_future", value).unwrap_err().to_string();
        let expected = format!("has the unknown key `a_key_of_the_future` = `{value}`");
        assert!(error.contains(&expected), "{error}");
    }
    // Keys of the other method are not read.
    let error = with(LORA, "init_r", "12").unwrap_err().to_string();
    assert!(error.contains("has the unknown key `init_r` = `12`"), "{error}");
}

#[rstest]
#[case(LORA, "r", "0", "a whole number, 1 or more as `r`, found `0`")]
#[case(LORA, "r", "8.5", "as `r`, found `8.5`")]
#[case(LORA, "lora_alpha", "[]", "a number as `lora_alpha`, found `[]`")]
#[case(LORA, "lora_dropout", "1.5", "as `lora_dropout`, found")]
#[case(LORA, "target_modules", "null", "as `target_modules`, found `nothing`")]
#[case(LORA, "target_modules", "[1]", "a list of names or a text as `target_modules`, found")]
#[case(
    LORA,
    "modules_to_save",
    "{}",
    "a list, or one value of it as `modules_to_save`, found `{}`"
)]
#[case(LORA, "peft_type", "\"LOHA\"", "as `peft_type`, found")]
#[case(LORA, "use_rslora", "1", "true or false as `use_rslora`, found `1`")]
#[case(LORA, "layers_pattern", "[\"h\"]", "as `layers_pattern`, found")]
#[case(LORA, "rank_pattern", "{\"q\":2,\"q\":3}", "as `rank_pattern`, found")]
#[case(LORA, "rank_pattern", "{\"q\":0}", "as `rank_pattern.q`, found")]
#[case(LORA, "alpha_pattern", "{\"v\":1,\"q\":null}", "as `alpha_pattern.q`, found")]
#[case(ADALORA, "init_r", "0", "as `init_r`, found")]
#[case(ADALORA, "rank_pattern", "{\"q.lora_E\":[true]}", "as `rank_pattern.q.lora_E`, found")]
#[case(
    ADALORA,
    "rank_pattern",
    "{\"q.lora_A\":[true]}",
    "an object with one key that ends in `.lora_E` per module as `rank_pattern`, found"
)]
#[case(ADALORA, "rank_pattern", "{\"q.lora_E\":[],\"q.lora_E.x\":[]}", "as `rank_pattern`, found")]
#[case(ADALORA, "lora_alpha", "0", "as `lora_alpha`, found")]
fn values_of_the_wrong_form_are_named(
    #[case] base: &str,
    #[case] key: &str,
    #[case] value: &str,
    #[case] expected: &str,
) {
    let error = with(base, key, value).unwrap_err().to_string();
    assert!(error.starts_with("`c.json` should have ") && error.contains(expected), "{error}");
}

#[test]
fn keys_that_exclude_each_other_and_keys_that_are_there_twice() {
    let mut regex = with(LORA, "target_modules", "\".*q\"").unwrap();
    regex.layers_to_transform = vec![0];
    let error = parse(&written(&regex)).unwrap_err();
    assert!(error.to_string().contains("as `layers_to_transform`, found"), "{error}");
    let error = parse(r#"{"peft_type":"LORA","target_modules":["q"],"r":8,"r":16}"#).unwrap_err();
    assert!(error.to_string().contains("has invalid JSON: the key `r` is there twice"), "{error}");
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
