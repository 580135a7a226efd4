//! The program in a terminal that the test owns: each style of progress, and a terminal that shrinks or goes away.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::support::{Sandbox, signal, training};

/// The longest wait for anything, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_mins(5);

/// A pseudo-terminal. Dropped, it has gone away from the processes in it.
pub(crate) struct Terminal {
    screen: File,
    shown: Vec<u8>,
}

impl Terminal {
    pub(crate) fn new(columns: u16, rows: u16) -> Self {
        // No program that is started meanwhile may hold it up.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let screen = openpt(flags).unwrap();
        unlockpt(&screen).unwrap();
        fcntl_setfl(&screen, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let terminal = Self { screen: screen.into(), shown: Vec::new() };
        terminal.resize(columns, rows);
        terminal
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.screen, size).unwrap();
    }

    pub(crate) fn settings(&self) -> String {
        format!("{:?}", tcgetattr(&self.screen).unwrap())
    }

    /// Starts a session in the terminal; the child is its leader.
    pub(crate) fn start(&self, command: &Command) -> Child {
        let path = ptsname(&self.screen, Vec::new()).unwrap().into_string().unwrap();
        let flags = OFlags::NOCTTY.bits().cast_signed();
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(flags);
        let side = || options.open(&path).unwrap();
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        session.env("TERM", "xterm").env_remove("CI").env_remove("JPY_PARENT_PID");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session.current_dir(command.get_current_dir().unwrap());
        session.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap()
    }

    /// The screen so far.
    pub(crate) fn shown(&mut self) -> String {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.screen.read(&mut bytes) {
            self.shown.extend(&bytes[..count]);
        }
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Waits for `is_so` of what was shown, while the child runs.
    pub(crate) fn until(&mut self, child: &mut Child, is_so: impl Fn(&str) -> bool) {
        until(child, |child| {
            let shown = self.shown();
            assert!(child.try_wait().unwrap().is_none(), "it ended before: {shown}");
            is_so(&shown).then_some(())
        });
    }

    /// Waits for the child's end; its exit code.
    pub(crate) fn code(&mut self, child: &mut Child) -> Option<i32> {
        until(child, |child| {
            self.shown();
            child.try_wait().unwrap().map(|status| status.code())
        })
    }
}

/// Waits until `result` is there, and ends a child for which it never is.
fn until<R>(child: &mut Child, mut result: impl FnMut(&mut Child) -> Option<R>) -> R {
    let begun = Instant::now();
    loop {
        if let Some(result) = result(child) {
            return result;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it takes too long");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The exit code of a child without a terminal.
fn code(child: &mut Child) -> Option<i32> {
    until(child, |child| child.try_wait().unwrap().map(|status| status.code()))
}

/// Each style of progress, and what it shows of a step.
const STYLES: [(&str, &[&str]); 3] = [
    ("dashboard", &["\u{1b}[?1049h", "Loss", "Total rank"]),
    ("bar", &["training loss"]),
    ("lines", &["[1/1]"]),
];

/// More than a second of training.
const STEPS: usize = 150;

fn words(out: &str, steps: usize, more: &str) -> String {
    training(out, steps, more).replace("--quiet ", "")
}

/// A training in a terminal that shows it.
fn begin(
    dir: &Sandbox,
    out: &str,
    style: (&str, &[&str]),
    start: impl Fn(Command) -> Command,
) -> (Terminal, Child) {
    let mut terminal = Terminal::new(120, 40);
    let command = dir.command(&words(out, STEPS, &format!("--progress {}", style.0)));
    let mut child = terminal.start(&start(command));
    let metrics = format!("{out}/metrics.jsonl");
    terminal.until(&mut child, |shown| {
        let is_training = dir.exists(&metrics) && dir.text(&metrics).contains(r#""event":"step""#);
        is_training && style.1.iter().all(|sign| shown.contains(sign))
    });
    (terminal, child)
}

/// The command below a shell in which `script` says what becomes of `"$@"`.
fn shell(command: &Command, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.current_dir(command.get_current_dir().unwrap());
    shell
}

/// A hang-up ends a run after a checkpoint; a run that gets no signal, as below a shell that does, trains on. Both end in
/// the bytes of a run that nothing happened to.
#[test]
fn a_run_outlives_its_terminal() {
    let dir = Sandbox::new();
    let is_whole = |out: &str| {
        for file in ["adapter/adapter_model.safetensors", "predictions-last.jsonl"] {
            let same = dir.bytes(&format!("{out}/{file}")) == dir.bytes(&format!("whole/{file}"));
            assert!(same, "{out}/{file}");
        }
    };
    assert_eq!(dir.run(&training("whole", STEPS, "")).code, 0);
    for style in STYLES {
        let name = style.0;
        let out = format!("{}-stopped", style.0);
        let (terminal, mut child) = begin(&dir, &out, style, |command| command);
        drop(terminal);
        assert_eq!(code(&mut child), Some(75), "{name}");
        assert!(dir.exists(&format!("{out}/checkpoints")), "{name}");
        assert_eq!(dir.run(&training(&out, STEPS, "--resume")).code, 0, "{name}");
        is_whole(&out);

        let out = format!("{name}-alone");
        let script = "trap : HUP; \"$@\"; echo $? > code";
        let (terminal, mut child) = begin(&dir, &out, style, |command| shell(&command, script));
        drop(terminal);
        code(&mut child);
        assert_eq!(dir.text("code"), "0\n", "{name}");
        is_whole(&out);
    }
}

#[test]
fn a_small_terminal_is_no_obstacle_and_is_left_as_it_was() {
    let dir = Sandbox::new();
    for style in STYLES {
        let (mut terminal, mut child) = begin(&dir, style.0, style, |command| command);
        let before = Terminal::new(1, 1).settings();
        for (columns, rows) in [(10, 20), (1, 1), (10, 4)] {
            terminal.resize(columns, rows);
            let count = terminal.shown().len();
            terminal.until(&mut child, |shown| shown.len() > count || style.0 == "lines");
        }
        assert_eq!(terminal.code(&mut child), Some(0), "{}: {}", style.0, terminal.shown());
        assert_eq!(terminal.settings(), before, "{}", style.0);
    }
}

/// The dashboard is for the foreground of a terminal that has room for it, and nothing is redrawn where redraws are kept.
#[test]
fn lines_are_printed_where_nothing_can_be_drawn() {
    let dir = Sandbox::new();
    let run = |size: (u16, u16), more: &str, script: &str, variable: (&str, &str)| {
        let mut terminal = Terminal::new(size.0, size.1);
        let mut command = shell(&dir.command(&words("out", 2, more)), script);
        command.env(variable.0, variable.1);
        let mut child = terminal.start(&command);
        let code = terminal.code(&mut child);
        let shown = terminal.shown();
        assert!(code == Some(0) && shown.contains("[1/1]"), "{code:?}: {shown}");
        std::fs::remove_dir_all(dir.path("out")).unwrap();
        shown
    };
    let plain = "\"$@\"";
    for variable in
        [("JPY_PARENT_PID", "7"), ("COLAB_RELEASE_TAG", "1"), ("CI", "true"), ("TERM", "dumb")]
    {
        let shown = run((120, 40), "", plain, variable);
        assert!(!shown.contains('\u{1b}'), "{variable:?}: {shown}");
    }
    let here = ("LC_ALL", "C");
    // A job of a shell with job control; a process that the terminal stops has no exit code.
    for style in ["", "--progress bar", "--progress dashboard"] {
        let shown = run((120, 40), style, "set -m; \"$@\" & wait $!", here);
        assert!(!shown.contains('\u{1b}'), "{style}: {shown}");
        let is_told = shown.contains("the dashboard needs the foreground of a terminal");
        assert_eq!(is_told, style.contains("dashboard"), "{shown}");
    }
    for (size, is_enough) in [((59, 40), false), ((120, 19), false), ((60, 20), true)] {
        let shown = run(size, "", plain, here);
        assert_eq!(shown.contains("\u{1b}[?1049h"), is_enough, "{size:?}: {shown}");
    }
}

/// The second Ctrl-C comes while the first one ends the run, at another place with every try; a run may end before it.
#[test]
fn a_second_interrupt_leaves_the_terminal_as_it_was() {
    let dir = Sandbox::new();
    let before = Terminal::new(1, 1).settings();
    for attempt in 0..50 {
        let out = format!("out{attempt}");
        let (mut terminal, mut child) = begin(&dir, &out, STYLES[0], |command| command);
        signal(&child, "-INT");
        std::thread::sleep(Duration::from_millis(5));
        signal(&child, "-INT");
        let code = terminal.code(&mut child);
        assert_eq!(terminal.settings(), before);
        for end in ["1000l", "1003l", "1049l"] {
            assert!(terminal.shown().contains(&format!("\u{1b}[?{end}")), "{end}");
        }
        if code == Some(130) {
            return;
        }
        assert_eq!(code, Some(75), "{}", terminal.shown());
    }
    panic!("every run ended before its second interrupt");
}
