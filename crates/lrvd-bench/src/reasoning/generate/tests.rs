#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use super::*;
use crate::data::{DataError, Origin, describe};
use crate::reasoning::{ChoiceItem, ReasoningError, ReasoningSet, load};

const SMALL: ReasoningGenerateConfig = ReasoningGenerateConfig {
    seed: 5,
    n_train_small: 40,
    n_train_large: 120,
    n_validation: 40,
    label_noise: 0.1,
};

const QUIET: ReasoningGenerateConfig = ReasoningGenerateConfig { label_noise: 0.0, ..SMALL };

fn texts(item: &ChoiceItem) -> (Option<String>, String, Vec<String>) {
    let mut choices: Vec<_> = item.choices.iter().map(|choice| choice.text.clone()).collect();
    choices.sort();
    (item.passage.clone(), item.question.clone(), choices)
}

#[test]
fn no_item_occurs_twice_and_sizes_are_as_asked() {
    for set in GENERATED {
        let generated = generate(set, &SMALL).unwrap();
        let sizes = (generated.train.len(), generated.validation.len());
        assert_eq!(sizes, (SMALL.n_train(set), 40), "{set}");
        let all = generated.train.iter().chain(&generated.validation);
        let distinct: HashSet<_> = all.clone().map(texts).collect();
        assert_eq!(distinct.len(), all.count(), "{set}");
    }
}

#[test]
fn noise_changes_exactly_the_listed_answers() {
    for set in GENERATED {
        let (noisy, clean) = (generate(set, &SMALL).unwrap(), generate(set, &QUIET).unwrap());
        let n_train = SMALL.n_train(set) / 10;
        for (noisy, clean, rows, wanted) in [
            (&noisy.train, &clean.train, &noisy.noisy_train, n_train),
            (&noisy.validation, &clean.validation, &noisy.noisy_validation, 4),
        ] {
            let pairs = noisy.iter().zip(clean).enumerate();
            assert!(pairs.clone().all(|(_, (n, c))| n.choices == c.choices && n.id == c.id));
            let changed: Vec<usize> =
                pairs.filter(|(_, (n, c))| n.answer != c.answer).map(|(row, _)| row).collect();
            assert_eq!((&changed, changed.len()), (rows, wanted), "{set}");
        }
        assert!((noisy.validation_ceiling() - 0.9).abs() < 1e-12);
        assert_eq!(clean.validation_ceiling(), 1.0);
    }
}

#[test]
fn the_seed_decides_everything() {
    for set in GENERATED {
        let first = generate(set, &SMALL).unwrap();
        assert_eq!(first, generate(set, &SMALL).unwrap());
        let other = generate(set, &ReasoningGenerateConfig { seed: 6, ..SMALL }).unwrap();
        assert_ne!(first.train, other.train);
    }
}

#[test]
fn twins_share_their_options_and_differ_in_the_answer() {
    let generated = generate(ReasoningSet::WgM, &QUIET).unwrap();
    for split in [&generated.train, &generated.validation] {
        for pair in split.chunks(2) {
            let [first, second] = pair else { panic!("a twin is alone") };
            assert_eq!(first.choices, second.choices);
            assert_ne!(first.answer, second.answer);
            assert_eq!(first.id.split('-').next(), second.id.split('-').next());
            assert!(pair.iter().all(|item| item.question.matches('_').count() == 1));
        }
    }
    let small = generate(ReasoningSet::WgS, &QUIET).unwrap();
    assert_eq!(small.train, generated.train[..40]);
    assert_eq!(small.validation, generated.validation);
}

#[test]
fn items_have_the_shapes_of_the_originals() {
    let big = ReasoningGenerateConfig { n_train_small: 400, n_train_large: 400, ..QUIET };
    for set in [ReasoningSet::ArcC, ReasoningSet::ArcE] {
        let items = generate(set, &big).unwrap().train;
        let counts = [3, 4, 5].map(|n| items.iter().filter(|i| i.choices.len() == n).count());
        assert!(counts.iter().all(|count| *count > 10) && counts[1] > 250, "{counts:?}");
        let numbered = items.iter().filter(|item| item.choices[0].label == "1").count();
        assert!((20..80).contains(&numbered), "{numbered}");
    }
    let items = generate(ReasoningSet::Obqa, &big).unwrap().train;
    assert!(items.iter().all(|item| item.choices.len() == 4));
}

/// Sets whose texts alone decide: a reader of the grammar answers every clean item.
#[test]
fn clean_answers_follow_from_the_text() {
    let big = ReasoningGenerateConfig { n_train_large: 1_000, ..QUIET };
    for item in generate(ReasoningSet::ArcC, &big).unwrap().train {
        let right = &item.choices[item.answer].text;
        if let Some((told, name)) = item.question.split_once("What does ") {
            let name = name.strip_suffix(" have?").unwrap();
            let has = told.split(". ").find(|part| part.starts_with(name)).unwrap();
            assert!(
                has.trim_end_matches(['.', ' ']).ends_with(right.as_str()),
                "{}",
                item.question
            );
        }
    }
}

#[test]
fn written_files_are_read_back_by_the_readers_of_the_originals() {
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &SMALL).unwrap();
    for set in GENERATED {
        let generated = generate(set, &SMALL).unwrap();
        let data = load(dir.path(), set).unwrap();
        assert_eq!(data.train.examples, generated.train, "{set}");
        assert_eq!(data.validation.examples, generated.validation, "{set}");
        assert_eq!(data.validation.origin, Origin::Generated);
        assert_eq!(
            data.notes[0],
            format!("generated by a grammar from seed 5, not real {}", set.display_name())
        );
        let (noisy, rows) = (SMALL.n_train(set) / 10, SMALL.n_train(set));
        let wanted = format!("{noisy} of {rows} train and 4 of 40 validation");
        assert!(data.notes[1].contains(&wanted), "{:?}", data.notes);
    }
    let readme = std::fs::read_to_string(dir.path().join("README.md")).unwrap();
    assert!(readme.contains("| ARC-C | 40 | 40 | 4 / 4 | 0.900 |"), "{readme}");
    let blank = std::fs::read_to_string(dir.path().join("WinoGrande/train_s.jsonl")).unwrap();
    assert!(blank.starts_with("{\"qID\":\"GEN00000-1\",\"sentence\":\""), "{blank}");
    std::fs::write(dir.path().join("OpenBookQA/generated.json"), "{}").unwrap();
    let error = load(dir.path(), ReasoningSet::Obqa).unwrap_err();
    assert!(matches!(error, ReasoningError::Data(DataError::GeneratedMark { .. })));
}

#[test]
fn settings_out_of_range_are_named() {
    let message = |config| generate(ReasoningSet::Obqa, &config).unwrap_err().to_string();
    for (config, wanted) in [
        (ReasoningGenerateConfig { n_train_small: 0, ..SMALL }, "`n_train_small` is 0"),
        (ReasoningGenerateConfig { n_train_large: 41, ..SMALL }, "`n_train_large` is 41"),
        (ReasoningGenerateConfig { n_train_small: 122, ..SMALL }, "at most `n_train_large`"),
        (ReasoningGenerateConfig { n_validation: 1, ..SMALL }, "`n_validation` is 1"),
        (ReasoningGenerateConfig { label_noise: 0.51, ..SMALL }, "`label_noise` is 0.51"),
        (ReasoningGenerateConfig { label_noise: f64::NAN, ..SMALL }, "`label_noise` is NaN"),
    ] {
        assert!(message(config).contains(wanted), "{}", message(config));
    }
    assert!(
        generate(ReasoningSet::Obqa, &ReasoningGenerateConfig { label_noise: 0.5, ..SMALL })
            .is_ok()
    );
}

/// Digests of the texts on which the results pages rest, from `sha256sum` of files written at revision `e9a7614`.
#[test]
fn the_texts_of_the_quick_profile_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    write_all(dir.path(), &ReasoningGenerateConfig::default()).unwrap();
    for (file, digest) in [
        (
            "ARC-Challenge/ARC-Challenge-Dev.jsonl",
            "ffc868fb2883f7af3b7d85e9e98b0e637e2efb131a3cfce7bbc6967f2181fc52",
        ),
        (
            "ARC-Challenge/ARC-Challenge-Train.jsonl",
            "3804efdc62c88bc7ed0bbc5662d752bf03fb8f918fa264e360c29cdc732ca208",
        ),
        (
            "ARC-Easy/ARC-Easy-Dev.jsonl",
            "95ce18c0b492147b3e60987ca9bbfcd919772d595be41d8e52efc4ff58dff959",
        ),
        (
            "ARC-Easy/ARC-Easy-Train.jsonl",
            "fc3e505f39ce5ab70e08fe059c76e3d6f0fdf0a6e8fb6561cc460e31ca30e170",
        ),
        (
            "OpenBookQA/dev.jsonl",
            "7e999f314cb6117841aed3d6979c078da1d8c085d4aefb88373cc05725e35473",
        ),
        (
            "OpenBookQA/train.jsonl",
            "1e21adb8183bf40d41d34c3de2fbcfd38e06abdb0495d95cfecd143849e1d2f1",
        ),
        (
            "WinoGrande/dev.jsonl",
            "9e2c9ae456a054f3a2354cc4c1811c2848a77c8bd8c6d4984202de5560c2bbdf",
        ),
        (
            "WinoGrande/train_m.jsonl",
            "48578d6b24ca3c66d0e43a7bc775ca345afc7df4d55a709826e580bdfc6fcfe8",
        ),
        (
            "WinoGrande/train_s.jsonl",
            "3c42f6a18557f7456a9de758a23235dcd2d3eb7aa9affa61aced753a36037997",
        ),
        ("README.md", "6e081ed444ec4c9691bfe9ec23a36621df437eeb2549e1c9c087c7c9738fad2d"),
        (
            "ARC-Challenge/generated.json",
            "bb3d5dd956a7419a90b7ce63bf0ee82845daa5fff70fc85cdadf3c38218fd4a3",
        ),
        (
            "ARC-Easy/generated.json",
            "ab52c9840007b2cd7ac455eb878195cfafb576823ff639ea008c1f06bed960cf",
        ),
        (
            "OpenBookQA/generated.json",
            "343c683070bb3fa3c8300a339f9f60908e991d691cdaf3e8031b4264fcd02389",
        ),
        (
            "WinoGrande/generated.json",
            "4174b69a8268c55357e55ead7495ab1bedd2417a2dbd1eb10a704776b5446505",
        ),
    ] {
        assert_eq!(describe(&dir.path().join(file)).unwrap().sha256, digest, "{file}");
    }
}

#[test]
fn a_set_without_a_generator_is_refused_with_those_that_have_one() {
    let error = generate(ReasoningSet::BoolQ, &SMALL).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "task `boolq` cannot be generated; wanted one of `wg-s`, `arc-c`, `arc-e`"
        ),
        "{error}"
    );
}
