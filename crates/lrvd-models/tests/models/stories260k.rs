//! The shipped model stories260K reproduces its published story and independently computed logits.

use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::files::WeightStore;
use lrvd_burn::sampling::Pass;
use lrvd_models::llama::{GenerateOptions, LlamaConfig, LlamaForCausalLm};
use lrvd_models::tokenizer::{PaddingDirection, TextTokenizer};
use rstest::rstest;
use serde_json::Value;

use crate::support::{batch, golden, numbers};

/// The file has six decimals.
#[rstest]
#[case(DType::F32, 2e-5)]
#[case(DType::F64, 6e-7)]
fn the_story_and_its_logits_are_the_published_ones(#[case] dtype: DType, #[case] limit: f64) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/stories260K");
    let config = LlamaConfig::read(&shipped.join("config.json")).unwrap();
    assert!(config.unrecognised().is_empty());
    let store = WeightStore::open(&shipped).unwrap();
    let model = LlamaForCausalLm::from_pretrained(&store, &config, &Device::flex(), dtype).unwrap();
    let file = std::fs::read(golden("stories260k/expected_greedy.json")).unwrap();
    let json: Value = serde_json::from_slice(&file).unwrap();
    let ids: Vec<u32> = serde_json::from_value(json["token_ids"].clone()).unwrap();
    let options = GenerateOptions { max_new_tokens: 200, ..GenerateOptions::default() };
    assert_eq!(model.0.generate_greedy(&[vec![1]], &options).unwrap()[0], ids[1..]);
    let logits = numbers(model.0.forward(&batch(&[&ids], dtype), &Pass::mean()));
    for (position, expected) in json["logits_after_position"].as_object().unwrap() {
        let expected: Vec<f64> = serde_json::from_value(expected.clone()).unwrap();
        let start = position.parse::<usize>().unwrap() * 512;
        let worst = expected.iter().zip(&logits[start..start + 512]);
        let worst = worst.map(|(w, f)| (w - f).abs()).fold(0.0, f64::max);
        assert!(expected.len() == 512 && worst < limit, "{position}: {worst}");
    }
    let tokenizer = TextTokenizer::from_dir(&shipped).unwrap();
    let text = json["text_published"].as_str().unwrap();
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    assert_eq!(tokenizer.encode(text, None, None).unwrap().get_ids(), ids);
    assert!(matches!(tokenizer.padding(Some(1)).unwrap().direction, PaddingDirection::Left));
}
