//! Initial factors, the files of an adapter, and what exports write.

use std::path::Path;

use super::{Pins, encoder, files_below, llama, read_json};
use crate::support::{done, lines, run, write_data};

/// The committed adapters: folder, base model.
pub(super) fn committed() -> [(&'static str, String, String); 3] {
    let folder = |name: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pins/adapters");
        root.join(name).display().to_string()
    };
    [
        ("encoder", folder("encoder"), encoder()),
        ("worded", folder("worded"), llama()),
        ("language", folder("language"), llama()),
    ]
}

/// A model that learns nothing holds its initial values: a function of seed and layer alone.
#[test]
fn initial_values() {
    let mut pins = Pins::new("initial");
    let data = write_data(pins.dir.path());
    let rates = ["learning_rate=0", "head_learning_rate=0", "lora_b_bound=0.05", "initial_rank=3"];
    let words = ["--answers", "big,happy"];
    for (name, model, more) in [("encoder", encoder(), &[][..]), ("llama", llama(), &words)] {
        for method in ["lora", "adalora", "bayeslora", "lrvd-element", "lrvd-ard"] {
            let name = format!("{name}.{method}");
            let out = pins.path(&name);
            let mut command = vec!["train", "--quiet", "--model", &model, "--train", &data[0]];
            command.extend(["--validation", &data[1], "--out", &out, "--method", method]);
            command.extend(["--steps", "1", "--batch-size", "2", "--seed", "5"]);
            command.extend(["--preset", "constant-weight"]);
            command.extend(rates.iter().flat_map(|rate| ["--set", rate]));
            done(&[&command, more].concat());
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
        let report = done(&["inspect", &adapter, "--format", "json"]).json();
        pins.json(&format!("{name}.inspect"), &report);
        if name != "language" {
            for draws in ["0", "3"] {
                let asked =
                    ["--model", &model, "--draws", draws, "a fine film", "a grim book, number 3"];
                let answers =
                    done(&[&["predict", &adapter, "--seed", "7"], &asked[..]].concat()).stdout;
                for (i, answer) in lines(&answers).iter().enumerate() {
                    pins.json(&format!("{name}.predict.{draws}.{i}"), answer);
                }
            }
        }
        let forms = [
            ("ragged", &["--to", "peft"][..]),
            ("uniform", &["--to", "peft", "--layout", "uniform"]),
            ("capped", &["--to", "peft", "--cap-rank", "1"]),
            ("merged", &["--to", "merged", "--model", &model]),
            ("gguf", &["--to", "gguf", "--model", &model]),
        ];
        for (form, arguments) in forms {
            let (of, out) = (format!("{name}.{form}"), pins.path(&format!("{name}-{form}")));
            let ended = run(&[&["export", &adapter, "--out", &out], arguments].concat());
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
