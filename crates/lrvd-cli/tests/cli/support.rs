//! Running the program in a folder with a few generated rows, on the shipped models.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program with arguments as a shell splits them; `@nano`, `@llama` and `@golden` start the paths of the shipped
/// models and of the fixtures of `lrvd-models`.
pub(crate) fn lrvd(words: &str) -> Command {
    let places = [("@nano", model()), ("@llama", llama()), ("@golden", golden(""))];
    let placed = |word: String| {
        let found = places.iter().find_map(|(name, path)| Some((path, word.strip_prefix(name)?)));
        found.map_or(word.clone(), |(path, rest)| format!("{}{rest}", path.display()))
    };
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("lrvd"));
    command.args(shlex::split(words).unwrap().into_iter().map(placed));
    command.env_remove("HF_TOKEN").env_remove("RUST_LOG").env("HF_HUB_OFFLINE", "1");
    command
}

/// What a run wrote.
pub(crate) struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Self {
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Self { code: output.status.code().unwrap(), stdout, stderr }
    }
}

impl Output {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The objects of JSONL.
    pub(crate) fn lines(&self) -> Vec<Value> {
        lines(&self.stdout)
    }

    /// Expects that the arguments were rejected with these words.
    #[track_caller]
    pub(crate) fn rejected(&self, expected: &str) {
        assert!(self.code == 2 && self.stderr.contains(expected), "{expected}: {}", self.stderr);
    }
}

/// Runs with standard input.
pub(crate) fn ended(command: Command, input: &str) -> Output {
    assert_cmd::Command::from_std(command).write_stdin(input).output().unwrap().into()
}

pub(crate) fn run(words: &str) -> Output {
    ended(lrvd(words), "")
}

/// Runs and expects success.
#[track_caller]
pub(crate) fn done(words: &str) -> Output {
    succeeded(words, run(words))
}

#[track_caller]
fn succeeded(words: &str, output: Output) -> Output {
    assert_eq!(output.code, 0, "{words}\n{}\n{}", output.stdout, output.stderr);
    output
}

/// A folder in which the program runs.
pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    /// With the rows of [`write_data`].
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_data(dir.path());
        Self(dir)
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The absolute path as text.
    pub(crate) fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Writes a file, and the folders above it.
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

    /// The objects of a JSONL file.
    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        lines(&self.text(name))
    }

    /// Writes what `edit` makes of a JSON file, and returns what it returns.
    pub(crate) fn edit<T>(&self, name: &str, edit: impl FnOnce(&mut Value) -> T) -> T {
        let mut value = self.json(name);
        let found = edit(&mut value);
        self.write(name, value.to_string());
        found
    }

    /// Copies the files of a folder into `name`.
    pub(crate) fn copy(&self, from: &Path, name: &str) {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let file = entry.file_name().into_string().unwrap();
                self.write(&format!("{name}/{file}"), std::fs::read(entry.path()).unwrap());
            }
        }
    }

    pub(crate) fn command(&self, words: &str) -> Command {
        let mut command = lrvd(words);
        command.current_dir(&self.0);
        command
    }

    /// A process whose standard streams are pipes.
    pub(crate) fn start(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn run(&self, words: &str) -> Output {
        self.run_with(words, "")
    }

    /// Runs with standard input.
    pub(crate) fn run_with(&self, words: &str, input: &str) -> Output {
        ended(self.command(words), input)
    }

    /// Runs and expects success.
    #[track_caller]
    pub(crate) fn done(&self, words: &str) -> Output {
        succeeded(words, self.run(words))
    }

    /// Runs, and expects that the arguments are rejected with these words and that there is no `out`.
    #[track_caller]
    pub(crate) fn rejected(&self, words: &str, expected: &str, out: &str) {
        self.run(words).rejected(expected);
        assert!(!self.exists(out), "{words} left `{out}`");
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

    /// Runs [`training`].
    #[track_caller]
    pub(crate) fn train(&self, out: &str, steps: usize, more: &str) -> Output {
        self.done(&training(out, steps, more))
    }
}

/// A training command for the rows of [`write_data`]; options in `more` take the place of those here.
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

/// Sends a signal.
#[cfg(unix)]
pub(crate) fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

/// The shipped encoder.
pub(crate) fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/deberta-v3-nano")
}

/// The shipped language model.
pub(crate) fn llama() -> PathBuf {
    model().with_file_name("stories260K")
}

/// A fixture of `lrvd-models`.
pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-models/tests/golden").join(name)
}

/// Writes `train.tsv` and `dev.csv` with a rule that is easy to learn.
pub(crate) fn write_data(dir: &Path) -> [String; 2] {
    let good = ["fine", "lovely", "warm", "bright"];
    let bad = ["dull", "cold", "awful", "grim"];
    let things = ["film", "book", "song"];
    let row = |i: usize| {
        let (word, label) =
            if i.is_multiple_of(2) { (good[i / 2 % 4], "good") } else { (bad[i / 3 % 4], "bad") };
        (format!("a {word} {} number {}", things[i % 3], i % 7), label)
    };
    let (mut train, mut dev) = ("text\tlabel\n".to_owned(), "label,text\n".to_owned());
    for i in 0..32 {
        let (text, label) = row(i);
        writeln!(train, "{text}\t{label}").unwrap();
    }
    for i in 32..44 {
        let (text, label) = row(i);
        writeln!(dev, "{label},\"{text}, \"\"they\"\" say\"").unwrap();
    }
    let paths = [dir.join("train.tsv"), dir.join("dev.csv")];
    std::fs::write(&paths[0], train).unwrap();
    std::fs::write(&paths[1], dev).unwrap();
    paths.map(|path| path.display().to_string())
}

/// The objects of JSONL.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A list of numbers.
pub(crate) fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Largest difference of two lists of numbers.
pub(crate) fn difference(a: &Value, b: &Value) -> f64 {
    let (a, b) = (numbers(a), numbers(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

/// Expects the same rows with probabilities that differ by 1e-6 at most, at every number of draws.
#[track_caller]
pub(crate) fn assert_same_answers(before: &[Value], after: &[Value]) {
    assert_eq!(before.len(), after.len());
    for (b, a) in before.iter().zip(after) {
        let (probs, again) = (b["probs"].as_object().unwrap(), a["probs"].as_object().unwrap());
        assert!(probs.keys().eq(again.keys()), "{b} {a}");
        assert!(probs.iter().all(|(draws, p)| difference(p, &again[draws]) <= 1e-6), "{b} {a}");
    }
}
