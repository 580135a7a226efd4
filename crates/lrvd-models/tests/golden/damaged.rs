//! Copies of folders with one thing changed: what was changed is a miss.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lrvd_burn::files::{HostDType, HostTensor, WeightStore, write_safetensors};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::case::{Check, Limit, Values};

const RUN: &str = "train/deberta_lora";
const ALLOCATED_RUN: &str = "train/deberta_adalora";
const MODEL: &str = "deberta/v3_len2";
const LLAMA: &str = "llama/mha_right_padded";
/// A size of almost 2³¹.
const HUGE: i64 = i32::MAX as i64 - 1;

/// A copy of a folder beside this file.
struct Copy(TempDir);

impl Copy {
    fn of(path: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path);
        copy(&from, dir.path());
        Self(dir)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Checks that miss, or the error.
    fn misses(&self) -> Result<Vec<String>, String> {
        let (_, checks) = Outcome::of(self.0.path()).result.map_err(|e| format!("{e:#}"))?;
        Ok(checks.into_iter().filter(|check| !check.holds()).map(|check| check.name).collect())
    }

    fn checks(&self) -> Vec<Check> {
        Outcome::of(self.0.path()).result.unwrap().1
    }

    #[track_caller]
    fn fails_with(&self, text: &str) {
        let error = self.misses().unwrap_err();
        assert!(error.contains(text), "{error}");
    }

    fn edit_json(&self, file: &str, edit: impl FnOnce(&mut Value)) {
        let file = self.path(file);
        let mut json = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        edit(&mut json);
        std::fs::write(file, json.to_string()).unwrap();
    }

    /// Replaces the entry at a JSON pointer.
    fn set(&self, file: &str, pointer: &str, value: Value) {
        self.edit_json(file, |json| *json.pointer_mut(pointer).unwrap() = value);
    }

    /// Changes the tensors of a file.
    fn tensors(&self, file: &str, change: impl FnOnce(&mut BTreeMap<String, HostTensor>)) {
        let path = self.path(file);
        let mut tensors = WeightStore::open(&path).unwrap().read_all().unwrap();
        change(&mut tensors);
        write_safetensors(&path, &tensors, &BTreeMap::new()).unwrap();
    }

    /// Changes the values of every tensor, which keeps its type; `None` takes it out.
    fn edit(&self, file: &str, change: impl Fn(&str, Vec<f64>) -> Option<Vec<f64>>) {
        let changed = |name: &String, tensor: &mut HostTensor| {
            let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
            let Some(new) = change(name, Values::host(tensor).unwrap().values) else {
                return false;
            };
            let bytes = |v: &f64| match dtype {
                HostDType::F64 => v.to_le_bytes().to_vec(),
                HostDType::F32 => (*v as f32).to_le_bytes().to_vec(),
                HostDType::I64 => (*v as i64).to_le_bytes().to_vec(),
                _ => vec![*v as u8],
            };
            *tensor = HostTensor::new(dtype, shape, new.iter().flat_map(bytes).collect()).unwrap();
            true
        };
        self.tensors(file, |tensors| tensors.retain(changed));
    }

    /// Changes the values of one tensor.
    fn change(&self, file: &str, name: &str, change: impl Fn(&mut [f64])) {
        self.edit(file, |found, mut values| {
            if found == name {
                change(&mut values);
            }
            Some(values)
        });
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::copy(from, to).unwrap();
        return;
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}

/// Folders of every kind with recorded tensors but `bayes_monte_carlo`, whose tensors have the formula between them.
const EVERY_KIND: [&str; 15] = [
    MODEL,
    "deberta/v3_regression",
    "deberta/relative_buckets",
    LLAMA,
    "llama/gqa_theta500000_left_padded",
    "peft/deberta_lora_rslora",
    "peft/deberta_adalora_reallocated",
    "peft/llama_lora_r4",
    RUN,
    ALLOCATED_RUN,
    "bayes/forward_r4_in6_out5",
    "bayes/kl_grid",
    "bayes/gauge",
    "bayes/energy",
    "bayes/calibration",
];

/// The core of it: each recorded tensor that is off by ten of its tolerances misses, and so does nothing else.
#[test]
fn every_recorded_tensor_changed_by_ten_tolerances_is_a_miss() {
    for path in EVERY_KIND {
        let copy = Copy::of(path);
        let mut limits: BTreeMap<String, Limit> = BTreeMap::new();
        for check in copy.checks() {
            assert!(check.holds(), "{path}: {check}");
            // Of two float types the first has the wider tolerance.
            if check.compared > 0 {
                limits.entry(check.name).or_insert(check.limit);
            }
        }
        let names = WeightStore::open(copy.path("expected.safetensors")).unwrap();
        let compared: Vec<String> =
            names.names().filter(|name| limits.contains_key(*name)).map(str::to_owned).collect();
        copy.edit("expected.safetensors", |name, values| {
            let off = |v: f64| match limits.get(name) {
                None => v,
                Some(Limit::Absolute(0.0)) if v == 0.0 => 1.0,
                Some(Limit::Absolute(0.0)) => v - 1.0,
                Some(Limit::Absolute(bound)) => v + 10.0 * bound,
                Some(Limit::Relative(bound)) => v * (1.0 + 10.0 * bound),
            };
            Some(values.into_iter().map(off).collect())
        });
        let misses = copy.misses().unwrap();
        assert!(compared.iter().all(|name| misses.contains(name)), "{path}: {misses:?}");
        assert!(misses.iter().all(|name| compared.contains(name)), "{path}: {misses:?}");
    }
}

#[test]
fn draws_with_another_mean_miss() {
    let copy = Copy::of("bayes/variance_monte_carlo");
    copy.change("expected.safetensors", "additive.nested.mean", |mean| mean[0] += 0.1);
    copy.change("expected.safetensors", "additive.formula.v_paper", |v| v[0] += 1e-4);
    copy.change("expected.safetensors", "multiplicative.nested.se_var", |v| v[0] *= 2.5);
    let misses = copy.misses().unwrap();
    let expected = ["multiplicative.nested.se_var", "additive.formula.v_paper"];
    let scores = "additive.nested.mean (standard errors)";
    assert_eq!(misses, [expected[0], expected[1], scores]);
}

#[test]
fn numbers_of_the_description_are_compared_too() {
    let bpe = "tokenizers/byte_level_bpe";
    for (path, pointer, value, name) in [
        (MODEL, "/scalars/loss", json!(0.25), "scalars.loss"),
        (LLAMA, "/scalars/answer_loss", json!(0.25), "scalars.answer_loss"),
        (LLAMA, "/lengths/0", json!(3), "lengths"),
        ("bayes/calibration", "/items/0/nll", json!(3.5), "random_binary.nll"),
        (
            "bayes/gauge",
            "/items/0/booleans/is_orthogonal",
            json!(false),
            "identity.booleans.is_orthogonal",
        ),
        ("bayes/energy", "/items/0/auc_svd", json!(0.5), "random_r6.auc_svd"),
        (RUN, "/scalars/last_loss", json!(0.5), "scalars.last_loss"),
        (ALLOCATED_RUN, "/adalora/masking_steps/0", json!(5), "adalora.masking_steps"),
        (bpe, "/items/3/ids", json!([1, 1, 2]), "tokenizer.json: empty.ids"),
        (bpe, "/batches/0/type_ids/0/0", json!(1), "tokenizer.json: batch 0.type_ids"),
    ] {
        let copy = Copy::of(path);
        copy.set("expected.json", pointer, value);
        let mut misses = copy.misses().unwrap();
        misses.dedup();
        assert_eq!(misses, [name], "{path}");
    }
}

#[test]
fn a_value_that_is_not_a_number_and_another_shape_miss() {
    let copy = Copy::of(MODEL);
    copy.change("expected.safetensors", "loss", |loss| loss[0] = f64::NAN);
    assert_eq!(copy.misses().unwrap(), ["loss", "loss"]);
    let copy = Copy::of(MODEL);
    copy.tensors("expected.safetensors", |tensors| {
        let logits = tensors.get_mut("logits").unwrap();
        *logits = logits.clone().reshape(&[logits.n_elements(), 1]).unwrap();
    });
    assert_eq!(copy.misses().unwrap(), ["logits", "logits"]);
}

#[test]
fn padding_is_no_part_of_the_contract() {
    // The third row has five of seventeen tokens.
    let copy = Copy::of(LLAMA);
    copy.change("expected.safetensors", "logits", |values| *values.last_mut().unwrap() += 1.0);
    assert_eq!(copy.misses().unwrap(), [""; 0]);
}

#[test]
fn tensors_that_are_missing_or_not_compared_are_named() {
    let copy = Copy::of(MODEL);
    copy.tensors("expected.safetensors", |tensors| {
        tensors.insert("grad.no_such_parameter".to_owned(), tensors["loss"].clone());
    });
    assert_eq!(copy.misses().unwrap(), ["grad.no_such_parameter"; 2]);
    let copy = Copy::of(MODEL);
    copy.edit("expected.safetensors", |name, v| (name != "pooled").then_some(v));
    copy.fails_with("not recorded: [\"pooled\"]");
}

#[test]
fn folders_that_say_something_unknown_are_errors() {
    let bpe = "tokenizers/byte_level_bpe";
    for (path, pointer, value, text) in [
        (MODEL, "/kind", json!("mamba"), "unknown kind `mamba`"),
        (MODEL, "/scalars", json!({"accuracy": 0.25}), "scalars.accuracy"),
        (LLAMA, "/kv_cache/prefill_columns", json!(17), "a prefill of 17"),
        (RUN, "/hyperparameters/dropout", json!(0.1), "dropout"),
        (RUN, "/hyperparameters", json!({"amsgrad": true}), "amsgrad"),
        (RUN, "/hyperparameters/eps", Value::Null, "hyperparameters"),
        (RUN, "/optimizer", json!("SGD"), "SGD"),
        (bpe, "/items/0", json!({"name": "a", "text": "a", "surprise": 1}), "surprise"),
        (bpe, "/items/0/truncation", json!("sideways"), "truncation"),
    ] {
        let copy = Copy::of(path);
        copy.set("expected.json", pointer, value);
        copy.fails_with(text);
    }
    let copy = Copy::of(MODEL);
    copy.set("expected.json", "/tolerances", json!({}));
    copy.set("expected.json", "/tolerance_by_group", json!({}));
    copy.fails_with("no tolerance");
    std::fs::write(copy.path("expected.json"), "{").unwrap();
    copy.fails_with("`expected.json` is broken");
}

#[rstest]
#[case(MODEL, "input_ids", 1e6)]
#[case(MODEL, "input_ids", -1.0)]
#[case(MODEL, "attention_mask", 2.0)]
#[case(MODEL, "labels", 3.0)]
#[case(LLAMA, "answer_labels", 4.0)]
#[case(LLAMA, "labels", 160.0)]
fn inputs_out_of_range_are_errors(#[case] path: &str, #[case] name: &str, #[case] bad: f64) {
    let copy = Copy::of(path);
    copy.change("inputs.safetensors", name, |values| *values.last_mut().unwrap() = bad);
    assert!(copy.misses().is_err());
}

#[test]
fn a_run_with_other_settings_misses() {
    let copy = Copy::of(RUN);
    copy.set("expected.json", "/hyperparameters/betas/1", json!(0.98));
    assert!(copy.misses().unwrap().iter().any(|name| name.starts_with("final.")));
}

#[test]
fn a_schedule_that_starts_later_is_read_by_steps_of_the_loop() {
    // The same run three steps later in a schedule that is three steps longer: masks fall at the same steps of the
    // loop, which is what the recorded names and lists count.
    let copy = Copy::of(ALLOCATED_RUN);
    copy.edit_json("expected.json", |json| {
        for key in ["tinit", "total_step"] {
            let value = json["hyperparameters"][key].as_u64().unwrap();
            json["hyperparameters"][key] = (value + 3).into();
        }
        json["adalora"]["first_global_step"] = 3.into();
    });
    assert_eq!(copy.misses().unwrap(), [""; 0]);
    // One step off, and masks fall elsewhere.
    copy.set("expected.json", "/adalora/first_global_step", json!(4));
    assert_ne!(copy.misses(), Ok(Vec::new()));
}

#[test]
fn another_adapter_or_model_misses() {
    let copy = Copy::of("peft/llama_lora_r4");
    let key = "base_model.model.lm_head.lora_B.weight";
    let grow = |values: &mut [f64]| values.iter_mut().for_each(|v| *v *= 1.25);
    copy.change("adapter/adapter_model.safetensors", key, grow);
    let misses = copy.misses().unwrap();
    for name in ["logits", "answer_logits", "loss", "merged.lm_head.weight"] {
        assert!(misses.iter().any(|missed| missed == name), "{name}: {misses:?}");
    }
    assert!(!misses.contains(&"base_logits".to_owned()), "{misses:?}");
    copy.edit("adapter/adapter_model.safetensors", |name, v| (name != key).then_some(v));
    copy.fails_with(key);
    let copy = Copy::of(LLAMA);
    copy.edit_json("config.json", |json| json["rope_theta"] = json!(500_000));
    assert!(copy.misses().unwrap().contains(&"logits".to_owned()));
    let copy = Copy::of(MODEL);
    let file = copy.path("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 4]).unwrap();
    copy.fails_with("cut short");
}

#[rstest]
#[case(LLAMA, "vocab_size", HUGE)]
#[case(LLAMA, "intermediate_size", HUGE)]
#[case(LLAMA, "num_hidden_layers", HUGE)]
#[case(LLAMA, "hidden_size", HUGE)]
#[case(LLAMA, "head_dim", HUGE)]
#[case(MODEL, "vocab_size", HUGE)]
#[case(MODEL, "intermediate_size", HUGE)]
#[case(MODEL, "num_hidden_layers", HUGE)]
#[case(MODEL, "type_vocab_size", HUGE)]
#[case(MODEL, "position_buckets", 1 << 29)]
#[case(MODEL, "num_labels", HUGE)]
fn sizes_beyond_the_file_are_errors_before_they_are_allocated(
    #[case] path: &str,
    #[case] key: &str,
    #[case] value: i64,
) {
    let copy = Copy::of(path);
    copy.edit_json("config.json", |json| {
        json[key] = value.into();
        if key == "num_labels" {
            json["id2label"] = Value::Null;
        }
    });
    let error = copy.misses().unwrap_err();
    assert!(!error.contains("panicked"), "{error}");
}
