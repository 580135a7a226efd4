//! Which items does a file hold?
//!
//! | File       | Holds                                                                    |
//! |------------|--------------------------------------------------------------------------|
//! | `jsonl`    | one object a line: the layouts of the authors, and the hub's columns     |
//! | `parquet`  | the hub's shards; a row becomes the same kind of object                  |
//! | `record`   | one object and where it is; typed access to its fields                   |
//! | `interpret`| what the fields of each set mean                                         |

mod interpret;
mod jsonl;
mod parquet;
mod record;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{ChoiceItem, ReasoningError, ReasoningSet};
use crate::data::Format;
use record::Record;

/// Reads a JSONL file of one set.
///
/// Accepts the layout of the authors' release and, as JSONL, the columns of the public hub. Other fields are allowed
/// and not read.
///
/// # Errors
///
/// The first bad row by file, line and field: a field that is missing, blank or of the wrong type, an answer that is
/// none of the choices, a choice list that is too long or too short, labels that repeat or are out of order, a
/// sentence without a blank; [`crate::data::DataError::Empty`] for a file without lines.
pub fn read_jsonl(file: &Path, set: ReasoningSet) -> Result<Vec<ChoiceItem>, ReasoningError> {
    items(jsonl::records(file)?, set, 0)
}

/// Reads one parquet file with the columns of the public hub.
///
/// # Errors
///
/// As [`read_jsonl`], by row; [`crate::data::DataError::Parquet`] for a file that does not decode.
pub fn read_parquet(file: &Path, set: ReasoningSet) -> Result<Vec<ChoiceItem>, ReasoningError> {
    items(parquet::records(file)?, set, 0)
}

/// Reads a file in the given format, whose first row is number `first` of its split.
pub(super) fn read(
    file: &Path,
    format: Format,
    set: ReasoningSet,
    first: usize,
) -> Result<Vec<ChoiceItem>, ReasoningError> {
    let records = match format {
        Format::Parquet => parquet::records(file)?,
        // The sets have no tab-separated layout, and `locate` looks for none.
        Format::Jsonl | Format::Tsv => jsonl::records(file)?,
    };
    items(records, set, first)
}

fn items(
    records: Vec<Record>,
    set: ReasoningSet,
    first: usize,
) -> Result<Vec<ChoiceItem>, ReasoningError> {
    let numbered = records.iter().enumerate();
    numbered.map(|(row, record)| interpret::item(record, set, first + row)).collect()
}
