//! Rows with several labels: a list, a text with a separator, or a column of 0 and 1 for each label.

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use serde_json::Value;

use super::classes::unknown_label;
use super::rows::{Rows, row_id};
use super::table::{Cell, Row, SourceFile, Table};
use super::{Example, Input, Label, TextColumns};
use crate::error::Result;
use crate::io::plain;
use crate::text::quoted;

/// A row whose labels have no ids yet.
pub(super) type RawRow = Example<Input, Vec<String>>;

/// The rows of `table` with the names of their labels, of which there may be none.
pub(super) fn read(
    rows: &mut Rows<'_>,
    table: Table,
    columns: &TextColumns,
) -> Result<(Vec<RawRow>, SourceFile)> {
    rows.read(table, &columns.names_with_id(), |_, number, row| {
        let id = row_id(row, number)?;
        let place = row.place.clone();
        Ok(Example { id, place, input: Input::of(row, columns)?, label: labels(row, columns)? })
    })
}

fn labels(row: &Row, columns: &TextColumns) -> Result<Vec<String>> {
    if let Some(column) = columns.label.as_ref().filter(|_| columns.labels.is_empty()) {
        return of_cell(&row.find(&[column])?, columns.separator.as_deref().unwrap_or_default());
    }
    let mut found = Vec::new();
    for column in &columns.labels {
        if is_one(&row.find(&[column])?)? {
            found.push(column.clone());
        }
    }
    Ok(found)
}

/// The labels of a list, or the parts of a text between separators; an empty cell has none.
fn of_cell(cell: &Cell<'_>, separator: &str) -> Result<Vec<String>> {
    let found: Vec<String> = match cell.value {
        Value::Null => Vec::new(),
        Value::Array(_) => {
            let items = cell.list("a list of labels")?;
            items.iter().map(|item| item.word("label")).collect::<Result<_>>()?
        }
        value => {
            let text = plain(value).ok_or_else(|| cell.wrong_type("a list or a string"))?;
            let parts = text.split(separator).map(str::trim).filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        }
    };
    let mut seen = BTreeSet::new();
    match found.iter().find(|label| !seen.insert(*label)) {
        Some(label) => {
            bail!("{}, column `{}`: label `{label}` is there twice", cell.place, cell.column)
        }
        None => Ok(found),
    }
}

fn is_one(cell: &Cell<'_>) -> Result<bool> {
    match plain(cell.value).as_deref().map(str::trim) {
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        found => {
            let found = found.unwrap_or("no value");
            Err(anyhow!("{}, column `{}`: `{found}`, expected 0 or 1", cell.place, cell.column))
        }
    }
}

/// The rows with the ids of their labels, which are places in `names`.
pub(super) fn by_id(
    rows: &mut Rows<'_>,
    names: &[String],
    columns: &TextColumns,
    raw: Vec<RawRow>,
) -> Result<Vec<Example>> {
    let column = columns.label.clone().unwrap_or_else(|| quoted(&columns.labels));
    let mut examples = Vec::with_capacity(raw.len());
    for Example { id, place, input, label } in raw {
        let of_name = |label: &String| {
            let found = names.iter().position(|name| name == label);
            found.ok_or_else(|| unknown_label(&place, &column, label, names))
        };
        let ids = label.iter().map(of_name).collect::<Result<BTreeSet<usize>>>();
        let label = rows.kept(ids)?.map(|ids| Label::Set(ids.into_iter().collect()));
        examples.extend(label.map(|label| Example { id, place, input, label }));
    }
    Ok(examples)
}

#[cfg(test)]
mod tests {
    use super::super::{Data, NamedColumns, OwnFiles, Validation};
    use super::*;

    fn read(ending: &str, text: &str, columns: NamedColumns) -> Result<(Vec<String>, Vec<Label>)> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("d.{ending}"));
        std::fs::write(&file, text).unwrap();
        let files = OwnFiles::new(file.clone(), Validation::File(file));
        let Data::Labelled(data) = (OwnFiles { columns, ..files }).read()? else {
            panic!("texts for a language model")
        };
        let labels = data.train.examples.into_iter().map(|row| row.label).collect();
        Ok((data.kind.goal.answers.names(), labels))
    }

    #[test]
    fn labels_are_lists_texts_with_a_separator_or_columns() {
        let named = |separator: &str| NamedColumns {
            separator: Some(separator.to_owned()),
            ..NamedColumns::default()
        };
        let names = ["bug", "slow", "ui"].map(str::to_owned).to_vec();
        let sets = [vec![0, 2], vec![], vec![0, 1, 2]].map(Label::Set).to_vec();
        let lists = "{\"text\": \"a\", \"label\": [\"ui\", \"bug\"]}\n{\"text\": \"b\", \"label\": []}\n{\"text\": \"c\", \
                     \"label\": [\"bug\", \"slow\", \"ui\"]}\n";
        assert_eq!(read("jsonl", lists, named(";")).unwrap(), (names.clone(), sets.clone()));
        let texts = "text,label\na,ui | bug\nb,\nc,bug|slow|ui\n";
        assert_eq!(read("csv", texts, named("|")).unwrap(), (names.clone(), sets.clone()));
        let flags = "text,bug,slow,ui\na,1,0,1\nb,0,0,0\nc,1,1,1\n";
        let columns = NamedColumns { labels: names.clone(), ..NamedColumns::default() };
        assert_eq!(read("csv", flags, columns.clone()).unwrap(), (names, sets));
        let error = |ending, text, columns| read(ending, text, columns).unwrap_err().to_string();
        let twice = error("csv", "text,label\na,x;y;x\n", named(";"));
        assert!(twice.ends_with("line 2, column `label`: label `x` is there twice"), "{twice}");
        let other = error("csv", "text,bug,slow,ui\na,1,2,0\n", columns);
        assert!(other.ends_with("line 2, column `slow`: `2`, expected 0 or 1"), "{other}");
        let one = error("csv", "text,label\na,x\nb,\n", named(";"));
        assert!(one.contains("1 distinct labels, expected 2"), "{one}");
    }
}
