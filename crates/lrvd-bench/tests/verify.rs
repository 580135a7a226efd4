//! `verify` on recorded folders of every kind, and on damaged copies of them.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use lrvd_bench::verify::{Check, Precision, VerifyError, VerifyOptions, VerifyReport, verify};
use lrvd_burn::files::{
    FileError, HostDType, HostTensor, TensorFile, WeightStore, write_safetensors,
};
use lrvd_burn::peft::{PeftAdapter, attach_peft, peft_from_model};
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use serde_json::Value;
use tempfile::TempDir;

const BOTH: [Precision; 2] = [Precision::F32, Precision::F64];

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn run(dir: &Path, precision: Precision) -> Result<VerifyReport, VerifyError> {
    verify(dir, VerifyOptions { precision, device: &Device::flex() })
}

/// Every case below `folder` whose name starts with `prefix` holds in both precisions; the number
/// of cases.
fn all_hold(folder: &str, prefix: &str) -> usize {
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(golden(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    let meant = |case: &Path| case.file_name().unwrap().to_string_lossy().starts_with(prefix);
    cases.retain(|case| case.is_dir() && meant(case));
    for case in &cases {
        for precision in BOTH {
            let report = run(case, precision).unwrap_or_else(|e| panic!("{}: {e}", case.display()));
            assert!(report.holds(), "{report}");
            assert!(report.checks.iter().any(|check| check.compared > 0));
        }
    }
    cases.len()
}

#[test]
fn models_hold() {
    assert_eq!(all_hold("../lrvd-models/tests/golden/deberta", ""), 10);
}

#[test]
fn language_models_hold() {
    assert_eq!(all_hold("../lrvd-models/tests/golden/llama", ""), 7);
}

#[test]
fn adapters_hold() {
    assert_eq!(all_hold("../lrvd-models/tests/golden/peft", "deberta"), 6);
    assert_eq!(all_hold("../lrvd-models/tests/golden/peft", "llama"), 2);
}

#[test]
fn tokenizers_hold() {
    assert_eq!(all_hold("../lrvd-models/tests/golden/tokenizers", ""), 3);
}

#[test]
fn formulas_hold() {
    assert_eq!(all_hold("../lrvd-core/tests/golden/bayes", ""), 12);
}

#[test]
fn training_runs_hold() {
    assert_eq!(all_hold("tests/golden/train", ""), 2);
}

/// A copy of a golden folder that can be damaged.
struct Copy {
    dir: TempDir,
}

impl Copy {
    fn of(path: &str) -> Self {
        let dir = TempDir::new().unwrap();
        copy(&golden(path), dir.path());
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn run(&self) -> Result<VerifyReport, VerifyError> {
        run(self.path(), Precision::F32)
    }

    fn edit_json(&self, edit: impl FnOnce(&mut Value)) -> &Self {
        let file = self.path().join("expected.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        edit(&mut json);
        std::fs::write(file, serde_json::to_vec(&json).unwrap()).unwrap();
        self
    }

    fn edit_tensors(
        &self,
        file: &str,
        edit: impl FnOnce(&mut BTreeMap<String, HostTensor>),
    ) -> &Self {
        let path = self.path().join(file);
        let source = TensorFile::open(&path).unwrap();
        let mut tensors: BTreeMap<String, HostTensor> =
            source.names().map(|name| (name.to_owned(), source.read(name).unwrap())).collect();
        edit(&mut tensors);
        write_safetensors(&path, &tensors, &BTreeMap::new()).unwrap();
        self
    }

    /// Changes the values of a tensor of real numbers, whose type it keeps.
    fn change(&self, file: &str, name: &str, change: impl FnOnce(&mut [f64])) -> &Self {
        self.edit_tensors(file, |tensors| {
            let tensor = &tensors[name];
            let mut values = tensor.to_f64().unwrap();
            change(&mut values);
            let single: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            let changed = match tensor.dtype() {
                HostDType::F32 => HostTensor::from_f32(tensor.shape(), &single),
                _ => HostTensor::from_f64(tensor.shape(), &values),
            };
            tensors.insert(name.to_owned(), changed.unwrap());
        })
    }

    /// Replaces the first value of a recorded tensor.
    fn set_first(&self, name: &str, of: impl Fn(f64) -> f64) -> &Self {
        self.change("expected.safetensors", name, |values| values[0] = of(values[0]))
    }

    /// Replaces one value of an integer input.
    fn set_input(&self, name: &str, index: usize, value: i64) -> &Self {
        self.edit_tensors("inputs.safetensors", |tensors| {
            let tensor = &tensors[name];
            let mut values = tensor.to_i64().unwrap();
            values[index] = value;
            let changed = HostTensor::from_i64(tensor.shape(), &values).unwrap();
            tensors.insert(name.to_owned(), changed);
        })
    }

    /// Replaces one entry of a JSON file.
    fn configure(&self, file: &str, key: &str, value: Value) {
        let file = self.path().join(file);
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        json[key] = value;
        std::fs::write(file, json.to_string()).unwrap();
    }

    /// Makes a checkpoint with an adapter of a folder that records one.
    fn into_checkpoint(self) -> Self {
        for folder in ["base", "adapter"] {
            copy(&self.path().join(folder), self.path());
        }
        std::fs::remove_file(self.path().join("expected.json")).unwrap();
        self
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

const MODEL: &str = "../lrvd-models/tests/golden/deberta/v3_len2";
const LORA: &str = "../lrvd-models/tests/golden/peft/deberta_lora_rslora";
const REALLOCATED: &str = "../lrvd-models/tests/golden/peft/deberta_adalora_reallocated";
const LLAMA: &str = "../lrvd-models/tests/golden/llama/mha_right_padded";
const LLAMA_LORA: &str = "../lrvd-models/tests/golden/peft/llama_lora_r4";
const RUN: &str = "tests/golden/train/deberta_lora";
const ALLOCATED_RUN: &str = "tests/golden/train/deberta_adalora";
const BAYES: &str = "../lrvd-core/tests/golden/bayes";

fn failed(report: &VerifyReport) -> Vec<&str> {
    report.checks.iter().filter(|check| !check.holds).map(|check| check.name.as_str()).collect()
}

#[test]
fn a_value_just_outside_its_tolerance_fails_alone() {
    // `logits` of this case has atol_f32 4e-6.
    let copy = Copy::of(MODEL);
    copy.set_first("logits", |value| value + 6e-6);
    let report = copy.run().unwrap();
    assert_eq!(failed(&report), ["logits"]);
    assert!(!report.holds());
    assert_eq!(report.worst().unwrap().name, "logits");
    assert!(run(&golden(MODEL), Precision::F32).unwrap().holds());
}

#[test]
fn a_value_that_is_not_a_number_fails() {
    let copy = Copy::of(MODEL);
    copy.set_first("loss", |_| f64::NAN);
    let report = copy.run().unwrap();
    assert_eq!(failed(&report), ["loss"]);
    assert!(report.worst().unwrap().difference.is_nan());
}

#[test]
fn another_shape_fails() {
    let copy = Copy::of(MODEL);
    copy.edit_tensors("expected.safetensors", |tensors| {
        let logits = tensors.remove("logits").unwrap();
        let flat = logits.n_elements();
        tensors.insert("logits".to_owned(), logits.reshape(&[flat, 1]).unwrap());
    });
    assert_eq!(failed(&copy.run().unwrap()), ["logits"]);
}

#[test]
fn numbers_in_the_json_are_compared_too() {
    let copy = Copy::of(MODEL);
    copy.edit_json(|json| json["scalars"]["loss"] = 0.25.into());
    assert_eq!(failed(&copy.run().unwrap()), ["scalars.loss"]);
    copy.edit_json(|json| json["scalars"]["accuracy"] = 0.25.into());
    assert!(
        matches!(copy.run(), Err(VerifyError::Unsupported { what }) if what.contains("accuracy"))
    );
}

#[test]
fn padding_is_no_part_of_the_contract() {
    let copy = Copy::of("../lrvd-models/tests/golden/deberta/v3_short_tiny_embeddings");
    let mask = TensorFile::open(copy.path().join("inputs.safetensors")).unwrap();
    let mask = mask.read("attention_mask").unwrap().to_i64().unwrap();
    let padding = mask.iter().position(|&m| m == 0).unwrap();
    let change = |at: usize| {
        copy.change("expected.safetensors", "hidden_states.1", |values| {
            values[at * (values.len() / mask.len())] += 1.0;
        });
    };
    change(padding);
    assert!(copy.run().unwrap().holds());
    change(0);
    assert_eq!(failed(&copy.run().unwrap()), ["hidden_states.1"]);
}

#[test]
fn kinds_that_are_not_there_are_unsupported_by_name() {
    let copy = Copy::of(MODEL);
    copy.edit_json(|json| json["kind"] = "mamba".into());
    let error = copy.run().unwrap_err().to_string();
    assert_eq!(error, "unsupported: kind `mamba`");
    copy.edit_json(|json| json["kind"] = 7.into());
    assert!(matches!(copy.run(), Err(VerifyError::Entry { name, .. }) if name == "kind"));
}

#[test]
fn broken_files_are_typed_errors() {
    let copy = Copy::of(MODEL);
    let file = copy.path().join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 4]).unwrap();
    assert!(matches!(copy.run(), Err(VerifyError::File(FileError::Truncated { .. }))));
    std::fs::write(copy.path().join("expected.json"), b"{").unwrap();
    assert!(matches!(copy.run(), Err(VerifyError::File(FileError::Json { .. }))));
    let empty = TempDir::new().unwrap();
    assert!(matches!(run(empty.path(), Precision::F32), Err(VerifyError::Nothing { .. })));
}

#[test]
fn tensors_that_are_missing_or_unknown_are_named() {
    let copy = Copy::of(MODEL);
    copy.edit_tensors("expected.safetensors", |tensors| {
        let loss = tensors["loss"].clone();
        tensors.insert("grad.deberta.no_such_parameter".to_owned(), loss);
    });
    match copy.run() {
        Err(VerifyError::UnknownTensors { names, .. }) => {
            assert_eq!(names, ["grad.deberta.no_such_parameter"]);
        }
        other => panic!("{other:?}"),
    }
    let copy = Copy::of(MODEL);
    copy.edit_tensors("expected.safetensors", |tensors| drop(tensors.remove("pooled")));
    match copy.run() {
        Err(VerifyError::File(FileError::NoTensor { tensor, .. })) => assert_eq!(tensor, "pooled"),
        other => panic!("{other:?}"),
    }
    let copy = Copy::of(MODEL);
    copy.edit_json(|json| {
        json["tolerances"] = Value::Null;
        json["tolerance_by_group"] = Value::Null;
    });
    assert!(matches!(copy.run(), Err(VerifyError::MissingTolerance { .. })));
}

#[test]
fn inputs_out_of_range_are_refused_before_they_index() {
    for (name, bad) in [("input_ids", 1_000_000), ("input_ids", -1), ("attention_mask", 2)] {
        let copy = Copy::of(MODEL);
        match copy.set_input(name, 1, bad).run() {
            Err(VerifyError::Value { name: found, index: 1, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_damaged_adapter_fails_or_is_refused() {
    let copy = Copy::of(LORA);
    let key = "base_model.model.deberta.encoder.layer.0.attention.self.query_proj.lora_B.weight";
    copy.change("adapter/adapter_model.safetensors", key, |values| values[3] += 0.01);
    let report = copy.run().unwrap();
    assert!(failed(&report).contains(&"logits"), "{report}");
    copy.edit_tensors("adapter/adapter_model.safetensors", |tensors| drop(tensors.remove(key)));
    let error = copy.run().unwrap_err();
    assert!(matches!(error, VerifyError::Peft(_)) && error.to_string().contains(key), "{error}");
}

#[test]
fn a_run_with_other_settings_fails_and_unknown_settings_are_refused() {
    let copy = Copy::of(RUN);
    copy.edit_json(|json| json["hyperparameters"]["betas"][1] = 0.98.into());
    let report = copy.run().unwrap();
    assert!(failed(&report).iter().any(|name| name.starts_with("final.")), "{report}");
    for (key, value) in [("dropout", Value::from(0.1)), ("amsgrad", Value::from(true))] {
        let copy = Copy::of(RUN);
        copy.edit_json(|json| json["hyperparameters"][key] = value);
        match copy.run() {
            Err(VerifyError::Unsupported { what }) => assert!(what.contains(key), "{what}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    let copy = Copy::of(RUN);
    copy.edit_json(|json| drop(json["hyperparameters"].as_object_mut().unwrap().remove("eps")));
    match copy.run() {
        Err(VerifyError::MissingEntry { name, .. }) => assert_eq!(name, "hyperparameters.eps"),
        other => panic!("{other:?}"),
    }
    let copy = Copy::of(RUN);
    copy.edit_json(|json| json["optimizer"] = "SGD".into());
    assert!(matches!(copy.run(), Err(VerifyError::Unsupported { what }) if what.contains("SGD")));
}

#[test]
fn a_flipped_mask_fails() {
    let copy = Copy::of(ALLOCATED_RUN);
    copy.edit_tensors("expected.safetensors", |tensors| {
        let mask = &tensors["mask"];
        let mut flags = mask.bytes().to_vec();
        *flags.last_mut().unwrap() ^= 1;
        let changed = HostTensor::from_u8(mask.shape(), &flags).unwrap();
        tensors.insert("mask".to_owned(), changed);
    });
    assert_eq!(failed(&copy.run().unwrap()), ["mask"]);
}

#[test]
fn a_schedule_that_begins_later_is_read_by_steps_of_the_loop() {
    // The same run three steps later in a schedule that is three steps longer: masks are due at the same steps of
    // the loop, which is what the recorded names and lists count.
    let copy = Copy::of(ALLOCATED_RUN);
    copy.edit_json(|json| {
        for key in ["tinit", "total_step"] {
            let value = json["hyperparameters"][key].as_u64().unwrap();
            json["hyperparameters"][key] = (value + 3).into();
        }
        json["adalora"]["first_global_step"] = 3.into();
    });
    let report = copy.run().unwrap();
    assert!(report.holds(), "{report}");
    let scores = report.checks.iter().filter(|check| check.name.starts_with("score."));
    assert_eq!(scores.count(), 7);
    // One step off, and masks fall elsewhere.
    copy.edit_json(|json| json["adalora"]["first_global_step"] = 4.into());
    assert!(copy.run().map_or(true, |report| !report.holds()));
}

#[test]
fn damaged_formulas_fail() {
    for (case, name) in [
        ("forward_r4_in6_out5", "additive.v_y_exact"),
        ("forward_r4_in6_out5", "multiplicative.grad.nested.rank"),
        ("kl_grid", "extreme.kl"),
        ("gauge", "sign_flips.D_transformed"),
        ("energy", "random_r6.F_permutations"),
        ("calibration", "random_binary.bin_confidence_sum"),
        ("variance_monte_carlo", "additive.formula.v_paper"),
    ] {
        let copy = Copy::of(&format!("{BAYES}/{case}"));
        copy.set_first(name, |value| value + 1e-4);
        assert_eq!(failed(&copy.run().unwrap()), [name], "{case}");
    }
    let copy = Copy::of(&format!("{BAYES}/gauge"));
    copy.edit_json(|json| json["items"][0]["booleans"]["is_orthogonal"] = false.into());
    assert_eq!(failed(&copy.run().unwrap()), ["items[0].booleans.is_orthogonal"]);
    let copy = Copy::of(&format!("{BAYES}/calibration"));
    copy.edit_json(|json| json["items"][5]["nll"] = 3.5.into());
    assert_eq!(failed(&copy.run().unwrap()), ["items[5].nll"]);
}

#[test]
fn draws_with_another_mean_fail() {
    let copy = Copy::of(&format!("{BAYES}/variance_monte_carlo"));
    copy.set_first("additive.nested.mean", |mean| mean + 0.1);
    let report = copy.run().unwrap();
    assert_eq!(failed(&report), ["additive.nested.mean (standard errors)"]);
}

#[test]
fn a_checkpoint_is_read_and_run() {
    let copy = Copy::of(MODEL);
    std::fs::remove_file(copy.path().join("expected.json")).unwrap();
    let report = copy.run().unwrap();
    assert!(report.holds() && report.kind == "checkpoint", "{report}");
    let compared = |c: &Check| c.compared;
    assert!(report.checks.iter().map(compared).sum::<usize>() > 40, "{report}");

    copy.configure("config.json", "hidden_act", "relu".into());
    match copy.run() {
        Err(VerifyError::Unsupported { what }) => assert!(what.contains("hidden_act"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpoint_with_an_adapter_runs_both() {
    let copy = Copy::of(LORA).into_checkpoint();
    let report = copy.run().unwrap();
    assert!(report.holds(), "{report}");
    assert!(report.checks.iter().any(|check| check.name == "logits with the adapter, finite"));
    let alone = run(&copy.path().join("adapter"), Precision::F32).unwrap();
    assert!(alone.holds() && alone.kind == "adapter");
}

#[test]
fn an_adapter_survives_a_model() {
    for case in [LORA, REALLOCATED] {
        let dir = golden(case);
        let config = DebertaConfig::read(&dir.join("base/config.json")).unwrap();
        let store = WeightStore::open(dir.join("base")).unwrap();
        let (mut model, _) =
            DebertaClassifier::from_fine_tuned(&store, &config, &Device::flex(), DType::F32)
                .unwrap();
        let adapter = PeftAdapter::read(dir.join("adapter")).unwrap();
        attach_peft(&mut model, &adapter, true).unwrap();
        let back = peft_from_model(&model, &adapter.config).unwrap();
        assert_eq!(back.saved, adapter.saved, "{case}");
        assert!(back.modules.keys().eq(adapter.modules.keys()), "{case}");
        for (path, module) in &adapter.modules {
            let found = &back.modules[path];
            assert_eq!((&found.a, &found.b, &found.e), (&module.a, &module.b, &module.e), "{path}");
            assert_eq!((found.rank, found.scaling), (module.rank, module.scaling), "{path}");
        }
    }
}

#[test]
fn damaged_language_models_fail_where_they_are_damaged() {
    for name in [
        "logits",
        "last_logits",
        "answer_logits",
        "kv.step_logits",
        "answer_loss",
        "grad.model.layers.1.input_layernorm.weight",
    ] {
        let copy = Copy::of(LLAMA);
        copy.set_first(name, |value| value + 1e-3);
        assert_eq!(failed(&copy.run().unwrap()), [name]);
    }
    let copy = Copy::of(LLAMA);
    copy.edit_json(|json| json["scalars"]["answer_loss"] = 0.25.into());
    assert_eq!(failed(&copy.run().unwrap()), ["scalars.answer_loss"]);
    // Another base of the rotation is no error but another model.
    let copy = Copy::of(LLAMA);
    copy.configure("config.json", "rope_theta", 500_000.into());
    assert!(failed(&copy.run().unwrap()).contains(&"logits"));
    // Padding is no part of the contract: the third row has five of seventeen tokens.
    let copy = Copy::of(LLAMA);
    copy.change("expected.safetensors", "logits", |values| *values.last_mut().unwrap() += 1.0);
    assert!(copy.run().unwrap().holds());
}

#[test]
fn language_model_inputs_out_of_range_are_refused_by_name() {
    for (name, index, bad) in [
        ("input_ids", 1, 160),
        ("attention_mask", 1, 2),
        ("position_ids", 1, 5),
        ("labels", 1, 160),
        ("labels", 1, -1),
        ("answer_token_ids", 1, 160),
        ("answer_labels", 1, 4),
    ] {
        let copy = Copy::of(LLAMA);
        match copy.set_input(name, index, bad).run() {
            Err(VerifyError::Value { name: found, index: at, .. }) => {
                assert_eq!((found.as_str(), at), (name, index));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let copy = Copy::of(LLAMA);
    copy.edit_json(|json| json["kv_cache"]["prefill_columns"] = 17.into());
    match copy.run() {
        Err(VerifyError::Entry { name, .. }) => assert_eq!(name, "kv_cache.prefill_columns"),
        other => panic!("{other:?}"),
    }
    let copy = Copy::of(LLAMA);
    copy.edit_tensors("expected.safetensors", |tensors| {
        let loss = tensors["loss"].clone();
        tensors.insert("kv.prefill_keys.9".to_owned(), loss);
    });
    assert!(matches!(copy.run(), Err(VerifyError::UnknownTensors { .. })));
    for (key, value) in [
        ("rope_scaling", serde_json::json!({"rope_type": "yarn", "factor": 4.0})),
        ("attention_bias", true.into()),
        ("hidden_act", "gelu".into()),
    ] {
        let copy = Copy::of(LLAMA);
        copy.configure("config.json", key, value);
        match copy.run() {
            Err(VerifyError::Unsupported { what }) => assert!(what.contains(key), "{what}"),
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[test]
fn a_damaged_language_model_adapter_fails() {
    let copy = Copy::of(LLAMA_LORA);
    let key = "base_model.model.lm_head.lora_B.weight";
    let grow = |values: &mut [f64]| values.iter_mut().for_each(|v| *v *= 1.25);
    copy.change("adapter/adapter_model.safetensors", key, grow);
    let report = copy.run().unwrap();
    let failed = failed(&report);
    for name in ["logits", "answer_logits", "loss", "merged.lm_head.weight"] {
        assert!(failed.contains(&name), "{name}: {report}");
    }
    assert!(!failed.contains(&"base_logits"), "{report}");
}

#[test]
fn language_model_checkpoints_are_read_and_run() {
    let report = run(&golden("assets/stories260K"), Precision::F32).unwrap();
    assert!(report.holds() && report.kind == "checkpoint", "{report}");
    let copy = Copy::of(LLAMA_LORA).into_checkpoint();
    let report = copy.run().unwrap();
    assert!(report.holds(), "{report}");
    assert!(report.checks.iter().any(|check| check.name == "logits with the adapter, finite"));
}

#[test]
fn sizes_beyond_the_file_are_errors_before_they_are_allocated() {
    let huge = i32::MAX;
    for key in ["vocab_size", "intermediate_size", "num_hidden_layers", "hidden_size", "head_dim"] {
        let copy = Copy::of(LLAMA);
        copy.configure("config.json", key, (huge - 1).into());
        assert!(copy.run().is_err(), "{key}");
    }
    for (key, value) in [
        ("vocab_size", huge),
        ("intermediate_size", huge),
        ("num_hidden_layers", huge),
        ("type_vocab_size", huge),
        ("position_buckets", 1 << 29),
        ("num_labels", huge),
    ] {
        let copy = Copy::of(MODEL);
        copy.configure("config.json", key, value.into());
        if key == "num_labels" {
            copy.configure("config.json", "id2label", Value::Null);
        }
        assert!(copy.run().is_err(), "{key}");
    }
}
