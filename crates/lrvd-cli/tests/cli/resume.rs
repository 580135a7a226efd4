//! An interrupted run continues and ends in the same bytes.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{done, model, run, train, write_data};

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
    // No other process may write there meanwhile.
    let again = run(&[arguments, &["--resume".to_owned()]].concat());
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
    done(&train(&data, &whole, STEPS, &settings));

    let arguments = train(&data, &parts, STEPS, &settings);
    interrupt(&arguments, &parts, 4, &["-TERM", "-TERM"]);
    let again = run(&arguments);
    again.rejected("--resume");
    let resumed = [arguments, vec!["--resume".to_owned()]].concat();
    interrupt(&resumed, &parts, 20, &["-HUP"]);
    // The unfinished run can be looked at, and its checkpoint exported.
    let name = parts.display().to_string();
    let report = done(&["inspect", &name, "--format", "json"]).json();
    assert_eq!(report["kind"], "checkpoint");
    let exported = dir.path().join("exported").display().to_string();
    done(&["export", "--to", "peft", &name, "--out", &exported]);
    let base = model().display().to_string();
    assert_eq!(done(&["predict", &exported, "--model", &base, "a fine film"]).stderr, "");
    let early = done(&["predict", &name, "a fine film"]).stderr;
    let warned =
        format!("warning: the run in `{name}` is not finished: this is its checkpoint after");
    assert!(early.starts_with(&warned) && early.ends_with("of 48 steps\n"), "{early}");

    done(&resumed);
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

/// Starts a run with many draws, and ends it by a signal in the evaluation after the last step.
pub(crate) fn stops_in_the_evaluation(arguments: &[String], out: &Path) {
    let arguments: Vec<String> =
        arguments.iter().filter(|word| *word != "--quiet").cloned().collect();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("  evaluating: ")), "it shows the evaluation");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let last = lines.last().unwrap();
    assert_eq!(last, "interrupted after a checkpoint; run the same command with --resume");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    assert!(newest(out).is_some() && !out.join("record.json").exists());
    assert!(!out.join("adapter").exists());
}

#[test]
fn a_signal_in_the_last_evaluation_ends_it_and_resume_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    // The default, which fits temperatures first, and one that evaluates at once.
    for method in ["bayeslora+ts", "bayeslora"] {
        let [whole, parts] =
            ["whole", "parts"].map(|name| dir.path().join(format!("{method}-{name}")));
        let settings = ["--method", method, "--set", "holdout=0.25"];
        let with = |out: &Path, draws: &str| {
            replaced_value(&train(&data, out, 4, &settings), "draws=[3]", draws)
        };
        let long = with(&parts, "draws=[600]");
        stops_in_the_evaluation(&long, &parts);
        done(&[long, vec!["--resume".to_owned()]].concat());
        assert!(!parts.join("checkpoints").exists());
        done(&with(&whole, "draws=[600]"));
        let files = ["adapter/adapter_model.safetensors", "predictions-last.jsonl"];
        same_files(&whole, &parts, &files);
    }
}

/// `arguments` with `from` replaced by `to`.
fn replaced_value(arguments: &[String], from: &str, to: &str) -> Vec<String> {
    let found = |word: &String| if word == from { to.to_owned() } else { word.clone() };
    arguments.iter().map(found).collect()
}

#[test]
fn what_a_kill_left_of_a_finished_run_is_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let arguments = train(&data, &out, 4, &[]);
    done(&arguments);
    let metrics = out.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    let last = whole.lines().last().unwrap();
    assert!(last.contains("\"event\":\"finished\""), "{last}");
    // As a kill between the record and the end leaves it.
    std::fs::write(&metrics, &whole[..whole.len() - last.len() - 1]).unwrap();
    let checkpoint = out.join("checkpoints/step-00000004");
    std::fs::create_dir_all(&checkpoint).unwrap();
    std::fs::write(checkpoint.join("SHA256SUMS"), "x").unwrap();
    let part = out.join(".record.jsonu7Hq0K.part");
    std::fs::write(&part, "half").unwrap();
    let resumed = [arguments, vec!["--resume".to_owned()]].concat();
    for _ in 0..2 {
        done(&resumed);
        assert!(!out.join("checkpoints").exists() && !part.exists());
        assert_eq!(std::fs::read_to_string(&metrics).unwrap(), whole);
    }
}

#[test]
fn what_a_kill_left_of_a_finished_run_of_a_suite_is_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let name = out.display().to_string();
    let command = ["bench", "glue", "--quiet", "--tasks", "cola", "--methods", "lora,ens-3"];
    let more = ["--steps", "1", "--set", "validation_rows=20", "--seeds", "1", "--out", &name];
    let arguments = [&command[..], &more].concat();
    done(&arguments);
    let metrics = out.join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    let of_all = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // As kills between the record and the end leave the first run, a member and the last row.
    let first = out.join("runs/cola/lora/seed-1");
    let member = out.join("members/cola/lora/seed-1001");
    let lost = ["CoLA / LoRA / seed 1\"", "CoLA / LoRA / seed 1001\""];
    let is_lost = |line: &&str| {
        line.contains("\"finished\"") && lost.iter().any(|label| line.contains(label))
    };
    assert_eq!(whole.lines().filter(is_lost).count(), 2, "{whole}");
    let kept: Vec<&str> = whole.lines().filter(|line| !is_lost(line)).collect();
    std::fs::write(&metrics, kept.join("\n") + "\n").unwrap();
    let parts = [
        first.join(".record.jsonu7Hq0K.part"),
        member.join(".predictions-last.jsonu7Hq0K.part"),
        out.join("runs/cola/ens-3/seed-1/.record.jsonu7Hq0K.part"),
        out.join(".results.jsonu7Hq0K.part"),
    ];
    for part in &parts {
        std::fs::write(part, "half").unwrap();
    }
    for folder in [&first, &member] {
        let checkpoint = folder.join("checkpoints/step-00000001");
        std::fs::create_dir_all(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("SHA256SUMS"), "x").unwrap();
    }
    for _ in 0..2 {
        done(&[&arguments[..], &["--resume"]].concat());
        assert!(!first.join("checkpoints").exists() && !member.join("checkpoints").exists());
        assert!(parts.iter().all(|part| !part.exists()));
        assert_eq!(of_all(&std::fs::read_to_string(&metrics).unwrap()), of_all(&whole));
    }
}

#[test]
fn a_folder_that_is_removed_while_a_run_writes_into_it_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let arguments = train(&data, &out, 100_000, &["--set", "evaluate_every=2"]);
    let child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while newest(&out).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It may be adding files meanwhile.
    while out.exists() {
        let _ = std::fs::remove_dir_all(&out);
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: cannot ") && said.contains("/out"), "{said}");
    assert!(!out.exists(), "nothing is made anew");
}

#[test]
fn a_suite_that_is_interrupted_in_its_first_run_prints_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arguments =
        ["bench", "glue", "--tasks", "cola", "--methods", "lora", "--seeds", "1", "--out"];
    let child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(arguments)
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !out.is_dir() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").arg("-TERM").arg(id).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let [printed, notes] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!((output.status.code(), &*printed), (Some(75), ""), "{notes}");
    assert!(notes.contains("0 of 1 rows finished"), "{notes}");
}

/// `script` lends a terminal; the second Ctrl-C comes before the dashboard has seen the first.
#[cfg(target_os = "linux")]
#[test]
fn a_second_interrupt_leaves_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let more = ["--progress", "dashboard"];
    let command = train(&data, &dir.path().join("out"), 100_000, &more);
    let file = |name: &str| dir.path().join(name);
    let [shell, before, pid, after, code] =
        ["run.sh", "before", "pid", "after", "code"].map(|name| file(name).display().to_string());
    let program = assert_cmd::cargo::cargo_bin("lrvd").display().to_string();
    let words = command.iter().filter(|word| *word != "--quiet");
    let quoted: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let text = format!(
        "stty -g > {before}\n(sh -c 'echo $PPID' > {pid}; exec {program} {})\necho $? > {code}\n\
         stty -g > {after}\n",
        quoted.join(" ")
    );
    std::fs::write(&shell, text).unwrap();
    let shown = std::fs::File::create(file("shown")).unwrap();
    let mut child = Command::new("script")
        .args(["-qec", &format!("sh {shell}"), "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(shown)
        .spawn()
        .unwrap();
    let shows =
        |code: &str| std::fs::read(file("shown")).unwrap().windows(8).any(|w| w == code.as_bytes());
    while !shows("\u{1b}[?1049h") {
        assert!(child.try_wait().unwrap().is_none(), "the dashboard never came");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    let id = std::fs::read_to_string(&pid).unwrap();
    let twice = format!("kill -INT {0}; sleep 0.005; kill -INT {0}", id.trim());
    assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
    child.wait().unwrap();
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&code).trim(), "130");
    assert_eq!(read(&after), read(&before));
    for code in ["1000l", "1003l", "1049l"] {
        assert!(shows(&format!("\u{1b}[?{code}")), "{code}");
    }
}
