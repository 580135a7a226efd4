//! Row counts of the real files, where they lie beside the workspace; without them the test says so and passes.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use super::{Format, Origin, load, read_examples};
use crate::task::GlueTask;

/// The folder `glue`, named by `LRVD_SHARED_DIR` or in `shared` beside the workspace.
fn data() -> Option<PathBuf> {
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
    let Some(data) = data() else { return };
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
        for (id, wanted) in class_counts.into_iter().enumerate() {
            let found = examples.iter().filter(|e| e.label.class() == Some(id)).count();
            assert_eq!(found, wanted, "{file} class {id}");
        }
    }
    let jsonl = read_examples(&data.join("superglue/RTE/train.jsonl"), Format::Jsonl, Rte).unwrap();
    let tsv = read_examples(&data.join("glue/RTE/train.tsv"), Format::Tsv, Rte).unwrap();
    assert_eq!(jsonl.len(), 2490);
    assert!(jsonl.iter().zip(&tsv).all(|(a, b)| a.label == b.label && a.id == b.id));
}

#[test]
fn real_folders_are_located_and_labelled() {
    let Some(data) = data() else { return };
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
    let Some(data) = data() else { return };
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
