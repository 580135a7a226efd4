#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::CONFIG_FILE;
use crate::error::Error;
use crate::files::{HostTensor, LoadReport, TensorFile, WeightStore, write_safetensors};
use crate::peft::PeftAdapter;

const DEBERTA: [&str; 6] = [
    "deberta_adalora",
    "deberta_adalora_reallocated",
    "deberta_lora_r4",
    "deberta_lora_rank_alpha_pattern",
    "deberta_lora_regex_pattern",
    "deberta_lora_rslora",
];

fn golden(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/peft").join(case)
}

fn read(case: &str) -> PeftAdapter {
    PeftAdapter::read(golden(case).join("adapter")).unwrap()
}

#[test]
fn whole_modules_are_read_under_the_models_names() {
    let adapter = read("deberta_lora_rslora");
    let names: Vec<_> = adapter.saved.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["classifier.bias", "classifier.weight", "pooler.dense.bias", "pooler.dense.weight"]
    );
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

#[test]
fn every_fixture_fits_its_own_model() {
    for case in DEBERTA {
        let adapter = read(case);
        let report = adapter.check_against(&layers(case)).unwrap();
        assert!(report.applied.len() >= 2 * adapter.modules.len(), "{case}");
        let base = WeightStore::open(golden(case).join("base")).unwrap();
        let parameters: Vec<_> =
            base.names().map(|name| (name, base.shape(name).unwrap())).collect();
        assert_eq!(adapter.check_saved(&parameters).unwrap().applied.len(), adapter.saved.len());
    }
}

fn report(error: Error) -> LoadReport {
    match error {
        Error::Load(report) => *report,
        other => panic!("{other}"),
    }
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
    let report = report(adapter.check_against(&layers).unwrap_err());
    assert_eq!(report.missing.len(), 2);
    assert!(report.missing[0].contains("layer.0.attention.self.key_proj.lora_A.weight"));
    assert_eq!(report.unexpected.len(), 2);
    assert!(report.unexpected[0].contains("layer.1.attention.self.key_proj"));
    assert_eq!((report.mis_shaped[0].expected[1], report.mis_shaped[0].found[1]), (65, 64));
}

#[test]
fn a_head_that_is_not_there_is_missing() {
    let mut adapter = read("deberta_lora_r4");
    adapter.saved.remove("classifier.bias").unwrap();
    let parameters =
        [("classifier.weight", vec![2, 32]), ("classifier.bias", vec![2]), ("x.weight", vec![1])];
    let report = report(adapter.check_saved(&parameters).unwrap_err());
    assert_eq!(report.missing, ["base_model.model.classifier.bias"]);
}

/// A copy of a fixture's folder with its tensors edited.
fn edited(
    case: &str,
    edit: impl FnOnce(&mut BTreeMap<String, HostTensor>),
) -> Result<PeftAdapter, Error> {
    let source = golden(case).join("adapter");
    let file = TensorFile::open(source.join("adapter_model.safetensors")).unwrap();
    let mut tensors = file.read_all().unwrap();
    edit(&mut tensors);
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(source.join("adapter_config.json"), dir.path().join("adapter_config.json"))
        .unwrap();
    write_safetensors(dir.path().join("adapter_model.safetensors"), &tensors, &BTreeMap::new())
        .unwrap();
    PeftAdapter::read(dir.path())
}

const QUERY: &str = "base_model.model.deberta.encoder.layer.0.attention.self.query_proj";

#[test]
fn every_fault_of_a_file_is_listed() {
    let error = edited("deberta_lora_r4", |tensors| {
        tensors.remove(&format!("{QUERY}.lora_B.weight")).unwrap();
        let key = QUERY.replace("query", "key");
        let wide = HostTensor::from_f32(&[5, 32], &[0.5; 160]).unwrap();
        tensors.insert(format!("{key}.lora_A.weight"), wide);
        let value = QUERY.replace("query", "value");
        let mut values = vec![0.5; 128];
        values[7] = f32::INFINITY;
        let infinite = HostTensor::from_f32(&[32, 4], &values).unwrap();
        tensors.insert(format!("{value}.lora_B.weight"), infinite);
        let small = HostTensor::from_f32(&[4, 1], &[0.0; 4]).unwrap();
        // Not targeted, unknown, and a second name for the same tensor.
        tensors.insert("base_model.model.deberta.pooler.lora_A.weight".into(), small.clone());
        tensors.insert(format!("{QUERY}.lora_magnitude_vector"), small.clone());
        tensors.insert(format!("{QUERY}.lora_A.default.weight"), small);
    });
    let report = report(error.unwrap_err());
    assert_eq!(report.missing, [format!("{QUERY}.lora_B.weight")]);
    assert_eq!(report.mis_shaped.len(), 1, "{report}");
    assert_eq!(report.mis_shaped[0].expected, [4, 32]);
    assert_eq!((report.non_finite.len(), report.non_finite[0].index), (1, 7));
    assert_eq!(report.unexpected.len(), 3, "{report}");
}

/// The width of a factor that lies on its side is the other one.
#[test]
fn shapes_in_messages_are_those_that_are_meant() {
    let error = edited("deberta_lora_r4", |tensors| {
        for factor in ["lora_A", "lora_B"] {
            let tensor = tensors.get_mut(&format!("{QUERY}.{factor}.weight")).unwrap();
            *tensor = tensor.transpose2().unwrap();
        }
        let flat = tensors.get_mut(&format!("{}.lora_A.weight", QUERY.replace("query", "key")));
        let flat = flat.unwrap();
        *flat = flat.clone().reshape(&[4 * 32]).unwrap();
    });
    let report = report(error.unwrap_err());
    let shapes: Vec<_> =
        report.mis_shaped.iter().map(|m| (&m.expected[..], &m.found[..])).collect();
    let expected: [(&[usize], &[usize]); 3] =
        [(&[4, 32], &[128]), (&[4, 32], &[32, 4]), (&[32, 4], &[4, 32])];
    assert_eq!(shapes, expected);
    let text = report.to_string();
    assert!(
        !text.contains("applied") && text.contains("expected [4, 32], found [32, 4]"),
        "{text}"
    );
}

#[test]
fn known_extras_are_ignored_and_reported() {
    let adapter = edited("deberta_lora_r4", |tensors| {
        let extra = HostTensor::from_f32(&[2, 2], &[1.0; 4]).unwrap();
        tensors.insert("base_model.model.deberta.embed_tokens.weight".into(), extra.clone());
        tensors.insert(format!("{QUERY}.base_layer.weight"), extra);
        for factor in ["lora_A", "lora_B"] {
            let tensor = tensors.remove(&format!("{QUERY}.{factor}.weight")).unwrap();
            tensors.insert(format!("{QUERY}.{factor}.default.weight"), tensor);
        }
    });
    let adapter = adapter.unwrap();
    assert_eq!(adapter.ignored.len(), 2);
    assert_eq!(adapter.ignored[0].shape, [2, 2]);
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
    let report = report(error.unwrap_err());
    assert_eq!(report.missing.len(), 4, "{report}");
}

#[test]
fn folders_without_an_adapter() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(PeftAdapter::read(dir.path()), Err(Error::Io { action: "read", .. })));
    let config = golden("deberta_lora_r4").join("adapter/adapter_config.json");
    std::fs::copy(config, dir.path().join("adapter_config.json")).unwrap();
    std::fs::write(dir.path().join("adapter_model.bin"), "x").unwrap();
    let text = PeftAdapter::read(dir.path()).unwrap_err().to_string();
    assert!(text.contains("adapter_model.bin"), "{text}");
}

#[test]
fn a_pattern_that_cannot_be_used_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"peft_type": "LORA", "target_modules": ["q"], "alpha_pattern": {"(?=q)": 2}}"#;
    std::fs::write(dir.path().join(CONFIG_FILE), config).unwrap();
    let error = PeftAdapter::read(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains(CONFIG_FILE) && error.contains("`alpha_pattern` has the pattern"),
        "{error}"
    );
}
