#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use super::*;
use crate::data::{Origin, load};

fn examples(file: &Path, format: Format, task: Task) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    read_examples(file, format, task, &mut examples)?;
    Ok(examples)
}

/// Reads `text` as `dev.tsv` or `train.jsonl`; the error without its folder.
fn read(format: Format, task: Task, text: impl AsRef<[u8]>) -> Result<Vec<Example>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(if format == Format::Tsv { "dev.tsv" } else { "train.jsonl" });
    std::fs::write(&file, text).unwrap();
    examples(&file, format, task).map_err(|error| {
        let folder = format!("{}/", dir.path().display());
        error.to_string().replace(&folder, "")
    })
}

fn message(task: Task, text: impl AsRef<[u8]>) -> String {
    read(Format::Tsv, task, text).unwrap_err()
}

fn golden(name: &str, task: Task) -> Result<Vec<Example>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
    examples(&folder.join(name), Format::Parquet, task)
}

#[test]
fn cola_has_no_header_quotes_are_letters_and_outer_spaces_stay() {
    let rows = read(Format::Tsv, Task::Cola, "gj04\t1\t\t\"Go,\" he said.\ngj04\t0\t*\tHe \"go. ")
        .unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.input.text.as_str()).collect();
    assert_eq!(texts, ["\"Go,\" he said.", "He \"go. "]);
    assert_eq!([rows[0].label, rows[1].label], [Label::Class(1), Label::Class(0)]);
    assert_eq!((rows[1].id.as_str(), &rows[1].input.pair), ("1", &None));
    let rows = read(Format::Tsv, Task::Cola, "label\tsentence\n1\tHe went.\n").unwrap();
    assert_eq!(rows.len(), 1);
}

#[test]
fn columns_are_found_by_name_in_both_layouts() {
    let class = |task, text: &str| {
        let rows = read(Format::Tsv, task, text).unwrap();
        (
            rows[0].id.clone(),
            rows[0].input.text.clone(),
            rows[0].input.pair.clone().unwrap(),
            rows[0].label,
        )
    };
    let expected = |id: &str, label| (id.to_owned(), "A".to_owned(), "B".to_owned(), label);
    for (task, text, id, label) in [
        (Task::Qnli, "index\tquestion\tsentence\tlabel\n9\tA\tB\tnot_entailment", "9", 1),
        (Task::Qnli, "question\tsentence\tlabel\nA\tB\tentailment", "0", 0),
        (Task::Qqp, "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tA\tB\t1", "7", 1),
        (Task::Qqp, "question1\tquestion2\tlabel\nA\tB\tnot_duplicate", "0", 0),
        (Task::Rte, "index\tsentence1\tsentence2\tlabel\n3\tA\tB\tentailment", "3", 0),
        (
            Task::Mrpc,
            "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t11\t12\tA\tB\r\n",
            "11-12",
            1,
        ),
        (Task::Mnli, "sentence1\tsentence2\tlabel\nA\tB\tneutral", "0", 1),
        // An annotator's label differs from the gold label of the official layout.
        (
            Task::Mnli,
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n3\tA\tB\tneutral\tcontradiction",
            "3",
            2,
        ),
    ] {
        assert_eq!(class(task, text), expected(id, Label::Class(label)), "{text}");
    }
    let text = "index\tgenre\tsentence1\tsentence2\tscore\n4\tnews\tA\tB\t3.800";
    assert_eq!(class(Task::Stsb, text), expected("4", Label::Score(3.8)));
}

#[test]
fn a_bad_row_is_named_by_file_line_and_column() {
    let head = "sentence\tlabel\ngood\t1\n";
    for (row, expected) in [
        (
            "bad",
            "`dev.tsv`, line 3: 1 tab-separated fields where 2 are expected (`sentence`, `label`)",
        ),
        ("bad\t1\t", "`dev.tsv`, line 3: 3 tab-separated fields where 2 are expected"),
        ("", "`dev.tsv`, line 3: 1 tab-separated fields"),
        (
            "bad\tgood",
            "`dev.tsv`, line 3, column `label`: unknown label `good`, expected one of `negative` (0), `positive` (1)",
        ),
        (" \t1", "`dev.tsv`, line 3, column `sentence`: empty text"),
    ] {
        let error = message(Task::Sst2, format!("{head}{row}\nlast\t0\n"));
        assert!(error.starts_with(expected), "{error}");
    }
    let error = message(Task::Stsb, "sentence1\tsentence2\tscore\nA\tB\t5.01");
    assert_eq!(error, "`dev.tsv`, line 2, column `score`: `5.01` is not a score within 0..=5");
    assert_eq!(
        message(Task::Qqp, "id\tquestion1\tquestion2\n1\tA\tB"),
        "`dev.tsv` has no column `is_duplicate` or `label`; its columns are `id`, `question1`, `question2`"
    );
}

#[test]
fn ids_names_and_scores_are_labels() {
    let rows = read(
        Format::Jsonl, Task::Rte,
        "{\"premise\":\"It rained.\",\"hypothesis\":\"It was wet.\",\"label\":\"entailment\",\"idx\":4}\r\n\
         {\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":1,\"source\":null}",
    )
    .unwrap();
    assert_eq!((rows[0].id.as_str(), rows[0].label), ("4", Label::Class(0)));
    assert_eq!((rows[1].id.as_str(), rows[1].label), ("1", Label::Class(1)));
    assert_eq!(rows[0].input.pair.as_deref(), Some("It was wet."));
    let rows = read(
        Format::Jsonl,
        Task::Stsb,
        "{\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":3.5}\n\
         {\"sentence1\":\"A\",\"sentence2\":\"B\",\"score\":4}\n",
    );
    let scores: Vec<_> = rows.unwrap().iter().map(|row| row.label).collect();
    assert_eq!(scores, [Label::Score(3.5), Label::Score(4.0)]);
}

#[test]
fn errors_of_objects_name_file_line_and_key() {
    let good = "{\"sentence\":\"A\",\"label\":0}\n";
    for (bad, expected) in [
        ("{\"sentence\":\"A\"}", "line 2: no key `label`; the keys are `sentence`"),
        ("{\"sentence\":3,\"label\":0}", "line 2, column `sentence`: a number where a string is"),
        ("{\"sentence\":\"A\",\"label\":true}", "column `label`: a boolean where a label is"),
        (
            "{\"sentence\":\"A\",\"label\":2}",
            "unknown label `2`, expected one of `unacceptable` (0)",
        ),
        ("{\"sentence\":\"A\",\"label\":0.5}", "unknown label `0.5`"),
        ("{\"sentence\":\"A\",\"label\":-1}", "hidden test label"),
        ("{\"sentence\":\" \",\"label\":0}", "line 2, column `sentence`: empty text"),
        ("", "line 2: not a JSON object"),
    ] {
        let error = read(Format::Jsonl, Task::Cola, format!("{good}{bad}\n")).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("`train.jsonl`"), "{error}");
    }
}

#[test]
fn files_of_another_writer_are_read() {
    let first = golden("cola-train-00000-of-00002.parquet", Task::Cola).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(
        (first[1].input.text.as_str(), first[1].label),
        ("The letters was lost.", Label::Class(0))
    );
    let second = golden("cola-train-00001-of-00002.parquet", Task::Cola).unwrap();
    assert_eq!((second[0].id.as_str(), second[0].input.text.as_str()), ("2", "“Quoted” – naïve."));
    let scores = golden("stsb.parquet", Task::Stsb).unwrap();
    assert_eq!([scores[0].label, scores[1].label], [Label::Score(3.25), Label::Score(5.0)]);
    // In another order than the schema's.
    let rows = golden("rte.parquet", Task::Rte).unwrap();
    assert_eq!((rows[0].id.as_str(), rows[0].input.text.as_str()), ("7", "A"));
    assert_eq!((rows[0].input.pair.as_deref(), rows[0].label), (Some("C"), Label::Class(1)));
}

#[test]
fn errors_name_file_row_and_column() {
    for (name, task, expected) in [
        (
            "cola-hidden.parquet",
            Task::Cola,
            "row 2, column `label`: label -1 marks a hidden test label",
        ),
        (
            "cola-null.parquet",
            Task::Cola,
            "row 2, column `sentence`: null where a string is expected",
        ),
        (
            "cola-null.parquet",
            Task::Qnli,
            "no column `question`; its columns are `sentence`, `label`, `idx`",
        ),
        ("stsb.parquet", Task::Rte, "row 1, column `label`: unknown label `3.25`"),
        ("README.md", Task::Cola, "cannot decode parquet file"),
        (
            "../reasoning/parquet/other/arc-null.parquet",
            Task::ArcC,
            "row 2, column `choices.text`: null where",
        ),
        ("../reasoning/parquet/other/arc-empty.parquet", Task::ArcC, "holds no examples"),
    ] {
        let error = golden(name, task).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
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

#[test]
fn real_files_have_their_published_rows() {
    use Task::{Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2, Stsb};
    let Some(data) = real_data() else { return };
    for (file, task, rows, class_counts) in [
        ("CoLA/train.tsv", Cola, 8551, vec![2528, 6023]),
        ("CoLA/dev.tsv", Cola, 1043, vec![322, 721]),
        ("CoLA/original/in_domain_dev.tsv", Cola, 527, vec![]),
        ("CoLA/original/out_of_domain_dev.tsv", Cola, 516, vec![]),
        ("SST-2/train.tsv", Sst2, 67349, vec![29780, 37569]),
        ("SST-2/dev.tsv", Sst2, 872, vec![428, 444]),
        ("MRPC/msr_paraphrase_train.txt", Mrpc, 4076, vec![]),
        ("MRPC/msr_paraphrase_test.txt", Mrpc, 1725, vec![578, 1147]),
        ("MRPC/train.tsv", Mrpc, 3668, vec![1194, 2474]),
        ("MRPC/dev.tsv", Mrpc, 408, vec![129, 279]),
        ("RTE/train.tsv", Rte, 2490, vec![1249, 1241]),
        ("RTE/train_split80.tsv", Rte, 1992, vec![]),
        ("RTE/localdev_split20.tsv", Rte, 498, vec![]),
        ("QNLI/dev.tsv", Qnli, 5463, vec![2702, 2761]),
        ("QNLI/train_subset9k.tsv", Qnli, 8999, vec![]),
        ("QNLI/train_subset_heldout1k.tsv", Qnli, 1000, vec![]),
        ("MNLI/train_subset9k.tsv", Mnli, 8999, vec![]),
        ("MNLI/train_subset_heldout1k.tsv", Mnli, 1000, vec![]),
        ("MNLI/dev_matched_subset.tsv", Mnli, 7469, vec![2681, 2353, 2435]),
        ("QQP/train_subset9k.tsv", Qqp, 8999, vec![5747, 3252]),
        ("QQP/train_subset_heldout1k.tsv", Qqp, 1000, vec![]),
        ("QQP/dev_subset.tsv", Qqp, 7600, vec![4871, 2729]),
        ("STS-B/train.tsv", Stsb, 5749, vec![]),
        ("STS-B/dev.tsv", Stsb, 1500, vec![]),
    ] {
        let examples = examples(&data.join("glue").join(file), Format::Tsv, task).unwrap();
        assert_eq!(examples.len(), rows, "{file}");
        for (id, expected) in class_counts.into_iter().enumerate() {
            let found = examples.iter().filter(|e| e.label.class() == Some(id)).count();
            assert_eq!(found, expected, "{file} class {id}");
        }
    }
    let jsonl = examples(&data.join("superglue/RTE/train.jsonl"), Format::Jsonl, Rte).unwrap();
    let tsv = examples(&data.join("glue/RTE/train.tsv"), Format::Tsv, Rte).unwrap();
    assert_eq!(jsonl.len(), 2490);
    assert!(jsonl.iter().zip(&tsv).all(|(a, b)| a.label == b.label && a.id == b.id));
}

#[test]
fn real_folders_are_located_and_labelled() {
    let Some(data) = real_data() else { return };
    let glue = data.join("glue");
    for (task, train, validation, rows) in [
        (Task::Cola, Origin::Official, Origin::Official, [8551, 1043]),
        (Task::Sst2, Origin::Official, Origin::Official, [67349, 872]),
        (Task::Mrpc, Origin::Official, Origin::Official, [3668, 408]),
        (Task::Qqp, Origin::Subset, Origin::Subset, [8999, 7600]),
        (Task::Mnli, Origin::Subset, Origin::Subset, [8999, 7469]),
        (Task::Qnli, Origin::Subset, Origin::Official, [8999, 5463]),
        (Task::Rte, Origin::LocalSplit, Origin::LocalSplit, [1992, 498]),
        (Task::Stsb, Origin::Official, Origin::Official, [5749, 1500]),
    ] {
        let dataset = load(&glue, task, None).unwrap();
        assert_eq!(
            (dataset.train.origin, dataset.validation.origin),
            (train, validation),
            "{task}"
        );
        assert_eq!([dataset.train.rows(), dataset.validation.rows()], rows, "{task}");
        let official = [train, validation] == [Origin::Official; 2];
        eprintln!("{task}: {:?}", dataset.notes);
        assert!(official || !dataset.notes.is_empty(), "{task}");
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

fn label(task: Task, text: &str) -> Result<Label, String> {
    let text = match task {
        Task::Stsb => format!("sentence1\tsentence2\tscore\nA\tB\t{text}\n"),
        Task::Cola => format!("sentence\tlabel\nA\t{text}\n"),
        _ => format!("sentence1\tsentence2\tlabel\nA\tB\t{text}\n"),
    };
    read(Format::Tsv, task, text).map(|rows| rows[0].label)
}

#[test]
fn names_and_ids_are_labels_up_to_the_last_class() {
    assert_eq!(label(Task::Mnli, "contradiction").unwrap(), Label::Class(2));
    assert_eq!(label(Task::Mnli, " 2 ").unwrap(), Label::Class(2));
    assert_eq!(label(Task::Rte, "not_entailment").unwrap(), Label::Class(1));
    assert!(label(Task::Cola, "1").is_ok());
    assert_eq!(
        label(Task::Cola, "2").unwrap_err(),
        "`dev.tsv`, line 2, column `label`: unknown label `2`, expected one of \
         `unacceptable` (0), `acceptable` (1)"
    );
    for (text, expected) in [
        ("-1", "hidden test label"),
        ("-2", "unknown label `-2`"),
        ("Acceptable", "unknown label `Acceptable`"),
    ] {
        assert!(label(Task::Cola, text).unwrap_err().contains(expected), "{text}");
    }
}

#[test]
fn scores_end_at_their_bounds() {
    assert_eq!(label(Task::Stsb, "4.750").unwrap(), Label::Score(4.75));
    for good in ["0", "5.0", "0.000"] {
        assert!(label(Task::Stsb, good).is_ok(), "{good}");
    }
    for bad in ["-0.001", "5.001", "NaN", "inf", "", "four"] {
        let error = label(Task::Stsb, bad).unwrap_err();
        assert!(error.ends_with("is not a score within 0..=5"), "{error}");
    }
}

fn read_items(set: Task, text: impl AsRef<[u8]>) -> Result<Vec<Example>, String> {
    read(Format::Jsonl, set, text)
}

fn golden_set(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/reasoning").join(path)
}

/// Rows without their places.
fn plain(examples: &[Example]) -> Vec<(&str, &Input, Label)> {
    examples.iter().map(|e| (e.id.as_str(), &e.input, e.label)).collect()
}

/// The message of the first bad row, which is line 2 of the file.
fn set_message(set: Task, good: &str, bad: &str) -> String {
    let error = read_items(set, format!("{good}\n{bad}\n")).unwrap_err();
    error.split_once("train.jsonl`, line 2").map_or(error.clone(), |(_, rest)| rest.to_owned())
}

const BLANK: &str = r#"{"qID":"Q-1","sentence":"A _ b.","option1":"x","option2":"y","answer":"2"}"#;
const ARC: &str = r#"{"id":"7","question":{"stem":"Q?","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"}]},"answerKey":"C"}"#;
const OBQA: &str = r#"{"id":"7","question":{"stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}]},"answerKey":"A"}"#;
const BOOLQ: &str = r#"{"question":"is it so","title":"T","answer":true,"passage":"It is."}"#;

#[test]
fn the_layouts_of_the_authors_are_read() {
    let crlf = format!("\u{feff}{BLANK}\r\n{BLANK}");
    let items = read_items(Task::WgS, crlf).unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!(items[1].input.choices, ["x", "y"]);
    assert_eq!((items[0].id.as_str(), items[0].label), ("Q-1", Label::Class(1)));

    let items = read_items(Task::ArcC, ARC).unwrap();
    assert_eq!(items[0].input.choices, ["x", "y", "z"]);
    assert!(!items[0].input.numbered);
    assert_eq!((items[0].input.text.as_str(), items[0].label), ("Q?", Label::Class(2)));
    let numbered =
        ARC.replace("\"A\"", "\"1\"").replace("\"B\"", "\"2\"").replace("\"C\"", "\"3\"");
    let items = read_items(Task::ArcE, numbered).unwrap();
    assert_eq!((items[0].input.numbered, items[0].label), (true, Label::Class(2)));

    assert_eq!(read_items(Task::Obqa, OBQA).unwrap()[0].label, Label::Class(0));

    let items = read_items(Task::BoolQ, BOOLQ).unwrap();
    assert_eq!(items[0].input.pair.as_deref(), Some("It is."));
    assert_eq!((items[0].id.as_str(), items[0].label), ("0", Label::Class(1)));
}

#[test]
fn the_columns_of_the_hub_are_read_as_jsonl_too() {
    let hub = r#"{"id":"7","question":"Q?","choices":{"text":["x","y","z"],"label":["A","B","C"]},"answerKey":"C"}"#;
    let from_hub = read_items(Task::ArcC, hub).unwrap();
    assert_eq!(plain(&from_hub), plain(&read_items(Task::ArcC, ARC).unwrap()));
    let flat = r#"{"id":"7","question_stem":"Q","choices":[{"text":"x","label":"A"},{"text":"y","label":"B"},{"text":"z","label":"C"},{"text":"w","label":"D"}],"answerKey":"A"}"#;
    let from_flat = read_items(Task::Obqa, flat).unwrap();
    assert_eq!(plain(&from_flat), plain(&read_items(Task::Obqa, OBQA).unwrap()));
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
fn errors_of_questions_name_file_line_and_field() {
    let cases: [(Task, &str, &str, &str, &str); 24] = [
        (Task::WgM, BLANK, "\"qID\"", "\"x\"", ": no"),
        (
            Task::WgM,
            BLANK,
            "\"sentence\"",
            "\"x\"",
            ": no key `sentence`; the keys are `answer`, `option1`, `option2`, `qID`, `x`",
        ),
        (Task::WgM, BLANK, "\"option1\"", "\"x\"", ": no key `option1`"),
        (Task::WgM, BLANK, "\"option2\"", "\"x\"", ": no key `option2`"),
        (Task::WgM, BLANK, "\"answer\"", "\"x\"", ": no key `answer`"),
        (Task::WgS, BLANK, "A _ b.", "A b.", ", column `sentence`: no blank `_`"),
        (Task::WgS, BLANK, "\"2\"", "\"3\"", "answer `3`, expected one of `1`, `2`"),
        (Task::WgS, BLANK, "\"2\"", "\"\"", ", column `answer`: empty text"),
        (Task::WgS, BLANK, "\"2\"", "2", ", column `answer`: a number where a string"),
        (Task::ArcC, ARC, "answerKey", "key", ": no key `answerKey`"),
        (Task::ArcC, ARC, "\"stem\"", "\"text\"", ": no key `question.stem`"),
        (Task::ArcC, ARC, "\"choices\"", "\"x\"", ": no key `question.choices`"),
        (Task::ArcC, ARC, "\"Q?\"", "\" \"", ", column `question.stem`: empty text"),
        (Task::ArcC, ARC, "\"y\"", "null", ", column `choices.text`: null where a string"),
        (
            Task::ArcC,
            ARC,
            "Key\":\"C\"",
            "Key\":\"D\"",
            "answer `D`, expected one of `A`, `B`, `C`",
        ),
        (Task::ArcC, ARC, "\"B\"", "\"A\"", "two choices are labelled `A`"),
        (Task::ArcC, ARC, "\"B\"", "\"E\"", "labelled `A`, `E`, `C`, expected `A`, `B`, …"),
        (Task::ArcC, ARC, "\"id\":\"7\",", "", ": no"),
        (Task::Obqa, OBQA, ",{\"text\":\"w\",\"label\":\"D\"}", "", "3 choices where 4 are"),
        (
            Task::Obqa,
            OBQA,
            "\"id\":\"7\",\"question\":{",
            "\"question\":[],\"y\":{",
            ": no key `choices`",
        ),
        (Task::BoolQ, BOOLQ, "true", "\"yes\"", "`answer`: a string where true or false"),
        (Task::BoolQ, BOOLQ, "true", "2", "answer `2`, expected one of `False`, `True`"),
        (Task::BoolQ, BOOLQ, "passage", "text", ": no key `passage`"),
        (Task::BoolQ, BOOLQ, "is it so", "", ", column `question`: empty text"),
    ];
    for (set, good, from, to, expected) in cases {
        let bad = good.replacen(from, to, 1);
        if expected == ": no" {
            // An id is not needed.
            assert_eq!(read_items(set, bad).unwrap()[0].id, "0");
            continue;
        }
        let found = set_message(set, good, &bad);
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
        assert_eq!(read_items(Task::ArcE, row(n)).unwrap()[0].input.choices.len(), n);
    }
    for (set, n, expected) in [
        (Task::ArcE, 6, "6 choices where 2 to 5 are allowed"),
        (Task::ArcC, 1, "1 choices where 2 to 5 are allowed"),
        (Task::ArcC, 0, "0 choices where 2 to 5 are allowed"),
        (Task::Obqa, 5, "5 choices where 4 are allowed"),
    ] {
        let error = read_items(set, row(n)).unwrap_err();
        assert!(error.contains(expected) && error.contains("column `question.choices`"), "{error}");
    }
    let uneven = r#"{"question":"Q","choices":{"text":["x","y"],"label":["A"]},"answerKey":"A"}"#;
    let error = read_items(Task::ArcC, uneven).unwrap_err();
    assert!(error.contains("column `choices`: 2 texts of choices, but 1 labels"), "{error}");
}
