#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use lrvd_burn::files::{HostTensor, WeightStore};
use lrvd_burn::peft::{PeftAdapter, PeftConfig};
use lrvd_models::deberta::Pooling;
use prost::Message as _;

use super::schema::{DataType, TensorProto};
use super::*;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden").join(name)
}

/// A reference model, with its adapter if it has one.
struct Reference {
    folder: PathBuf,
    architecture: Architecture,
    store: WeightStore,
    adapter: PeftAdapter,
}

impl Reference {
    fn new(name: &str) -> Self {
        let folder = golden(name);
        let base = if folder.join("base").is_dir() { folder.join("base") } else { folder.clone() };
        let architecture = Architecture::read(&base).unwrap();
        let store = architecture.open_weights(&base).unwrap();
        let adapter = match folder.join("adapter") {
            own if own.is_dir() => PeftAdapter::read(own).unwrap().to_lora().unwrap(),
            _ => PeftAdapter {
                config: PeftConfig::default(),
                modules: BTreeMap::new(),
                saved: BTreeMap::new(),
                base: BTreeMap::new(),
                ignored: Vec::new(),
            },
        };
        Self { folder, architecture, store, adapter }
    }

    fn width(&self) -> usize {
        let Architecture::Deberta(config) = &self.architecture else { panic!("an encoder") };
        config.num_labels()
    }

    fn plan(&self, pooling: Pooling) -> Plan<'_> {
        Plan::new(&self.architecture, pooling, &self.store, &self.adapter).unwrap()
    }

    fn file(&self, plan: &Plan<'_>, pooling: Pooling, link: Link) -> OnnxFile {
        self.stored(OnnxPrecision::Single, plan, pooling, link)
    }

    fn stored(
        &self,
        precision: OnnxPrecision,
        plan: &Plan<'_>,
        pooling: Pooling,
        link: Link,
    ) -> OnnxFile {
        let head = HeadShape { pooling, width: self.width(), link };
        let facts = [("task", json!("test")), ("max_length", json!(24))].into();
        OnnxFile::new(&self.architecture, head, precision, plan, &facts).unwrap()
    }

    fn tensor(&self, file: &str, name: &str) -> HostTensor {
        WeightStore::open(self.folder.join(file)).unwrap().read(name).unwrap()
    }

    /// Token ids and segment ids of every row, without padding, which is on the right.
    fn rows(&self) -> Vec<(Vec<u32>, Vec<u32>)> {
        let read = |name| self.tensor("inputs.safetensors", name);
        let (ids, mask) = (read("input_ids"), read("attention_mask").to_i64().unwrap());
        let length = ids.shape()[1];
        let inputs = WeightStore::open(self.folder.join("inputs.safetensors")).unwrap();
        let types = if inputs.contains("token_type_ids") {
            read("token_type_ids").to_i64().unwrap()
        } else {
            vec![0; mask.len()]
        };
        let row = |(row, mask): (usize, &[i64])| {
            let real = mask.iter().filter(|&&own| own == 1).count();
            assert!(mask[..real].iter().all(|&own| own == 1), "padding on the right");
            let of = |all: &[i64]| {
                all[row * length..][..real].iter().map(|&id| id as u32).collect::<Vec<_>>()
            };
            (of(&ids.to_i64().unwrap()), of(&types))
        };
        mask.chunks(length).enumerate().map(row).collect()
    }

    fn run(&self, file: &Path) -> BTreeMap<String, Vec<f32>> {
        let rows = self.rows();
        let rows: Vec<(&[u32], &[u32])> =
            rows.iter().map(|(ids, types)| (&**ids, &**types)).collect();
        let Architecture::Deberta(config) = &self.architecture else { panic!("an encoder") };
        let pad = config.pad_token_id.unwrap_or(0) as u32;
        evaluate::run(file, &rows, pad, &Device::flex()).unwrap()
    }
}

fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        let difference = (f64::from(*found) - expected).abs();
        assert!(difference < tolerance, "{what}: {found} for {expected}");
    }
}

/// Every kind of encoder, and adapters of both kinds; the logits are those of transformers and PEFT in double precision.
const REFERENCES: [&str; 21] = [
    "bert/pair",
    "roberta/right_padded",
    "roberta/xlm",
    "deberta/v2_conv_layer",
    "deberta/v2_no_share_att_key",
    "deberta/v3_base_style",
    "deberta/v3_buckets256",
    "deberta/v3_len1",
    "deberta/v3_longer_than_max_position",
    "deberta/v3_regression",
    "deberta/v3_short_tiny_embeddings",
    "distilbert/one_word",
    "modernbert/windows",
    "mpnet/one_word",
    "peft/bert_lora",
    "peft/distilbert_lora",
    "peft/modernbert_lora",
    "peft/mpnet_lora",
    "peft/roberta_lora",
    "peft/deberta_adalora",
    "peft/deberta_lora_rank_alpha_pattern",
];

#[test]
fn the_operators_of_a_file_give_the_logits_of_transformers() {
    for name in REFERENCES {
        let reference = Reference::new(name);
        let plan = reference.plan(Pooling::First);
        let link = Link::Softmax { temperature: 1.25 };
        let file = reference.file(&plan, Pooling::First, link);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        assert!(file.write(&plan, &path).unwrap(), "{name}: in one file");
        let found = reference.run(&path);
        let expected = reference.tensor("expected.safetensors", "logits").to_f64().unwrap();
        assert_close(&found["logits"], &expected, 2e-5, name);
        let width = reference.width();
        let softmax = |row: &[f64]| {
            let all: Vec<f64> = row.iter().map(|logit| (logit / 1.25).exp()).collect();
            let sum: f64 = all.iter().sum();
            all.iter().map(|p| p / sum).collect::<Vec<_>>()
        };
        let expected: Vec<f64> = expected.chunks(width).flat_map(softmax).collect();
        assert_close(&found["probabilities"], &expected, 1e-5, name);
    }
}

/// A ModernBERT's pooler may read the mean.
#[test]
fn a_pooler_reads_the_mean() {
    let reference = Reference::new("modernbert/mean_published_keys");
    let plan = reference.plan(Pooling::PooledMean);
    let file = reference.file(&plan, Pooling::PooledMean, Link::Identity);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    file.write(&plan, &path).unwrap();
    let expected = reference.tensor("expected.safetensors", "logits").to_f64().unwrap();
    assert_close(&reference.run(&path)["logits"], &expected, 2e-5, "logits");
}

/// The mean over the tokens is that of transformers; the head on it is multiplied out here.
#[test]
fn a_head_on_the_mean_reads_no_padding() {
    for name in [
        "bert/pair",
        "distilbert/one_word",
        "modernbert/windows",
        "mpnet/one_word",
        "roberta/right_padded",
    ] {
        let reference = Reference::new(name);
        let plan = reference.plan(Pooling::Mean);
        let link = Link::Sigmoid { temperature: 0.8 };
        let file = reference.file(&plan, Pooling::Mean, link);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        file.write(&plan, &path).unwrap();
        let found = reference.run(&path);
        let [_, classifier] = reference.architecture.head();
        let of = |part: &str| plan.tensor(&format!("{classifier}.{part}")).unwrap();
        let (weight, bias) = (of("weight"), of("bias").to_f64().unwrap());
        let d = weight.shape()[1];
        let weight = weight.to_f64().unwrap();
        let mean = reference.tensor("expected.safetensors", "mean").to_f64().unwrap();
        let logit = |mean: &[f64], row: usize| {
            let products = mean.iter().zip(&weight[row * d..(row + 1) * d]).map(|(m, w)| m * w);
            products.sum::<f64>() + bias[row]
        };
        let expected: Vec<f64> = mean
            .chunks(d)
            .flat_map(|mean| (0..bias.len()).map(|row| logit(mean, row)).collect::<Vec<_>>())
            .collect();
        assert_close(&found["logits"], &expected, 2e-5, name);
        let expected: Vec<f64> =
            expected.iter().map(|logit| 1.0 / (1.0 + (-logit / 0.8).exp())).collect();
        assert_close(&found["probabilities"], &expected, 1e-5, name);
    }
}

fn model(file: &Path) -> ModelProto {
    ModelProto::decode(&*std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn every_input_of_a_node_is_defined_before_it_and_every_tensor_has_its_bytes() {
    let all = REFERENCES
        .into_iter()
        .flat_map(|name| [(name, OnnxPrecision::Single), (name, OnnxPrecision::Int8)]);
    for (name, precision) in all {
        let reference = Reference::new(name);
        let plan = reference.plan(Pooling::First);
        let file = reference.stored(precision, &plan, Pooling::First, Link::Identity);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        file.write(&plan, &path).unwrap();
        let model = model(&path);
        assert_eq!((model.ir_version, model.opset_import[0].version), (8, 17));
        let facts: Vec<_> =
            model.metadata_props.iter().map(|own| (&*own.key, &*own.value)).collect();
        assert_eq!(facts, [("lrvd.max_length", "24"), ("lrvd.task", "test")]);
        let graph = model.graph.unwrap();
        let inputs: Vec<&str> = graph.input.iter().map(|input| &*input.name).collect();
        let segments = ["bert/pair", "peft/bert_lora"].contains(&name);
        let expected: &[&str] = &["input_ids", "attention_mask", "token_type_ids"];
        assert_eq!(inputs, expected[..2 + usize::from(segments)], "{name}");
        let outputs: Vec<&str> = graph.output.iter().map(|output| &*output.name).collect();
        assert_eq!(outputs, ["logits"], "a number has no probabilities");
        let mut defined: BTreeSet<&str> = inputs.into_iter().collect();
        for TensorProto { dims, data_type, name, raw_data, .. } in &graph.initializer {
            let size = match DataType::try_from(*data_type).unwrap() {
                DataType::Int64 => 8,
                DataType::Int8 => 1,
                _ => 4,
            };
            let expected = size * dims.iter().product::<i64>() as usize;
            assert_eq!(raw_data.as_ref().unwrap().len(), expected, "{name} {dims:?}");
            assert!(defined.insert(name), "{name} twice");
        }
        for node in &graph.node {
            let missing = node.input.iter().find(|input| !defined.contains(input.as_str()));
            assert_eq!(missing, None, "{name}, {}", node.name);
            for output in &node.output {
                assert!(defined.insert(output), "{name}, {output} twice");
            }
        }
        assert!(outputs.iter().all(|output| defined.contains(output)));
    }
}

#[test]
fn weights_of_a_file_above_the_limit_are_beside_it() {
    let reference = Reference::new("deberta/v3_base_style");
    let plan = reference.plan(Pooling::First);
    let file = reference.file(&plan, Pooling::First, Link::Identity);
    let folder = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole.onnx", "cut.onnx"].map(|name| folder.path().join(name));
    assert!(file.write(&plan, &whole).unwrap());
    assert!(!file.write_within(20_000, &plan, &cut).unwrap());
    let tensors = model(&cut).graph.unwrap().initializer;
    let beside: Vec<_> = tensors.iter().filter(|own| own.data_location == Some(1)).collect();
    assert!(!beside.is_empty() && beside.iter().all(|own| own.raw_data.is_none()));
    assert_eq!(beside[0].external_data[0].value, "cut.onnx_data");
    assert_eq!(reference.run(&whole), reference.run(&cut));
}

/// Rounding to 8 bits moves logits, by little: by less than a tenth of the largest.
#[test]
fn a_file_in_8_bits_answers_nearly_alike() {
    for name in ["bert/pair", "deberta/v3_base_style", "mpnet/one_word"] {
        let reference = Reference::new(name);
        let plan = reference.plan(Pooling::First);
        let file = reference.stored(OnnxPrecision::Int8, &plan, Pooling::First, Link::Identity);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        file.write(&plan, &path).unwrap();
        let found = reference.run(&path).remove("logits").unwrap();
        let expected = reference.tensor("expected.safetensors", "logits").to_f64().unwrap();
        let largest = expected.iter().fold(0.0, |most: f64, logit| most.max(logit.abs()));
        assert_close(&found, &expected, 0.1 * largest, name);
        let is_off = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() > 1e-4;
        assert!(found.iter().zip(&expected).any(is_off), "{name}: nothing was rounded");
    }
}

#[test]
fn rows_in_bytes_are_off_by_half_a_step() {
    let matrix = HostTensor::from_f32(&[3, 2], &[0.63, -0.314, 0.0, 0.0, -1.26, 0.019]).unwrap();
    let bytes = rounded(&matrix).unwrap();
    let steps = steps(&matrix).unwrap();
    assert_eq!(
        bytes.bytes().iter().map(|byte| byte.cast_signed()).collect::<Vec<_>>(),
        [63, -31, 0, 0, -63, 1]
    );
    let expected = [0.01, 0.0, 0.02];
    assert!(steps.iter().zip(expected).all(|(found, step)| (found - step).abs() < 1e-8));
}

#[test]
fn a_weight_of_another_shape_is_named() {
    let reference = Reference::new("bert/pair");
    let plan = reference.plan(Pooling::First);
    let head = HeadShape { pooling: Pooling::First, width: 7, link: Link::Identity };
    let error = OnnxFile::new(
        &reference.architecture,
        head,
        OnnxPrecision::Single,
        &plan,
        &BTreeMap::new(),
    );
    let error = error.err().unwrap().to_string();
    assert_eq!(error, "`classifier.weight` has the shape [3, 32], expected [7, 32]");
}
