//! Adapters for other programs: a merged model, llama.cpp, and bases that come as GGUF files.

use serde_json::Value;

use crate::support::{Sandbox, difference, golden, training, with};

/// A training command for a language model that answers in words.
fn worded(out: &str, modules: &str, more: &str) -> String {
    let usual = format!(
        "--model @llama --max-length 64 --answers big,happy --set 'target_modules={modules}'"
    );
    training(out, 4, &format!("{} --template 'It said: {{text}}\\nIt is'", with(&usual, more)))
}

#[test]
fn an_encoder_is_merged_and_described() {
    let dir = Sandbox::new();
    dir.train("run", 8, "");
    let merge =
        |out: &str, more: &str| dir.run(&format!("export --to merged run --out {out} {more}"));
    let report = merge("one", "--verify --format json").json();
    assert!(report["difference"].as_f64().unwrap() < 1e-4, "{report}");
    assert_eq!((&report["modules"], &report["logits"]), (&24.into(), &12.into()));
    let config = dir.json("one/config.json");
    assert_eq!(config["architectures"][0], "DebertaV2ForSequenceClassification");
    assert_eq!((&config["id2label"]["0"], &config["label2id"]["good"]), (&"bad".into(), &1.into()));
    assert!(dir.exists("one/tokenizer.json"));
    // The merged folder is a separate base, with its head.
    let base = dir.done("inspect one --format json").json();
    assert_eq!((&base["kind"], &base["total_parameters"]), (&"base".into(), &report["parameters"]));

    // The card: the same text each time, with what was measured, and no place on this machine.
    let card = dir.text("one/README.md");
    assert_eq!(merge("two", "--verify").code, 0);
    assert_eq!(dir.text("two/README.md"), card);
    let record = dir.json("run/record.json");
    let accuracy = record["checkpoints"]["last"]["metrics"]["0"]["accuracy"].as_f64().unwrap();
    let hash = dir.json("run/settings.json")["data"].as_object().unwrap().clone();
    for part in [
        "library_name: transformers",
        "- accuracy\n",
        &format!("| 0 | {accuracy:.4} |"),
        "On 12 validation rows; one run, seed 5, 8 steps.",
        hash.values().next().unwrap().as_str().unwrap(),
        "`lrvd export --to merged DIR --out OUT --verify --tolerance 1e-4`",
        "AutoModelForSequenceClassification",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert!(!card.contains(&dir.name("")), "{card}");

    let tight = merge("three", "--verify --tolerance 1e-30");
    assert_eq!(tight.code, 1, "{}", tight.stderr);
    assert!(tight.stderr.contains("nothing was written"), "{}", tight.stderr);
    assert!(!dir.exists("three") && merge("one", "").stderr.contains("already exists"));
    dir.rejects(include_str!("rejected/exports.txt"), |more| {
        format!("export run --out out {more}")
    });
}

#[test]
fn a_language_model_goes_to_llama_cpp_or_is_merged() {
    let dir = Sandbox::new();
    dir.done(&worded("run", r#"["q_proj", "k_proj", "down_proj"]"#, ""));
    let report = dir.done("export --to gguf run --out gguf --format json").json();
    // 16/3 over rank 3 everywhere: nothing is folded.
    assert_eq!((&report["modules"], &report["lora_alpha"]), (&15.into(), &16.0.into()));
    assert_eq!(report["folded"].as_array().map(Vec::len), Some(0));
    assert!(dir.text("gguf/README.md").contains("--lora adapter.gguf"));
    assert!(dir.exists("gguf/adapter.gguf"));

    // An adapted head that is the word embedding: merged with separate weights, an error by llama.cpp's rule.
    dir.done(&worded("head", r#"["q_proj", "lm_head"]"#, ""));
    let expected = "llama.cpp would adapt both";
    dir.rejected("export --to gguf head --out none", expected, "none");
    let report = dir.done("export --to merged head --out merged --verify").stdout;
    assert!(report.contains("separate weights now"), "{report}");
    assert_eq!(dir.json("merged/config.json")["tie_word_embeddings"], false);
    let card = dir.text("merged/README.md");
    assert!(card.contains("answered by `big`, `happy`"), "{card}");
}

#[test]
fn a_gguf_file_is_a_base_as_a_folder_is() {
    let dir = Sandbox::new();
    let copy =
        |from: &str, to: &str| dir.write(to, std::fs::read(golden("gguf").join(from)).unwrap());
    copy("byte_level.gguf", "model/tiny.gguf");
    let base = dir.done("inspect model/tiny.gguf --format json").json();
    assert_eq!((&base["layers"], &base["vocab_size"]), (&2.into(), &680.into()));

    // A folder that holds nothing but the file.
    let on = |model: &str, out: &str| {
        worded(out, r#"["q_proj", "v_proj"]"#, &format!("--answers is,a --model {model}"))
    };
    dir.done(&on("model", "out"));
    let info = dir.json("out/adapter/lrvd_classifier.json");
    assert!(info["weights"]["tiny.gguf"].is_string(), "{info}");
    dir.done("export --to merged out --out merged --verify");
    // What was merged is a Hugging Face folder with the file's own tokenizer; the adapter on it is on another base.
    assert_eq!(dir.json("merged/config.json")["vocab_size"], 680);
    assert!(dir.exists("merged/tokenizer_config.json"));
    dir.run("predict out --model merged a").rejected("tiny.gguf");
    // The folder and the file in it are one model.
    dir.done(&on("model/tiny.gguf", "again"));
    let mean = |out: &str| -> Value {
        dir.done(&format!("predict {out} --draws 0 'a fine film'")).lines()[0]["probs"].take()
    };
    assert!(difference(&mean("out"), &mean("again")) <= 1e-6);

    copy("sentencepiece.gguf", "model/other.gguf");
    copy("blocks.gguf", "blocks.gguf");
    dir.write("broken.gguf", b"GGUF\x03");
    for (model, expected) in [
        ("model", "more than one GGUF file: name one of"),
        ("broken.gguf", "is not a usable GGUF file: it is cut short"),
        ("blocks.gguf", "has no `llama.embedding_length`"),
    ] {
        dir.rejected(&on(model, "none"), expected, "none");
    }
    dir.run("inspect broken.gguf").rejected("cut short");
}
