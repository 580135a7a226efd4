//! Runs of a suite that are stopped, and output folders that vanish.
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lrvd_burn::train::Checkpoints;

use super::*;
use crate::error::Result;
use crate::method::MethodName;
use crate::progress::Event;

fn worker() -> WorkerOptions {
    let host = "test".to_owned();
    let process = std::process::id();
    let name = WorkerName { kernel: Some(host.clone()), host, process, job: None };
    WorkerOptions::alone(name)
}

/// One step of LoRA for every seed.
fn run(
    (suite, task): (Suite, &str),
    seeds: &[u64],
    out: &Path,
    stop: &AtomicBool,
    mut each: impl FnMut(&Event),
) -> Result<SuiteOutcome> {
    run_suite(&options((suite, task), seeds, out), None, worker(), stop, &mut each)
}

fn options((suite, task): (Suite, &str), seeds: &[u64], out: &Path) -> SuiteOptions {
    SuiteOptions {
        tasks: vec![suite.task(task).unwrap()],
        methods: vec![MethodName::LORA],
        seeds: seeds.to_vec(),
        steps: Some(1),
        set: vec!["validation_rows=20".to_owned()],
        resume: out.exists(),
        ..SuiteOptions::new(suite, Profile::Quick, out.to_owned())
    }
}

#[test]
fn a_stop_in_the_answers_to_other_sets_ends_the_run_and_resume_completes_it() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let stop = AtomicBool::new(false);
    let obqa = (Suite::Reasoning, "obqa");
    let folder = out.join("runs/obqa/lora/seed-1");
    let mut evaluations = 0;
    let stopped = run(obqa, &[1], &out, &stop, |event| {
        evaluations += usize::from(matches!(event, Event::Evaluating { done: 0, .. }));
        // The first is that of the run's own questions.
        stop.store(evaluations == 2, Ordering::Relaxed);
    });
    let stopped = stopped.unwrap();
    assert_eq!((stopped.planned, stopped.finished, evaluations), (1, 0, 2));
    assert!(folder.join("checkpoints/step-00000001").is_dir());
    assert!(!folder.join("record.json").exists());

    stop.store(false, Ordering::Relaxed);
    let mut shown = Vec::new();
    let completed = run(obqa, &[1], &out, &stop, |event| {
        if let Event::Evaluating { done, total } = event {
            shown.push((*done, *total));
        }
    });
    let completed = completed.unwrap();
    assert!(completed.is_complete() && !folder.join("checkpoints").exists());
    assert_eq!(completed.results.runs[0].ood.len(), 2);
    // At the mean alone, each question twice: with the labels of the trained set and with its own labels.
    let lines = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap().lines().count();
    let sets = ["arc-e", "arc-e-letters", "arc-c", "arc-c-letters"];
    let all: usize = sets.iter().map(|set| lines(&format!("predictions-last-{set}.jsonl"))).sum();
    assert!(all > 100 && shown.contains(&(0, all)), "{all} {shown:?}");
    for (set, records) in &completed.results.runs[0].ood {
        let [own, theirs] = ["", "-letters"]
            .map(|ending| lines(&format!("predictions-last-{set}{ending}.jsonl")) as u64);
        assert_eq!((records[&0].n_areas, records[&0].n), (own, Some(theirs)), "{set}");
    }
    assert_eq!(shown.last(), Some(&(all, all)));
}

#[test]
fn an_output_folder_that_vanishes_after_the_last_checkpoint_is_an_error() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let stop = AtomicBool::new(false);
    let cola = (Suite::Glue, "cola");
    let vanished = |at: fn(&Event) -> bool| {
        let ended = run(cola, &[1, 2], &out, &stop, |event| {
            if at(event) && out.exists() {
                std::fs::remove_dir_all(&out).unwrap();
            }
        });
        let error = ended.unwrap_err().to_string();
        let expected = format!("`{}` was removed or moved while the run wrote", out.display());
        assert!(error.starts_with(&expected), "{error}");
    };
    vanished(|event| matches!(event, Event::RunFinished { .. }));
    assert!(!out.exists(), "nothing is made anew");
    // While predictions are made, whose files make their folder.
    vanished(|event| matches!(event, Event::Evaluating { .. }));
    assert!(!out.join("results.json").exists());
}

/// A worker is suspended, another one takes its claim over, and the first one wakes up.
#[test]
fn a_run_that_is_taken_over_is_no_failure_of_either_worker() {
    let parent = tempfile::tempdir().unwrap();
    let out = parent.path().join("out");
    let stop = AtomicBool::new(false);
    write_plan(&options((Suite::Glue, "cola"), &[1, 2], &out), None, &mut |_| {}).unwrap();
    let failed = out.join("plan/failed");
    let short = WorkerOptions { dead_after: Duration::from_secs(1), ..worker() };

    // The first one still has the lock on the folder.
    let suspended = Checkpoints::open(out.join("runs/cola/lora/seed-1/checkpoints")).unwrap();
    let mut second = Worker::open(&out, short.clone(), &stop).unwrap();
    let step = second.run(0, &mut |_| {}).unwrap();
    assert!(
        matches!(&step, Step::InUse(why) if why.contains("is in use by another run")),
        "{step:?}"
    );
    assert!(!failed.exists());
    let mut suspended = Some(suspended);
    let mut waited = Vec::new();
    let all = second.run_all(&mut |event: &Event| match event {
        Event::Note(note) if note.starts_with("waiting: ") => waited.push(note.clone()),
        // The second run comes first.
        Event::RunFinished { .. } => drop(suspended.take()),
        _ => {}
    });
    assert_eq!((all.unwrap(), waited.len()), (Step::Done, 1));

    // The first one finds the second's claim at its next heartbeat, stops this run, and makes the others.
    let out = parent.path().join("other");
    write_plan(&options((Suite::Glue, "cola"), &[1, 2], &out), None, &mut |_| {}).unwrap();
    let plan = Plan::read(&out).unwrap();
    let claim = out.join(format!("plan/claims/{}.1", plan.runs[0].id));
    let mut first = Worker::open(&out, short, &stop).unwrap();
    let mut finished = 0;
    let mut notes = Vec::new();
    let all = first.run_all(&mut |event: &Event| match event {
        Event::RunStarted { .. } if finished == 0 && !claim.exists() => {
            std::fs::write(&claim, r#"{"host": "away", "process": 7, "job": null}"#).unwrap();
            // Twenty heartbeats.
            std::thread::sleep(Duration::from_secs(1));
        }
        Event::RunFinished { .. } => finished += 1,
        Event::Note(note) => notes.push(note.clone()),
        _ => {}
    });
    assert_eq!((all.unwrap(), finished), (Step::Done, 1), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("another worker took it over")), "{notes:?}");
    assert!(!out.join("plan/failed").exists() && !stop.load(Ordering::Relaxed));
    assert!(claim.exists(), "the other worker's claim stays");
}
