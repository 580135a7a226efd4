#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
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
    let wanted = |id: &str, label| (id.to_owned(), "A".to_owned(), "B".to_owned(), label);
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
        assert_eq!(class(task, text), wanted(id, Label::Class(label)), "{text}");
    }
    let text = "index\tgenre\tsentence1\tsentence2\tscore\n4\tnews\tA\tB\t3.800";
    assert_eq!(class(GlueTask::Stsb, text), wanted("4", Label::Score(3.8)));
}

#[test]
fn outer_spaces_stay() {
    let rows = read(Format::Tsv, GlueTask::Sst2, "sentence\tlabel\na fine tale \t1\n").unwrap();
    assert_eq!(rows[0].text_a, "a fine tale ");
}

#[test]
fn a_bad_row_is_named_by_file_line_and_column() {
    let head = "sentence\tlabel\ngood\t1\n";
    for (row, wanted) in [
        ("bad", "`dev.tsv`, line 3: 1 tab-separated fields where 2 are expected (sentence, label)"),
        ("bad\t1\t", "`dev.tsv`, line 3: 3 tab-separated fields where 2 are expected"),
        ("", "`dev.tsv`, line 3: 1 tab-separated fields"),
        (
            "bad\tgood",
            "`dev.tsv`, line 3, column `label`: unknown label `good`, wanted one of `negative` (0), `positive` (1)",
        ),
        (" \t1", "`dev.tsv`, line 3, column `sentence`: empty text"),
    ] {
        let error = message(GlueTask::Sst2, format!("{head}{row}\nlast\t0\n"));
        assert!(error.starts_with(wanted), "{error}");
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
    for (bad, wanted) in [
        ("{\"sentence\":\"A\"}", "line 2: no key `label`; the keys are `sentence`"),
        ("{\"sentence\":3,\"label\":0}", "line 2, column `sentence`: a number where a string is"),
        ("{\"sentence\":\"A\",\"label\":true}", "column `label`: a boolean where a label is"),
        ("{\"sentence\":\"A\",\"label\":2}", "unknown label `2`, wanted one of `unacceptable` (0)"),
        ("{\"sentence\":\"A\",\"label\":0.5}", "unknown label `0.5`"),
        ("{\"sentence\":\"A\",\"label\":-1}", "hidden test label"),
        ("{\"sentence\":\" \",\"label\":0}", "line 2, column `sentence`: empty text"),
        ("[1]", "line 2: not a JSON object"),
        ("", "line 2: not a JSON object"),
    ] {
        let error = read(Format::Jsonl, GlueTask::Cola, format!("{good}{bad}\n")).unwrap_err();
        assert!(error.contains(wanted) && error.starts_with("`train.jsonl`"), "{error}");
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
    for (name, task, wanted) in [
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
        assert!(error.contains(wanted) && error.contains(name), "{error}");
    }
}
