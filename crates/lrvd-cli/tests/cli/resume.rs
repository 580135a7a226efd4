//! An interrupted run continues and ends in the same bytes.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Output, Sandbox, lrvd, signal, training};

/// Steps of a run; prunes after 16 and 32 of them.
const STEPS: usize = 48;

/// Steps of the newest checkpoint in an output folder.
pub(crate) fn newest(dir: &Sandbox, out: &str) -> Option<usize> {
    let entries = std::fs::read_dir(dir.path(&format!("{out}/checkpoints"))).ok()?;
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse().ok()
    };
    entries.filter_map(number).max()
}

/// Starts a command, and waits for a checkpoint of at least `steps` steps in `out`.
pub(crate) fn started(dir: &Sandbox, words: &str, out: &str, steps: usize) -> Child {
    let mut child = dir.start(words);
    while newest(dir, out).is_none_or(|done| done < steps) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// Starts a run, and sends `signals` once a checkpoint of at least `steps` steps is there.
fn interrupt(dir: &Sandbox, words: &str, steps: usize, signals: &[&str]) {
    let child = started(dir, words, "parts", steps);
    // No other process may write there meanwhile.
    let resumed =
        if words.contains("--resume") { words.to_owned() } else { format!("{words} --resume") };
    dir.run(&resumed).rejected("another `lrvd` is writing into");
    // Programs like to send two; the second must not cost the checkpoint.
    for name in signals {
        signal(&child, name);
    }
    assert_eq!(Output::from(child.wait_with_output().unwrap()).code, 75);
    let stopped = newest(dir, "parts").unwrap();
    assert!((steps..STEPS).contains(&stopped), "stopped at {stopped}");
}

/// The bytes of `files` in `whole` and `parts` are the same.
fn assert_same_files(dir: &Sandbox, files: &[&str]) {
    for file in files {
        let [whole, parts] = ["whole", "parts"].map(|out| dir.bytes(&format!("{out}/{file}")));
        assert!(whole == parts, "{file} differs");
    }
}

/// An uninterrupted run, and one that is interrupted before and after its first prune.
#[test]
fn bayes_lora_resumes_bit_for_bit_across_a_prune() {
    let dir = Sandbox::new();
    let settings =
        "--set prune.log_alpha_threshold=1.8 --set prune.every=0.3334 --set evaluate_every=4";
    dir.done(&training("whole", STEPS, settings));
    let command = training("parts", STEPS, settings);
    interrupt(&dir, &command, 4, &["-TERM", "-TERM"]);
    dir.run(&command).rejected("--resume");
    let resumed = format!("{command} --resume");
    interrupt(&dir, &resumed, 20, &["-HUP"]);
    // The unfinished run can be looked at, and its checkpoint exported.
    assert_eq!(dir.done("inspect parts --format json").json()["kind"], "checkpoint");
    dir.done("export --to peft parts --out exported");
    assert_eq!(dir.done("predict exported --model @nano 'a fine film'").stderr, "");
    let early = dir.done("predict parts 'a fine film'").stderr;
    let warned = "warning: the run in `parts` is not finished: this is its checkpoint after";
    assert!(early.starts_with(warned) && early.ends_with("of 48 steps\n"), "{early}");

    dir.done(&resumed);
    assert!(!dir.exists("parts/checkpoints"));
    let files = [
        "adapter/adapter_model.safetensors",
        "adapter/adapter_config.json",
        "adapter/lrvd_posterior.safetensors",
        "predictions-last.jsonl",
        "predictions-best.jsonl",
    ];
    assert_same_files(&dir, &files);
    let report = dir.done("inspect whole --format json").json();
    let total = report["total_rank"].as_u64().unwrap();
    assert!(total > 0 && total < 24 * 3, "a prune took place: {total}");
}

/// Starts a run with many draws, and ends it by a signal in the evaluation after the last step.
fn stops_in_the_evaluation(dir: &Sandbox, words: &str) {
    let mut child = dir.start(&words.replace("--quiet ", ""));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("  evaluating: ")), "it shows the evaluation");
    signal(&child, "-TERM");
    let last = lines.last().unwrap();
    assert_eq!(last, "interrupted after a checkpoint; run the same command with --resume");
    assert_eq!(child.wait().unwrap().code(), Some(75));
    let out = words.split_once("--out ").unwrap().1.split(' ').next().unwrap();
    assert!(newest(dir, out).is_some());
    assert!(!dir.exists(&format!("{out}/record.json")) && !dir.exists(&format!("{out}/adapter")));
}

#[test]
fn a_signal_in_the_last_evaluation_ends_it_and_resume_completes_it() {
    // The default, which fits temperatures first, and one that evaluates at once.
    for method in ["bayeslora+ts", "bayeslora"] {
        let dir = Sandbox::new();
        let long = format!("--method {method} --set holdout=0.25 --set draws=[600]");
        let command = training("parts", 4, &long);
        stops_in_the_evaluation(&dir, &command);
        dir.done(&format!("{command} --resume"));
        assert!(!dir.exists("parts/checkpoints"));
        dir.done(&training("whole", 4, &long));
        let files = ["adapter/adapter_model.safetensors", "predictions-last.jsonl"];
        assert_same_files(&dir, &files);
    }
}

#[test]
fn what_a_kill_left_of_a_finished_run_of_a_suite_is_cleared() {
    let dir = Sandbox::new();
    let suite = "bench glue --quiet --tasks cola --methods lora,ens-3 --steps 1 --set validation_rows=20 --seeds 1 --out out";
    dir.done(suite);
    let whole = dir.text("out/metrics.jsonl");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // As kills between the record and the end leave the first run, a member and the last row.
    let (first, member) = ("out/runs/cola/lora/seed-1", "out/members/cola/lora/seed-1001");
    let lost = ["CoLA / LoRA / seed 1\"", "CoLA / LoRA / seed 1001\""];
    let is_lost = |line: &&str| {
        line.contains("\"finished\"") && lost.iter().any(|label| line.contains(label))
    };
    let (gone, kept): (Vec<&str>, Vec<&str>) = whole.lines().partition(is_lost);
    assert_eq!(gone.len(), 2, "{whole}");
    dir.write("out/metrics.jsonl", kept.join("\n") + "\n");
    let parts = [
        &format!("{first}/.record.jsonu7Hq0K.part"),
        &format!("{member}/.predictions-last.jsonu7Hq0K.part"),
        "out/runs/cola/ens-3/seed-1/.record.jsonu7Hq0K.part",
        "out/.results.jsonu7Hq0K.part",
    ];
    let folders = [first, member].map(|run| format!("{run}/checkpoints"));
    for part in &parts {
        dir.write(part, "half");
    }
    for folder in &folders {
        dir.write(&format!("{folder}/step-00000001/SHA256SUMS"), "x");
    }
    for _ in 0..2 {
        dir.done(&format!("{suite} --resume"));
        assert!(!folders.iter().any(|folder| dir.exists(folder)));
        assert!(!parts.iter().any(|part| dir.exists(part)));
        assert_eq!(sorted(&dir.text("out/metrics.jsonl")), sorted(&whole));
    }
}

#[test]
fn a_suite_that_is_interrupted_in_its_first_run_prints_no_table() {
    let dir = Sandbox::new();
    let child = dir.start("bench glue --tasks cola --methods lora --seeds 1 --out out");
    while !dir.exists("out") {
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "-TERM");
    let Output { code, stdout, stderr } = child.wait_with_output().unwrap().into();
    assert_eq!((code, &*stdout), (75, ""), "{stderr}");
    assert!(stderr.contains("0 of 1 rows finished"), "{stderr}");
}

/// `script` lends a terminal; the second Ctrl-C comes before the dashboard has seen the first.
#[cfg(target_os = "linux")]
#[test]
fn a_second_interrupt_leaves_the_terminal_as_it_was() {
    let dir = Sandbox::new();
    let words = training("out", 100_000, "--progress dashboard").replace("--quiet ", "");
    let command = lrvd(&words);
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<String> = all.map(|word| format!("'{}'", word.display())).collect();
    let text = format!(
        "stty -g > before\n(sh -c 'echo $PPID' > pid; exec {})\necho $? > code\nstty -g > after\n",
        quoted.join(" ")
    );
    dir.write("run.sh", text);
    let shown = std::fs::File::create(dir.path("shown")).unwrap();
    let mut child = Command::new("script")
        .args(["-qec", "sh run.sh", "/dev/null"])
        .current_dir(dir.path(""))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(shown)
        .spawn()
        .unwrap();
    let shows = |code: &str| dir.bytes("shown").windows(8).any(|w| w == code.as_bytes());
    while !shows("\u{1b}[?1049h") {
        assert!(child.try_wait().unwrap().is_none(), "the dashboard never came");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    let id = dir.text("pid");
    let twice = format!("kill -INT {0}; sleep 0.005; kill -INT {0}", id.trim());
    assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
    child.wait().unwrap();
    assert_eq!(dir.text("code").trim(), "130");
    assert_eq!(dir.text("after"), dir.text("before"));
    for code in ["1000l", "1003l", "1049l"] {
        assert!(shows(&format!("\u{1b}[?{code}")), "{code}");
    }
}
