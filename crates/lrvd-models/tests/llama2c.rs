//! The shipped stories260K: what it says, and that its folder is what the conversion makes of the original files.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use lrvd_burn::files::{HostTensor, WeightStore};
use lrvd_burn::host::values;
use lrvd_burn::sampling::Pass;
use lrvd_models::TokenBatch;
use lrvd_models::llama::llama2c::{Llama2cError, convert};
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm};
use lrvd_models::tokenizer::{PaddingSide, TextTokenizer};
use serde_json::Value;

/// The folder that the workspace ships.
fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/stories260K")
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama2c").join(name)
}

fn expected() -> Value {
    serde_json::from_slice(&std::fs::read(golden("expected_greedy.json")).unwrap()).unwrap()
}

fn token_ids() -> Vec<u32> {
    serde_json::from_value(expected()["token_ids"].clone()).unwrap()
}

fn model(dtype: DType) -> LlamaForCausalLm {
    let config = LlamaConfig::read(&shipped().join("config.json")).unwrap();
    assert!(config.unrecognised().is_empty());
    let store = WeightStore::open(shipped()).unwrap();
    LlamaForCausalLm::from_pretrained(&store, &config, &Device::flex(), dtype).unwrap().0
}

#[test]
fn greedy_decoding_gives_the_published_story() {
    let ids = token_ids();
    assert_eq!((ids.len(), ids[0]), (201, 1));
    let options = GenerateOptions { max_new_tokens: 200, ..GenerateOptions::default() };
    for dtype in [DType::F32, DType::F64] {
        let found = model(dtype).generate_greedy(&[vec![1]], &options).unwrap();
        assert_eq!(found[0], ids[1..], "{dtype:?}");
    }
    let tokenizer = TextTokenizer::from_dir(&shipped()).unwrap();
    let text = expected()["text_published"].as_str().unwrap().to_owned();
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
}

#[test]
fn logits_equal_the_independent_forward_pass() {
    let (ids, expected) = (token_ids(), expected());
    // The file has six decimals.
    for (dtype, limit) in [(DType::F32, 2e-5), (DType::F64, 6e-7)] {
        let input = TokenBatch::padded(&[(&ids, &[])], 0, &Device::flex(), dtype);
        let logits = values(model(dtype).forward(&input, &Pass::mean()));
        let stored = expected["logits_after_position"].as_object().unwrap();
        assert_eq!(stored.len(), 5);
        for (position, wanted) in stored {
            let wanted: Vec<f64> = serde_json::from_value(wanted.clone()).unwrap();
            let start = position.parse::<usize>().unwrap() * 512;
            let worst = wanted.iter().zip(&logits[start..start + 512]);
            let worst = worst.map(|(w, f)| (w - f).abs()).fold(0.0, f64::max);
            assert!(wanted.len() == 512 && worst < limit, "{dtype:?}, {position}: {worst}");
        }
    }
}

#[test]
fn the_shipped_tokenizer_is_a_llama_tokenizer() {
    let tokenizer = TextTokenizer::from_dir(&shipped()).unwrap();
    tokenizer.check_vocab(512).unwrap();
    assert_eq!(tokenizer.vocab_size(), 512);
    assert_eq!(tokenizer.padding_side(), PaddingSide::Left);
    let special = tokenizer.special_tokens();
    assert_eq!(
        (special.bos, special.eos, special.unk, special.pad),
        (Some(1), Some(2), Some(0), None)
    );
    // What the model writes is what the tokenizer makes of it.
    let ids = token_ids();
    let text = expected()["text_published"].as_str().unwrap().to_owned();
    assert_eq!(tokenizer.encode(&text, None, None).unwrap().ids, ids);
    // Bytes outside the vocabulary, and back.
    for text in ["Zoë 日本 \u{1F600}\n\tend", "", " two  spaces "] {
        let found = tokenizer.encode(text, None, None).unwrap();
        assert!(!found.ids.contains(&0), "{text:?}");
        assert_eq!(tokenizer.decode(&found.ids, true).unwrap(), text);
    }
}

/// The shipped weights as a file of llama2.c: what [`convert`] undoes.
fn original() -> Vec<u8> {
    let store = WeightStore::open(shipped()).unwrap();
    let config = LlamaConfig::read(&shipped().join("config.json")).unwrap();
    let header = [
        config.hidden_size,
        config.intermediate_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.vocab_size,
        config.max_position_embeddings,
    ];
    let mut bytes: Vec<u8> = header.iter().flat_map(|&n| (n as i32).to_le_bytes()).collect();
    let read = |name: &str| store.read(name).unwrap();
    let mut put = |tensor: HostTensor| bytes.extend_from_slice(tensor.bytes());
    let pairs = |tensor: HostTensor, heads: usize| {
        // Rows i and i + width/2 of a head back to rows 2i and 2i + 1.
        let [rows, columns] = [tensor.shape()[0], tensor.shape()[1]];
        let (width, values) = (rows / heads, tensor.to_f32().unwrap());
        let row = |r: usize| {
            let (head, at) = (r / width, r % width);
            let from = head * width + at / 2 + at % 2 * (width / 2);
            values[from * columns..(from + 1) * columns].to_vec()
        };
        let values: Vec<f32> = (0..rows).flat_map(row).collect();
        HostTensor::from_f32(&[rows, columns], &values).unwrap()
    };
    put(read("model.embed_tokens.weight"));
    for name in [
        "input_layernorm",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp.gate_proj",
        "mlp.down_proj",
        "mlp.up_proj",
    ] {
        for layer in 0..config.num_hidden_layers {
            let tensor = read(&format!("model.layers.{layer}.{name}.weight"));
            put(match name {
                "self_attn.q_proj" => pairs(tensor, config.num_attention_heads),
                "self_attn.k_proj" => pairs(tensor, config.num_key_value_heads),
                _ => tensor,
            });
        }
    }
    put(read("model.norm.weight"));
    // Rotary tables, which are not read.
    bytes.extend(vec![0; config.max_position_embeddings * config.head_dim * 4]);
    bytes
}

fn same_folders(found: &Path, wanted: &Path) {
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        let (found, wanted) = (std::fs::read(found.join(name)), std::fs::read(wanted.join(name)));
        assert!(found.unwrap() == wanted.unwrap(), "{name} differs");
    }
}

#[test]
fn the_conversion_makes_the_shipped_folder_of_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.bin");
    std::fs::write(&file, original()).unwrap();
    let out = folder.path().join("out");
    let config = convert(&file, &golden("tok512.bin"), &out).unwrap();
    assert_eq!((config.vocab_size, config.num_key_value_heads, config.head_dim), (512, 4, 8));
    same_folders(&out, &shipped());
    // A pair that does not match is refused, and the file is named.
    std::fs::write(&file, &original()[..1000]).unwrap();
    match convert(&file, &golden("tok512.bin"), &out) {
        Err(Llama2cError::File { file: named, .. }) => assert_eq!(named, file),
        other => panic!("{other:?}"),
    }
    let absent = folder.path().join("absent.bin");
    assert!(matches!(convert(&absent, &file, &out), Err(Llama2cError::Read { .. })));
}

/// The folder of shared reference data, which a fresh clone does not have.
fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("LRVD_SHARED_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let folder = folder.join("data/checkpoints/stories260K");
    folder.join("stories260K.bin").is_file().then_some(folder)
}

#[test]
fn the_conversion_makes_the_shipped_folder_of_the_published_files() {
    let Some(shared) = shared() else {
        eprintln!("skipped: set LRVD_SHARED_DIR to a folder with data/checkpoints/stories260K");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    convert(&shared.join("stories260K.bin"), &shared.join("tok512.bin"), folder.path()).unwrap();
    same_folders(folder.path(), &shipped());
}
