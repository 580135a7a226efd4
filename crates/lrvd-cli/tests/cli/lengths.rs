//! Texts longer than a model has positions for.

use serde_json::{Value, json};

use crate::support::{Sandbox, model, training};

/// The shipped encoder with a vector for each of its first 24 positions, in `absolute`.
fn write_absolute(dir: &Sandbox) {
    dir.copy(&model(), "absolute");
    dir.edit("absolute/config.json", |config| {
        config["position_biased_input"] = true.into();
        config["max_position_embeddings"] = 24.into();
    });
    // Safetensors: length of the header, header, data.
    let bytes = dir.bytes("absolute/model.safetensors");
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let (shape, size) = ([24, 192], 24 * 192 * 4);
    header["deberta.embeddings.position_embeddings.weight"] =
        json!({ "dtype": "F32", "shape": shape, "data_offsets": [data.len(), data.len() + size] });
    let header = header.to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, data, &vec![0; size]].concat();
    dir.write("absolute/model.safetensors", file);
}

#[test]
fn texts_have_at_most_as_many_tokens_as_the_model_has_positions() {
    let dir = Sandbox::new();
    write_absolute(&dir);
    let long = "--model absolute --max-length 25";
    let check = format!("data check --train train.tsv {long}");
    for command in [&training("out", 4, long), &check] {
        let expected = "`max_length` is 25, but the model has positions for 24 tokens";
        dir.rejected(command, expected, "out");
    }
    dir.train("out", 4, "--model absolute --max-length 24");

    // A description that allows more, as one that was edited or made before may.
    let predict = format!(
        "predict out '{}' --draws 0 --format json --allow-changed",
        "a fine film ".repeat(30)
    );
    let cut = dir.done(&predict);
    assert!(!cut.stderr.contains("positions"), "{}", cut.stderr);
    dir.edit("out/adapter/lrvd_classifier.json", |info| info["max_length"] = 600.into());
    let found = dir.done(&predict);
    assert_eq!(found.json()["predictions"], cut.json()["predictions"]);
    let words = "texts have up to 600 tokens, but the model has positions for 24";
    assert!(found.stderr.contains(words), "{}", found.stderr);
}
