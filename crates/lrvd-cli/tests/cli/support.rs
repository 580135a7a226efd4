//! Running the program on the shipped model and a few generated rows.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

/// The program.
pub(crate) fn lrvd() -> Command {
    let mut command = Command::cargo_bin("lrvd").unwrap();
    command.env_remove("HF_TOKEN").env_remove("RUST_LOG").env("HF_HUB_OFFLINE", "1");
    command
}

/// What a run wrote.
pub(crate) struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Expects that the arguments were rejected with these words.
    #[track_caller]
    pub(crate) fn rejected(&self, expected: &str) {
        assert!(self.code == 2 && self.stderr.contains(expected), "{expected}: {}", self.stderr);
    }
}

/// Runs with arguments and standard input.
pub(crate) fn run_with<S: AsRef<OsStr>>(arguments: &[S], input: &str) -> Output {
    let output = lrvd().args(arguments).write_stdin(input).output().unwrap();
    Output {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    run_with(arguments, "")
}

/// Runs and expects success.
#[track_caller]
pub(crate) fn done<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let output = run(arguments);
    let words: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(output.code, 0, "{words:?}\n{}\n{}", output.stdout, output.stderr);
    output
}

/// Runs, and expects that the arguments are rejected with these words and that nothing is written.
#[track_caller]
pub(crate) fn rejected<S: AsRef<OsStr>>(arguments: &[S], expected: &str, out: &Path) {
    run(arguments).rejected(expected);
    assert!(!out.exists(), "{expected}");
}

/// The shipped model.
pub(crate) fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lrvd-bench/assets/deberta-v3-nano")
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

/// A training command of `steps` steps into `out`; `more` comes last.
pub(crate) fn train(data: &[String; 2], out: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let steps = steps.to_string();
    let (model, out) = (model().display().to_string(), out.display().to_string());
    let fixed = [
        "train",
        "--quiet",
        "--model",
        &model,
        "--train",
        &data[0],
        "--validation",
        &data[1],
        "--out",
        &out,
        "--steps",
        &steps,
        "--batch-size",
        "4",
        "--rank",
        "3",
        "--max-length",
        "16",
        // So few steps have no path to choose from.
        "--preset",
        "constant-weight",
        "--set",
        "evaluation_batch_size=8",
        "--set",
        "draws=[3]",
        "--seed",
        "5",
    ];
    // Without the temperature that is fitted by default.
    let method: &[&str] = if more.contains(&"--method") { &[] } else { &["--method", "bayeslora"] };
    fixed.iter().chain(method).chain(more).map(ToString::to_string).collect()
}

/// `arguments` with another value of one option.
pub(crate) fn replaced(arguments: &[String], option: &str, value: &str) -> Vec<String> {
    let mut arguments = arguments.to_vec();
    let at = arguments.iter().position(|argument| argument == option).unwrap();
    value.clone_into(&mut arguments[at + 1]);
    arguments
}

/// The arguments as `run` takes them.
pub(crate) fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The text of a file.
pub(crate) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The JSON in a file.
pub(crate) fn json_of(path: &Path) -> Value {
    serde_json::from_str(&text(path)).unwrap()
}

/// The objects of a JSONL file or output.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Largest difference of two lists of numbers.
pub(crate) fn difference(a: &Value, b: &Value) -> f64 {
    let list = |v: &Value| -> Vec<f64> {
        v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let (a, b) = (list(a), list(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}
