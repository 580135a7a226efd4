//! Standard input while it is open, standard output that is full or closed, and a terminal.

use std::io::{BufRead as _, BufReader, Write as _};

use crate::support::{Sandbox, ended};

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
