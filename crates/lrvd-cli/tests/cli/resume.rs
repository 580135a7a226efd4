//! An interrupted run goes on and ends in the same bytes.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{borrowed, done, run, train, write_data};

/// Steps of a run; prunes after 16 and 32 of them.
const STEPS: usize = 48;
const SETTINGS: [&str; 6] = [
    "--set",
    "prune.log_alpha_threshold=1.8",
    "--set",
    "prune.every=0.3334",
    "--set",
    "evaluate_every=4",
];

/// Steps of the newest checkpoint in an output folder.
fn newest(out: &Path) -> Option<usize> {
    let entries = std::fs::read_dir(out.join("checkpoints")).ok()?;
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse().ok()
    };
    entries.filter_map(number).max()
}

/// Starts a run, and sends `signals` once a checkpoint of at least `steps` steps is there.
fn interrupt(arguments: &[String], out: &Path, steps: usize, signals: &[&str]) {
    let mut child: Child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while newest(out).is_none_or(|done| done < steps) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Nobody else may write there meanwhile.
    let again = run(&borrowed(&[arguments, &["--resume".to_owned()]].concat()));
    let in_use = again.code == 2 && again.stderr.contains("another `lrvd` is writing into");
    assert!(in_use || again.stderr.contains("cannot be used multiple times"), "{}", again.stderr);
    // Programs like to send two; the second must not cost the checkpoint.
    let id = child.id().to_string();
    for signal in signals {
        assert!(Command::new("kill").arg(signal).arg(&id).status().unwrap().success());
    }
    assert_eq!(child.wait().unwrap().code(), Some(75));
    let stopped = newest(out).unwrap();
    assert!((steps..STEPS).contains(&stopped), "stopped at {stopped}");
}

fn same_files(a: &Path, b: &Path, names: &[&str]) {
    for name in names {
        let [x, y] = [a, b].map(|dir| std::fs::read(dir.join(name)).unwrap());
        assert!(x == y, "{name} differs");
    }
}

/// An uninterrupted run, and one that is interrupted before and after its first prune.
fn both(method: &str, files: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let [whole, parts] = ["whole", "parts"].map(|name| dir.path().join(name));
    let settings = [&SETTINGS[..], &["--method", method]].concat();
    done(&borrowed(&train(&data, &whole, STEPS, &settings)));

    let arguments = train(&data, &parts, STEPS, &settings);
    interrupt(&arguments, &parts, 4, &["-TERM", "-TERM"]);
    let again = run(&borrowed(&arguments));
    assert!(again.code == 2 && again.stderr.contains("--resume"), "{}", again.stderr);
    let resumed = [arguments, vec!["--resume".to_owned()]].concat();
    interrupt(&resumed, &parts, 20, &["-HUP"]);
    // The unfinished run can be looked at, and its checkpoint exported.
    let name = parts.display().to_string();
    let report = done(&["inspect", &name, "--format", "json"]).json();
    assert_eq!(report["kind"], "checkpoint");
    let exported = dir.path().join("exported").display().to_string();
    done(&["export", "--to", "peft", &name, "--out", &exported]);
    done(&["predict", &exported, "a fine film"]);

    done(&borrowed(&resumed));
    assert!(!parts.join("checkpoints").exists());
    same_files(&whole, &parts, files);
    (dir, whole)
}

#[test]
fn bayes_lora_resumes_bit_for_bit_across_a_prune() {
    let files = [
        "adapter/adapter_model.safetensors",
        "adapter/adapter_config.json",
        "adapter/lrvd_posterior.safetensors",
        "predictions-last.jsonl",
        "predictions-best.jsonl",
    ];
    let (_dir, whole) = both("bayeslora", &files);
    let name = whole.display().to_string();
    let report = done(&["inspect", &name, "--format", "json"]).json();
    let total = report["total_rank"].as_u64().unwrap();
    assert!(total > 0 && total < 24 * 3, "a prune took place: {total}");
}

#[test]
fn adalora_resumes_bit_for_bit() {
    let files = ["adapter/adapter_model.safetensors", "predictions-last.jsonl"];
    both("adalora", &files);
}
