//! From files to token ids: the generated tasks, prompts and answers of every task, classes, rows that are drawn.

use lrvd_models::tokenizer::TextTokenizer;
use serde_json::{Value, json};

use super::{Pins, read, read_json};
use crate::support::{done, lines, placed, run};

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
            pins.exact(&format!("ids.{name}.{i}"), format!("{:?}", found.ids));
        }
    }
    pins.scripted().finish();
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
