//! Rows of a command, and their CSV.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use indexmap::{IndexMap, IndexSet};
use lrvd_bench::Result;
use lrvd_bench::data::table::{RowFile, cell_text};
use lrvd_burn::files::is_there;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A row: the keys of an object with their values, in the order in which it has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row(IndexMap<String, Value>);

impl Row {
    /// The row of a value that is an object in JSON.
    pub(crate) fn new(value: &impl Serialize) -> Result<Self> {
        // A value of `serde_json` sorts its keys.
        Ok(serde_json::from_str(&serde_json::to_string(value)?)?)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// A row of each value.
    pub(crate) fn each<'v, V: Serialize + 'v>(
        values: impl IntoIterator<Item = &'v V>,
    ) -> Result<Vec<Self>> {
        values.into_iter().map(Self::new).collect()
    }

    /// A row of each entry of `map`, with its key under `name` in front.
    pub(crate) fn keyed<K: Serialize, V: Serialize>(
        name: &str,
        map: &BTreeMap<K, V>,
    ) -> Result<Vec<Self>> {
        let row = |(key, value): (&K, &V)| {
            let mut row = Self::default().with(name, serde_json::to_value(key)?);
            row.0.extend(Self::new(value)?.0);
            Ok(row)
        };
        map.iter().map(row).collect()
    }

    fn list(&self, name: &str) -> Option<&Vec<Value>> {
        self.0.get(name)?.as_array()
    }

    /// The values under their keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The cells with the names of their columns, as [`csv()`] has them.
    pub(crate) fn cells(&self) -> Vec<(String, Value)> {
        let mut cells = Vec::new();
        let labels = self.list("labels").filter(|_| self.list("probs").is_some());
        for (name, value) in &self.0 {
            match (name.as_str(), value, labels) {
                ("labels", _, Some(_)) => {}
                ("probs", Value::Array(all), Some(labels)) => {
                    let named = labels.iter().zip(all);
                    cells.extend(
                        named.map(|(of, p)| (format!("{name}.{}", cell_text(of)), p.clone())),
                    );
                }
                (_, Value::Object(parts), _) => {
                    let parts = parts.iter();
                    cells.extend(parts.map(|(of, part)| (format!("{name}.{of}"), part.clone())));
                }
                _ => cells.push((name.clone(), value.clone())),
            }
        }
        cells
    }
}

/// A file of rows, which must not exist without `force`.
pub(crate) fn new_file(path: &Path, force: bool) -> Result<RowFile> {
    check_new(path, force)?;
    RowFile::create(path)
}

/// Returns an error if `path` exists and is not to be replaced by `force`.
pub(crate) fn check_new(path: &Path, force: bool) -> Result<()> {
    if !force && is_there(path)? {
        bail!("`{}` exists: `--force` replaces it", path.display());
    }
    Ok(())
}

/// Adds a row to a file: as it is, or by its cells.
pub(crate) fn push(file: &mut RowFile, row: &Row) -> Result<()> {
    if file.is_nested() {
        return file.push(row.entries());
    }
    let cells = row.cells();
    file.push(cells.iter().map(|(name, value)| (name.as_str(), value)))
}

/// The rows as CSV without the last line end: a header of all their keys in the order in which they come, and a line for each
/// row.
///
/// An object has a column for each of its keys, as in `characters.median`, and so have probabilities for each of the `labels`
/// beside them, as in `probs.good`. Another list is JSON. A key that a row does not have, and a null, are empty.
pub(crate) fn csv(rows: &[Row]) -> Result<String> {
    let rows: Vec<Vec<(String, Value)>> = rows.iter().map(Row::cells).collect();
    let header: IndexSet<&str> = rows.iter().flatten().map(|(name, _)| name.as_str()).collect();
    if header.is_empty() {
        return Ok(String::new());
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header)?;
    for row in &rows {
        let mut line = vec![String::new(); header.len()];
        for (name, cell) in row {
            if let Some(place) = header.get_index_of(name.as_str()).and_then(|at| line.get_mut(at))
            {
                *place = cell_text(cell);
            }
        }
        writer.write_record(&line)?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    let text = String::from_utf8(bytes).context("a cell is not UTF-8")?;
    Ok(text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(text: &str) -> Row {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn csv_has_the_keys_of_all_rows_and_a_column_for_each_probability() {
        let rows = [
            row(
                r#"{"text": "a, \"b\"", "probs": [0.25, 0.75], "labels": ["bad", "good"], "id": null}"#,
            ),
            row(r#"{"text": "line\nbreak", "error": "too long"}"#),
            row(
                r#"{"text": "c", "size": {"least": 1, "most": 20}, "interval": [1.5, 2], "is": true}"#,
            ),
        ];
        let expected = "text,probs.bad,probs.good,id,error,size.least,size.most,interval,is\n\
                        \"a, \"\"b\"\"\",0.25,0.75,,,,,,\n\
                        \"line\nbreak\",,,,too long,,,,\n\
                        c,,,,,1,20,\"[1.5,2]\",true";
        assert_eq!(csv(&rows).unwrap(), expected);
        assert_eq!(csv(&[]).unwrap(), "");
    }

    #[test]
    fn a_map_is_rows_with_its_keys_in_front() {
        let map = BTreeMap::from([(0, json!({ "nll": 0.5 })), (3, json!({ "acc": 1 }))]);
        let rows = Row::keyed("draws", &map).unwrap();
        let texts = [&rows[0], &rows[1]].map(|row| serde_json::to_string(row).unwrap());
        assert_eq!(texts, [r#"{"draws":0,"nll":0.5}"#, r#"{"draws":3,"acc":1}"#]);
        let more = rows[0].clone().with("ece_floor", 0.25);
        assert_eq!(
            serde_json::to_string(&more).unwrap(),
            r#"{"draws":0,"nll":0.5,"ece_floor":0.25}"#
        );
        assert!(Row::new(&3).is_err());
    }
}
