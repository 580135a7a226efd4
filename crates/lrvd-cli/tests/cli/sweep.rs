//! One plan, many workers: claims, dependencies, kill and resume, and the same results as one process.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::resume::started;
use crate::support::{Output, Sandbox, ended, signal};

/// A grid of one task and one seed with so few steps that a run takes a second: made by one process in `one`, or planned in `many`.
fn grid(dir: &Sandbox, option: &str, methods: &str, steps: usize) {
    let out = dir.name(if option == "--plan" { "many" } else { "one" });
    dir.done(&format!(
        "bench glue --quiet --tasks cola --methods {methods} --seeds 1 --steps {steps} --draws 2 {option} {out} \
         --preset constant-weight --set validation_rows=20 --set evaluate_every=4"
    ));
}

const MATCHED: &str = "lora,adalora,bayeslora";

fn manifest(dir: &Sandbox, out: &str) -> Vec<Value> {
    dir.lines(&format!("{out}/plan/runs.jsonl"))
}

/// `results.json` without times, and without what names the folder.
fn results(dir: &Sandbox, out: &str) -> Value {
    const OF_THE_MOMENT: [&str; 7] = [
        "started_at",
        "finished_at",
        "train_seconds",
        "evaluate_seconds",
        "predict_seconds",
        "peak_memory_bytes",
        "command",
    ];
    fn untimed(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !OF_THE_MOMENT.contains(&key.as_str()));
                map.values_mut().for_each(untimed);
            }
            Value::Array(all) => all.iter_mut().for_each(untimed),
            _ => {}
        }
    }
    let text = dir.text(&format!("{out}/results.json")).replace(&dir.name(out), "OUT");
    let mut value = serde_json::from_str(&text).unwrap();
    untimed(&mut value);
    value
}

/// Starts the run `index` and waits for a checkpoint of it.
fn started_run(dir: &Sandbox, index: usize) -> Child {
    let folder = format!("many/{}", manifest(dir, "many")[index]["folder"].as_str().unwrap());
    started(dir, &format!("bench run --index {index} --plan many"), &folder, 1)
}

/// How many runs are in each state.
fn states(dir: &Sandbox, out: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let status = dir.done(&format!("bench status {out} --format json")).json();
    for run in status["runs"].as_array().unwrap() {
        *counts.entry(run["state"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    counts
}

fn counted<const N: usize>(states: [(&str, usize); N]) -> BTreeMap<String, usize> {
    states.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn runs_made_one_by_one_give_what_one_process_gives() {
    let dir = Sandbox::new();
    grid(&dir, "--out", MATCHED, 4);
    grid(&dir, "--plan", MATCHED, 4);
    let lines = manifest(&dir, "many");
    let of = |key: &str| lines.iter().map(|line| line[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("method"), ["BayesLoRA", "AdaLoRA", "LoRA"]);
    assert!(of("steps").iter().all(|steps| *steps == 4));
    assert_eq!(lines[0]["needs"], serde_json::json!([]));
    for line in &lines[1..] {
        assert_eq!(line["needs"], serde_json::json!([lines[0]["id"]]));
        assert!(line["memory_gib"].as_f64().unwrap() > 0.0);
    }
    // The ids follow from settings and data, not from the folder.
    let one = manifest(&dir, "one");
    assert!(one.iter().map(|line| &line["id"]).eq(lines.iter().map(|line| &line["id"])));
    assert_eq!(states(&dir, "many"), counted([("ready", 1), ("waiting", 2)]));

    let make = |variable: &str, index: &str| {
        let mut command = dir.command("bench run --plan many");
        command.env(variable, index);
        ended(command, "")
    };
    let Output { code, stderr, .. } = make("JOB_COMPLETION_INDEX", "2");
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.contains("needs CoLA / BayesLoRA / seed 1, which is not finished"), "{stderr}");
    assert!(!dir.exists("many/runs"), "nothing is started");
    for (variable, index) in
        [("SLURM_ARRAY_TASK_ID", "0"), ("JOB_COMPLETION_INDEX", "2"), ("SLURM_ARRAY_TASK_ID", "1")]
    {
        let Output { code, stderr, .. } = make(variable, index);
        assert_eq!(code, 0, "{stderr}");
        let partial = dir.done("bench collect many").stdout;
        assert!(partial.contains("BayesLoRA"), "{partial}");
    }
    let record = "many/runs/cola/lora/seed-1/record.json";
    let before = dir.bytes(record);
    dir.done("bench run --plan many --index 2");
    assert_eq!(dir.bytes(record), before, "done is done");
    assert_eq!(results(&dir, "many"), results(&dir, "one"));
    assert_eq!(states(&dir, "many"), counted([("finished", 3)]));
    assert!(dir.exists("many/runs/cola/lora/seed-1/metrics.jsonl"));
    assert_eq!(std::fs::read_dir(dir.path("many/plan/claims")).unwrap().count(), 0);
}

#[test]
fn a_killed_and_a_signalled_run_continue_and_end_in_the_same_results() {
    let dir = Sandbox::new();
    grid(&dir, "--out", "lora,mcd", 24);
    grid(&dir, "--plan", "lora,mcd", 24);
    let make = |index: usize| dir.run(&format!("bench run --plan many --index {index}"));

    let mut killed = started_run(&dir, 0);
    let busy = make(0);
    assert!(busy.code == 75 && busy.stderr.contains("makes it"), "{} {}", busy.code, busy.stderr);
    let _ = killed.kill();
    assert!(!killed.wait().unwrap().success());
    // Its claim is still there, and its lock is not.
    assert_eq!(std::fs::read_dir(dir.path("many/plan/claims")).unwrap().count(), 1);
    assert_eq!(states(&dir, "many"), counted([("interrupted", 1), ("ready", 1)]));
    assert_eq!(make(0).code, 0);

    let signalled = started_run(&dir, 1);
    signal(&signalled, "-USR1");
    let Output { code, stderr, .. } = signalled.wait_with_output().unwrap().into();
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.ends_with("interrupted after a checkpoint\n"), "{stderr}");
    assert_eq!(make(1).code, 0);
    // It continued where it was.
    let events = dir.lines("many/runs/cola/mcd/seed-1/metrics.jsonl");
    let starts = events.iter().filter(|line| line["event"] == "run");
    let starts: Vec<u64> = starts.map(|line| line["done"].as_u64().unwrap()).collect();
    assert!(matches!(starts[..], [0, resumed] if resumed > 0), "{starts:?}");
    dir.done("bench collect many");
    assert_eq!(results(&dir, "many"), results(&dir, "one"));
}

#[test]
fn workers_make_every_run_once() {
    let dir = Sandbox::new();
    let methods = "lora,ens-3,mcd,bayeslora";
    grid(&dir, "--plan", methods, 3);
    let worker = || {
        let mut command = dir.command("bench run --all --plan many");
        command.env("SLURM_ARRAY_TASK_ID", "0").stderr(Stdio::null()).spawn().unwrap()
    };
    for mut worker in [worker(), worker(), worker()] {
        assert!(worker.wait().unwrap().success());
    }
    for run in manifest(&dir, "many") {
        let file = format!("many/{}/metrics.jsonl", run["folder"].as_str().unwrap());
        let events = if dir.exists(&file) { dir.lines(&file) } else { Vec::new() };
        let starts = events.iter().filter(|line| line["event"] == "run").count();
        let is_row_of_others = run["steps"] == 0;
        assert_eq!(starts, usize::from(!is_row_of_others), "{run}");
    }
    assert_eq!(states(&dir, "many"), counted([("finished", 7)]));
    grid(&dir, "--out", methods, 3);
    dir.done("bench collect many");
    assert_eq!(results(&dir, "many"), results(&dir, "one"));
}
