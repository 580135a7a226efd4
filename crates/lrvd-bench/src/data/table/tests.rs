#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use super::*;
use crate::io::{plain, sha256_file};

/// All rows of a file of this name, and their hash, or the first error.
fn rows(name: &str, text: &[u8]) -> Result<Vec<Row>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    std::fs::write(&file, text).unwrap();
    let rows = read(&file).and_then(|mut table| {
        let names = table.names()?;
        let rows: Vec<Row> = table.by_ref().collect::<Result<_>>()?;
        assert!(rows.iter().all(|row| row.names.len() == names.len()), "{names:?}");
        let source = table.source()?;
        assert_eq!((source.bytes, source.sha256), (text.len() as u64, sha256_file(&file)?));
        Ok(rows)
    });
    let folder = format!("{}/", dir.path().display());
    rows.map_err(|error| error.to_string().replace(&folder, ""))
}

#[test]
fn every_format_gives_rows_of_named_values_or_an_error_that_names_the_place() {
    let mut cases: Vec<(String, String)> =
        serde_json::from_str(include_str!("../cases/table.json")).unwrap();
    let many = (0..1000).map(|i| i.to_string()).collect::<Vec<_>>().join(",") + "\n1\n";
    cases.push(("d.csv".to_owned(), many));
    let mut found = String::new();
    for (name, text) in cases {
        // JSON holds no invalid UTF-8.
        let text = text.split('\u{fffd}').map(str::as_bytes).collect::<Vec<_>>().join(&0xff);
        writeln!(found, "{name}").unwrap();
        match rows(&name, &text) {
            Ok(rows) => {
                for row in &rows {
                    let value = |name: &String| match row.get(name) {
                        Ok(value) => format!("{name}={}", value.unwrap()),
                        Err(error) => error.to_string().rsplit_once('/').unwrap().1.to_owned(),
                    };
                    let values: Vec<String> = row.names.iter().map(value).collect();
                    writeln!(found, "    {:?} {}", row.place.at, values.join(", ")).unwrap();
                }
            }
            Err(error) => writeln!(found, "    {error}").unwrap(),
        }
    }
    insta::assert_snapshot!(found);
}

#[test]
fn the_start_of_a_file_says_what_it_is() {
    let wide = |mark: &str, bytes: fn(u16) -> [u8; 2]| {
        let text = format!("{mark}text\tlabel\r\na\tb\r\n");
        text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    for name in ["d.csv", "d.tsv", "d.jsonl", "d.json"] {
        let files = [
            wide("\u{feff}", u16::to_le_bytes),
            wide("\u{feff}", u16::to_be_bytes),
            wide("", u16::to_le_bytes),
            wide("", u16::to_be_bytes),
        ];
        for bytes in files {
            let error = rows(name, &bytes).unwrap_err();
            assert!(error.starts_with(&format!("`{name}` is in UTF-16,")), "{error}");
        }
        assert_eq!(
            rows(name, b"").unwrap_err(),
            format!("`{name}` holds no examples: it is empty")
        );
    }
    for name in ["d.csv", "d.tsv", "d.jsonl"] {
        let error = rows(name, b"text,label\ra,b\rc,d\r").unwrap_err();
        assert!(error.starts_with(&format!("the lines of `{name}` end in CR alone")), "{error}");
    }
    for text in
        ["sep=;\na;b\n1,2;x\n", "\u{feff}sep=;\r\na;b\r\n1,2;x\r\n", "sep=\t\na\tb\n1,2\tx\n"]
    {
        let found = rows("d.csv", text.as_bytes()).unwrap();
        assert_eq!(
            (found[0].place.at, &*found[0].names),
            (At::Line(3), &["a", "b"].map(String::from)[..])
        );
        assert_eq!(found[0].text(&["a"]).unwrap(), "1,2");
    }
    // In Windows-1252 é is one byte, which is no UTF-8.
    let error = rows("d.csv", b"text,label\ncaf\xe9,x\n").unwrap_err();
    assert!(
        error.contains("line 2: invalid UTF-8 in field 1: a file in another encoding"),
        "{error}"
    );
}

#[test]
fn a_quote_that_is_never_closed_is_an_error_and_one_in_a_text_is_not() {
    for (text, behind) in [("a,b\n1,\"x\n2,y\n", 1), ("a,b\n\"1,x\n2,y\n3,z", 2)] {
        let error = rows("d.csv", text.as_bytes()).unwrap_err();
        let expected = format!(
            "`d.csv`, line 2: a quote is opened in this row and never closed, so that the lines behind it, {behind}, would \
             be its text"
        );
        assert_eq!(error, expected);
    }
    for text in ["a,b\n5\" disk,x\n", "a,b\n1,x\n5\" disk,y", "a,b\n\"1\n2\",x\n"] {
        assert!(rows("d.csv", text.as_bytes()).is_ok(), "{text}");
    }
}

#[test]
fn a_file_that_is_not_there_is_not_found_and_a_bad_row_is_followed_by_others() {
    for name in ["no/such.csv", "no/such.jsonl", "no/such.parquet"] {
        let absent = read(Path::new(name)).map(drop).unwrap_err();
        assert_eq!(absent.to_string(), format!("cannot read `{name}`"));
        let cause: &std::io::Error = absent.downcast_ref().unwrap();
        assert_eq!(cause.kind(), std::io::ErrorKind::NotFound, "{name}");
    }
    // A header that is longer than what is read at once.
    let text = format!("a,{}\r\nx,y\r\n\"two\r\nlines\",y\r\n\r\nz", "b".repeat(20_000));
    let error = rows("d.csv", text.as_bytes()).unwrap_err();
    assert!(error.starts_with("`d.csv`, line 6: 1 comma"), "{error}");
    let lines = Table::objects(Box::new(&b"{}\n[]\n{}\n"[..]), Path::new("d.jsonl"));
    assert_eq!(lines.map(|row| row.is_ok()).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn a_value_is_written_as_a_text_file_has_it() {
    let plain = |number: &str| {
        let row = &rows("d.jsonl", format!("{{\"n\":{number}}}").as_bytes()).unwrap()[0];
        plain(row.find(&["n"]).unwrap().value)
    };
    // Beyond 64 bits the reader has a double.
    let values = r#""a "|1|2.5|2.0|true|0.10000000149011612|9223372036854775807|9223372036854775808|18446744073709551615|-9223372036854775808|null|["x"]|{"k":1}|12345678901234567890123"#;
    let found = values.split('|').map(|value| plain(value).unwrap_or_default());
    let expected = "a ,1,2.5,2,true,0.1,9223372036854775807,9223372036854775808,18446744073709551615,\
                    -9223372036854775808,,,,";
    assert_eq!(found.collect::<Vec<_>>().join(","), expected);
    let row = &rows("d.jsonl", b"{\"n\":1e22}").unwrap()[0];
    let error = row.text(&["n"]).unwrap_err().to_string();
    assert!(error.contains("(write it as a string)"), "{error}");
}

#[test]
fn only_the_columns_asked_for_of_a_parquet_file_are_decoded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
    let file = folder.join("cola-train-00000-of-00002.parquet");
    let mut table = read(&file).unwrap();
    assert_eq!(table.names().unwrap(), ["sentence", "label", "idx"]);
    table.select(&["label"]).unwrap();
    let rows: Vec<Row> = table.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(table.source().unwrap().sha256, sha256_file(&file).unwrap());
    let found = |name| rows[1].find(&[name]).unwrap().value.clone();
    assert_eq!((found("label"), found("sentence")), (0.into(), serde_json::Value::Null));
    let missing = rows[1].text(&["verdict"]).unwrap_err().to_string();
    let columns = "no column `verdict`; its columns are `sentence`, `label`";
    assert!(missing.contains(columns), "{missing}");
}

/// The record interface ends the program at an interval. The file has the schema `required binary text (UTF8); required
/// binary raw; optional group when { required fixed_len_byte_array(12) span (INTERVAL); }` and one row.
#[test]
fn parquet_columns_of_intervals_and_bytes_are_rejected_unless_they_are_skipped() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/data/cases/interval.parquet");
    for (column, expected) in [("when", "an INTERVAL"), ("raw", "bytes")] {
        let rejected = read(&path).unwrap().select(&["text", column]).unwrap_err().to_string();
        assert!(rejected.contains(&format!("column `{column}`: {expected} where")), "{rejected}");
    }
    assert!(read(&path).unwrap().next().unwrap().is_err());
    let mut table = read(&path).unwrap();
    table.select(&["text"]).unwrap();
    assert_eq!(table.next().unwrap().unwrap().text(&["text"]).unwrap(), "a");
}

/// `bytes` with `changed` from byte `start` on.
fn patched(mut bytes: Vec<u8>, patches: &[(usize, &[u8])]) -> Vec<u8> {
    for &(start, changed) in patches {
        bytes[start..start + changed.len()].copy_from_slice(changed);
    }
    bytes
}

#[test]
fn damaged_parquet_is_an_error_that_names_the_file() {
    let (delta, plain) =
        (include_bytes!("damaged/delta.parquet"), include_bytes!("damaged/plain.parquet"));
    let valid = patched(delta.to_vec(), &[(249, &[122])]);
    assert!(rows("d.parquet", &valid).is_ok());
    // What the fuzzer's other files have in place of the bytes of the valid one.
    let large = [255, 255, 255, 255, 255, 255, 255, 127];
    let changes: [&[(usize, &[u8])]; 6] = [
        &[(347, &[255]), (1559, &[104])],
        &[(253, &[0; 54])],
        &[(335, &[0; 17])],
        &[(332, &large)],
        &[(275, &large)],
        &[(325, &large)],
    ];
    let other = patched(plain.to_vec(), &[(12_992, &[136]), (13_163, &[127]), (13_225, &[82])]);
    let mut files = vec![delta.to_vec(), plain.to_vec(), other];
    files.extend(changes.map(|changes| patched(valid.clone(), changes)));
    for (i, bytes) in files.iter().enumerate() {
        let error = rows("d.parquet", bytes).unwrap_err();
        assert!(error.contains("`d.parquet`"), "{i}: {error}");
    }
}

#[test]
fn a_panic_of_the_parquet_decoder_prints_nothing() {
    let name = "data::table::tests::damaged_parquet_is_an_error_that_names_the_file";
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let output = program.args(["--exact", name, "--nocapture"]).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}
