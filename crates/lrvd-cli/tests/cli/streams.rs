//! Standard input while it is open, and standard output that is full or closed.

use std::io::{BufRead as _, BufReader, Write as _};

use crate::support::{Sandbox, ended, training};

/// Texts from standard input are answered as they come, however few, with the answers of all at once.
#[test]
fn texts_are_answered_while_the_input_is_open() {
    let dir = Sandbox::new();
    for command in [
        "predict @tests/pins/adapters/encoder --model @nano",
        "generate --max-tokens 2 --model @llama",
    ] {
        let mut child = dir.start(command);
        let mut input = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut found = String::new();
        let parts = [("Once\n\nOnce upon a time\nTim\n", 3), ("Once more\n", 1)];
        for (part, texts) in parts {
            input.write_all(part.as_bytes()).unwrap();
            for _ in 0..texts {
                found += &(answers.next().unwrap().unwrap() + "\n");
            }
        }
        drop(input);
        assert!(answers.next().is_none() && child.wait().unwrap().success());
        let whole = ended(dir.command(command), &parts.map(|(part, _)| part).concat());
        assert_eq!(found, whole.stdout, "{command}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let dir = Sandbox::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for words in ["inspect @nano", "train --help", "--version", "completions bash"] {
        let output = dir.command(words).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{words}: {stderr}");
        let expected = "error: cannot write to standard output\ncaused by: ";
        assert!(stderr.starts_with(expected), "{words}: {stderr}");
        let mut closed = dir.start(words);
        drop(closed.stdout.take());
        assert_eq!(closed.wait().unwrap().code(), Some(0), "{words}");
    }
    // What is only said is no reason to end a run.
    let mut said = dir.command(&training("out", 2, "").replace("--quiet ", ""));
    assert_eq!(said.stderr(full()).status().unwrap().code(), Some(0));
    assert!(dir.exists("out/adapter"));
}
