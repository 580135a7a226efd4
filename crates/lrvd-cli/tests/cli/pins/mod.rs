//! Values that a change of the code must not move, in the text files beside this one.
//!
//! `cargo xtask pins` compares them, `cargo xtask pins --bless` writes them anew; then the commit says what moved and
//! why. A line `name = value` is exact. A line `name ~ numbers` holds to two units of the last printed digit, and a line
//! `name @width = hash` holds on processors with these vector units only: rounding of some matrix products depends on them
//! (`docs/architecture.md`, "The same bits for every vector width"). Blessing keeps the lines of other widths.

#![allow(clippy::disallowed_methods, reason = "the environment says whether to bless")]

mod draws;
pub(crate) mod training;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

use lrvd_models::tokenizer::TextTokenizer;
use rstest::rstest;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::script::{at, document, play};
use crate::support::{Output, Sandbox, files_below, lines, placed, without};

/// Set by `cargo xtask pins --bless`.
const BLESS: &str = "LRVD_BLESS_PINS";
const MOST_DECIMALS: i32 = 6;
/// Fields of records and tables on the moment and the machine, and in words for people; of tables the start of a metric's name;
/// hashes of files whose last bits depend on the processor, and which are pinned where they do not.
const UNPINNED: &str = "adapter_model.safetensors command examples_per_second evaluate_seconds finished_at git_revision \
     lrvd_adapter.json lrvd_posterior.safetensors message note notes peak_memory_bytes predict_s \
     predict_seconds seconds start_memory_bytes started_at time train_seconds version";

fn is_pinned(key: &str) -> bool {
    !UNPINNED.split(' ').any(|other| other == key)
}

pub(crate) struct Pins {
    area: &'static str,
    dir: Rc<Sandbox>,
    lines: Vec<(String, String)>,
}

impl Pins {
    fn new(area: &'static str) -> Self {
        Self { area, dir: Rc::new(Sandbox::new()), lines: Vec::new() }
    }

    /// A line; paths of this machine are left out of it.
    fn add(&mut self, name: &str, sign: char, value: &str) {
        let assets = Path::new(&placed("@nano")).parent().unwrap().to_owned();
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = self.dir.root();
        let real = assets.canonicalize().unwrap();
        let places = [(folder, "DIR"), (&assets, "ASSETS"), (&real, "ASSETS"), (manifest, "CLI")];
        let shorten = |text: &str| {
            let text = text.replace('\\', "\\\\").replace('\n', "\\n");
            let replaced = |text: String, (path, name): (&Path, &str)| {
                text.replace(&path.display().to_string(), name)
            };
            places.into_iter().fold(text, replaced)
        };
        self.lines.push((format!("{} {sign}", shorten(name)), shorten(value)));
    }

    /// A value that must be the same everywhere.
    fn exact(&mut self, name: &str, value: impl ToString) {
        self.add(name, '=', &value.to_string());
    }

    /// Numbers that differ in rounding from one processor to another.
    fn near(&mut self, name: &str, numbers: impl IntoIterator<Item = f64>) {
        let numbers: Vec<String> = numbers.into_iter().map(digits).collect();
        self.add(name, '~', &numbers.join(" "));
    }

    fn bytes(&mut self, name: &str, file: &Path) {
        self.exact(name, hash(&self.dir.bytes(file.to_str().unwrap())));
    }

    /// The bytes of a file that depend on the vector units.
    fn bits(&mut self, name: &str, file: &Path) {
        self.bytes(&format!("{name} @{}", vector_units()), file);
    }

    /// Every leaf of a document by its path. A list of plain values is one line, and so is a field of a list of objects.
    fn json(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(map) if map.len() > 8 && map.values().all(Value::is_number) => {
                let keys: Vec<&str> = map.keys().map(String::as_str).collect();
                self.exact(&format!("{name}.keys"), keys.join(" "));
                self.json(name, &map.values().cloned().collect());
            }
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map.iter().filter(|(key, _)| is_pinned(key)) {
                    self.json(&format!("{name}.{key}"), value);
                }
            }
            Value::Array(list) if list.iter().any(Value::is_array) => {
                let parts =
                    list.iter().flat_map(|part| part.as_array().cloned().unwrap_or_default());
                self.json(name, &parts.collect());
            }
            Value::Array(list) if list.iter().any(Value::is_object) => {
                let objects = || list.iter().filter_map(Value::as_object);
                let keys: BTreeSet<&String> = objects().flat_map(serde_json::Map::keys).collect();
                for key in keys.into_iter().filter(|key| is_pinned(key)) {
                    let field = list.iter().map(|object| object[key.as_str()].clone());
                    self.json(&format!("{name}.*.{key}"), &field.collect());
                }
            }
            Value::Array(list) if list.iter().any(Value::is_f64) => {
                let number =
                    |value: &Value| value.as_f64().map_or_else(|| value.to_string(), digits);
                self.add(name, '~', &list.iter().map(number).collect::<Vec<_>>().join(" "));
            }
            Value::Number(number) if number.is_f64() => self.near(name, number.as_f64()),
            Value::String(text) => self.exact(name, text),
            other => self.exact(name, other),
        }
    }

    /// Pins what an expectation of a script names (see its README) of what a command wrote or a server answered.
    pub(crate) fn line(&mut self, word: &str, rest: &str, output: &Output) {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let document = || document(&output.stdout);
        match word {
            "status" => self.exact(name, output.code),
            "code" => self.exact(name, format!("{} {}", output.code, document()["error"]["code"])),
            "rows" => {
                for (i, row) in lines(&output.stdout).iter().enumerate() {
                    self.json(&format!("{name}.{i}"), row);
                }
            }
            "words" => {
                let document = document();
                let words = at(&document, rest);
                let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
                self.exact(name, words.join(" "));
            }
            "hash" => match rest.strip_suffix("/*") {
                Some(pointer) => {
                    for (key, value) in document().pointer(pointer).unwrap().as_object().unwrap() {
                        self.exact(&format!("{name}.{key}"), hash_of(value));
                    }
                }
                None => self.exact(name, hash_of(document().pointer(rest).unwrap())),
            },
            #[cfg(unix)]
            "runs" => self.runs(name),
            #[cfg(unix)]
            "tables" => self.tables(name, rest),
            "answers" => self.answers(name, rest),
            "data" => self.read_files(name, document().pointer(rest).unwrap()),
            "files" | "trained" => self.files(name, &self.dir.path(rest), word == "trained"),
            _ => {
                let mut document = document();
                if let Some(key) = rest.strip_prefix("without ") {
                    document.as_object_mut().unwrap().remove(key).unwrap();
                }
                let pointer = if rest.starts_with('/') { rest } else { "" };
                self.json(name, document.pointer(pointer).unwrap());
            }
        }
    }

    /// The first answers of every run of a suite.
    fn answers(&mut self, name: &str, out: &str) {
        let results = self.dir.json(&format!("{out}/results.json"));
        for run in results["runs"].as_array().unwrap() {
            let task = run["task"].as_str().unwrap();
            let file = format!("{out}/runs/{task}/lora/seed-1/predictions-last.jsonl");
            for row in self.dir.lines(&file).iter().take(3) {
                let name = format!("{name}.{task}.{}", row["id"].as_str().unwrap());
                let probabilities = row["probs"]["0"].as_array().unwrap();
                let label = std::iter::once(&row["label"]).chain(probabilities);
                self.near(&name, label.map(|value| value.as_f64().unwrap()));
            }
            let nll = run.pointer("/checkpoints/last/metrics/0/nll").unwrap().as_f64();
            self.near(&format!("{name}.{task}.nll"), nll);
        }
    }

    /// Hashes of the files that the tasks of a suite were read from.
    fn read_files(&mut self, name: &str, data: &Value) {
        for (task, data) in data.as_object().unwrap() {
            for pointer in ["/train/files/*", "/validation/files/*"] {
                for file in at(data, pointer) {
                    let mut parts = file["path"].as_str().unwrap().rsplit('/');
                    let file_name = parts.next().unwrap();
                    let folder = parts.next().unwrap();
                    let name = format!("{name}.{task}.{folder}/{file_name}");
                    self.exact(&name, file["sha256"].as_str().unwrap());
                }
            }
        }
    }

    /// The files of an adapter or an export. Those of an adapter that was `trained` here name the base model by its path.
    fn files(&mut self, name: &str, folder: &Path, trained: bool) {
        for file in files_below(folder) {
            let path = file.to_str().unwrap();
            let file_name = file.file_name().unwrap();
            let file_name = file_name.to_str().unwrap();
            let of = format!("{name}/{file_name}");
            let is_json = file.extension().is_some_and(|end| end == "json");
            let is_read = file_name == "lrvd_adapter.json" || file_name.ends_with("config.json");
            match file_name {
                // Words for people.
                "README.md" => self.exact(&of, "written"),
                _ if trained && is_json => self.exact(&of, "written"),
                // Singular vectors.
                "adapter_model.safetensors" if name.ends_with("capped") => self.bits(&of, &file),
                _ if is_read => self.json(&of, &self.dir.json(path)),
                _ => self.bytes(&of, &file),
            }
        }
    }

    fn scripted(self) -> Self {
        let dir = Rc::clone(&self.dir);
        let folder = placed("@tests/pins/scripts");
        let script = Path::new(&folder).join(self.area).with_extension("txt");
        play(dir, &script, Some(self)).unwrap()
    }

    /// Compares with the file of the area, or writes it.
    fn finish(self) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pins");
        let file = folder.join(self.area).with_extension("txt");
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, value) in &self.lines {
            assert!(names.insert(name, value).is_none(), "{name} twice");
        }
        let pinned = std::fs::read_to_string(&file).unwrap_or_default();
        let is_elsewhere = |line: &&str| {
            let units =
                parts(line).0.split_once(" @").map(|(_, units)| units.trim_end_matches(" ="));
            units.is_some_and(|units| units != vector_units())
        };
        if std::env::var_os(BLESS).is_some() {
            let own = self.lines.iter().map(|(name, value)| format!("{name} {value}\n"));
            let others = pinned.lines().filter(is_elsewhere).map(|line| format!("{line}\n"));
            std::fs::write(&file, own.chain(others).collect::<String>()).unwrap();
            return;
        }
        if !pinned.contains(&format!(" @{} ", vector_units())) {
            names.retain(|name, _| !name.contains(" @"));
        }
        let mut moved = String::new();
        for line in pinned.lines().filter(|line| !is_elsewhere(line)) {
            let (name, expected) = parts(line);
            match names.remove(name) {
                Some(found) if found == expected => {}
                Some(found) if name.ends_with('~') && is_near(expected, found) => {}
                Some(found) => writeln!(moved, "- {line}\n+ {name} {found}").unwrap(),
                None => writeln!(moved, "- {line}").unwrap(),
            }
        }
        for (name, value) in names {
            writeln!(moved, "+ {name} {value}").unwrap();
        }
        assert!(
            moved.is_empty(),
            "pins moved in `{}`:\n{moved}\nIf that is intended, run `cargo xtask pins --bless` and say in the commit what \
             moved and why.",
            file.display()
        );
    }
}

/// The vector units that decide about the rounding of products.
fn vector_units() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f")
            && has!("avx512bw")
            && has!("avx512cd")
            && has!("avx512dq")
            && has!("avx512vl")
        {
            return "avx512";
        }
        if has!("avx2") && has!("fma") {
            return "avx2";
        }
    }
    std::env::consts::ARCH
}

/// The name with its sign, and the value.
fn parts(line: &str) -> (&str, &str) {
    let at = [" = ", " ~ "].iter().filter_map(|sign| line.find(sign)).min();
    at.map_or((line, ""), |at| (&line[..at + 2], &line[at + 3..]))
}

/// The first 16 digits of the SHA-256.
fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The hash of a JSON value without its sentences.
fn hash_of(value: &Value) -> String {
    let is_words = |key: &str| ["description", "summary", "title"].contains(&key);
    let value = without(value, &|key, value| is_words(key) && value.is_string());
    hash(value.to_string().as_bytes())
}

/// Five significant digits, fewer near zero.
fn digits(number: f64) -> String {
    let size = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    format!("{number:.*}", (4 - size).clamp(0, MOST_DECIMALS) as usize)
}

/// True if the numbers agree to two units of the last digit of what is pinned.
fn is_near(expected: &str, found: &str) -> bool {
    let expected: Vec<&str> = expected.split(' ').collect();
    let found: Vec<&str> = found.split(' ').collect();
    let near = |(expected, found): (&&str, &&str)| {
        let decimals = expected.split_once('.').map_or(0, |(_, digits)| digits.len());
        let unit = 10_f64.powi(-(decimals as i32));
        match (expected.parse::<f64>(), found.parse::<f64>()) {
            (Ok(a), Ok(b)) => expected == found || (a - b).abs() <= 2.1 * unit,
            _ => false,
        }
    };
    expected.len() == found.len() && expected.iter().zip(&found).all(near)
}

/// From files to token ids: generated tasks, prompts and answers of every task, classes, rows that are drawn.
#[test]
fn token_ids_prompts_and_classes() {
    let mut pins = Pins::new("data");
    for (name, folder) in [("encoder", "@nano"), ("llama", "@llama")] {
        let tokenizer = TextTokenizer::from_dir(placed(folder).as_ref()).unwrap();
        for (i, (text, pair)) in [
            ("Once upon a time, Tim's  cat sat.", None),
            ("na\u{ef}ve caf\u{e9} \u{1F600}\u{4E2D}\t42 km/h\u{ad}", None),
            ("The man ran.", Some("He moved quickly, did he not?")),
        ]
        .into_iter()
        .enumerate()
        {
            // A language model reads a pair in words.
            let pair = pair.filter(|_| name == "encoder");
            let found = tokenizer.encode(text, pair, Some(20)).unwrap();
            pins.exact(&format!("ids.{name}.{i}"), format!("{:?}", found.get_ids()));
        }
    }
    pins.scripted().finish();
}

/// Prompts of reasoning sets, initial values (those of a model that learns nothing), exports of committed adapters.
#[rstest]
fn prompts_initial_values_and_exports(
    #[values("prompts", "initial", "exports")] area: &'static str,
) {
    Pins::new(area).scripted().finish();
}

#[cfg(all(unix, feature = "serve"))]
#[test]
fn answers_over_http() {
    Pins::new("serve").scripted().finish();
}

/// Every method on both models; records and tables.
#[cfg(unix)]
#[rstest]
fn trainings(#[values("training-encoder", "training-llama", "records")] area: &'static str) {
    Pins::new(area).scripted().finish();
}

#[test]
fn a_pin_that_moves_is_seen() {
    assert!(is_near("0.6931 12", "0.6932 13") && is_near("nan", "nan"));
    assert!(!is_near("0.6931", "0.6934") && !is_near("0.6931", "0.6931 1"));
    assert_eq!([0.0, 1.5, -1234.56, 1e-9].map(digits).join(" "), "0.0000 1.5000 -1234.6 0.000000");
}
