//! Llama checkpoints as they come: sharded, in half precision, with leftovers, damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use lrvd_burn::files::{HostDType, HostTensor, LoadReport, WeightStore, write_safetensors};
use lrvd_burn::host::values;
use lrvd_burn::sampling::Pass;
use lrvd_models::Error;
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, batch};

type Tensors = BTreeMap<String, HostTensor>;

const SEPARATE: &str = "gqa_theta500000_left_padded";
const TIED: &str = "mqa_tied_right_padded";

fn golden(case: &str) -> PathBuf {
    support::golden("llama").join(case)
}

fn tensors(case: &str) -> Tensors {
    let file = WeightStore::open(golden(case).join("model.safetensors")).unwrap();
    file.names().map(|name| (name.to_owned(), file.read(name).unwrap())).collect()
}

fn config(case: &str) -> LlamaConfig {
    LlamaConfig::read(&golden(case).join("config.json")).unwrap()
}

/// A folder with `tensors` in `shards` files and an index, or in one file.
fn folder(tensors: &Tensors, shards: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    let none = BTreeMap::new();
    if shards == 1 {
        write_safetensors(dir.path().join("model.safetensors"), tensors, &none).unwrap();
        return dir;
    }
    let mut parts = vec![Tensors::new(); shards];
    let mut map = serde_json::Map::new();
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        parts[i % shards].insert(name.clone(), tensor.clone());
        map.insert(name.clone(), Value::from(format!("part-{}.safetensors", i % shards)));
    }
    for (i, part) in parts.iter().enumerate() {
        let file = dir.path().join(format!("part-{i}.safetensors"));
        write_safetensors(file, part, &none).unwrap();
    }
    let index = json!({"metadata": {"total_size": 0}, "weight_map": map});
    std::fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    dir
}

fn load(case: &str, dir: &Path, dtype: DType) -> Result<LlamaForCausalLm, Error> {
    let store = WeightStore::open(dir)?;
    Ok(LlamaForCausalLm::from_pretrained(&store, &config(case), &Device::flex(), dtype)?.0)
}

fn logits(model: &LlamaForCausalLm) -> Vec<f64> {
    let input = batch(&[&[1, 7, 30], &[12, 99, 3]], model.model().compute_dtype());
    values(model.forward(&input, &Pass::mean()))
}

/// The tensors rounded to 16 bits.
fn halved(tensors: &Tensors, dtype: HostDType) -> Tensors {
    let half = |tensor: &HostTensor| {
        let bytes = tensor.to_f32().unwrap().into_iter().flat_map(|value| match dtype {
            HostDType::BF16 => half::bf16::from_f32(value).to_le_bytes(),
            _ => half::f16::from_f32(value).to_le_bytes(),
        });
        HostTensor::new(dtype, tensor.shape().to_vec(), bytes.collect()).unwrap()
    };
    tensors.iter().map(|(name, tensor)| (name.clone(), half(tensor))).collect()
}

/// What the error of a load reports.
#[track_caller]
fn report(loaded: Result<LlamaForCausalLm, Error>) -> LoadReport {
    match loaded {
        Err(Error::Burn(lrvd_burn::Error::Load(report))) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shards_give_the_model_of_one_file() {
    for case in [SEPARATE, TIED] {
        let tensors = tensors(case);
        let one = load(case, folder(&tensors, 1).path(), DType::F64).unwrap();
        let three = load(case, folder(&tensors, 3).path(), DType::F64).unwrap();
        assert_eq!(logits(&one), logits(&three), "{case}");
    }
}

#[test]
fn half_precision_files_are_exact_in_any_wider_type() {
    for dtype in [HostDType::BF16, HostDType::F16] {
        let narrow = halved(&tensors(SEPARATE), dtype);
        let wide: Tensors = narrow
            .iter()
            .map(|(name, t)| {
                let wide = HostTensor::from_f32(t.shape(), &t.to_f32().unwrap()).unwrap();
                (name.clone(), wide)
            })
            .collect();
        let (narrow, wide) = (folder(&narrow, 2), folder(&wide, 1));
        let same = |precision| {
            let narrow = logits(&load(SEPARATE, narrow.path(), precision).unwrap());
            let wide = logits(&load(SEPARATE, wide.path(), precision).unwrap());
            assert_eq!(narrow, wide, "{dtype:?} as {precision:?}");
            narrow
        };
        let exact = same(DType::F64);
        let single = same(DType::F32);
        // Stored as they are, only the base products round.
        let stored = same(if dtype == HostDType::BF16 { DType::BF16 } else { DType::F16 });
        let worst =
            |found: &[f64]| exact.iter().zip(found).map(|(e, f)| (e - f).abs()).fold(0.0, f64::max);
        assert!(worst(&single) < 1e-4 && worst(&stored) < 0.1, "{dtype:?}: {}", worst(&stored));
        assert!(worst(&stored) > 1e-4, "{dtype:?}: nothing was rounded");
    }
}

#[test]
fn known_leftovers_are_passed_over_and_others_are_not() {
    let mut separate = tensors(SEPARATE);
    let frequencies = HostTensor::from_f32(&[4], &[1.0, 0.1, 0.01, 0.001]).unwrap();
    separate.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), frequencies.clone());
    load(SEPARATE, folder(&separate, 1).path(), DType::F32).unwrap();
    separate.insert("model.layers.0.self_attn.q_proj.bias".to_owned(), frequencies);
    let unexpected = report(load(SEPARATE, folder(&separate, 1).path(), DType::F32)).unexpected;
    assert_eq!(unexpected, ["model.layers.0.self_attn.q_proj.bias"]);
    // A tied model whose file holds the head, too: the same one is fine, another one is not.
    let mut tied = tensors(TIED);
    let embeddings = tied["model.embed_tokens.weight"].clone();
    tied.insert("lm_head.weight".to_owned(), embeddings.clone());
    let with_head = load(TIED, folder(&tied, 2).path(), DType::F32).unwrap();
    let without = load(TIED, &golden(TIED), DType::F32).unwrap();
    assert_eq!(logits(&with_head), logits(&without));
    let mut values = embeddings.to_f32().unwrap();
    values[3] += 1.0;
    let other = HostTensor::from_f32(embeddings.shape(), &values).unwrap();
    tied.insert("lm_head.weight".to_owned(), other);
    assert_eq!(
        report(load(TIED, folder(&tied, 1).path(), DType::F32)).unexpected,
        ["lm_head.weight"]
    );
}

#[test]
fn damaged_checkpoints_are_reported_whole() {
    let mut damaged = tensors(SEPARATE);
    damaged.remove("lm_head.weight");
    damaged.remove("model.layers.1.mlp.up_proj.weight");
    let norm = damaged["model.norm.weight"].clone();
    let mut values = norm.to_f32().unwrap();
    values[2] = f32::NAN;
    let broken = HostTensor::from_f32(norm.shape(), &values).unwrap();
    damaged.insert("model.norm.weight".to_owned(), broken);
    let queries = damaged["model.layers.0.self_attn.q_proj.weight"].transpose2().unwrap();
    let queries = queries.reshape(&[24, 96]).unwrap();
    damaged.insert("model.layers.0.self_attn.q_proj.weight".to_owned(), queries);
    let report = report(load(SEPARATE, folder(&damaged, 1).path(), DType::BF16));
    assert_eq!(report.missing, ["model.layers.1.mlp.up_proj.weight", "lm_head.weight"]);
    assert_eq!(report.mis_shaped[0].name, "model.layers.0.self_attn.q_proj.weight");
    assert_eq!(report.non_finite[0].name, "model.norm.weight");
    // A shard that ends early, and one that is not there.
    let dir = folder(&tensors(SEPARATE), 2);
    let shard = dir.path().join("part-1.safetensors");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 8]).unwrap();
    let error = load(SEPARATE, dir.path(), DType::F32).unwrap_err().to_string();
    assert!(error.contains("is cut short"), "{error}");
    std::fs::remove_file(&shard).unwrap();
    let error = load(SEPARATE, dir.path(), DType::F32).unwrap_err().to_string();
    assert!(error.contains("names the shard `part-1.safetensors`, which is missing"), "{error}");
}

#[test]
fn a_wrong_shape_is_reported_before_its_values_are_read() {
    const NORM: &str = "model.norm.weight";
    let mut all = tensors(SEPARATE);
    all.remove(NORM).unwrap();
    let dir = folder(&all, 1);
    std::fs::rename(dir.path().join("model.safetensors"), dir.path().join("0.safetensors"))
        .unwrap();
    let map: BTreeMap<&str, &str> = all
        .keys()
        .map(|name| (name.as_str(), "0.safetensors"))
        .chain([(NORM, "1.safetensors")])
        .collect();
    let index = json!({"weight_map": map}).to_string();
    std::fs::write(dir.path().join("model.safetensors.index.json"), index).unwrap();
    // A tensor of a terabyte in a file that takes no room on the disk.
    let bytes = 1_u64 << 40;
    let header = json!({NORM: {"dtype": "F32", "shape": [bytes / 4], "data_offsets": [0, bytes]}});
    let header = header.to_string();
    let path = dir.path().join("1.safetensors");
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    std::fs::write(&path, &start).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(start.len() as u64 + bytes).unwrap();
    let text = load(SEPARATE, dir.path(), DType::F32).unwrap_err().to_string();
    assert!(text.contains("mis-shaped (1):\n  `model.norm.weight`: expected"), "{text}");
}
