//! One row of a table: values by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{anyhow, bail};

use super::place::any_of;
use super::{At, Cell, Place};
use crate::error::{Error, Result};
use crate::text::quoted;

#[derive(Debug, Clone)]
pub struct Row {
    place: Place,
    names: Arc<[String]>,
    /// Whether the names are those of this row alone, not of a header or schema.
    keyed: bool,
    cells: Vec<Cell>,
}

impl Row {
    /// A row whose names are those of the whole table.
    pub(super) fn under(names: Arc<[String]>, place: Place, cells: Vec<Cell>) -> Self {
        Self { place, names, keyed: false, cells }
    }

    pub(super) fn keyed(place: Place, fields: Vec<(String, Cell)>) -> Self {
        let (names, cells): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Self { place, names: names.into(), keyed: true, cells }
    }

    pub(super) fn separated<'a>(
        names: &Arc<[String]>,
        place: Place,
        separator: &'static str,
        fields: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let cells: Vec<Cell> = fields.map(|field| Cell::Text(field.to_owned())).collect();
        if cells.len() != names.len() {
            let (wanted, found) = (names.len(), cells.len());
            bail!(
                "{place}: {found} {separator}-separated fields where {wanted} are expected ({})",
                names.join(", ")
            );
        }
        Ok(Self::under(Arc::clone(names), place, cells))
    }

    pub const fn place(&self) -> &Place {
        &self.place
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The first of `wanted` that the row has, with its name.
    pub fn find<'a>(&self, wanted: &[&'a str]) -> Result<(&'a str, &Cell)> {
        for name in wanted {
            if let Some(cell) = self.get(name)? {
                return Ok((*name, cell));
            }
        }
        let (place, wanted) = (&self.place, any_of(wanted));
        Err(if self.keyed {
            let mut found = self.names.to_vec();
            found.sort_unstable();
            anyhow!("{place}: no key {wanted}; the keys are {}", quoted(found))
        } else {
            anyhow!(
                "`{}` has no column {wanted}; its columns are {}",
                place.file.display(),
                quoted(&*self.names)
            )
        })
    }

    /// The text under the first of `wanted` that the row has, verbatim.
    pub fn text(&self, wanted: &[&str]) -> Result<&str> {
        let (name, cell) = self.find(wanted)?;
        self.as_text(cell, name)
    }

    fn get(&self, name: &str) -> Result<Option<&Cell>> {
        let mut places = (0..self.names.len()).filter(|&i| self.names[i] == name);
        let first = places.next();
        match places.count() {
            0 => Ok(first.map(|i| &self.cells[i])),
            more => {
                let mut place = self.place.clone();
                if !self.keyed {
                    place.at = At::Line(1);
                }
                Err(anyhow!("{place}: `{name}` occurs {} times, wanted one such column", more + 1))
            }
        }
    }

    /// The first of the ids, each of one or more columns, that the row has as texts or whole numbers; parts are
    /// joined by a hyphen.
    pub(crate) fn id(&self, ids: &[&[&str]]) -> Result<Option<String>> {
        for set in ids {
            let mut parts = Vec::new();
            for name in *set {
                parts.extend(match self.get(name)? {
                    Some(cell @ (Cell::Text(_) | Cell::Integer(_))) => cell.plain(),
                    _ => None,
                });
            }
            if parts.len() == set.len() {
                return Ok(Some(parts.join("-")));
            }
        }
        Ok(None)
    }

    /// A text that is not blank, verbatim; `column` is its full name.
    pub(crate) fn as_text<'a>(&self, cell: &'a Cell, column: &str) -> Result<&'a str> {
        let Cell::Text(text) = cell else { return Err(self.wrong_type(column, "a string", cell)) };
        if text.trim().is_empty() {
            return Err(self.blank(column, "text"));
        }
        Ok(text)
    }

    pub(crate) fn as_object<'a>(
        &self,
        cell: &'a Cell,
        column: &str,
    ) -> Result<&'a BTreeMap<String, Cell>> {
        match cell {
            Cell::Object(object) => Ok(object),
            other => Err(self.wrong_type(column, "an object", other)),
        }
    }

    /// A field of an object within the row: the one named by the last part of `path`.
    fn within<'a>(&self, object: &'a BTreeMap<String, Cell>, path: &str) -> Result<&'a Cell> {
        let key = path.rsplit('.').next().unwrap_or(path);
        object.get(key).ok_or_else(|| {
            anyhow!("{}: no key `{path}`; the keys are {}", self.place, quoted(object.keys()))
        })
    }

    /// A text field of an object within the row; `path` is its full name.
    pub(crate) fn text_within<'a>(
        &self,
        object: &'a BTreeMap<String, Cell>,
        path: &str,
    ) -> Result<&'a str> {
        self.as_text(self.within(object, path)?, path)
    }

    /// A list field of an object within the row; `path` is its full name.
    pub(crate) fn list_within<'a>(
        &self,
        object: &'a BTreeMap<String, Cell>,
        path: &str,
    ) -> Result<&'a [Cell]> {
        match self.within(object, path)? {
            Cell::List(items) => Ok(items),
            other => Err(self.wrong_type(path, "a list", other)),
        }
    }

    /// The error of a value that has another type than `wanted`.
    pub(crate) fn wrong_type(&self, column: &str, wanted: &'static str, cell: &Cell) -> Error {
        let (place, found) = (&self.place, cell.kind());
        anyhow!("{place}, column `{column}`: {found} where {wanted} is expected")
    }

    pub(crate) fn blank(&self, column: &str, what: &'static str) -> Error {
        anyhow!("{}, column `{column}`: empty {what}", self.place)
    }
}
