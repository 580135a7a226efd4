//! Signals by command: what ends it, how, and what a process that was started by `nohup` passes over.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Output, Sandbox, signal, training};

/// The program with `words`, which a shell starts after `first`.
fn after(dir: &Sandbox, first: &str, words: &str) -> Command {
    let command = dir.command(words);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$@\""), "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(dir.root());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

/// A training of many steps.
fn long(out: &str, more: &str) -> String {
    training(out, 1_000_000, &format!("--progress lines {more}")).replace("--quiet ", "")
}

/// Waits for `count` events of this kind in the metrics of `out`.
fn until(dir: &Sandbox, child: &mut Child, out: &str, event: &str, count: usize) {
    let file = format!("{out}/metrics.jsonl");
    let event = format!("\"event\":\"{event}\"");
    while !dir.exists(&file) || dir.text(&file).matches(&event).count() < count {
        assert!(child.try_wait().unwrap().is_none(), "it ended before {count} events {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap().into()
}

#[test]
fn every_signal_of_a_run_leaves_a_checkpoint() {
    let dir = Sandbox::new();
    for name in ["TERM", "INT", "HUP", "USR1", "USR2", "XCPU"] {
        let mut child = dir.start(&long(name, ""));
        until(&dir, &mut child, name, "step", 2);
        signal(&child, &format!("-{name}"));
        let Output { code, stderr, .. } = ended(child);
        assert_eq!(code, 75, "{name}: {stderr}");
        let said = format!("SIG{name}: stopping after this step and a checkpoint\n");
        assert_eq!(stderr.matches(&said).count(), 1, "{stderr}");
        assert!(
            stderr
                .ends_with("interrupted after a checkpoint; run the same command with --resume\n"),
            "{stderr}"
        );
        let kept = std::fs::read_dir(dir.path(&format!("{name}/checkpoints"))).unwrap();
        assert_eq!(kept.count(), 2, "{name}: a checkpoint, and the lock");
    }
}

/// An evaluation that would take minutes: it ends at its next pass.
#[test]
fn a_signal_in_an_evaluation_ends_it() {
    let dir = Sandbox::new();
    let rows = dir.text("dev.csv");
    let (header, rows) = rows.split_once('\n').unwrap();
    dir.write("long.csv", format!("{header}\n{}", rows.repeat(2000)));
    let mut child = dir.start(&long("out", "--validation long.csv --set evaluation_batch_size=1"));
    until(&dir, &mut child, "out", "run", 1);
    signal(&child, "-TERM");
    let Output { code, stderr, .. } = ended(child);
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.contains("interrupted before the first step; run the same command"), "{stderr}");
    assert!(!dir.text("out/metrics.jsonl").contains("evaluated"), "{stderr}");
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let dir = Sandbox::new();
    let ignoring = "trap '' HUP INT";
    let mut child = after(&dir, ignoring, &long("out", "")).spawn().unwrap();
    for (name, steps) in [("-HUP", 1), ("-INT", 10), ("-INT", 20), ("-TERM", 30)] {
        until(&dir, &mut child, "out", "step", steps);
        signal(&child, name);
    }
    let Output { code, stderr, .. } = ended(child);
    assert_eq!((code, stderr.matches("stopping").count()), (75, 1), "{stderr}");

    let words = "predict @tests/pins/adapters/encoder --model @nano";
    let mut child = after(&dir, ignoring, words).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    // Batches are answered as they come.
    for text in ["Once", "Twice"] {
        input.write_all(format!("{text}\n").repeat(128).as_bytes()).unwrap();
        answers.next().expect("an answer").unwrap();
        for name in ["-HUP", "-INT"] {
            signal(&child, name);
        }
    }
    drop(input);
    assert_eq!(answers.count(), 254);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As on a full disk, rather than by SIGXFSZ.
#[test]
fn a_file_beyond_the_limit_is_a_write_error() {
    let dir = Sandbox::new();
    let output: Output =
        after(&dir, "ulimit -f 16", &training("out", 2, "")).output().unwrap().into();
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(output.stderr.starts_with("error: cannot write"), "{}", output.stderr);
    assert!(output.stderr.contains("File too large"), "{}", output.stderr);
}
