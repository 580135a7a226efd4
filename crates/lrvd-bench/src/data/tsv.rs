//! Tab-separated files of the original benchmark: how is a line split and a column found?
//!
//! A tab always separates and a quote is always a letter: these files were never written with CSV quoting, and
//! reading them as CSV merges rows wherever a text holds a lone quote. Columns are found by the name in the
//! header. The acceptability corpus alone has no header; its four columns are source, label, author's mark, sentence.

use std::path::Path;

use super::columns::Columns;
use super::label::{self, Field};
use super::{At, DataError, Example, Place};
use crate::task::GlueTask;

/// Columns of the headerless acceptability files; the names `label` and `sentence` are those of [`Columns`].
const COLA_COLUMNS: [&str; 4] = ["source", "label", "author mark", "sentence"];
/// Some files start with this mark; it is no part of the first column's name.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a tab-separated file; see [`parse_tsv`].
///
/// # Errors
///
/// As [`parse_tsv`], and [`DataError::Read`].
pub fn read_tsv(file: &Path, task: GlueTask) -> Result<Vec<Example>, DataError> {
    let bytes =
        std::fs::read(file).map_err(|source| DataError::Read { file: file.into(), source })?;
    parse_tsv(&bytes, file, task)
}

/// Reads the contents of a tab-separated file; `file` is named in errors.
///
/// Lines end in LF or CRLF, the last one also in nothing. Texts are kept verbatim, outer spaces included.
///
/// # Errors
///
/// The first bad row, by file, line and column: [`DataError::FieldCount`], [`DataError::UnknownLabel`],
/// [`DataError::Score`], [`DataError::EmptyText`], [`DataError::Encoding`]; a header without a needed column is
/// [`DataError::MissingColumn`], a file without rows [`DataError::Empty`].
pub fn parse_tsv(bytes: &[u8], file: &Path, task: GlueTask) -> Result<Vec<Example>, DataError> {
    let mut lines = Lines::new(bytes, file).peekable();
    let first = match lines.peek() {
        None => return Err(DataError::Empty { file: file.into() }),
        Some(Ok((_, line))) => *line,
        Some(Err(_)) => "",
    };
    let mut columns: Vec<&str> = first.split('\t').collect();
    if task == GlueTask::Cola && !has_cola_header(&columns) {
        columns = COLA_COLUMNS.to_vec();
    } else if let Some(header) = lines.next() {
        header?;
    }
    let places = Columns::of(task).resolve(&columns).map_err(|wanted| {
        let found = columns.iter().map(ToString::to_string).collect();
        DataError::MissingColumn { file: file.into(), wanted: wanted.to_vec(), found }
    })?;

    let target = Field { spec: task.spec(), column: columns[places.label] };
    let mut examples = Vec::new();
    for line in lines {
        let (number, line) = line?;
        let place = || Place { file: file.into(), at: At::Line(number) };
        let fields: Vec<&str> = line.split('\t').collect();
        if fields.len() != columns.len() {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            let (wanted, found) = (columns.len(), fields.len());
            return Err(DataError::FieldCount { place: place(), wanted, found, columns });
        }
        let text = |column: usize| label::text(fields[column], columns[column], place);
        let id: Vec<&str> = places.id.iter().map(|column| fields[*column]).collect();
        examples.push(Example {
            id: if id.is_empty() { examples.len().to_string() } else { id.join("-") },
            text_a: text(places.text_a)?,
            text_b: places.text_b.map(text).transpose()?,
            label: target.of_text(fields[places.label], place)?,
        });
    }
    if examples.is_empty() {
        return Err(DataError::Empty { file: file.into() });
    }
    Ok(examples)
}

/// Whether the first line names columns: no source of the acceptability corpus is called `sentence` or `label`.
fn has_cola_header(fields: &[&str]) -> bool {
    fields.contains(&"sentence") || fields.contains(&"label")
}

/// Numbered lines of a file, checked to be UTF-8 one by one.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    file: &'a Path,
    offset: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: &'a [u8], file: &'a Path) -> Self {
        let rest = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        Self { rest, file, offset: bytes.len() - rest.len(), number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<(usize, &'a str), DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let length = self.rest.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match length {
            Some(length) => (&self.rest[..length], &self.rest[length + 1..]),
            None => (self.rest, &[][..]),
        };
        let start = self.offset;
        self.offset += self.rest.len() - rest.len();
        self.rest = rest;
        self.number += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Some(match std::str::from_utf8(line) {
            Ok(text) => Ok((self.number, text)),
            Err(error) => {
                let place = Place { file: self.file.into(), at: At::Line(self.number) };
                Err(DataError::Encoding { place, offset: start + error.valid_up_to() })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::Label;

    fn read(task: GlueTask, bytes: impl AsRef<[u8]>) -> Result<Vec<Example>, DataError> {
        parse_tsv(bytes.as_ref(), Path::new("dev.tsv"), task)
    }

    fn message(task: GlueTask, bytes: impl AsRef<[u8]>) -> String {
        read(task, bytes).unwrap_err().to_string()
    }

    #[test]
    fn cola_has_no_header_and_quotes_are_letters() {
        let rows =
            read(GlueTask::Cola, "gj04\t1\t\t\"Go,\" he said.\ngj04\t0\t*\tHe \"go.").unwrap();
        let texts: Vec<_> = rows.iter().map(|row| row.text_a.as_str()).collect();
        assert_eq!(texts, ["\"Go,\" he said.", "He \"go."]);
        assert_eq!([rows[0].label, rows[1].label], [Label::Class(1), Label::Class(0)]);
        assert_eq!((rows[1].id.as_str(), &rows[1].text_b), ("1", &None));
        let rows = read(GlueTask::Cola, "label\tsentence\n1\tHe went.\n").unwrap();
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn byte_order_mark_and_carriage_returns_are_no_text() {
        let text = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t11\t12\tHe 's .\tShe 's .\r\n";
        let rows = read(GlueTask::Mrpc, text).unwrap();
        assert_eq!(rows[0].id, "11-12");
        assert_eq!(rows[0].text_a, "He 's .");
        assert_eq!(rows[0].text_b.as_deref(), Some("She 's ."));
        assert_eq!(rows[0].label, Label::Class(1));
    }

    #[test]
    fn columns_are_found_by_name_in_both_layouts() {
        let class = |task, text: &str| {
            let rows = read(task, text).unwrap();
            (
                rows[0].id.clone(),
                rows[0].text_a.clone(),
                rows[0].text_b.clone().unwrap(),
                rows[0].label,
            )
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
        let rows = read(GlueTask::Sst2, "sentence\tlabel\na fine tale \t1\n").unwrap();
        assert_eq!(rows[0].text_a, "a fine tale ");
    }

    #[test]
    fn a_bad_row_is_named_by_file_line_and_column() {
        let head = "sentence\tlabel\ngood\t1\n";
        for (row, wanted) in [
            (
                "bad",
                "`dev.tsv`, line 3: 1 tab-separated fields where 2 are expected (sentence, label)",
            ),
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
}
