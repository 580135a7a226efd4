//! `lrvd bench`: from files to tables.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Sandbox, llama, numbers, with};

/// Arguments of a two-step suite into `out`, too short for held-out rows to choose anything.
fn suite(suite: &str, tasks: &str, methods: &str, out: &str, more: &str) -> String {
    let usual = format!(
        "bench {suite} --tasks {tasks} --methods {methods} --out {out} --quiet --steps 2 --seeds 1 --draws 2,3 \
         --preset constant-weight"
    );
    with(&usual, more)
}

/// Records by method.
fn records(dir: &Sandbox, out: &str) -> BTreeMap<String, Value> {
    let results = dir.json(&format!("{out}/results.json"));
    let runs = results["runs"].as_array().unwrap();
    runs.iter().map(|run| (run["method"].as_str().unwrap().to_owned(), run.clone())).collect()
}

/// The most probable class.
fn best(p: &[f64]) -> usize {
    (0..p.len()).fold(0, |best, i| if p[i] > p[best] { i } else { best })
}

/// What a suite of questions keeps answers a file of the same questions as the suite did.
fn kept_questions(dir: &Sandbox) {
    let own = dir.lines("out/data/OpenBookQA/dev.jsonl").into_iter().map(|row| {
        let choices = row["question"]["choices"].as_array().unwrap().iter();
        let choices: Vec<&Value> = choices.map(|choice| &choice["text"]).collect();
        let (question, answer) = (&row["question"]["stem"], &row["answerKey"]);
        json!({ "question": question, "choices": choices, "answer": answer }).to_string()
    });
    dir.write("questions.jsonl", own.collect::<Vec<_>>().join("\n"));
    for (method, k) in [("lora", "0"), ("lora+ts", "0"), ("bayeslora", "3")] {
        let run = format!("out/runs/obqa/{method}/seed-1");
        dir.done(&format!("eval {run} --data questions.jsonl --out answers.jsonl --force"));
        let then = dir.lines(&format!("{run}/predictions-last.jsonl"));
        let now = dir.lines("answers.jsonl");
        assert!(then.len() > 10 && then.len() <= now.len(), "{method}");
        for (a, b) in then.iter().zip(&now) {
            assert_eq!((&a["label"], &a["probs"][k]), (&b["label"], &b["probs"][k]), "{method}");
        }
        dir.done(&format!("inspect {run}"));
    }
    assert!(!dir.exists("out/runs/obqa/laplace/seed-1/adapter"));
}

#[test]
fn a_reasoning_suite_trains_scores_and_keeps_what_it_found() {
    let dir = Sandbox::new();
    let command = suite("reasoning", "obqa", "lora,lora+ts,laplace,ens-3+ts,bayeslora", "out", "");
    let printed = dir.done(&command).stdout;
    for part in ["LoRA", "LoRA+TS", "LAP", "ENS-3+TS", "BayesLoRA", "OBQA"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    kept_questions(&dir);
    let records = records(&dir, "out");
    assert_eq!(records.len(), 5);
    let metrics = |method: &str| records[method]["checkpoints"]["last"]["metrics"].clone();
    let draws = |method: &str| -> Vec<String> {
        metrics(method).as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(draws("BayesLoRA"), ["0", "2", "3"]);
    assert_eq!(draws("LAP"), ["0"]);
    // Both of ARC are in the generated data; an ensemble is asked too.
    for method in ["BayesLoRA", "ENS-3+TS"] {
        for set in ["arc-e", "arc-c"] {
            let recorded = &records[method]["ood"][set]["0"];
            let auroc = recorded["auroc_entropy"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&auroc), "{method} {set}: {auroc}");
            // By ARC's own five letters, which anyone can recompute; the model was trained on four.
            let folder = format!("out/runs/obqa/{}/seed-1", method.to_lowercase());
            let answers = dir.lines(&format!("{folder}/predictions-last-{set}-letters.jsonl"));
            let is_right = |line: &&Value| {
                let p = numbers(&line["probs"]["0"]);
                assert_eq!(p.len(), 5, "{method} {set}");
                line["label"].as_f64() == Some(best(&p) as f64)
            };
            let right = answers.iter().filter(is_right).count() as f64 / answers.len() as f64;
            assert!((recorded["accuracy"].as_f64().unwrap() - right).abs() < 1e-12);
            assert!(recorded["nll"].as_f64().unwrap() > 0.0 && recorded["ece"].is_number());
        }
    }
    // The curvature of Laplace is that of the four trained answers.
    assert!(records["LAP"]["ood"]["arc-e"]["0"]["accuracy"].is_null());
    assert!(records["ENS-3+TS"]["ood"]["arc-e"]["0"]["auroc_mutual_information"].is_number());

    // Anyone can recompute the metrics from the predictions.
    let folder = "out/runs/obqa/bayeslora/seed-1";
    let answers = dir.lines(&format!("{folder}/predictions-last.jsonl"));
    assert_eq!(answers.len(), 200);
    for k in ["0", "2", "3"] {
        let mean = |of: &dyn Fn(&[f64], usize) -> f64| {
            let one = |line: &Value| {
                of(&numbers(&line["probs"][k]), line["label"].as_f64().unwrap() as usize)
            };
            answers.iter().map(one).sum::<f64>() / answers.len() as f64
        };
        let target = |is: bool| f64::from(u8::from(is));
        let brier = |p: &[f64], label: usize| {
            p.iter().enumerate().map(|(i, p)| (p - target(i == label)).powi(2)).sum()
        };
        for (name, expected) in [
            ("accuracy", mean(&|p, label| target(best(p) == label))),
            ("nll", mean(&|p, label| -p[label].ln())),
            ("brier", mean(&brier)),
        ] {
            let recorded = metrics("BayesLoRA")[k][name].as_f64().unwrap();
            assert!((recorded - expected).abs() < 1e-9, "{name} at {k}: {recorded} {expected}");
        }
    }
    assert!(dir.exists(&format!("{folder}/predictions-last-arc-c.jsonl")));

    // What is finished stays finished, and is not silently made anew.
    let before = dir.bytes(&format!("{folder}/record.json"));
    dir.run(&command).rejected("already holds results; pass `--resume`");
    let resumed = format!("{command} --resume");
    assert_eq!(dir.done(&resumed).stdout, printed);
    assert_eq!(dir.bytes(&format!("{folder}/record.json")), before);
    let other = dir.run(&format!("{resumed} --set learning_rate=1e-3"));
    other.rejected("learning_rate: 0.005 then, 0.001 now");
    let data = "out/data/OpenBookQA/dev.jsonl";
    dir.write(data, dir.text(data).split_once('\n').unwrap().1);
    dir.run(&resumed).rejected("the data files of obqa");
}

#[test]
fn a_glue_suite_matches_ranks_and_averages_scores() {
    let dir = Sandbox::new();
    // STS-B has scores, whose ensemble is their mean.
    let row = |i| format!("tale {}\tstory {i}\t{}.5\n", i % 7, i % 5);
    let text = format!("sentence1\tsentence2\tscore\n{}", (0..64).map(row).collect::<String>());
    for file in ["train.tsv", "dev.tsv"] {
        dir.write(&format!("data/STS-B/{file}"), &text);
    }
    let more = "--data-dir data --log tensorboard";
    dir.done(&suite("glue", "stsb", "ens-3,bayeslora", "out", more));
    let answers = |run: &str| dir.lines(&format!("out/{run}/predictions-last.jsonl"));
    let scores = |run: &str| -> Vec<f64> {
        answers(run).iter().map(|line| line["probs"]["0"][0].as_f64().unwrap()).collect()
    };
    let members: Vec<Vec<f64>> =
        (1000..1003).map(|i| scores(&format!("members/stsb/lora/seed-{i}"))).collect();
    for (i, found) in scores("runs/stsb/ens-3/seed-1").into_iter().enumerate() {
        let expected = members.iter().map(|m| m[i]).sum::<f64>() / 3.0;
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    // What was trained is kept, and answers as it did then.
    for (run, k) in [("runs/stsb/bayeslora/seed-1", "3"), ("members/stsb/lora/seed-1001", "0")] {
        let eval = "--task stsb --data-dir data --out answers.jsonl --force";
        dir.done(&format!("eval out/{run} {eval}"));
        let (then, now) = (answers(run), dir.lines("answers.jsonl"));
        assert!(then.iter().zip(&now).all(|(a, b)| a["probs"][k] == b["probs"][k]), "{run}");
        assert_eq!((then.len(), now[0]["probs"][k].is_array()), (now.len(), true), "{run}");
    }
    assert!(!dir.exists("out/runs/stsb/ens-3/seed-1/adapter"));
    let events = dir.lines("out/metrics.jsonl");
    let steps: Vec<&Value> = events.iter().filter(|line| line["event"] == "step").collect();
    assert_eq!(steps.len(), 4 * 2, "two steps of four trainings");
    assert!(steps.iter().all(|line| line["loss"].is_number() && line["run"].is_string()));
    assert!(dir.exists("out/tensorboard/STS-B/BayesLoRA/seed-1"));
}

#[test]
fn a_dry_run_trains_nothing_and_needs_no_model() {
    let dir = Sandbox::new();
    for (suite, parameters, steps) in
        [("reasoning", "4,483,072", 5000), ("glue", "2,654,208", 9999)]
    {
        let command = format!("bench {suite} --profile paper --dry-run --out out");
        let text = dir.done(&command).stdout;
        for part in [parameters, "GiB", " steps", "seed 3", "\"preset\": \"default\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let plan = dir.done(&format!("{command} --format json")).json();
        assert_eq!(plan["settings"]["steps"], steps);
    }
    assert!(!dir.exists("out"));
}

#[test]
fn what_cannot_be_used_is_rejected_before_anything_is_trained() {
    let dir = Sandbox::new();
    let command = |more: &str| suite("reasoning", "obqa", "lora", "out", more);
    dir.rejects(include_str!("rejected/suite.txt"), command);
    let rejected = |more: &str, expected: &[&str]| {
        dir.rejects(&format!("{more}\n    {}", expected.join("\n    ")), command);
    };

    // Data: all sets once, then one file of each damaged.
    dir.done(&suite("reasoning", "wg-s", "lora", "whole", "--set steps=1"));
    let dev = dir.text("whole/data/OpenBookQA/dev.jsonl");
    let (first, rest) = dev.split_once('\n').unwrap();
    let mut long: Value = serde_json::from_str(first).unwrap();
    for label in ["E", "F"] {
        let choices = long["question"]["choices"].as_array_mut().unwrap();
        choices.push(json!({ "text": "more", "label": label }));
    }
    for (name, text, expected) in [
        ("no-stem", dev.replacen("\"stem\"", "\"steam\"", 1), "stem"),
        ("empty", String::new(), ""),
        ("long", format!("{long}\n{rest}"), "choices"),
    ] {
        dir.copy(&dir.path("whole/data/OpenBookQA"), &format!("{name}/OpenBookQA"));
        dir.write(&format!("{name}/OpenBookQA/dev.jsonl"), text);
        rejected(&format!("--data-dir {name}"), &["dev.jsonl", expected]);
    }

    // Models.
    let weights = std::fs::read(llama().join("model.safetensors")).unwrap();
    dir.copy(&llama(), "cut");
    dir.write("cut/model.safetensors", &weights[..weights.len() / 2]);
    rejected("--model cut", &["model.safetensors"]);
    for (field, value, expected) in [
        ("vocab_size", json!(500), &["500"][..]),
        ("bos_token_id", json!(128_000), &["tokenizer starts a text with id 1", "128000"]),
        ("rope_scaling", json!({ "rope_type": "longrope" }), &["config.json", "longrope"]),
    ] {
        dir.copy(&llama(), field);
        dir.edit(&format!("{field}/config.json"), |config| config[field] = value);
        rejected(&format!("--model {field}"), expected);
    }

    // Label tokens: published numbers need one token each, and those of their model.
    let paper = "--profile paper --data-dir whole/data --model @llama";
    rejected(paper, &["`A`", "2 tokens"]);
    dir.copy(&llama(), "Llama-2-tiny");
    let named = "--data-dir whole/data --model Llama-2-tiny";
    rejected(named, &["wrong label token: `A` has id"]);
}
