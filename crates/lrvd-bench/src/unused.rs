//! What is read and not used.

use std::fmt::Display;

use anyhow::bail;

use crate::error::Result;

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
pub struct Unused(Vec<Seen>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    what: String,
    count: usize,
    /// Where it was first.
    place: String,
}

impl Unused {
    /// Counts one more `what`, a noun with its name, such as ``tensor `lm_head.weight` ``. Of its places the first is kept.
    pub fn add(&mut self, what: impl Into<String>, place: impl Display) {
        let what = what.into();
        match self.0.iter_mut().find(|seen| seen.what == what) {
            Some(seen) => seen.count += 1,
            None => self.0.push(Seen { what, count: 1, place: place.to_string() }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A note for each of them in the order of their first places. With `strict` (the option `--strict`) there must be none.
    pub fn notes(&self, strict: bool) -> Result<Vec<String>> {
        let note = |Seen { what, count, place }: &Seen| match count {
            1 => format!("not used: {what} (in {place})"),
            n => format!("not used: {what} ({n} times, first in {place})"),
        };
        let notes: Vec<String> = self.0.iter().map(note).collect();
        if strict && !notes.is_empty() {
            bail!("{}; `--strict` makes this an error", notes.join("; "));
        }
        Ok(notes)
    }
}
