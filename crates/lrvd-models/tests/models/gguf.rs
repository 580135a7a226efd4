//! Files of llama.cpp: blocks, weights, configuration and tokenizer against what its Python package reads of them, and
//! broken files.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Int, Tensor};
use lrvd_burn::files::{GgufField, GgufFile, HostTensor, WeightStore, write_gguf};
use lrvd_burn::host::values;
use lrvd_burn::peft::{PeftAdapter, PeftConfig, PeftModule, TargetModules};
use lrvd_burn::sampling::Pass;
use lrvd_models::Error;
use lrvd_models::TokenBatch;
use lrvd_models::llama::LlamaForCausalLm;
use lrvd_models::llama::gguf::{GgufModel, rows_in_halves, write_gguf_adapter};
use lrvd_models::tokenizer::TextTokenizer;
use serde_json::Value;

use crate::support::golden;

fn model(name: &str) -> GgufModel {
    GgufModel::open(&golden("gguf").join(name)).unwrap()
}

#[test]
fn every_block_is_what_the_reference_makes_of_it() {
    let file = GgufFile::open(golden("gguf/blocks.gguf")).unwrap();
    let expected = WeightStore::open(golden("gguf/blocks.safetensors")).unwrap();
    assert_eq!(file.tensors().names().len(), 13);
    for name in expected.names() {
        let (found, expected) = (file.tensors().read(name).unwrap(), expected.read(name).unwrap());
        assert_eq!(found.shape(), expected.shape(), "{name}");
        // To the last bit: the sums and products are the same in the same order.
        assert_eq!(found.to_f32().unwrap(), expected.to_f32().unwrap(), "{name}");
    }
}

#[test]
fn weights_have_hugging_faces_names_and_order() {
    for name in ["byte_level", "sentencepiece"] {
        let store = model(&format!("{name}.gguf")).weights().unwrap();
        let expected =
            WeightStore::open(golden("gguf").join(format!("{name}.safetensors"))).unwrap();
        assert_eq!(store.len(), if name == "byte_level" { 20 } else { 21 });
        for name in expected.names() {
            let (found, expected) = (store.read(name).unwrap(), expected.read(name).unwrap());
            let skipped = found.n_elements() - expected.n_elements();
            let large = ["model.embed_tokens.weight", "lm_head.weight"].contains(&name);
            assert_eq!(skipped > 0, large, "{name}");
            assert_eq!(found.to_f32().unwrap()[skipped..], expected.to_f32().unwrap(), "{name}");
        }
    }
}

#[test]
fn the_configuration_is_read() {
    let config = model("byte_level.gguf").config().clone();
    assert_eq!((config.vocab_size, config.hidden_size, config.intermediate_size), (680, 32, 64));
    assert_eq!((config.num_hidden_layers, config.head_dim), (2, 8));
    assert_eq!((config.num_attention_heads, config.num_key_value_heads), (4, 2));
    assert_eq!((config.rms_norm_eps, config.rope_theta), (1e-5, 500_000.0));
    assert_eq!((config.bos_token_id, config.eos_token_ids), (Some(1), vec![2]));
    assert_eq!((config.pad_token_id, config.tie_word_embeddings), (Some(0), true));
    assert!(config.rope_scaling.is_none());
    let config = model("sentencepiece.gguf").config().clone();
    assert_eq!((config.vocab_size, config.eos_token_ids), (692, vec![2, 5]));
    assert!(!config.tie_word_embeddings);
    let scaling = config.rope_scaling.unwrap();
    assert_eq!(
        (scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor),
        (32.0, 1.0, 4.0)
    );
    assert_eq!(scaling.original_max_position_embeddings, 8192);
}

#[test]
fn a_model_is_built_and_answers() {
    for name in ["byte_level.gguf", "sentencepiece.gguf"] {
        let (file, device) = (model(name), Device::flex());
        for dtype in [DType::F32, DType::BF16] {
            let store = file.weights().unwrap();
            let (model, loaded) =
                LlamaForCausalLm::from_pretrained(&store, file.config(), &device, dtype).unwrap();
            assert_eq!(loaded.report.applied.len(), store.len());
            let ids = Tensor::<2, Int>::from_data([[1, 7, 300, 2]], &device);
            let mask = Tensor::ones([1, 4], (&device, DType::F32));
            let input = TokenBatch::new(ids.clone(), ids.zeros_like(), mask);
            let logits = values(model.last_logits(&input, &Pass::mean()));
            assert_eq!(logits.len(), file.config().vocab_size);
            assert!(logits.iter().all(|logit| logit.is_finite()));
        }
    }
}

/// The ids that the `tokenizers` library recorded for the vocabulary in the file.
fn check_ids(tokenizer: &TextTokenizer, case: &str) {
    let text = std::fs::read(golden("tokenizers").join(case).join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    let mut compared = 0;
    for item in expected["items"].as_array().unwrap() {
        // A file says whether texts start and end with special tokens, and nothing of pairs.
        let other_pairs = case == "byte_level_bpe" && !item["pair"].is_null();
        if !item["truncation"].is_null() || !item["padding"].is_null() || other_pairs {
            continue;
        }
        let found = tokenizer.encode(item["text"].as_str().unwrap(), item["pair"].as_str(), None);
        let found = serde_json::json!(found.unwrap().get_ids());
        assert_eq!(found, item["ids"], "{case}: {}", item["name"]);
        compared += 1;
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn tokenizers_give_the_recorded_ids() {
    for (name, case) in
        [("byte_level.gguf", "byte_level_bpe"), ("sentencepiece.gguf", "llama2_spm_bpe")]
    {
        let file = model(name);
        let tokenizer = file.tokenizer().unwrap();
        check_ids(&tokenizer, case);
        let special = tokenizer.special_tokens();
        assert_eq!((special.bos, special.eos), (Some(1), Some(2)));
        // The same from the texts as a folder.
        let (folder, texts) = (tempfile::tempdir().unwrap(), file.tokenizer_files().unwrap());
        std::fs::write(folder.path().join("tokenizer.json"), texts.tokenizer).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), texts.settings).unwrap();
        check_ids(&TextTokenizer::from_dir(folder.path()).unwrap(), case);
    }
}

/// The bytes of a fixture with `change` applied, opened.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<GgufFile, lrvd_burn::Error> {
    let mut bytes = std::fs::read(golden("gguf").join(name)).unwrap();
    change(&mut bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    std::fs::write(&path, bytes).unwrap();
    GgufFile::open(&path)
}

fn rejected(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    changed(name, change).unwrap_err().to_string()
}

/// Puts `new` behind the first occurrence of `text`, `skip` bytes further on.
fn behind(bytes: &mut [u8], text: &str, skip: usize, new: &[u8]) {
    let at = bytes.windows(text.len()).position(|found| found == text.as_bytes()).unwrap();
    let at = at + text.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// A file with one setting `key` that is a list of `length` values of type `kind`, or a text of that length; its contents
/// are zeros.
fn long(kind: u32, list: bool, length: u64) -> Result<GgufFile, lrvd_burn::Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    for number in [0, 1, 3] {
        bytes.extend(u64::to_le_bytes(number));
    }
    bytes.extend(b"key");
    bytes.extend(if list {
        [9, kind].map(u32::to_le_bytes).concat()
    } else {
        kind.to_le_bytes().to_vec()
    });
    bytes.extend(length.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    // Zeros that take no room on the disk.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 + 8 * length).unwrap();
    GgufFile::open(&path)
}

#[test]
fn lists_that_no_model_has_are_not_kept() {
    let error = long(0, true, 1 << 20).unwrap().integers("key").unwrap_err().to_string();
    assert!(error.ends_with("found a list of 1048576 whole numbers of 8 or 16 bits"), "{error}");
    assert_eq!(long(4, true, 3).unwrap().integers("key").unwrap(), Some(&[0; 3][..]));
    for (kind, list, length) in
        [(8, true, (1 << 24) + 1), (6, true, 1 << 30), (8, false, (1 << 28) + 1)]
    {
        let error = long(kind, list, length).unwrap_err().to_string();
        assert!(error.contains(&format!("`key` has a length of {length}, at most")), "{error}");
    }
}

#[test]
fn broken_files_are_errors() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 17] = [
        ("blocks.gguf", |b| b[0] = b'g', "expected `GGUF`"),
        ("blocks.gguf", |b| b[4] = 1, "of version 1, supported: 2 and 3"),
        // A file of the other byte order.
        ("blocks.gguf", |b| b[4..8].reverse(), "of version 50331648"),
        // Absurd numbers of tensors and settings, and a text as long as memory.
        ("blocks.gguf", |b| b[8..16].fill(0xff), "it is cut short"),
        ("blocks.gguf", |b| b[16..24].fill(0xff), "it is cut short"),
        ("blocks.gguf", |b| b[24..32].fill(0xff), "it is cut short"),
        ("blocks.gguf", |b| behind(b, "general.architecture", 0, &[99]), "has the value type 99"),
        (
            "byte_level.gguf",
            |b| behind(b, "tokenizer.ggml.merges", 4, &[9]),
            "has the value type 9",
        ),
        (
            "byte_level.gguf",
            |b| behind(b, "tokenizer.ggml.tokens", 8, &[0xff; 7]),
            "it is cut short: `tokenizer.ggml.tokens`",
        ),
        (
            "byte_level.gguf",
            |b| behind(b, "tokenizer.ggml.pre", 12, &[0xff]),
            "`tokenizer.ggml.pre` is not valid UTF-8",
        ),
        // Behind the name: number of axes, two lengths, type, offset.
        ("blocks.gguf", |b| behind(b, "Q2_K", 0, &[5]), "has 5 axes"),
        ("blocks.gguf", |b| behind(b, "Q2_K", 4, &[0xfe]), "whole blocks of 256 elements"),
        ("blocks.gguf", |b| behind(b, "Q2_K", 12, &[0xff; 8]), "does not consist of whole blocks"),
        ("blocks.gguf", |b| behind(b, "Q2_K", 20, &[20]), "has the element type 20"),
        ("blocks.gguf", |b| behind(b, "Q2_K", 20, &[20]), "Q4_K"),
        ("blocks.gguf", |b| behind(b, "Q2_K", 24, &[1]), "not a multiple of the alignment"),
        ("blocks.gguf", |b| behind(b, "Q3_K", 24, &[0; 8]), "within the tensor before it"),
    ];
    for (file, change, expected) in cases {
        let error = rejected(file, change);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let twice = rejected("blocks.gguf", |b| {
        let at = b.windows(4).position(|found| found == b"Q3_K").unwrap();
        b[at + 1] = b'2';
    });
    assert!(twice.ends_with("tensor `Q2_K` is there twice"), "{twice}");
    assert!(changed("blocks.gguf", |_| {}).is_ok());
}

#[test]
fn every_shorter_file_is_an_error() {
    let whole = std::fs::read(golden("gguf/blocks.gguf")).unwrap();
    for length in (0..whole.len() - 32).step_by(7) {
        let short = rejected("blocks.gguf", |bytes| bytes.truncate(length));
        assert!(short.contains("it is cut short"), "{length}: {short}");
    }
}

/// A file of the settings of a whole Llama, changed, and an embedding.
fn written(settings: &[(&str, GgufField)], factors: Option<&[f32]>) -> Result<String, Error> {
    let count = |key: &'static str, value| (key, GgufField::Count(value));
    let mut all = vec![
        ("general.architecture", GgufField::Text("llama".to_owned())),
        count("llama.embedding_length", 32),
        count("llama.attention.head_count", 4),
        count("llama.feed_forward_length", 64),
        count("llama.context_length", 128),
        count("llama.block_count", 1),
        ("llama.attention.layer_norm_rms_epsilon", GgufField::Float(1e-5)),
    ];
    for (key, value) in settings {
        all.retain(|(other, _)| other != key);
        all.push((key, value.clone()));
    }
    let zeros = HostTensor::from_f32(&[9, 32], &[0.0; 288]).unwrap();
    let mut tensors =
        [("token_embd.weight".to_owned(), zeros)].into_iter().collect::<BTreeMap<_, _>>();
    if let Some(factors) = factors {
        let factors = HostTensor::from_f32(&[factors.len()], factors).unwrap();
        tensors.insert("rope_freqs.weight".to_owned(), factors);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write_gguf(&path, &all, &tensors).unwrap();
    GgufModel::open(&path).map(|model| model.config_json().to_owned())
}

#[test]
fn other_models_are_rejected_by_key() {
    let text = |text: &str| GgufField::Text(text.to_owned());
    assert!(written(&[], None).unwrap().contains("\"num_key_value_heads\": 4"));
    for (key, value) in [
        ("general.architecture", text("gemma")),
        ("general.type", text("adapter")),
        ("llama.expert_count", GgufField::Count(8)),
        ("llama.attention.sliding_window", GgufField::Count(4096)),
        ("llama.rope.scaling.type", text("yarn")),
    ] {
        let error = written(&[(key, value)], None).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { key: found, .. } if found == key), "{error}");
    }
    for (key, value) in [
        ("llama.embedding_length", text("32")),
        ("llama.rope.dimension_count", GgufField::Count(4)),
        ("llama.attention.layer_norm_rms_epsilon", GgufField::Count(1)),
    ] {
        let error = written(&[(key, value)], None).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
    let error = written(&[("llama.attention.head_count", GgufField::Count(0))], None).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
    let error = written(&[], Some(&[1.0, 2.0, 3.0, 4.0])).unwrap_err();
    assert!(error.to_string().contains("rope_freqs.weight"), "{error}");
}

#[test]
fn other_tokenizers_are_rejected_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    let tokenizer = |text: &str, skip: usize, new: &[u8]| {
        let mut bytes = std::fs::read(golden("gguf/byte_level.gguf")).unwrap();
        behind(&mut bytes, text, skip, new);
        std::fs::write(&path, bytes).unwrap();
        GgufModel::open(&path).unwrap().tokenizer().unwrap_err()
    };
    // Behind a key: its type and length, then the text.
    for (key, new) in [("tokenizer.ggml.pre", "gpt-9"), ("tokenizer.ggml.model", "bert")] {
        let error = tokenizer(key, 12, new.as_bytes());
        assert!(matches!(&error, Error::Unsupported { key: found, .. } if found == key), "{error}");
    }
    let error = tokenizer("tokenizer.ggml.bos_token_id", 4, &[0, 0, 1]).to_string();
    assert!(error.contains("bos_token_id"), "{error}");
    let error = tokenizer("tokenizer.ggml.token_type", 16, &[7]).to_string();
    assert!(error.contains("token_type"), "{error}");
}

/// An update with values that tell every entry apart.
fn update(d_output: usize, rank: usize, d_input: usize, scaling: f64) -> PeftModule {
    let values = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let a = HostTensor::from_f32(&[rank, d_input], &values(rank * d_input, 0.7)).unwrap();
    let b = HostTensor::from_f32(&[d_output, rank], &values(rank * d_output, 1.3)).unwrap();
    PeftModule::lora(a, b, scaling, 3).unwrap()
}

fn adapter(modules: &[(&str, PeftModule)]) -> PeftAdapter {
    let targets = TargetModules::Names(vec!["q_proj".to_owned()]);
    PeftAdapter {
        config: PeftConfig::lora(3, 6.0, targets),
        modules: modules
            .iter()
            .map(|(path, module)| ((*path).to_owned(), module.clone()))
            .collect(),
        saved: BTreeMap::new(),
        ignored: Vec::new(),
    }
}

#[test]
fn an_adapter_is_added_by_llama_cpps_rule() {
    let base = model("sentencepiece.gguf");
    let store = base.weights().unwrap();
    // Scale times rank is 6 three times, and 1.2 once; no rank is left in one.
    let modules = [
        ("lm_head", update(692, 2, 32, 3.0)),
        ("model.layers.0.self_attn.q_proj", update(32, 3, 32, 2.0)),
        ("model.layers.1.self_attn.k_proj", update(16, 3, 32, 2.0)),
        ("model.layers.1.mlp.down_proj", update(32, 1, 64, 1.2)),
        ("model.layers.1.mlp.up_proj", update(64, 0, 32, 2.0)),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let written = write_gguf_adapter(&adapter(&modules), base.config(), "name", &path).unwrap();
    assert_eq!((written.lora_alpha, written.ranks.len()), (6.0, 4));
    assert_eq!(written.folded, ["model.layers.1.mlp.down_proj"]);
    assert_eq!(written.dropped, ["model.layers.1.mlp.up_proj"]);

    let file = GgufFile::open(&path).unwrap();
    for (key, expected) in
        [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "llama")]
    {
        assert_eq!(file.text(key).unwrap(), Some(expected));
    }
    assert_eq!(file.tensors().names().len(), 8);
    let alpha = file.float("adapter.lora.alpha").unwrap().unwrap();
    let own = GgufFile::open(golden("gguf/sentencepiece.gguf")).unwrap();
    for (name, stem, heads) in [
        ("lm_head", "output", None),
        ("model.layers.0.self_attn.q_proj", "blk.0.attn_q", Some(4)),
        ("model.layers.1.self_attn.k_proj", "blk.1.attn_k", Some(2)),
        ("model.layers.1.mlp.down_proj", "blk.1.ffn_down", None),
    ] {
        let read = |part: &str| file.tensors().read(&format!("{stem}.weight.{part}")).unwrap();
        let (a, b) = (read("lora_a"), read("lora_b"));
        let &[rank, d_input] = a.shape() else { panic!() };
        let (a, b) = (a.to_f64().unwrap(), b.to_f64().unwrap());
        // `get_scale`: alpha over the tensor's own rank. Rows are in llama.cpp's order, the base's as well.
        let mut found = own.tensors().read(&format!("{stem}.weight")).unwrap().to_f64().unwrap();
        for (row, out) in found.chunks_mut(d_input).enumerate() {
            for (column, value) in out.iter_mut().enumerate() {
                let sum: f64 = (0..rank).map(|k| b[row * rank + k] * a[k * d_input + column]).sum();
                *value += alpha / rank as f64 * sum;
            }
        }
        let module = &modules.iter().find(|(path, _)| *path == name).unwrap().1;
        let merged = module.merged(&store.read(&format!("{name}.weight")).unwrap()).unwrap();
        let merged = match heads {
            Some(heads) => {
                merged.select_rows(&rows_in_halves(merged.shape()[0], heads).unwrap()).unwrap()
            }
            None => merged,
        };
        for (found, expected) in found.iter().zip(merged.to_f64().unwrap()) {
            assert!(
                (found - expected).abs() <= 1e-5 * expected.abs().max(1.0),
                "{name}: {found} {expected}"
            );
        }
    }
    // The same bytes each time.
    let again = folder.path().join("again.gguf");
    write_gguf_adapter(&adapter(&modules), base.config(), "name", &again).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&again).unwrap());
}

#[test]
fn adapters_that_llama_cpp_cannot_take_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let tied = model("byte_level.gguf").config().clone();
    let query = ("model.layers.0.self_attn.q_proj", update(32, 3, 32, 2.0));
    let mut whole = adapter(std::slice::from_ref(&query));
    let bias = HostTensor::from_f32(&[1], &[0.0]).unwrap();
    whole.saved.insert("classifier.bias".to_owned(), bias);
    let name = query.0;
    for (adapter, expected) in [
        (adapter(&[("lm_head", update(680, 2, 32, 3.0)), query]), "it is the word embedding"),
        (adapter(&[(name, update(32, 0, 32, 2.0))]), "no module has a rank left"),
        (adapter(&[("model.layers.0.conv", update(32, 1, 32, 2.0))]), "no counterpart"),
        (adapter(&[(name, update(30, 1, 32, 2.0))]), "has 30 rows, which are not 4 heads"),
        (whole, "whole parameters (`classifier.bias`)"),
    ] {
        let error = write_gguf_adapter(&adapter, &tied, "name", &path).unwrap_err();
        assert!(matches!(&error, Error::Adapter(text) if text.contains(expected)), "{error}");
        assert!(!path.exists(), "{error}");
    }
}

#[test]
fn a_store_of_the_file_itself_keeps_its_names() {
    let store = WeightStore::open(golden("gguf/byte_level.gguf")).unwrap();
    assert!(store.contains("blk.0.attn_q.weight") && store.contains("token_embd.weight"));
    assert!(store.read("none").unwrap_err().to_string().ends_with("has no tensor `none`"));
}
