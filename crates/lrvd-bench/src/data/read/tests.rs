#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::data::{Dataset, Origin, load};

fn examples(file: &Path, format: Format, task: Task) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    read_examples(file, format, task, &mut examples)?;
    Ok(examples)
}

/// What is read of each text, as rows or as an error.
fn read<'a>(format: Format, cases: impl IntoIterator<Item = (Task, &'a str)>) -> String {
    let (dir, mut found) = (tempfile::tempdir().unwrap(), String::new());
    let file = dir.path().join(format!("d.{}", format.extension()));
    for (task, text) in cases {
        std::fs::write(&file, text).unwrap();
        writeln!(found, "{task} {text:?}").unwrap();
        show(&mut found, examples(&file, format, task), dir.path());
    }
    found
}

fn show(found: &mut String, rows: Result<Vec<Example>>, folder: &Path) {
    match rows {
        Ok(rows) => rows.iter().for_each(|Example { id, input, label, .. }| {
            writeln!(found, "    {id} {input:?} {label:?}").unwrap();
        }),
        Err(error) => {
            let error = error.to_string().replace(&format!("{}/", folder.display()), "");
            writeln!(found, "    {error}").unwrap();
        }
    }
}

#[test]
fn tab_separated_rows_are_found_by_the_names_of_columns() {
    use Task::{Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2};
    let found = read(
        Format::Tsv,
        [
            // No header, quotes that are letters, outer spaces that stay.
            (Cola, "gj04\t1\t\t\"Go,\" he said.\ngj04\t0\t*\tHe \"go. "),
            (Cola, "label\tsentence\n1\tHe went.\n"),
            (Mrpc, "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t11\t12\tA\tB\r\n"),
            (Qnli, "index\tquestion\tsentence\tlabel\n9\tA\tB\tnot_entailment"),
            (Qnli, "question\tsentence\tlabel\nA\tB\tentailment"),
            (Qqp, "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tA\tB\t1"),
            (Qqp, "question1\tquestion2\tlabel\nA\tB\tnot_duplicate"),
            (Qqp, "id\tquestion1\tquestion2\n1\tA\tB"),
            (Rte, "index\tsentence1\tsentence2\tlabel\n3\tA\tB\tentailment"),
            (Mnli, "sentence1\tsentence2\tlabel\nA\tB\tneutral"),
            // An annotator's label differs from the gold label of the official layout.
            (
                Mnli,
                "index\tsentence1\tsentence2\tlabel1\tgold_label\n3\tA\tB\tneutral\tcontradiction",
            ),
            (Sst2, "sentence\tlabel\ngood\t1\nbad\nlast\t0"),
            (Sst2, "sentence\tlabel\nbad\t1\t"),
            (Sst2, "sentence\tlabel\ngood\t1\n\nlast\t0"),
            (Sst2, "sentence\tlabel\n \t1"),
        ],
    );
    insta::assert_snapshot!(found);
}

#[test]
fn labels_are_names_ids_and_scores_within_their_bounds() {
    let labels: [(Task, &str, &[&str]); 3] = [
        (Task::Cola, "sentence", &["1", "2", "-1", "-2", "acceptable", "Acceptable"]),
        (Task::Mnli, "sentence1\tsentence2", &["contradiction", " 2 "]),
        (
            Task::Stsb,
            "sentence1\tsentence2",
            &["0", "4.750", "5.0", "-0.001", "5.001", "NaN", "inf", "", "four"],
        ),
    ];
    let cases = labels.into_iter().flat_map(|(task, columns, labels)| {
        let texts = columns.replace("sentence", "T");
        labels.iter().map(move |label| (task, format!("{columns}\tlabel\n{texts}\t{label}")))
    });
    let cases: Vec<(Task, String)> = cases.collect();
    let cases = cases.iter().map(|(task, text)| (*task, text.as_str()));
    let found = read(Format::Tsv, cases);
    insta::assert_snapshot!(found);
}

#[test]
fn objects_are_read_by_their_keys() {
    use Task::{Cola, Rte, Stsb};
    let found = read(
        Format::Jsonl,
        [
            (
                Rte,
                "{\"premise\":\"A\",\"hypothesis\":\"B\",\"label\":\"entailment\",\"idx\":4}\r\n\
                 {\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":1,\"source\":null}",
            ),
            (
                Stsb,
                "{\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":3.5}\n\
                 {\"sentence1\":\"A\",\"sentence2\":\"B\",\"score\":4}",
            ),
            (Cola, r#"{"sentence":"A"}"#),
            (Cola, r#"{"sentence":3,"label":0}"#),
            (Cola, r#"{"sentence":"A","label":true}"#),
            (Cola, r#"{"sentence":"A","label":2}"#),
            (Cola, r#"{"sentence":"A","label":0.5}"#),
            (Cola, r#"{"sentence":"A","label":-1}"#),
            (Cola, r#"{"sentence":" ","label":0}"#),
            (Cola, "\n"),
        ],
    );
    insta::assert_snapshot!(found);
}

#[test]
fn parquet_files_of_another_writer_are_read() {
    use Task::{ArcC, Cola, Qnli, Rte, Stsb};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut found = String::new();
    for (name, task) in [
        ("data/cola-train-00000-of-00002.parquet", Cola),
        ("data/cola-train-00001-of-00002.parquet", Cola),
        ("data/stsb.parquet", Stsb),
        // In another order than the schema's.
        ("data/rte.parquet", Rte),
        ("data/cola-hidden.parquet", Cola),
        ("data/cola-null.parquet", Cola),
        ("data/cola-null.parquet", Qnli),
        ("data/stsb.parquet", Rte),
        ("data/README.md", Cola),
        ("reasoning/parquet/other/arc-null.parquet", ArcC),
        ("reasoning/parquet/other/arc-empty.parquet", ArcC),
    ] {
        writeln!(found, "{task} {name}").unwrap();
        show(&mut found, examples(&folder.join(name), Format::Parquet, task), &folder);
    }
    insta::assert_snapshot!(found);
}

/// The folder `glue`, named by `LRVD_SHARED_DIR` or in `shared` beside the workspace.
fn real_data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("LRVD_SHARED_DIR").map_or(beside, PathBuf::from);
    let data = shared.join("data");
    if data.join("glue").is_dir() {
        return Some(data);
    }
    eprintln!("skipped: no real data in `{}`", data.display());
    None
}

/// Rows of each class, or of all where one number is expected.
fn counts(examples: &[Example], expected: &[usize]) -> Vec<usize> {
    let of = |id| examples.iter().filter(|e| e.label.class() == Some(id)).count();
    if expected.len() == 1 { vec![examples.len()] } else { (0..expected.len()).map(of).collect() }
}

#[test]
fn real_files_have_their_published_rows() {
    use Task::{Cola, Mrpc, Rte};
    let Some(data) = real_data() else { return };
    let tsv =
        |file: &str, task| examples(&data.join("glue").join(file), Format::Tsv, task).unwrap();
    for (file, task, expected) in [
        ("CoLA/original/in_domain_dev.tsv", Cola, &[527][..]),
        ("CoLA/original/out_of_domain_dev.tsv", Cola, &[516]),
        ("MRPC/msr_paraphrase_train.txt", Mrpc, &[4076]),
        ("MRPC/msr_paraphrase_test.txt", Mrpc, &[578, 1147]),
        ("RTE/train.tsv", Rte, &[1249, 1241]),
    ] {
        assert_eq!(counts(&tsv(file, task), expected), expected, "{file}");
    }
    let jsonl = examples(&data.join("superglue/RTE/train.jsonl"), Format::Jsonl, Rte).unwrap();
    let tsv = tsv("RTE/train.tsv", Rte);
    assert_eq!(jsonl.len(), tsv.len());
    assert!(jsonl.iter().zip(&tsv).all(|(a, b)| a.label == b.label && a.id == b.id));
}

#[test]
fn real_folders_are_located_and_labelled() {
    type Counts = [&'static [usize]; 2];
    use Origin::{LocalSplit, Official, Subset};
    let Some(data) = real_data() else { return };
    let folders: [(Task, [Origin; 2], Counts); 8] = [
        (Task::Cola, [Official, Official], [&[2528, 6023], &[322, 721]]),
        (Task::Sst2, [Official, Official], [&[29780, 37569], &[428, 444]]),
        (Task::Mrpc, [Official, Official], [&[1194, 2474], &[129, 279]]),
        (Task::Qqp, [Subset, Subset], [&[5747, 3252], &[4871, 2729]]),
        (Task::Mnli, [Subset, Subset], [&[8999], &[2681, 2353, 2435]]),
        (Task::Qnli, [Subset, Official], [&[8999], &[2702, 2761]]),
        (Task::Rte, [LocalSplit, LocalSplit], [&[1992], &[498]]),
        (Task::Stsb, [Official, Official], [&[5749], &[1500]]),
    ];
    for (task, origins, expected) in folders {
        let Dataset { train, validation, notes, .. } =
            load(&data.join("glue"), task, None).unwrap();
        assert_eq!([train.origin, validation.origin], origins, "{task}");
        let found = [&train, &validation].into_iter().zip(expected);
        let found: Vec<Vec<usize>> = found.map(|(split, n)| counts(&split.examples, n)).collect();
        assert_eq!(found, expected, "{task}");
        assert!(origins == [Official; 2] || !notes.is_empty(), "{task}");
    }
}

#[test]
fn the_original_paraphrase_corpus_gives_the_derived_splits() {
    let Some(data) = real_data() else { return };
    let source = data.join("glue/MRPC");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("MRPC");
    std::fs::create_dir(&folder).unwrap();
    for file in ["msr_paraphrase_train.txt", "dev_ids.tsv"] {
        std::fs::copy(source.join(file), folder.join(file)).unwrap();
    }
    let split = load(dir.path(), Task::Mrpc, None).unwrap();
    for (split, file) in [(&split.train, "train.tsv"), (&split.validation, "dev.tsv")] {
        assert_eq!(split.origin, Origin::Official);
        let derived = examples(&source.join(file), Format::Tsv, Task::Mrpc).unwrap();
        assert!(plain(&split.examples) == plain(&derived), "{file}");
    }
}

/// Rows without their places.
fn plain(examples: &[Example]) -> Vec<(&str, &Input, Label)> {
    examples.iter().map(|e| (e.id.as_str(), &e.input, e.label)).collect()
}

fn golden_set(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reasoning").join(path)
}

const BLANK: &str = r#"{"qID":"Q-1","sentence":"A _ b.","option1":"x","option2":"y","answer":"2"}"#;
const ARC: &str = r#"{"id":"7","question":{"stem":"Q?","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"}]},"answerKey":"C"}"#;
const OBQA: &str = r#"{"id":"7","question":{"stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}]},"answerKey":"A"}"#;
const BOOLQ: &str = r#"{"question":"is it so","title":"T","answer":true,"passage":"It is."}"#;

#[test]
fn questions_of_the_authors_and_of_the_hub_are_read() {
    use Task::{ArcC, ArcE, BoolQ, Obqa, WgS};
    let two = format!("\u{feff}{BLANK}\r\n{BLANK}");
    let numbered = ["A", "B", "C"].into_iter().zip(["1", "2", "3"]);
    let numbered = numbered.fold(ARC.to_owned(), |row, (letter, digit)| {
        row.replace(&format!("\"{letter}\""), &format!("\"{digit}\""))
    });
    let found = read(
        Format::Jsonl,
        [
            (WgS, two.as_str()),
            (ArcC, ARC),
            (ArcE, &numbered),
            (Obqa, OBQA),
            (BoolQ, BOOLQ),
            (
                ArcC,
                r#"{"id":"7","question":"Q?","choices":{"text":["x","y","z"],"label":["A","B","C"]},"answerKey":"C"}"#,
            ),
            (
                Obqa,
                r#"{"id":"7","question_stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}],"answerKey":"A"}"#,
            ),
            (
                ArcC,
                r#"{"question":"Q","choices":{"text":["x","y"],"label":["A"]},"answerKey":"A"}"#,
            ),
        ],
    );
    insta::assert_snapshot!(found);
}

#[test]
fn shards_of_the_hub_hold_the_same_items() {
    for set in Task::reasoning() {
        let data = load(&golden_set("parquet"), set, None).unwrap();
        let mut expected =
            examples(&golden_set(&format!("items/{set}.jsonl")), Format::Jsonl, set).unwrap();
        if matches!(set, Task::WgS | Task::WgM) {
            // The hub drops this set's ids.
            expected.iter_mut().enumerate().for_each(|(row, item)| item.id = row.to_string());
        }
        assert_eq!(plain(&data.train.examples), plain(&expected), "{set}");
        assert_eq!(data.train.origin, Origin::Unverified);
        assert_eq!(plain(&data.validation.examples), plain(&expected), "{set}");
        assert_eq!(data.notes.len(), 3, "{:?}", data.notes);
    }
    let file = golden_set("parquet/other/boolq-super-glue.parquet");
    let items = examples(&file, Format::Parquet, Task::BoolQ).unwrap();
    let read: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.label)).collect();
    assert_eq!(read, [("7", Label::Class(1)), ("8", Label::Class(0))]);
}

#[test]
fn questions_with_another_key_or_value_are_rejected_but_for_their_ids() {
    use Task::{ArcC, BoolQ, Obqa, WgM, WgS};
    let cases = [
        (WgM, BLANK, "\"qID\"", "\"x\""),
        (WgM, BLANK, "\"sentence\"", "\"x\""),
        (WgM, BLANK, "\"option1\"", "\"x\""),
        (WgM, BLANK, "\"option2\"", "\"x\""),
        (WgM, BLANK, "\"answer\"", "\"x\""),
        (WgS, BLANK, "A _ b.", "A b."),
        (WgS, BLANK, "\"2\"", "\"3\""),
        (WgS, BLANK, "\"2\"", "\"\""),
        (WgS, BLANK, "\"2\"", "2"),
        (ArcC, ARC, "answerKey", "key"),
        (ArcC, ARC, "\"stem\"", "\"text\""),
        (ArcC, ARC, "\"choices\"", "\"x\""),
        (ArcC, ARC, "\"Q?\"", "\" \""),
        (ArcC, ARC, "\"y\"", "null"),
        (ArcC, ARC, "Key\":\"C\"", "Key\":\"D\""),
        (ArcC, ARC, "\"B\"", "\"A\""),
        (ArcC, ARC, "\"B\"", "\"E\""),
        (ArcC, ARC, "\"id\":\"7\",", ""),
        (Obqa, OBQA, ",{\"text\":\"w\",\"label\":\"D\"}", ""),
        (Obqa, OBQA, "\"id\":\"7\",\"question\":{", "\"question\":[],\"y\":{"),
        (BoolQ, BOOLQ, "true", "\"yes\""),
        (BoolQ, BOOLQ, "true", "2"),
        (BoolQ, BOOLQ, "passage", "text"),
        (BoolQ, BOOLQ, "is it so", ""),
    ];
    let cases = cases.map(|(task, good, from, to)| (task, good.replacen(from, to, 1)));
    let found = read(Format::Jsonl, cases.iter().map(|(task, text)| (*task, text.as_str())));
    insta::assert_snapshot!(found);
}

#[test]
fn choice_lists_end_where_they_may() {
    let row = |n: usize| {
        let choice = |i: usize| format!(r#"{{"text":"t{i}","label":"{}"}}"#, i + 1);
        let list: Vec<String> = (0..n).map(choice).collect();
        format!(r#"{{"question":{{"stem":"Q","choices":[{}]}},"answerKey":"1"}}"#, list.join(","))
    };
    let sizes = [(Task::ArcE, 0..7), (Task::Obqa, 3..6)];
    let cases = sizes.into_iter().flat_map(|(task, sizes)| sizes.map(move |n| (task, row(n))));
    let cases: Vec<(Task, String)> = cases.collect();
    let cases = cases.iter().map(|(task, text)| (*task, text.as_str()));
    let found = read(Format::Jsonl, cases);
    insta::assert_snapshot!(found);
}
