#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::Error;
use crate::files::{HostTensor, TensorFile};
use crate::peft::{
    ExportLayout, ExportSummary, PeftAdapter, PeftConfig, PeftMethod, PeftModule, TargetModules,
};

const CASES: [&str; 7] = [
    "deberta_adalora",
    "deberta_adalora_reallocated",
    "deberta_lora_r4",
    "deberta_lora_rank_alpha_pattern",
    "deberta_lora_regex_pattern",
    "deberta_lora_rslora",
    "llama_lora_r4",
];

fn golden(case: &str) -> PeftAdapter {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/peft");
    PeftAdapter::read(root.join(case).join("adapter")).unwrap()
}

/// Writes and reads back.
fn through(adapter: &PeftAdapter, layout: ExportLayout) -> (PeftAdapter, ExportSummary) {
    let dir = tempfile::tempdir().unwrap();
    let summary = adapter.write(dir.path().join("adapter"), layout).unwrap();
    let back = PeftAdapter::read(dir.path().join("adapter")).unwrap();
    assert_eq!(back.config, summary.config);
    assert!(dir.path().join("adapter/README.md").is_file());
    (back, summary)
}

/// Largest difference of the updates, relative to the largest entry.
fn difference(one: &PeftModule, two: &PeftModule) -> f64 {
    let (one, two) = (one.delta().unwrap(), two.delta().unwrap());
    let scale = one.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    one.iter().zip(&two).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn every_fixture_survives_every_layout() {
    for case in CASES {
        let adapter = golden(case);
        let adalora = matches!(adapter.config.method, PeftMethod::AdaLora(_));
        for layout in [ExportLayout::Ragged, ExportLayout::Uniform] {
            let (back, summary) = through(&adapter, layout);
            assert_eq!(back.saved, adapter.saved, "{case}");
            for (path, module) in &adapter.modules {
                let Some(found) = back.modules.get(path) else {
                    assert!(module.rank == 0 && summary.dropped.contains(path), "{case} {path}");
                    continue;
                };
                // Ragged LoRA moves nothing; what is folded is rounded once, to single precision.
                let exact = layout == ExportLayout::Ragged && !adalora;
                let bound = if exact { 0.0 } else { 1e-7 };
                assert!(difference(module, found) <= bound, "{case} {path} {layout:?}");
                if exact {
                    assert_eq!(
                        (&found.a, &found.b, found.scaling),
                        (&module.a, &module.b, module.scaling)
                    );
                }
            }
        }
    }
}

#[test]
fn names_do_not_end_their_places_in_the_card() {
    let mut adapter = pruned();
    adapter.config.base_model_name_or_path = Some("a`\n# b\u{1b}\u{85}".to_owned());
    let module = adapter.modules.remove("h.0.q").unwrap();
    adapter.modules.insert("h.0.q`|\n\u{1b}[2J".to_owned(), module);
    let dir = tempfile::tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Ragged).unwrap();
    let card = std::fs::read_to_string(dir.path().join("README.md")).unwrap();
    assert!(card.contains("\nbase_model: \"a`\\n# b\\u001b\\u0085\"\n"), "{card}");
    assert!(card.contains("for `a' # b\\u{1b}\\u{85}`, layout"), "{card}");
    assert!(card.contains("\n| `h.0.q'\\| \\u{1b}[2J` | 3 |"), "{card}");
}

#[test]
fn of_many_modules_to_save_some_are_named() {
    let mut adapter = pruned();
    adapter.config.task_type = None;
    adapter.config.modules_to_save = (0..1000).map(|i| i.to_string()).collect();
    let error = adapter.write("unused", ExportLayout::Ragged).unwrap_err().to_string();
    assert!(error.starts_with("`classifier.weight` is in none of the `modules_to_save` `0`, "));
    assert!(error.ends_with(", `9` and 990 more"), "{error}");
}

#[test]
fn adalora_keeps_its_own_layout() {
    for case in ["deberta_adalora", "deberta_adalora_reallocated"] {
        let adapter = golden(case);
        let (back, _) = through(&adapter, ExportLayout::AdaLora);
        assert_eq!(
            (&back.modules, &back.config.method),
            (&adapter.modules, &adapter.config.method)
        );
    }
    let error = golden("deberta_lora_r4").write("unused", ExportLayout::AdaLora).unwrap_err();
    assert!(error.to_string().ends_with("of the type `ADALORA`, found `LORA`"), "{error}");
}

/// A pruned adapter: `r0` = 4, scale 4, ranks 3, 1 and 0.
fn pruned() -> PeftAdapter {
    let module = |rank: usize, d_input: usize, d_output: usize| {
        let values = |n: usize| (0..n).map(|i| i as f32 - 2.5).collect::<Vec<_>>();
        let a = HostTensor::from_f32(&[rank, d_input], &values(rank * d_input)).unwrap();
        let b = HostTensor::from_f32(&[d_output, rank], &values(d_output * rank)).unwrap();
        PeftModule::lora(a, b, 4.0, 4).unwrap()
    };
    let mut config = PeftConfig::lora(4, 16.0, TargetModules::Names(vec!["q".into(), "v".into()]));
    config.task_type = Some("SEQ_CLS".into());
    let modules =
        [("h.0.q", module(3, 5, 7)), ("h.0.v", module(0, 5, 7)), ("h.1.q", module(1, 5, 2))];
    PeftAdapter {
        config,
        modules: modules.map(|(path, module)| (path.to_owned(), module)).into(),
        saved: [(
            "classifier.weight".to_owned(),
            HostTensor::from_f32(&[1, 2], &[1.0, 2.0]).unwrap(),
        )]
        .into(),
        ignored: Vec::new(),
    }
}

#[test]
fn a_pruned_adapter_lists_its_survivors_with_rank_and_numerator() {
    let (back, summary) = through(&pruned(), ExportLayout::Ragged);
    assert_eq!(summary.dropped, ["h.0.v"]);
    let config = &back.config;
    assert_eq!(config.target_modules, TargetModules::Names(vec!["h.0.q".into(), "h.1.q".into()]));
    assert_eq!(config.rank_pattern, [("h.0.q".into(), 3), ("h.1.q".into(), 1)]);
    assert_eq!(config.alpha_pattern, [("h.0.q".into(), 12.0), ("h.1.q".into(), 4.0)]);
    assert_eq!((config.r, config.lora_alpha, config.use_rslora), (4, 16.0, false));
    assert_eq!([back.modules["h.0.q"].scaling, back.modules["h.1.q"].scaling], [4.0, 4.0]);
    assert!(back.check_against(&[("h.0.q", 5, 7), ("h.0.v", 5, 7), ("h.1.q", 5, 2)]).is_ok());
}

#[test]
fn uniform_pads_and_folds() {
    let mut adapter = pruned();
    adapter.modules.get_mut("h.1.q").unwrap().scaling = 2.0;
    // One scale each: the larger is the common one.
    let (back, summary) = through(&adapter, ExportLayout::Uniform);
    assert_eq!((summary.folded, summary.dropped), (vec!["h.1.q".into()], vec!["h.0.v".into()]));
    assert_eq!((back.config.r, back.config.lora_alpha), (3, 12.0));
    assert!(back.config.rank_pattern.is_empty() && back.config.alpha_pattern.is_empty());
    let module = &back.modules["h.1.q"];
    assert_eq!((module.rank, module.scaling), (3, 4.0));
    assert_eq!(module.a.to_f32().unwrap()[5..], [0.0; 10]);
    // b was [-2.5, -1.5] at scale 2.
    assert_eq!(module.b.to_f32().unwrap(), [-1.25, 0.0, 0.0, -0.75, 0.0, 0.0]);
}

/// As vLLM computes it: one rank and one scale, `lora_alpha / r`, for all modules, whatever patterns there may be.
#[test]
fn uniform_is_right_for_a_server_with_one_scale() {
    let mut adapter = pruned();
    adapter.modules.get_mut("h.1.q").unwrap().scaling = 2.0;
    let dir = tempfile::tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Uniform).unwrap();
    let text = std::fs::read(dir.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let r = config["r"].as_u64().unwrap() as usize;
    let scale = config["lora_alpha"].as_f64().unwrap() / r as f64;
    let file = TensorFile::open(dir.path().join("adapter_model.safetensors")).unwrap();
    let live = adapter.modules.iter().filter(|(_, module)| module.rank > 0);
    let mut compared = 0;
    for (path, module) in live {
        let read =
            |part: &str| file.read(&format!("base_model.model.{path}.{part}.weight")).unwrap();
        let (a, b) = (read("lora_A"), read("lora_B"));
        assert_eq!((a.shape()[0], b.shape()[1]), (r, r), "{path}");
        let (d_input, a, b) = (a.shape()[1], a.to_f64().unwrap(), b.to_f64().unwrap());
        for (at, expected) in module.delta().unwrap().into_iter().enumerate() {
            let (row, column) = (at / d_input, at % d_input);
            let sum: f64 = (0..r).map(|k| b[row * r + k] * a[k * d_input + column]).sum();
            assert!((scale * sum - expected).abs() <= 1e-5, "{path}: {} {expected}", scale * sum);
            compared += usize::from(expected != 0.0);
        }
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn an_adapter_without_any_rank_is_one_module_of_zeros() {
    let mut adapter = pruned();
    adapter.modules.retain(|path, _| path == "h.0.v");
    for layout in [ExportLayout::Ragged, ExportLayout::Uniform] {
        let (back, summary) = through(&adapter, layout);
        assert_eq!(summary.zero_module.as_deref(), Some("h.0.v"));
        assert!(summary.dropped.is_empty());
        assert_eq!(back.modules["h.0.v"].delta().unwrap(), vec![0.0; 35]);
    }
    adapter.modules.clear();
    let error = adapter.write("unused", ExportLayout::Ragged).unwrap_err().to_string();
    assert!(error.contains("the adapter has no module"), "{error}");
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |edit: &dyn Fn(&mut PeftAdapter)| {
        let mut adapter = pruned();
        edit(&mut adapter);
        let error = adapter.write(dir.path().join("x"), ExportLayout::Ragged).unwrap_err();
        assert!(!dir.path().join("x").exists());
        error
    };
    let error = fails(&|adapter| adapter.modules.get_mut("h.0.q").unwrap().rank = 2);
    assert!(error.to_string().starts_with("module `h.0.q`: `shape` should be"), "{error}");
    let error = fails(&|adapter| {
        let nan = HostTensor::from_f32(&[1], &[f32::NAN]).unwrap();
        adapter.saved.insert("classifier.bias".into(), nan);
    });
    assert!(matches!(error, Error::Load(report) if report.non_finite.len() == 1));
    let error = fails(&|adapter| {
        let tensor = HostTensor::from_f32(&[1], &[0.0]).unwrap();
        adapter.saved.insert("pooler.dense.bias".into(), tensor);
    });
    assert!(error.to_string().starts_with("`pooler.dense.bias` is in none of"), "{error}");
}

#[test]
fn the_same_adapter_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let files = |name: &str| -> BTreeMap<String, Vec<u8>> {
        pruned().write(dir.path().join(name), ExportLayout::Ragged).unwrap();
        let entries = std::fs::read_dir(dir.path().join(name)).unwrap();
        entries
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
            })
            .collect()
    };
    let (one, two) = (files("one"), files("two"));
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        ["README.md", "adapter_config.json", "adapter_model.safetensors"]
    );
    assert_eq!(one, two);
}
