//! Scores of single evaluation rows, from the prediction files.

use std::collections::BTreeMap;
use std::path::Path;

use lrvd_core::metrics::NLL_FLOOR;

use super::metric::Metric;
use crate::error::Result;
use crate::io::read_lines;
use crate::record::PredictionLine;
use crate::settings::CheckpointChoice;

/// A metric of a run: checkpoint, task key, method in print, seed.
type Key = (&'static str, String, String, u64, Metric);

pub(super) fn key(
    choice: CheckpointChoice,
    task: &str,
    method: &str,
    seed: u64,
    metric: Metric,
) -> Key {
    (choice.name(), task.to_owned(), method.to_owned(), seed, metric)
}

/// Accuracy, NLL and Brier score of every evaluation row in order, by run: scores whose mean over rows is the run's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowScores(pub(super) BTreeMap<Key, Vec<f64>>);

impl RowScores {
    /// Adds both checkpoints of a run from its `folder`; a checkpoint without a file adds nothing, and neither do scores
    /// of a regression.
    pub(crate) fn read(
        &mut self,
        folder: &Path,
        task: &str,
        method: &str,
        seed: u64,
    ) -> Result<()> {
        for choice in CheckpointChoice::BOTH {
            let path = folder.join(format!("predictions-{}.jsonl", choice.name()));
            if !path.is_file() {
                continue;
            }
            for line in read_lines::<PredictionLine>(&path)? {
                for (&draws, probabilities) in &line.probs {
                    for (metric, score) in row_scores(probabilities, line.label) {
                        let key = key(choice, task, method, seed, metric.at(draws));
                        self.0.entry(key).or_default().push(score);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives all runs to the method or arm called `name`.
    pub(crate) fn rename(&mut self, name: &str) {
        let all = std::mem::take(&mut self.0).into_iter();
        let renamed =
            |(choice, task, _, seed, metric): Key| (choice, task, name.to_owned(), seed, metric);
        self.0 = all.map(|(key, scores)| (renamed(key), scores)).collect();
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// What one row adds to each metric; nothing for the score of a regression.
fn row_scores(probabilities: &[f64], label: f64) -> Vec<(Metric, f64)> {
    let label = label as usize;
    let Some(own) = probabilities.get(label).filter(|_| probabilities.len() > 1) else {
        return Vec::new();
    };
    let right = probabilities.iter().enumerate().all(|(c, p)| p < own || (p == own && c >= label));
    let squares =
        probabilities.iter().map(|p| p * p).sum::<f64>() - own * own + (own - 1.0).powi(2);
    vec![
        (Metric::ACCURACY, f64::from(u8::from(right))),
        (Metric::NLL, -own.max(NLL_FLOOR).ln()),
        (Metric::BRIER, squares),
    ]
}

#[cfg(test)]
mod tests {
    use lrvd_core::metrics::Predictions;

    use super::*;

    #[test]
    fn their_means_are_those_of_the_record() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let rows = [([0.5, 0.3, 0.2], 0.0), ([0.4, 0.4, 0.2], 1.0), ([0.1, 0.2, 0.7], 2.0)];
        let line = |(p, label): &([f64; 3], f64)| {
            format!(
                r#"{{"id":"a","label":{label:?},"probs":{{"0":{p:?}}},"entropy":{{}},"mutual_information":{{}}}}"#
            )
        };
        let lines: Vec<String> = rows.iter().map(line).collect();
        std::fs::write(folder.path().join("predictions-last.jsonl"), lines.join("\n"))?;
        let mut scores = RowScores::default();
        scores.read(folder.path(), "sst2", "LoRA", 1)?;
        let mean = |metric| -> Option<f64> {
            let own = scores.0.get(&key(CheckpointChoice::Last, "sst2", "LoRA", 1, metric))?;
            Some(own.iter().sum::<f64>() / own.len() as f64)
        };
        let all = rows.map(|(p, _)| p).concat();
        let predictions = Predictions::new(&all, 3, &[0, 1, 2])?;
        for (metric, expected) in [
            (Metric::ACCURACY, predictions.accuracy()),
            (Metric::NLL, predictions.nll()),
            (Metric::BRIER, predictions.brier()),
        ] {
            assert!(mean(metric).is_some_and(|m| (m - expected).abs() < 1e-12), "{metric:?}");
        }
        assert_eq!(mean(Metric::NLL.at(10)), None);
        let best = scores.0.get(&key(CheckpointChoice::Best, "sst2", "LoRA", 1, Metric::NLL));
        assert_eq!(best, None, "no file");
        assert_eq!(row_scores(&[0.3], 0.0), [], "a regression");
        Ok(())
    }
}
