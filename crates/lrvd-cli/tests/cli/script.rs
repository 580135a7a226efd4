//! Command lines and what is expected of them, in the files of `scripts`; their language is in the README there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rstest::rstest;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

use crate::pins::Pins;
#[cfg(unix)]
use crate::pins::training::run_with_stops;
#[cfg(unix)]
use crate::support::signal;
use crate::support::{Output, Sandbox, ended, files_below, lines, placed, training, with, without};

#[rstest]
fn script(
    #[files("tests/cli/scripts/*.txt")]
    #[exclude("(resume|sweep).txt")]
    file: PathBuf,
) {
    play(Rc::new(Sandbox::new()), &file, None);
}

#[cfg(unix)]
#[rstest]
fn script_with_signals(
    #[files("tests/cli/scripts/resume.txt")]
    #[files("tests/cli/scripts/sweep.txt")]
    file: PathBuf,
) {
    play(Rc::new(Sandbox::new()), &file, None);
}

/// A JSON document, or the list of those of JSONL.
pub(crate) fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| lines(text).into())
}

/// The values at a pointer in which `*` is every entry.
pub(crate) fn at<'v>(value: &'v Value, pointer: &str) -> Vec<&'v Value> {
    let Some((before, after)) = pointer.split_once("/*") else {
        return vec![value.pointer(pointer).unwrap_or(&Value::Null)];
    };
    match value.pointer(before) {
        Some(Value::Array(all)) => all.iter().flat_map(|one| at(one, after)).collect(),
        Some(Value::Object(all)) => all.values().flat_map(|one| at(one, after)).collect(),
        _ => Vec::new(),
    }
}

/// True if the documents have the same shape and texts, and numbers that differ by 1e-6 at most.
fn is_near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() <= 1e-6
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.keys().eq(b.keys()) && a.values().zip(b.values()).all(|(a, b)| is_near(a, b))
        }
        _ => a == b,
    }
}

struct Script {
    dir: Rc<Sandbox>,
    pins: Option<Pins>,
    children: Vec<Child>,
    names: BTreeMap<String, String>,
    #[cfg(all(unix, feature = "serve"))]
    server: Option<crate::serve::Server>,
}

impl Script {
    /// Writes or changes files; `false` if the command is another. `lines` are those below it.
    fn changes(&self, verb: &str, words: &[String], lines: &[&str]) -> bool {
        let word = |i: usize| words.get(i).map_or("", String::as_str);
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = self.dir.bytes(word(0));
            change(&mut bytes);
            self.dir.write(word(0), bytes);
        };
        match verb {
            "file" => self.dir.write(word(0), lines.join("\n") + "\n"),
            "copy" => {
                let from = self.dir.path(word(0));
                if from.is_dir() {
                    self.dir.copy(&from, word(1));
                } else {
                    self.dir.write(word(1), std::fs::read(from).unwrap());
                }
            }
            "folder" => std::fs::create_dir_all(self.dir.path(word(0))).unwrap(),
            #[cfg(unix)]
            "link" => {
                std::fs::remove_file(self.dir.path(word(1))).unwrap();
                let [to, from] = [word(0), word(1)].map(|name| self.dir.path(name));
                std::os::unix::fs::symlink(to, from).unwrap();
            }
            "drop" => {
                let text = self.dir.text(word(0));
                let kept = text.split_inclusive('\n').filter(|line| !line.contains(word(1)));
                let kept: Vec<&str> = kept.collect();
                assert_eq!(kept.len() + 1, text.lines().count(), "{words:?}");
                self.dir.write(word(0), kept.concat());
            }
            "remove" => std::fs::remove_file(self.dir.path(word(0))).unwrap(),
            "replace" => {
                let text = self.dir.text(word(0));
                assert!(text.contains(word(1)), "{}: no `{}`", word(0), word(1));
                self.dir.write(word(0), text.replacen(word(1), &word(2).replace("\\n", "\n"), 1));
            }
            "flip" => change(&|bytes| {
                let place = bytes.len() - 2;
                bytes[place] ^= 1;
            }),
            "nan" => change(&|bytes| {
                let place = bytes.len() - 4;
                bytes[place..].copy_from_slice(&f32::NAN.to_le_bytes());
            }),
            "tensor" => change(&|bytes| {
                let zeros = vec![0; 24 * 192 * 4];
                let added = TensorView::new(Dtype::F32, vec![24, 192], &zeros).unwrap();
                let tensors = SafeTensors::deserialize(bytes).unwrap().tensors();
                let all = tensors.into_iter().chain([(word(1).to_owned(), added)]);
                *bytes = safetensors::serialize(all, None).unwrap();
            }),
            "cut" => change(&|bytes| bytes.truncate(bytes.len() - 4)),
            "set" => self.dir.edit(word(0), |value| {
                let (parent, key) = word(1).rsplit_once('/').unwrap();
                let parent = value.pointer_mut(parent).unwrap();
                match word(2) {
                    "" => drop(parent.as_object_mut().unwrap().remove(key).unwrap()),
                    new => parent[key] = serde_json::from_str(new).unwrap(),
                }
            }),
            #[cfg(not(unix))]
            "link" => {}
            _ => return false,
        }
        true
    }

    /// Runs a command that is not one of the program's; `lines` are those below it.
    fn own(&mut self, command: &str, lines: &[&str]) -> Option<Output> {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words = if verb == "post" { Vec::new() } else { shlex::split(rest).unwrap() };
        let word = |i: usize| words.get(i).map_or("", String::as_str);
        match verb {
            "let" => {
                let (name, words) = rest.split_once(" = ").unwrap();
                self.names.insert(name.to_owned(), words.to_owned());
            }
            "same" => {
                for file in &words[2..] {
                    let [a, b] = [word(0), word(1)].map(|dir| format!("{dir}/{file}"));
                    assert!(self.dir.bytes(&a) == self.dir.bytes(&b), "{file} differs");
                }
            }
            "alike" => assert_eq!(self.results(word(0)), self.results(word(1))),
            "start" => {
                let mut run = self.command(rest);
                run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                self.children.push(run.spawn().unwrap());
            }
            "until" => self.until(&words),
            #[cfg(unix)]
            "stops" => {
                let out = word(1);
                let resumed = words[2..].join(" ") + " --resume";
                let stops = run_with_stops(|| self.command(&resumed), &self.dir.path(out));
                assert!(stops >= word(0).parse().unwrap(), "{stops} stops: {command}");
            }
            #[cfg(unix)]
            "end" => {
                let child = self.children.pop().unwrap();
                for name in &words {
                    signal(&child, &format!("-{name}"));
                }
                return Some(child.wait_with_output().unwrap().into());
            }
            "show" => {
                let path = self.dir.path(word(0));
                let files = if path.is_dir() { files_below(&path) } else { vec![path] };
                let bytes: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
                let stdout = String::from_utf8_lossy(&bytes.concat()).into_owned();
                return Some(Output { code: 0, stdout, stderr: String::new() });
            }
            "rejected" => {
                let cases =
                    std::fs::read_to_string(placed(&format!("@tests/rejected/{}.txt", word(0))));
                let before = self.line(rest.split_once(' ').map_or("", |(_, words)| words));
                self.dir.rejects(&cases.unwrap(), |more| with(&before, more));
            }
            #[cfg(all(unix, feature = "serve"))]
            "serve" => self.server = Some(crate::serve::Server::start(&self.dir, rest)),
            #[cfg(all(unix, feature = "serve"))]
            "post" | "get" | "delete" | "keyed" => {
                let server = self.server.as_ref().unwrap();
                let is_keyed = verb == "keyed";
                let (method, rest) =
                    if is_keyed { rest.split_once(' ').unwrap() } else { (verb, rest) };
                let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
                let reply = server.request(is_keyed, &method.to_uppercase(), path, body);
                let code = i32::from(reply.status);
                return Some(Output { code, stdout: reply.text, stderr: String::new() });
            }
            #[cfg(all(unix, feature = "serve"))]
            "requests" => self.server.as_ref().unwrap().rejects(lines),
            #[cfg(all(unix, feature = "serve"))]
            "stop" => {
                let stdout = self.server.take().unwrap().stop();
                return Some(Output { code: 0, stdout, stderr: String::new() });
            }
            #[cfg(not(all(unix, feature = "serve")))]
            "serve" | "post" | "get" | "delete" | "keyed" | "requests" | "stop" => {}
            _ => assert!(self.changes(verb, &words, lines), "unknown command `:{verb}`"),
        }
        None
    }

    /// Waits while the last process that was started works: for a checkpoint, a file, or words on standard error.
    fn until(&mut self, words: &[String]) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let child = self.children.last_mut().unwrap();
        let mut seen = Vec::new();
        loop {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
            let is_so = match words[..] {
                ["exists", file] => self.dir.exists(file),
                ["steps", least, run] => {
                    let step = |i| format!("{run}/checkpoints/step-{i:08}");
                    (least.parse().unwrap()..100).any(|i| self.dir.exists(&step(i)))
                }
                ["stderr", text] => {
                    let mut byte = [0];
                    child.stderr.as_mut().unwrap().read_exact(&mut byte).unwrap();
                    seen.extend(byte);
                    seen.ends_with(text.as_bytes())
                }
                _ => panic!("unknown condition {words:?}"),
            };
            if is_so {
                return;
            }
            if words[0] != "stderr" {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// `results.json` of a suite without times, and without what names the folder.
    fn results(&self, out: &str) -> Value {
        let times = "started_at finished_at train_seconds evaluate_seconds predict_seconds peak_memory_bytes start_memory_bytes command";
        let text = self.dir.text(&format!("{out}/results.json"));
        let folder = self.dir.path(out).display().to_string();
        let value = serde_json::from_str(&text.replace(&folder, "OUT")).unwrap();
        without(&value, &|key, _| times.split(' ').any(|name| name == key))
    }

    /// The command of a line, which may start with a variable of the environment.
    fn command(&self, line: &str) -> Command {
        let is_variable =
            |(name, _): &(&str, &str)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let variable = line.split_once('=').filter(is_variable);
        let words = variable.map_or(line, |(_, rest)| rest.split_once(' ').unwrap().1);
        let mut command = self.dir.command(&self.line(words));
        command.envs(variable.map(|(name, rest)| (name, rest.split(' ').next().unwrap())));
        command
    }

    /// The words of a line that may start with a name.
    fn line(&self, line: &str) -> String {
        let Some(rest) = line.strip_prefix('$') else { return line.to_owned() };
        let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
        with(&self.line(&self.names[name]), more)
    }

    fn block(&mut self, line: &str, below: &[&str]) {
        if let Some(own) = line.strip_prefix(':') {
            if let Some(output) = self.own(own, below) {
                self.check(line, &output, below);
            }
            return;
        }
        let (command, to) = line.split_once(" > ").map_or((line, None), |(c, f)| (c, Some(f)));
        let (command, input) = command.split_once(" < ").unwrap_or((command, ""));
        let input = if input.is_empty() { String::new() } else { self.dir.text(input) };
        let output = ended(self.command(command), &input);
        if let Some(file) = to {
            self.dir.write(file, &output.stdout);
        }
        self.check(line, &output, below);
    }

    fn check(&mut self, command: &str, output: &Output, below: &[&str]) {
        let Output { code, stdout, stderr } = output;
        let shown = || format!("{command}\nexit {code}\n{stdout}\n{stderr}");
        let mut expected_code = 0;
        for line in below {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let is_so = match word {
                "exit" | "error" => {
                    let (number, words) = match word {
                        "error" => ("2", rest),
                        _ => rest.split_once(' ').unwrap_or((rest, "")),
                    };
                    expected_code = number.parse().unwrap();
                    stderr.contains(words) && (word == "exit" || stdout.is_empty())
                }
                "stdout" => stdout.contains(&rest.replace("\\n", "\n")),
                "stderr" => stderr.contains(rest),
                "no" => !stdout.contains(rest) && !stderr.contains(rest),
                "is" => stdout.strip_suffix('\n') == Some(&rest.replace("\\n", "\n")),
                "times" => {
                    let (times, words) = rest.split_once(' ').unwrap();
                    stdout.matches(words).count().to_string() == times
                }
                "sorted" => {
                    let sorted =
                        |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
                    sorted(stdout) == sorted(&self.dir.text(rest))
                }
                "quiet" => stderr.is_empty(),
                "empty" => stdout.is_empty(),
                "same" => *stdout == self.dir.text(rest),
                "differs" => *stdout != self.dir.text(rest),
                "near" => {
                    let (file, key) = rest.split_once(' ').unwrap_or((rest, ""));
                    let [found, expected] = [stdout, &self.dir.text(file)].map(|t| document(t));
                    let pointer = if key.is_empty() { key.to_owned() } else { format!("/*/{key}") };
                    let [found, expected] = [&found, &expected].map(|value| at(value, &pointer));
                    is_near(&json!(found), &json!(expected))
                }
                "pin" | "rows" | "words" | "hash" | "status" | "code" | "files" | "trained"
                | "answers" | "data" | "runs" | "tables" => {
                    if ["status", "code"].contains(&word) {
                        expected_code = *code;
                    }
                    self.pins.as_mut().unwrap().line(word, rest, output);
                    true
                }
                "exists" => self.dir.exists(rest),
                "absent" => !self.dir.exists(rest),
                pointer => self.compares(&document(stdout), pointer, rest),
            };
            assert!(is_so, "{line}\n{}", shown());
        }
        let is_expected = *code == expected_code || (*code == 200 && expected_code == 0);
        assert!(is_expected, "{}", shown());
    }

    /// True if every value at `pointer` fulfils `rest`, an operator and an operand.
    fn compares(&self, document: &Value, pointer: &str, rest: &str) -> bool {
        let (operator, operand) = rest.split_once(' ').unwrap();
        let expected = serde_json::from_str(operand).unwrap_or_else(|_| {
            let (file, pointer) = operand.split_once(' ').unwrap();
            self::document(&self.dir.text(file)).pointer(pointer).unwrap().clone()
        });
        let found = at(document, pointer);
        let number = |compare: fn(&f64, &f64) -> bool| {
            let expected = expected.as_f64().unwrap();
            found.iter().all(|found| found.as_f64().is_some_and(|found| compare(&found, &expected)))
        };
        let length = |found: &&Value| {
            found.as_array().map(Vec::len).or_else(|| Some(found.as_object()?.len()))
        };
        !found.is_empty()
            && match operator {
                "=" => found.iter().all(|found| **found == expected),
                "!=" => found.iter().all(|found| **found != expected),
                "<" => number(f64::lt),
                ">" => number(f64::gt),
                "#" => found
                    .iter()
                    .all(|found| length(found).map(Value::from).as_ref() == Some(&expected)),
                other => panic!("unknown operator `{other}`"),
            }
    }
}

/// Runs a script, and returns the pins with what it adds.
pub(crate) fn play(dir: Rc<Sandbox>, file: &Path, pins: Option<Pins>) -> Option<Pins> {
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.replace("@dir", &dir.root().display().to_string());
    let mut script = Script {
        dir,
        pins,
        children: Vec::new(),
        names: [("train".to_owned(), training("out", 4, ""))].into(),
        #[cfg(all(unix, feature = "serve"))]
        server: None,
    };
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let mut rest = text.lines().filter(is_code).peekable();
    while let Some(command) = rest.next() {
        let below = std::iter::from_fn(|| rest.next_if(|line| line.starts_with("    ")));
        let below: Vec<&str> = below.map(|line| &line[4..]).collect();
        script.block(command, &below);
    }
    script.pins
}
