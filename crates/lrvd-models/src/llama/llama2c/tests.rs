//! Tests of the conversion on files made by hand.
#![allow(clippy::unwrap_used)]

use PieceKind as K;

use super::*;

/// dim 8, hidden 3, 1 layer, 2 heads of 4 features, 1 key head, 5 tokens, length 2.
const SIZES: [i32; 7] = [8, 3, 1, 2, 1, 5, 2];

/// A file whose weights are 0, 1, 2, … in order.
fn file(sizes: [i32; 7], words: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    bytes.extend((0..words).flat_map(|i| (i as f32).to_le_bytes()));
    bytes
}

/// Weights of [`SIZES`]: 40 + 2·8 + 2·64 + 2·32 + 3·24 + 8 + 2·4.
const WORDS: usize = 336;

#[test]
fn tensors_are_cut_in_order_and_rotary_rows_are_reordered() {
    let checkpoint = Checkpoint::parse(&file(SIZES, WORDS)).unwrap();
    assert_eq!(checkpoint.tensors.len(), 11);
    let first = |name: &str| checkpoint.tensors[name].to_f32().unwrap()[0];
    assert_eq!(first("model.embed_tokens.weight"), 0.0);
    assert_eq!(first("model.layers.0.input_layernorm.weight"), 40.0);
    assert_eq!(first("model.layers.0.self_attn.v_proj.weight"), 144.0);
    assert_eq!(first("model.layers.0.post_attention_layernorm.weight"), 240.0);
    assert_eq!(first("model.layers.0.mlp.down_proj.weight"), 272.0);
    assert_eq!(first("model.layers.0.mlp.up_proj.weight"), 296.0);
    assert_eq!(first("model.norm.weight"), 320.0);
    // q: 8 rows of 8 from 48 on; rows 0 2 1 3 of the first head, 4 6 5 7 of the second.
    let q = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"].to_f32().unwrap();
    let rows: Vec<f32> = q.chunks(8).map(|row| (row[0] - 48.0) / 8.0).collect();
    assert_eq!(rows, [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    let k = checkpoint.tensors["model.layers.0.self_attn.k_proj.weight"].to_f32().unwrap();
    let rows: Vec<f32> = k.chunks(8).map(|row| (row[0] - 112.0) / 8.0).collect();
    assert_eq!(rows, [0.0, 2.0, 1.0, 3.0]);
}

#[test]
fn a_negative_vocabulary_has_a_head_behind_the_rotary_tables() {
    let mut sizes = SIZES;
    sizes[5] = -5;
    let checkpoint = Checkpoint::parse(&file(sizes, WORDS + 40)).unwrap();
    assert!(!checkpoint.header.shared_classifier);
    assert_eq!(checkpoint.tensors["lm_head.weight"].to_f32().unwrap()[0], WORDS as f32);
    assert!(checkpoint.header.config_json().contains("\"tie_word_embeddings\": false"));
}

#[test]
fn damaged_checkpoints_are_refused() {
    let whole = file(SIZES, WORDS);
    for end in [0, 27, 28, whole.len() - 4, whole.len() - 1] {
        let error = Checkpoint::parse(&whole[..end]).unwrap_err();
        assert!(matches!(error, Llama2cError::Length { .. }), "{end}: {error}");
    }
    let longer = [whole, vec![0; 4]].concat();
    assert!(matches!(Checkpoint::parse(&longer), Err(Llama2cError::Length { .. })));
    for (index, value, name) in [
        (0, 10, "dim"),
        (0, -8, "dim"),
        (2, 0, "n_layers"),
        (3, i32::MAX, "n_heads"),
        (4, 3, "n_kv_heads"),
        (5, i32::MIN, "vocab_size"),
    ] {
        let mut sizes = SIZES;
        sizes[index] = value;
        match Checkpoint::parse(&file(sizes, 4)) {
            Err(Llama2cError::Size { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let huge = [1 << 24, 1 << 24, 1 << 24, 2, 1, 1 << 24, 1 << 24];
    assert!(matches!(Checkpoint::parse(&file(huge, 4)), Err(Llama2cError::Length { .. })));
}

fn token_file(tokens: &[(&str, f32)]) -> Vec<u8> {
    let mut bytes = 9_i32.to_le_bytes().to_vec();
    for (text, score) in tokens {
        bytes.extend(score.to_le_bytes());
        bytes.extend((text.len() as i32).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

#[test]
fn tokens_get_their_kinds_and_their_space_marks() {
    let tokens =
        [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), ("<0x0A>", 0.0), (" a b", -1.5)];
    let bytes = token_file(&tokens);
    let model = parse_tokens(&bytes, 5).unwrap();
    let texts: Vec<&str> = model.pieces.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!(texts, ["<unk>", "<s>", "</s>", "<0x0A>", "\u{2581}a\u{2581}b"]);
    let kinds: Vec<PieceKind> = model.pieces.iter().map(|piece| piece.kind).collect();
    assert_eq!(kinds, [K::Unknown, K::Control, K::Control, K::Byte, K::Normal]);
    assert_eq!(model.pieces[4].score, -1.5);
    for end in 0..bytes.len() {
        assert!(parse_tokens(&bytes[..end], 5).is_err(), "{end}");
    }
    assert!(matches!(parse_tokens(&bytes, 4), Err(Llama2cError::Length { .. })));
    let twice = token_file(&[("<unk>", 0.0), ("", 0.0), ("", 0.0), ("a", -1.0), ("a", -2.0)]);
    assert!(matches!(parse_tokens(&twice, 5), Err(Llama2cError::Vocabulary(_))));
}
