//! What is read and not used.

use std::collections::HashMap;
use std::fmt::Display;

use anyhow::bail;

use crate::error::{Error, Result};
use crate::text::quoted;

/// Notes of one kind beyond which the rest is counted.
const SHOWN: usize = 20;

/// Keys, tensors, templates, rows or tokens that are read and not used: each is named once, with a count.
///
/// ```
/// use lrvd_bench::Unused;
///
/// let mut unused = Unused::default();
/// for line in [3, 8] {
///     unused.add("key `tools`", format_args!("`chat.jsonl`, line {line}"));
/// }
/// let notes = unused.notes(false).unwrap();
/// assert_eq!(notes, ["not used: key `tools` (2 times, first in `chat.jsonl`, line 3)"]);
/// assert!(unused.notes(true).unwrap_err().to_string().ends_with("`--strict` makes this an error"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    seen: Vec<Seen>,
    /// The place of each of them in `seen`.
    places: HashMap<String, usize>,
    rows: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    what: String,
    count: usize,
    /// Place of the first one.
    place: String,
}

impl Unused {
    /// Counts one more `what`, a noun with its name, such as ``tensor `lm_head.weight` ``. Of its places the first is kept.
    pub fn add(&mut self, what: impl Into<String>, place: impl Display) {
        let what = what.into();
        if let Some(&at) = self.places.get(&what) {
            self.seen[at].count += 1;
            return;
        }
        self.places.insert(what.clone(), self.seen.len());
        self.seen.push(Seen { what, count: 1, place: place.to_string() });
    }

    /// Counts `names` of `place` as one entry, behind the `noun` of one of them; none without names.
    pub(crate) fn add_names<T: AsRef<str>>(
        &mut self,
        noun: &str,
        names: &[T],
        place: impl Display,
    ) {
        match names.len() {
            0 => {}
            1 => self.add(format!("{noun} {}", quoted(names)), place),
            _ => self.add(format!("{noun}s {}", quoted(names)), place),
        }
    }

    /// Counts a row that is left out for its `error`, which names the place first: rows with one error are one entry.
    pub fn leave_out(&mut self, error: &Error) {
        self.rows += 1;
        let message = error.to_string();
        let (place, reason) = place_and_reason(&message);
        self.add(format!("row with an error: {reason}"), place);
    }

    /// Rows that are left out.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// A note for each of them in the order of their first places. With `strict` (the option `--strict`) there must be none.
    pub fn notes(&self, strict: bool) -> Result<Vec<String>> {
        let note = |Seen { what, count, place }: &Seen| match count {
            1 => format!("not used: {what} (in {place})"),
            n => format!("not used: {what} ({n} times, first in {place})"),
        };
        let mut notes: Vec<String> = self.seen.iter().take(SHOWN).map(note).collect();
        if let more @ 1.. = self.seen.len().saturating_sub(SHOWN) {
            notes.push(format!("not used: {more} more"));
        }
        if strict && !notes.is_empty() {
            bail!("{}; `--strict` makes this an error", notes.join("; "));
        }
        Ok(notes)
    }
}

/// The place that starts a message, as [`Place`](crate::data::Place) writes it, and what is behind it.
fn place_and_reason(message: &str) -> (&str, &str) {
    let start = ["`, line ", "`, row "].iter().filter_map(|mark| Some((message.find(mark)?, mark)));
    let Some((at, mark)) = start.min() else { return ("the data", message) };
    let digits = at + mark.len();
    let length = message[digits..].find(|c: char| !c.is_ascii_digit());
    let (place, reason) = message.split_at(length.map_or(message.len(), |length| digits + length));
    (place, reason.trim_start_matches([',', ':', ' ']))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn rows_with_one_error_are_one_entry_and_many_entries_are_cut() {
        let mut unused = Unused::default();
        for (line, reason) in
            [(2, ", column `text`: empty text"), (7, ", column `text`: empty text")]
        {
            unused.leave_out(&anyhow!("`a, line 1.csv`, line {line}{reason}"));
        }
        unused
            .leave_out(&anyhow!("`b.csv`, line 3: 1 comma-separated fields where 2 are expected"));
        assert_eq!(
            unused.notes(false).unwrap(),
            [
                "not used: row with an error: column `text`: empty text (2 times, first in `a, line 1.csv`, line 2)",
                "not used: row with an error: 1 comma-separated fields where 2 are expected (in `b.csv`, line 3)",
            ]
        );
        assert_eq!(unused.rows(), 3);
        (0..30).for_each(|i| unused.add(format!("key `{i}`"), "x"));
        let notes = unused.notes(false).unwrap();
        assert_eq!((notes.len(), notes.last().unwrap().as_str()), (21, "not used: 12 more"));
    }
}
