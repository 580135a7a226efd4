//! Modules that a configuration adapts, and names of their tensors.

use rstest::rstest;

use super::names;
use crate::peft::convert::pattern_key;
use crate::peft::rules::{Factor, Key, key_matches, parse_key, saved_key};
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
fn the_first_pattern_in_file_order_wins_and_matches_whole_parts() {
    let ranks = vec![(r"1\..*q".into(), 3), ("q".into(), 5), ("h.1.q".into(), 7)];
    let config = config(|c| c.rank_pattern = ranks);
    let rules = config.rules().unwrap();
    assert_eq!(["h.1.q", "h.0.q", "h.0.xq"].map(|path| rules.of(path).0), [3, 5, 8]);
}

#[test]
fn keys_match_their_module_alone() {
    let paths = ["pooler.dense", "dense", "h.0.q"];
    let key = |path| pattern_key(path, paths.into_iter());
    assert_eq!(["h.0.q", "pooler.dense", "dense"].map(key), ["h.0.q", "pooler.dense", "^dense"]);
    assert!(key_matches("^dense", "dense") && !key_matches("^dense", "pooler.dense"));
    let odd = pattern_key("h.(0)+q", ["h.(0)+q"].into_iter());
    assert!(key_matches(&odd, "h.(0)+q"), "{odd}");
}

#[test]
fn names_of_tensors() {
    let lora = config(|c| c.modules_to_save = vec!["classifier".into()]);
    let adalora = PeftConfig::adalora(AdaLoraConfig::default(), 8.0, names(&["q"]));
    let factor = |factor| Key::Factor { path: "h.0.q".into(), factor };
    for (config, name, expected) in [
        (&lora, "h.0.q.lora_A.weight", factor(Factor::A)),
        (&lora, "h.0.q.lora_A.default.weight", factor(Factor::A)),
        (&adalora, "h.0.q.lora_E", factor(Factor::E)),
        (&adalora, "h.0.q.lora_E.mine", factor(Factor::E)),
        // Of the other method.
        (&lora, "q.lora_A", Key::Unknown),
        (&lora, "q.lora_E.weight", Key::Unknown),
        (&adalora, "q.lora_A.weight", Key::Unknown),
        (&lora, "q.lora_B.bias", Key::Unknown),
        (&lora, "q.lora_embedding_A", Key::Unknown),
        (&lora, "c.classifier.modules_to_save.x.bias", Key::Saved("c.classifier.bias".into())),
    ] {
        assert_eq!(parse_key(config, &saved_key(name)), expected, "{name}");
        assert_eq!(parse_key(config, name), Key::Unknown, "{name} without the prefix");
    }
    let original = saved_key("classifier.original_module.weight");
    assert!(matches!(parse_key(&lora, &original), Key::Ignored(_)));
    for (name, parameter) in [
        ("lm_head.base_layer.weight", "lm_head.weight"),
        ("h.0.q.base_layer.bias", "h.0.q.bias"),
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ] {
        assert_eq!(parse_key(&lora, &saved_key(name)), Key::Base(parameter.into()), "{name}");
    }
    // Listed, the embedding is a trained parameter.
    let listed = config(|c| c.modules_to_save = vec!["embed_tokens".into()]);
    let key = parse_key(&listed, &saved_key("model.embed_tokens.weight"));
    assert_eq!(key, Key::Saved("model.embed_tokens.weight".into()));
}
