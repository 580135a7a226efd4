#![allow(clippy::unwrap_used)]

use super::*;

fn names(names: &[&str]) -> TargetModules {
    TargetModules::Names(names.iter().map(|&name| name.to_owned()).collect())
}

fn rules(edit: impl FnOnce(&mut PeftConfig)) -> ModuleRules {
    let mut config = PeftConfig::lora(8, 16.0, names(&["q", "out.dense"]));
    edit(&mut config);
    config.rules().unwrap()
}

#[test]
fn names_match_whole_parts_from_the_end() {
    let rules = rules(|_| {});
    for path in ["q", "layers.0.q", "a.out.dense", "out.dense"] {
        assert!(rules.targets(path), "{path}");
    }
    for path in ["xq", "q.x", "layers.q.0", "dense", "about.dense"] {
        assert!(!rules.targets(path), "{path}");
    }
}

#[test]
fn a_text_target_must_match_the_whole_path() {
    let rules = rules(|config| {
        config.target_modules = TargetModules::Regex(r"h\.\d+\.(q|v)|top".into());
    });
    for (path, expected) in
        [("h.3.q", true), ("top", true), ("h.3.q.x", false), ("x.h.3.q", false), ("topp", false)]
    {
        assert_eq!(rules.targets(path), expected, "{path}");
    }
}

#[test]
fn all_linear_leaves_out_the_head_and_what_is_saved_whole() {
    let rules = rules(|config| {
        config.target_modules = TargetModules::AllLinear;
        config.task_type = Some("SEQ_CLS".into());
        config.modules_to_save = vec!["pooler".into()];
    });
    for (path, expected) in [
        ("model.q", true),
        ("lm_head", false),
        ("score", false),
        ("classifier.dense", false),
        ("pooler.dense", false),
        ("mypooler.dense", true),
    ] {
        assert_eq!(rules.targets(path), expected, "{path}");
    }
}

#[test]
fn exclusions_win() {
    let by_name = rules(|config| config.exclude_modules = Some(names(&["a.q"])));
    assert!(!by_name.targets("x.a.q") && by_name.targets("x.b.q"));
    let by_regex = rules(|config| {
        config.exclude_modules = Some(TargetModules::Regex(r".*\.1\..*".into()));
    });
    assert!(!by_regex.targets("h.1.q") && by_regex.targets("h.11.q"));
}

#[test]
fn layers_are_counted_at_the_first_number() {
    let any = rules(|config| config.layers_to_transform = Some(vec![1]));
    assert!(any.targets("m.layers.1.experts.0.q") && !any.targets("m.layers.0.experts.1.q"));
    // No number, no match; listed in full, always a match.
    assert!(!any.targets("m.q") && any.targets("q"));
    let named = rules(|config| {
        config.layers_to_transform = Some(vec![0, 2]);
        config.layers_pattern = vec!["h".into(), "blocks".into()];
    });
    assert!(named.targets("h.2.q") && named.targets("m.blocks.0.q"));
    assert!(!named.targets("m.layers.0.q") && !named.targets("m.h.1.q"));
}

#[test]
fn the_first_pattern_in_file_order_wins() {
    let rules = rules(|config| {
        config.rank_pattern = vec![(r"1\..*q".into(), 3), ("q".into(), 5), ("h.1.q".into(), 7)];
        config.alpha_pattern = vec![(".*0.*".into(), 10.0)];
    });
    assert_eq!([rules.rank("h.1.q"), rules.rank("h.0.q"), rules.rank("h.0.v")], [3, 5, 8]);
    // Keys match whole parts only.
    assert_eq!(rules.rank("h.0.xq"), 8);
    assert_eq!((rules.lora_alpha("h.0.q"), rules.scaling("h.0.q")), (10.0, 2.0));
    assert_eq!(rules.scaling("h.1.q"), 16.0 / 3.0);
}

#[test]
fn scale_by_the_root_of_the_rank() {
    let rules = rules(|config| {
        config.use_rslora = true;
        config.rank_pattern = vec![("v".into(), 4)];
    });
    assert_eq!(rules.scaling("v"), 8.0);
    assert_eq!(rules.scaling("q"), 16.0 / 8.0_f64.sqrt());
}

#[test]
fn patterns_that_cannot_be_evaluated_are_named() {
    let mut config = PeftConfig::lora(8, 16.0, TargetModules::Regex("(?!x).*".into()));
    let text = config.rules().unwrap_err().to_string();
    assert!(text.contains("target_modules") && text.contains("(?!x).*"), "{text}");
    config.target_modules = names(&["q"]);
    config.alpha_pattern = vec![("(q".into(), 1.0)];
    let text = config.rules().unwrap_err().to_string();
    assert!(text.starts_with("`alpha_pattern` has the pattern `(q`"), "{text}");
}
