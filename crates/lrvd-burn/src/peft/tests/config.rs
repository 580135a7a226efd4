//! `adapter_config.json`.

use std::path::Path;

use rstest::rstest;
use serde_json::Value;

use crate::error::Error;
use crate::files::ordered_map::OrderedMap;
use crate::peft::config::is_unset;
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
    let document = config.document(Path::new("c.json")).unwrap();
    assert!(document.is_sorted_by_key(|(key, _)| key.clone()));
    serde_json::to_string(&OrderedMap(document)).unwrap()
}

#[test]
fn reads_what_peft_writes() {
    let config = parse(LORA).unwrap();
    assert_eq!((config.r, config.lora_alpha, config.method.name()), (4, 16.0, "LORA"));
    let ranks = [
        ("deberta.encoder.layer.1.attention.self.query_proj", 6),
        ("layer.0.intermediate.dense", 1),
        ("value_proj", 2),
    ];
    assert_eq!(config.rank_pattern, ranks.map(|(key, rank)| (key.to_owned(), rank)));
    assert_eq!(config.alpha_pattern[1], ("layer.0.intermediate.dense".into(), 3.0));
    assert_eq!(config.saved_modules(), ["classifier", "score"]);

    let PeftMethod::AdaLora(adalora) = parse(ADALORA).unwrap().method else { panic!() };
    assert_eq!((adalora.init_r, adalora.total_step, adalora.orth_reg_weight), (4, Some(14), 0.1));
    let kept = adalora.kept.unwrap();
    let query = "deberta.encoder.layer.0.attention.self.query_proj";
    let flags = &kept.iter().find(|(path, _)| path == query).unwrap().1;
    assert_eq!((kept.len(), flags.as_slice()), (12, &[true, false, true, true][..]));
}

#[rstest]
#[case(with(LORA, "revision", "\"v1\""))]
#[case(with(ADALORA, "revision", "\"v1\""))]
#[case(with(LORA, "layers_to_transform", "3"))]
#[case(with(LORA, "exclude_modules", "\".*1.*\""))]
#[case(with(LORA, "target_modules", "\"all-linear\""))]
// The first pattern that matches wins, so the order is part of the meaning.
#[case(with(LORA, "rank_pattern", r#"{"z":3,"a":2,"m":9}"#))]
fn what_is_written_is_read(#[case] config: Result<PeftConfig, Error>) {
    let config = config.unwrap();
    assert_eq!(parse(&written(&config)).unwrap(), config);
}

#[test]
fn numbers_are_written_as_integers_only_where_they_are() {
    let mut config = with(LORA, "lora_alpha", "16").unwrap();
    config.lora_dropout = 0.1;
    let text = written(&config);
    assert!(text.contains("\"lora_alpha\":16,\"lora_dropout\":0.1,"), "{text}");
    let pattern = with(LORA, "rank_pattern", r#"{"z":3,"a":2}"#).unwrap();
    assert!(written(&pattern).contains(r#""rank_pattern":{"z":3,"a":2}"#));
}

#[rstest]
fn options_that_change_the_result_are_errors_by_name(
    #[values(LORA, ADALORA)] base: &str,
    #[values(
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
        ("init_lora_weights", "\"loftq\"")
    )]
    (key, value): (&str, &str),
) {
    let error = with(base, key, value).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains(&format!("has `{key}` = ")), "{error}");
}

#[rstest]
#[case("init_lora_weights", "\"gaussian\"")]
#[case("init_lora_weights", "false")]
#[case("eva_config", "{\"rho\":2.0}")]
#[case("lora_dropout", "0.1")]
#[case("peft_version", "\"9.9\"")]
#[case("layer_replication", "[]")]
#[case("a_key_of_the_future", "null")]
#[case("a_key_of_the_future", "false")]
#[case("a_key_of_the_future", "{}")]
#[case("exclude_modules", "[]")]
fn harmless_and_unset_keys_are_accepted(#[case] key: &str, #[case] value: &str) {
    with(LORA, key, value).unwrap();
}

#[test]
fn unset_values() {
    for text in ["null", "false", "\"\"", "[]", "{}"] {
        assert!(is_unset(&serde_json::from_str(text).unwrap()), "{text}");
    }
    for text in ["0", "true", "\"x\"", "[0]", "{\"a\":null}"] {
        assert!(!is_unset(&serde_json::from_str(text).unwrap()), "{text}");
    }
}

#[rstest]
#[case("a_key_of_the_future", "true")]
#[case("a_key_of_the_future", "3")]
#[case("a_key_of_the_future", "\"x\"")]
#[case("a_key_of_the_future", "[1]")]
// Keys of the other method are not read, so they are unknown.
#[case("init_r", "12")]
fn unknown_keys_that_are_set_are_errors(#[case] key: &str, #[case] value: &str) {
    let error = with(LORA, key, value).unwrap_err().to_string();
    assert!(error.contains(&format!("has the unknown key `{key}` = `{value}`")), "{error}");
}

#[rstest]
#[case(LORA, "r", "0", "r")]
#[case(LORA, "r", "8.5", "r")]
#[case(LORA, "lora_alpha", "\"16\"", "lora_alpha")]
#[case(LORA, "lora_dropout", "1.5", "lora_dropout")]
#[case(LORA, "target_modules", "null", "target_modules")]
#[case(LORA, "target_modules", "[1]", "target_modules")]
#[case(LORA, "modules_to_save", "{}", "modules_to_save")]
#[case(LORA, "peft_type", "\"LOHA\"", "peft_type")]
#[case(LORA, "use_rslora", "1", "use_rslora")]
#[case(LORA, "layers_pattern", "[\"h\"]", "layers_pattern")]
#[case(LORA, "rank_pattern", "{\"q\":2,\"q\":3}", "rank_pattern")]
#[case(LORA, "rank_pattern", "{\"q\":0}", "rank_pattern.q")]
#[case(LORA, "alpha_pattern", "{\"v\":1,\"q\":null}", "alpha_pattern.q")]
#[case(ADALORA, "init_r", "0", "init_r")]
#[case(ADALORA, "rank_pattern", "{\"q.lora_E\":[true]}", "rank_pattern.q.lora_E")]
#[case(ADALORA, "rank_pattern", "{\"q.lora_A\":[true,true,true,true]}", "rank_pattern.q.lora_A")]
#[case(ADALORA, "rank_pattern", "{\"q.lora_E\":[],\"q.lora_E.x\":[]}", "rank_pattern")]
#[case(ADALORA, "lora_alpha", "0", "lora_alpha")]
fn values_of_the_wrong_form_are_named(
    #[case] base: &str,
    #[case] key: &str,
    #[case] value: &str,
    #[case] named: &str,
) {
    let error = with(base, key, value).unwrap_err().to_string();
    assert!(error.starts_with("`c.json` should have "), "{error}");
    assert!(error.contains(&format!("as `{named}`, found")), "{error}");
}

#[test]
fn a_wrong_value_is_shown_beside_the_expected_one() {
    let shown = |key, value| with(LORA, key, value).unwrap_err().to_string();
    assert_eq!(
        shown("modules_to_save", "{}"),
        "`c.json` should have a list, or one value of it as `modules_to_save`, found `{}`"
    );
    assert_eq!(
        shown("use_rslora", "1"),
        "`c.json` should have a boolean as `use_rslora`, found `1`"
    );
    assert_eq!(
        shown("lora_alpha", "[]"),
        "`c.json` should have a number as `lora_alpha`, found `[]`"
    );
    let error = parse(r#"{"peft_type":"LORA","target_modules":["q"],"r":8,"r":16}"#).unwrap_err();
    assert!(error.to_string().contains("holds JSON that cannot be read: the key `r`"), "{error}");
}

#[test]
fn text_targets() {
    let all = with(LORA, "target_modules", "\"All-Linear\"").unwrap();
    assert_eq!(all.target_modules, TargetModules::AllLinear);
    let mut regex = with(LORA, "target_modules", "\".*q\"").unwrap();
    assert_eq!(regex.target_modules, TargetModules::Regex(".*q".into()));
    regex.layers_to_transform = vec![0];
    let error = parse(&written(&regex)).unwrap_err();
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
