//! A position in a data file.

use std::fmt;
use std::path::PathBuf;

/// A position within a data file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// A line of a text file; the header is line 1.
    Line(usize),
    /// A row of a columnar file.
    Row(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    pub at: At,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.at {
            At::Line(number) => write!(f, "`{file}`, line {number}"),
            At::Row(number) => write!(f, "`{file}`, row {number}"),
        }
    }
}

pub(super) fn any_of(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
