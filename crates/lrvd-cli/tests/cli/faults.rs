//! Errors of the operating system, injected by `strace`, and odd ways to start the program.

#![allow(clippy::print_stderr, reason = "a test that is skipped is named")]

use std::path::Path;
use std::process::Command;

use crate::support::{Output, Sandbox, ended, lrvd, training};

/// The program under `injections` of `strace`; `None` where `strace` is absent or may not trace.
fn injected(dir: &Sandbox, injections: &[&str], words: &str) -> Option<Output> {
    let strace = |program: &mut Command| {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null"]);
        for injection in injections {
            command.args(["-e", &format!("inject={injection}")]);
        }
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    let works = strace(&mut Command::new("true")).output();
    if !works.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `strace` cannot be used here");
        return None;
    }
    let mut command = strace(&mut lrvd(words));
    command.current_dir(dir.root()).env_remove("RUST_LOG").env("HF_HUB_OFFLINE", "1");
    Some(ended(command, ""))
}

#[test]
fn a_file_system_without_locks_is_used_with_a_warning() {
    let dir = Sandbox::new();
    let words = training("out", 1, "").replace("--quiet ", "");
    let Some(output) = injected(&dir, &["flock:error=ENOLCK"], &words) else { return };
    assert_eq!(output.code, 0, "{}", output.stderr);
    let warning = "the file system has no locks: `out/.lrvd.held` stands for one";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    assert!(dir.exists("out/record.json") && !dir.exists("out/.lrvd.held"));
}

#[test]
fn threads_that_cannot_be_started_are_counted() {
    let dir = Sandbox::new();
    let limit = ["clone3:error=EAGAIN:when=2+", "clone:error=EAGAIN:when=2+"];
    let Some(output) = injected(&dir, &limit, "inspect @nano --threads 4") else { return };
    assert_eq!(output.code, 3, "{}", output.stderr);
    let error = "error: cannot start 3 more threads: raise the limit of processes (`ulimit -u`";
    assert!(output.stderr.starts_with(error), "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

/// As on systems whose C library is older than that of the build.
#[test]
fn a_program_that_the_loader_starts_runs() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        eprintln!("skipped: no `{}`", loader.display());
        return;
    }
    let program = lrvd("inspect @nano --format json");
    let mut command = Command::new(loader);
    command.arg(program.get_program()).args(program.get_args());
    let output = ended(command, "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stdout.contains("\"kind\": \"base\""), "{}", output.stdout);
}

/// Before `main`, and without a second start of the program.
#[test]
fn the_allocator_keeps_freed_pages_unless_the_environment_says_when_to_give_them_back() {
    for (variable, delay) in [(None, "600000"), (Some("7"), "7")] {
        let mut command = lrvd("--version");
        command.env("MIMALLOC_VERBOSE", "1");
        command.envs(variable.map(|milliseconds| ("MIMALLOC_PURGE_DELAY", milliseconds)));
        let output = ended(command, "");
        assert!(
            output.stderr.contains(&format!("option 'purge_delay': {delay} ")),
            "{}",
            output.stderr
        );
    }
}
