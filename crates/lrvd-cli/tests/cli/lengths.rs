//! Texts longer than a model has positions for.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{done, model, rejected, replaced, run, train, write_data};

/// The shipped encoder with a vector for each of its first 24 positions.
fn absolute(dir: &Path) -> PathBuf {
    let folder = dir.join("absolute");
    std::fs::create_dir(&folder).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(model().join(file), folder.join(file)).unwrap();
    }
    let config = std::fs::read(model().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["position_biased_input"] = true.into();
    config["max_position_embeddings"] = 24.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    // Safetensors: length of the header, header, data.
    let bytes = std::fs::read(model().join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let (shape, size) = ([24, 192], 24 * 192 * 4);
    header["deberta.embeddings.position_embeddings.weight"] =
        json!({ "dtype": "F32", "shape": shape, "data_offsets": [data.len(), data.len() + size] });
    let header = header.to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, data, &vec![0; size]].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    folder
}

#[test]
fn texts_have_at_most_as_many_tokens_as_the_model_has_positions() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (write_data(dir.path()), dir.path().join("out"));
    let folder = absolute(dir.path()).display().to_string();
    let own = replaced(&train(&data, &out, 4, &[]), "--model", &folder);
    let expected = "`max_length` is 25, but the model has positions for 24 tokens";
    rejected(&replaced(&own, "--max-length", "25"), expected, &out);
    let check = ["data", "check", "--train", &data[0], "--model", &folder, "--max-length", "25"];
    rejected(&check, expected, &out);
    done(&replaced(&own, "--max-length", "24"));

    // A description that allows more, as one that was edited or made before may.
    let long = "a fine film ".repeat(30);
    let predicted = |name: &str| {
        let asked = ["predict", name, &long, "--draws", "0", "--format", "json"];
        let output = run(&[&asked[..], &["--allow-changed"]].concat());
        assert_eq!(output.code, 0, "{}", output.stderr);
        (output.json()["predictions"].clone(), output.stderr)
    };
    let name = out.display().to_string();
    let (cut, silence) = predicted(&name);
    assert!(!silence.contains("positions"), "{silence}");
    let file = out.join("adapter/lrvd_classifier.json");
    let mut info: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    info["max_length"] = 600.into();
    std::fs::write(&file, info.to_string()).unwrap();
    let (found, note) = predicted(&name);
    assert_eq!(found, cut);
    let words = "texts have up to 600 tokens, but the model has positions for 24";
    assert!(note.contains(words), "{note}");
}
