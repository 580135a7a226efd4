//! How commands end: 0 done, 1 the answer is no, 2 cannot be used, 75 stopped after a checkpoint (`training`).

use super::{Pins, files::committed};
use crate::support::{run, write_data};

#[test]
fn exit_codes() {
    let mut pins = Pins::new("exits");
    let data = write_data(pins.dir.path());
    let [(_, encoder, nano), (_, _, stories), (_, language, _)] = committed();
    let (empty, out) = (pins.path("empty"), pins.path("out"));
    std::fs::create_dir(&empty).unwrap();
    let csv = pins.write("bad.csv", "text,label\na,\n");
    let toml = pins.write("bad.toml", "[prune]\nthreshold = 4.0\n");
    let places = [
        ("TRAIN", data[0].as_str()),
        ("DEV", &data[1]),
        ("ENCODER", &encoder),
        ("LANGUAGE", &language),
        ("NANO", &nano),
        ("STORIES", &stories),
        ("EMPTY", &empty),
        ("OUT", &out),
        ("BADCSV", &csv),
        ("BADTOML", &toml),
    ];
    for command in [
        "",
        "--version",
        "--help",
        "train --help",
        "frobnicate",
        "train",
        "config show",
        "config show --preset best",
        "config check BADTOML",
        "completions bash",
        "completions csh",
        "data check --train TRAIN",
        "data check --train BADCSV",
        "data check --train TRAIN --model EMPTY",
        "inspect ENCODER",
        "inspect NANO",
        "inspect EMPTY",
        "inspect absent",
        "predict ENCODER --model NANO text",
        "predict ENCODER --model STORIES text",
        "predict LANGUAGE --model STORIES text",
        "predict EMPTY text",
        "predict ENCODER --model NANO --draws -1 text",
        "eval ENCODER --model NANO --data DEV --quiet",
        "eval ENCODER --model NANO --data absent.tsv",
        "generate LANGUAGE --model STORIES --max-tokens 1 Once",
        "generate ENCODER --model NANO Once",
        "export ENCODER --to peft --out EMPTY",
        "export ENCODER --to gguf --model NANO --out OUT",
        "export ENCODER --to merged --model NANO --out OUT --verify --tolerance 1e-30",
        "serve EMPTY --address 127.0.0.1:0",
        "serve ENCODER --model NANO --address 8080",
        "bench glue --dry-run --quiet",
        "bench glue --methods bora",
        "bench glue --profile paper --tasks sst2",
        "bench reasoning --tasks boolq --out OUT",
        "train --model NANO --train TRAIN --validation DEV --out OUT --set kl_wait=1",
        "train --model NANO --train TRAIN --validation DEV --out OUT --method bora",
        "train --model no/such-model --train TRAIN --validation DEV --out OUT",
        "train --model NANO --train TRAIN --validation DEV --out OUT --device tpu",
        "train --model NANO --train TRAIN --validation DEV --out OUT --steps 0",
    ] {
        let words = command.split_whitespace();
        let words: Vec<&str> = words
            .map(|word| places.iter().find(|(name, _)| *name == word).map_or(word, |(_, at)| at))
            .collect();
        pins.exact(format!("lrvd {command}").trim(), run(&words).code);
    }
    pins.finish();
}
