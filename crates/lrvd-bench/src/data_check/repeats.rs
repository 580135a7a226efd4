//! Rows whose texts occur more than once, and a file without them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::answers::AnswerSpace;
use crate::data::table::{BadRow, RowFile, read};
use crate::data::{At, Dataset, Example, Label, Pieces};
use crate::error::Result;

/// Place of a row among those with its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatKind {
    /// The first of rows that have the same label.
    First,
    /// A later one.
    Duplicate,
    /// A row of which another one has another label.
    Contradiction,
}

/// A row whose texts occur more than once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeat {
    /// Number of its texts, from 1 in the order of their first rows.
    pub group: usize,
    pub kind: RepeatKind,
    pub file: String,
    #[serde(flatten)]
    pub at: At,
    /// Of several labels, and of numbers, as text.
    pub label: String,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
}

impl Repeat {
    /// Keys of such rows.
    pub const KEYS: &'static [&'static str] = &["group", "kind", "file", "line", "label", "text"];
}

/// Answer that rows with the same texts must share; a number may be another one.
fn answer(Example { input, label, .. }: &Example) -> String {
    match label {
        Label::Score(_) => String::new(),
        Label::Set(labels) => format!("{labels:?}"),
        label => {
            let class = label.class().unwrap_or_default();
            // The same choice may be at another place.
            input.choices.get(class).cloned().unwrap_or_else(|| class.to_string())
        }
    }
}

/// Rows of both splits whose texts occur more than once, text by text; none of typed questions, of which a row has several.
pub fn repeats(data: &Dataset) -> Vec<Repeat> {
    let answers = &data.kind.goal.answers;
    if matches!(answers, AnswerSpace::Questions { .. } | AnswerSpace::Question { .. }) {
        return Vec::new();
    }
    let names = answers.names();
    let mut rows: Vec<&Example> =
        data.train.examples.iter().chain(&data.validation.examples).collect();
    // Rows that were drawn for validation are between the others in their file.
    let trained = first_file(data);
    let order = |row: &Example| (*row.place.file != *trained, row.place.at.number());
    rows.sort_by_key(|row| order(row));
    let mut groups: BTreeMap<Vec<Cow<'_, str>>, Vec<&Example>> = BTreeMap::new();
    for row in rows {
        groups.entry(row.input.pieces()).or_default().push(row);
    }
    let mut several: Vec<Vec<&Example>> =
        groups.into_values().filter(|rows| rows.len() > 1).collect();
    several.sort_by_key(|rows| order(rows[0]));
    let mut found = Vec::new();
    for (group, rows) in several.into_iter().enumerate() {
        let differ = rows.iter().any(|row| answer(row) != answer(rows[0]));
        for (place, row) in rows.iter().enumerate() {
            let kind = match (differ, place) {
                (true, _) => RepeatKind::Contradiction,
                (false, 0) => RepeatKind::First,
                (false, _) => RepeatKind::Duplicate,
            };
            found.push(Repeat {
                group: group + 1,
                kind,
                file: row.place.file.display().to_string(),
                at: row.place.at,
                label: named(row, &names),
                text: row.input.text.clone(),
                pair: row.input.pair.clone(),
            });
        }
    }
    found
}

fn first_file(data: &Dataset) -> &Path {
    data.train.files.first().map_or(Path::new(""), |file| &file.path)
}

fn named(Example { input, label, .. }: &Example, names: &[String]) -> String {
    let name = |id: usize| input.choices.get(id).or_else(|| names.get(id)).cloned();
    match label {
        Label::Score(score) => score.to_string(),
        Label::Set(labels) => {
            labels.iter().filter_map(|&id| name(id)).collect::<Vec<_>>().join(", ")
        }
        label => label.class().and_then(name).unwrap_or_default(),
    }
}

/// Writes the rows of the training file to `out` with all their columns, but duplicates behind the first, rows that contradict
/// another one, and rows that cannot be used. Returns the numbers of rows that are written and that are left out.
pub fn write_clean(data: &Dataset, repeats: &[Repeat], mut out: RowFile) -> Result<(usize, usize)> {
    let file = first_file(data);
    let left_out: BTreeSet<usize> = repeats
        .iter()
        .filter(|row| row.kind != RepeatKind::First && Path::new(&row.file) == file)
        .map(|row| row.at.number())
        .collect();
    let rows = data.train.examples.iter().chain(&data.validation.examples);
    let usable: BTreeSet<usize> =
        rows.filter(|row| *row.place.file == *file).map(|row| row.place.at.number()).collect();
    let mut written = 0;
    let mut others = 0;
    for row in read(file)? {
        let row = match row {
            Err(error) if BadRow::at(&error).is_some() => {
                others += 1;
                continue;
            }
            row => row?,
        };
        let number = row.place.at.number();
        if left_out.contains(&number) || !usable.contains(&number) {
            others += 1;
            continue;
        }
        let mut cells = Vec::new();
        for name in row.keys() {
            cells.extend(row.get(name)?.map(|value| (name.as_str(), value)));
        }
        out.push(cells)?;
        written += 1;
    }
    out.finish()?;
    Ok((written, others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, OwnFiles, Validation};

    fn data(folder: &Path, rows: &str) -> Dataset {
        let path = folder.join("rows.csv");
        std::fs::write(&path, rows).unwrap();
        match OwnFiles::new(path, Validation::Share(0.25)).read().unwrap() {
            Data::Labelled(data) => data,
            Data::Texts(_) => panic!("labelled rows"),
        }
    }

    #[test]
    fn duplicates_and_contradictions_are_listed_and_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let rows = "id,text,label\na,one,good\nb,two,bad\nc,one,good\nd,three,good\ne,two,good\nf,four,bad\ng,one,good\n";
        let data = data(folder.path(), rows);
        let found = repeats(&data);
        let shown: Vec<(usize, RepeatKind, usize, &str)> = found
            .iter()
            .map(|row| (row.group, row.kind, row.at.number(), row.label.as_str()))
            .collect();
        let expected = [
            (1, RepeatKind::First, 2, "good"),
            (1, RepeatKind::Duplicate, 4, "good"),
            (1, RepeatKind::Duplicate, 8, "good"),
            (2, RepeatKind::Contradiction, 3, "bad"),
            (2, RepeatKind::Contradiction, 6, "good"),
        ];
        assert_eq!(shown, expected);
        let clean = folder.path().join("clean.csv");
        assert_eq!(write_clean(&data, &found, RowFile::create(&clean).unwrap()).unwrap(), (3, 4));
        let text = std::fs::read_to_string(clean).unwrap();
        assert_eq!(text, "id,text,label\na,one,good\nd,three,good\nf,four,bad\n");
    }
}
