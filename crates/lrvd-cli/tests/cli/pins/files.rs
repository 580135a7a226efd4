//! Initial factors, the files of an adapter, and what exports write.

use std::path::Path;

use super::{Pins, files_below, read_json};
use crate::support::{done, run};

/// The committed adapters: folder, base model.
pub(super) fn committed() -> [(&'static str, String, &'static str); 3] {
    let folder = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pins/adapters");
        root.join(name).display().to_string()
    };
    [
        ("encoder", folder("encoder"), "@nano"),
        ("worded", folder("worded"), "@llama"),
        ("language", folder("language"), "@llama"),
    ]
}

/// A model that learns nothing holds its initial values: a function of seed and layer alone.
#[test]
fn initial_values() {
    let mut pins = Pins::new("initial");
    let [train, dev] = ["train.tsv", "dev.csv"].map(|name| pins.path(name));
    for (name, model) in [("encoder", "@nano"), ("llama", "@llama --answers big,happy")] {
        for method in ["lora", "adalora", "bayeslora", "lrvd-element", "lrvd-ard"] {
            let name = format!("{name}.{method}");
            let out = pins.path(&name);
            done(&format!(
                "train --quiet --model {model} --train {train} --validation {dev} --out {out} --method {method} \
                 --steps 1 --batch-size 2 --seed 5 --preset constant-weight --set learning_rate=0 \
                 --set head_learning_rate=0 --set lora_b_bound=0.05 --set initial_rank=3"
            ));
            let adapter = Path::new(&out).join("adapter");
            for file in files_below(&adapter) {
                let file_name = file.file_name().unwrap().to_str().unwrap();
                match file.extension().and_then(|end| end.to_str()) {
                    // They name the base model by its path; what else the JSON files say is pinned below.
                    Some("json" | "md") => pins.exact(&format!("{name}/{file_name}"), "written"),
                    _ => pins.bytes(&format!("{name}/{file_name}"), &file),
                }
            }
            if method == "bayeslora" {
                let named = |file: &str| read_json(adapter.join(file));
                pins.json(&format!("{name}/config"), &named("adapter_config.json"));
                pins.json(&format!("{name}/description"), &named("lrvd_classifier.json"));
            }
        }
    }
    pins.finish();
}

/// Adapters that an earlier version wrote are read, and exports of them have the same bytes.
#[test]
fn exports_of_committed_adapters() {
    let mut pins = Pins::new("exports");
    for (name, adapter, model) in committed() {
        let report = done(&format!("inspect {adapter} --format json")).json();
        pins.json(&format!("{name}.inspect"), &report);
        for draws in [0, 3].into_iter().filter(|_| name != "language") {
            let asked =
                format!("--model {model} --draws {draws} 'a fine film' 'a grim book, number 3'");
            let answers = done(&format!("predict {adapter} --seed 7 {asked}")).lines();
            for (i, answer) in answers.iter().enumerate() {
                pins.json(&format!("{name}.predict.{draws}.{i}"), answer);
            }
        }
        for (form, arguments) in [
            ("ragged", "--to peft"),
            ("uniform", "--to peft --layout uniform"),
            ("capped", "--to peft --cap-rank 1"),
            ("merged", &format!("--to merged --model {model}")),
            ("gguf", &format!("--to gguf --model {model}")),
        ] {
            let (of, out) = (format!("{name}.{form}"), pins.path(&format!("{name}-{form}")));
            let ended = run(&format!("export {adapter} --out {out} {arguments}"));
            pins.exact(&format!("{of}.exit"), ended.code);
            let files = if ended.code == 0 { files_below(out.as_ref()) } else { Vec::new() };
            for file in files {
                let file_name = file.file_name().unwrap().to_str().unwrap();
                match file_name {
                    // Words for people.
                    "README.md" => pins.exact(&format!("{of}/{file_name}"), "written"),
                    // Singular vectors.
                    "adapter_model.safetensors" if form == "capped" => {
                        pins.bits(&format!("{of}/{file_name}"), &file);
                    }
                    "lrvd_classifier.json" | "lrvd_language.json" => {
                        pins.json(&format!("{of}/{file_name}"), &read_json(&file));
                    }
                    _ if file_name.ends_with("config.json") => {
                        pins.json(&format!("{of}/{file_name}"), &read_json(&file));
                    }
                    _ => pins.bytes(&format!("{of}/{file_name}"), &file),
                }
            }
        }
    }
    pins.finish();
}
