//! Train, evaluate, predict, inspect, export: the same numbers all along.

use std::io::{BufRead as _, BufReader, Write as _};

use lrvd_bench::grouped;
use serde_json::{Value, json};

use crate::support::{
    Output, Sandbox, assert_same_answers, difference, done, golden, lines, model, numbers, training,
};

/// Trains 6 steps with `more`, and checks that a reload predicts what the end of training did, at the
/// mean and at `draws` draws.
fn reload_predicts_the_same(more: &str, draws: usize) -> Sandbox {
    let dir = Sandbox::new();
    let trained = dir.train("out", 6, more).stdout;
    assert!(trained.contains("accuracy"), "{trained}");
    let record = dir.json("out/record.json");
    let counts = &record["trainable_parameters"];
    let count = |part: &str| counts[part].as_u64().unwrap();
    let named = [
        ("adapter", "in adapters"),
        ("posterior", "in the posterior"),
        ("head", "in pooler and head"),
    ];
    let parts = named.into_iter().filter(|(part, _)| count(part) > 0);
    let parts: Vec<String> =
        parts.map(|(part, name)| format!("{} {name}", grouped(count(part), ' '))).collect();
    let all = grouped(["adapter", "posterior", "head"].map(count).iter().sum(), ' ');
    let sizes = format!("trained values: {}, {all} in all\n", parts.join(", "));
    let start = &record["rank_events"][0]["total_rank"];
    let of = if start.is_null() { String::new() } else { format!(" of {start}") };
    let last = &record["checkpoints"]["last"]["total_rank"];
    let ranks = format!("step 6: total rank {last}{of}, ");
    assert!(trained.contains(&ranks) && trained.ends_with(&sizes), "{ranks}{sizes}: {trained}");
    for file in ["settings.json", "record.json", "labels.json", "adapter/lrvd_classifier.json"] {
        assert!(dir.exists(&format!("out/{file}")), "{file}");
    }
    assert!(!dir.exists("out/checkpoints"));
    // Dropout has no posterior file.
    let has_posterior = draws > 0 && !more.contains("mcd");
    assert_eq!(dir.exists("out/adapter/lrvd_posterior.safetensors"), has_posterior);

    let eval = "eval out/adapter --data dev.csv --out again.jsonl --format json --quiet";
    let evaluated = dir.done(eval).json();
    assert_eq!((&evaluated["schema_version"], &evaluated["rows"]), (&json!(1), &json!(12)));
    for k in if draws > 0 { vec![0, draws] } else { vec![0] } {
        let metrics = &evaluated["metrics"][k.to_string()];
        let names = ["accuracy", "nll", "ece", "brier", "entropy"];
        assert!(names.iter().all(|name| metrics[name].is_f64()), "{metrics}");
        assert!(metrics["standard"]["f1"].is_f64() && metrics["standard"]["matthews"].is_f64());
        assert_eq!(metrics["mutual_information"].is_f64(), k > 0);
    }
    let before = dir.lines("out/predictions-last.jsonl");
    assert_eq!(before.len(), 12);
    assert_same_answers(&before, &dir.lines("again.jsonl"));
    dir
}

fn report_of(dir: &Sandbox, name: &str) -> Value {
    dir.done(&format!("inspect {name} --format json")).json()
}

/// The ranks of the adapter in `out`, `total` of them, as settings of a plain LoRA, and cut to one a module.
fn its_ranks_go_elsewhere(dir: &Sandbox, total: u64) {
    let plain = &report_of(dir, "out")["lora_config"];
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
    let capped = "export --to peft out --out capped --cap-rank 1 --format json";
    let report = dir.done(capped).json();
    let lost = report["cap_error"].as_f64().unwrap();
    assert!((0.0..1.0).contains(&lost) && report["posterior"] == false, "{report}");
    assert_eq!(
        (&report["max_rank"], &report_of(dir, "capped")["max_rank"]),
        (&1.into(), &1.into())
    );
    // An export names no folder of this machine.
    let answer = dir.done("predict capped --model @nano 'a fine film'");
    assert!(answer.stdout.contains("\"draws\":0"));
}

#[test]
fn bayes_lora_from_training_to_export() {
    // Every statistic starts between 1.3 and 2.9: a threshold of 1.8 prunes about half.
    let pruning = "--set prune.log_alpha_threshold=1.8 --set prune.every=0.34";
    let dir = reload_predicts_the_same(pruning, 3);
    let report = report_of(&dir, "out");
    let modules = report["modules"].as_array().unwrap();
    assert_eq!((report["kind"].as_str(), modules.len()), (Some("run"), 24));
    let total = report["total_rank"].as_u64().unwrap();
    assert!(total > 0 && total < 24 * 3, "the threshold prunes some: {total}");
    for module in modules {
        let rank = module["rank"].as_u64().unwrap() as usize;
        assert_eq!(module["log_alpha"].as_array().unwrap().len(), rank);
        let start = (&module["initial_rank"], &module["scaling"]);
        assert_eq!(start, (&3.into(), &(16.0 / 3.0).into()));
    }
    let printed = dir.done("inspect out").stdout;
    let (gone, above) = (24 * 3 - total, report["above_threshold"].as_u64().unwrap());
    assert_eq!(report["pruned"].as_u64(), Some(gone));
    let expected =
        format!("{gone} directions were pruned; {above} of those left have a log_alpha of");
    assert!(printed.contains("log_alpha min") && printed.contains(&expected), "{printed}");

    its_ranks_go_elsewhere(&dir, total);
    its_answers_are_the_same_by_every_way_of_asking(&dir);
    texts_are_answered_in_their_order_whatever_their_lengths(&dir);

    let [ragged, uniform] = ["ragged", "uniform"].map(|layout| {
        let json = format!("--layout {layout} --format json --quiet");
        dir.done(&format!("export --to peft out --out {layout} {json}")).json()
    });
    assert!(ragged["max_rank"].as_u64().unwrap() <= 3);
    assert_eq!((&ragged["posterior"], &uniform["posterior"]), (&true.into(), &false.into()));
    let ranks = |report: &Value| -> Vec<u64> {
        report["ranks"].as_object().unwrap().values().map(|r| r.as_u64().unwrap()).collect()
    };
    assert_eq!(ranks(&ragged).iter().sum::<u64>(), total);
    assert!(ranks(&uniform).iter().all(|r| Some(*r) == uniform["max_rank"].as_u64()));
    let mean = |folder: &str| {
        let asked = format!("predict {folder} --model @nano --draws 0 'a fine film'");
        dir.done(&asked).lines()[0]["probs"].clone()
    };
    assert!(difference(&mean("ragged"), &mean("out")) <= 1e-6);
    assert!(difference(&mean("uniform"), &mean("out")) <= 1e-6);
    dir.run("eval uniform --model @nano --data dev.csv --draws 2").rejected("need a posterior");
}

/// Arguments, lines and JSONL are the same texts, and so give the same answers; options decide on draws and labels.
fn its_answers_are_the_same_by_every_way_of_asking(dir: &Sandbox) {
    const TEXTS: &str = "'a fine film' 'a grim book'";
    let predict = |more: &str| dir.done(&format!("predict out {TEXTS} {more}"));
    let answers = predict("--draws 3").stdout;
    let by_lines = dir.run_with("predict out --draws 3", "a fine film\n\na grim book\n");
    let objects = "{\"text\":\"a fine film\"}\n{\"text\":\"a grim book\",\"id\":7}\n";
    let by_objects = dir.run_with("predict out --draws 3 --jsonl", objects);
    assert_eq!((&by_lines.stdout, &by_objects.stdout), (&answers, &answers));
    let answers = lines(&answers);
    for answer in &answers {
        assert!((numbers(&answer["probs"]).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(["good", "bad"].contains(&answer["predicted"].as_str().unwrap()));
        assert!(answer["entropy"].as_f64() > Some(0.0));
        assert!(answer["mutual_information"].as_f64() >= Some(0.0));
    }
    let sure = predict("--draws 3 --abstain-above 0").lines();
    assert!(sure.iter().all(|a| a["predicted"].is_null() && a["abstained"] == true));
    // The default is the mean; an option on how draws are made takes the number of the training.
    let plain = predict("").lines();
    assert!(plain.iter().all(|a| a["draws"] == 0 && a["mutual_information"].is_null()));
    assert_eq!(predict("--cascade 1").lines(), answers);
    // Nothing is decided by less than 0, everything by less than 1.
    for (margin, draws) in [("0", 0), ("1", 3)] {
        let spared = predict(&format!("--draws 3 --cascade {margin}")).lines();
        for (answer, all) in spared.iter().zip(&answers) {
            assert_eq!(answer["draws"], draws);
            assert_eq!(answer["mutual_information"].is_null(), draws == 0);
            assert_eq!(answer["probs"] == all["probs"], draws == 3);
        }
    }
    for (wrong, expected) in [
        ("--cascade 1.5", "`cascade` is 1.5, outside 0..=1"),
        ("--tolerance 0.1 --draws 0", "`tolerance` needs draws"),
        ("--pair two", "trained on a single text"),
    ] {
        dir.run(&format!("predict out one {wrong}")).rejected(expected);
    }
    let document = predict("--draws 3 --format json").json();
    assert_eq!(document["predictions"].as_array().unwrap().len(), 2);
}

/// More texts than a batch has, of all lengths, in no order of them.
fn texts_are_answered_in_their_order_whatever_their_lengths(dir: &Sandbox) {
    let texts: Vec<String> =
        (0..40).map(|i| format!("{}number {i}", "a fine film and ".repeat(i * 7 % 5))).collect();
    for draws in [0, 3] {
        let predict = format!("predict out --draws {draws}");
        let together = dir.run_with(&predict, &texts.join("\n")).stdout;
        assert_eq!(together.lines().count(), 40);
        for (text, answer) in texts.iter().zip(together.lines()).step_by(7) {
            let alone = dir.done(&format!("{predict} '{text}'")).stdout;
            assert_eq!(alone.trim_end(), answer, "{draws} draws");
        }
    }
    // The first answers come while the input is still open.
    let mut child = dir.start("predict out");
    let mut input = child.stdin.take().unwrap();
    input.write_all((texts[..8].join("\n") + "\n").as_bytes()).unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for text in &texts[..8] {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(&answer["text"], text);
    }
    drop(input);
    assert!(answers.next().is_none() && child.wait().unwrap().success());
}

#[test]
fn tables_of_every_format_are_predicted_by_their_columns() {
    let dir = Sandbox::new();
    // Columns of the user's own, which prediction must find again.
    for file in ["train.tsv", "dev.csv"] {
        dir.write(file, dir.text(file).replacen("text", "review", 1));
    }
    dir.train("out", 2, "--method lora --text-column review");
    let expected = dir.done("predict out 'a fine film' 'dull, and cold'").stdout;
    let objects = "{\"review\":\"a fine film\"}\n\n{\"review\":\"dull, and cold\",\"pair\":1}\n";
    for (file, text, more) in [
        ("x.csv", "id,review\n1,a fine film\n2,\"dull, and cold\"\n", ""),
        ("x.tsv", "body\tid\na fine film\t1\ndull, and cold\t2\n", "--text-column body"),
        ("x.jsonl", objects, ""),
        ("x.log", objects, "--jsonl"),
        ("x.txt", "a fine film\n\ndull, and cold\n", ""),
    ] {
        dir.write(file, text);
        let found = dir.done(&format!("predict out --input {file} {more}")).stdout;
        assert_eq!(found, expected, "{file}");
    }
    assert_eq!(dir.run_with("predict out --jsonl", objects).stdout, expected);
    let parquet = "../lrvd-bench/tests/golden/data/cola-train-00000-of-00002.parquet";
    std::fs::copy(parquet, dir.path("x.parquet")).unwrap();
    let found = dir.done("predict out --input x.parquet --text-column sentence").lines();
    assert_eq!(found.len(), 2);

    dir.write("x.md", "text");
    for (more, expected) in [
        ("--input x.tsv", "no column `review`; its columns are `body`, `id`"),
        ("--input x.md", "is in no known format"),
        ("--input absent.csv", "cannot read `absent.csv`"),
        ("--text-column body", "need a table"),
    ] {
        dir.run(&format!("predict out {more}")).rejected(expected);
    }
}

#[test]
fn deterministic_methods_come_back_without_a_posterior() {
    let dir = reload_predicts_the_same("--method lora", 0);
    // The same command again finds the run complete and changes nothing.
    let record = dir.text("out/record.json");
    dir.run(&training("out", 6, "--method lora")).rejected("--resume");
    dir.train("out", 6, "--method lora --resume");
    assert_eq!(record, dir.text("out/record.json"));
    let other = training("out", 6, "--method lora --resume --seed 6");
    dir.run(&other).rejected("seed: 5 then, 6 now");

    // Another base model is noticed.
    dir.copy(&model(), "base");
    let predict = "predict out --model base 'a fine film'";
    dir.done(predict);
    let mut bytes = dir.bytes("base/model.safetensors");
    // The lowest bit of one value: still finite, still another model.
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    dir.write("base/model.safetensors", bytes);
    dir.run(predict).rejected("other weights");
    dir.done(&format!("{predict} --allow-other-base"));

    reload_predicts_the_same("--method adalora --target-rank 1", 0);
}

#[test]
fn a_fitted_threshold_is_kept_and_used() {
    let dir = Sandbox::new();
    dir.train("out", 4, "");
    // The rows that trained the model, also in a copy of the file.
    dir.write("copy.tsv", dir.bytes("train.tsv"));
    dir.run("abstain fit out --data copy.tsv").rejected("trained or chose this model");
    // The validation rows of the last model chose nothing.
    let fit = |more: &str| dir.run(&format!("abstain fit out --data dev.csv --draws 2 {more}"));
    let never = "no threshold has an error rate below 0.001 with 95 % confidence on these 12 rows";
    fit("--risk 0.001").rejected(never);
    let answer = |more: &str| dir.run(&format!("predict out 'a fine film' {more}"));
    assert!(!answer("--draws 2").stdout.contains("abstained"));

    let found = &fit("--risk 0.9 --delta 0.5 --format json").json()["abstention"];
    let number = |name: &str| found[name].as_f64().unwrap();
    let above = number("above");
    assert!(above > 0.0 && number("bound") <= 0.9 && number("risk") <= number("bound"), "{found}");
    let given = &answer("--draws 2").lines()[0];
    assert_eq!(given["abstained"], given["entropy"].as_f64().unwrap() > above);
    // It is not for other draws; whoever names a threshold has that one.
    for more in ["--draws 3", "--draws 2 --tolerance 0.1"] {
        answer(more).rejected("no threshold was fitted");
    }
    for (more, abstained) in
        [("--draws 3 --abstain-above inf", false), ("--draws 2 --abstain-above 0", true)]
    {
        assert_eq!(answer(more).lines()[0]["abstained"], abstained, "{more}");
    }
}

#[test]
fn no_threshold_is_fitted_to_rows_that_the_model_depends_on() {
    let dir = Sandbox::new();
    let fit = |out: &str, file: &str| {
        let risk = "--risk 0.9 --delta 0.5 --draws 0";
        dir.run(&format!("abstain fit {out} --data {file} {risk}"))
    };
    let seen = "trained or chose this model, so its error rate there is not that of new texts";
    // The validation rows chose the best model.
    dir.train("best", 2, "--set checkpoint=best");
    for file in ["train.tsv", "dev.csv"] {
        fit("best", file).rejected(seen);
    }
    // Rows of the training file gave the temperature; those of the validation file chose nothing.
    dir.train("last", 2, "--method lora+ts --set holdout=0.25");
    fit("last", "train.tsv").rejected(seen);
    // Whether a threshold is found depends on the answers.
    let unnamed = "does not name the files that trained or chose the model";
    let fitted = fit("last", "dev.csv").stderr;
    assert!(!fitted.contains(seen) && !fitted.contains(unnamed), "{fitted}");
    // All rows of a run without a validation file are in one file.
    let short = "--steps 2 --max-length 16 --rank 3 --out one";
    dir.done(&format!("train --quiet --model @nano --train train.tsv {short}"));
    fit("one", "train.tsv").rejected(seen);

    // A description of an earlier version names no files.
    dir.edit("last/adapter/lrvd_classifier.json", |info| {
        ["hashes", "seen"].map(|key| info.as_object_mut().unwrap().remove(key).unwrap())
    });
    let fitted = fit("last", "train.tsv").stderr;
    assert!(!fitted.contains(seen) && fitted.contains(unnamed), "{fitted}");
}

#[test]
fn one_file_is_enough_and_is_looked_at_before() {
    let dir = Sandbox::new();
    let checked = |more: &str| {
        let fixed = "data check --train train.tsv --model @nano --max-length 6";
        dir.done(&format!("{fixed} {more}"))
    };
    let report = checked("--format json --validation-split 0.25").json();
    let splits = report["splits"].as_array().unwrap();
    let classes = |split: &Value| -> u64 {
        let counts = split["classes"].as_array().unwrap().iter();
        counts.map(|class| class[1].as_u64().unwrap()).sum()
    };
    for (split, rows) in splits.iter().zip([24, 8]) {
        assert_eq!((split["rows"].as_u64(), classes(split)), (Some(rows), rows));
    }
    let (longest, cut) = (&splits[0]["tokens"]["most"], &splits[0]["truncated"]);
    assert!(longest.as_u64().unwrap() > 6 && cut.as_u64().unwrap() > 0, "{report}");
    assert!(report["examples"][0]["input"].as_str().unwrap().starts_with("[CLS]"), "{report}");
    let shown = checked("").stdout;
    assert!(shown.contains("class `good`") && shown.contains("cut") && shown.contains("-> good"));

    // Two epochs of 29 rows in batches of 4; the share that is measured on is part of the run.
    let train = "train --quiet --model @nano --train train.tsv --batch-size 4 --rank 2 --max-length 8 \
                 --set draws=[2] --out out --epochs 2 --learning-rate 2e-3";
    dir.done(train);
    let settings = dir.json("out/settings.json");
    assert_eq!(settings["experiment"]["steps"], 16);
    // By default the method is LoRA, and a temperature is fitted to a tenth of the rows.
    assert_eq!(settings["method"], "LoRA+TS");
    assert_eq!(settings["experiment"]["holdout"], 0.1);
    assert_eq!(report_of(&dir, "out")["temperatures"].as_object().unwrap().len(), 1);
    assert_eq!(settings["experiment"]["learning_rate"], 2e-3);
    assert_eq!(settings["validation_split"], 0.1);
    assert_eq!(dir.lines("out/predictions-last.jsonl").len(), 3);
    dir.run(&format!("{train} --validation-split 0.2 --resume")).rejected("validation_split");
    dir.run(&format!("{train} --validation-split 0.001")).rejected("32 rows");
}

#[test]
fn a_run_whose_ranks_are_all_pruned_is_still_a_classifier() {
    let dir = Sandbox::new();
    dir.train("out", 6, "--set prune.log_alpha_threshold=-20 --set prune.every=0.34");
    let report = report_of(&dir, "out");
    assert_eq!(report["total_rank"], 0);
    assert!(report["lora_config"].is_null(), "{report}");
    assert_eq!(report["modules"].as_array().unwrap().len(), 24);
    dir.done("eval out --data dev.csv");
    assert!(dir.done("predict out 'a fine film'").stdout.contains("probs"));
}

#[test]
fn every_method_predicts_by_the_draws_it_was_trained_with() {
    // A variance per entry, and dropout, which has no posterior file.
    reload_predicts_the_same("--method lrvd-element --set draws=[2]", 2);
    for kind in ["fresh", "activation"] {
        reload_predicts_the_same(&format!("--set prediction_draws={kind}"), 3);
    }
    let dir = reload_predicts_the_same("--method mcd", 3);
    let answer = &dir.done("predict out 'a fine film'").lines()[0];
    assert!(answer["draws"] == 0 && answer["mutual_information"].is_null(), "{answer}");
    let answer = &dir.done("predict out --draws 3 'a fine film'").lines()[0];
    assert!(answer["draws"] == 3 && answer["mutual_information"].as_f64() > Some(0.0), "{answer}");
    dir.done("export --to peft out --out exported");
    assert_eq!(dir.json("exported/adapter_config.json")["lora_dropout"], 0.1);
    let eval = "eval exported --model @nano --data dev.csv --draws 2 --format json";
    assert!(dir.done(eval).json()["metrics"]["2"]["mutual_information"].is_f64());
}

#[test]
fn a_fitted_temperature_is_saved_with_the_adapter_and_used() {
    for (method, draws) in [("lora+ts", 0), ("bayeslora+ts", 2)] {
        let more = format!("--method {method} --set draws=[2] --set holdout=0.3");
        let dir = reload_predicts_the_same(&more, draws);
        let description = "out/adapter/lrvd_classifier.json";
        let temperatures = dir.json(description)["temperatures"].as_object().unwrap().clone();
        assert_eq!(temperatures.len(), if draws > 0 { 2 } else { 1 });
        let record = dir.json("out/record.json");
        assert_eq!(record["fitted"]["temperature-k0"], temperatures["0"]);
        assert_eq!(report_of(&dir, "out/adapter")["temperatures"]["0"], temperatures["0"]);
        // Without it the same weights answer otherwise; twice as hot, nearer to even.
        let asked = |temperature: Option<f64>| {
            dir.edit(description, |info| match temperature {
                Some(t) => info["temperatures"] = json!({ "0": t }),
                None => drop(info.as_object_mut().unwrap().remove("temperatures")),
            });
            dir.run("predict out/adapter --allow-changed --draws 0 'a fine film'")
        };
        let log_odds = |output: &Output| {
            let p = numbers(&output.lines()[0]["probs"]).into_iter().fold(0.0, f64::max);
            (p / (1.0 - p)).ln()
        };
        let (plain, hot) = (log_odds(&asked(None)), log_odds(&asked(Some(4.0))));
        assert!((plain / hot - 4.0).abs() < 1e-3, "{plain} {hot}");
        asked(Some(-1.0)).rejected("temperature of 0 draws is -1");
        asked(Some(2.0));
        if draws > 0 {
            dir.run("eval out/adapter --allow-changed --data dev.csv --draws 2")
                .rejected("no temperature was fitted for 2");
        }
    }
    let best = training("out", 2, "--method lora+ts --set checkpoint=best");
    Sandbox::new().run(&best).rejected("checkpoint=last");
}

#[test]
fn a_run_says_what_became_of_its_ranks() {
    let dir = Sandbox::new();
    for (method, expected) in
        [("lrvd-a-only", "learnt"), ("bayeslora-fixed", "fixed"), ("adalora", "asked for")]
    {
        dir.train(method, 2, &format!("--method {method}"));
        let record = dir.json(&format!("{method}/record.json"));
        assert_eq!(record["rank_budget"]["note"], expected, "{method}");
    }
    // Nothing was pruned, whatever the threshold says.
    let printed = dir.done("inspect bayeslora-fixed").stdout;
    assert!(printed.contains("\n0 directions were pruned; "), "{printed}");
}

#[test]
fn a_base_checkpoint_is_counted() {
    let report = done("inspect @nano --format json").json();
    assert_eq!((report["kind"].as_str(), report["layers"].as_u64()), (Some("base"), Some(4)));
    let parts = report["parameters"].as_object().unwrap();
    let sum: u64 = parts.values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(report["total_parameters"], sum);
    // 8064 tokens of width 192, and the two vectors of the norm.
    assert_eq!(parts["embeddings"], 8064 * 192 + 2 * 192);
    assert_eq!(report["architecture"], "deberta");

    let report = done("inspect @llama --format json").json();
    assert_eq!((&report["architecture"], &report["hidden_size"]), (&"llama".into(), &64.into()));
    assert_eq!(report["parameters"]["embed_tokens"], 512 * 64);
    assert!(done("inspect @llama").stdout.starts_with("llama base checkpoint"));
}

#[test]
fn modules_without_a_rank_are_summed_up() {
    let text = done("inspect tests/cli/pins/adapters/encoder").stdout;
    let paths =
        [0, 1, 2, 3].map(|i| format!("deberta.encoder.layer.{i}.attention.self.value_proj"));
    let is_listed = |path| text.lines().any(|line| line.trim_start().starts_with(path));
    assert_eq!(paths.each_ref().map(is_listed), [true, true, false, false], "{text}");
    let expected = format!("\n2 of 4 modules have no rank left, `{}` among them\n", paths[2]);
    assert!(text.contains(&expected) && text.contains("; 1 152 values in adapters, "), "{text}");
}

#[test]
fn checkpoints_and_adapters_are_checked() {
    for (case, base, adapter) in [("deberta_lora_rslora", 42, 12), ("llama_lora_r4", 21, 10)] {
        let dir = Sandbox::new();
        let check = || dir.run("inspect --check both");
        // An adapter beside its base model, as transformers saves both.
        dir.copy(&golden("peft").join(case).join("base"), "both");
        let alone = check();
        let text = format!("{base} tensors of the base model were read and are finite\n");
        assert!(alone.code == 0 && alone.stdout.starts_with(&text), "{case}: {}", alone.stdout);
        dir.copy(&golden("peft").join(case).join("adapter"), "both");
        let report = dir.done("inspect --check both --format json").json();
        let expected = (&base.into(), &adapter.into(), &true.into());
        let found = (&report["base_tensors"], &report["adapter_tensors"], &report["finite"]);
        assert_eq!(found, expected, "{case}");

        let lone = done(&format!("inspect --check @golden/peft/{case}/adapter")).stdout;
        assert!(lone.contains("nothing was computed"), "{lone}");
        // One value is not a number, at the end of the file; then the file is cut short.
        let mut bytes = dir.bytes("both/model.safetensors");
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&f32::NAN.to_le_bytes());
        for (bytes, expected) in [(&bytes[..], "not finite"), (&bytes[..end], "cut short")] {
            dir.write("both/model.safetensors", bytes);
            let broken = check();
            assert!(broken.code == 1 && broken.stderr.contains(expected), "{}", broken.stderr);
        }
    }
}
