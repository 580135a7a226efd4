//! How commands end: 0 done, 1 the answer is no, 2 cannot be used, 75 stopped after a checkpoint (`training`).

use super::{Pins, files::committed};
use crate::support::run;

#[test]
fn exit_codes() {
    let mut pins = Pins::new("exits");
    let data = ["train.tsv", "dev.csv"].map(|name| pins.path(name));
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
        ("NANO", nano),
        ("STORIES", stories),
        ("EMPTY", &empty),
        ("OUT", &out),
        ("BADCSV", &csv),
        ("BADTOML", &toml),
    ];
    // The names of the pins are the commands; names in capitals are those above.
    for line in include_str!("exits.txt").lines() {
        let (command, _) = line.rsplit_once(" = ").unwrap();
        let words = command.split(' ').skip(1);
        let words: Vec<&str> = words
            .map(|word| places.iter().find(|(name, _)| *name == word).map_or(word, |(_, at)| at))
            .collect();
        pins.exact(command, run(&words.join(" ")).code);
    }
    pins.finish();
}
