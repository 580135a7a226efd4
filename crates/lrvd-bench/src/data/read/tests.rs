#![allow(clippy::print_stderr, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::data::{Dataset, Origin, Split, load};

fn examples(file: &Path, format: Format, task: Task) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    read_examples(file, format, task, &mut examples)?;
    Ok(examples)
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
fn rows_are_read_or_rejected_with_their_place() {
    let groups: BTreeMap<String, Vec<(Task, String)>> =
        serde_json::from_str(include_str!("../cases/read.json")).unwrap();
    let (dir, mut found) = (tempfile::tempdir().unwrap(), String::new());
    for (group, cases) in groups {
        let file = dir.path().join(format!("d.{}", group.split(' ').next().unwrap()));
        for (task, text) in cases {
            std::fs::write(&file, &text).unwrap();
            writeln!(found, "{task} {text:?}").unwrap();
            show(&mut found, examples(&file, Format::of(&file).unwrap(), task), dir.path());
        }
    }
    insta::assert_snapshot!(found);
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn parquet_files_of_another_writer_are_read() {
    use Task::{ArcC, Cola, Qnli, Rte, Stsb};
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
        show(&mut found, examples(&golden().join(name), Format::Parquet, task), &golden());
    }
    insta::assert_snapshot!(found);
}

/// Each class's rows, or all where one number is expected.
fn counts(split: &Split, expected: &[usize]) -> Vec<usize> {
    let of = |id| split.examples.iter().filter(|e| e.label.class() == Some(id)).count();
    if expected.len() == 1 { vec![split.rows()] } else { (0..expected.len()).map(of).collect() }
}

/// Where `LRVD_SHARED_DIR`, or `shared` beside the workspace, has the data.
#[test]
fn real_folders_have_their_published_rows() {
    use Origin::{LocalSplit, Official, Subset};
    type Counts = [&'static [usize]; 2];
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("LRVD_SHARED_DIR").map_or(beside, PathBuf::from);
    let folders: [(Task, [Origin; 2], Counts); 14] = [
        (Task::Cola, [Official, Official], [&[2528, 6023], &[322, 721]]),
        (Task::Sst2, [Official, Official], [&[29780, 37569], &[428, 444]]),
        (Task::Mrpc, [Official, Official], [&[1194, 2474], &[129, 279]]),
        (Task::Qqp, [Subset, Subset], [&[5747, 3252], &[4871, 2729]]),
        (Task::Mnli, [Subset, Subset], [&[8999], &[2681, 2353, 2435]]),
        (Task::Qnli, [Subset, Official], [&[8999], &[2702, 2761]]),
        (Task::Rte, [LocalSplit, LocalSplit], [&[1992], &[498]]),
        (Task::Stsb, [Official, Official], [&[5749], &[1500]]),
        (Task::WgS, [Official, LocalSplit], [&[320, 320], &[1266]]),
        (Task::WgM, [Official, LocalSplit], [&[1279, 1279], &[1266]]),
        (Task::ArcC, [Official, Official], [&[1119], &[299]]),
        (Task::ArcE, [Official, Official], [&[2251], &[570]]),
        (Task::Obqa, [LocalSplit, LocalSplit], [&[3966], &[991]]),
        (Task::BoolQ, [Subset, Official], [&[759, 1241], &[3270]]),
    ];
    for (task, origins, [rows, held_out]) in folders {
        let folder = if task.is_question() { "data/reasoning" } else { "data/glue" };
        let folder = shared.join(folder);
        if !folder.is_dir() {
            eprintln!("skipped: no `{}`", folder.display());
            continue;
        }
        let Dataset { train, validation, notes, .. } = load(&folder, task, None).unwrap();
        assert_eq!([train.origin, validation.origin], origins, "{task}");
        assert_eq!(counts(&train, rows), rows, "{task}");
        assert_eq!(counts(&validation, held_out), held_out, "{task}");
        assert!(origins == [Official; 2] || !notes.is_empty(), "{task}");
    }
}

/// Rows without their places.
fn plain(examples: &[Example]) -> Vec<(&str, &Input, Label)> {
    examples.iter().map(|e| (e.id.as_str(), &e.input, e.label)).collect()
}

#[test]
fn shards_of_the_hub_hold_the_same_items() {
    let folder = golden().join("reasoning");
    for set in Task::reasoning() {
        let data = load(&folder.join("parquet"), set, None).unwrap();
        let items = folder.join(format!("items/{set}.jsonl"));
        let mut expected = examples(&items, Format::Jsonl, set).unwrap();
        if matches!(set, Task::WgS | Task::WgM) {
            // The hub drops this set's ids.
            expected.iter_mut().enumerate().for_each(|(row, item)| item.id = row.to_string());
        }
        assert_eq!(plain(&data.train.examples), plain(&expected), "{set}");
        assert_eq!(data.train.origin, Origin::Unverified);
        assert_eq!(plain(&data.validation.examples), plain(&expected), "{set}");
        assert_eq!(data.notes.len(), 3, "{:?}", data.notes);
    }
    let file = folder.join("parquet/other/boolq-super-glue.parquet");
    let items = examples(&file, Format::Parquet, Task::BoolQ).unwrap();
    let read: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.label)).collect();
    assert_eq!(read, [("7", Label::Class(1)), ("8", Label::Class(0))]);
}
