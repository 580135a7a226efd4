//! A short training of every method on both shipped models, each stopped by a signal and resumed, with its records.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lrvd_bench::method::MethodName;

use super::{Pins, UNPINNED, hash};
use crate::support::{files_below, lrvd, signal, training};

/// Settings of a run of eight steps with four evaluations and two prunes, on few rows.
const SHORT: &str = "--set batch_size=4 --set evaluation_batch_size=8 --set evaluate_every=2 --set train_rows=64 \
                     --set validation_rows=16 --set initial_rank=3 --set prune.log_alpha_threshold=1.8 \
                     --set prune.every=0.34 --set methods.laplace.examples=16 --set methods.tfb.anchors=8 \
                     --set methods.tfb.samples=2 --set methods.swag.start=0.3 --set methods.swag.every=0.3 \
                     --set holdout=0.25";

/// One run of each method, without a choice by held-out rows, for which it is too short.
const ONCE: &str = "--steps 8 --seeds 1 --preset constant-weight";

/// Every method of the table, and two with a temperature.
fn methods() -> String {
    let keys = MethodName::all().map(MethodName::key);
    keys.chain(["lora+ts", "bayeslora+ts"].map(str::to_owned)).collect::<Vec<_>>().join(",")
}

/// `lrvd bench` with the settings of [`SHORT`].
fn suite(name: &str, task: &str, methods: &str, out: &str, more: &str) -> String {
    format!(
        "bench {name} --quiet --out {out} --tasks {task} --methods {methods} --draws 2,3 {SHORT} {more}"
    )
}

/// Folders of runs below `out` that have a checkpoint.
fn with_checkpoints(out: &Path) -> Vec<PathBuf> {
    let mut folders = vec![out.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if name.starts_with("step-") => found.push(folder.clone()),
                Some("data" | "adapter" | "tensorboard") | None => {}
                Some(_) if path.is_dir() => folders.push(path),
                Some(_) => {}
            }
        }
    }
    found
}

/// Runs the command to its end, and stops every training once, after its first checkpoint; the number of stops.
fn run_with_stops(words: &str, out: &Path) -> usize {
    let mut stopped = BTreeSet::new();
    loop {
        let mut command = lrvd(&format!("{words} --resume"));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut is_told = false;
        while child.try_wait().unwrap().is_none() {
            let mut new = with_checkpoints(out).into_iter().filter(|run| !stopped.contains(run));
            if let Some(run) = new.next_back().filter(|_| !is_told) {
                signal(&child, "-TERM");
                is_told = true;
                stopped.insert(run);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => return stopped.len(),
            Some(75) => {}
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// What there is to know of the runs of a suite.
fn pin_runs(pins: &mut Pins, out: &Path, task: &str) {
    let results = pins.dir.json(&format!("{}/results.json", out.display()));
    for run in results["runs"].as_array().unwrap() {
        let method = run["method"].as_str().unwrap();
        let key = method.to_lowercase();
        let ranks: Vec<String> = run["rank_events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| format!("{}:{}", event["step"], event["total_rank"]))
            .collect();
        let events = hash(run["rank_events"].to_string().as_bytes());
        pins.exact(&format!("{key}.ranks"), format!("{} {events}", ranks.join(" ")));
        pins.json(&format!("{key}.parameters"), &run["trainable_parameters"]);
        pins.json(&format!("{key}.fitted"), &run["fitted"]);
        for (choice, checkpoint) in run["checkpoints"].as_object().unwrap() {
            for (draws, metrics) in checkpoint["metrics"].as_object().into_iter().flatten() {
                let value = |name: &str| metrics[name].as_f64();
                let values = ["nll", "accuracy", "ece", "brier", "entropy", "mutual_information"];
                let name = format!("{key}.{choice}.{draws}");
                pins.near(&name, values.iter().filter_map(|name| value(name)));
            }
        }
        for (set, ood) in run["ood"].as_object().unwrap() {
            pins.json(&format!("{key}.ood.{set}"), ood);
        }
        let losses = run["history"].as_array().unwrap().iter().filter_map(|p| p["loss"].as_f64());
        pins.near(&format!("{key}.losses"), losses);
        let folder = out.join(format!("runs/{task}/{key}/seed-1"));
        // Rows that average others have no folder.
        let files = if folder.is_dir() { files_below(&folder) } else { Vec::new() };
        // The others name places of this machine.
        let is_pinned = |file: &&PathBuf| {
            file.extension().is_some_and(|end| end == "safetensors" || end == "jsonl")
        };
        for file in files.iter().filter(is_pinned) {
            let name = file.strip_prefix(&folder).unwrap().display().to_string();
            pins.bits(&format!("{key}/{name}"), file);
        }
    }
}

#[test]
fn every_method_on_the_encoder() {
    let mut pins = Pins::new("training-encoder");
    let (out, methods) = (pins.path("out"), methods());
    let command = suite("glue", "rte", &methods, &out, ONCE);
    assert!(run_with_stops(&command, out.as_ref()) >= 10);
    pin_runs(&mut pins, out.as_ref(), "rte");
    pins.finish();
}

#[test]
fn every_method_on_the_llama() {
    let mut pins = Pins::new("training-llama");
    let (out, methods) = (pins.path("out"), methods());
    let command = suite("reasoning", "wg-s", &methods, &out, ONCE);
    assert!(run_with_stops(&command, out.as_ref()) >= 10);
    pin_runs(&mut pins, out.as_ref(), "wg-s");
    pins.finish();
}

/// The first table with two seeds, held-out rows choosing the weight; and another set's questions.
#[test]
fn records_and_tables() {
    let mut pins = Pins::new("records");
    let out = pins.path("glue");
    let more = "--seeds 1,2 --steps 16";
    run_with_stops(&suite("glue", "cola", "lora,adalora,bayeslora", &out, more), out.as_ref());
    tables(&mut pins, "glue", out.as_ref());
    let mut results = pins.dir.json(&format!("{out}/results.json"));
    // The numbers of runs are in the tables.
    results.as_object_mut().unwrap().remove("runs").unwrap();
    pins.json("glue.results", &results);
    let out = pins.path("obqa");
    let methods = "lora,ens-3,laplace,bayeslora";
    run_with_stops(&suite("reasoning", "obqa", methods, &out, ONCE), out.as_ref());
    tables(&mut pins, "obqa", out.as_ref());
    pin_runs(&mut pins, out.as_ref(), "obqa");

    // A user's own classifier and language model.
    let [train, dev] = ["train.tsv", "dev.csv"]
        .map(|name| pins.write(&format!("own/{name}"), &pins.dir.text(name)));
    let out = PathBuf::from(pins.path("own/out"));
    let more =
        format!("--train {train} --validation {dev} --preset default --set evaluate_every=4");
    run_with_stops(&training(&out.display().to_string(), 16, &more), &out);
    let mut record = pins.dir.json("own/out/record.json");
    let checkpoints = record["checkpoints"].as_object_mut().unwrap();
    checkpoints.remove("best").unwrap();
    // A curve for every module.
    checkpoints["last"].as_object_mut().unwrap().remove("energy").unwrap();
    pins.json("own.record.json", &record);
    for file in ["settings.json", "labels.json", "adapter/lrvd_classifier.json"] {
        pins.json(&format!("own.{file}"), &pins.dir.json(&format!("own/out/{file}")));
    }
    pins.finish();
}

/// The table of every checkpoint, a line of the file a line of pins.
fn tables(pins: &mut Pins, name: &str, out: &Path) {
    for choice in ["last", "best"] {
        let table = pins.dir.text(&format!("{}/table-{choice}.csv", out.display()));
        let is_pinned = |line: &&str| !UNPINNED.split(' ').any(|start| line.starts_with(start));
        for line in table.lines().filter(is_pinned) {
            let (key, numbers) =
                line.split_at(line.match_indices(',').nth(2).map_or(line.len(), |m| m.0));
            let numbers: Vec<&str> = numbers.trim_start_matches(',').split(',').collect();
            let key = format!("{name}.{choice}.{}", key.replace([',', ' '], "."));
            match numbers.iter().map(|n| n.parse()).collect::<Result<Vec<f64>, _>>() {
                Ok(numbers) => pins.near(&key, numbers),
                Err(_) => pins.exact(&key, numbers.join(",")),
            }
        }
    }
}
