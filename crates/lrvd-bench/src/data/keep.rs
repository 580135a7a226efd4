//! Columns of a table that are carried to the answers to its rows.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::TextColumns;
use super::columns::ID;
use super::table::{BadRow, Row, read};
use crate::error::Result;
use crate::text::{UnknownName, quoted};

/// Columns that are carried to answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Names that are asked for.
    named: Vec<String>,
    /// `true` if all columns are.
    all: bool,
    /// Keys that answers have.
    taken: &'static [&'static str],
}

/// Values that are carried, by the names of their columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptCells(pub Vec<(String, Value)>);

impl Serialize for KeptCells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The name of all columns.
const ALL: &str = "all";

impl Keep {
    /// The columns with these names, or all for the one name `all`, beside answers that have the keys `taken`.
    pub fn new(names: &[String], taken: &'static [&'static str]) -> Self {
        let all = matches!(names, [name] if name == ALL);
        Self { named: if all { Vec::new() } else { names.to_vec() }, all, taken }
    }

    pub fn is_empty(&self) -> bool {
        !self.all && self.named.is_empty()
    }

    /// Names of the columns that have to be decoded for this, beside `read`; none if all are.
    pub(crate) fn with<'n>(&'n self, read: Vec<&'n str>) -> Vec<&'n str> {
        if self.all {
            return Vec::new();
        }
        read.into_iter().chain(self.named.iter().map(String::as_str)).collect()
    }

    /// Checks that `file`, which has the columns or keys `names`, has all that are asked for.
    pub(crate) fn check(&self, file: &Path, names: &[String]) -> Result<()> {
        let Some(absent) = self.named.iter().find(|name| !names.contains(name)) else {
            return Ok(());
        };
        let error = UnknownName::new("column", absent, names.iter().cloned());
        Err(anyhow!("`{}`, `--keep`: {error}", file.display()))
    }

    /// Values that are carried of a row whose answer has the values of the columns in `shown`.
    pub(crate) fn of(&self, row: &Row, shown: &[&str]) -> Result<KeptCells> {
        let mut kept = Vec::new();
        for name in if self.all { row.keys() } else { &self.named } {
            let is_taken = self.taken.contains(&name.as_str());
            if shown.contains(&name.as_str()) && (self.all || is_taken) {
                continue;
            }
            if is_taken {
                let taken = quoted(self.taken);
                bail!(
                    "{}: the column `{name}` cannot be kept, since answers have a key of that name (they have {taken}): rename \
                     it, or name others by `--keep`",
                    row.place
                );
            }
            kept.push((name.clone(), row.get(name)?.cloned().unwrap_or_default()));
        }
        Ok(KeptCells(kept))
    }
}

impl TextColumns {
    /// Columns whose values an answer has: the texts and the row's id, and of a labelled row the label.
    pub(crate) fn shown(&self, is_labelled: bool) -> Vec<&str> {
        let label = self.label.as_ref().filter(|_| is_labelled);
        let own = [Some(&self.text), self.pair.as_ref(), label].into_iter().flatten();
        own.map(String::as_str).chain([ID]).collect()
    }
}

/// Values that are carried of the labelled rows of `file`, by their lines or rows. Rows that cannot be read have nothing.
pub fn kept_rows(
    file: &Path,
    columns: &TextColumns,
    keep: &Keep,
) -> Result<BTreeMap<usize, KeptCells>> {
    let mut table = read(file)?;
    keep.check(file, &table.names()?)?;
    table.select(&keep.with(Vec::new()))?;
    let mut kept = BTreeMap::new();
    for row in table {
        let row = match row {
            Err(error) if BadRow::at(&error).is_some() => continue,
            row => row?,
        };
        kept.insert(row.place.at.number(), keep.of(&row, &columns.shown(true))?);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_columns_are_carried_and_those_of_the_answer_are_not_there_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "id,text,label,customer,p_label\n1,a,good,007,x\n2,b,bad,8,y\n")
            .unwrap();
        let kept = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let keep = Keep::new(&names, &["id", "text", "label", "p_label"]);
            kept_rows(&path, &TextColumns::default(), &keep)
                .map(|rows| serde_json::to_string(&rows).unwrap())
                .map_err(|error| error.to_string())
        };
        let expected = r#"{"2":{"customer":"007"},"3":{"customer":"8"}}"#;
        assert_eq!(kept(&["customer", "id", "label"]).unwrap(), expected);
        let error = kept(&["custmer"]).unwrap_err();
        assert!(error.contains("did you mean `customer`?"), "{error}");
        for names in [&["all"][..], &["p_label"]] {
            let error = kept(names).unwrap_err();
            assert!(error.contains("line 2: the column `p_label` cannot be kept"), "{error}");
        }
        std::fs::write(&path, "text,label,n\na,good,1\n").unwrap();
        assert_eq!(kept(&["all"]).unwrap(), r#"{"2":{"n":"1"}}"#);
    }
}
