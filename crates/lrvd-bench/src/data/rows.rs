//! How the rows of a user's file are read: keys that are left out, and rows that cannot be used.

use serde_json::Value;

use super::columns::{ID, leads_to};
use super::table::{BadRow, Place, Row, SourceFile, Table};
use crate::error::{Error, Result};
use crate::unused::Unused;

/// Treatment of a row that cannot be used: a blank text, an unknown label, a broken line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum OnError {
    /// The row is an error.
    #[default]
    Stop,
    /// The row is left out, and counted.
    Skip,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ReadOptions {
    /// Read rows and messages as if they had no such keys or columns, comma-separated: `tools`, `reasoning_content`.
    #[cfg_attr(
        feature = "cli",
        arg(long, value_delimiter = ',', value_name = "A,B", hide_short_help = true)
    )]
    pub drop_keys: Vec<String>,
    /// Stop at a row that cannot be used, or skip and count it [default: stop].
    ///
    /// `data check` counts all of them by default.
    #[cfg_attr(
        feature = "cli",
        arg(long, value_enum, value_name = "stop|skip", hide_short_help = true)
    )]
    pub on_error: Option<OnError>,
}

/// Reads rows as the options say, and counts what it does not use.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) options: &'a ReadOptions,
    pub(crate) unused: &'a mut Unused,
}

impl Rows<'_> {
    pub(crate) fn drops(&self, key: &str) -> bool {
        self.options.drop_keys.iter().any(|dropped| dropped == key)
    }

    /// The value of a row; `None` of a row that is left out.
    pub(crate) fn kept<T>(&mut self, row: Result<T>) -> Result<Option<T>> {
        match row {
            Err(error) if self.options.on_error == Some(OnError::Skip) => {
                self.unused.leave_out(&error);
                Ok(None)
            }
            row => row.map(Some),
        }
    }

    /// The rows of `table`, of which `columns` are used, and are decoded alone where a format allows that.
    pub(crate) fn read<T>(
        &mut self,
        mut table: Table,
        columns: &[&str],
        mut read: impl FnMut(&mut Self, usize, &Row) -> Result<T>,
    ) -> Result<(Vec<T>, SourceFile)> {
        let is_keyed = self.note_columns(&table, columns);
        table.select(columns)?;
        let mut rows = Vec::new();
        let mut first = None;
        for (number, row) in table.by_ref().enumerate() {
            let row = match row {
                // Behind another error there is no further row.
                Err(error) if BadRow::at(&error).is_none() => return Err(error),
                row => row,
            };
            let row = row.and_then(|row| {
                if is_keyed {
                    self.note_keys(&row, columns);
                }
                read(self, number, &row)
            });
            if first.is_none()
                && let Err(error) = &row
            {
                first = Some(error.to_string());
            }
            rows.extend(self.kept(row)?);
        }
        if let (true, Some(first)) = (rows.is_empty(), first) {
            return Err(Error::msg(format!("no row can be used; the first error: {first}")));
        }
        Ok((rows, table.source()?))
    }

    /// Counts the columns that are not used; `true` if there are none, as each row has keys.
    fn note_columns(&mut self, table: &Table, columns: &[&str]) -> bool {
        let Some(names) = table.columns() else { return true };
        let is_other = |name: &&String| !columns.contains(&name.as_str()) && !self.drops(name);
        let others: Vec<&String> = names.iter().filter(is_other).collect();
        self.unused.add_names("column", &others, format_args!("`{}`", table.file().display()));
        false
    }

    fn note_keys(&mut self, row: &Row, columns: &[&str]) {
        for (name, value) in row.keys().iter().zip(&row.cells) {
            self.note_key(name, value, columns, &row.place);
        }
    }

    /// Counts the key at `path` if it is not used, or those within it that are not.
    fn note_key(&mut self, path: &str, value: &Value, columns: &[&str], place: &Place) {
        if columns.contains(&path) || self.drops(path) {
            return;
        }
        match value {
            Value::Object(inner) if columns.iter().any(|column| leads_to(path, column)) => {
                for (key, value) in inner {
                    self.note_key(&format!("{path}.{key}"), value, columns, place);
                }
            }
            _ => self.unused.add(format!("key `{path}`"), place),
        }
    }
}

/// The row's own id, or its number.
pub(super) fn row_id(row: &Row, number: usize) -> Result<String> {
    Ok(row.id(&[&[ID]])?.unwrap_or_else(|| number.to_string()))
}
