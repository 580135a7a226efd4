//! The class or score that a field stands for.

use anyhow::anyhow;

use super::{Label, Place};
use crate::error::{Error, Result};
use crate::task::{Target, TaskSpec};

#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) spec: &'static TaskSpec,
    pub(super) column: &'a str,
    pub(super) place: &'a Place,
}

impl Field<'_> {
    /// A class name, a class id in digits, or a score in digits.
    pub(super) fn of_text(self, text: &str) -> Result<Label> {
        let text = text.trim();
        match self.spec.target {
            Target::Score { .. } => match text.parse() {
                Ok(score) => self.of_score(score),
                Err(_) => Err(self.bad_score(text)),
            },
            Target::Classes(names) => match names.iter().position(|name| *name == text) {
                Some(id) => Ok(Label::Class(id)),
                None => match text.parse() {
                    Ok(id) => self.of_integer(id),
                    Err(_) => Err(self.unknown(text)),
                },
            },
        }
    }

    /// A class id; for regression a whole score.
    pub(super) fn of_integer(self, id: i128) -> Result<Label> {
        match self.spec.target {
            Target::Score { .. } => self.of_score(id as f64),
            Target::Classes(classes) if id == -1 => Err(anyhow!(
                "{}, column `{}`: label -1 marks a hidden test label, wanted one of {}",
                self.place,
                self.column,
                allowed(classes)
            )),
            Target::Classes(names) => match usize::try_from(id) {
                Ok(id) if id < names.len() => Ok(Label::Class(id)),
                _ => Err(self.unknown(&id.to_string())),
            },
        }
    }

    pub(super) fn of_score(self, score: f64) -> Result<Label> {
        match self.spec.target {
            Target::Score { low, high } if (low..=high).contains(&score) => Ok(Label::Score(score)),
            Target::Score { .. } => Err(self.bad_score(&score.to_string())),
            Target::Classes(_) => Err(self.unknown(&score.to_string())),
        }
    }

    fn unknown(self, found: &str) -> Error {
        anyhow!(
            "{}, column `{}`: unknown label `{found}`, wanted one of {}",
            self.place,
            self.column,
            allowed(self.spec.class_names())
        )
    }

    fn bad_score(self, found: &str) -> Error {
        let Target::Score { low, high } = self.spec.target else {
            return self.unknown(found);
        };
        let (place, column) = (self.place, self.column);
        anyhow!("{place}, column `{column}`: `{found}` is not a score within {low}..={high}")
    }
}

fn allowed(classes: &[&str]) -> String {
    let each = classes.iter().enumerate().map(|(id, name)| format!("`{name}` ({id})"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::At;
    use crate::task::GlueTask;

    fn read(task: GlueTask, text: &str) -> Result<Label> {
        let place = Place { file: "dev.tsv".into(), at: At::Line(7) };
        Field { spec: task.spec(), column: "label", place: &place }.of_text(text)
    }

    #[test]
    fn names_and_ids_are_both_labels() {
        assert_eq!(read(GlueTask::Mnli, "contradiction").unwrap(), Label::Class(2));
        assert_eq!(read(GlueTask::Mnli, " 2 ").unwrap(), Label::Class(2));
        assert_eq!(read(GlueTask::Rte, "not_entailment").unwrap(), Label::Class(1));
        assert_eq!(read(GlueTask::Stsb, "4.750").unwrap(), Label::Score(4.75));
    }

    #[test]
    fn ids_end_where_the_classes_end() {
        let message = |text| read(GlueTask::Cola, text).unwrap_err().to_string();
        assert!(read(GlueTask::Cola, "1").is_ok());
        assert_eq!(
            message("2"),
            "`dev.tsv`, line 7, column `label`: unknown label `2`, wanted one of \
             `unacceptable` (0), `acceptable` (1)"
        );
        assert!(message("-1").contains("hidden test label"), "{}", message("-1"));
        assert!(message("-2").contains("unknown label `-2`"));
        assert!(message("Acceptable").contains("unknown label `Acceptable`"));
    }

    #[test]
    fn scores_end_at_their_bounds() {
        for good in ["0", "5.0", "0.000"] {
            assert!(read(GlueTask::Stsb, good).is_ok(), "{good}");
        }
        for bad in ["-0.001", "5.001", "NaN", "inf", "", "four"] {
            let error = read(GlueTask::Stsb, bad).unwrap_err();
            assert!(error.to_string().ends_with("is not a score within 0..=5"), "{error}");
        }
    }
}
