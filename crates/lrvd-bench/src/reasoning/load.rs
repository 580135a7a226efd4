//! Reads the files that were located, and says what a reader of the results must know of them.

use std::path::Path;

use super::{ChoiceItem, ReasoningData, ReasoningSet, locate, read_items};
use crate::data::mark::GeneratedMark;
use crate::data::{FileSet, Origin, Split, SplitName, describe, limit};
use crate::error::Result;

pub fn load(data_dir: &Path, set: ReasoningSet) -> Result<ReasoningData> {
    load_first(data_dir, set, None)
}

pub(crate) fn load_first(
    data_dir: &Path,
    set: ReasoningSet,
    rows: Option<usize>,
) -> Result<ReasoningData> {
    let located = locate(data_dir, set)?;
    let mut train = read_split(&located.train, set)?;
    let mut validation = read_split(&located.validation, set)?;
    let mut notes = Vec::new();
    if let Some(mark) = GeneratedMark::read(&located.folder)? {
        train.origin = Origin::Generated;
        validation.origin = Origin::Generated;
        let (train, validation) = (train.file_names(), validation.file_names());
        notes.extend(mark.notes(set.display_name(), "answers", &train, &validation, rows));
    }
    notes.extend([&train, &validation].into_iter().filter_map(|split| note(split, set)));
    notes.extend(validation.note_shared(&train, "items", |item| {
        let choices: Vec<&str> = item.choices.iter().map(|choice| choice.text.as_str()).collect();
        (&item.passage, &item.question, choices)
    }));
    if let Some(note) = limit(&mut validation.examples, rows) {
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
pub(crate) fn read_split(files: &FileSet, set: ReasoningSet) -> Result<Split<ChoiceItem>> {
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
    Ok(Split { name: files.split, origin, files: sources, examples: items })
}

const fn published(set: ReasoningSet, split: SplitName) -> usize {
    match split {
        SplitName::Train => set.spec().n_train,
        SplitName::Validation => set.spec().n_validation,
    }
}

/// Why metrics on a split cannot stand beside published ones; `None` where they can.
fn note(split: &Split<ChoiceItem>, set: ReasoningSet) -> Option<String> {
    let (name, rows, described) = (split.name, split.rows(), split.describe());
    let files = split.file_names().join(", ");
    match split.origin {
        Origin::Official | Origin::Generated => None,
        Origin::Unverified | Origin::Subset => Some(format!(
            "{name}: {described} (`{files}`), {rows} rows; the published split has {}",
            published(set, name)
        )),
        Origin::LocalSplit => Some(format!("{name}: {described} (`{files}`), {rows} rows")),
    }
}
