//! Standard input while it is open, and standard output that is full or closed.

use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::Value;

use crate::support::Sandbox;

/// Texts from standard input are answered as they come; an endless input has a first answer.
#[test]
fn texts_are_answered_while_the_input_is_open() {
    let dir = Sandbox::new();
    // As many as this adapter has in a batch, and one by one.
    for (command, pointer, count) in [
        ("predict @tests/pins/adapters/encoder --model @nano", "/text", 128),
        ("generate --max-tokens 2 --model @llama", "/prompt/prompt", 8),
    ] {
        let mut child = dir.start(command);
        let mut input = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut text = || {
            let answer: Value = serde_json::from_str(&answers.next()?.unwrap()).unwrap();
            Some(answer.pointer(pointer).unwrap().as_str().unwrap().to_owned())
        };
        for i in 0..count {
            writeln!(input, "Once {i}\n").unwrap();
        }
        for i in 0..count {
            assert_eq!(text(), Some(format!("Once {i}")), "{command}");
        }
        writeln!(input, "Once more").unwrap();
        drop(input);
        assert_eq!([text(), text()], [Some("Once more".to_owned()), None], "{command}");
        assert!(child.wait().unwrap().success());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let dir = Sandbox::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = dir.command("inspect @nano").stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write to standard output: "), "{stderr}");
    let mut closed = dir.start("inspect @nano");
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(0));
}
