//! Adapters read from folders, converted, and written.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use lrvd_core::adalora::adalora_scaling;
use rstest::rstest;
use tempfile::tempdir;

use super::{adapter, f32s, names, report};
use crate::error::Error;
use crate::files::{HostDType, HostTensor, WeightStore, write_safetensors};
use crate::peft::adapter::exact_alpha;
use crate::peft::config::CONFIG_FILE;
use crate::peft::{
    AdaLoraConfig, Cap, ExportLayout, ExportSummary, PeftAdapter, PeftConfig, PeftModule,
    WEIGHTS_FILE,
};

fn golden(case: &str) -> PathBuf {
    let peft = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/peft");
    peft.join(case).join("adapter")
}

/// A copy of a fixture's folder with its tensors edited.
fn edited(
    case: &str,
    edit: impl FnOnce(&mut BTreeMap<String, HostTensor>),
) -> Result<PeftAdapter, Error> {
    let source = golden(case);
    let mut tensors = WeightStore::open(source.join(WEIGHTS_FILE)).unwrap().read_all().unwrap();
    edit(&mut tensors);
    let dir = tempdir().unwrap();
    fs::copy(source.join(CONFIG_FILE), dir.path().join(CONFIG_FILE)).unwrap();
    write_safetensors(dir.path().join(WEIGHTS_FILE), &tensors, &BTreeMap::new()).unwrap();
    PeftAdapter::read(dir.path())
}

fn delta(module: &PeftModule) -> Vec<f64> {
    module.added_to(vec![0.0; module.d_output() * module.d_input()]).unwrap()
}

/// Name of a factor in the fixtures without a diagonal.
fn key(projection: &str, factor: &str) -> String {
    format!(
        "base_model.model.deberta.encoder.layer.0.attention.self.{projection}_proj.lora_{factor}.weight"
    )
}

#[test]
fn every_fault_of_a_file_is_listed() {
    let error = edited("deberta_lora_r4", |tensors| {
        tensors.remove(&key("query", "B")).unwrap();
        // On its side: the width is that of the other axis.
        let turned = tensors[&key("query", "A")].transpose2().unwrap();
        tensors.insert(key("query", "A"), turned);
        tensors.insert(key("key", "A"), f32s(&[128], &[0.5; 128]));
        tensors.insert(key("key", "B"), f32s(&[32, 5], &[0.5; 160]));
        let mut values = [0.5; 128];
        values[7] = f32::INFINITY;
        tensors.insert(key("value", "B"), f32s(&[32, 4], &values));
        let small = f32s(&[4, 1], &[0.0; 4]);
        // Not targeted, unknown, and a second name for the same tensor.
        tensors.insert("base_model.model.deberta.pooler.lora_A.weight".into(), small.clone());
        tensors.insert(key("query", "magnitude_vector"), small.clone());
        tensors.insert(key("value", "A.default"), small);
    });
    let found = report(error.unwrap_err());
    assert_eq!(found.missing, [key("query", "B")]);
    let shapes = ["[4, 32], found [128]", "[32, 4], found [32, 5]", "[4, 32], found [32, 4]"];
    assert!(found.mis_shaped.iter().zip(shapes).all(|(line, end)| line.ends_with(end)), "{found}");
    assert_eq!((found.mis_shaped.len(), found.non_finite.len()), (3, 1));
    assert!(found.non_finite[0].ends_with("at index 7"), "{found}");
    assert_eq!(found.unexpected.len(), 3, "{found}");
}

#[test]
fn known_extras_are_ignored_and_reported() {
    let name = "base_model.model.deberta.q.original_module.weight";
    let extra = [(name.to_owned(), f32s(&[2, 3], &[1.0; 6]))];
    let adapter = edited("deberta_lora_r4", |tensors| tensors.extend(extra)).unwrap();
    let expected =
        format!("`{name}` [2, 3]: the base model's own copy of a module that is stored whole");
    assert_eq!(adapter.ignored, [expected]);
}

#[test]
fn weights_of_the_base_are_read_and_written_again() {
    let path = "deberta.encoder.layer.0.attention.self.query_proj";
    let name = format!("base_model.model.{path}.base_layer.weight");
    let weight = f32s(&[32, 32], &[0.25; 1024]);
    let embedding = ("base_model.model.lm_head.weight".to_owned(), f32s(&[1, 2], &[1.0, 2.0]));
    let extra = [(name.clone(), weight.clone()), embedding.clone()];
    let adapter = edited("deberta_lora_r4", |tensors| tensors.extend(extra)).unwrap();
    assert_eq!(adapter.base[&format!("{path}.weight")], weight);
    let dir = tempdir().unwrap();
    adapter.write(dir.path(), ExportLayout::Ragged).unwrap();
    let written = WeightStore::open(dir.path().join(WEIGHTS_FILE)).unwrap().read_all().unwrap();
    assert_eq!((&written[&name], &written[&embedding.0]), (&weight, &embedding.1));
}

#[test]
fn factors_must_be_floats_and_all_there() {
    let error = edited("deberta_lora_r4", |tensors| {
        let integers = HostTensor::new(HostDType::I8, vec![4, 32], vec![1; 128]).unwrap();
        tensors.insert(key("query", "A"), integers);
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains(
            "lora_A.weight` that cannot be used: expected values of the type `F32`, found `I8`"
        ),
        "{error}"
    );
    // AdaLoRA has three, and of a module that is listed also where no rank is left.
    let error = edited("deberta_adalora_reallocated", |tensors| {
        for (projection, factor) in [("key", "A"), ("key", "B"), ("key", "E"), ("query", "E")] {
            let key = key(projection, factor);
            tensors.remove(key.strip_suffix(".weight").unwrap()).unwrap();
        }
    });
    assert_eq!(report(error.unwrap_err()).missing.len(), 4);
}

#[test]
fn folders_without_an_adapter() {
    let dir = tempdir().unwrap();
    let fails = || PeftAdapter::read(dir.path()).unwrap_err().to_string();
    assert!(fails().starts_with("cannot read `"));
    fs::copy(golden("deberta_lora_r4").join(CONFIG_FILE), dir.path().join(CONFIG_FILE)).unwrap();
    fs::write(dir.path().join("adapter_model.bin"), "x").unwrap();
    assert!(fails().contains("adapter_model.bin"));
    // A pattern that cannot be used names its file.
    let config = r#"{"peft_type": "LORA", "target_modules": ["q"], "alpha_pattern": {"(?=q)": 2}}"#;
    fs::write(dir.path().join(CONFIG_FILE), config).unwrap();
    let text = fails();
    assert!(
        text.contains(
            "json` cannot be used: `alpha_pattern` should be a regular expression, found `(?=q)`"
        ),
        "{text}"
    );
}

#[test]
fn factors_must_fit_each_other() {
    let (a, b) = (f32s(&[2, 3], &[0.0; 6]), f32s(&[4, 3], &[0.0; 12]));
    let error = PeftModule::lora(a, b, 1.0, 2).unwrap_err().to_string();
    assert_eq!(error, "expected 2 columns of `b`, as `a` has rows, found shape [4, 3]");
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
    let update = delta(folded);
    for (found, expected) in update.iter().zip([0.75, -1.0, 0.5, -19.0]) {
        assert!((found / expected - 8.0 / 4.000_01).abs() < 1e-12, "{found} {expected}");
    }
    assert_eq!(update, delta(&adapter.modules["q"]));
    assert_eq!(lora.config.rules().unwrap().of("q"), (2, 2, folded.scaling));
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
    let (capped, report) = adapter.capped(Cap { rank: Some(3), energy: None }).unwrap();
    let ranks: Vec<usize> = capped.modules.values().map(|module| module.rank).collect();
    assert_eq!((ranks, capped.config.r), (vec![3, 2], 3));
    assert_eq!(capped.config.lora_alpha, 6.0, "the scale stays 2");
    assert_eq!(capped.modules["h.v"], adapter.modules["h.v"]);
    let [old, new] = [&adapter, &capped].map(|adapter| delta(&adapter.modules["h.q"]));
    let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let apart: Vec<f64> = old.iter().zip(&new).map(|(o, n)| o - n).collect();
    let expected = norm(&apart) / norm(&old);
    assert!((report.errors["h.q"] - expected).abs() < 1e-6, "{report:?}, expected {expected}");
    assert!(expected > 0.01 && report.error < expected, "the other module lost nothing");
    // Enough room changes nothing but the description.
    let (same, none) = adapter.capped(Cap { rank: Some(5), energy: None }).unwrap();
    assert_eq!((same.modules, none.error, none.errors.len()), (adapter.modules, 0.0, 0));
}

/// Singular values 3, 2 and 1, whose squares are 9, 4 and 1 of 14.
#[rstest]
#[case(0.6, None, 1)]
#[case(0.65, None, 2)]
#[case(0.93, None, 3)]
#[case(1.0, None, 3)]
#[case(0.93, Some(2), 2)]
fn the_fewest_directions_that_hold_the_energy_stay(
    #[case] energy: f64,
    #[case] rank: Option<usize>,
    #[case] expected: usize,
) {
    let a = f32s(&[3, 4], &[3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0]);
    let b = f32s(&[3, 3], &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    let module = PeftModule::lora(a, b, 0.5, 3).unwrap();
    let zero = PeftModule::lora(f32s(&[3, 2], &[1.0; 6]), f32s(&[2, 3], &[0.0; 6]), 0.5, 3);
    let modules = [("h.q", module), ("h.v", zero.unwrap())];
    let adapter = adapter(PeftConfig::lora(3, 1.5, names(&["q", "v"])), &modules);
    let (capped, report) = adapter.capped(Cap { rank, energy: Some(energy) }).unwrap();
    assert_eq!((capped.modules["h.q"].rank, capped.modules["h.v"].rank), (expected, 0));
    let lost: f64 = [9.0, 4.0, 1.0][expected..].iter().sum();
    let error = (lost / 14.0_f64).sqrt();
    assert!((report.error - error).abs() < 1e-6, "{report:?}, expected {error}");
    assert_eq!(capped.modules["h.q"].scaling, 0.5);
}

/// Writes and reads back.
fn through(adapter: &PeftAdapter, layout: ExportLayout) -> (PeftAdapter, ExportSummary) {
    let dir = tempdir().unwrap();
    let summary = adapter.write(dir.path().join("adapter"), layout).unwrap();
    (PeftAdapter::read(dir.path().join("adapter")).unwrap(), summary)
}

/// Ragged LoRA moves nothing; what is folded is rounded once, to single precision.
#[rstest]
#[case("deberta_lora_rslora", ExportLayout::Ragged, 0.0)]
#[case("deberta_lora_rank_alpha_pattern", ExportLayout::Ragged, 0.0)]
#[case("deberta_lora_rank_alpha_pattern", ExportLayout::Uniform, 1e-7)]
#[case("deberta_adalora_reallocated", ExportLayout::Ragged, 1e-7)]
#[case("deberta_adalora_reallocated", ExportLayout::Uniform, 1e-7)]
fn updates_survive_every_layout(
    #[case] case: &str,
    #[case] layout: ExportLayout,
    #[case] tolerance: f64,
) {
    let adapter = PeftAdapter::read(golden(case)).unwrap();
    let (back, summary) = through(&adapter, layout);
    assert_eq!(back.saved, adapter.saved);
    for (path, module) in &adapter.modules {
        let Some(found) = back.modules.get(path) else {
            assert!(module.rank == 0 && summary.dropped.contains(path), "{path}");
            continue;
        };
        let (one, two) = (delta(module), delta(found));
        let scale = one.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
        let apart = one.iter().zip(&two).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        assert!(apart <= tolerance * scale, "{path}");
    }
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

/// As vLLM reads it: one rank and one scale, `lora_alpha / r`, for all modules, whatever patterns there may be.
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
}

#[test]
fn an_adapter_without_any_rank_is_one_module_of_zeros() {
    let mut adapter = pruned();
    adapter.modules.retain(|path, _| path == "h.0.v");
    for layout in [ExportLayout::Ragged, ExportLayout::Uniform] {
        let (back, summary) = through(&adapter, layout);
        assert_eq!(summary.zero_module.as_deref(), Some("h.0.v"));
        assert!(summary.dropped.is_empty());
        assert_eq!(delta(&back.modules["h.0.v"]), vec![0.0; 35]);
    }
}

#[rstest]
#[case(|a: &mut PeftAdapter| a.modules.clear(), "`modules` should be at least one")]
#[case(
    |a: &mut PeftAdapter| a.modules.get_mut("h.0.q").unwrap().scaling = f64::NAN,
    "module `h.0.q`: `scale` should be finite, found NaN"
)]
#[case(
    |a: &mut PeftAdapter| drop(a.saved.insert("classifier.bias".into(), f32s(&[1], &[f32::NAN]))),
    "`unused` does not hold the expected tensors\nnot finite (1)"
)]
#[case(
    |a: &mut PeftAdapter| drop(a.saved.insert("pooler.dense.bias".into(), f32s(&[1], &[0.0]))),
    "`saved` should be parameters of the `modules_to_save` `classifier`, `score`, found `pooler.dense.bias`"
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
