//! Rows that are answered wrong, the most confident answers first.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use lrvd_core::metrics::argmax_rows;
use serde::Serialize;

use super::evaluate::Evaluation;
use crate::answers::AnswerSpace;
use crate::data::{At, Example, KeptCells, Label};
use crate::error::Result;

/// A row that is answered wrong, with the columns that are carried to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrongRow {
    pub id: String,
    #[serde(flatten)]
    pub at: At,
    #[serde(flatten)]
    pub kept: KeptCells,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    #[serde(flatten)]
    pub wrong: Wrong,
}

/// Label of the row, and the answer that it is given.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Wrong {
    Class {
        label: String,
        predicted: String,
        label_probability: f64,
        predicted_probability: f64,
    },
    Labels {
        label: Vec<String>,
        predicted: Vec<String>,
        missing: Vec<String>,
        extra: Vec<String>,
        largest_error: f64,
    },
    Score {
        label: f64,
        predicted: f64,
        residual: f64,
    },
}

impl Wrong {
    /// By which rows are sorted, the largest first: the probability of the answer, of several labels the largest distance of a
    /// probability from 0 or 1, of a number the size of its residual.
    fn confidence(&self) -> f64 {
        match self {
            Self::Class { predicted_probability, .. } => *predicted_probability,
            Self::Labels { largest_error, .. } => *largest_error,
            Self::Score { residual, .. } => residual.abs(),
        }
    }
}

impl WrongRow {
    /// Keys of such rows.
    pub const KEYS: &'static [&'static str] = &[
        "id",
        "line",
        "row",
        "text",
        "pair",
        "label",
        "predicted",
        "label_probability",
        "predicted_probability",
        "missing",
        "extra",
        "largest_error",
        "residual",
    ];

    /// Keys that a file has, also without a row.
    pub fn columns(answers: &AnswerSpace) -> &'static [&'static str] {
        match answers {
            AnswerSpace::Score => &["id", "text", "label", "predicted", "residual"],
            AnswerSpace::Labels { .. } => &["id", "text", "label", "predicted", "missing", "extra"],
            _ => &["id", "text", "label", "predicted"],
        }
    }
}

impl Evaluation {
    /// The `examples` of this evaluation that the answers of `draws` draws have wrong, and of numbers all, with what is `kept` of
    /// their lines or rows. Soft labels are right with the class of the largest share.
    pub fn wrong(
        &self,
        examples: &[Example],
        draws: usize,
        kept: &BTreeMap<usize, KeptCells>,
    ) -> Result<Vec<WrongRow>> {
        let scored = self.scored.get(&(draws as u32));
        let scored = scored.with_context(|| format!("no answers of {draws} draws"))?;
        let width = self.task.labels;
        let answers = &self.task.goal.answers;
        let names = answers.names();
        let thresholds = self.thresholds.of(draws, width);
        let mut rows = Vec::new();
        for (example, outputs) in examples.iter().zip(scored.outputs.chunks(width)) {
            let Some(wrong) = wrong(example, outputs, answers, &names, &thresholds)? else {
                continue;
            };
            rows.push(WrongRow {
                id: example.id.clone(),
                at: example.place.at,
                kept: kept.get(&example.place.at.number()).cloned().unwrap_or_default(),
                text: example.input.text.clone(),
                pair: example.input.pair.clone(),
                wrong,
            });
        }
        rows.sort_by(|a, b| b.wrong.confidence().total_cmp(&a.wrong.confidence()));
        Ok(rows)
    }
}

/// Rows whose label is probably wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspects {
    pub rows: usize,
    /// Rows that were answered by a model that has not seen them.
    pub judged: usize,
    /// Rows with a probability of the label below this are suspects.
    pub below: f64,
    /// The least probable label first.
    pub suspects: Vec<WrongRow>,
}

/// The `judged` of so many `rows` whose label has a probability below `below`; `probabilities` are `[judged, classes]`.
pub(crate) fn suspects(
    judged: &[&Example],
    probabilities: &[f64],
    names: &[String],
    below: f64,
    rows: usize,
) -> Result<Suspects> {
    let width = names.len();
    let answers = argmax_rows(probabilities, width)?;
    let mut found: Vec<(f64, WrongRow)> = Vec::new();
    for ((example, outputs), predicted) in
        judged.iter().zip(probabilities.chunks(width)).zip(answers)
    {
        let Some(class) = example.label.class() else { continue };
        let of_label = outputs[class];
        if of_label >= below {
            continue;
        }
        let wrong = Wrong::Class {
            label: names[class].clone(),
            predicted: names[predicted].clone(),
            label_probability: of_label,
            predicted_probability: outputs[predicted],
        };
        let row = WrongRow {
            id: example.id.clone(),
            at: example.place.at,
            kept: KeptCells::default(),
            text: example.input.text.clone(),
            pair: example.input.pair.clone(),
            wrong,
        };
        found.push((of_label, row));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let suspects = found.into_iter().map(|(_, row)| row).collect();
    Ok(Suspects { rows, judged: judged.len(), below, suspects })
}

impl Evaluation {
    /// The `examples` of this evaluation to whose label the answers of `draws` draws give a probability below `below`.
    pub fn suspects(&self, examples: &[Example], draws: usize, below: f64) -> Result<Suspects> {
        let AnswerSpace::Classes { names } = &self.task.goal.answers else {
            bail!("labels are judged of rows with one class; this model has other answers");
        };
        let scored = self.scored.get(&(draws as u32));
        let scored = scored.with_context(|| format!("no answers of {draws} draws"))?;
        let judged: Vec<&Example> = examples.iter().collect();
        suspects(&judged, &scored.outputs, names, below, examples.len())
    }
}

fn wrong(
    Example { input, label, .. }: &Example,
    outputs: &[f64],
    answers: &AnswerSpace,
    names: &[String],
    thresholds: &[f64],
) -> Result<Option<Wrong>> {
    // Classes of questions with choices of their rows are places.
    let has_own = matches!(answers, AnswerSpace::Choice { .. } | AnswerSpace::Questions { .. });
    let name = |id: usize| {
        let choice = input.choices.get(id).filter(|_| has_own);
        choice.or_else(|| names.get(id)).cloned().unwrap_or_default()
    };
    Ok(match label {
        Label::Score(score) => {
            let predicted = outputs[0];
            Some(Wrong::Score { label: *score, predicted, residual: score - predicted })
        }
        Label::Set(own) => {
            let is_given = |id: usize| outputs[id] >= thresholds[id];
            let of = |is_in: &dyn Fn(usize) -> bool| -> Vec<String> {
                (0..outputs.len()).filter(|&id| is_in(id)).map(name).collect()
            };
            let missing = of(&|id| own.contains(&id) && !is_given(id));
            let extra = of(&|id| !own.contains(&id) && is_given(id));
            let error = |(id, p): (usize, &f64)| (f64::from(own.contains(&id)) - p).abs();
            let largest_error = outputs.iter().enumerate().map(error).fold(0.0, f64::max);
            let is_wrong = !missing.is_empty() || !extra.is_empty();
            is_wrong.then(|| Wrong::Labels {
                label: of(&|id| own.contains(&id)),
                predicted: of(&is_given),
                missing,
                extra,
                largest_error,
            })
        }
        Label::Class(_) | Label::Shares(_) => {
            let predicted = argmax_rows(outputs, outputs.len())?[0];
            let right = label.class().filter(|&class| class != predicted);
            right.map(|class| Wrong::Class {
                label: name(class),
                predicted: name(predicted),
                label_probability: outputs[class],
                predicted_probability: outputs[predicted],
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Input;

    #[test]
    fn suspects_are_rows_whose_label_is_improbable() {
        let names = ["a", "b", "c"].map(String::from);
        let row = |line, class| {
            let place =
                crate::data::Place { file: std::path::Path::new("f").into(), at: At::Line(line) };
            Example {
                id: line.to_string(),
                place,
                input: Input::text("t"),
                label: Label::Class(class),
            }
        };
        let rows = [row(2, 0), row(3, 1), row(4, 2), row(5, 0)];
        let judged: Vec<&Example> = rows.iter().collect();
        let outputs = [0.09, 0.9, 0.01, 0.05, 0.9, 0.05, 0.5, 0.48, 0.02, 0.1, 0.7, 0.2];
        let found = suspects(&judged, &outputs, &names, 0.1, 5).unwrap();
        assert_eq!((found.rows, found.judged), (5, 4));
        let shown: Vec<(&str, &Wrong)> =
            found.suspects.iter().map(|row| (&*row.id, &row.wrong)).collect();
        let class =
            |label: &str, predicted: &str, label_probability, predicted_probability| Wrong::Class {
                label: label.to_owned(),
                predicted: predicted.to_owned(),
                label_probability,
                predicted_probability,
            };
        assert_eq!(shown, [("4", &class("c", "a", 0.02, 0.5)), ("2", &class("a", "b", 0.09, 0.9))]);
    }

    #[test]
    fn a_row_is_wrong_by_its_class_its_labels_or_its_number() {
        let names = ["a", "b", "c"].map(String::from);
        let of = |label: Label, outputs: &[f64], answers: &AnswerSpace| {
            let place =
                crate::data::Place { file: std::path::Path::new("f").into(), at: At::Line(2) };
            let example = Example { id: "7".to_owned(), place, input: Input::text("t"), label };
            let found = wrong(&example, outputs, answers, &names, &[0.5, 0.3, 0.5]).unwrap();
            found.map(|found| serde_json::to_string(&found).unwrap())
        };
        let classes = AnswerSpace::Classes { names: names.to_vec() };
        let labels = AnswerSpace::Labels { names: names.to_vec() };
        assert_eq!(of(Label::Class(1), &[0.2, 0.5, 0.3], &classes), None);
        assert_eq!(
            of(Label::Class(2), &[0.25, 0.5, 0.25], &classes).unwrap(),
            r#"{"label":"c","predicted":"b","label_probability":0.25,"predicted_probability":0.5}"#
        );
        assert_eq!(of(Label::Shares(vec![0.25, 0.5, 0.25]), &[0.25, 0.5, 0.25], &classes), None);
        assert_eq!(of(Label::Set(vec![1]), &[0.25, 0.375, 0.25], &labels), None);
        assert_eq!(
            of(Label::Set(vec![0, 2]), &[0.75, 0.5, 0.125], &labels).unwrap(),
            r#"{"label":["a","c"],"predicted":["a","b"],"missing":["c"],"extra":["b"],"largest_error":0.875}"#
        );
        assert_eq!(
            of(Label::Score(2.0), &[2.5], &AnswerSpace::Score).unwrap(),
            r#"{"label":2.0,"predicted":2.5,"residual":-0.5}"#
        );
    }
}
