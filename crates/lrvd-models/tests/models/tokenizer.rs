//! Tokenizers of checkpoints, their options and their errors.
#![allow(clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use lrvd_models::Error;
use lrvd_models::tokenizer::{ModelType, SpmModel, TextTokenizer};
use prost::Message as _;
use rstest::rstest;
use serde_json::Value;

use crate::support::golden;

/// The pretrained tiny checkpoint that the workspace ships.
fn nano() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/deberta-v3-nano")
}

#[test]
fn a_checkpoint_folder_is_loaded_with_its_settings() {
    let tokenizer = TextTokenizer::from_dir(&nano()).unwrap();
    assert_eq!(tokenizer.file().file_name().unwrap(), "tokenizer.json");
    let special = tokenizer.special_tokens();
    assert_eq!((special.pad, special.cls, special.sep), (Some(0), Some(1), Some(2)));
    assert_eq!((special.unk, special.mask), (Some(3), Some(8000)));
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
    let folder = tempfile::tempdir().unwrap();
    let json = golden("tokenizers/byte_level_bpe/tokenizer.json");
    std::fs::copy(json, folder.path().join("tokenizer.json")).unwrap();
    let settings = r#"{"truncation_side": "left"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), settings).unwrap();
    let left = TextTokenizer::from_dir(folder.path()).unwrap();
    let kept = left.encode("the river was high", None, Some(3)).unwrap();
    assert_eq!(kept.get_tokens()[1], "igh");
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

/// The ids of `tokenizers` and of llama.cpp; `ends` are numbers of special tokens.
#[rstest]
#[case("deberta-v3", "tokenizer.json", [1, 1])]
#[case("llama-2", "tokenizer.json", [1, 0])]
#[case("llama-2", "tokenizer.model", [1, 0])]
fn the_published_vocabularies_give_the_reference_ids(
    #[case] folder: &str,
    #[case] file: &str,
    #[case] ends: [usize; 2],
) {
    let Some(folder) = shared(&format!("data/tokenizers/{folder}"), file) else { return };
    let tokenizer = TextTokenizer::from_file(&folder.join(file)).unwrap();
    let check = |text: &str, ids: &[u32]| {
        let found = tokenizer.encode(text, None, None).unwrap();
        assert_eq!(found.get_ids()[ends[0]..found.len() - ends[1]], *ids, "{text:?}");
    };
    let lines = std::fs::read_to_string(folder.join("reference_ids.jsonl")).unwrap();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
        check(row["text"].as_str().unwrap(), &ids);
    }
    assert_eq!(lines.lines().count(), 325);
    let Ok(texts) = std::fs::read_to_string(folder.join("llama-cpp-spm-vectors.inp")) else {
        return;
    };
    let outputs = std::fs::read_to_string(folder.join("llama-cpp-spm-vectors.out")).unwrap();
    let texts = texts.split("\n__ggml_vocab_test__\n");
    for (text, line) in texts.zip(outputs.lines()) {
        check(text, &line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>());
    }
}

/// Beside a `tokenizer.json` with the template `<s> a </s>` and these settings. Of ids 35 is `A`, 1 and 2 are `<s>` and
/// `</s>`. A template that does as stated is kept; one that is made anew is transformers': both texts have both ends.
#[rstest]
#[case("{}", None, &[1, 35, 2])]
#[case(r#"{"add_bos_token": true, "add_eos_token": true}"#, None, &[1, 35, 2])]
#[case(r#"{"add_bos_token": false}"#, None, &[35, 2])]
#[case(r#"{"add_eos_token": false}"#, None, &[1, 35])]
#[case(r#"{"add_bos_token": false, "add_eos_token": false}"#, None, &[35])]
#[case(r#"{"add_bos_token": true}"#, Some("A"), &[1, 35, 2, 35, 2])]
#[case(r#"{"add_eos_token": false}"#, Some("A"), &[1, 35, 1, 35])]
#[case(r#"{"add_bos_token": true, "add_eos_token": false, "bos_token": "A"}"#, None, &[35, 35])]
fn stated_ends_are_followed(
    #[case] settings: &str,
    #[case] pair: Option<&str>,
    #[case] ids: &[u32],
) {
    let folder = tempfile::tempdir().unwrap();
    let json = golden("tokenizers/byte_level_bpe/tokenizer.json");
    std::fs::copy(json, folder.path().join("tokenizer.json")).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), settings).unwrap();
    // Left over from another form of the model: neither a tokenizer nor text.
    std::fs::write(folder.path().join("tokenizer.model"), [0xff; 9]).unwrap();
    let tokenizer = TextTokenizer::from_dir(folder.path()).unwrap();
    assert_eq!(tokenizer.encode("A", pair, None).unwrap().get_ids(), ids);
}

#[test]
fn an_end_without_a_token_and_a_model_of_words_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let text = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
    std::fs::write(file("tokenizer.json"), text).unwrap();
    std::fs::write(file("tokenizer_config.json"), r#"{"add_bos_token": true}"#).unwrap();
    let error = TextTokenizer::from_dir(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json`: `bos_token` should be a token"), "{error}");

    let spm = nano().join("spm.model");
    let mut model = SpmModel::parse(&std::fs::read(&spm).unwrap(), &spm).unwrap();
    model.trainer.set_model_type(ModelType::Word);
    std::fs::write(file("spm.model"), model.encode_to_vec()).unwrap();
    let error = TextTokenizer::from_file(&file("spm.model")).unwrap_err().to_string();
    let expected = "`trainer_spec.model_type` is `Word`, supported: Unigram, Bpe";
    assert!(error.ends_with(expected), "{error}");
}

/// The ids are those of transformers' `BertTokenizer` with the same settings.
#[rstest]
#[case::usual("{}", &[2, 82, 209, 48, 45, 3])]
#[case::cased(r#"{"do_lower_case": false}"#, &[2, 1, 1, 48, 45, 3])]
#[case::accents(r#"{"strip_accents": false}"#, &[2, 82, 1, 48, 45, 3])]
#[case::no_chinese(r#"{"tokenize_chinese_chars": false}"#, &[2, 82, 209, 1, 3])]
fn settings_of_word_pieces_are_followed(#[case] settings: &str, #[case] expected: &[u32]) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let vocabulary = golden("tokenizers/bert_word_pieces/vocab.txt");
    std::fs::copy(vocabulary, file("vocab.txt")).unwrap();
    std::fs::write(file("tokenizer_config.json"), settings).unwrap();
    let tokenizer = TextTokenizer::from_dir(dir.path()).unwrap();
    let text = "THE caf\u{e9} \u{6771}\u{4eac}";
    assert_eq!(tokenizer.encode(text, None, None).unwrap().get_ids(), expected);
}

#[rstest]
#[case::no_start(&[("vocab.txt", "[PAD]\n[UNK]\na")], "`cls_token` should be a token of the vocabulary, found `[CLS]`")]
#[case::twice(
    &[("vocab.txt", "[PAD]\na\n[UNK]\na")],
    "vocab.txt`: `line 4` should be a token that is not in line 2, found `a`"
)]
#[case::no_merges(&[("vocab.json", r#"{"<s>": 0}"#)], "cannot read `")]
#[case::not_ids(&[("vocab.json", r#"{"<s>": "x"}"#)], "invalid JSON in `")]
#[case::not_a_pair(
    &[("vocab.json", r#"{"<s>": 0, "</s>": 1}"#), ("merges.txt", "#version: 0.2\na b\nab")],
    "merges.txt`: `line 3` should be two tokens with a space between them, found `ab`"
)]
#[case::of_another_model(
    &[("vocab.json", r#"{"a": 0}"#), ("merges.txt", "")],
    "`bos_token` should be a token of the vocabulary, found `<s>`"
)]
#[case::unknown_merge(
    &[("vocab.json", r#"{"<s>": 0, "</s>": 1}"#), ("merges.txt", "a b")],
    "has a `model` of type `BPE` that the `tokenizers` library cannot read"
)]
fn damaged_vocabularies_are_errors(#[case] files: &[(&str, &str)], #[case] expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let error = TextTokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}
