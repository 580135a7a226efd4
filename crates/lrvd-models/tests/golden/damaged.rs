//! Copies of folders with one thing changed: what was changed is a miss, and nothing else is.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::files::{HostDType, HostTensor, WeightStore, write_safetensors};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::case::Values;

const EXPECTED: &str = "expected.safetensors";
const ADAPTER: &str = "adapter/adapter_model.safetensors";
const RUN: &str = "train/deberta_lora";
const ALLOCATED_RUN: &str = "train/deberta_adalora";
const MODEL: &str = "deberta/v3_len2";
const LLAMA: &str = "llama/mha_right_padded";
const PEFT: &str = "peft/llama_lora_r4";
const FORWARD: &str = "bayes/forward_r1_in5_out3_n1";
const MONTE_CARLO: &str = "bayes/variance_monte_carlo";
const BPE: &str = "tokenizers/byte_level_bpe";
/// A size of almost 2³¹.
const HUGE: i32 = i32::MAX - 1;

enum Change {
    /// Replaces the entry of `expected.json` at a pointer.
    Says(&'static str, Value),
    /// Replaces a size of the model.
    Size(&'static str, i32),
    /// Adds to the last value of a tensor of a file.
    Add(&'static str, &'static str, f64),
    /// Changes the tensors of a file.
    Tensors(&'static str, fn(&mut BTreeMap<String, HostTensor>)),
}
use Change::{Add, Says, Size, Tensors};

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

fn edit_json(file: &Path, pointer: &str, value: Value) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    *json.pointer_mut(pointer).unwrap() = value;
    std::fs::write(file, json.to_string()).unwrap();
}

/// The names of the checks that miss, one space between them, or the error.
#[rstest]
// One recorded tensor of every kind.
#[case(MODEL, Add(EXPECTED, "hidden_states.1", 1e-3), "hidden_states.1")]
#[case("deberta/relative_buckets", Add(EXPECTED, "bucket.b16_m64", 1.0), "bucket.b16_m64")]
#[case(LLAMA, Add(EXPECTED, "answer_logits", 1e-3), "answer_logits")]
#[case(PEFT, Add(EXPECTED, "answer_logits", f64::NAN), "answer_logits")]
#[case(PEFT, Add(EXPECTED, "merged.lm_head.weight", 1e-3), "merged.lm_head.weight")]
#[case(RUN, Add(EXPECTED, "grad_norm", 1e-2), "grad_norm")]
#[case(ALLOCATED_RUN, Add(EXPECTED, "nonzero_E", 1.0), "nonzero_E")]
#[case(FORWARD, Add(EXPECTED, "additive.m_y", 1e-3), "additive.m_y")]
#[case("bayes/kl_grid", Add(EXPECTED, "extreme.kl", 1e-3), "extreme.kl")]
#[case("bayes/gauge", Add(EXPECTED, "identity.D_transformed", 1e-3), "identity.D_transformed")]
#[case("bayes/energy", Add(EXPECTED, "random_r6.F_order", 1e-3), "random_r6.F_order")]
#[case("bayes/calibration", Add(EXPECTED, "argmax_tie.bin_count", 1.0), "argmax_tie.bin_count")]
#[case(MONTE_CARLO, Add(EXPECTED, "additive.formula.v_paper", 1e-4), "additive.formula.v_paper")]
// The third row has five of seventeen tokens: padding is no part of the contract.
#[case(LLAMA, Add(EXPECTED, "logits", 1.0), "")]
#[case(MODEL, Tensors(EXPECTED, |t| *t.get_mut("loss").unwrap() = t["logits"].clone()), "loss")]
#[case(MODEL, Tensors(EXPECTED, |t| drop(t.insert("more".to_owned(), t["loss"].clone()))), "more")]
#[case(MODEL, Tensors(EXPECTED, |t| drop(t.remove("pooled"))), "not recorded: `pooled`")]
// Numbers of the description.
#[case("bayes/gauge", Says("/items/0/booleans/is_orthogonal", json!(0)), "identity.is_orthogonal")]
#[case("bayes/energy", Says("/items/0/auc_svd", json!(0.5)), "random_r6.auc_svd")]
#[case("bayes/calibration", Says("/items/0/nll", json!(3.5)), "random_binary.nll")]
#[case(BPE, Says("/items/3/ids", json!([1, 1, 2])), "tokenizer.json: empty.ids")]
#[case(BPE, Says("/batches/0/type_ids/0/0", json!(1)), "tokenizer.json: batch 0.type_ids")]
// What is not understood.
#[case(MODEL, Says("/kind", json!("mamba")), "unknown kind `mamba`")]
#[case(MODEL, Says("/tolerances", json!({})), "no entry `tolerances/hidden_states.0/atol_f32`")]
#[case(RUN, Says("/hyperparameters/dropout", json!(0.1)), "`dropout` = 0.1")]
#[case(RUN, Says("/hyperparameters/eps", Value::Null), "no entry `hyperparameters/eps`")]
#[case(BPE, Says("/items/0", json!({"name": "a", "text": "a", "new": 1})), "unknown field `new`")]
#[case(BPE, Says("/items/0/truncation", json!("sideways")), "`truncation` = \"sideways\"")]
// Another adapter, and inputs and sizes that do not fit the model.
#[case(PEFT, Tensors(ADAPTER, |t| drop(t.pop_last())), "lora_")]
#[case(MODEL, Add("inputs.safetensors", "input_ids", 1e6), "panicked")]
#[case(MODEL, Add("inputs.safetensors", "attention_mask", 1.0), "`attention_mask` is not 0 or 1")]
#[case(MODEL, Add("inputs.safetensors", "labels", 3.0), "of 3 classes")]
#[case(LLAMA, Size("vocab_size", HUGE), "model.embed_tokens.weight")]
#[case(LLAMA, Size("num_hidden_layers", HUGE), "num_hidden_layers")]
#[case(MODEL, Size("position_buckets", 1 << 29), "rel_embeddings")]
fn what_was_changed_misses(#[case] path: &str, #[case] change: Change, #[case] expected: &str) {
    let dir = TempDir::new().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(path);
    copy(&from, dir.path());
    let edit_tensors = |file: &str, edit: &dyn Fn(&mut BTreeMap<String, HostTensor>)| {
        let file = dir.path().join(file);
        let mut tensors = WeightStore::open(&file).unwrap().read_all().unwrap();
        edit(&mut tensors);
        write_safetensors(&file, &tensors, &BTreeMap::new()).unwrap();
    };
    match change {
        Says(pointer, value) => edit_json(&dir.path().join("expected.json"), pointer, value),
        Size(key, size) => {
            edit_json(&dir.path().join("config.json"), &format!("/{key}"), json!(size));
        }
        Tensors(file, edit) => edit_tensors(file, &edit),
        Add(file, name, added) => edit_tensors(file, &|tensors| {
            let tensor = tensors.get_mut(name).unwrap();
            let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
            let mut values = Values::host(tensor).unwrap().values;
            *values.last_mut().unwrap() += added;
            let bytes = |v: &f64| match dtype {
                HostDType::F64 => v.to_le_bytes().to_vec(),
                HostDType::F32 => (*v as f32).to_le_bytes().to_vec(),
                HostDType::I64 => (*v as i64).to_le_bytes().to_vec(),
                _ => vec![*v as u8],
            };
            let bytes = values.iter().flat_map(bytes).collect();
            *tensor = HostTensor::new(dtype, shape, bytes).unwrap();
        }),
    }
    match Outcome::of(dir.path()).result {
        Ok((_, checks)) => {
            let missed = checks.iter().filter(|check| !check.holds());
            let mut names: Vec<&str> = missed.map(|check| &*check.name).collect();
            names.dedup();
            assert_eq!(names.join(" "), expected);
        }
        Err(error) => assert!(format!("{error:#}").contains(expected), "{error:#}"),
    }
}
