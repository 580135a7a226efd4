//! Items of a set from one file.

mod interpret;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{ChoiceItem, ReasoningSet};
use crate::data::table::{Format, Layout, Table};
use crate::error::Result;

/// Reads a file of one set, whose first row is number `first` of its split.
///
/// Accepts the layout of the authors' release and the columns of the public hub. Other fields are allowed and not
/// read.
pub fn read_items(
    file: &Path,
    format: Format,
    set: ReasoningSet,
    first: usize,
) -> Result<Vec<ChoiceItem>> {
    let rows = Table::open(file, &Layout::of(format))?.enumerate();
    rows.map(|(row, record)| interpret::item(&record?, set, first + row)).collect()
}
