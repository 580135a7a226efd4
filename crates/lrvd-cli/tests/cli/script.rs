//! Command lines and what is expected of them, in the files of `scripts`; their language is in the README there.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Value, json};

use crate::pins::Pins;
use crate::support::{Output, Sandbox, ended, files_below, lines, placed, training, with};

/// A test for each file; a function in brackets writes into its folder.
macro_rules! scripts {
    ($($name:ident $(($prepare:ident))?)*) => {
        $(#[test] fn $name() {
            let dir = Sandbox::new();
            $($prepare(&dir);)?
            play(Rc::new(dir), concat!("scripts/", stringify!($name)), None);
        })*

        #[test]
        fn every_script_is_a_test() {
            let files = std::fs::read_dir(folder("scripts")).unwrap();
            let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let names: BTreeSet<String> = names.collect();
            let expected = [$(concat!(stringify!($name), ".txt"),)* "README.md"];
            assert_eq!(names, expected.map(str::to_owned).into());
        }
    };
}

scripts! {
    arms
    bayeslora
    changed
    chat_gguf(write_chat_gguf)
    checkpoints
    choices
    config
    conversations
    exports
    failed_run
    first_contact
    gguf
    glue_suite
    jobs
    language
    logging
    numbers
    one_file
    ood
    output
    positions(write_absolute)
    ranks
    rejections
    reloads
    requests
    serve
    suite
    suite_rejections
    tables
    thresholds
    worded
    worded_suite
}

/// A tiny Llama as a GGUF file, alone in a folder, with a template for conversations in it.
fn write_chat_gguf(dir: &Sandbox) {
    let mut bytes = dir.bytes("@golden/gguf/byte_level.gguf");
    let (key, template) = ("tokenizer.chat_template", dir.text("@tests/data/template.jinja"));
    // Tensors stay aligned if what is put in front of them is a multiple of 32 bytes.
    let length = 8 + key.len() + 4 + 8 + template.len() + "{##}".len();
    let padding = " ".repeat(length.next_multiple_of(32) - length);
    let template = format!("{template}{{#{padding}#}}");
    let setting = [
        &(key.len() as u64).to_le_bytes()[..],
        key.as_bytes(),
        &8_u32.to_le_bytes(),
        &(template.len() as u64).to_le_bytes(),
        template.as_bytes(),
    ];
    // Behind magic number, version and number of tensors comes the number of settings.
    let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 1;
    bytes.splice(16..24, [&count.to_le_bytes()[..], &setting.concat()].concat());
    dir.write("gguf/tiny.gguf", bytes);
}

/// The shipped encoder with a vector for each of its first 24 positions, in `absolute`.
fn write_absolute(dir: &Sandbox) {
    dir.copy(placed("@nano").as_ref(), "absolute");
    dir.edit("absolute/config.json", |config| {
        config["position_biased_input"] = true.into();
        config["max_position_embeddings"] = 24.into();
    });
    // Safetensors: length of the header, header, data.
    let bytes = dir.bytes("absolute/model.safetensors");
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let (shape, size) = ([24, 192], 24 * 192 * 4);
    header["deberta.embeddings.position_embeddings.weight"] =
        json!({ "dtype": "F32", "shape": shape, "data_offsets": [data.len(), data.len() + size] });
    let header = header.to_string().into_bytes();
    let file = [&(header.len() as u64).to_le_bytes()[..], &header, data, &vec![0; size]].concat();
    dir.write("absolute/model.safetensors", file);
}

fn folder(name: &str) -> String {
    format!("{}/tests/cli/{name}", env!("CARGO_MANIFEST_DIR"))
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

/// Whether the documents have the same shape and texts, and numbers that differ by 1e-6 at most.
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
    names: BTreeMap<String, String>,
    #[cfg(all(unix, feature = "serve"))]
    server: Option<crate::serve::Server>,
}

impl Script {
    /// Runs a command that is not one of the program's; `lines` are those below it.
    fn own(&mut self, command: &str, lines: &[&str]) -> Option<Output> {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let words = if verb == "post" { Vec::new() } else { shlex::split(rest).unwrap() };
        let word = |i: usize| words.get(i).map_or("", String::as_str);
        let change = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = self.dir.bytes(word(0));
            change(&mut bytes);
            self.dir.write(word(0), bytes);
        };
        match verb {
            "let" => {
                let (name, words) = rest.split_once(" = ").unwrap();
                self.names.insert(name.to_owned(), words.to_owned());
            }
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
            "cut" => change(&|bytes| bytes.truncate(bytes.len() - 4)),
            "set" => self.dir.edit(word(0), |value| {
                let (parent, key) = word(1).rsplit_once('/').unwrap();
                let parent = value.pointer_mut(parent).unwrap();
                match word(2) {
                    "" => drop(parent.as_object_mut().unwrap().remove(key).unwrap()),
                    new => parent[key] = serde_json::from_str(new).unwrap(),
                }
            }),
            "show" => {
                let path = self.dir.path(word(0));
                let files = if path.is_dir() { files_below(&path) } else { vec![path] };
                let bytes: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
                let stdout = String::from_utf8_lossy(&bytes.concat()).into_owned();
                return Some(Output { code: 0, stdout, stderr: String::new() });
            }
            "rejected" => {
                let cases = std::fs::read_to_string(folder(&format!("rejected/{}.txt", word(0))));
                let before = self.line(rest.split_once(' ').map_or("", |(_, words)| words));
                self.dir.rejects(&cases.unwrap(), |more| with(&before, more));
            }
            #[cfg(all(unix, feature = "serve"))]
            "serve" => self.server = Some(crate::serve::Server::start(&self.dir, rest)),
            #[cfg(all(unix, feature = "serve"))]
            "post" | "get" => {
                let server = self.server.as_ref().unwrap();
                let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
                let reply = if verb == "get" { server.get(path) } else { server.post(path, body) };
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
            #[cfg(not(unix))]
            "link" => {}
            #[cfg(not(all(unix, feature = "serve")))]
            "serve" | "post" | "get" | "requests" | "stop" => {}
            _ => panic!("unknown command `:{verb}`"),
        }
        None
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
        let is_variable =
            |(name, _): &(&str, &str)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let variable = line.split_once('=').filter(is_variable);
        let command = variable.map_or(line, |(_, rest)| rest.split_once(' ').unwrap().1);
        let (command, to) =
            command.split_once(" > ").map_or((command, None), |(c, f)| (c, Some(f)));
        let (command, input) = command.split_once(" < ").unwrap_or((command, ""));
        let input = if input.is_empty() { String::new() } else { self.dir.text(input) };
        let mut run = self.dir.command(&self.line(command));
        run.envs(variable.map(|(name, rest)| (name, rest.split(' ').next().unwrap())));
        let output = ended(run, &input);
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
                | "answers" | "data" => {
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

    /// Whether every value at `pointer` is as `rest`, an operator and an operand, says.
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
pub(crate) fn play(dir: Rc<Sandbox>, name: &str, pins: Option<Pins>) -> Option<Pins> {
    let text = std::fs::read_to_string(folder(&format!("{name}.txt"))).unwrap();
    let text = text.replace("@dir", &dir.root().display().to_string());
    let mut script = Script {
        dir,
        pins,
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
