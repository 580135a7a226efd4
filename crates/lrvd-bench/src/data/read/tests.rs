#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use super::*;
use crate::data::{Origin, load};
use crate::error::Result;

/// Reads `text` as `dev.tsv` or `train.jsonl`; the error without its folder.
fn read(format: Format, task: GlueTask, text: impl AsRef<[u8]>) -> Result<Vec<Example>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(if format == Format::Tsv { "dev.tsv" } else { "train.jsonl" });
    std::fs::write(&file, text).unwrap();
    read_examples(&file, format, task).map_err(|error| {
        let folder = format!("{}/", dir.path().display());
        error.to_string().replace(&folder, "")
    })
}

fn message(task: GlueTask, text: impl AsRef<[u8]>) -> String {
    read(Format::Tsv, task, text).unwrap_err()
}

fn golden(name: &str, task: GlueTask) -> Result<Vec<Example>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
    read_examples(&folder.join(name), Format::Parquet, task)
}

#[test]
fn cola_has_no_header_and_quotes_are_letters() {
    let rows =
        read(Format::Tsv, GlueTask::Cola, "gj04\t1\t\t\"Go,\" he said.\ngj04\t0\t*\tHe \"go.")
            .unwrap();
    let texts: Vec<_> = rows.iter().map(|row| row.text_a.as_str()).collect();
    assert_eq!(texts, ["\"Go,\" he said.", "He \"go."]);
    assert_eq!([rows[0].label, rows[1].label], [Label::Class(1), Label::Class(0)]);
    assert_eq!((rows[1].id.as_str(), &rows[1].text_b), ("1", &None));
    let rows = read(Format::Tsv, GlueTask::Cola, "label\tsentence\n1\tHe went.\n").unwrap();
    assert_eq!(rows.len(), 1);
}

#[test]
fn byte_order_mark_and_carriage_returns_are_no_text() {
    let text =
        "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t11\t12\tHe 's .\tShe 's .\r\n";
    let rows = read(Format::Tsv, GlueTask::Mrpc, text).unwrap();
    assert_eq!(rows[0].id, "11-12");
    assert_eq!(rows[0].text_a, "He 's .");
    assert_eq!(rows[0].text_b.as_deref(), Some("She 's ."));
    assert_eq!(rows[0].label, Label::Class(1));
}

#[test]
fn columns_are_found_by_name_in_both_layouts() {
    let class = |task, text: &str| {
        let rows = read(Format::Tsv, task, text).unwrap();
        (rows[0].id.clone(), rows[0].text_a.clone(), rows[0].text_b.clone().unwrap(), rows[0].label)
    };
    let expected = |id: &str, label| (id.to_owned(), "A".to_owned(), "B".to_owned(), label);
    for (task, text, id, label) in [
        (GlueTask::Qnli, "index\tquestion\tsentence\tlabel\n9\tA\tB\tnot_entailment", "9", 1),
        (GlueTask::Qnli, "question\tsentence\tlabel\nA\tB\tentailment", "0", 0),
        (
            GlueTask::Qqp,
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tA\tB\t1",
            "7",
            1,
        ),
        (GlueTask::Qqp, "question1\tquestion2\tlabel\nA\tB\tnot_duplicate", "0", 0),
        (GlueTask::Rte, "index\tsentence1\tsentence2\tlabel\n3\tA\tB\tentailment", "3", 0),
        (GlueTask::Mnli, "sentence1\tsentence2\tlabel\nA\tB\tneutral", "0", 1),
        // An annotator's label differs from the gold label of the official layout.
        (
            GlueTask::Mnli,
            "index\tsentence1\tsentence2\tlabel1\tgold_label\n3\tA\tB\tneutral\tcontradiction",
            "3",
            2,
        ),
    ] {
        assert_eq!(class(task, text), expected(id, Label::Class(label)), "{text}");
    }
    let text = "index\tgenre\tsentence1\tsentence2\tscore\n4\tnews\tA\tB\t3.800";
    assert_eq!(class(GlueTask::Stsb, text), expected("4", Label::Score(3.8)));
}

#[test]
fn outer_spaces_stay() {
    let rows = read(Format::Tsv, GlueTask::Sst2, "sentence\tlabel\na fine tale \t1\n").unwrap();
    assert_eq!(rows[0].text_a, "a fine tale ");
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
        let error = message(GlueTask::Sst2, format!("{head}{row}\nlast\t0\n"));
        assert!(error.starts_with(expected), "{error}");
    }
    let error = message(GlueTask::Stsb, "sentence1\tsentence2\tscore\nA\tB\t5.01");
    assert_eq!(error, "`dev.tsv`, line 2, column `score`: `5.01` is not a score within 0..=5");
    assert_eq!(
        message(GlueTask::Qqp, "id\tquestion1\tquestion2\n1\tA\tB"),
        "`dev.tsv` has no column `is_duplicate` or `label`; its columns are `id`, `question1`, `question2`"
    );
    for empty in ["", "sentence\tlabel\n"] {
        assert_eq!(message(GlueTask::Sst2, empty), "`dev.tsv` holds no examples");
    }
}

#[test]
fn invalid_utf8_is_named_by_its_offset() {
    let error = message(GlueTask::Sst2, b"\xef\xbb\xbfsentence\tlabel\r\ngo\xffod\t1\n");
    // 3 bytes of mark, 16 of header line, 2 of text.
    assert_eq!(error, "`dev.tsv`, line 2: invalid UTF-8 at byte 21 of the file");
    assert!(message(GlueTask::Cola, b"\xff").contains("line 1: invalid UTF-8 at byte 0"));
    assert!(message(GlueTask::Rte, b"\xff").contains("line 1: invalid UTF-8 at byte 0"));
}

#[test]
fn ids_names_and_scores_are_labels() {
    let rows = read(
        Format::Jsonl, GlueTask::Rte,
        "{\"premise\":\"It rained.\",\"hypothesis\":\"It was wet.\",\"label\":\"entailment\",\"idx\":4}\r\n\
         {\"sentence1\":\"A\",\"sentence2\":\"B\",\"label\":1,\"source\":null}",
    )
    .unwrap();
    assert_eq!((rows[0].id.as_str(), rows[0].label), ("4", Label::Class(0)));
    assert_eq!((rows[1].id.as_str(), rows[1].label), ("1", Label::Class(1)));
    assert_eq!(rows[0].text_b.as_deref(), Some("It was wet."));
    let rows = read(
        Format::Jsonl,
        GlueTask::Stsb,
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
        ("[1]", "line 2: not a JSON object"),
        ("", "line 2: not a JSON object"),
    ] {
        let error = read(Format::Jsonl, GlueTask::Cola, format!("{good}{bad}\n")).unwrap_err();
        assert!(error.contains(expected) && error.starts_with("`train.jsonl`"), "{error}");
    }
    let empty = read(Format::Jsonl, GlueTask::Cola, "").unwrap_err();
    assert_eq!(empty, "`train.jsonl` holds no examples");
}

#[test]
fn files_of_another_writer_are_read() {
    let first = golden("cola-train-00000-of-00002.parquet", GlueTask::Cola).unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(
        (first[1].text_a.as_str(), first[1].label),
        ("The letters was lost.", Label::Class(0))
    );
    let second = golden("cola-train-00001-of-00002.parquet", GlueTask::Cola).unwrap();
    assert_eq!((second[0].id.as_str(), second[0].text_a.as_str()), ("2", "“Quoted” – naïve."));
    let scores = golden("stsb.parquet", GlueTask::Stsb).unwrap();
    assert_eq!([scores[0].label, scores[1].label], [Label::Score(3.25), Label::Score(5.0)]);
}

#[test]
fn columns_of_a_schema_are_found_by_name_in_any_order() {
    let rows = golden("rte.parquet", GlueTask::Rte).unwrap();
    assert_eq!((rows[0].id.as_str(), rows[0].text_a.as_str()), ("7", "A"));
    assert_eq!((rows[0].text_b.as_deref(), rows[0].label), (Some("C"), Label::Class(1)));
}

#[test]
fn errors_name_file_row_and_column() {
    for (name, task, expected) in [
        (
            "cola-hidden.parquet",
            GlueTask::Cola,
            "row 2, column `label`: label -1 marks a hidden test label",
        ),
        (
            "cola-null.parquet",
            GlueTask::Cola,
            "row 2, column `sentence`: null where a string is expected",
        ),
        (
            "cola-null.parquet",
            GlueTask::Qnli,
            "no column `question`; its columns are `sentence`, `label`, `idx`",
        ),
        ("stsb.parquet", GlueTask::Rte, "row 1, column `label`: unknown label `3.25`"),
        ("README.md", GlueTask::Cola, "cannot decode parquet file"),
        ("absent.parquet", GlueTask::Cola, "cannot read"),
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
    use GlueTask::{Cola, Mnli, Mrpc, Qnli, Qqp, Rte, Sst2, Stsb};
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
        let examples = read_examples(&data.join("glue").join(file), Format::Tsv, task).unwrap();
        assert_eq!(examples.len(), rows, "{file}");
        for (id, expected) in class_counts.into_iter().enumerate() {
            let found = examples.iter().filter(|e| e.label.class() == Some(id)).count();
            assert_eq!(found, expected, "{file} class {id}");
        }
    }
    let jsonl = read_examples(&data.join("superglue/RTE/train.jsonl"), Format::Jsonl, Rte).unwrap();
    let tsv = read_examples(&data.join("glue/RTE/train.tsv"), Format::Tsv, Rte).unwrap();
    assert_eq!(jsonl.len(), 2490);
    assert!(jsonl.iter().zip(&tsv).all(|(a, b)| a.label == b.label && a.id == b.id));
}

#[test]
fn real_folders_are_located_and_labelled() {
    let Some(data) = real_data() else { return };
    let glue = data.join("glue");
    for (task, train, validation, rows) in [
        (GlueTask::Cola, Origin::Official, Origin::Official, [8551, 1043]),
        (GlueTask::Sst2, Origin::Official, Origin::Official, [67349, 872]),
        (GlueTask::Mrpc, Origin::Official, Origin::Official, [3668, 408]),
        (GlueTask::Qqp, Origin::Subset, Origin::Subset, [8999, 7600]),
        (GlueTask::Mnli, Origin::Subset, Origin::Subset, [8999, 7469]),
        (GlueTask::Qnli, Origin::Subset, Origin::Official, [8999, 5463]),
        (GlueTask::Rte, Origin::LocalSplit, Origin::LocalSplit, [1992, 498]),
        (GlueTask::Stsb, Origin::Official, Origin::Official, [5749, 1500]),
    ] {
        let dataset = load(&glue, task).unwrap();
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
    let split = load(dir.path(), GlueTask::Mrpc).unwrap();
    for (split, file) in [(&split.train, "train.tsv"), (&split.validation, "dev.tsv")] {
        assert_eq!(split.origin, Origin::Official);
        let derived = read_examples(&source.join(file), Format::Tsv, GlueTask::Mrpc).unwrap();
        assert!(split.examples == derived, "{file}");
    }
}
