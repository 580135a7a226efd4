//! The shipped model stories260K reproduces its published story and independently computed logits.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use lrvd_burn::files::WeightStore;
use lrvd_burn::host::values;
use lrvd_burn::sampling::Pass;
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm};
use lrvd_models::tokenizer::{PaddingDirection, TextTokenizer};
use serde_json::Value;

use crate::support::{batch, golden};

/// The folder that the workspace ships.
fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/stories260K")
}

fn expected() -> Value {
    let file = golden("stories260k/expected_greedy.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn token_ids() -> Vec<u32> {
    serde_json::from_value(expected()["token_ids"].clone()).unwrap()
}

fn model(dtype: DType) -> LlamaForCausalLm {
    let config = LlamaConfig::read(&shipped().join("config.json")).unwrap();
    assert!(config.unrecognised.is_empty());
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
        let input = batch(&[&ids], dtype);
        let logits = values(model(dtype).forward(&input, &Pass::mean()));
        let stored = expected["logits_after_position"].as_object().unwrap();
        assert_eq!(stored.len(), 5);
        for (position, expected) in stored {
            let expected: Vec<f64> = serde_json::from_value(expected.clone()).unwrap();
            let start = position.parse::<usize>().unwrap() * 512;
            let worst = expected.iter().zip(&logits[start..start + 512]);
            let worst = worst.map(|(w, f)| (w - f).abs()).fold(0.0, f64::max);
            assert!(expected.len() == 512 && worst < limit, "{dtype:?}, {position}: {worst}");
        }
    }
}

#[test]
fn the_shipped_tokenizer_is_a_llama_tokenizer() {
    let tokenizer = TextTokenizer::from_dir(&shipped()).unwrap();
    tokenizer.check_vocab(512).unwrap();
    assert_eq!(tokenizer.vocab_size(), 512);
    assert!(matches!(tokenizer.padding(Some(1)).unwrap().direction, PaddingDirection::Left));
    let special = tokenizer.special_tokens();
    assert_eq!(
        (special.bos, special.eos, special.unk, special.pad),
        (Some(1), Some(2), Some(0), None)
    );
    // What the model writes is what the tokenizer makes of it.
    let ids = token_ids();
    let text = expected()["text_published"].as_str().unwrap().to_owned();
    assert_eq!(tokenizer.encode(&text, None, None).unwrap().get_ids(), ids);
    // Bytes outside the vocabulary, and back.
    for text in ["Zoë 日本 \u{1F600}\n\tend", "", " two  spaces "] {
        let found = tokenizer.encode(text, None, None).unwrap();
        assert!(!found.get_ids().contains(&0), "{text:?}");
        assert_eq!(tokenizer.decode(found.get_ids(), true).unwrap(), text);
    }
}
