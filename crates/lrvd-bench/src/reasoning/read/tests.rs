#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use super::*;
use crate::data::Origin;
use crate::error::Result;
use crate::reasoning::{Choice, load};

fn read(set: ReasoningSet, text: &[u8]) -> Result<Vec<ChoiceItem>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.jsonl");
    std::fs::write(&file, text).unwrap();
    read_jsonl(&file, set)
}

fn read_jsonl(file: &Path, set: ReasoningSet) -> Result<Vec<ChoiceItem>> {
    read_items(file, Format::Jsonl, set, 0)
}

fn read_parquet(file: &Path, set: ReasoningSet) -> Result<Vec<ChoiceItem>> {
    read_items(file, Format::Parquet, set, 0)
}

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reasoning").join(path)
}

/// The message of the first bad row, which is line 2 of the file.
fn message(set: ReasoningSet, good: &str, bad: &str) -> String {
    let error = read(set, format!("{good}\n{bad}\n").as_bytes()).unwrap_err().to_string();
    error.split_once("rows.jsonl`, line 2").map_or(error.clone(), |(_, rest)| rest.to_owned())
}

const BLANK: &str = r#"{"qID":"Q-1","sentence":"A _ b.","option1":"x","option2":"y","answer":"2"}"#;
const ARC: &str = r#"{"id":"7","question":{"stem":"Q?","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"}]},"answerKey":"C"}"#;
const OBQA: &str = r#"{"id":"7","question":{"stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}]},"answerKey":"A"}"#;
const BOOLQ: &str = r#"{"question":"is it so","title":"T","answer":true,"passage":"It is."}"#;

fn choices(pairs: &[(&str, &str)]) -> Vec<Choice> {
    pairs.iter().map(|(l, t)| Choice { label: (*l).into(), text: (*t).into() }).collect()
}

#[test]
fn the_layouts_of_the_authors_are_read() {
    let crlf = format!("\u{feff}{BLANK}\r\n{BLANK}");
    let items = read(ReasoningSet::WgS, crlf.as_bytes()).unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!(items[1].choices, choices(&[("1", "x"), ("2", "y")]));
    assert_eq!((items[0].id.as_str(), items[0].answer), ("Q-1", 1));

    let items = read(ReasoningSet::ArcC, ARC.as_bytes()).unwrap();
    assert_eq!(items[0].choices, choices(&[("A", "x"), ("B", "y"), ("C", "z")]));
    assert_eq!((items[0].question.as_str(), items[0].answer), ("Q?", 2));
    let numbered =
        ARC.replace("\"A\"", "\"1\"").replace("\"B\"", "\"2\"").replace("\"C\"", "\"3\"");
    let items = read(ReasoningSet::ArcE, numbered.as_bytes()).unwrap();
    assert_eq!((items[0].choices[2].label.as_str(), items[0].answer), ("3", 2));

    assert_eq!(read(ReasoningSet::Obqa, OBQA.as_bytes()).unwrap()[0].answer, 0);

    let items = read(ReasoningSet::BoolQ, BOOLQ.as_bytes()).unwrap();
    assert_eq!(items[0].passage.as_deref(), Some("It is."));
    assert_eq!((items[0].id.as_str(), items[0].answer), ("0", 1));
    assert_eq!(items[0].choices, choices(&[("False", "False"), ("True", "True")]));
}

#[test]
fn the_columns_of_the_hub_are_read_as_jsonl_too() {
    let hub = r#"{"id":"7","question":"Q?","choices":{"text":["x","y","z"],"label":["A","B","C"]},"answerKey":"C"}"#;
    let from_hub = read(ReasoningSet::ArcC, hub.as_bytes()).unwrap();
    assert_eq!(from_hub, read(ReasoningSet::ArcC, ARC.as_bytes()).unwrap());
    let flat = r#"{"id":"7","question_stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}],"answerKey":"A"}"#;
    let from_flat = read(ReasoningSet::Obqa, flat.as_bytes()).unwrap();
    assert_eq!(from_flat, read(ReasoningSet::Obqa, OBQA.as_bytes()).unwrap());
}

#[test]
fn shards_of_the_hub_hold_the_same_items() {
    for set in ReasoningSet::ALL {
        let data = load(&golden("parquet"), set).unwrap();
        let mut expected = read_jsonl(&golden(&format!("items/{set}.jsonl")), set).unwrap();
        if matches!(set, ReasoningSet::WgS | ReasoningSet::WgM) {
            // The hub drops this set's ids.
            expected.iter_mut().enumerate().for_each(|(row, item)| item.id = row.to_string());
        }
        assert_eq!(data.train.examples, expected, "{set}");
        assert_eq!(data.train.origin, Origin::Unverified);
        assert_eq!(data.validation.examples, expected, "{set}");
        assert_eq!(data.notes.len(), 3, "{:?}", data.notes);
    }
    let file = golden("parquet/other/boolq-super-glue.parquet");
    let items = read_parquet(&file, ReasoningSet::BoolQ).unwrap();
    let read: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.answer)).collect();
    assert_eq!(read, [("7", 1), ("8", 0)]);
}

#[test]
fn errors_name_file_line_and_field() {
    for (key, expected) in [
        ("qID", ""),
        ("sentence", ": no key `sentence`; the keys are `answer`, `option1`, `option2`, `qID`"),
        ("option1", ": no key `option1`"),
        ("option2", ": no key `option2`"),
        ("answer", ": no key `answer`"),
    ] {
        let mut row: serde_json::Value = serde_json::from_str(BLANK).unwrap();
        row.as_object_mut().unwrap().remove(key);
        let found = read(ReasoningSet::WgM, format!("{BLANK}\n{row}\n").as_bytes());
        match expected {
            "" => assert_eq!(found.unwrap()[1].id, "1"),
            _ => assert!(message(ReasoningSet::WgM, BLANK, &row.to_string()).starts_with(expected)),
        }
    }
    let cases: [(ReasoningSet, &str, &str, &str, &str); 19] = [
        (ReasoningSet::WgS, BLANK, "A _ b.", "A b.", ", column `sentence`: no blank `_`"),
        (ReasoningSet::WgS, BLANK, "\"2\"", "\"3\"", "answer `3`, expected one of `1`, `2`"),
        (ReasoningSet::WgS, BLANK, "\"2\"", "\"\"", ", column `answer`: empty text"),
        (ReasoningSet::WgS, BLANK, "\"2\"", "2", ", column `answer`: a number where a string"),
        (ReasoningSet::ArcC, ARC, "answerKey", "key", ": no key `answerKey`"),
        (ReasoningSet::ArcC, ARC, "\"stem\"", "\"text\"", ": no key `question.stem`"),
        (ReasoningSet::ArcC, ARC, "\"choices\"", "\"x\"", ": no key `question.choices`"),
        (ReasoningSet::ArcC, ARC, "\"Q?\"", "\" \"", ", column `question.stem`: empty text"),
        (ReasoningSet::ArcC, ARC, "\"y\"", "null", ", column `choices.text`: null where a string"),
        (
            ReasoningSet::ArcC,
            ARC,
            "Key\":\"C\"",
            "Key\":\"D\"",
            "answer `D`, expected one of `A`, `B`, `C`",
        ),
        (ReasoningSet::ArcC, ARC, "\"B\"", "\"A\"", "two choices are labelled `A`"),
        (ReasoningSet::ArcC, ARC, "\"B\"", "\"E\"", "labelled `A`, `E`, `C`, expected `A`, `B`, …"),
        (ReasoningSet::ArcC, ARC, "\"id\":\"7\",", "", ": no"),
        (
            ReasoningSet::Obqa,
            OBQA,
            ",{\"text\":\"w\",\"label\":\"D\"}",
            "",
            "3 choices where 4 are",
        ),
        (
            ReasoningSet::Obqa,
            OBQA,
            "\"id\":\"7\",\"question\":{",
            "\"question\":[],\"y\":{",
            ": no key `choices`",
        ),
        (ReasoningSet::BoolQ, BOOLQ, "true", "\"yes\"", "`answer`: a string where true or false"),
        (ReasoningSet::BoolQ, BOOLQ, "true", "2", "answer `2`, expected one of `False`, `True`"),
        (ReasoningSet::BoolQ, BOOLQ, "passage", "text", ": no key `passage`"),
        (ReasoningSet::BoolQ, BOOLQ, "is it so", "", ", column `question`: empty text"),
    ];
    for (set, good, from, to, expected) in cases {
        let bad = good.replacen(from, to, 1);
        if expected == ": no" {
            // An id is not needed.
            assert_eq!(read(set, bad.as_bytes()).unwrap()[0].id, "0");
            continue;
        }
        let found = message(set, good, &bad);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn choice_lists_end_where_they_may() {
    let row = |n: usize| {
        let choice = |i: usize| format!(r#"{{"text":"t{i}","label":"{}"}}"#, i + 1);
        let list: Vec<String> = (0..n).map(choice).collect();
        format!(r#"{{"question":{{"stem":"Q","choices":[{}]}},"answerKey":"1"}}"#, list.join(","))
    };
    for n in 2..=5 {
        assert_eq!(read(ReasoningSet::ArcE, row(n).as_bytes()).unwrap()[0].choices.len(), n);
    }
    for (set, n, expected) in [
        (ReasoningSet::ArcE, 6, "6 choices where 2 to 5 are allowed"),
        (ReasoningSet::ArcC, 1, "1 choices where 2 to 5 are allowed"),
        (ReasoningSet::ArcC, 0, "0 choices where 2 to 5 are allowed"),
        (ReasoningSet::Obqa, 5, "5 choices where 4 are allowed"),
    ] {
        let error = read(set, row(n).as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("column `question.choices`"), "{error}");
    }
    let uneven = r#"{"question":"Q","choices":{"text":["x","y"],"label":["A"]},"answerKey":"A"}"#;
    let error = read(ReasoningSet::ArcC, uneven.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("column `choices`: 2 texts of choices, but 1 labels"), "{error}");
}

#[test]
fn files_that_hold_no_rows_are_rejected() {
    let empty = read(ReasoningSet::ArcC, b"").unwrap_err().to_string();
    assert!(empty.ends_with("holds no examples"), "{empty}");
    assert_eq!(message(ReasoningSet::ArcC, ARC, ""), ": not a JSON object");
    assert_eq!(message(ReasoningSet::ArcC, ARC, "[1]"), ": not a JSON object");
    let mut bytes = format!("{BOOLQ}\n").into_bytes();
    let start = bytes.len();
    bytes.extend(b"{\"question\":\"\xff\"}\n");
    let error = read(ReasoningSet::BoolQ, &bytes).unwrap_err().to_string();
    assert!(error.contains(&format!("invalid UTF-8 at byte {} of", start + 13)), "{error}");
    let absent = read_jsonl(Path::new("no/such.jsonl"), ReasoningSet::ArcC).unwrap_err();
    assert!(absent.to_string().starts_with("cannot read `no/such.jsonl`"), "{absent}");

    let parquet = |name: &str| {
        let file = golden("parquet/other").join(name);
        read_parquet(&file, ReasoningSet::ArcC).unwrap_err().to_string()
    };
    assert!(parquet("arc-empty.parquet").contains("holds no examples"));
    assert!(parquet("arc-null.parquet").contains("row 2, column `choices.text`: null where"));
    assert!(parquet("../../README.md").contains("cannot decode parquet file"));
}
