//! Items of a set from one file.

mod interpret;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{ChoiceItem, ReasoningError, ReasoningSet};
use crate::data::table::{Format, Layout, Table};

/// Reads a file of one set, whose first row is number `first` of its split.
///
/// Accepts the layout of the authors' release and the columns of the public hub. Other fields are allowed and not
/// read.
///
/// # Errors
///
/// The first bad row by file, line or row, and field: a field that is missing, blank or of the wrong type, an answer
/// that is none of the choices, a choice list that is too long or too short, labels that repeat or are out of order, a
/// sentence without a blank; [`crate::data::TableError::Empty`] for a file without rows.
pub fn read_items(
    file: &Path,
    format: Format,
    set: ReasoningSet,
    first: usize,
) -> Result<Vec<ChoiceItem>, ReasoningError> {
    let rows = Table::open(file, &Layout::of(format))?.enumerate();
    rows.map(|(row, record)| interpret::item(&record?, set, first + row)).collect()
}
