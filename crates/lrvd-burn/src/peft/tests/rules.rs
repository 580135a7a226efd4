//! Which modules a configuration adapts, and what a file calls their tensors.

use rstest::rstest;

use super::names;
use crate::peft::convert::pattern_key;
use crate::peft::keys::{Factor, Key, factor_key, parse_key, saved_key};
use crate::peft::pattern::key_matches;
use crate::peft::{AdaLoraConfig, PeftConfig, TargetModules};

/// `r` 8 and scale 2 of `q` and `out.dense`, changed.
fn config(edit: impl FnOnce(&mut PeftConfig)) -> PeftConfig {
    let mut config = PeftConfig::lora(8, 16.0, names(&["q", "out.dense"]));
    edit(&mut config);
    config
}

fn regex(text: &str) -> TargetModules {
    TargetModules::Regex(text.into())
}

#[rstest]
#[case::names_match_whole_parts_from_the_end(
    config(|_| {}),
    &["q", "layers.0.q", "a.out.dense", "out.dense"],
    &["xq", "q.x", "layers.q.0", "dense", "about.dense"],
)]
#[case::a_text_matches_the_whole_path(
    config(|c| c.target_modules = regex(r"h\.\d+\.(q|v)|top")),
    &["h.3.q", "top"],
    &["h.3.q.x", "x.h.3.q", "topp"],
)]
#[case::all_linear_leaves_out_the_head_and_what_is_saved_whole(
    config(|c| {
        c.target_modules = TargetModules::AllLinear;
        c.task_type = Some("SEQ_CLS".into());
        c.modules_to_save = vec!["pooler".into()];
    }),
    &["model.q", "mypooler.dense"],
    &["lm_head", "score", "classifier.dense", "pooler.dense"],
)]
#[case::a_name_is_excluded(
    config(|c| c.exclude_modules = Some(names(&["a.q"]))),
    &["x.b.q"],
    &["x.a.q"],
)]
#[case::a_pattern_is_excluded(
    config(|c| c.exclude_modules = Some(regex(r".*\.1\..*"))),
    &["h.11.q"],
    &["h.1.q"],
)]
// No number, no match; listed in full, always a match.
#[case::layers_are_counted_at_the_first_number(
    config(|c| c.layers_to_transform = vec![1]),
    &["m.layers.1.experts.0.q", "q"],
    &["m.layers.0.experts.1.q", "m.q"],
)]
#[case::lists_of_layers_have_names(
    config(|c| {
        c.layers_to_transform = vec![0, 2];
        c.layers_pattern = vec!["h".into(), "blocks".into()];
    }),
    &["h.2.q", "m.blocks.0.q"],
    &["m.layers.0.q", "m.h.1.q"],
)]
fn targets(#[case] config: PeftConfig, #[case] adapted: &[&str], #[case] not: &[&str]) {
    let rules = config.rules().unwrap();
    for (paths, expected) in [(adapted, true), (not, false)] {
        for path in paths {
            assert_eq!(rules.targets(path), expected, "{path}");
        }
    }
}

#[test]
fn the_first_pattern_in_file_order_wins() {
    let config = config(|c| {
        c.rank_pattern = vec![(r"1\..*q".into(), 3), ("q".into(), 5), ("h.1.q".into(), 7)];
        c.alpha_pattern = vec![(".*0.*".into(), 10.0)];
    });
    let rules = config.rules().unwrap();
    assert_eq!([rules.rank("h.1.q"), rules.rank("h.0.q"), rules.rank("h.0.v")], [3, 5, 8]);
    // Keys match whole parts only.
    assert_eq!(rules.rank("h.0.xq"), 8);
    assert_eq!((rules.lora_alpha("h.0.q"), rules.scaling("h.0.q")), (10.0, 2.0));
    assert_eq!(rules.scaling("h.1.q"), 16.0 / 3.0);
}

#[test]
fn scale_by_the_root_of_the_rank() {
    let config = config(|c| {
        c.use_rslora = true;
        c.rank_pattern = vec![("v".into(), 4)];
    });
    let rules = config.rules().unwrap();
    assert_eq!([rules.scaling("v"), rules.scaling("q")], [8.0, 16.0 / 8.0_f64.sqrt()]);
}

#[rstest]
#[case(config(|c| c.target_modules = regex("(?!x).*")), "`target_modules` has the pattern `(?!x).*`")]
#[case(config(|c| c.alpha_pattern = vec![("(q".into(), 1.0)]), "`alpha_pattern` has the pattern `(q`")]
fn patterns_that_cannot_be_evaluated_are_named(#[case] config: PeftConfig, #[case] text: &str) {
    let error = config.rules().unwrap_err().to_string();
    assert!(error.starts_with(text), "{error}");
}

#[test]
fn keys_match_their_module_alone() {
    let paths = ["pooler.dense", "dense", "h.0.q"];
    let key = |path| pattern_key(path, paths.into_iter());
    assert_eq!(key("h.0.q"), "h.0.q");
    assert_eq!(key("pooler.dense"), "pooler.dense");
    assert_eq!(key("dense"), "^dense");
    assert!(key_matches("^dense", "dense") && !key_matches("^dense", "pooler.dense"));
    let odd = pattern_key("h.(0)+q", ["h.(0)+q"].into_iter());
    assert!(key_matches(&odd, "h.(0)+q"), "{odd}");
}

/// A configuration that stores modules whole.
fn saving(adalora: bool, modules: &[&str]) -> PeftConfig {
    let config = if adalora {
        PeftConfig::adalora(AdaLoraConfig::default(), 8.0, names(&["q"]))
    } else {
        PeftConfig::lora(4, 8.0, names(&["q"]))
    };
    let modules_to_save = modules.iter().map(|&name| name.to_owned()).collect();
    PeftConfig { modules_to_save, ..config }
}

fn factor(factor: Factor) -> Key {
    Key::Factor { path: "h.0.q".into(), factor }
}

const LORA: bool = false;
const ADALORA: bool = true;

#[rstest]
#[case(LORA, "h.0.q.lora_A.weight", factor(Factor::A))]
#[case(LORA, "h.0.q.lora_A.default.weight", factor(Factor::A))]
#[case(ADALORA, "h.0.q.lora_E", factor(Factor::E))]
#[case(ADALORA, "h.0.q.lora_E.mine", factor(Factor::E))]
#[case::of_the_other_method(LORA, "q.lora_A", Key::Unknown)]
#[case::of_the_other_method(LORA, "q.lora_E.weight", Key::Unknown)]
#[case::of_the_other_method(ADALORA, "q.lora_A.weight", Key::Unknown)]
#[case(LORA, "q.lora_magnitude_vector", Key::Unknown)]
#[case(LORA, "q.lora_B.bias", Key::Unknown)]
#[case(LORA, "q.lora_embedding_A", Key::Unknown)]
#[case::wrapped(LORA, "classifier.modules_to_save.default.weight", Key::Saved("classifier.weight".into()))]
fn names_of_tensors(#[case] adalora: bool, #[case] name: &str, #[case] expected: Key) {
    let config = saving(adalora, &["classifier"]);
    assert_eq!(parse_key(&config, &format!("base_model.model.{name}")), expected);
    assert_eq!(parse_key(&config, name), Key::Unknown, "without the prefix");
}

#[test]
fn names_that_are_written_are_read() {
    for adalora in [LORA, ADALORA] {
        let config = saving(adalora, &["classifier"]);
        for which in [Factor::A, Factor::B] {
            let key = factor_key(&config.method, "h.0.q", which);
            assert_eq!(parse_key(&config, &key), factor(which), "{key}");
        }
        let key = saved_key("classifier.bias");
        assert_eq!(parse_key(&config, &key), Key::Saved("classifier.bias".into()));
    }
}

#[test]
fn copies_of_base_weights_are_passed_over() {
    for name in [
        "lm_head.base_layer.weight",
        "model.embed_tokens.weight",
        "classifier.original_module.weight",
    ] {
        let key = parse_key(&saving(LORA, &["classifier"]), &saved_key(name));
        assert!(matches!(key, Key::Ignored(_)), "{name}: {key:?}");
    }
    // Listed, the embedding is a trained parameter.
    let listed = saving(LORA, &["embed_tokens"]);
    let key = parse_key(&listed, &saved_key("model.embed_tokens.weight"));
    assert_eq!(key, Key::Saved("model.embed_tokens.weight".into()));
    assert_eq!(parse_key(&listed, &saved_key("lm_head.weight")), Key::Unknown);
}
