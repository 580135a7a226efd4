//! The classes of a user's labels: distinct ones, named numbers, and spellings that look alike.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use icu_normalizer::ComposingNormalizer;

use super::rows::Rows;
use super::table::{Cell, Place};
use super::{Example, Input, TextColumns};
use crate::error::{Error, Result};
use crate::text::{one_of, quoted};

/// A row whose label is not yet a class or a number.
pub(super) type RawRow = Example<Input, String>;

/// More distinct labels than this are hardly classes: a wrong column, most likely.
const MOST_CLASSES: usize = 1000;

/// The `given` classes, or the distinct ones of `labels`: by value if all are whole numbers, else by text.
pub(super) fn classes<'a>(
    file: &Path,
    columns: &TextColumns,
    labels: impl Iterator<Item = &'a str>,
    given: Option<Vec<String>>,
) -> Result<Vec<String>> {
    let place = || {
        let column = columns.label.clone().unwrap_or_default();
        format!("`{}`, column `{column}`", file.display())
    };
    let classes = given.unwrap_or_else(|| distinct(labels));
    let found = classes.len();
    if !(2..=MOST_CLASSES).contains(&found) {
        let many = found > MOST_CLASSES;
        let hint = if many { "; for numbers to be predicted pass `--regression`" } else { "" };
        bail!("{}: {found} distinct labels, expected 2 to {MOST_CLASSES}{hint}", place());
    }
    let mut texts = BTreeSet::new();
    let mut numbers = HashMap::new();
    for class in &classes {
        ensure!(texts.insert(class), "label `{class}` is given twice");
        let same = number(class).and_then(|value| numbers.insert(value.to_bits(), class));
        if let Some(other) = same {
            bail!(
                "{}: labels `{other}` and `{class}` are one number; write it in one way",
                place()
            );
        }
    }
    Ok(classes)
}

/// The rows that have a label: `NaN` is how programs write a missing one, and no class.
pub(super) fn not_missing(
    rows: &mut Rows<'_>,
    columns: &TextColumns,
    raw: Vec<RawRow>,
) -> Result<Vec<RawRow>> {
    let column = columns.label.as_deref().unwrap_or_default();
    let mut found = Vec::with_capacity(raw.len());
    for row in raw {
        let missing = row.label.eq_ignore_ascii_case("nan").then(|| {
            anyhow!(
                "{}, column `{column}`: `{}` marks a missing label and is no class; leave the row out, or name the class with \
                 `--labels`",
                row.place,
                row.label
            )
        });
        found.extend(rows.kept(missing.map_or(Ok(row), Err))?);
    }
    Ok(found)
}

/// Distinct labels in order.
fn distinct<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<String> {
    let distinct: BTreeSet<&str> = labels.collect();
    let mut classes: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
    let numbers: Option<Vec<i64>> = classes.iter().map(|class| class.parse().ok()).collect();
    if numbers.is_some() {
        classes.sort_by_key(|class| class.parse::<i64>().unwrap_or(0));
    }
    classes
}

/// The number that a class is; 0 and -0 are one.
fn number(class: &str) -> Option<f64> {
    class.parse().ok().filter(|number: &f64| number.is_finite()).map(|number| number + 0.0)
}

/// The name of the class whose number a cell has, of the `names` that the file states.
pub(super) fn class_name(cell: &Cell<'_>, names: &[String]) -> Result<String> {
    let Some(number) = cell.value.as_i64() else { return cell.word("label") };
    let name = usize::try_from(number).ok().and_then(|number| names.get(number));
    name.cloned().ok_or_else(|| {
        let place = cell.place;
        let column = &cell.column;
        let count = names.len();
        match number {
            -1 => anyhow!("{place}, column `{column}`: -1 marks a missing label"),
            _ => anyhow!(
                "{place}, column `{column}`: {number} is none of the {count} classes that the file names ({})",
                quoted(names)
            ),
        }
    })
}

/// Characters without a width, and those that only say how others are written.
const INVISIBLE: [char; 15] = [
    '\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}',
    '\u{202c}', '\u{202d}', '\u{202e}', '\u{2060}', '\u{2061}', '\u{2062}', '\u{feff}',
];

/// A label as a reader sees it: composed (Unicode's form NFC), every white space a plain one, nothing invisible.
fn seen(label: &str) -> String {
    let shown: String = label.chars().filter(|c| !INVISIBLE.contains(c)).collect();
    let composed = ComposingNormalizer::new_nfc().normalize(&shown).into_owned();
    composed.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `true` if two labels are written alike.
fn looks_like(a: &str, b: &str) -> bool {
    seen(a) == seen(b)
}

/// First difference of `a` from `b`, as code points.
fn difference(a: &str, b: &str) -> String {
    let [a, b] = [a, b].map(|text| text.chars().collect::<Vec<_>>());
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let [a, b] = [&a[start..], &b[start..]];
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let points = |text: &[char]| match text {
        [] => "nothing".to_owned(),
        text => {
            text.iter().map(|c| format!("U+{:04X}", u32::from(*c))).collect::<Vec<_>>().join(" ")
        }
    };
    format!("{} where that has {}", points(&a[..a.len() - end]), points(&b[..b.len() - end]))
}

/// Error of a label `found` that is not in `names`.
pub(super) fn unknown_label(place: &Place, column: &str, found: &str, names: &[String]) -> Error {
    let expected = one_of(found, names);
    let alike = names.iter().find(|class| looks_like(class, found));
    let alike = alike.map_or_else(String::new, |class| {
        format!("; it looks like `{class}`: {}", difference(found, class))
    });
    anyhow!("{place}, column `{column}`: unknown label `{found}`, expected {expected}{alike}")
}

/// A note for every class that is written like an earlier one.
pub(super) fn alike(file: &Path, columns: &TextColumns, classes: &[String]) -> Vec<String> {
    let mut first = HashMap::new();
    let mut notes = Vec::new();
    for class in classes {
        let other = *first.entry(seen(class)).or_insert(class);
        if other != class {
            notes.push(format!(
                "`{}`, column `{}`: the classes `{other}` and `{class}` look alike: the second has {}; write the label in \
                 one way if they are one class",
                file.display(),
                columns.label.as_deref().unwrap_or_default(),
                difference(class, other)
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_look_alike_are_named_by_their_code_points() {
        let columns = TextColumns::default();
        let notes = |classes: &[&str]| {
            let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
            alike(Path::new("d.csv"), &columns, &classes)
        };
        // Unicode: U+00E9 is U+0065 U+0301 composed.
        for (a, b, points) in [
            ("caf\u{e9}", "cafe\u{301}", "U+0065 U+0301 where that has U+00E9"),
            ("hot dog", "hot\u{a0}dog", "U+00A0 where that has U+0020"),
            ("tea", "tea\u{200b}", "U+200B where that has nothing"),
            ("tea\u{200b}", "tea", "nothing where that has U+200B"),
            ("ok", "o\u{2060}k", "U+2060 where that has nothing"),
        ] {
            let found = notes(&["x", a, b]);
            let expected = format!(
                "`d.csv`, column `label`: the classes `{a}` and `{b}` look alike: the second has {points}; write the label in \
                 one way if they are one class"
            );
            assert_eq!(found, [expected]);
        }
        assert!(notes(&["Spam", "spam", "spa m", "cafe", "caf\u{e9}", "1", "-1"]).is_empty());
    }

    /// Distinct prices: their number is looked at before their values are compared with one another.
    #[test]
    fn too_many_labels_are_counted_before_they_are_compared() {
        let labels = (0..200_000).map(|i| format!("{i}.50")).chain(["7.5".to_owned()]).collect();
        let file = Path::new("prices.csv");
        let columns = TextColumns::default();
        let error =
            classes(file, &columns, std::iter::empty(), Some(labels)).unwrap_err().to_string();
        assert_eq!(
            error,
            "`prices.csv`, column `label`: 200001 distinct labels, expected 2 to 1000; for numbers to be predicted pass \
             `--regression`"
        );
        let error = |labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            classes(file, &columns, std::iter::empty(), Some(labels)).unwrap_err().to_string()
        };
        assert!(error(&["0", "x", "-0"]).contains("labels `0` and `-0` are one number"));
        assert!(error(&["7.50", "7.5"]).contains("labels `7.50` and `7.5` are one number"));
        assert!(error(&["x", "x"]).contains("label `x` is given twice"));
    }
}
