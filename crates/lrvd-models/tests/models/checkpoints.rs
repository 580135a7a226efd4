//! Checkpoints as they come: with leftovers, without a head, damaged.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::files::{HostTensor, WeightStore, write_safetensors};
use lrvd_burn::sampling::Pass;
use lrvd_core::noise::NoiseKey;
use lrvd_models::Error;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};
use lrvd_models::llama::{LlamaConfig, LlamaForCausalLm};
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{batch, golden, numbers};

type Tensors = BTreeMap<String, HostTensor>;

const SEPARATE: &str = "llama/gqa_theta500000_left_padded";
const TIED: &str = "llama/mqa_tied_right_padded";
const EMBEDDINGS: &str = "model.embed_tokens.weight";
const NORM: &str = "model.norm.weight";

fn tensors(case: &str) -> Tensors {
    WeightStore::open(golden(case).join("model.safetensors")).unwrap().read_all().unwrap()
}

fn folder(tensors: &Tensors) -> TempDir {
    let dir = TempDir::new().unwrap();
    write_safetensors(dir.path().join("model.safetensors"), tensors, &BTreeMap::new()).unwrap();
    dir
}

fn load(case: &str, dir: &Path) -> Result<LlamaForCausalLm, Error> {
    let config = LlamaConfig::read(&golden(case).join("config.json")).unwrap();
    let store = WeightStore::open(dir)?;
    Ok(LlamaForCausalLm::from_pretrained(&store, &config, &Device::flex(), DType::F32)?.0)
}

fn logits(model: &LlamaForCausalLm) -> Vec<f64> {
    let input = batch(&[&[1, 7, 30], &[12, 99, 3]], DType::F32);
    numbers(model.forward(&input, &Pass::mean()))
}

/// `tensor` with one value replaced.
fn with(tensor: &HostTensor, value: f32) -> HostTensor {
    let mut values = tensor.to_f32().unwrap();
    values[3] = value;
    HostTensor::from_f32(tensor.shape(), &values).unwrap()
}

/// A head that repeats the embeddings, and the frequencies that older files hold, are passed over.
#[test]
fn a_checkpoint_is_loaded_whole_or_its_faults_are_listed() {
    const FREQUENCIES: &str = "model.layers.0.self_attn.rotary_emb.inv_freq";
    const HEAD: &str = "lm_head.weight";
    type Tensor = fn(&Tensors) -> Option<HostTensor>;
    let cases: [(&str, &str, Tensor, &str); 7] = [
        (SEPARATE, FREQUENCIES, |t| Some(t[NORM].clone()), ""),
        (SEPARATE, "more", |t| Some(t[NORM].clone()), "unexpected (1):\n  `more`"),
        (TIED, HEAD, |t| Some(t[EMBEDDINGS].clone()), ""),
        (
            TIED,
            HEAD,
            |t| Some(with(&t[EMBEDDINGS], 1.0)),
            "`tie_word_embeddings` should be false, or `lm_head.weight` the same",
        ),
        (SEPARATE, HEAD, |_| None, "missing (1):\n  `lm_head.weight`"),
        (SEPARATE, NORM, |t| t[NORM].clone().reshape(&[4, 12]).ok(), "mis-shaped (1):\n  `model"),
        (SEPARATE, NORM, |t| Some(with(&t[NORM], f32::NAN)), "  `model.norm.weight`"),
    ];
    for (case, name, change, fault) in cases {
        let mut changed = tensors(case);
        let tensor = change(&changed);
        changed.remove(name);
        changed.extend(tensor.map(|tensor| (name.to_owned(), tensor)));
        match load(case, folder(&changed).path()) {
            Ok(model) => {
                let whole = load(case, &golden(case)).unwrap();
                assert_eq!((logits(&model), ""), (logits(&whole), fault), "{name}");
            }
            Err(error) => {
                assert!(error.to_string().contains(fault) && !fault.is_empty(), "{error}");
            }
        }
    }
}

/// A tensor of a terabyte in a file that takes no room on the disk.
#[test]
fn a_wrong_shape_is_reported_before_its_values_are_read() {
    let mut all = tensors(SEPARATE);
    all.remove(NORM).unwrap();
    let dir = folder(&all);
    let file = |name: &str| dir.path().join(name);
    std::fs::rename(file("model.safetensors"), file("0.safetensors")).unwrap();
    let names = all.keys().map(|name| (name.as_str(), "0.safetensors"));
    let map: BTreeMap<&str, &str> = names.chain([(NORM, "1.safetensors")]).collect();
    let index = json!({"weight_map": map}).to_string();
    std::fs::write(file("model.safetensors.index.json"), index).unwrap();
    let bytes = 1_u64 << 40;
    let header = json!({NORM: {"dtype": "F32", "shape": [bytes / 4], "data_offsets": [0, bytes]}});
    let header = header.to_string();
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    std::fs::write(file("1.safetensors"), &start).unwrap();
    let long = std::fs::File::options().write(true).open(file("1.safetensors")).unwrap();
    long.set_len(start.len() as u64 + bytes).unwrap();
    let text = load(SEPARATE, dir.path()).unwrap_err().to_string();
    assert!(text.contains("mis-shaped (1):\n  `model.norm.weight`: expected"), "{text}");
}

/// A decoder without prefix, as models for embeddings are stored.
#[test]
fn a_bare_decoder_is_the_same_decoder() {
    let case = "qwen/qwen3_last_token";
    let bare = tensors(case).into_iter().map(|(name, tensor)| {
        (name.strip_prefix("model.").map_or(name.clone(), str::to_owned), tensor)
    });
    let bare: Tensors = bare.collect();
    assert!(bare.contains_key("norm.weight") && bare.contains_key("score.weight"));
    let found = LlamaConfig::open_weights(folder(&bare).path()).unwrap();
    let whole = LlamaConfig::open_weights(&golden(case)).unwrap();
    assert_eq!(found.read_all().unwrap(), whole.read_all().unwrap());
}

/// An encoder without prefix and head, with the names of the first BERT files and what pretraining leaves behind.
#[rstest]
#[case::bert("bert/pair", "cls.predictions.bias", "classifier.bias classifier.weight")]
#[case::roberta(
    "roberta/xlm",
    "pooler.dense.bias",
    "classifier.dense.bias classifier.dense.weight classifier.out_proj.bias classifier.out_proj.weight"
)]
#[case::distilbert(
    "distilbert/one_word",
    "vocab_projector.bias",
    "classifier.bias classifier.weight pre_classifier.bias pre_classifier.weight"
)]
#[case::mpnet(
    "mpnet/one_word",
    "pooler.dense.bias",
    "classifier.dense.bias classifier.dense.weight classifier.out_proj.bias classifier.out_proj.weight"
)]
#[case::modernbert(
    "modernbert/windows",
    "decoder.bias",
    "classifier.bias classifier.weight head.dense.weight head.norm.weight"
)]
fn a_bare_encoder_is_the_same_encoder(
    #[case] case: &str,
    #[case] spare: &str,
    #[case] fresh: &str,
) {
    let config = DebertaConfig::read(&golden(case).join("config.json")).unwrap();
    let load = |dir: &Path| {
        let (seed, device) = (NoiseKey::new(1), Device::flex());
        let store = config.open_weights(dir)?;
        DebertaClassifier::from_pretrained(&store, &config, seed, &device, DType::F32)
    };
    let (whole, loaded) = load(&golden(case)).unwrap();
    assert!(loaded.fresh.is_empty());
    let prefix = format!("{}.", config.family.prefix());
    let mut bare = Tensors::new();
    for (name, tensor) in tensors(case) {
        let Some(name) = name.strip_prefix(&prefix) else { continue };
        let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
        bare.insert(name.replace("LayerNorm.bias", "LayerNorm.beta"), tensor);
    }
    let any = bare.values().next().unwrap().clone();
    bare.insert(spare.to_owned(), any.clone());
    bare.insert("embeddings.position_ids".to_owned(), any.clone());
    let (model, loaded) = load(folder(&bare).path()).unwrap();
    let mut found = loaded.fresh;
    found.sort();
    assert_eq!(found.join(" "), fresh);
    let input = batch(&[&[0, 7, 30, 2], &[0, 99 - 1, 2]], DType::F32);
    let of = |model: &DebertaClassifier| numbers(model.encoder.forward(&input, &Pass::mean()));
    assert_eq!(of(&model), of(&whole));
    bare.insert("embeddings.more".to_owned(), any);
    let error = load(folder(&bare).path()).map(drop).unwrap_err().to_string();
    assert!(error.contains(&format!("unexpected (1):\n  `{prefix}embeddings.more`")), "{error}");
}
