//! Adapters read from folders, checked against a model, converted, and written.

use std::collections::BTreeMap;
use std::fs;

use rstest::rstest;
use tempfile::tempdir;

use super::{adapter, f32s, golden, names, read, report};
use crate::error::Error;
use crate::files::{HostTensor, TensorFile, WeightStore, write_safetensors};
use crate::peft::adapter::exact_alpha;
use crate::peft::config::CONFIG_FILE;
use crate::peft::pattern::adalora_scaling;
use crate::peft::{
    AdaLoraConfig, ExportLayout, ExportSummary, PeftAdapter, PeftConfig, PeftMethod, PeftModule,
    WEIGHTS_FILE,
};

#[test]
fn whole_modules_are_read_under_the_models_names() {
    let adapter = read("deberta_lora_rslora");
    let names: Vec<_> = adapter.saved.keys().map(String::as_str).collect();
    let expected =
        ["classifier.bias", "classifier.weight", "pooler.dense.bias", "pooler.dense.weight"];
    assert_eq!(names, expected);
}

/// The model's linear layers, from the base weights.
fn layers(case: &str) -> Vec<(String, usize, usize)> {
    let base = WeightStore::open(golden(case).join("base")).unwrap();
    let matrices = base.names().filter_map(|name| {
        let path = name.strip_suffix(".weight")?;
        let &[d_output, d_input] = base.shape(name)? else { return None };
        (!path.contains("embeddings")).then(|| (path.to_owned(), d_input, d_output))
    });
    matrices.collect()
}

#[rstest]
fn every_fixture_fits_its_own_model(
    #[values(
        "deberta_adalora",
        "deberta_adalora_reallocated",
        "deberta_lora_r4",
        "deberta_lora_rank_alpha_pattern",
        "deberta_lora_regex_pattern",
        "deberta_lora_rslora"
    )]
    case: &str,
) {
    let adapter = read(case);
    let report = adapter.check_against(&layers(case)).unwrap();
    assert!(report.applied.len() >= 2 * adapter.modules.len());
    let base = WeightStore::open(golden(case).join("base")).unwrap();
    let parameters: Vec<_> = base.names().map(|name| (name, base.shape(name).unwrap())).collect();
    assert_eq!(adapter.check_saved(&parameters).unwrap().applied.len(), adapter.saved.len());
}

#[test]
fn a_model_that_does_not_fit_is_listed() {
    let case = "deberta_lora_r4";
    let (mut adapter, mut layers) = (read(case), layers(case));
    let position = layers.iter().position(|(path, ..)| path.ends_with("0.output.dense")).unwrap();
    layers[position].1 += 1;
    adapter.modules.remove("deberta.encoder.layer.0.attention.self.key_proj").unwrap();
    let gone = layers.iter().position(|(path, ..)| path.ends_with("1.attention.self.key_proj"));
    layers.remove(gone.unwrap());
    let found = report(adapter.check_against(&layers).unwrap_err());
    assert_eq!((found.missing.len(), found.unexpected.len()), (2, 2));
    assert!(found.missing[0].contains("layer.0.attention.self.key_proj.lora_A.weight"));
    assert!(found.unexpected[0].contains("layer.1.attention.self.key_proj"));
    assert_eq!((found.mis_shaped[0].expected[1], found.mis_shaped[0].found[1]), (65, 64));
}

#[test]
fn a_head_that_is_not_there_is_missing() {
    let mut adapter = read("deberta_lora_r4");
    adapter.saved.remove("classifier.bias").unwrap();
    let parameters =
        [("classifier.weight", vec![2, 32]), ("classifier.bias", vec![2]), ("x.weight", vec![1])];
    let found = report(adapter.check_saved(&parameters).unwrap_err());
    assert_eq!(found.missing, ["base_model.model.classifier.bias"]);
}

/// A copy of a fixture's folder with its tensors edited.
fn edited(
    case: &str,
    edit: impl FnOnce(&mut BTreeMap<String, HostTensor>),
) -> Result<PeftAdapter, Error> {
    let source = golden(case).join("adapter");
    let mut tensors = TensorFile::open(source.join(WEIGHTS_FILE)).unwrap().read_all().unwrap();
    edit(&mut tensors);
    let dir = tempdir().unwrap();
    fs::copy(source.join(CONFIG_FILE), dir.path().join(CONFIG_FILE)).unwrap();
    write_safetensors(dir.path().join(WEIGHTS_FILE), &tensors, &BTreeMap::new()).unwrap();
    PeftAdapter::read(dir.path())
}

const QUERY: &str = "base_model.model.deberta.encoder.layer.0.attention.self.query_proj";

#[test]
fn every_fault_of_a_file_is_listed() {
    let error = edited("deberta_lora_r4", |tensors| {
        tensors.remove(&format!("{QUERY}.lora_B.weight")).unwrap();
        let (key, value) = (QUERY.replace("query", "key"), QUERY.replace("query", "value"));
        tensors.insert(format!("{key}.lora_A.weight"), f32s(&[5, 32], &[0.5; 160]));
        let mut values = [0.5; 128];
        values[7] = f32::INFINITY;
        tensors.insert(format!("{value}.lora_B.weight"), f32s(&[32, 4], &values));
        let small = f32s(&[4, 1], &[0.0; 4]);
        // Not targeted, unknown, and a second name for the same tensor.
        tensors.insert("base_model.model.deberta.pooler.lora_A.weight".into(), small.clone());
        tensors.insert(format!("{QUERY}.lora_magnitude_vector"), small.clone());
        tensors.insert(format!("{QUERY}.lora_A.default.weight"), small);
    });
    let found = report(error.unwrap_err());
    assert_eq!(found.missing, [format!("{QUERY}.lora_B.weight")]);
    assert_eq!(found.mis_shaped.len(), 1, "{found}");
    assert_eq!(found.mis_shaped[0].expected, [4, 32]);
    assert_eq!((found.non_finite.len(), found.non_finite[0].index), (1, 7));
    assert_eq!(found.unexpected.len(), 3, "{found}");
}

/// The width of a factor that lies on its side is the other one.
#[test]
fn shapes_in_messages_are_those_that_are_meant() {
    let error = edited("deberta_lora_r4", |tensors| {
        for factor in ["lora_A", "lora_B"] {
            let tensor = tensors.get_mut(&format!("{QUERY}.{factor}.weight")).unwrap();
            *tensor = tensor.transpose2().unwrap();
        }
        let flat = format!("{}.lora_A.weight", QUERY.replace("query", "key"));
        let flat = tensors.get_mut(&flat).unwrap();
        *flat = flat.clone().reshape(&[4 * 32]).unwrap();
    });
    let found = report(error.unwrap_err());
    let shapes: Vec<_> = found.mis_shaped.iter().map(|m| (&m.expected[..], &m.found[..])).collect();
    let expected: [(&[usize], &[usize]); 3] =
        [(&[4, 32], &[128]), (&[4, 32], &[32, 4]), (&[32, 4], &[4, 32])];
    assert_eq!(shapes, expected);
    let text = found.to_string();
    assert!(
        !text.contains("applied") && text.contains("expected [4, 32], found [32, 4]"),
        "{text}"
    );
}

#[test]
fn known_extras_are_ignored_and_reported() {
    let adapter = edited("deberta_lora_r4", |tensors| {
        let extra = f32s(&[2, 2], &[1.0; 4]);
        tensors.insert("base_model.model.deberta.embed_tokens.weight".into(), extra.clone());
        tensors.insert(format!("{QUERY}.base_layer.weight"), extra);
        for factor in ["lora_A", "lora_B"] {
            let tensor = tensors.remove(&format!("{QUERY}.{factor}.weight")).unwrap();
            tensors.insert(format!("{QUERY}.{factor}.default.weight"), tensor);
        }
    });
    let adapter = adapter.unwrap();
    assert_eq!((adapter.ignored.len(), &adapter.ignored[0].shape[..]), (2, &[2, 2][..]));
    assert_eq!(adapter.modules, read("deberta_lora_r4").modules);
}

#[test]
fn factors_must_be_floats() {
    let error = edited("deberta_lora_r4", |tensors| {
        let integers = HostTensor::from_i64(&[4, 32], &[1; 128]).unwrap();
        tensors.insert(format!("{QUERY}.lora_A.weight"), integers);
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("lora_A.weight` that cannot be used: `I64` values"), "{error}");
}

#[test]
fn adalora_needs_all_three_factors_also_of_empty_modules() {
    let error = edited("deberta_adalora_reallocated", |tensors| {
        let empty = QUERY.replace("query", "key");
        for factor in ["lora_A", "lora_B", "lora_E"] {
            tensors.remove(&format!("{empty}.{factor}")).unwrap();
        }
        tensors.remove(&format!("{QUERY}.lora_E")).unwrap();
    });
    let found = report(error.unwrap_err());
    assert_eq!(found.missing.len(), 4, "{found}");
}

#[test]
fn folders_without_an_adapter() {
    let dir = tempdir().unwrap();
    assert!(matches!(PeftAdapter::read(dir.path()), Err(Error::Io { action: "read", .. })));
    let config = golden("deberta_lora_r4").join("adapter").join(CONFIG_FILE);
    fs::copy(config, dir.path().join(CONFIG_FILE)).unwrap();
    fs::write(dir.path().join("adapter_model.bin"), "x").unwrap();
    let text = PeftAdapter::read(dir.path()).unwrap_err().to_string();
    assert!(text.contains("adapter_model.bin"), "{text}");
    // A pattern that cannot be used names its file.
    let config = r#"{"peft_type": "LORA", "target_modules": ["q"], "alpha_pattern": {"(?=q)": 2}}"#;
    fs::write(dir.path().join(CONFIG_FILE), config).unwrap();
    let text = PeftAdapter::read(dir.path()).unwrap_err().to_string();
    assert!(
        text.contains(CONFIG_FILE) && text.contains("`alpha_pattern` has the pattern"),
        "{text}"
    );
}

#[test]
fn numerators_give_the_scale_back() {
    assert_eq!(exact_alpha(2.0, 3), 6.0);
    for (scaling, rank) in [(16.0 / 3.0, 7), (16.0 / 8.0_f64.sqrt(), 5), (1.999_995, 1)] {
        assert_eq!(exact_alpha(scaling, rank) / rank as f64, scaling, "{scaling} {rank}");
    }
    // No double divided by 3 is the double nearest to 0.1; one unit in the last place is the
    // best there is.
    assert_eq!(exact_alpha(0.1, 3) / 3.0, 0.1_f64.next_up());
    assert_eq!(exact_alpha(2.0, 0), 0.0);
}

#[test]
fn adalora_becomes_lora_with_the_same_update() {
    // rank 3 of 4, middle triplet masked; scaling 8 / 4.00001.
    let module = PeftModule {
        rank: 3,
        initial_rank: 4,
        scaling: adalora_scaling(8.0, 4),
        lora_alpha: 8.0,
        a: f32s(&[3, 2], &[1.0, 2.0, 9.0, 9.0, -0.5, 4.0]),
        b: f32s(&[2, 3], &[1.0, 9.0, 0.25, -3.0, 9.0, 2.0]),
        e: Some(f32s(&[3], &[0.5, 0.0, -2.0])),
    };
    let adalora = AdaLoraConfig { init_r: 4, ..AdaLoraConfig::default() };
    let adapter = adapter(PeftConfig::adalora(adalora, 8.0, names(&["q"])), &[("q", module)]);
    let lora = adapter.to_lora().unwrap();
    let folded = &lora.modules["q"];
    assert_eq!((folded.rank, folded.initial_rank, &folded.e), (2, 4, &None));
    assert_eq!(folded.a.to_f32().unwrap(), [0.5, 1.0, 1.0, -8.0]);
    assert_eq!(folded.b.to_f32().unwrap(), [1.0, 0.25, -3.0, 2.0]);
    // By hand: b·diag(e)·a = [[0.75, -1], [0.5, -19]].
    let delta = folded.delta().unwrap();
    let expected = [0.75, -1.0, 0.5, -19.0].map(|x| x * 8.0 / 4.000_01);
    for (found, expected) in delta.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12 * expected.abs(), "{found} {expected}");
    }
    assert_eq!(delta, adapter.modules["q"].delta().unwrap());
    let rules = lora.config.rules().unwrap();
    assert_eq!((rules.rank("q"), rules.scaling("q")), (2, folded.scaling));
}

#[test]
fn what_a_smaller_rank_cuts_is_what_the_error_says() {
    let module = |rank: usize, d_input: usize, d_output: usize| {
        // No sine of multiples: such a matrix has rank 2.
        let wave = |n: usize, turn: f32| -> Vec<f32> {
            (0..n).map(|i| ((i * i) as f32 * turn + 1.0).sin()).collect()
        };
        let a = f32s(&[rank, d_input], &wave(rank * d_input, 0.7));
        let b = f32s(&[d_output, rank], &wave(rank * d_output, 1.3));
        PeftModule::lora(a, b, 2.0, 6).unwrap()
    };
    let modules = [("h.q", module(5, 9, 7)), ("h.v", module(2, 4, 8))];
    let adapter = adapter(PeftConfig::lora(6, 12.0, names(&["q", "v"])), &modules);
    let (capped, report) = adapter.capped(3).unwrap();
    let ranks: Vec<usize> = capped.modules.values().map(|module| module.rank).collect();
    assert_eq!((ranks, capped.config.r), (vec![3, 2], 3));
    assert_eq!(capped.config.lora_alpha, 6.0, "the scale stays 2");
    assert_eq!(capped.modules["h.v"], adapter.modules["h.v"]);
    let (old, new) = (&adapter.modules["h.q"], &capped.modules["h.q"]);
    let (old, new) = (old.delta().unwrap(), new.delta().unwrap());
    let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let apart: Vec<f64> = old.iter().zip(&new).map(|(o, n)| o - n).collect();
    let expected = norm(&apart) / norm(&old);
    assert!((report.errors["h.q"] - expected).abs() < 1e-6, "{report:?}, expected {expected}");
    assert!(expected > 0.01 && report.error < expected, "the other module lost nothing");
    // Enough room changes nothing but the description.
    let (same, none) = adapter.capped(5).unwrap();
    assert_eq!((same.modules, none.error, none.errors.len()), (adapter.modules, 0.0, 0));
}

/// Writes and reads back.
fn through(adapter: &PeftAdapter, layout: ExportLayout) -> (PeftAdapter, ExportSummary) {
    let dir = tempdir().unwrap();
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

#[rstest]
fn every_fixture_survives_every_layout(
    #[values(ExportLayout::Ragged, ExportLayout::Uniform)] layout: ExportLayout,
    #[values(
        "deberta_adalora",
        "deberta_adalora_reallocated",
        "deberta_lora_r4",
        "deberta_lora_rank_alpha_pattern",
        "deberta_lora_regex_pattern",
        "deberta_lora_rslora",
        "llama_lora_r4"
    )]
    case: &str,
) {
    let adapter = read(case);
    let (back, summary) = through(&adapter, layout);
    assert_eq!(back.saved, adapter.saved);
    // Ragged LoRA moves nothing; what is folded is rounded once, to single precision.
    let exact = layout == ExportLayout::Ragged && adapter.config.method == PeftMethod::Lora;
    for (path, module) in &adapter.modules {
        let Some(found) = back.modules.get(path) else {
            assert!(module.rank == 0 && summary.dropped.contains(path), "{path}");
            continue;
        };
        assert!(difference(module, found) <= if exact { 0.0 } else { 1e-7 }, "{path}");
        if exact {
            let factors = |m: &PeftModule| (m.a.clone(), m.b.clone(), m.scaling);
            assert_eq!(factors(found), factors(module));
        }
    }
}

#[test]
fn adalora_keeps_its_own_layout() {
    for case in ["deberta_adalora", "deberta_adalora_reallocated"] {
        let adapter = read(case);
        let (back, _) = through(&adapter, ExportLayout::AdaLora);
        assert_eq!(back.modules, adapter.modules);
        assert_eq!(back.config.method, adapter.config.method);
    }
    let error = read("deberta_lora_r4").write("unused", ExportLayout::AdaLora).unwrap_err();
    assert!(error.to_string().ends_with("of the type `ADALORA`, found `LORA`"), "{error}");
}

/// A pruned adapter: `r0` = 4, scale 4, ranks 3, 1 and 0.
fn pruned() -> PeftAdapter {
    let module = |rank: usize, d_input: usize, d_output: usize| {
        let values = |n: usize| (0..n).map(|i| i as f32 - 2.5).collect::<Vec<_>>();
        let a = f32s(&[rank, d_input], &values(rank * d_input));
        let b = f32s(&[d_output, rank], &values(d_output * rank));
        PeftModule::lora(a, b, 4.0, 4).unwrap()
    };
    let mut config = PeftConfig::lora(4, 16.0, names(&["q", "v"]));
    config.task_type = Some("SEQ_CLS".into());
    let modules =
        [("h.0.q", module(3, 5, 7)), ("h.0.v", module(0, 5, 7)), ("h.1.q", module(1, 5, 2))];
    let saved = [("classifier.weight".to_owned(), f32s(&[1, 2], &[1.0, 2.0]))].into();
    PeftAdapter { saved, ..adapter(config, &modules) }
}

#[test]
fn names_do_not_end_their_places_in_the_card() {
    let mut adapter = pruned();
    adapter.config.base_model_name_or_path = Some("a`\n# b\u{1b}\u{85}".to_owned());
    let module = adapter.modules.remove("h.0.q").unwrap();
    adapter.modules.insert("h.0.q`|\n\u{1b}[2J".to_owned(), module);
    let dir = tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Ragged).unwrap();
    let card = fs::read_to_string(dir.path().join("README.md")).unwrap();
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
fn a_pruned_adapter_lists_its_survivors_with_rank_and_numerator() {
    let (back, summary) = through(&pruned(), ExportLayout::Ragged);
    assert_eq!(summary.dropped, ["h.0.v"]);
    let config = &back.config;
    assert_eq!(config.target_modules, names(&["h.0.q", "h.1.q"]));
    assert_eq!(config.rank_pattern, [("h.0.q".into(), 3), ("h.1.q".into(), 1)]);
    assert_eq!(config.alpha_pattern, [("h.0.q".into(), 12.0), ("h.1.q".into(), 4.0)]);
    assert_eq!((config.r, config.lora_alpha, config.use_rslora), (4, 16.0, false));
    assert_eq!([back.modules["h.0.q"].scaling, back.modules["h.1.q"].scaling], [4.0, 4.0]);
    assert!(back.check_against(&[("h.0.q", 5, 7), ("h.0.v", 5, 7), ("h.1.q", 5, 2)]).is_ok());
}

/// As vLLM computes it: one rank and one scale, `lora_alpha / r`, for all modules, whatever patterns there may be.
#[test]
fn uniform_pads_and_folds_for_a_server_with_one_scale() {
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

    let dir = tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Uniform).unwrap();
    let text = fs::read(dir.path().join(CONFIG_FILE)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let r = config["r"].as_u64().unwrap() as usize;
    let scale = config["lora_alpha"].as_f64().unwrap() / r as f64;
    let file = TensorFile::open(dir.path().join(WEIGHTS_FILE)).unwrap();
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

#[rstest]
#[case(|a: &mut PeftAdapter| a.modules.get_mut("h.0.q").unwrap().rank = 2, "module `h.0.q`: `shape` should be")]
#[case(
    |a: &mut PeftAdapter| drop(a.saved.insert("classifier.bias".into(), f32s(&[1], &[f32::NAN]))),
    "`unused` does not hold the expected tensors\nnot finite (1)"
)]
#[case(
    |a: &mut PeftAdapter| drop(a.saved.insert("pooler.dense.bias".into(), f32s(&[1], &[0.0]))),
    "`pooler.dense.bias` is in none of"
)]
fn what_could_not_be_read_back_is_not_written(
    #[case] edit: fn(&mut PeftAdapter),
    #[case] expected: &str,
) {
    let mut adapter = pruned();
    edit(&mut adapter);
    let error = adapter.write("unused", ExportLayout::Ragged).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    assert!(!std::path::Path::new("unused").exists());
}

#[test]
fn the_same_adapter_gives_the_same_bytes() {
    let dir = tempdir().unwrap();
    let files = |name: &str| -> BTreeMap<String, Vec<u8>> {
        pruned().write(dir.path().join(name), ExportLayout::Ragged).unwrap();
        let entries = fs::read_dir(dir.path().join(name)).unwrap().map(|entry| entry.unwrap());
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
        entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
    };
    let (one, two) = (files("one"), files("two"));
    assert_eq!(one.keys().collect::<Vec<_>>(), ["README.md", CONFIG_FILE, WEIGHTS_FILE]);
    assert_eq!(one, two);
}
