//! Classification in words, with the shipped language model.

use serde_json::{Value, json};

use crate::support::{Sandbox, assert_same_answers, difference, training, with};

/// Words that are single tokens of the shipped vocabulary behind any prompt.
const ANSWERS: &str = "--answers big,happy";
const TEMPLATE: &str = r"--template 'It said: {text}\nIt is'";

/// A training command for the language model.
fn worded(steps: usize, more: &str) -> String {
    training("out", steps, &with("--model @llama --max-length 40", more))
}

#[test]
fn a_language_model_is_trained_reloaded_and_asked_in_the_same_words() {
    let dir = Sandbox::new();
    let more = |answers: &str| {
        let pruning = "--set prune.log_alpha_threshold=1.8 --set prune.every=0.34";
        format!("{answers} {TEMPLATE} {pruning}")
    };
    dir.done(&worded(6, &more(ANSWERS)));

    let wording = json!({ "template": "It said: {text}\nIt is", "answers": ["big", "happy"] });
    let info = dir.json("out/adapter/lrvd_classifier.json");
    assert_eq!((&dir.json("out/settings.json")["wording"], &info["wording"]), (&wording, &wording));
    assert_eq!(info["goal"]["classes"], json!(["bad", "good"]));
    let peft = dir.json("out/adapter/adapter_config.json");
    assert_eq!((&peft["task_type"], &peft["modules_to_save"]), (&"CAUSAL_LM".into(), &Value::Null));
    // Two projections of five layers, and the head.
    let report = dir.done("inspect out --format json").json();
    assert_eq!(report["modules"].as_array().unwrap().len(), 11);
    assert!(report["pruned"].as_u64() > Some(0), "{report}");

    dir.done("eval out/adapter --data dev.csv --out again.jsonl --quiet");
    let before = dir.lines("out/predictions-last.jsonl");
    assert_eq!(before.len(), 12);
    assert_same_answers(&before, &dir.lines("again.jsonl"));
    let answers = dir.done("predict out/adapter --draws 3 'a fine film' 'a grim book'").lines();
    assert!(answers.iter().all(|a| ["good", "bad"].contains(&a["predicted"].as_str().unwrap())));
    assert!(difference(&answers[0]["probs"], &answers[1]["probs"]) > 0.0, "{answers:?}");
    // A finished run is not made again, and one in other words is another run.
    dir.done(&worded(6, &format!("{} --resume", more(ANSWERS))));
    dir.run(&worded(6, &format!("{} --resume", more("--answers big,little")))).rejected("wording");
}

#[test]
fn a_language_model_learns_numbers_by_a_separate_head() {
    let dir = Sandbox::new();
    for (name, rows) in [("train.tsv", 0..32), ("dev.tsv", 32..44)] {
        let row =
            |i: usize| format!("the {} cat\t{}\n", ["big", "little"][i % 2], (i % 2) as f64 + 0.1);
        dir.write(name, format!("text\tlabel\n{}", rows.map(row).collect::<String>()));
    }
    let more = format!(
        "--validation dev.tsv --regression {TEMPLATE} --set base_precision=bf16 --set head_learning_rate=0.05 \
         --learning-rate 0.02"
    );
    dir.done(&worded(60, &more));
    let info = dir.json("out/adapter/lrvd_classifier.json");
    let wording = json!({ "template": "It said: {text}\nIt is", "answers": [] });
    assert_eq!((&info["wording"], &info["goal"]["classes"]), (&wording, &json!([])));
    let peft = dir.json("out/adapter/adapter_config.json");
    let found = (&peft["task_type"], &peft["modules_to_save"]);
    assert_eq!(found, (&json!("SEQ_CLS"), &json!(["score"])));

    let before = dir.lines("out/predictions-last.jsonl");
    let score = |row: &Value| row["probs"]["0"][0].as_f64().unwrap();
    assert!(score(&before[1]) - score(&before[0]) > 0.5, "0.1 and 1.1 are told apart: {before:?}");
    dir.done("eval out --data dev.tsv --out again.jsonl");
    assert_same_answers(&before, &dir.lines("again.jsonl"));
    let answer = &dir.done("predict out 'the big cat' --draws 3").lines()[0];
    assert!(answer["predicted"].is_number() && answer["deviation"].is_number());

    dir.done("export out --to merged --out merged --verify");
    let config = dir.json("merged/config.json");
    let kind = (&config["architectures"][0], &config["problem_type"]);
    assert_eq!(kind, (&json!("LlamaForSequenceClassification"), &json!("regression")));
    let expected = "a GGUF adapter cannot hold the separate head";
    dir.rejected("export out --to gguf --out gguf", expected, "gguf");
    let none = "--validation dev.tsv --regression --out none --set 'target_modules=[\"lm_head\"]'";
    dir.rejected(&worded(2, none), "lm_head", "none");
}

#[test]
fn what_cannot_be_asked_in_words_is_named() {
    Sandbox::new().rejects(include_str!("rejected/words.txt"), |more| worded(2, more));
}

#[test]
fn a_glue_suite_asks_a_language_model() {
    let dir = Sandbox::new();
    let bench = |tasks: &str, more: &str| {
        format!(
            "bench glue --quiet --model @llama --out out --tasks {tasks} --steps 4 --seeds 1 --draws 2 \
             --methods lora,adalora,bayeslora {more}"
        )
    };
    let answers = "--set 'wording.answers=[\"big\", \"happy\"]'";
    for (command, expected) in [
        (
            bench("sst2", ""),
            "task `sst2`: the answer `negative` is 5 tokens after the prompt (`▁ne`",
        ),
        (
            bench("cola,sst2", answers),
            "setting `wording.answers` is set: it words one task, and several are run",
        ),
        (bench("rte", "--set wording.template={text}?"), "expected 1 for pairs of texts"),
        (format!("bench reasoning --out out {answers}"), "asked by the prompts of `prompt`"),
    ] {
        dir.rejected(&command, expected, "out");
    }
    let dry = |tasks: &str, more: &str| {
        dir.done(&bench(tasks, &format!("--dry-run --format json {more}"))).json()
    };
    assert_eq!(dry("stsb", "")["wording"]["stsb"]["answers"], json!([]));
    let plan = dry("sst2", answers);
    let wording = json!({
        "sst2": { "template": "Review: {text}\nSentiment:", "answers": ["big", "happy"] }
    });
    assert_eq!(plan["wording"], wording);
    let settings = (&plan["settings"]["max_length"], &plan["settings"]["learning_rate"]);
    assert_eq!(settings, (&128.into(), &1e-3.into()));
    let rows = "a good tale\t1\na bad tale\t0\n".repeat(12);
    for file in ["train.tsv", "dev.tsv"] {
        dir.write(&format!("data/SST-2/{file}"), format!("sentence\tlabel\n{rows}"));
    }
    dir.done(&bench("sst2", &format!("{answers} --data-dir data")));
    let results = dir.json("out/results.json");
    assert_eq!(results["config"]["wording"], wording);
    let note = results["data"]["sst2"]["note"].as_str().unwrap();
    let asked = r"asked as `Review: {text}\nSentiment:`, answered by `big`, `happy`";
    assert!(note.contains(asked), "{note}");
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for record in runs {
        let metrics = &record["checkpoints"]["last"]["metrics"]["0"];
        assert!(metrics["nll"].as_f64().unwrap().is_finite(), "{record}");
    }
}
