//! Running the program in a folder with a few generated rows, on the shipped models.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
#[cfg(unix)]
use std::sync::{Arc, atomic::AtomicBool};

use serde_json::Value;
use tempfile::TempDir;

/// The path that a word starts with by a name: `@nano` and `@llama` are the shipped models, `@golden` the fixtures of
/// `lrvd-models`, `@tests` is this folder and `@bench` the crate.
pub(crate) fn placed(word: &str) -> String {
    for (name, folder) in [
        ("@nano", "../lrvd-bench/assets/deberta-v3-nano"),
        ("@llama", "../lrvd-bench/assets/stories260K"),
        ("@golden", "../lrvd-models/tests/golden"),
        ("@tests", "tests/cli"),
        ("@bench", "../lrvd-bench"),
    ] {
        if let Some(rest) = word.strip_prefix(name) {
            return format!("{}/{folder}{rest}", env!("CARGO_MANIFEST_DIR"));
        }
    }
    word.to_owned()
}

/// The program with arguments as a shell splits them; words may be [`placed`].
pub(crate) fn lrvd(words: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("lrvd"));
    command.args(shlex::split(words).unwrap().iter().map(|word| placed(word)));
    command.env_remove("HF_TOKEN").env_remove("RUST_LOG").env("HF_HUB_OFFLINE", "1");
    command
}

pub(crate) struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Self {
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Self { code: output.status.code().unwrap_or(-1), stdout, stderr }
    }
}

impl Output {
    /// Expects that the arguments were rejected with these words.
    #[track_caller]
    pub(crate) fn rejected(&self, expected: &str) {
        assert!(self.code == 2 && self.stderr.contains(expected), "{expected}: {}", self.stderr);
    }
}

pub(crate) fn ended(command: Command, input: &str) -> Output {
    assert_cmd::Command::from_std(command).write_stdin(input).output().unwrap().into()
}

pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    /// With `train.tsv` and `dev.csv`, whose rule is easy to learn.
    pub(crate) fn new() -> Self {
        // Children obey them also where the tests were started to ignore them: a handler here is the default there.
        #[cfg(unix)]
        for signal in [signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT] {
            let end = signal_hook::flag::register_conditional_shutdown;
            end(signal, 128 + signal, Arc::new(AtomicBool::new(true))).unwrap();
        }
        let dir = Self(tempfile::tempdir().unwrap());
        for name in ["train.tsv", "dev.csv"] {
            dir.write(name, dir.bytes(&format!("@tests/data/{name}")));
        }
        dir
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// A path in the folder, or one that is [`placed`].
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(placed(name))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.bytes(name)).unwrap()
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        lines(&self.text(name))
    }

    pub(crate) fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = self.json(name);
        edit(&mut value);
        self.write(name, value.to_string());
    }

    pub(crate) fn copy(&self, from: &Path, name: &str) {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = format!("{name}/{}", entry.file_name().into_string().unwrap());
            if entry.path().is_file() {
                self.write(&to, std::fs::read(entry.path()).unwrap());
            } else {
                self.copy(&entry.path(), &to);
            }
        }
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = lrvd(words);
        command.current_dir(&self.0);
        command
    }

    pub(crate) fn start(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn run(&self, words: &str) -> Output {
        ended(self.command(words), "")
    }

    /// Runs the cases of a file, each a line and below it, behind four spaces, words of the error on standard error. A case
    /// leaves an `out` as it was.
    #[track_caller]
    pub(crate) fn rejects(&self, cases: &str, command: impl Fn(&str) -> String) {
        let there = self.exists("out");
        let mut output = None;
        for line in cases.lines() {
            let Some(expected) = line.strip_prefix("    ") else {
                let Output { code, stdout, stderr } = output.insert(self.run(&command(line)));
                assert_eq!(
                    (*code, &**stdout, self.exists("out")),
                    (2, "", there),
                    "{line}: {stderr}"
                );
                continue;
            };
            output.as_ref().unwrap().rejected(expected);
        }
    }
}

/// A training command for `train.tsv` and `dev.csv`; options in `more` take the place of those here.
pub(crate) fn training(out: &str, steps: usize, more: &str) -> String {
    // So few steps have no path to choose from, and no temperature is fitted.
    let usual = format!(
        "train --quiet --model @nano --train train.tsv --validation dev.csv --out {out} --steps {steps} --batch-size 4 \
         --rank 3 --max-length 16 --preset constant-weight --method bayeslora --seed 5 --set evaluation_batch_size=8 \
         --set draws=[3]"
    );
    with(&usual, more)
}

/// The words of `usual` without the options that `more` names, then `more`.
pub(crate) fn with(usual: &str, more: &str) -> String {
    let named = |option: &str| option != "--set" && more.split(' ').any(|word| word == option);
    let mut words = Vec::new();
    let mut rest = usual.split(' ').peekable();
    while let Some(word) = rest.next() {
        let is_value =
            word.starts_with("--") && rest.peek().is_some_and(|next| !next.starts_with("--"));
        let value = if is_value { rest.next() } else { None };
        if !named(word) {
            words.extend([word].into_iter().chain(value));
        }
    }
    format!("{} {more}", words.join(" "))
}

#[cfg(unix)]
pub(crate) fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every file below `folder`, in the order of their paths; links are files.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) =
        paths.partition(|path| path.is_dir() && !path.is_symlink());
    files.extend(folders.iter().flat_map(|folder| files_below(folder)));
    files.sort();
    files
}

/// The value without the entries of its objects that `is_left_out`.
pub(crate) fn without(value: &Value, is_left_out: &dyn Fn(&str, &Value) -> bool) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, value)| !is_left_out(key, value));
            kept.map(|(key, value)| (key.clone(), without(value, is_left_out))).collect()
        }
        Value::Array(list) => list.iter().map(|value| without(value, is_left_out)).collect(),
        other => other.clone(),
    }
}
