//! `lrvd bench`: from files to tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{done, json_of, lines, run};

/// A shipped model.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets").join(name)
}

/// Arguments of a two-step suite into `out`, too short for held-out rows to choose anything.
fn arguments<'a>(suite: &'a str, tasks: &'a str, methods: &'a str, out: &'a str) -> Vec<&'a str> {
    let fixed = ["--quiet", "--steps", "2", "--seeds", "1", "--draws", "2,3"];
    let mut all = vec!["bench", suite, "--tasks", tasks, "--methods", methods, "--out", out];
    all.extend(fixed.into_iter().chain(["--preset", "constant-weight"]));
    all
}

/// Records by method.
fn records(out: &Path) -> BTreeMap<String, Value> {
    let results = json_of(&out.join("results.json"));
    let runs = results["runs"].as_array().unwrap();
    runs.iter().map(|run| (run["method"].as_str().unwrap().to_owned(), run.clone())).collect()
}

/// The folder copied with one file changed.
fn changed(from: &Path, to: &Path, name: &str, edit: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    let file = to.join(name);
    let bytes = edit(std::fs::read(&file).unwrap());
    std::fs::write(&file, bytes).unwrap();
}

/// What a suite of questions keeps answers a file of the same questions as the suite did.
fn kept_questions(out: &Path, dir: &Path) {
    let text = |path: PathBuf| lines(&std::fs::read_to_string(path).unwrap());
    let asked = text(out.join("data/OpenBookQA/dev.jsonl"));
    let own = asked.iter().map(|row| {
        let choices = row["question"]["choices"].as_array().unwrap().iter();
        let choices: Vec<&Value> = choices.map(|choice| &choice["text"]).collect();
        let (question, answer) = (&row["question"]["stem"], &row["answerKey"]);
        json!({ "question": question, "choices": choices, "answer": answer }).to_string()
    });
    let file = dir.join("questions.jsonl");
    std::fs::write(&file, own.collect::<Vec<_>>().join("\n")).unwrap();
    let (file, answers) = (file.display().to_string(), dir.join("answers.jsonl"));
    for (method, k) in [("lora", "0"), ("lora+ts", "0"), ("bayeslora", "3")] {
        let run = out.join(format!("runs/obqa/{method}/seed-1"));
        let (kept, to) = (run.display().to_string(), answers.display().to_string());
        done(&["eval", &kept, "--data", &file, "--out", &to, "--force"]);
        let (then, now) = (text(run.join("predictions-last.jsonl")), text(answers.clone()));
        assert!(then.len() > 10 && then.len() <= now.len(), "{method}");
        for (a, b) in then.iter().zip(&now) {
            assert_eq!((&a["label"], &a["probs"][k]), (&b["label"], &b["probs"][k]), "{method}");
        }
        done(&["inspect", &kept]);
    }
    assert!(!out.join("runs/obqa/laplace/seed-1/adapter").exists());
}

#[test]
fn a_reasoning_suite_trains_scores_and_keeps_what_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    let command = arguments("reasoning", "obqa", "lora,lora+ts,laplace,ens-3+ts,bayeslora", &name);
    let printed = done(&command).stdout;
    for part in ["LoRA", "LoRA+TS", "LAP", "ENS-3+TS", "BayesLoRA", "OBQA"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    kept_questions(&out, dir.path());
    let records = records(&out);
    assert_eq!(records.len(), 5);
    let counts = |method: &str| records[method]["trainable_parameters"].clone();
    assert_eq!(counts("LoRA")["adapter"], 13_568);
    assert_eq!(counts("BayesLoRA")["posterior"], 88);
    assert_eq!(counts("ENS-3+TS")["adapter"], 3 * 13_568);
    // A temperature each.
    assert_eq!(counts("ENS-3+TS")["stored"], 3);
    assert!(counts("LAP")["stored"].as_u64().unwrap() > 10_000, "{}", counts("LAP"));
    let metrics = |method: &str| records[method]["checkpoints"]["last"]["metrics"].clone();
    let draws = |method: &str| metrics(method).as_object().unwrap().keys().cloned().collect();
    let found: Vec<String> = draws("BayesLoRA");
    assert_eq!(found, ["0", "2", "3"]);
    let found: Vec<String> = draws("LAP");
    assert_eq!(found, ["0"]);
    // Both of ARC are in the generated data; an ensemble is asked too.
    for method in ["BayesLoRA", "ENS-3+TS"] {
        for set in ["arc-e", "arc-c"] {
            let auroc = records[method]["ood"][set]["0"]["auroc_entropy"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&auroc), "{method} {set}: {auroc}");
            // By ARC's own five letters, which anyone can recompute; the model was trained on four.
            let name = format!("predictions-last-{set}-letters.jsonl");
            let file = out.join(format!("runs/obqa/{}/seed-1", method.to_lowercase())).join(name);
            let (mut right, mut n) = (0.0, 0.0);
            for line in lines(&std::fs::read_to_string(&file).unwrap()) {
                let p = line["probs"]["0"].as_array().unwrap();
                let p: Vec<f64> = p.iter().map(|v| v.as_f64().unwrap()).collect();
                assert_eq!(p.len(), 5, "{file:?}");
                let best = (0..5).fold(0, |best, i| if p[i] > p[best] { i } else { best });
                right += f64::from(u8::from(Some(best as f64) == line["label"].as_f64()));
                n += 1.0;
            }
            let recorded = &records[method]["ood"][set]["0"];
            assert!((recorded["accuracy"].as_f64().unwrap() - right / n).abs() < 1e-12);
            assert!(recorded["nll"].as_f64().unwrap() > 0.0 && recorded["ece"].is_number());
        }
    }
    // The curvature of Laplace is that of the four trained answers.
    assert!(records["LAP"]["ood"]["arc-e"]["0"]["accuracy"].is_null());
    assert!(records["ENS-3+TS"]["ood"]["arc-e"]["0"]["auroc_mutual_information"].is_number());

    // Anyone can recompute the metrics from the predictions.
    let folder = out.join("runs/obqa/bayeslora/seed-1");
    let text = std::fs::read_to_string(folder.join("predictions-last.jsonl")).unwrap();
    for k in ["0", "2", "3"] {
        let (mut right, mut nll, mut brier, mut n) = (0.0, 0.0, 0.0, 0.0);
        for line in lines(&text) {
            let label = line["label"].as_f64().unwrap() as usize;
            let p: Vec<f64> =
                line["probs"][k].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            let best = (0..p.len()).fold(0, |best, i| if p[i] > p[best] { i } else { best });
            right += f64::from(u8::from(best == label));
            nll -= p[label].ln();
            let target = |i: usize| f64::from(u8::from(i == label));
            brier += p.iter().enumerate().map(|(i, p)| (p - target(i)).powi(2)).sum::<f64>();
            n += 1.0;
        }
        assert_eq!(n, 200.0);
        for (name, value) in [("accuracy", right / n), ("nll", nll / n), ("brier", brier / n)] {
            let recorded = metrics("BayesLoRA")[k][name].as_f64().unwrap();
            assert!((recorded - value).abs() < 1e-9, "{name} at {k}: {recorded} {value}");
        }
    }
    assert!(folder.join("predictions-last-arc-c.jsonl").is_file());

    // What is finished stays finished, and is not silently made anew.
    let before = std::fs::read(folder.join("record.json")).unwrap();
    let again = run(&command);
    again.rejected("already holds results; pass `--resume`");
    let resumed = [&command[..], &["--resume"]].concat();
    assert_eq!(done(&resumed).stdout, printed);
    assert_eq!(std::fs::read(folder.join("record.json")).unwrap(), before);
    let other = run(&[&resumed[..], &["--set", "learning_rate=1e-3"]].concat());
    other.rejected("learning_rate: 0.005 then, 0.001 now");
    let data = out.join("data/OpenBookQA/dev.jsonl");
    let text = std::fs::read_to_string(&data).unwrap();
    std::fs::write(&data, text.split_once('\n').unwrap().1).unwrap();
    let other = run(&resumed);
    other.rejected("the data files of obqa");
}

#[test]
fn a_glue_suite_matches_ranks_and_averages_scores() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    // STS-B has scores, whose ensemble is their mean.
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("STS-B")).unwrap();
    let mut text = "sentence1\tsentence2\tscore\n".to_owned();
    for i in 0..64 {
        let (tale, score) = ((i % 7).to_string(), (i % 5).to_string());
        text += &["tale ", &tale, "\tstory ", &i.to_string(), "\t", &score, ".5\n"].concat();
    }
    for file in ["train.tsv", "dev.tsv"] {
        std::fs::write(data.join("STS-B").join(file), &text).unwrap();
    }
    let data_dir = data.display().to_string();
    let command = arguments("glue", "stsb", "ens-3,bayeslora", &name);
    done(&[&command[..], &["--data-dir", &data_dir, "--log", "tensorboard"]].concat());
    let folder = |run: &str| out.join(run).join("predictions-last.jsonl");
    let scores = |run: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(folder(run)).unwrap();
        lines(&text).iter().map(|line| line["probs"]["0"][0].as_f64().unwrap()).collect()
    };
    let members: Vec<Vec<f64>> =
        (1000..1003).map(|i| scores(&format!("members/stsb/lora/seed-{i}"))).collect();
    for (i, found) in scores("runs/stsb/ens-3/seed-1").into_iter().enumerate() {
        let expected = members.iter().map(|m| m[i]).sum::<f64>() / 3.0;
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    // What was trained is kept, and answers as it did then.
    let answers = dir.path().join("answers.jsonl").display().to_string();
    for run in ["runs/stsb/bayeslora/seed-1", "members/stsb/lora/seed-1001"] {
        let kept = out.join(run).display().to_string();
        done(&[
            "eval",
            &kept,
            "--task",
            "stsb",
            "--data-dir",
            &data_dir,
            "--out",
            &answers,
            "--force",
        ]);
        let (then, now) = (folder(run), PathBuf::from(&answers));
        let [then, now] = [then, now].map(|f| lines(&std::fs::read_to_string(f).unwrap()));
        let k = if run.contains("bayes") { "3" } else { "0" };
        assert!(then.iter().zip(&now).all(|(a, b)| a["probs"][k] == b["probs"][k]), "{run}");
        assert_eq!((then.len(), now[0]["probs"][k].is_array()), (now.len(), true), "{run}");
    }
    assert!(!out.join("runs/stsb/ens-3/seed-1/adapter").exists());
    let steps = lines(&std::fs::read_to_string(out.join("metrics.jsonl")).unwrap());
    let steps: Vec<&Value> = steps.iter().filter(|line| line["event"] == "step").collect();
    assert_eq!(steps.len(), 4 * 2, "two steps of four trainings");
    assert!(steps.iter().all(|line| line["loss"].is_number() && line["run"].is_string()));
    assert!(out.join("tensorboard/STS-B/BayesLoRA/seed-1").is_dir());
}

#[test]
fn every_way_to_draw_and_to_prompt_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let nll = |settings: &[&str]| -> f64 {
        let out = dir.path().join(settings.join("-"));
        let name = out.display().to_string();
        let mut command = arguments("reasoning", "wg-s", "bayeslora", &name);
        for setting in settings {
            command.extend(["--set", setting]);
        }
        done(&command);
        let record = &records(&out)["BayesLoRA"];
        record["checkpoints"]["last"]["metrics"]["3"]["nll"].as_f64().unwrap()
    };
    let noisy = [
        "log_variance.initial=-2",
        "log_variance.learning_rate_factor=20",
        "kl_weight=1e-4",
        "prune.end=0",
    ];
    let nll = |settings: &[&str]| nll(&[&noisy, settings].concat());
    let weights = nll(&[]);
    let fresh = nll(&["prediction_draws=fresh"]);
    let activation = nll(&["prediction_draws=activation"]);
    // A policy of draws acts: nothing, everything or something is answered at the mean.
    let (mean, settled) = (nll(&["prediction.cascade=0"]), nll(&["prediction.tolerance=0.5"]));
    assert!(mean != weights && settled == weights);
    assert_eq!(nll(&["prediction.cascade=1"]), weights);
    assert_ne!(nll(&["prediction.antithetic=true"]), weights);
    assert!(weights != fresh && fresh != activation && activation != weights);
    assert!((weights - nll(&["prompt=clean"])).abs() > 1e-6);
    // A narrow base changes the answers a little.
    let narrow = nll(&["base_precision=bf16"]);
    assert!(narrow != weights && (narrow - weights).abs() < 0.1, "{narrow} {weights}");
}

#[test]
fn a_model_whose_every_rank_is_pruned_is_the_base_model() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    let mut command = arguments("reasoning", "wg-s", "bayeslora", &name);
    command.extend(["--set", "log_variance.initial=2", "--set", "prune.start=0"]);
    done(&command);
    let record = &records(&out)["BayesLoRA"];
    let last = &record["checkpoints"]["last"];
    assert_eq!((&last["total_rank"], last["percent_rank"].as_f64()), (&json!(0), Some(0.0)));
    assert_eq!(last["metrics"]["0"]["nll"], last["metrics"]["3"]["nll"]);
}

#[test]
fn a_dry_run_trains_nothing_and_needs_no_model() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out").display().to_string();
    for (suite, parameters) in [("reasoning", "4,483,072"), ("glue", "2,654,208")] {
        let command = ["bench", suite, "--profile", "paper", "--dry-run", "--out", &out];
        let text = done(&command).stdout;
        for part in [parameters, "GiB", " steps", "seed 3", "\"preset\": \"default\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let plan = done(&[&command[..], &["--format", "json"]].concat()).json();
        assert_eq!(plan["settings"]["steps"], if suite == "glue" { 9999 } else { 5000 });
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn what_cannot_be_used_is_rejected_before_anything_is_trained() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    let rejected = |more: &[&str], expected: &[&str]| {
        let mut command = arguments("reasoning", "obqa", "lora", &name);
        command.extend(more);
        let found = run(&command);
        assert_eq!(found.code, 2, "{more:?}: {}", found.stderr);
        for part in expected {
            assert!(found.stderr.contains(part), "{part}: {}", found.stderr);
        }
        assert!(!out.exists(), "{more:?} left an output folder");
    };
    rejected(&["--profile", "paper"], &["needs `--data-dir`", "OpenBookQA"]);
    rejected(&["--data-dir", "nowhere"], &["nowhere"]);
    rejected(&["--tasks", "boolq"], &["task `boolq` is not among the shipped ones", "`obqa`"]);
    rejected(&["--set", "promt=clean"], &["unknown setting `promt`", "`prompt`"]);
    rejected(&["--set", "methods.laplase.samples=3"], &["unknown setting `methods.laplase`"]);
    rejected(&["--set", "base_precision=f8"], &["base_precision"]);
    rejected(&["--seeds", "99999999999"], &["seed"]);
    rejected(&["--set", "prediction.margin=0.3"], &["unknown setting `prediction.margin`"]);
    let others = ["`cascade` is for draws that a seed addresses one by one"];
    let swag = ["--methods", "swag", "--set", "steps=20", "--set", "prediction.cascade=0.3"];
    rejected(&swag, &others);
    let opposite = ["`antithetic` is for weights that are drawn once a batch"];
    rejected(&["--methods", "mcd", "--set", "prediction.antithetic=true"], &opposite);

    // Data: all sets once, then one file of each damaged.
    let whole = dir.path().join("whole");
    let made = whole.display().to_string();
    done(&[&arguments("reasoning", "wg-s", "lora", &made)[..], &["--set", "steps=1"]].concat());
    let sets = whole.join("data");
    let main = "OpenBookQA";
    let damaged = |name: &str, edit: &dyn Fn(Vec<u8>) -> Vec<u8>| -> String {
        let to = dir.path().join(name);
        changed(&sets.join(main), &to.join(main), "dev.jsonl", edit);
        to.display().to_string()
    };
    let no_stem = damaged("no-stem", &|bytes| {
        String::from_utf8(bytes).unwrap().replacen("\"stem\"", "\"steam\"", 1).into_bytes()
    });
    rejected(&["--data-dir", &no_stem], &["dev.jsonl", "stem"]);
    let empty = damaged("empty", &|_| Vec::new());
    rejected(&["--data-dir", &empty], &["dev.jsonl"]);
    let long = damaged("long", &|bytes| {
        let text = String::from_utf8(bytes).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let mut row: Value = serde_json::from_str(first).unwrap();
        let choices = row["question"]["choices"].as_array_mut().unwrap();
        for label in ["E", "F"] {
            choices.push(json!({ "text": "more", "label": label }));
        }
        format!("{row}\n{rest}").into_bytes()
    });
    rejected(&["--data-dir", &long], &["dev.jsonl", "choices"]);

    // Models.
    let llama = shipped("stories260K");
    let damaged = |name: &str, file: &str, edit: &dyn Fn(Vec<u8>) -> Vec<u8>| -> String {
        let to = dir.path().join(name);
        changed(&llama, &to, file, edit);
        to.display().to_string()
    };
    let cut = damaged("cut", "model.safetensors", &|bytes| bytes[..bytes.len() / 2].to_vec());
    rejected(&["--model", &cut], &["model.safetensors"]);
    let field = |name: &'static str, value: Value| {
        move |bytes: Vec<u8>| {
            let mut config: Value = serde_json::from_slice(&bytes).unwrap();
            config[name] = value.clone();
            config.to_string().into_bytes()
        }
    };
    let small = damaged("small", "config.json", &field("vocab_size", json!(500)));
    rejected(&["--model", &small], &["500"]);
    let other = damaged("other", "config.json", &field("bos_token_id", json!(128_000)));
    rejected(&["--model", &other], &["tokenizer starts a text with id 1", "128000"]);
    let scaled = json!({ "rope_type": "longrope" });
    let unknown = damaged("unknown", "config.json", &field("rope_scaling", scaled));
    rejected(&["--model", &unknown], &["config.json", "longrope"]);

    // Label tokens: published numbers need one token each, and those of their model.
    let data = sets.display().to_string();
    let paper = ["--profile", "paper", "--data-dir", &data];
    let tiny = llama.display().to_string();
    rejected(&[&paper[..], &["--model", &tiny]].concat(), &["`A`", "2 tokens"]);
    let named = damaged("Llama-2-tiny", "config.json", &|bytes| bytes);
    rejected(&["--model", &named, "--data-dir", &data], &["wrong label token: `A` has id"]);
}
