//! What did the user mean by a task name that does not exist?

use thiserror::Error;

use crate::text::quoted;

/// A task name that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown task `{found}`; the tasks are {}{}", quoted(.allowed), meant(*.suggestion))]
pub struct UnknownTask {
    /// The name as given.
    pub found: String,
    /// Every name that is accepted, in table order.
    pub allowed: Vec<&'static str>,
    /// The closest accepted name, when one is close.
    pub suggestion: Option<&'static str>,
}

impl UnknownTask {
    /// Builds the error and looks for the name that was probably meant.
    pub(super) fn new(found: &str, allowed: Vec<&'static str>) -> Self {
        let suggestion = nearest(found, &allowed);
        Self { found: found.to_owned(), allowed, suggestion }
    }

    /// The action that a command line can propose.
    pub fn hint(&self) -> Option<String> {
        self.suggestion.map(|name| format!("pass `{name}`"))
    }
}

fn meant(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The accepted name within a third of its length in edits, the earliest of equals.
fn nearest(found: &str, allowed: &[&'static str]) -> Option<&'static str> {
    let found = found.to_lowercase();
    allowed
        .iter()
        .map(|name| (edit_distance(&found, name), *name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| *distance <= name.len().div_ceil(3))
        .map(|(_, name)| name)
}

/// Levenshtein distance in characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_insertions_deletions_and_substitutions() {
        for (left, right, wanted) in [
            ("", "", 0),
            ("", "rte", 3),
            ("kitten", "sitting", 3),
            ("qqp", "qnli", 3),
            ("sst", "sst2", 1),
        ] {
            assert_eq!(edit_distance(left, right), wanted, "{left} {right}");
            assert_eq!(edit_distance(right, left), wanted, "{right} {left}");
        }
    }

    #[test]
    fn only_a_close_name_is_suggested() {
        let names = ["cola", "sst2", "mrpc"];
        assert_eq!(nearest("colla", &names), Some("cola"));
        assert_eq!(nearest("MRCP", &names), Some("mrpc"));
        assert_eq!(nearest("imagenet", &names), None);
    }
}
