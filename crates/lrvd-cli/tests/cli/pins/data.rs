//! From files to token ids: the generated tasks, prompts and answers of every task, classes, rows that are drawn.

use lrvd_models::tokenizer::TextTokenizer;
use serde_json::{Value, json};

use super::{Pins, encoder, hash, llama, read, read_json};
use crate::support::{done, lines, run};

/// Two rows of every GLUE task, in a layout of the original files or of the public distributions.
const GLUE: [(&str, &str, &str); 9] = [
    ("cola", "CoLA", "gj04\t1\t\t\"Go,\" he said.\ngj04\t0\t*\tHe \"go.\n"),
    ("sst2", "SST-2", "sentence\tlabel\na fine  tale \t1\ndull \u{2014} and cold\t0\n"),
    (
        "mrpc",
        "MRPC",
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t11\t12\tHe 's .\tShe 's .\n0\t13\t14\tA\tB\n",
    ),
    (
        "qqp",
        "QQP",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tWhy?\tHow?\t1\n8\t3\t4\tA\tB\t0\n",
    ),
    (
        "mnli",
        "MNLI",
        "index\tsentence1\tsentence2\tlabel1\tgold_label\n3\tHe ran.\tHe sat.\tneutral\tcontradiction\n\
         4\tA\tB\tneutral\tneutral\n",
    ),
    (
        "qnli",
        "QNLI",
        "index\tquestion\tsentence\tlabel\n9\tWho?\tHe did.\tnot_entailment\n10\tA\tB\tentailment\n",
    ),
    (
        "rte",
        "RTE",
        "index\tsentence1\tsentence2\tlabel\n3\tHe ran.\tHe moved.\tentailment\n4\tA\tB\tnot_entailment\n",
    ),
    (
        "stsb",
        "STS-B",
        "index\tgenre\tsentence1\tsentence2\tscore\n4\tnews\tA man runs.\tA man ran.\t3.800\n5\tnews\tA\tB\t0.000\n",
    ),
    (
        "wnli",
        "WNLI",
        "index\tsentence1\tsentence2\tlabel\n0\tHe ran home.\tTim ran home.\t1\n1\tA\tB\t0\n",
    ),
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
    for (name, folder) in [("encoder", encoder()), ("llama", llama())] {
        let tokenizer = TextTokenizer::from_dir(folder.as_ref()).unwrap();
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
    for (task, folder, rows) in GLUE {
        let dev = if task == "mnli" { "dev_matched" } else { "dev" };
        for split in ["train", dev] {
            pins.write(&format!("glue/{folder}/{split}.tsv"), rows);
        }
        let data_dir = pins.path("glue");
        // Words that are single tokens of the small vocabulary; those of the tasks are pinned below.
        let words = match task {
            "stsb" => "",
            "mnli" => "big,happy,little",
            _ => "big,happy",
        };
        for (name, model, words) in [("encoder", encoder(), ""), ("llama", llama(), words)] {
            let answers = if words.is_empty() { vec![] } else { vec!["--answers", words] };
            let named = ["--task", task, "--data-dir", &data_dir, "--model", &model];
            let report = check(&[&named[..], &["--max-length", "64"], &answers].concat());
            pins.json(&format!("{task}.{name}"), &report);
        }
    }
    let (model, tasks) = (llama(), GLUE.map(|(task, ..)| task).join(","));
    let words =
        ["bench", "glue", "--dry-run", "--format", "json", "--model", &model, "--tasks", &tasks];
    pins.json("wording", &done(&words).json()["wording"]);
    for (suite, preset) in PUBLISHED {
        let plan = [
            "bench",
            suite,
            "--dry-run",
            "--format",
            "json",
            "--profile",
            "paper",
            "--preset",
            preset,
        ];
        pins.exact(
            &format!("preset.{preset}"),
            hash(done(&plan).json()["settings"].to_string().as_bytes()),
        );
    }
    for (name, labels) in LABELS {
        let rows = labels.iter().map(|label| format!("a text,{label}\n"));
        let rows = rows.collect::<Vec<_>>().concat();
        let file = pins.write(&format!("{name}.csv"), &format!("text,label\n{rows}"));
        let report = check(&["--train", &file, "--validation", &file]);
        pins.json(&format!("labels.{name}"), &json!([report["splits"][0]["classes"]]));
    }
    // Questions with choices, of a user's own.
    let row = |question: &str, answer: &str| {
        json!({ "question": question, "choices": ["red", "blue", "old"], "answer": answer })
            .to_string()
    };
    let rows = [row("What is it?", "B"), row("Which one?", "old"), row("Why?", "0")].join("\n");
    let file = pins.write("questions.jsonl", &rows);
    for (name, model) in [("encoder", encoder()), ("llama", llama())] {
        let report = check(&["--train", &file, "--validation", &file, "--model", &model]);
        pins.json(&format!("questions.{name}"), &report);
    }
    // The rows that are drawn to be validated on.
    let rows = (0..24).map(|i| format!("text {i}\t{}\n", i % 2));
    let rows = rows.collect::<Vec<_>>().concat();
    let (file, out) = (pins.write("rows.tsv", &format!("text\tlabel\n{rows}")), pins.path("rows"));
    let model = llama();
    let more = ["--answers", "big,happy", "--method", "lora", "--steps", "1", "--quiet"];
    let named = ["train", "--model", &model, "--train", &file, "--validation-split", "0.3"];
    done(&[&named[..], &["--seed", "3", "--out", &out], &more].concat());
    let answers = lines(&read(format!("{out}/predictions-last.jsonl")));
    let ids: Vec<&str> = answers.iter().map(|row| row["id"].as_str().unwrap()).collect();
    pins.exact("validation_split.ids", ids.join(" "));
    pins.finish();
}

/// What `lrvd data check` says, without hashes of files that are written here.
fn check(arguments: &[&str]) -> Value {
    let mut report = done(&[&["data", "check", "--format", "json"], arguments].concat()).json();
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
    let (own, shipped_encoder) = (pins.path("own"), encoder());
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
        for (tasks, data) in [(sets, None), ("boolq", Some(&own))] {
            let name = format!("{prompt}{model}.{tasks}");
            let (out, prompt) = (pins.path(&name), format!("prompt={prompt}"));
            let mut command =
                vec!["bench", "reasoning", "--quiet", "--out", &out, "--tasks", tasks];
            command.extend(["--methods", "lora", "--steps", "1", "--seeds", "1", "--keep", "none"]);
            command.extend(["--preset", "constant-weight", "--set", &prompt, "--set"]);
            command.extend([
                "learning_rate=0",
                "--set",
                "validation_rows=8",
                "--set",
                "train_rows=8",
            ]);
            command.extend(data.iter().flat_map(|data| ["--data-dir", data.as_str()]));
            if !model.is_empty() {
                command.extend(["--model", &shipped_encoder]);
            }
            let ended = run(&command);
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
            if data.is_none() && sets == all {
                quick = results["data"].clone();
            }
        }
    }
    files_of(&mut pins, &quick);
    let out = pins.path("glue");
    let settings = ["--methods", "lora", "--steps", "1", "--seeds", "1", "--keep", "none"];
    let few = ["--set", "validation_rows=8", "--set", "train_rows=32", "--set", "learning_rate=0"];
    let tasks = ["bench", "glue", "--quiet", "--out", &out, "--tasks", "cola,sst2,rte"];
    done(&[&tasks[..], &settings, &few].concat());
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
