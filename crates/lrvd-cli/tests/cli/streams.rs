//! Standard input while it is open, standard output that is full or closed, and a terminal.

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
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.starts_with("error: cannot write to standard output\ncaused by: "), "{stderr}");
    let mut closed = dir.start("inspect @nano");
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(0));
}

/// `script` lends a terminal; the second Ctrl-C comes before the dashboard has seen the first.
#[cfg(target_os = "linux")]
#[test]
fn a_second_interrupt_leaves_the_terminal_as_it_was() {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::support::{lrvd, training};

    let dir = Sandbox::new();
    let words = training("out", 100_000, "--progress dashboard").replace("--quiet ", "");
    let command = lrvd(&words);
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<String> = all.map(|word| format!("'{}'", word.display())).collect();
    let text = format!(
        "stty rows 50 cols 160\nstty -g > before\n(sh -c 'echo $PPID' > pid; exec {})\necho $? > code\nstty -g > after\n",
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
    let shows = |code: &str| dir.bytes("shown").windows(code.len()).any(|w| w == code.as_bytes());
    // Its screen, with the names of its curves.
    while !["\u{1b}[?1049h", "Loss", "KL", "Total rank"].into_iter().all(shows) {
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
