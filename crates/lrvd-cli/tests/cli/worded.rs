//! Classification in words, with the shipped language model.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    difference, done, json_of, lines, model, rejected, replaced, run, train, write_data,
};

/// Words that are single tokens of the shipped vocabulary behind any prompt.
const ANSWERS: [&str; 2] = ["--answers", "big,happy"];
const TEMPLATE: [&str; 2] = ["--template", r"It said: {text}\nIt is"];

fn llama() -> String {
    model().with_file_name("stories260K").display().to_string()
}

/// A training command for the language model.
fn worded(data: &[String; 2], out: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let arguments = replaced(&train(data, out, steps, more), "--model", &llama());
    replaced(&arguments, "--max-length", "40")
}

#[test]
fn a_language_model_is_trained_reloaded_and_asked_in_the_same_words() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let pruning = ["--set", "prune.log_alpha_threshold=1.8", "--set", "prune.every=0.34"];
    let more = [&ANSWERS[..], &TEMPLATE, &pruning].concat();
    let arguments = worded(&data, &out, 6, &more);
    done(&arguments);

    let wording = json!({ "template": "It said: {text}\nIt is", "answers": ["big", "happy"] });
    let info = json_of(&out.join("adapter/lrvd_classifier.json"));
    assert_eq!(
        (&json_of(&out.join("settings.json"))["wording"], &info["wording"]),
        (&wording, &wording)
    );
    assert_eq!(info["goal"]["classes"], json!(["bad", "good"]));
    let peft = json_of(&out.join("adapter/adapter_config.json"));
    assert_eq!((&peft["task_type"], &peft["modules_to_save"]), (&"CAUSAL_LM".into(), &Value::Null));
    // Two projections of five layers, and the head.
    let report = done(&["inspect", &out.display().to_string(), "--format", "json"]).json();
    assert_eq!(report["modules"].as_array().unwrap().len(), 11);
    assert!(report["pruned"].as_u64() > Some(0), "{report}");

    let adapter = out.join("adapter").display().to_string();
    let again = dir.path().join("again.jsonl");
    let again_name = again.display().to_string();
    done(&["eval", &adapter, "--data", &data[1], "--out", &again_name, "--force", "--quiet"]);
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (before, after) = (text(&out.join("predictions-last.jsonl")), text(&again));
    let (before, after) = (lines(&before), lines(&after));
    assert_eq!((before.len(), after.len()), (12, 12));
    for (b, a) in before.iter().zip(&after) {
        for draws in ["0", "3"] {
            assert!(difference(&b["probs"][draws], &a["probs"][draws]) <= 1e-6, "{b} {a}");
        }
    }
    let answers = done(&["predict", &adapter, "--draws", "3", "a fine film", "a grim book"]).stdout;
    let answers = lines(&answers);
    assert!(answers.iter().all(|a| ["good", "bad"].contains(&a["predicted"].as_str().unwrap())));
    assert!(answers[0]["probs"] != answers[1]["probs"], "{answers:?}");
    // A finished run is not made again, and one in other words is another run.
    done(&[&arguments[..], &["--resume".to_owned()]].concat());
    let other = replaced(&arguments, "--answers", "big,little");
    let other = run(&[&other[..], &["--resume".to_owned()]].concat());
    other.rejected("wording");
}

#[test]
fn a_language_model_learns_numbers_by_a_head_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let data = [("train.tsv", 0..32), ("dev.tsv", 32..44)].map(|(name, rows)| {
        let row =
            |i: usize| format!("the {} cat\t{}\n", ["big", "little"][i % 2], (i % 2) as f64 + 0.1);
        let file = dir.path().join(name);
        std::fs::write(&file, format!("text\tlabel\n{}", rows.map(row).collect::<String>()))
            .unwrap();
        file.display().to_string()
    });
    let out = dir.path().join("out");
    let precision = ["--set", "base_precision=bf16"];
    let rates = ["--set", "head_learning_rate=0.05", "--learning-rate", "0.02"];
    let more = [&["--regression"], &TEMPLATE[..], &precision, &rates].concat();
    done(&worded(&data, &out, 60, &more));
    let info = json_of(&out.join("adapter/lrvd_classifier.json"));
    let wording = json!({ "template": "It said: {text}\nIt is", "answers": [] });
    assert_eq!((&info["wording"], &info["goal"]["classes"]), (&wording, &json!([])));
    let peft = json_of(&out.join("adapter/adapter_config.json"));
    assert_eq!(
        (&peft["task_type"], &peft["modules_to_save"]),
        (&json!("SEQ_CLS"), &json!(["score"]))
    );

    let text = |path: &Path| lines(&std::fs::read_to_string(path).unwrap());
    let before = text(&out.join("predictions-last.jsonl"));
    let score = |row: &Value| row["probs"]["0"][0].as_f64().unwrap();
    let gap = score(&before[1]) - score(&before[0]);
    assert!(gap > 0.5, "0.1 and 1.1 are told apart: {before:?}");
    let folder = out.display().to_string();
    let again = dir.path().join("again.jsonl");
    done(&["eval", &folder, "--data", &data[1], "--out", &again.display().to_string(), "--force"]);
    for (b, a) in before.iter().zip(&text(&again)) {
        for draws in ["0", "3"] {
            assert!(difference(&b["probs"][draws], &a["probs"][draws]) <= 1e-6, "{b} {a}");
        }
    }
    let answers = lines(&done(&["predict", &folder, "the big cat", "--draws", "3"]).stdout);
    assert!(answers[0]["predicted"].is_number() && answers[0]["deviation"].is_number());

    let export = |to: &str, more: &[&str]| {
        let target = dir.path().join(to).display().to_string();
        run(&[&["export", &folder, "--to", to, "--out", &target], more].concat())
    };
    assert_eq!(export("merged", &["--verify"]).code, 0);
    let config = json_of(&dir.path().join("merged/config.json"));
    let kind = (&config["architectures"][0], &config["problem_type"]);
    assert_eq!(kind, (&json!("LlamaForSequenceClassification"), &json!("regression")));
    export("gguf", &[]).rejected("a GGUF adapter cannot hold the separate head");
    assert!(!dir.path().join("gguf").exists());
    let none = worded(
        &data,
        &dir.path().join("none"),
        2,
        &["--regression", "--set", "target_modules=[\"lm_head\"]"],
    );
    run(&none).rejected("lm_head");
}

#[test]
fn what_cannot_be_asked_in_words_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let rejected = |arguments: &[String], expected: &str| rejected(arguments, expected, &out);
    for (more, expected) in [
        (
            &["--answers", "big,negative"][..],
            "the answer `negative` is 5 tokens after the prompt (`▁ne`, `g`",
        ),
        (
            &["--answers", "big,big"],
            "the answers `big` and `big` are both the token `▁big` (id 370)",
        ),
        (
            &["--answers", "big"],
            "1 words in `wording.answers`, expected 2: one each for `bad`, `good`",
        ),
        (&["--template", "{text} {pair}:"], "it has `{pair}` 1 times, expected 0 for single texts"),
        (&["--template", "{sentence}"], "it has `{text}` 0 times"),
        (&["--template", "{text}: ", "--answers", "big,it"], "ends in white space"),
        (&["--set", "base_precision=f8"], "base_precision"),
    ] {
        rejected(&worded(&data, &out, 2, more), expected);
    }
    let short = worded(&data, &out, 2, &[&ANSWERS[..], &TEMPLATE].concat());
    rejected(
        &replaced(&short, "--max-length", "8"),
        "tokens without its texts, but `max_length` is 8",
    );
    let encoder = train(&data, &out, 2, &ANSWERS);
    rejected(&encoder, "`wording.answers` words the prompt of a language model");
}

#[test]
fn a_glue_suite_asks_a_language_model() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (name, model) = (out.display().to_string(), llama());
    let bench = |tasks: &'static str, more: &[&str]| {
        let fixed =
            ["bench", "glue", "--quiet", "--model", &model, "--out", &name, "--tasks", tasks];
        let short =
            ["--steps", "4", "--seeds", "1", "--draws", "2", "--methods", "lora,adalora,bayeslora"];
        run(&[&fixed[..], &short, more].concat())
    };
    let answers = ["--set", "wording.answers=[\"big\", \"happy\"]"];
    for (tasks, more, expected) in [
        ("sst2", &[][..], "task `sst2`: the answer `negative` is 5 tokens after the prompt (`▁ne`"),
        (
            "cola,sst2",
            &answers,
            "setting `wording.answers` is set: it words one task, and several are run",
        ),
        ("rte", &["--set", "wording.template={text}?"], "expected 1 for pairs of texts"),
    ] {
        let found = bench(tasks, more);
        found.rejected(expected);
        assert!(!out.exists(), "{expected}");
    }
    let reasoning = ["bench", "reasoning", "--out", &name, answers[0], answers[1]];
    assert!(run(&reasoning).stderr.contains("asked by the prompts of `prompt`"));
    let plan = bench("stsb", &["--dry-run", "--format", "json"]).json();
    assert_eq!(plan["wording"]["stsb"]["answers"], json!([]), "{plan}");
    let plan = bench("sst2", &[&answers[..], &["--dry-run", "--format", "json"]].concat()).json();
    let wording = json!({
        "sst2": { "template": "Review: {text}\nSentiment:", "answers": ["big", "happy"] }
    });
    assert_eq!(plan["wording"], wording);
    assert_eq!(
        (&plan["settings"]["max_length"], &plan["settings"]["learning_rate"]),
        (&128.into(), &1e-3.into())
    );
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("SST-2")).unwrap();
    let rows = "a good tale\t1\na bad tale\t0\n".repeat(12);
    for file in ["train.tsv", "dev.tsv"] {
        std::fs::write(data.join("SST-2").join(file), format!("sentence\tlabel\n{rows}")).unwrap();
    }
    let folder = data.display().to_string();
    let made = bench("sst2", &[&answers[..], &["--data-dir", &folder]].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
    let results = json_of(&out.join("results.json"));
    assert_eq!(results["config"]["wording"], wording);
    let note = results["data"]["sst2"]["note"].as_str().unwrap();
    assert!(
        note.contains(r"asked as `Review: {text}\nSentiment:`, answered by `big`, `happy`"),
        "{note}"
    );
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for record in runs {
        let metrics = &record["checkpoints"]["last"]["metrics"]["0"];
        assert!(metrics["nll"].as_f64().unwrap().is_finite(), "{record}");
    }
}
