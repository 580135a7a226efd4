#![allow(clippy::print_stderr, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::data::{Dataset, Origin, load};

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
        serde_json::from_str(include_str!("../../cases/read.json")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut found = String::new();
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
    let mut found = String::new();
    // Of the fourth, the columns are in another order than the schema's.
    for line in include_str!("../../cases/parquet.txt").lines() {
        let (task, name) = line.split_once(' ').unwrap();
        let task = Task::named("task", task, Task::ALL.into_iter()).unwrap();
        writeln!(found, "{task} {name}").unwrap();
        show(&mut found, examples(&golden().join(name), Format::Parquet, task), &golden());
    }
    insta::assert_snapshot!(found);
}

/// Runs if `LRVD_SHARED_DIR`, or `shared` beside the workspace, has the data.
#[test]
fn real_folders_have_their_published_rows() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("LRVD_SHARED_DIR").map_or(beside, PathBuf::from);
    if !["data/glue", "data/reasoning"].iter().all(|data| shared.join(data).is_dir()) {
        eprintln!("skipped: no data in `{}`", shared.display());
        return;
    }
    let mut found = String::new();
    for task in Task::ALL.into_iter().filter(|task| *task != Task::Wnli) {
        let folder = if task.is_question() { "data/reasoning" } else { "data/glue" };
        let Dataset { train, validation, notes, .. } =
            load(&shared.join(folder), task, None).unwrap();
        writeln!(found, "{task}").unwrap();
        for split in [train, validation] {
            let mut classes = BTreeMap::<_, usize>::new();
            split.examples.iter().for_each(|e| *classes.entry(e.label.class()).or_default() += 1);
            writeln!(found, "    {} {:?} {classes:?}", split.name, split.origin).unwrap();
        }
        for note in &notes {
            writeln!(found, "    {note}").unwrap();
        }
    }
    insta::assert_snapshot!(found);
}

/// Rows without their places.
fn plain(examples: &[Example]) -> Vec<(&str, &Input, Label)> {
    examples.iter().map(|e| (e.id.as_str(), &e.input, e.label.clone())).collect()
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
    let read: Vec<_> = items.iter().map(|item| (item.id.as_str(), item.label.clone())).collect();
    assert_eq!(read, [("7", Label::Class(1)), ("8", Label::Class(0))]);
}
