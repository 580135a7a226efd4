//! Tokenizers of checkpoints, their options and their errors.
#![allow(clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use lrvd_models::Error;
use lrvd_models::tokenizer::{
    ModelType, PaddingDirection, PaddingParams, PaddingStrategy, SpmModel, TextTokenizer,
    tokenizer_json,
};
use prost::Message as _;
use serde_json::Value;

use crate::support;

fn golden(case: &str) -> PathBuf {
    support::golden("tokenizers").join(case)
}

/// The pretrained tiny checkpoint that the workspace ships.
fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/deberta-v3-nano")
}

#[test]
fn the_shipped_checkpoint_has_the_same_ids_from_both_files() {
    let from_json = TextTokenizer::from_file(&nano().join("tokenizer.json")).unwrap();
    let from_spm = TextTokenizer::from_file(&nano().join("spm.model")).unwrap();
    assert_eq!(from_json.vocab_size(), from_spm.vocab_size());
    assert_eq!(from_json.special_tokens(), from_spm.special_tokens());
    let mut texts: Vec<String> = Vec::new();
    for case in ["deberta_v3_unigram", "byte_level_bpe", "llama2_spm_bpe"] {
        let text = std::fs::read_to_string(golden(case).join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let items = expected["items"].as_array().unwrap();
        texts.extend(items.iter().map(|item| item["text"].as_str().unwrap().to_owned()));
    }
    // Code points of many scripts, in odd company.
    texts
        .extend((1..0x3000).step_by(7).filter_map(char::from_u32).map(|c| format!(" a{c}b  {c} ")));
    assert!(texts.len() > 1500);
    for text in &texts {
        let json = from_json.encode(text, Some("the end"), Some(40)).unwrap();
        assert_eq!(json, from_spm.encode(text, Some("the end"), Some(40)).unwrap(), "{text:?}");
        let back = from_json.decode(json.get_ids(), true).unwrap();
        assert_eq!(back, from_spm.decode(json.get_ids(), true).unwrap(), "{text:?}");
    }
}

#[test]
fn a_checkpoint_folder_is_loaded_with_its_settings() {
    let tokenizer = TextTokenizer::from_dir(&nano()).unwrap();
    assert_eq!(tokenizer.file().file_name().unwrap(), "tokenizer.json");
    let special = tokenizer.special_tokens();
    assert_eq!((special.pad, special.cls, special.sep), (Some(0), Some(1), Some(2)));
    assert_eq!((special.unk, special.mask), (Some(3), Some(8000)));
    assert_eq!(tokenizer.vocab_size(), 8001);
    assert!(matches!(tokenizer.padding(None).unwrap().direction, PaddingDirection::Right));
    tokenizer.check_vocab(8064).unwrap();
    tokenizer.check_vocab(8001).unwrap();
    let empty = tempfile::tempdir().unwrap();
    for (error, expected) in [
        (tokenizer.check_vocab(8000).unwrap_err(), "up to 8000, but the model embeds only 8000"),
        (tokenizer.decode(&[1, 8001], true).unwrap_err(), "of id 8001, its largest id is 8000"),
        (TextTokenizer::from_dir(empty.path()).unwrap_err(), "the files `tokenizer.json`, "),
    ] {
        assert!(matches!(error, Error::Tokenizer { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn limits_that_cannot_be_met_are_errors() {
    let tokenizer = TextTokenizer::from_file(&nano().join("spm.model")).unwrap();
    assert_eq!(tokenizer.encode("a river", None, Some(2)).unwrap().get_ids(), [1, 2]);
    let error = tokenizer.encode("a river", Some("a boat"), Some(2)).unwrap_err().to_string();
    let expected = "`max_length` should be at least 3, the number of special tokens, found 2";
    assert_eq!(error, expected);
    let left = stated(r#"{"truncation_side": "left"}"#).unwrap();
    let kept = left.encode("the river was high", None, Some(3)).unwrap();
    assert_eq!(kept.get_tokens()[1], "igh");
}

#[test]
fn padding_follows_side_and_token() {
    let llama = TextTokenizer::from_file(&golden("llama2_spm_bpe").join("tokenizer.json")).unwrap();
    let error = llama.padding(None).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json` has no padding token"), "{error}");
    assert!(matches!(llama.padding(Some(9999)), Err(Error::Tokenizer { .. })));
    let padding =
        PaddingParams { direction: PaddingDirection::Left, ..llama.padding(Some(1)).unwrap() };
    let inputs = [("yes", None), ("yes or no", None)];
    let batch = llama.encode_batch(&inputs, None, Some(&padding)).unwrap();
    let missing = batch[1].len() - 2;
    assert_eq!(batch[0].len(), batch[1].len());
    assert_eq!(batch[0].get_ids()[..missing], vec![1; missing]);
    assert_eq!(batch[0].get_attention_mask()[..missing], vec![0; missing]);
    assert_eq!(batch[0].get_attention_mask()[missing..], [1, 1]);
    let to = PaddingParams { strategy: PaddingStrategy::Fixed(1), ..padding };
    let uncut = llama.encode_batch(&inputs[..1], None, Some(&to)).unwrap();
    assert_eq!(uncut[0].len(), 2, "nothing is cut");
}

/// A folder of shared reference data, which a fresh clone does not have; `None`, with a word, without the `file` in it.
fn shared(folder: &str, file: &str) -> Option<PathBuf> {
    let root = std::env::var_os("LRVD_SHARED_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let found = Some(root.join(folder)).filter(|found| found.join(file).is_file());
    if found.is_none() {
        eprintln!("skipped: set LRVD_SHARED_DIR to a folder with {folder}");
    }
    found
}

/// Both files of the published Llama-2 tokenizer; `None`, with a word, where they are not at hand.
fn published_llama() -> Option<(PathBuf, [(&'static str, TextTokenizer); 2])> {
    let folder = shared("data/tokenizers/llama-2", "tokenizer.model")?;
    let of = |name: &'static str| (name, TextTokenizer::from_file(&folder.join(name)).unwrap());
    let both = [of("tokenizer.json"), of("tokenizer.model")];
    Some((folder, both))
}

#[test]
fn the_published_vocabularies_give_the_reference_ids() {
    // Special tokens before and behind a text.
    let check = |folder: &Path, tokenizer: &TextTokenizer, [before, behind]: [usize; 2]| {
        let lines = std::fs::read_to_string(folder.join("reference_ids.jsonl")).unwrap();
        for line in lines.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let text = row["text"].as_str().unwrap();
            let found = tokenizer.encode(text, None, None).unwrap();
            let own = before..found.len() - behind;
            assert_eq!(Value::from(&found.get_ids()[own.clone()]), row["ids"], "{text:?}");
            if behind > 0 {
                assert_eq!(Value::from(&found.get_tokens()[own]), row["pieces"], "{text:?}");
            }
        }
        assert_eq!(lines.lines().count(), 325);
    };
    if let Some(folder) = shared("data/tokenizers/deberta-v3", "reference_ids.jsonl") {
        let tokenizer = TextTokenizer::from_dir(&folder).unwrap();
        assert_eq!(tokenizer.special_tokens().mask, Some(128_000));
        assert_eq!(tokenizer.vocab_size(), 128_001);
        check(&folder, &tokenizer, [1, 1]);
    }
    if let Some((folder, both)) = published_llama() {
        for (name, tokenizer) in both {
            assert_eq!(tokenizer.vocab_size(), 32_000, "{name}");
            assert_eq!(tokenizer.encode("a", None, None).unwrap().get_ids()[0], 1, "{name}");
            check(&folder, &tokenizer, [1, 0]);
        }
    }
}

#[test]
fn the_published_llama_vocabulary_gives_the_ids_of_llama_cpp() {
    let Some((folder, both)) = published_llama() else { return };
    let inputs = std::fs::read_to_string(folder.join("llama-cpp-spm-vectors.inp")).unwrap();
    let outputs = std::fs::read_to_string(folder.join("llama-cpp-spm-vectors.out")).unwrap();
    let texts: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
    let texts = &texts[..texts.len() - 1];
    assert_eq!((texts.len(), outputs.lines().count()), (46, 46));
    for (name, tokenizer) in both {
        for (text, line) in texts.iter().zip(outputs.lines()) {
            let expected: Vec<u32> =
                line.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let found = tokenizer.encode(text, None, None).unwrap();
            assert_eq!(found.get_ids()[1..], expected, "{name}: {text:?}");
        }
    }
}

#[test]
fn the_written_llama_tokenizer_is_the_published_one() {
    let Some((folder, _)) = published_llama() else { return };
    let file = folder.join("tokenizer.model");
    let model = SpmModel::parse(&std::fs::read(&file).unwrap(), &file).unwrap();
    let written = tokenizer_json(&model, &file, [Some("<s>"), None], &[]).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    let published = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let published: Value = serde_json::from_slice(&published).unwrap();
    for part in ["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"] {
        assert_eq!(written[part], published[part], "{part}");
    }
    assert_eq!(written["model"]["vocab"], published["model"]["vocab"]);
    // The older file writes a merge as one text.
    let pair = |merge: &Value| match merge.as_str() {
        Some(text) => text.split(' ').map(str::to_owned).collect::<Vec<_>>(),
        None => serde_json::from_value(merge.clone()).unwrap(),
    };
    let merges = |of: &Value| -> Vec<Vec<String>> {
        of["model"]["merges"].as_array().unwrap().iter().map(pair).collect()
    };
    let (written, published) = (merges(&written), merges(&published));
    assert_eq!(written.len(), published.len());
    let differ = written.iter().zip(&published).position(|(w, p)| w != p);
    assert_eq!(differ, None, "{:?}", differ.map(|i| (&written[i], &published[i])));
}

/// A folder with the recorded byte-level `tokenizer.json`, whose template is `<s> a </s>`, and these settings.
fn stated(settings: &str) -> Result<TextTokenizer, Error> {
    let folder = tempfile::tempdir().unwrap();
    let json = golden("byte_level_bpe").join("tokenizer.json");
    std::fs::copy(json, folder.path().join("tokenizer.json")).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), settings).unwrap();
    // Left over from another form of the model: neither a tokenizer nor text.
    std::fs::write(folder.path().join("tokenizer.model"), [0xff; 9]).unwrap();
    TextTokenizer::from_dir(folder.path())
}

#[test]
fn stated_ends_are_followed_beside_a_tokenizer_json() {
    let ids = |settings: &str, pair| {
        stated(settings).unwrap().encode("A", pair, None).unwrap().get_ids().to_vec()
    };
    // 35 is `A`, 1 and 2 are `<s>` and `</s>`.
    assert_eq!(ids("{}", None), [1, 35, 2]);
    assert_eq!(ids(r#"{"add_bos_token": true, "add_eos_token": true}"#, None), [1, 35, 2]);
    assert_eq!(ids(r#"{"add_bos_token": false}"#, None), [35, 2]);
    assert_eq!(ids(r#"{"add_eos_token": false}"#, None), [1, 35]);
    assert_eq!(ids(r#"{"add_bos_token": false, "add_eos_token": false}"#, None), [35]);
    // A template that does as stated is kept: the file's own pairs have no second `<s>`.
    assert_eq!(ids(r#"{"add_bos_token": true}"#, Some("A")), [1, 35, 2, 35, 2]);
    // One that is made anew is transformers': both texts have both ends.
    assert_eq!(ids(r#"{"add_eos_token": false}"#, Some("A")), [1, 35, 1, 35]);
    let named = r#"{"add_bos_token": true, "add_eos_token": false, "bos_token": "A"}"#;
    assert_eq!(ids(named, None), [35, 35]);
    let cut = stated(r#"{"add_bos_token": false}"#).unwrap().encode("A A A A", None, Some(3));
    assert_eq!(cut.unwrap().len(), 3);
}

#[test]
fn an_end_without_a_token_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
    std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"add_bos_token": true}"#)
        .unwrap();
    let error = TextTokenizer::from_dir(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json`: `bos_token` should be a token"), "{error}");
}

#[test]
fn a_sentencepiece_model_of_words_is_an_error() {
    let file = nano().join("spm.model");
    let mut model = SpmModel::parse(&std::fs::read(&file).unwrap(), &file).unwrap();
    model.trainer.set_model_type(ModelType::Word);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spm.model");
    std::fs::write(&file, model.encode_to_vec()).unwrap();
    let error = TextTokenizer::from_file(&file).unwrap_err().to_string();
    assert!(
        error.ends_with("`trainer_spec.model_type` is `Word`, supported: Unigram, Bpe"),
        "{error}"
    );
}
