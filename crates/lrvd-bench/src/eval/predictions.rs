//! Files of predictions: one line for every validation row.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_burn::train::TokenAnswers;
use lrvd_core::metrics::mean;
use serde::Serialize;

use super::Scored;
use crate::data::{Label, PreparedTask};
use crate::error::Result;
use crate::io::{create_parent, write_json_lines};
use crate::record::PredictionLine;

impl PreparedTask {
    pub(crate) fn write_predictions(
        &self,
        scored: &BTreeMap<u32, Scored>,
        path: &Path,
    ) -> Result<()> {
        create_parent(path)?;
        if self.goal.is_texts() {
            write_json_lines(path, self.texts(scored))
        } else {
            write_json_lines(path, self.labelled(scored))
        }
    }

    fn labelled(&self, scored: &BTreeMap<u32, Scored>) -> impl Iterator<Item = PredictionLine> {
        let width = self.labels;
        let uncertain =
            || scored.iter().filter_map(|(&k, s)| Some((k, s, s.uncertainty.as_ref()?)));
        let rows = self.validation_ids.iter().zip(&self.validation).enumerate();
        rows.map(move |(i, (id, example))| PredictionLine {
            id: id.clone(),
            label: match example.answer.label() {
                Some(Label::Class(class)) => class as f64,
                Some(Label::Score(score)) => score,
                None => f64::NAN,
            },
            probs: scored
                .iter()
                .map(|(&k, s)| (k, s.outputs[i * width..(i + 1) * width].to_vec()))
                .collect(),
            entropy: uncertain().map(|(k, _, u)| (k, u.predictive_entropy[i])).collect(),
            // A single model agrees with itself: its mean is absent, and so are its values.
            mutual_information: uncertain()
                .filter(|(_, s, _)| s.metrics.mutual_information.is_some())
                .map(|(k, _, u)| (k, u.mutual_information[i]))
                .collect(),
        })
    }

    fn texts(&self, scored: &BTreeMap<u32, Scored>) -> impl Iterator<Item = TextLine<'_>> {
        let answers: Vec<(u32, &TokenAnswers)> =
            scored.iter().filter_map(|(&k, s)| Some((k, s.tokens.as_ref()?))).collect();
        let mut start = 0;
        self.validation_ids.iter().enumerate().map(move |(row, id)| {
            let tokens = answers.first().map_or(0, |(_, answers)| answers.per_row[row]);
            let means = |values: fn(&TokenAnswers) -> &[f64]| -> BTreeMap<u32, f64> {
                let mean = |answers| mean(&values(answers)[start..start + tokens]).unwrap_or(0.0);
                answers.iter().map(|&(draws, answers)| (draws, mean(answers))).collect()
            };
            let mut nll = means(|answers| &answers.log_probability);
            for log in nll.values_mut() {
                *log = -*log;
            }
            let entropy = means(|answers| &answers.entropy);
            let mut mutual_information = means(|answers| &answers.mutual_information);
            // A single model agrees with itself.
            mutual_information.retain(|&draws, _| draws > 1);
            start += tokens;
            TextLine { id, tokens, nll, entropy, mutual_information }
        })
    }
}

/// A text: its tokens and, by number of draws, their means.
#[derive(Serialize)]
struct TextLine<'a> {
    id: &'a str,
    tokens: usize,
    nll: BTreeMap<u32, f64>,
    entropy: BTreeMap<u32, f64>,
    mutual_information: BTreeMap<u32, f64>,
}

#[cfg(test)]
mod tests {
    use lrvd_burn::train::Logits;

    use super::*;
    use crate::data::batch::TokenisedExample;
    use crate::eval::score_draws;
    use crate::io::read_lines;
    use crate::task::Goal;

    #[test]
    fn uncertainty_is_written_for_every_number_of_draws() {
        let goal = Goal::classification("tone", ["a", "b", "c"].map(String::from).to_vec());
        let example = TokenisedExample {
            ids: vec![1],
            type_ids: vec![0],
            choices: None,
            answer: Label::Class(1).into(),
        };
        let task = PreparedTask {
            validation: vec![example],
            validation_ids: vec!["first".to_owned()],
            ..PreparedTask::without_examples(goal)
        };
        // Without draws two members that contradict each other; one draw; two draws that agree.
        let (b, c) = ([0.0, 9.0, 0.0], [0.0, 0.0, 9.0]);
        let answers = [(0, [b, c].concat()), (1, b.to_vec()), (2, [b, b].concat())];
        let scored =
            answers.map(|(k, logits)| (k, score_draws(&Logits::new(logits, 1, 3), &task).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("predictions.jsonl");
        task.write_predictions(&BTreeMap::from(scored), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        let [line] = lines.as_slice() else { panic!("one example") };
        assert_eq!((line.id.as_str(), line.label), ("first", 1.0));
        assert_eq!(line.entropy.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(line.entropy[&0] > 0.6 && line.entropy[&1] < 0.1);
        // A single model has no members that could disagree.
        assert_eq!(line.mutual_information.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(line.mutual_information[&0] > 0.6 && line.mutual_information[&2] < 1e-12);

        // Answered at the mean: no mutual information, where a cascade spared the draws.
        let spared = Logits { made: Some(vec![0]), ..Logits::new([b, b].concat(), 1, 3) };
        let scored = score_draws(&spared, &task).unwrap();
        assert_eq!(scored.metrics.mutual_information, None);
        task.write_predictions(&BTreeMap::from([(2, scored)]), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        assert!(lines[0].mutual_information.is_empty() && lines[0].entropy.len() == 1);
    }
}
