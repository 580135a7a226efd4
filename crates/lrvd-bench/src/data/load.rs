//! Reads the files that were located, and says what a reader of the results must know of them.

use std::collections::HashSet;
use std::path::Path;

use anyhow::bail;
use lrvd_core::noise::{NoiseKey, Stream, permutation};

use super::mark::GeneratedMark;
use super::table::{Format, Layout, Table};
use super::{
    Dataset, Example, FileSet, Origin, SourceFile, Split, SplitName, locate, read_examples,
};
use crate::error::Result;
use crate::io::{cannot, sha256_file};
use crate::task::GlueTask;

/// Columns of the list of dev pairs, which has no header.
const PAIR: &[&str] = &["#1 ID", "#2 ID"];

pub(crate) fn load(data_dir: &Path, task: GlueTask) -> Result<Dataset> {
    let located = locate(data_dir, task)?;
    let mut train = read_files(&located.train, task)?;
    let mut validation = read_files(&located.validation, task)?;
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let (train, validation) = (train.file_names(), validation.file_names());
        notes.extend(mark.notes(task.display_name(), "labels", &train, &validation, None));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, task)));
    notes.extend(validation.note_shared(&train, "texts", |e| (&e.text_a, &e.text_b)));
    Ok(Dataset { task, train, validation, notes })
}

/// Reads one split.
///
/// The origin `Official` is kept only where the number of rows is the published one.
pub(crate) fn read_files(set: &FileSet, task: GlueTask) -> Result<Split> {
    let mut examples = Vec::new();
    for file in &set.files {
        examples.extend(read_examples(file, set.format, task)?);
    }
    if let Some(list) = &set.dev_pairs {
        examples = chosen_pairs(examples, list, set.split)?;
    }
    let sources = set.files.iter().chain(&set.dev_pairs);
    let files = sources.map(|file| describe(file)).collect::<Result<_, _>>()?;
    let spec = task.spec();
    let published = match set.split {
        SplitName::Train => spec.n_train,
        SplitName::Validation => spec.n_validation,
    };
    let origin = match set.origin {
        Origin::Official if examples.len() != published => Origin::Unverified,
        origin => origin,
    };
    Ok(Split { name: set.split, origin, files, examples })
}

/// The pairs of the corpus that the list names (validation) or does not (train), in the corpus's order.
fn chosen_pairs(examples: Vec<Example>, list: &Path, split: SplitName) -> Result<Vec<Example>> {
    let layout = Layout { unnamed: Some(PAIR), ..Layout::of(Format::Tsv) };
    let mut listed = HashSet::new();
    for row in Table::open(list, &layout)? {
        let row = row?;
        listed.insert(format!("{}-{}", row.text(&PAIR[..1])?, row.text(&PAIR[1..])?));
    }
    let n_listed = listed.len();
    let (chosen, rest): (Vec<_>, Vec<_>) =
        examples.into_iter().partition(|example| listed.contains(&example.id));
    if chosen.len() != n_listed || chosen.is_empty() {
        let (wanted, found) = (n_listed, chosen.len());
        bail!("`{}` names {wanted} pairs, of which the corpus has {found}", list.display());
    }
    Ok(match split {
        SplitName::Train => rest,
        SplitName::Validation => chosen,
    })
}

pub(crate) fn describe(path: &Path) -> Result<SourceFile> {
    let bytes = std::fs::metadata(path).map_err(cannot("read", path))?.len();
    Ok(SourceFile { path: path.into(), bytes, sha256: sha256_file(path)? })
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split, task: GlueTask) -> Option<String> {
    let spec = task.spec();
    let published = match split.name {
        SplitName::Train => spec.n_train,
        SplitName::Validation => spec.n_validation,
    };
    let (name, rows, described) = (split.name, split.rows(), split.describe());
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => {
            Some(format!("{name}: {described}, {rows} rows; the published split has {published}"))
        }
        Origin::LocalSplit => Some(format!("{name}: {described}, {rows} rows")),
    }
}

/// Cuts validation `rows` to the first `most` and says so.
pub(crate) fn limit<T>(rows: &mut Vec<T>, most: Option<usize>) -> Option<String> {
    let most = most.filter(|&most| most < rows.len())?;
    let all = rows.len();
    rows.truncate(most);
    Some(format!("evaluated on the first {most} of {all} validation rows"))
}

/// Cuts training `rows` to `most` drawn without replacement, in their order, and says so. The same rows
/// whatever the seed of the run: seeds then differ in nothing but training.
pub(crate) fn sample<T>(rows: &mut Vec<T>, most: Option<usize>) -> Option<String> {
    let most = most.filter(|&most| most < rows.len())?;
    let all = rows.len();
    *rows = drawn(std::mem::take(rows), most, 0).0;
    Some(format!("trained on {most} of {all} rows, drawn at random"))
}

/// `wanted` of the `rows`, and the others, drawn by `seed`; both in their order. Seed 0 is for what is drawn once and for
/// all runs.
pub(crate) fn drawn<T>(rows: Vec<T>, wanted: usize, seed: u64) -> (Vec<T>, Vec<T>) {
    let order = permutation(NoiseKey::new(seed).on_stream(Stream::DATA), rows.len());
    let mut is_drawn = vec![false; rows.len()];
    order[..wanted.min(rows.len())].iter().for_each(|&row| is_drawn[row] = true);
    let mut is_drawn = is_drawn.into_iter();
    rows.into_iter().partition(|_| is_drawn.next().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn a_sample_keeps_its_order_and_is_always_the_same() {
        let drawn = |most: usize| {
            let mut rows: Vec<usize> = (0..100).collect();
            let note = sample(&mut rows, Some(most));
            (rows, note)
        };
        let (rows, note) = drawn(30);
        assert_eq!((rows.len(), rows.is_sorted()), (30, true));
        assert_eq!(note.unwrap(), "trained on 30 of 100 rows, drawn at random");
        assert_eq!(drawn(30).0, rows);
        // Not the first ones, and more rows are these and others.
        assert!(rows[29] > 60 && drawn(60).0.iter().filter(|row| rows.contains(row)).count() == 30);
        assert_eq!(drawn(100), ((0..100).collect(), None));
    }

    #[test]
    fn splits_are_hashed_counted_and_labelled_honestly() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("SST-2");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("train.tsv"), "sentence\tlabel\nfine\t1\npoor\t0\n").unwrap();
        fs::write(folder.join("dev.tsv"), "sentence\tlabel\npoor\t0\n").unwrap();
        let data = load(dir.path(), GlueTask::Sst2).unwrap();
        assert_eq!((data.train.rows(), data.validation.rows()), (2, 1));
        assert_eq!(data.validation.origin, Origin::Unverified);
        let classes: Vec<_> = data.train.examples.iter().map(|e| e.label.class()).collect();
        assert_eq!(classes, [Some(1), Some(0)]);
        // Digest from `sha256sum`.
        assert_eq!(data.validation.files[0].bytes, 22);
        assert_eq!(
            data.validation.files[0].sha256,
            "887ba5f65d3379931644f10fdc670ed6e906d90de7e33e7b1a724f1bd4eb7b39"
        );
        assert_eq!(
            data.notes,
            [
                "train: train of unknown origin, 2 rows; the published split has 67349",
                "validation: dev of unknown origin, 1 rows; the published split has 872",
                "1 of 1 validation texts occur in the train split too",
            ]
        );
    }

    #[test]
    fn the_corpus_is_split_by_its_list_of_dev_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("MRPC");
        fs::create_dir(&folder).unwrap();
        let corpus = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n\
                      1\t1\t2\ta\tb\n0\t3\t4\tc\td\n1\t5\t6\te\tf\n0\t7\t8\tg\th\n";
        fs::write(folder.join("msr_paraphrase_train.txt"), corpus).unwrap();
        fs::write(folder.join("dev_ids.tsv"), "7\t8\r\n3\t4\r\n").unwrap();
        let data = load(dir.path(), GlueTask::Mrpc).unwrap();
        let ids = |split: &Split| split.examples.iter().map(|e| e.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&data.train), ["1-2", "5-6"]);
        assert_eq!(ids(&data.validation), ["3-4", "7-8"]);
        assert_eq!(data.train.files.len(), 2);
        fs::write(folder.join("dev_ids.tsv"), "7\t8\n3\t9\n").unwrap();
        let error = load(dir.path(), GlueTask::Mrpc).unwrap_err().to_string();
        assert!(error.contains("names 2 pairs, of which the corpus has 1"), "{error}");
    }

    #[test]
    fn shards_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cola");
        fs::create_dir(&folder).unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/data");
        for shard in ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"] {
            fs::copy(golden.join(format!("cola-{shard}")), folder.join(shard)).unwrap();
        }
        fs::write(folder.join("validation.jsonl"), "{\"sentence\":\"A\",\"label\":0}\n").unwrap();
        let data = load(dir.path(), GlueTask::Cola).unwrap();
        let ids: Vec<_> = data.train.examples.iter().map(|e| e.id.as_str()).collect();
        assert_eq!(ids, ["0", "1", "2"]);
    }
}
