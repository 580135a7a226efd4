//! Adapters for other programs: a merged model, llama.cpp, and bases that come as GGUF files.

use std::path::Path;

use serde_json::Value;

use crate::support::{
    difference, done, json_of, lines, model, rejected, replaced, run, text, train, write_data,
};

/// A training command for a language model that answers by these words.
fn worded(
    data: &[String; 2],
    out: &Path,
    model: &str,
    answers: &str,
    targets: &str,
) -> Vec<String> {
    let template = r"It said: {text}\nIt is";
    let targets = format!("target_modules={targets}");
    let more = ["--answers", answers, "--template", template, "--set", targets.as_str()];
    let arguments = replaced(&train(data, out, 4, &more), "--model", model);
    replaced(&arguments, "--max-length", "64")
}

/// Probabilities at the mean.
fn mean(folder: &str) -> Value {
    lines(&done(&["predict", folder, "--draws", "0", "a fine film"]).stdout)[0]["probs"].clone()
}

#[test]
fn an_encoder_is_merged_and_described() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let run_dir = dir.path().join("run");
    done(&train(&data, &run_dir, 8, &[]));
    let source = run_dir.display().to_string();
    let [one, two, three] = ["one", "two", "three"].map(|name| dir.path().join(name));
    let name = |path: &Path| path.display().to_string();
    let merge = |out: &Path, more: &[&str]| {
        run(&[&["export", "--to", "merged", &source, "--out", &name(out)], more].concat())
    };
    let report = merge(&one, &["--verify", "--format", "json"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    let report = report.json();
    assert!(report["difference"].as_f64().unwrap() < 1e-4, "{report}");
    assert_eq!((&report["modules"], &report["logits"]), (&24.into(), &12.into()));
    let config = json_of(&one.join("config.json"));
    assert_eq!(config["architectures"][0], "DebertaV2ForSequenceClassification");
    assert_eq!((&config["id2label"]["0"], &config["label2id"]["good"]), (&"bad".into(), &1.into()));
    assert!(one.join("tokenizer.json").is_file());
    // The merged folder is a separate base, with its head.
    let base = done(&["inspect", &name(&one), "--format", "json"]).json();
    assert_eq!(base["kind"], "base");
    assert_eq!(base["total_parameters"], report["parameters"]);

    // The card: the same text each time, with what was measured, and no place on this machine.
    let card = text(&one.join("README.md"));
    assert_eq!(merge(&two, &["--verify"]).code, 0);
    assert_eq!(text(&two.join("README.md")), card);
    let record = json_of(&run_dir.join("record.json"));
    let accuracy = record["checkpoints"]["last"]["metrics"]["0"]["accuracy"].as_f64().unwrap();
    let hash = json_of(&run_dir.join("settings.json"))["data"].as_object().unwrap().clone();
    for part in [
        "library_name: transformers".to_owned(),
        "- accuracy\n".to_owned(),
        format!("| 0 | {accuracy:.4} |"),
        "On 12 validation rows; one run, seed 5, 8 steps.".to_owned(),
        hash.values().next().unwrap().as_str().unwrap().to_owned(),
        "`lrvd export --to merged DIR --out OUT --verify --tolerance 1e-4`".to_owned(),
        "AutoModelForSequenceClassification".to_owned(),
    ] {
        assert!(card.contains(&part), "{part}: {card}");
    }
    assert!(!card.contains(&dir.path().display().to_string()), "{card}");

    let tight = merge(&three, &["--verify", "--tolerance", "1e-30"]);
    assert_eq!(tight.code, 1, "{}", tight.stderr);
    assert!(tight.stderr.contains("nothing was written"), "{}", tight.stderr);
    assert!(!three.exists() && merge(&one, &[]).stderr.contains("already exists"));
    let out = name(&three);
    for (more, expected) in [
        (&["--to", "gguf"][..], "which llama.cpp does not run"),
        (&["--to", "gguf", "--verify"], "`--verify` is for `--to merged` only"),
        (&["--to", "merged", "--layout", "uniform"], "`--layout` is for `--to peft` only"),
        (&["--to", "merged", "--cap-rank", "2"], "`--cap-rank` is for `--to peft` only"),
        (&["--to", "peft", "--model", "x"], "`--model` is for `--to merged` and `--to gguf` only"),
        (&["--to", "merged", "--model", "nowhere"], "model `nowhere`: no such folder"),
    ] {
        rejected(&[&["export", &source, "--out", &out], more].concat(), expected, &three);
    }
}

#[test]
fn a_language_model_goes_to_llama_cpp_or_is_merged() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let tied = model().with_file_name("stories260K").display().to_string();
    let [run_dir, head, merged, gguf] =
        ["run", "head", "merged", "gguf"].map(|name| dir.path().join(name));
    let name = |path: &Path| path.display().to_string();
    let modules = r#"["q_proj", "k_proj", "down_proj"]"#;
    done(&worded(&data, &run_dir, &tied, "big,happy", modules));
    let export = |to: &str, from: &Path, out: &Path, more: &[&str]| {
        run(&[&["export", "--to", to, &name(from), "--out", &name(out)], more].concat())
    };
    let report = export("gguf", &run_dir, &gguf, &["--format", "json"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    let report = report.json();
    // 16/3 over rank 3 everywhere: nothing is folded.
    assert_eq!((&report["modules"], &report["lora_alpha"]), (&15.into(), &16.0.into()));
    assert_eq!(report["folded"].as_array().map(Vec::len), Some(0));
    assert!(text(&gguf.join("README.md")).contains("--lora adapter.gguf"));
    assert!(gguf.join("adapter.gguf").is_file());

    // An adapted head that is the word embedding: merged with separate weights, an error by llama.cpp's rule.
    done(&worded(&data, &head, &tied, "big,happy", r#"["q_proj", "lm_head"]"#));
    let out = dir.path().join("none");
    rejected(
        &["export", "--to", "gguf", &name(&head), "--out", &name(&out)],
        "llama.cpp would adapt both",
        &out,
    );
    let report = export("merged", &head, &merged, &["--verify"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    assert!(report.stdout.contains("separate weights now"), "{}", report.stdout);
    assert_eq!(json_of(&merged.join("config.json"))["tie_word_embeddings"], false);
    let card = text(&merged.join("README.md"));
    assert!(card.contains("answered by `big`, `happy`"), "{card}");
}

#[test]
fn a_gguf_file_is_a_base_as_a_folder_is() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/gguf");
    let folder = dir.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(golden.join("byte_level.gguf"), folder.join("tiny.gguf")).unwrap();
    let [out, merged, again] = ["out", "merged", "again"].map(|name| dir.path().join(name));
    let name = |path: &Path| path.display().to_string();
    let base = done(&["inspect", &name(&folder.join("tiny.gguf")), "--format", "json"]).json();
    assert_eq!((&base["layers"], &base["vocab_size"]), (&2.into(), &680.into()));

    // A folder that holds nothing but the file.
    let modules = r#"["q_proj", "v_proj"]"#;
    done(&worded(&data, &out, &name(&folder), "is,a", modules));
    let info = json_of(&out.join("adapter/lrvd_classifier.json"));
    assert!(info["weights"]["tiny.gguf"].is_string(), "{info}");
    let merge = ["export", "--to", "merged", &name(&out), "--out", &name(&merged), "--verify"];
    done(&merge);
    // What was merged is a Hugging Face folder with the file's own tokenizer; the adapter on it is on another base.
    assert_eq!(json_of(&merged.join("config.json"))["vocab_size"], 680);
    assert!(merged.join("tokenizer_config.json").is_file());
    let other = ["predict", &name(&out), "--model", &name(&merged), "a"];
    let other = run(&other);
    other.rejected("tiny.gguf");
    // The folder and the file in it are one model.
    done(&worded(&data, &again, &name(&folder.join("tiny.gguf")), "is,a", modules));
    assert!(difference(&mean(&name(&out)), &mean(&name(&again))) <= 1e-6);

    std::fs::copy(golden.join("sentencepiece.gguf"), folder.join("other.gguf")).unwrap();
    let broken = dir.path().join("broken.gguf");
    std::fs::write(&broken, b"GGUF\x03").unwrap();
    let none = dir.path().join("none");
    for (model, expected) in [
        (&folder, "more than one GGUF file: name one of"),
        (&broken, "is not a usable GGUF file: it is cut short"),
        (&golden.join("blocks.gguf"), "has no `llama.embedding_length`"),
    ] {
        let arguments = worded(&data, &none, &name(model), "is,a", modules);
        rejected(&arguments, expected, &none);
    }
    let text = run(&["inspect", &name(&broken)]);
    text.rejected("cut short");
}
