//! Files of llama.cpp: blocks, weights, configuration and tokenizer against what its Python package reads of them, and
//! broken files.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device};
use lrvd_burn::files::{GgufField, GgufFile, HostTensor, WeightStore, write_gguf};
use lrvd_burn::peft::{PeftAdapter, PeftConfig, PeftModule, TargetModules};
use lrvd_burn::sampling::Pass;
use lrvd_models::Error;
use lrvd_models::llama::LlamaForCausalLm;
use lrvd_models::llama::gguf::{GgufModel, rows_in_halves, write_gguf_adapter};
use lrvd_models::tokenizer::TextTokenizer;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{batch, close, golden, numbers};

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

#[rstest]
#[case("byte_level", 20, true)]
#[case("sentencepiece", 21, false)]
fn weights_have_hugging_faces_names_and_order(
    #[case] name: &str,
    #[case] tensors: usize,
    #[case] tied: bool,
) {
    let file = model(&format!("{name}.gguf"));
    let store = file.weights().unwrap();
    let expected = WeightStore::open(golden(&format!("gguf/{name}.safetensors"))).unwrap();
    assert_eq!(store.len(), tensors);
    for name in expected.names() {
        let (found, expected) = (store.read(name).unwrap(), expected.read(name).unwrap());
        let skipped = found.n_elements() - expected.n_elements();
        assert_eq!(found.to_f32().unwrap()[skipped..], expected.to_f32().unwrap(), "{name}");
    }
    let config = &file.config;
    assert_eq!(config.tie_word_embeddings, tied);
    assert_eq!((config.hidden_size, config.intermediate_size, config.head_dim), (32, 64, 8));
    let heads = (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads);
    assert_eq!(heads, (2, 4, 2));
    if tied {
        assert_eq!((config.rms_norm_eps, config.rope_theta), (1e-5, 500_000.0));
        assert_eq!((config.bos_token_id, config.pad_token_id), (Some(1), Some(0)));
        assert_eq!((config.vocab_size, &config.eos_token_ids[..]), (680, &[2][..]));
        assert!(config.rope_scaling.is_none());
    } else {
        assert_eq!((config.vocab_size, &config.eos_token_ids[..]), (692, &[2, 5][..]));
        let scaling = config.rope_scaling.unwrap();
        let factors = (scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor);
        assert_eq!(factors, (32.0, 1.0, 4.0));
        assert_eq!(scaling.original_max_position_embeddings, 8192);
    }
}

/// Names, the order of rows, which is Hugging Face's in both kinds of file, and the logits of transformers.
#[rstest]
#[case("qwen2", 26, 8)]
#[case("qwen3", 25, 16)]
fn qwens_are_read_as_transformers_reads_them(
    #[case] name: &str,
    #[case] tensors: usize,
    #[case] width: usize,
) {
    let file = model(&format!("{name}.gguf"));
    let (store, config) = (file.weights().unwrap(), &file.config);
    let expected = WeightStore::open(golden(&format!("gguf/{name}.safetensors"))).unwrap();
    assert_eq!((store.len(), config.family.model_type()), (tensors, name));
    assert_eq!((config.head_dim, config.num_key_value_heads), (width, 2));
    assert_eq!((config.attention_bias, config.head_norms()), (name == "qwen2", name == "qwen3"));
    assert!(!config.output_bias() && config.sliding_window.is_none());
    let device = Device::flex();
    let (model, loaded) =
        LlamaForCausalLm::from_pretrained(&store, config, &device, DType::F32).unwrap();
    assert_eq!(loaded.report.applied.len(), tensors);
    for name in expected.names() {
        let values = expected.read(name).unwrap().to_f64().unwrap();
        if name == "logits" {
            let input = batch(&[&[1, 7, 300, 2]], DType::F32);
            close(&numbers(model.last_logits(&input, &Pass::mean())), &values, 1e-4);
        } else {
            assert_eq!(store.read(name).unwrap().to_f64().unwrap(), values, "{name}");
        }
    }
}

/// The ids that the `tokenizers` library recorded for the vocabulary in the file, from it and from its texts as a folder.
#[rstest]
#[case("byte_level.gguf", "byte_level_bpe")]
#[case("sentencepiece.gguf", "llama2_spm_bpe")]
#[case("qwen2.gguf", "qwen2_bpe")]
fn tokenizers_give_the_recorded_ids(#[case] name: &str, #[case] case: &str) {
    let file = model(name);
    let (folder, texts) = (tempfile::tempdir().unwrap(), file.tokenizer_files().unwrap());
    std::fs::write(folder.path().join("tokenizer.json"), texts.tokenizer).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), texts.settings).unwrap();
    let text = std::fs::read(golden(&format!("tokenizers/{case}/expected.json"))).unwrap();
    let expected: Value = serde_json::from_slice(&text).unwrap();
    for tokenizer in [file.tokenizer().unwrap(), TextTokenizer::from_dir(folder.path()).unwrap()] {
        let special = tokenizer.special_tokens();
        assert_eq!((special.bos, special.eos), (Some(1), Some(2)));
        // A file says whether texts start and end with special tokens, and nothing of pairs.
        let plain =
            |item: &&Value| ["truncation", "padding", "pair"].iter().all(|k| item[k].is_null());
        let items: Vec<&Value> =
            expected["items"].as_array().unwrap().iter().filter(plain).collect();
        assert!(items.len() > 10, "{}", items.len());
        for item in items {
            let found = tokenizer.encode(item["text"].as_str().unwrap(), None, None).unwrap();
            assert_eq!(json!(found.get_ids()), item["ids"], "{case}: {}", item["name"]);
        }
    }
}

/// The bytes of a fixture with `change` applied, opened.
fn changed(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = std::fs::read(golden("gguf").join(name)).unwrap();
    change(&mut bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    std::fs::write(&path, bytes).unwrap();
    GgufFile::open(&path).unwrap_err().to_string()
}

/// Puts `new` behind the first occurrence of `text`, `skip` bytes further on.
fn behind(bytes: &mut [u8], text: &str, skip: usize, new: &[u8]) {
    let at = bytes.windows(text.len()).position(|found| found == text.as_bytes()).unwrap();
    let at = at + text.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// A list of values of the type `kind`, or a text, longer than any model has.
#[rstest]
#[case(8, true, (1 << 24) + 1)]
#[case(6, true, 1 << 30)]
#[case(8, false, (1 << 28) + 1)]
fn lists_that_no_model_has_are_not_kept(
    #[case] kind: u32,
    #[case] list: bool,
    #[case] length: u64,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    let counts = [0, 1, 3].map(u64::to_le_bytes).concat();
    let list: &[u8] = if list { &[9, 0, 0, 0] } else { &[] };
    let kind = kind.to_le_bytes();
    let parts = [b"GGUF\x03\0\0\0", &counts[..], b"key", list, &kind, &length.to_le_bytes()];
    std::fs::write(&path, parts.concat()).unwrap();
    // Zeros that take no room on the disk.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(100 + 8 * length).unwrap();
    let error = GgufFile::open(&path).unwrap_err().to_string();
    assert!(error.contains(&format!("`key` has a length of {length}, at most")), "{error}");
}

#[test]
fn broken_files_are_errors() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 18] = [
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
        (
            "blocks.gguf",
            |b| {
                let at = b.windows(4).position(|found| found == b"Q3_K").unwrap();
                b[at + 1] = b'2';
            },
            "tensor `Q2_K` is there twice",
        ),
    ];
    for (file, change, expected) in cases {
        let error = changed(file, change);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let whole = std::fs::read(golden("gguf/blocks.gguf")).unwrap();
    for length in (0..whole.len() - 32).step_by(7) {
        let short = changed("blocks.gguf", |bytes| bytes.truncate(length));
        assert!(short.contains("it is cut short"), "{length}: {short}");
    }
}

/// Settings of a Llama of one layer.
fn small_llama(hidden: u32, heads: u32) -> [(&'static str, GgufField); 7] {
    [
        ("general.architecture", GgufField::Text("llama".to_owned())),
        ("llama.embedding_length", GgufField::Count(hidden)),
        ("llama.attention.head_count", GgufField::Count(heads)),
        ("llama.feed_forward_length", GgufField::Count(64)),
        ("llama.context_length", GgufField::Count(128)),
        ("llama.block_count", GgufField::Count(1)),
        ("llama.attention.layer_norm_rms_epsilon", GgufField::Float(1e-5)),
    ]
}

#[test]
fn other_models_are_rejected_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let zeros =
        |shape: &[usize]| HostTensor::from_f32(shape, &vec![0.0; shape.iter().product()]).unwrap();
    let tensors = |extra: &str| {
        BTreeMap::from([
            ("token_embd.weight".to_owned(), zeros(&[9, 32])),
            (extra.to_owned(), zeros(&[4])),
        ])
    };
    let text = |text: &str| GgufField::Text(text.to_owned());
    let whole = small_llama(32, 4);
    write_gguf(&path, &whole, &tensors("more")).unwrap();
    let config = GgufModel::open(&path).unwrap().config_json;
    assert!(config.contains("\"num_key_value_heads\": 4"), "{config}");
    for (key, value) in [
        ("general.architecture", text("gemma")),
        ("general.type", text("adapter")),
        ("llama.expert_count", GgufField::Count(8)),
        ("general.architecture", text("qwen2moe")),
        ("llama.attention.sliding_window", GgufField::Count(4096)),
        ("llama.rope.scaling.type", text("yarn")),
        ("llama.embedding_length", text("32")),
        ("llama.rope.dimension_count", GgufField::Count(4)),
        ("llama.attention.layer_norm_rms_epsilon", GgufField::Count(1)),
        ("llama.attention.head_count", GgufField::Count(0)),
        ("rope_freqs.weight", text("a tensor")),
        ("split.count", GgufField::Count(2)),
    ] {
        let mut settings = whole.to_vec();
        settings.retain(|(other, _)| *other != key);
        settings.push((key, value));
        write_gguf(&path, &settings, &tensors(key)).unwrap();
        let error = GgufModel::open(&path).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// Behind a key are its type and length, then the text.
#[rstest]
#[case("tokenizer.ggml.pre", 12, b"gpt-9")]
#[case("tokenizer.ggml.model", 12, b"bert")]
#[case("tokenizer.ggml.bos_token_id", 4, &[0, 0, 1])]
#[case("tokenizer.ggml.token_type", 16, &[7])]
fn other_tokenizers_are_rejected_by_key(
    #[case] key: &str,
    #[case] skip: usize,
    #[case] new: &[u8],
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    let mut bytes = std::fs::read(golden("gguf/byte_level.gguf")).unwrap();
    behind(&mut bytes, key, skip, new);
    std::fs::write(&path, bytes).unwrap();
    let error = GgufModel::open(&path).unwrap().tokenizer().unwrap_err().to_string();
    assert!(error.contains(key.trim_start_matches("tokenizer.ggml.")), "{error}");
}

/// An update with values that tell every entry apart.
fn update(d_output: usize, rank: usize, d_input: usize, scaling: f64) -> PeftModule {
    let values = |n: usize, step: f32| (0..n).map(|i| (i as f32 * step).sin()).collect::<Vec<_>>();
    let a = HostTensor::from_f32(&[rank, d_input], &values(rank * d_input, 0.7)).unwrap();
    let b = HostTensor::from_f32(&[d_output, rank], &values(rank * d_output, 1.3)).unwrap();
    PeftModule::lora(a, b, scaling, 3).unwrap()
}

fn adapter(modules: &[(&str, PeftModule)]) -> PeftAdapter {
    let config = PeftConfig::lora(3, 6.0, TargetModules::Names(vec!["q_proj".to_owned()]));
    let modules = modules.iter().map(|(path, module)| ((*path).to_owned(), module.clone()));
    let (saved, ignored) = (BTreeMap::new(), Vec::new());
    PeftAdapter { config, modules: modules.collect(), saved, base: [].into(), ignored }
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
    let written = write_gguf_adapter(&adapter(&modules), &base.config, "name", &path).unwrap();
    assert_eq!((written.lora_alpha, written.ranks.len()), (6.0, 4));
    assert_eq!(written.folded, ["model.layers.1.mlp.down_proj"]);
    assert_eq!(written.dropped, ["model.layers.1.mlp.up_proj"]);

    let file = GgufFile::open(&path).unwrap();
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
        let rows = heads.map(|heads| rows_in_halves(merged.shape()[0], heads).unwrap());
        let merged = rows.map_or(merged.clone(), |rows| merged.select_rows(&rows).unwrap());
        close(&found, &merged.to_f64().unwrap(), 1e-5);
    }
}

/// Of a Qwen the rows of queries and keys stay as they are, and the file says whose adapter it is.
#[test]
fn an_adapter_of_a_qwen_keeps_its_rows() {
    let (base, folder) = (model("qwen2.gguf"), tempfile::tempdir().unwrap());
    let path = folder.path().join("adapter.gguf");
    let query = ("model.layers.0.self_attn.q_proj", update(32, 3, 32, 2.0));
    let one = adapter(std::slice::from_ref(&query));
    write_gguf_adapter(&one, &base.config, "name", &path).unwrap();
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.text("general.architecture").unwrap(), Some("qwen2"));
    let b = file.tensors().read("blk.0.attn_q.weight.lora_b").unwrap();
    assert_eq!(b.to_f64().unwrap(), query.1.b.to_f64().unwrap());
}

/// Of a Llama the biases of queries and keys have llama.cpp's order, as the weights have.
#[test]
fn biases_of_a_llama_are_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let bias: Vec<f32> = (0..8).map(|row| row as f32).collect();
    let tensors = [("token_embd.weight", &[1, 8][..]), ("blk.0.attn_q.bias", &[8])];
    let tensors =
        tensors.map(|(name, shape)| (name.to_owned(), HostTensor::from_f32(shape, &bias).unwrap()));
    write_gguf(&path, &small_llama(8, 2), &tensors.into()).unwrap();
    let file = GgufModel::open(&path).unwrap();
    assert!(file.config.attention_bias && file.config.output_bias());
    let read = file.weights().unwrap().read("model.layers.0.self_attn.q_proj.bias").unwrap();
    assert_eq!(read.to_f32().unwrap(), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
}

#[test]
fn adapters_that_llama_cpp_cannot_take_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.gguf");
    let tied = model("byte_level.gguf").config;
    let query = ("model.layers.0.self_attn.q_proj", update(32, 3, 32, 2.0));
    let mut whole = adapter(std::slice::from_ref(&query));
    let bias = HostTensor::from_f32(&[1], &[0.0]).unwrap();
    whole.saved.insert("classifier.bias".to_owned(), bias);
    let mut with_base = adapter(std::slice::from_ref(&query));
    let head = HostTensor::from_f32(&[1, 1], &[0.0]).unwrap();
    with_base.base.insert("lm_head.weight".to_owned(), head);
    let name = query.0;
    for (adapter, expected) in [
        (adapter(&[("lm_head", update(680, 2, 32, 3.0)), query]), "it is the word embedding"),
        (adapter(&[(name, update(32, 0, 32, 2.0))]), "no module has a rank left"),
        (adapter(&[("model.layers.0.conv", update(32, 1, 32, 2.0))]), "no counterpart"),
        (adapter(&[(name, update(30, 1, 32, 2.0))]), "has 30 rows, which are not 4 heads"),
        (whole, "whole parameters (`classifier.bias`)"),
        (with_base, "whole parameters (`lm_head.weight`)"),
    ] {
        let error = write_gguf_adapter(&adapter, &tied, "name", &path).unwrap_err();
        assert!(matches!(&error, Error::Adapter(text) if text.contains(expected)), "{error}");
        assert!(!path.exists(), "{error}");
    }
}
