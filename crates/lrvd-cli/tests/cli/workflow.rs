//! Train, evaluate, predict, inspect, export: the same numbers all along.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{
    borrowed, difference, done, json_of, lines, model, replaced, run, run_with, text, train,
    write_data,
};

/// Trains 6 steps with `more`, and checks that a reload predicts what the end of training did, at the
/// mean and at `draws` draws of a posterior.
fn reload_predicts_the_same(more: &[&str], draws: usize) -> (tempfile::TempDir, [String; 2]) {
    trained_and_reloaded(more, draws, draws > 0)
}

fn trained_and_reloaded(
    more: &[&str],
    draws: usize,
    posterior: bool,
) -> (tempfile::TempDir, [String; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let trained = done(&train(&data, &out, 6, more)).stdout;
    assert!(trained.contains("accuracy") && trained.contains("total rank"), "{trained}");
    for file in ["settings.json", "record.json", "labels.json", "adapter/lrvd_classifier.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    assert!(!out.join("checkpoints").exists());
    assert_eq!(out.join("adapter/lrvd_posterior.safetensors").is_file(), posterior);

    let (adapter, again) = (out.join("adapter"), dir.path().join("again.jsonl"));
    let (adapter, again_name) = (adapter.display().to_string(), again.display().to_string());
    let evaluated = done(&[
        "eval",
        &adapter,
        "--data",
        &data[1],
        "--out",
        &again_name,
        "--format",
        "json",
        "--quiet",
    ])
    .json();
    assert_eq!(evaluated["schema_version"], 1);
    assert_eq!(evaluated["rows"], 12);
    let names = ["accuracy", "nll", "ece", "brier", "entropy"];
    for k in if draws > 0 { vec![0, draws] } else { vec![0] } {
        let metrics = &evaluated["metrics"][k.to_string()];
        assert!(names.iter().all(|name| metrics[name].is_f64()), "{metrics}");
        assert!(metrics["standard"]["f1"].is_f64() && metrics["standard"]["matthews"].is_f64());
        assert_eq!(metrics["mutual_information"].is_f64(), k > 0);
    }
    let (before, after) = (text(&out.join("predictions-last.jsonl")), text(&again));
    let (before, after) = (lines(&before), lines(&after));
    assert_eq!((before.len(), after.len()), (12, 12));
    for (b, a) in before.iter().zip(&after) {
        let (b, a) = (b["probs"].as_object().unwrap(), a["probs"].as_object().unwrap());
        assert_eq!(b.keys().collect::<Vec<_>>(), a.keys().collect::<Vec<_>>());
        for (k, probabilities) in b {
            let apart = difference(probabilities, &a[k]);
            assert!(apart <= 1e-6, "draws {k}: {apart}");
        }
    }
    (dir, data)
}

/// The ranks of the adapter in `out`, `total` of them, as settings of a plain LoRA, and cut to one a module.
fn its_ranks_go_elsewhere(dir: &Path, out: &str, total: u64) {
    let plain = &done(&["inspect", out, "--format", "json"]).json()["lora_config"];
    let (r, rest) = (plain["r"].as_u64().unwrap(), plain["rank_pattern"].as_object().unwrap());
    let named = plain["target_modules"].as_array().unwrap().len() as u64;
    let others: u64 = rest.values().map(|rank| rank.as_u64().unwrap()).sum();
    assert_eq!(r * (named - rest.len() as u64) + others, total);
    assert!((plain["lora_alpha"].as_f64().unwrap() / r as f64 - 16.0 / 3.0).abs() < 1e-12);
    for (path, rank) in rest {
        let alpha = plain["alpha_pattern"][path].as_f64().unwrap();
        assert!((alpha / rank.as_f64().unwrap() - 16.0 / 3.0).abs() < 1e-12, "{path}");
    }

    // At rank 1 it is another model, and says how far from this one.
    let capped = dir.join("capped").display().to_string();
    let report = done(&[
        "export",
        "--to",
        "peft",
        out,
        "--out",
        &capped,
        "--cap-rank",
        "1",
        "--format",
        "json",
    ])
    .json();
    let lost = report["cap_error"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&lost) && report["posterior"] == false, "{report}");
    assert_eq!((&report["max_rank"], &report_of(&capped)["max_rank"]), (&1.into(), &1.into()));
    // An export names no folder of this machine.
    let base = model().display().to_string();
    let answer = done(&["predict", &capped, "--model", &base, "a fine film"]);
    assert!(answer.stdout.contains("\"draws\":0"));
}

#[test]
fn bayes_lora_from_training_to_export() {
    // Every statistic starts between 1.3 and 2.9: a threshold of 1.8 prunes about half.
    let pruning = ["--set", "prune.log_alpha_threshold=1.8", "--set", "prune.every=0.34"];
    let (dir, data) = reload_predicts_the_same(&pruning, 3);
    let out = dir.path().join("out").display().to_string();

    let report = done(&["inspect", &out, "--format", "json"]).json();
    let modules = report["modules"].as_array().unwrap();
    assert_eq!((report["kind"].as_str(), modules.len()), (Some("run"), 24));
    let total = report["total_rank"].as_u64().unwrap();
    assert!(total > 0 && total < 24 * 3, "the threshold prunes some: {total}");
    for module in modules {
        let rank = module["rank"].as_u64().unwrap() as usize;
        assert_eq!(module["log_alpha"].as_array().unwrap().len(), rank);
        assert_eq!(
            (&module["initial_rank"], &module["scaling"]),
            (&3.into(), &(16.0 / 3.0).into())
        );
    }
    let printed = done(&["inspect", &out]).stdout;
    let (gone, above) = (24 * 3 - total, report["above_threshold"].as_u64().unwrap());
    assert_eq!(report["pruned"].as_u64(), Some(gone));
    let expected =
        format!("{gone} directions were pruned; {above} of those left have a log_alpha of");
    assert!(printed.contains("log_alpha min") && printed.contains(&expected), "{printed}");

    its_ranks_go_elsewhere(dir.path(), &out, total);

    // Arguments, lines and JSONL are the same texts, and so give the same answers.
    let texts = ["a fine film", "a grim book"];
    let predict = ["predict", &out, "--draws", "3"];
    let answers = done(&[&predict[..], &texts].concat()).stdout;
    let by_lines = run_with(&predict, "a fine film\n\na grim book\n").stdout;
    let objects = "{\"text\":\"a fine film\"}\n{\"text\":\"a grim book\",\"id\":7}\n";
    let by_objects = run_with(&[&predict[..], &["--jsonl"]].concat(), objects).stdout;
    assert_eq!(answers, by_lines);
    assert_eq!(answers, by_objects);
    for answer in lines(&answers) {
        let sum: f64 =
            answer["probs"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert!(["good", "bad"].contains(&answer["predicted"].as_str().unwrap()));
        assert!(answer["entropy"].as_f64().unwrap() > 0.0);
        assert!(answer["mutual_information"].as_f64().unwrap() >= 0.0);
    }
    let sure = done(&[&predict[..], &texts, &["--abstain-above", "0"]].concat()).stdout;
    assert!(lines(&sure).iter().all(|a| a["predicted"].is_null() && a["abstained"] == true));
    // The default is the mean; an option on how draws are made takes the number of the training.
    let plain = done(&[&["predict", &out][..], &texts].concat()).stdout;
    assert!(lines(&plain).iter().all(|a| a["draws"] == 0 && a["mutual_information"].is_null()));
    let spared = done(&[&["predict", &out, "--cascade", "1"][..], &texts].concat()).stdout;
    assert_eq!(spared, answers);
    texts_are_answered_in_their_order_whatever_their_lengths(&out);
    // Nothing is decided by less than 0, everything by less than 1.
    for (margin, draws) in [("0", 0), ("1", 3)] {
        let spared = done(&[&predict[..], &texts, &["--cascade", margin]].concat()).stdout;
        for (answer, all) in lines(&spared).iter().zip(lines(&answers)) {
            assert_eq!(answer["draws"], draws);
            assert_eq!(answer["mutual_information"].is_null(), draws == 0);
            assert_eq!(answer["probs"] == all["probs"], draws == 3);
        }
    }
    for (wrong, words) in [
        (&["--cascade", "1.5"][..], "`cascade` is 1.5, outside 0..=1"),
        (&["--tolerance", "0.1", "--draws", "0"], "`tolerance` needs draws"),
    ] {
        let rejected = run(&[&["predict", &out, "one"], wrong].concat());
        rejected.rejected(words);
    }
    let document = done(&[&predict[..], &texts, &["--format", "json"]].concat()).json();
    assert_eq!(document["predictions"].as_array().unwrap().len(), 2);
    let pair = run(&["predict", &out, "one", "--pair", "two"]);
    pair.rejected("trained on a single text");

    let [ragged, uniform] = ["ragged", "uniform"].map(|layout| {
        let to = dir.path().join(layout).display().to_string();
        let json = ["--layout", layout, "--format", "json", "--quiet"];
        let report = done(&[&["export", "--to", "peft", &out, "--out", &to], &json[..]].concat());
        (to, report.json())
    });
    assert!(ragged.1["max_rank"].as_u64().unwrap() <= 3);
    assert_eq!((&ragged.1["posterior"], &uniform.1["posterior"]), (&true.into(), &false.into()));
    let ranks = |report: &Value| -> Vec<u64> {
        report["ranks"].as_object().unwrap().values().map(|r| r.as_u64().unwrap()).collect()
    };
    assert_eq!(ranks(&ragged.1).iter().sum::<u64>(), total);
    assert!(ranks(&uniform.1).iter().all(|r| Some(*r) == uniform.1["max_rank"].as_u64()));
    let base = model().display().to_string();
    let mean = |folder: &str| {
        let answers = done(&["predict", folder, "--model", &base, "--draws", "0", texts[0]]).stdout;
        lines(&answers)[0]["probs"].clone()
    };
    assert!(difference(&mean(&ragged.0), &mean(&out)) <= 1e-6);
    assert!(difference(&mean(&uniform.0), &mean(&out)) <= 1e-6);
    let rejected = run(&["eval", &uniform.0, "--model", &base, "--data", &data[1], "--draws", "2"]);
    rejected.rejected("need a posterior");
}

#[test]
fn the_first_validation_rows_can_be_asked_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let answers = |name: &str, more: &[&str]| {
        let out = dir.path().join(name);
        done(&train(&data, &out, 2, more));
        lines(&text(&out.join("predictions-last.jsonl")))
    };
    let (all, first) = (answers("all", &[]), answers("first", &["--set", "validation_rows=5"]));
    assert_eq!((all.len(), first.len()), (12, 5));
    for (all, first) in all.iter().zip(&first) {
        assert_eq!(all["id"], first["id"]);
        assert!(difference(&all["probs"]["0"], &first["probs"]["0"]) <= 1e-6);
    }
}

#[test]
fn tables_of_every_format_are_predicted_by_their_columns() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    // Columns of the user's own, which prediction must find again.
    for path in &data {
        let renamed = text(Path::new(path)).replacen("text", "review", 1);
        std::fs::write(path, renamed).unwrap();
    }
    let out = dir.path().join("out");
    done(&train(&data, &out, 2, &["--method", "lora", "--text-column", "review"]));
    let out = out.display().to_string();
    let file = |name: &str, contents: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path.display().to_string()
    };
    let expected = done(&["predict", &out, "a fine film", "dull, and cold"]).stdout;
    let by_input = |path: &str, more: &[&str]| {
        done(&[&["predict", &out, "--input", path], more].concat()).stdout
    };
    let csv = file("x.csv", "id,review\n1,a fine film\n2,\"dull, and cold\"\n");
    assert_eq!(by_input(&csv, &[]), expected);
    let tsv = file("x.tsv", "body\tid\na fine film\t1\ndull, and cold\t2\n");
    assert_eq!(by_input(&tsv, &["--text-column", "body"]), expected);
    let objects = "{\"review\":\"a fine film\"}\n\n{\"review\":\"dull, and cold\",\"pair\":1}\n";
    assert_eq!(by_input(&file("x.jsonl", objects), &[]), expected);
    assert_eq!(by_input(&file("x.log", objects), &["--jsonl"]), expected);
    assert_eq!(run_with(&["predict", &out, "--jsonl"], objects).stdout, expected);
    assert_eq!(by_input(&file("x.txt", "a fine film\n\ndull, and cold\n"), &[]), expected);
    let parquet = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lrvd-bench/tests/golden/data/cola-train-00000-of-00002.parquet")
        .display()
        .to_string();
    assert_eq!(by_input(&parquet, &["--text-column", "sentence"]).lines().count(), 2);

    let rejected = |arguments: &[&str], expected: &str| {
        run(&[&["predict", &out], arguments].concat()).rejected(expected);
    };
    rejected(&["--input", &tsv], "no column `review`; its columns are `body`, `id`");
    rejected(&["--input", &file("x.md", "text")], "is in no known format");
    rejected(&["--input", "absent.csv"], "cannot read `absent.csv`");
    rejected(&["--text-column", "body"], "need a table");
}

#[test]
fn deterministic_methods_come_back_without_a_posterior() {
    let (dir, data) = reload_predicts_the_same(&["--method", "lora"], 0);
    let out = dir.path().join("out").display().to_string();
    // The same command again finds the run complete and changes nothing.
    let record = text(&dir.path().join("out/record.json"));
    let arguments = train(&data, &dir.path().join("out"), 6, &["--method", "lora"]);
    let rejected = run(&arguments);
    rejected.rejected("--resume");
    done(&[&borrowed(&arguments)[..], &["--resume"]].concat());
    assert_eq!(record, text(&dir.path().join("out/record.json")));
    let other = replaced(&arguments, "--seed", "6");
    let other = run(&[&borrowed(&other)[..], &["--resume"]].concat());
    other.rejected("seed: 5 then, 6 now");

    // Another base model is noticed.
    let copy = dir.path().join("base");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(model()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let copy_name = copy.display().to_string();
    done(&["predict", &out, "--model", &copy_name, "a fine film"]);
    let weights = copy.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // The lowest bit of one value: still finite, still another model.
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let other = run(&["predict", &out, "--model", &copy_name, "a fine film"]);
    other.rejected("other weights");
    done(&["predict", &out, "--model", &copy_name, "--allow-other-base", "a fine film"]);

    reload_predicts_the_same(&["--method", "adalora", "--target-rank", "1"], 0);
}

/// More texts than a batch has, of all lengths, in no order of them.
fn texts_are_answered_in_their_order_whatever_their_lengths(out: &str) {
    let texts: Vec<String> =
        (0..40).map(|i| format!("{}number {i}", "a fine film and ".repeat(i * 7 % 5))).collect();
    for draws in ["0", "3"] {
        let predict = ["predict", out, "--draws", draws];
        let together = run_with(&predict, &texts.join("\n")).stdout;
        assert_eq!(together.lines().count(), 40);
        for (text, answer) in texts.iter().zip(together.lines()).step_by(7) {
            let alone = done(&[&predict[..], &[text]].concat()).stdout;
            assert_eq!(alone.trim_end(), answer, "{draws} draws");
        }
    }
    // The first answers come while the input is still open.
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(["predict", out])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(texts[..8].join("\n").as_bytes()).unwrap();
    input.write_all(b"\n").unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for text in &texts[..8] {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(&answer["text"], text);
    }
    drop(input);
    assert!(answers.next().is_none() && child.wait().unwrap().success());
}

fn report_of(out: &str) -> Value {
    done(&["inspect", out, "--format", "json"]).json()
}

#[test]
fn a_fitted_threshold_is_kept_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out").display().to_string();
    done(&train(&data, Path::new(&out), 4, &[]));
    // The rows that trained the model, also in a copy of the file.
    let copy = dir.path().join("copy.tsv").display().to_string();
    std::fs::copy(&data[0], &copy).unwrap();
    run(&["abstain", "fit", &out, "--data", &copy]).rejected("trained or chose this model");
    // The validation rows of the last model chose nothing.
    let fixed = ["abstain", "fit", &out, "--data", &data[1], "--draws", "2"];
    let fit = |more: &[&str]| run(&[&fixed[..], more].concat());
    let never = "no threshold has an error rate below 0.001 with 95 % confidence on these 12 rows";
    fit(&["--risk", "0.001"]).rejected(never);
    let answer = |more: &[&str]| run(&[&["predict", &out, "a fine film"], more].concat());
    assert!(!answer(&["--draws", "2"]).stdout.contains("abstained"));

    let found = fit(&["--risk", "0.9", "--delta", "0.5", "--format", "json"]).json();
    let found = &found["abstention"];
    let (above, bound) = (found["above"].as_f64().unwrap(), found["bound"].as_f64().unwrap());
    assert!(above > 0.0 && bound <= 0.9 && found["risk"].as_f64().unwrap() <= bound, "{found}");
    let given = &lines(&answer(&["--draws", "2"]).stdout)[0];
    assert_eq!(given["abstained"], given["entropy"].as_f64().unwrap() > above);
    // It is not for other draws; whoever names a threshold has that one.
    for more in [&["--draws", "3"][..], &["--draws", "2", "--tolerance", "0.1"]] {
        let rejected = answer(more);
        rejected.rejected("no threshold was fitted");
    }
    let named = &lines(&answer(&["--draws", "3", "--abstain-above", "inf"]).stdout)[0];
    assert_eq!(named["abstained"], false);
    let named = &lines(&answer(&["--draws", "2", "--abstain-above", "0"]).stdout)[0];
    assert_eq!(named["abstained"], true);
}

#[test]
fn no_threshold_is_fitted_to_rows_that_the_model_depends_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let trained = |name: &str, more: &[&str]| {
        let out = dir.path().join(name);
        done(&train(&data, &out, 2, more));
        out.display().to_string()
    };
    let fit = |out: &str, file: &str| {
        let risk = ["--risk", "0.9", "--delta", "0.5", "--draws", "0"];
        run(&[&["abstain", "fit", out, "--data", file], &risk[..]].concat())
    };
    let seen = "trained or chose this model, so its error rate there is not that of new texts";
    // The validation rows chose the best model.
    let best = trained("best", &["--set", "checkpoint=best"]);
    for file in &data {
        fit(&best, file).rejected(seen);
    }
    // Rows of the training file gave the temperature; those of the validation file chose nothing.
    let last = trained("last", &["--method", "lora+ts", "--set", "holdout=0.25"]);
    fit(&last, &data[0]).rejected(seen);
    // Whether a threshold is found depends on the answers.
    let unnamed = "does not name the files that trained or chose the model";
    let fitted = fit(&last, &data[1]).stderr;
    assert!(!fitted.contains(seen) && !fitted.contains(unnamed), "{fitted}");
    // All rows of a run without a validation file are in one file.
    let one = dir.path().join("one").display().to_string();
    let base = model().display().to_string();
    let fixed = ["train", "--quiet", "--model", &base, "--train", &data[0], "--steps", "2"];
    done(&[&fixed[..], &["--max-length", "16", "--rank", "3", "--out", &one]].concat());
    fit(&one, &data[0]).rejected(seen);

    // A description of an earlier version names no files.
    let description = Path::new(&last).join("adapter/lrvd_classifier.json");
    let mut info: Value = json_of(&description);
    for key in ["hashes", "seen"] {
        info.as_object_mut().unwrap().remove(key).unwrap();
    }
    std::fs::write(&description, info.to_string()).unwrap();
    let fitted = fit(&last, &data[0]).stderr;
    assert!(!fitted.contains(seen) && fitted.contains(unnamed), "{fitted}");
}

#[test]
fn one_file_is_enough_and_is_looked_at_before() {
    let dir = tempfile::tempdir().unwrap();
    let [file, _] = write_data(dir.path());
    let base = model().display().to_string();
    let checked = |more: &[&str]| {
        let fixed = ["data", "check", "--train", &file, "--model", &base, "--max-length", "6"];
        done(&[&fixed[..], more].concat())
    };
    let report = checked(&["--format", "json", "--validation-split", "0.25"]).json();
    let splits = report["splits"].as_array().unwrap();
    assert_eq!((&splits[0]["rows"], &splits[1]["rows"]), (&Value::from(24), &Value::from(8)));
    let classes = |split: &Value| -> u64 {
        let counts = split["classes"].as_array().unwrap().iter();
        counts.map(|class| class[1].as_u64().unwrap()).sum()
    };
    assert_eq!((classes(&splits[0]), classes(&splits[1])), (24, 8));
    let (longest, cut) = (&splits[0]["tokens"]["most"], &splits[0]["truncated"]);
    assert!(longest.as_u64().unwrap() > 6 && cut.as_u64().unwrap() > 0, "{report}");
    assert!(report["examples"][0]["input"].as_str().unwrap().starts_with("[CLS]"), "{report}");
    let shown = checked(&[]).stdout;
    assert!(shown.contains("class `good`") && shown.contains("cut") && shown.contains("-> good"));

    // Two epochs of 29 rows in batches of 4; the share that is measured on is part of the run.
    let out = dir.path().join("out");
    let name = out.display().to_string();
    let fixed = ["train", "--quiet", "--model", &base, "--train", &file, "--batch-size", "4"];
    let more = ["--rank", "2", "--max-length", "8", "--set", "draws=[2]", "--out", &name];
    let arguments = [&fixed[..], &more, &["--epochs", "2", "--learning-rate", "2e-3"]].concat();
    done(&arguments);
    let settings: Value = json_of(&out.join("settings.json"));
    assert_eq!(settings["experiment"]["steps"], 16);
    // By default the method is LoRA, and a temperature is fitted to a tenth of the rows.
    assert_eq!(settings["method"], "LoRA+TS");
    assert_eq!(settings["experiment"]["holdout"], 0.1);
    let temperatures = report_of(&name)["temperatures"].as_object().unwrap().len();
    assert_eq!(temperatures, 1);
    assert_eq!(settings["experiment"]["learning_rate"], 2e-3);
    assert_eq!(settings["validation_split"], 0.1);
    assert_eq!(lines(&text(&out.join("predictions-last.jsonl"))).len(), 3);
    let other = run(&[&arguments[..], &["--validation-split", "0.2", "--resume"]].concat());
    other.rejected("validation_split");
    let none = run(&[&arguments[..], &["--validation-split", "0.001"]].concat());
    none.rejected("32 rows");
}

#[test]
fn bayeslora_is_trained_whole_cut_and_refined() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let arguments = replaced(&train(&data, &out, 8, &[]), "--preset", "default");
    done(&arguments);
    let record: Value = json_of(&out.join("record.json"));
    assert_eq!(record["steps"], 9);
    let choice = &record["choice"];
    assert_eq!((&choice["step"], &choice["chosen"]), (&Value::from(8), &Value::from(0)));
    // A tenth of so few rows shows nothing: every rank stays.
    assert!(choice["rows"].as_u64().unwrap() < 10);
    assert_eq!(choice["points"].as_array().unwrap().len(), 1);
    let report = done(&["inspect", &out.display().to_string(), "--format", "json"]).json();
    assert_eq!(report["statistic"], "energy", "of the preset");
    assert_eq!(report["total_rank"], choice["points"][0]["total_rank"]);
}

#[test]
fn a_run_whose_ranks_are_all_pruned_is_still_a_classifier() {
    let pruning = ["--set", "prune.log_alpha_threshold=-20", "--set", "prune.every=0.34"];
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    done(&train(&data, &out, 6, &pruning));
    let out = out.display().to_string();
    let report = done(&["inspect", &out, "--format", "json"]).json();
    assert_eq!(report["total_rank"], 0);
    assert!(report["lora_config"].is_null(), "{report}");
    assert_eq!(report["modules"].as_array().unwrap().len(), 24);
    done(&["eval", &out, "--data", &data[1]]);
    assert!(done(&["predict", &out, "a fine film"]).stdout.contains("probs"));
}

#[test]
fn every_method_predicts_by_the_draws_it_was_trained_with() {
    // A variance per entry, and dropout, which has no posterior file.
    reload_predicts_the_same(&["--method", "lrvd-element", "--set", "draws=[2]"], 2);
    for kind in ["fresh", "activation"] {
        let kind = format!("prediction_draws={kind}");
        reload_predicts_the_same(&["--method", "bayeslora", "--set", &kind], 3);
    }
    let (dir, data) = trained_and_reloaded(&["--method", "mcd"], 3, false);
    let out = dir.path().join("out").display().to_string();
    let answer = &lines(&done(&["predict", &out, "a fine film"]).stdout)[0];
    assert!(answer["draws"] == 0 && answer["mutual_information"].is_null(), "{answer}");
    let drawn = ["predict", &out, "--draws", "3", "a fine film"];
    let answer = &lines(&done(&drawn).stdout)[0];
    assert!(answer["draws"] == 3 && answer["mutual_information"].as_f64().unwrap() > 0.0);
    let exported = dir.path().join("exported").display().to_string();
    done(&["export", "--to", "peft", &out, "--out", &exported]);
    let config: Value = json_of(&Path::new(&exported).join("adapter_config.json"));
    assert_eq!(config["lora_dropout"], 0.1);
    let base = model().display().to_string();
    let asked = ["eval", &exported, "--model", &base, "--data", &data[1], "--draws", "2"];
    let asked = done(&[&asked[..], &["--format", "json"]].concat());
    assert!(asked.json()["metrics"]["2"]["mutual_information"].is_f64());
}

#[test]
fn a_fitted_temperature_is_saved_with_the_adapter_and_used() {
    let fitted = ["--set", "draws=[2]", "--set", "holdout=0.3"];
    for (method, draws) in [("lora+ts", 0), ("bayeslora+ts", 2)] {
        let more = [["--method", method].as_slice(), &fitted].concat();
        let (dir, data) = reload_predicts_the_same(&more, draws);
        let out = dir.path().join("out");
        let path = out.join("adapter/lrvd_classifier.json");
        let mut info: Value = json_of(&path);
        let temperatures = info["temperatures"].as_object().unwrap().clone();
        assert_eq!(temperatures.len(), if draws > 0 { 2 } else { 1 });
        let record: Value = json_of(&out.join("record.json"));
        assert_eq!(record["fitted"]["temperature-k0"], temperatures["0"]);
        // Without it the same weights answer otherwise; twice as hot, nearer to even.
        let adapter = out.join("adapter").display().to_string();
        let report = done(&["inspect", &adapter, "--format", "json"]).json();
        assert_eq!(report["temperatures"]["0"], temperatures["0"]);
        let mut asked = |temperature: Option<f64>| {
            match temperature {
                Some(t) => info["temperatures"] = serde_json::json!({ "0": t }),
                None => drop(info.as_object_mut().unwrap().remove("temperatures")),
            }
            std::fs::write(&path, info.to_string()).unwrap();
            run(&["predict", &adapter, "--allow-changed", "--draws", "0", "a fine film"])
        };
        let top = |answer: &Value| {
            let p: Vec<f64> =
                answer["probs"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
            p.into_iter().fold(0.0, f64::max)
        };
        let log_odds = |p: f64| (p / (1.0 - p)).ln();
        let of = |output: &super::support::Output| top(&lines(&output.stdout)[0]);
        let (plain, hot) = (of(&asked(None)), of(&asked(Some(4.0))));
        assert!((log_odds(plain) / log_odds(hot) - 4.0).abs() < 1e-3, "{plain} {hot}");
        let wrong = asked(Some(-1.0));
        wrong.rejected("temperature of 0 draws is -1");
        asked(Some(2.0));
        if draws > 0 {
            let asked = ["eval", &adapter, "--allow-changed", "--data", &data[1], "--draws", "2"];
            let other = run(&asked);
            other.rejected("no temperature was fitted for 2");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let best = ["--method", "lora+ts", "--set", "checkpoint=best"];
    let rejected = run(&train(&data, &dir.path().join("out"), 2, &best));
    rejected.rejected("checkpoint=last");
}

#[test]
fn a_run_says_what_became_of_its_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    for (method, expected) in
        [("lrvd-a-only", "learnt"), ("bayeslora-fixed", "fixed"), ("adalora", "asked for")]
    {
        let out = dir.path().join(method);
        done(&train(&data, &out, 2, &["--method", method]));
        let record: Value = json_of(&out.join("record.json"));
        assert_eq!(record["rank_budget"]["note"], expected, "{method}");
    }
    // Nothing was pruned, whatever the threshold says.
    let out = dir.path().join("bayeslora-fixed").display().to_string();
    let printed = done(&["inspect", &out]).stdout;
    assert!(printed.contains("\n0 directions were pruned; "), "{printed}");
}

#[test]
fn a_base_checkpoint_is_counted() {
    let report = done(&["inspect", &model().display().to_string(), "--format", "json"]).json();
    assert_eq!((report["kind"].as_str(), report["layers"].as_u64()), (Some("base"), Some(4)));
    let parts = report["parameters"].as_object().unwrap();
    let sum: u64 = parts.values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(report["total_parameters"], sum);
    // 8064 tokens of width 192, and the two vectors of the norm.
    assert_eq!(parts["embeddings"], 8064 * 192 + 2 * 192);
    assert_eq!(report["architecture"], "deberta");

    let llama = model().with_file_name("stories260K").display().to_string();
    let report = done(&["inspect", &llama, "--format", "json"]).json();
    assert_eq!((&report["architecture"], &report["hidden_size"]), (&"llama".into(), &64.into()));
    assert_eq!(report["parameters"]["embed_tokens"], 512 * 64);
    assert!(done(&["inspect", &llama]).stdout.starts_with("llama base checkpoint"));
}

#[test]
fn checkpoints_and_adapters_are_checked() {
    let check = |path: &Path| run(&["inspect", "--check", &path.display().to_string()]);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden/peft");
    for (case, base, adapter) in [("deberta_lora_rslora", 42, 12), ("llama_lora_r4", 21, 10)] {
        // An adapter beside its base model, as transformers saves both.
        let dir = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(golden.join(case).join("base")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let alone = check(dir.path());
        let text = format!("{base} tensors of the base model were read and are finite\n");
        assert!(alone.code == 0 && alone.stdout.starts_with(&text), "{case}: {}", alone.stdout);
        for file in ["adapter_config.json", "adapter_model.safetensors"] {
            let from = golden.join(case).join("adapter").join(file);
            std::fs::copy(from, dir.path().join(file)).unwrap();
        }
        let name = dir.path().display().to_string();
        let report = done(&["inspect", "--check", &name, "--format", "json"]).json();
        let expected = (&base.into(), &adapter.into(), &true.into());
        let found = (&report["base_tensors"], &report["adapter_tensors"], &report["finite"]);
        assert_eq!(found, expected, "{case}");

        let lone = check(&golden.join(case).join("adapter"));
        assert!(lone.code == 0 && lone.stdout.contains("nothing was computed"), "{}", lone.stdout);
        // One value is not a number, at the end of the file; then the file is cut short.
        let weights = dir.path().join("model.safetensors");
        let mut bytes = std::fs::read(&weights).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(&weights, &bytes).unwrap();
        let broken = check(dir.path());
        assert!(broken.code == 1 && broken.stderr.contains("not finite"), "{}", broken.stderr);
        std::fs::write(&weights, &bytes[..end - 4]).unwrap();
        let broken = check(dir.path());
        assert!(broken.code == 1 && broken.stderr.contains("cut short"), "{}", broken.stderr);
    }
}
