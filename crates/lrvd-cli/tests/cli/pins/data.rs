//! From files to token ids: the generated tasks, prompts and answers of every task, classes, rows that are drawn.

use lrvd_models::tokenizer::TextTokenizer;
use serde_json::{Value, json};

use super::{Pins, hash, read, read_json};
use crate::support::{done, lines, model, placed, run};

/// The tasks of GLUE and their folders. `glue` has two rows of each, in a layout of the original files or of the public
/// distributions.
const GLUE: [(&str, &str); 9] = [
    ("cola", "CoLA"),
    ("sst2", "SST-2"),
    ("mrpc", "MRPC"),
    ("qqp", "QQP"),
    ("mnli", "MNLI"),
    ("qnli", "QNLI"),
    ("rte", "RTE"),
    ("stsb", "STS-B"),
    ("wnli", "WNLI"),
];

/// Labels of a user's file, whose order is by value.
const LABELS: [(&str, [&str; 4]); 4] = [
    ("numbers", ["10", "2", "-1", "2"]),
    ("texts", ["b", "B", "a b", "\u{e9}"]),
    ("decimals", ["1.0", "0.5", "1.5", "0.5"]),
    ("truths", ["true", "false", "true", "true"]),
];

/// Presets of published protocols.
const PUBLISHED: [(&str, &str); 5] = [
    ("glue", "paper-glue"),
    ("glue", "author-glue"),
    ("reasoning", "paper-reasoning"),
    ("reasoning", "author-llm"),
    ("reasoning", "blob-compat"),
];

#[test]
fn token_ids_prompts_and_classes() {
    let mut pins = Pins::new("data");
    for (name, folder) in [("encoder", model()), ("llama", placed("@llama").into())] {
        let tokenizer = TextTokenizer::from_dir(&folder).unwrap();
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
            pins.exact(&format!("ids.{name}.{i}"), format!("{:?}", found.ids));
        }
    }
    for (task, folder) in GLUE {
        let rows = read(format!("tests/cli/pins/glue/{folder}.tsv"));
        let dev = if task == "mnli" { "dev_matched" } else { "dev" };
        for split in ["train", dev] {
            pins.write(&format!("glue/{folder}/{split}.tsv"), &rows);
        }
        // Words that are single tokens of the small vocabulary; those of the tasks are pinned below.
        let answers = match task {
            "stsb" => "",
            "mnli" => "--answers big,happy,little",
            _ => "--answers big,happy",
        };
        for (name, more) in
            [("encoder", "--model @nano"), ("llama", &format!("--model @llama {answers}"))]
        {
            let data = pins.path("glue");
            let report = check(&format!("--task {task} --data-dir {data} --max-length 64 {more}"));
            pins.json(&format!("{task}.{name}"), &report);
        }
    }
    let tasks = GLUE.map(|(task, _)| task).join(",");
    let plan = |suite: &str, more: &str| {
        done(&format!("bench {suite} --dry-run --format json {more}")).json()
    };
    let wording = plan("glue", &format!("--model @llama --tasks {tasks}"));
    pins.json("wording", &wording["wording"]);
    for (suite, preset) in PUBLISHED {
        let settings =
            plan(suite, &format!("--profile paper --preset {preset}"))["settings"].take();
        pins.exact(&format!("preset.{preset}"), hash(settings.to_string().as_bytes()));
    }
    for (name, labels) in LABELS {
        let rows = labels.map(|label| format!("a text,{label}\n")).concat();
        let file = pins.write(&format!("{name}.csv"), &format!("text,label\n{rows}"));
        let report = check(&format!("--train {file} --validation {file}"));
        pins.json(&format!("labels.{name}"), &json!([report["splits"][0]["classes"]]));
    }
    // Questions with choices, of a user's own.
    let row = |question: &str, answer: &str| {
        json!({ "question": question, "choices": ["red", "blue", "old"], "answer": answer })
            .to_string()
    };
    let rows = [row("What is it?", "B"), row("Which one?", "old"), row("Why?", "0")].join("\n");
    let file = pins.write("questions.jsonl", &rows);
    for (name, model) in [("encoder", "@nano"), ("llama", "@llama")] {
        let report = check(&format!("--train {file} --validation {file} --model {model}"));
        pins.json(&format!("questions.{name}"), &report);
    }
    // The rows that are drawn to be validated on.
    let rows = (0..24).map(|i| format!("text {i}\t{}\n", i % 2)).collect::<Vec<_>>().concat();
    let (file, out) = (pins.write("rows.tsv", &format!("text\tlabel\n{rows}")), pins.path("rows"));
    done(&format!(
        "train --model @llama --train {file} --validation-split 0.3 --seed 3 --out {out} --answers big,happy \
         --method lora --steps 1 --quiet"
    ));
    let answers = lines(&read(format!("{out}/predictions-last.jsonl")));
    let ids: Vec<&str> = answers.iter().map(|row| row["id"].as_str().unwrap()).collect();
    pins.exact("validation_split.ids", ids.join(" "));
    pins.finish();
}

/// What `lrvd data check` says, without hashes of files that are written here.
fn check(more: &str) -> Value {
    let mut report = done(&format!("data check --format json {more}")).json();
    report.as_object_mut().unwrap().remove("files");
    report
}

/// Every reasoning set as the untrained model answers it: one other token anywhere, and the answers differ.
#[test]
fn prompts_of_reasoning_sets() {
    let mut pins = Pins::new("prompts");
    let boolq = |i: usize| {
        json!({
            "question": "was the river high", "title": "River", "answer": i.is_multiple_of(2),
            "passage": format!("The river rose {i} feet that day, and the man on the other side saw it."),
        })
    };
    for (split, first) in [("train", 0), ("dev", 4)] {
        let rows: Vec<String> = (first..first + 4).map(|i| boolq(i).to_string()).collect();
        pins.write(&format!("own/BoolQ/{split}.jsonl"), &rows.join("\n"));
    }
    let own = pins.path("own");
    let mut quick = Value::Null;
    let all = "wg-s,arc-c,arc-e,wg-m,obqa";
    for (prompt, model, sets) in [
        ("blob", "", all),
        // Of ARC's letters two are one token of the small vocabulary behind this prompt.
        ("laplace", "", "wg-s,wg-m"),
        ("clean", "", all),
        ("blob", "-encoder", all),
        ("laplace", "-encoder", all),
        ("clean", "-encoder", all),
    ] {
        for (tasks, data) in [(sets, String::new()), ("boolq", format!("--data-dir {own}"))] {
            let name = format!("{prompt}{model}.{tasks}");
            let out = pins.path(&name);
            let base = if model.is_empty() { "" } else { "--model @nano" };
            let ended = run(&format!(
                "bench reasoning --quiet --out {out} --tasks {tasks} --methods lora --steps 1 --seeds 1 --keep none \
                 --preset constant-weight --set prompt={prompt} --set learning_rate=0 --set validation_rows=8 \
                 --set train_rows=8 {data} {base}"
            ));
            let name = name.rsplit_once('.').map_or("", |(name, _)| name);
            if ended.code != 0 {
                pins.exact(&format!("{name}.{tasks}.exit"), ended.code);
                continue;
            }
            let results = read_json(format!("{out}/results.json"));
            for task in tasks.split(',') {
                let folder = format!("{out}/runs/{task}/lora/seed-1");
                let rows = lines(&read(format!("{folder}/predictions-last.jsonl")));
                for row in rows.iter().take(3) {
                    let name = format!("{name}.{task}.{}", row["id"].as_str().unwrap());
                    let probabilities = row["probs"]["0"].as_array().unwrap();
                    let label = std::iter::once(&row["label"]).chain(probabilities);
                    pins.near(&name, label.map(|value| value.as_f64().unwrap()));
                }
                let last = &results["runs"].as_array().unwrap().iter();
                let last = last.clone().find(|run| run["task"] == task).unwrap();
                pins.near(
                    &format!("{name}.{task}.nll"),
                    last["checkpoints"]["last"]["metrics"]["0"]["nll"].as_f64(),
                );
            }
            if data.is_empty() && sets == all {
                quick = results["data"].clone();
            }
        }
    }
    files_of(&mut pins, &quick);
    let out = pins.path("glue");
    done(&format!(
        "bench glue --quiet --out {out} --tasks cola,sst2,rte --methods lora --steps 1 --seeds 1 --keep none \
         --set validation_rows=8 --set train_rows=32 --set learning_rate=0"
    ));
    files_of(&mut pins, &read_json(format!("{out}/results.json"))["data"]);
    pins.finish();
}

/// Hashes of the files that the tasks of a suite were read from.
fn files_of(pins: &mut Pins, data: &Value) {
    for (task, data) in data.as_object().unwrap() {
        for split in ["train", "validation"] {
            for file in data[split]["files"].as_array().unwrap() {
                let path = file["path"].as_str().unwrap();
                let name = path.rsplit('/').take(2).collect::<Vec<_>>();
                let name = format!("quick.{task}.{}/{}", name[1], name[0]);
                pins.exact(&name, file["sha256"].as_str().unwrap());
            }
        }
    }
}
