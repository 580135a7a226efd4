//! Reads the files that were located, and says what a reader of the results must know of them.

use std::collections::HashSet;
use std::path::Path;

use super::generate::ReasoningMark;
use super::{
    ChoiceItem, ItemSplit, ReasoningData, ReasoningError, ReasoningSet, locate, read_items,
};
use crate::data::{FileSet, Origin, SplitName, describe, limit};

/// Finds and reads both splits of `set` below `data_dir`.
///
/// # Errors
///
/// Those of [`locate()`] and of the readers.
pub fn load(data_dir: &Path, set: ReasoningSet) -> Result<ReasoningData, ReasoningError> {
    load_first(data_dir, set, None)
}

/// As [`load`], with the first `rows` validation items, or all.
///
/// # Errors
///
/// As [`load`].
pub fn load_first(
    data_dir: &Path,
    set: ReasoningSet,
    rows: Option<usize>,
) -> Result<ReasoningData, ReasoningError> {
    let located = locate(data_dir, set)?;
    let mut train = read_split(&located.train, set)?;
    let mut validation = read_split(&located.validation, set)?;
    let mut notes = Vec::new();
    if let Some(mark) = ReasoningMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        notes.extend(mark.notes(set, &file_names(&train), &file_names(&validation), rows));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, set)));
    let shared = shared_items(&train, &validation);
    if shared > 0 {
        let all = validation.rows();
        notes.push(format!("{shared} of {all} validation items occur in the train split too"));
    }
    if let Some(note) = limit(&mut validation.items, rows) {
        if validation.origin == Origin::Official {
            validation.origin = Origin::Subset;
        }
        notes.push(note);
    }
    Ok(ReasoningData { set, train, validation, notes })
}

/// Reads one split.
///
/// The origin `Official` is kept only where the number of rows is the published one.
///
/// # Errors
///
/// Those of the readers.
pub fn read_split(files: &FileSet, set: ReasoningSet) -> Result<ItemSplit, ReasoningError> {
    let mut items = Vec::new();
    let mut sources = Vec::new();
    for file in &files.files {
        items.extend(read_items(file, files.format, set, items.len())?);
        sources.push(describe(file)?);
    }
    let origin = match files.origin {
        Origin::Official if items.len() != published(set, files.split) => Origin::Unverified,
        origin => origin,
    };
    Ok(ItemSplit { name: files.split, origin, files: sources, items })
}

const fn published(set: ReasoningSet, split: SplitName) -> usize {
    match split {
        SplitName::Train => set.spec().n_train,
        SplitName::Validation => set.spec().n_validation,
    }
}

/// Names of a split's files, without their folder.
fn file_names(split: &ItemSplit) -> Vec<String> {
    let names = split.files.iter().filter_map(|file| file.path.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &ItemSplit, set: ReasoningSet) -> Option<String> {
    let (name, rows, described) = (split.name, split.rows(), split.describe());
    let files = file_names(split).join(", ");
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => Some(format!(
            "{name}: {described} (`{files}`), {rows} rows; the published split has {}",
            published(set, name)
        )),
        Origin::LocalSplit => Some(format!("{name}: {described} (`{files}`), {rows} rows")),
    }
}

/// Number of validation items whose texts are those of a train item.
fn shared_items(train: &ItemSplit, validation: &ItemSplit) -> usize {
    fn texts(item: &ChoiceItem) -> (Option<&str>, &str, Vec<&str>) {
        let choices = item.choices.iter().map(|choice| choice.text.as_str()).collect();
        (item.passage.as_deref(), &item.question, choices)
    }
    let known: HashSet<_> = train.items.iter().map(texts).collect();
    validation.items.iter().filter(|item| known.contains(&texts(item))).count()
}
