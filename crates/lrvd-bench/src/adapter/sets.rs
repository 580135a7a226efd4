//! Sets of labels that hold the right one with a stated probability: split conformal prediction for classes.
//!
//! ```text
//! score of a row   s_i = 1 − p(y_i | x_i)
//! set of a text    {c : 1 − p(c | x) ≤ q},   q = the k-th smallest s_i,   k = ⌈(n + 1)(1 − α)⌉
//! 1 − α ≤ P(y in the set)
//! ```
//!
//! The probability is over the rows and the new text together, if these are exchangeable, whatever the model; it holds on average
//! over texts, not for each class. `p` is without the temperature, which may be fitted to the same rows: a score must not depend
//! on them. The most probable label is always in the set, so that none is empty; that makes the set no less probable to hold the right label.
//!
//! Source: Vovk et al. 2005, Algorithmic Learning in a Random World, section 2.2; Sadinle et al. 2019, arXiv:1609.00451.

use std::path::Path;

use anyhow::{bail, ensure};
use lrvd_burn::files::is_file;
use lrvd_core::metrics::conformal_radius;
use serde_json::Value;

use super::evaluate::evaluate;
use super::saved::SavedClassifier;
use crate::answers::AnswerSpace;
use crate::data::Split;
use crate::error::Result;
use crate::io::{read_json, read_lines};
use crate::record::PredictionLine;
use crate::run::{ADAPTER_DIR, HELD_OUT_PREDICTIONS, LAST_PREDICTIONS, RECORD_FILE, SETTINGS_FILE};
use crate::settings::CheckpointChoice;
use crate::text::percent;

/// The rule of the sets of a classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelSets {
    /// Largest probability that the right label is not in the set.
    pub alpha: f64,
    /// Rows that give the quantile.
    pub rows: usize,
    /// The quantile of the scores.
    quantile: f64,
    /// By which the logits of the classifier's probabilities are divided.
    temperature: f64,
}

/// Probabilities without the temperature: `p^T`, normalised.
pub(super) fn untempered(probabilities: &[f64], temperature: f64) -> Vec<f64> {
    let powers: Vec<f64> = probabilities.iter().map(|p| p.powf(temperature)).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

impl LabelSets {
    /// The rule by rows with these `probabilities` and labels.
    fn fit<'r>(
        alpha: f64,
        temperature: f64,
        rows: impl IntoIterator<Item = (&'r [f64], usize)>,
    ) -> Result<Self> {
        let mut scores = Vec::new();
        for (probabilities, label) in rows {
            let own =
                untempered(probabilities, temperature).get(label).copied().unwrap_or_default();
            scores.push(1.0 - own);
        }
        let rows = scores.len();
        let Some(quantile) = conformal_radius(&scores, 1.0 - alpha)? else {
            bail!(
                "label sets that miss the right label in at most {} % need {} rows, and there are {rows}: allow more, or \
                 pass more labelled rows by `--sets-data`",
                percent(alpha),
                (1.0 / alpha - 1.0).ceil()
            );
        };
        Ok(Self { alpha, rows, quantile, temperature })
    }

    /// The rule by the validation rows of the classifier's run, whose answers are beside its adapter, or where these chose the
    /// model by rows that were held out from every choice.
    pub fn of_run(classifier: &SavedClassifier, alpha: f64, draws: usize) -> Result<Self> {
        check(classifier)?;
        let adapter = classifier.folder();
        let run = adapter.parent().filter(|_| adapter.ends_with(ADAPTER_DIR));
        let is_run = |run: &Path| is_file(&run.join(RECORD_FILE));
        let Some(run) =
            run.map(|run| is_run(run).map(|is| is.then_some(run))).transpose()?.flatten()
        else {
            bail!(
                "`{}` is not in the folder of its run, so that no held-out answers are known: pass labelled rows that the run has \
                 not used by `--sets-data`",
                adapter.display()
            );
        };
        let settings: Value = read_json(&run.join(SETTINGS_FILE))?;
        let of = |name: &str| &settings["experiment"][name];
        let is_chosen =
            !of("patience").is_null() || of("checkpoint") == CheckpointChoice::Best.name();
        let held_out = run.join(HELD_OUT_PREDICTIONS);
        if is_chosen && !is_file(&held_out)? {
            bail!(
                "the validation rows of `{}` chose the model, so that its answers to them are better than to new texts: pass \
                 labelled rows that the run has not used by `--sets-data`",
                run.display()
            );
        }
        let path = if is_chosen { held_out } else { run.join(LAST_PREDICTIONS) };
        let lines: Vec<PredictionLine> = read_lines(&path)?;
        let mut rows = Vec::new();
        for line in &lines {
            let Some(probabilities) = line.probs.get(&(draws as u32)) else {
                bail!("`{}` has no answers of {draws} draws", path.display());
            };
            rows.push((probabilities.as_slice(), line.label as usize));
        }
        Self::fit(alpha, temperature(classifier, draws), rows)
    }

    /// The rule by `labelled` rows, which the run of the classifier must not have used.
    pub fn of_rows(
        classifier: &SavedClassifier,
        labelled: &Split,
        alpha: f64,
        draws: usize,
        seed: u64,
    ) -> Result<Self> {
        check(classifier)?;
        classifier.check_unseen(labelled)?;
        let evaluation = evaluate(classifier, &labelled.examples, draws, seed)?;
        let outputs = evaluation.scored.get(&(draws as u32)).map(|scored| &scored.outputs[..]);
        let outputs = outputs.unwrap_or_default().chunks(classifier.info.goal.answers.width());
        let labels = labelled.examples.iter().map(|row| row.label.class().unwrap_or_default());
        Self::fit(alpha, temperature(classifier, draws), outputs.zip(labels))
    }

    /// The set of a text with these `probabilities`, of which `class` is the most probable, in label order.
    pub fn of(&self, probabilities: &[f64], class: usize) -> Vec<usize> {
        let own = untempered(probabilities, self.temperature);
        let is_in = |&id: &usize| id == class || 1.0 - own[id] <= self.quantile;
        (0..own.len()).filter(is_in).collect()
    }

    /// The promise of the sets, in words.
    pub fn describe(&self) -> String {
        format!(
            "a set holds the right label of at least {} % of the texts like the {} held-out rows, on average",
            percent(1.0 - self.alpha),
            self.rows
        )
    }
}

fn temperature(classifier: &SavedClassifier, draws: usize) -> f64 {
    classifier.info.temperature(None, draws).unwrap_or(1.0)
}

fn check(classifier: &SavedClassifier) -> Result<()> {
    ensure!(
        matches!(classifier.info.goal.answers, AnswerSpace::Classes { .. }),
        "`--sets` is for classifiers with one class for each text"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use lrvd_core::metrics::{argmax_rows, softmax};
    use lrvd_core::noise::{Generator, NoiseKey};

    use super::*;

    #[test]
    fn a_set_has_the_labels_up_to_the_quantile_and_too_few_rows_are_named() {
        // Scores .1, .2, …, .9; of nine rows the ninth smallest for 90 %, the fifth for 50 %.
        let rows: Vec<Vec<f64>> =
            (1..10).map(|i| f64::from(i) / 10.0).map(|s| vec![1.0 - s, s]).collect();
        let labelled = || rows.iter().map(|row| (row.as_slice(), 0));
        let half = LabelSets::fit(0.5, 1.0, labelled()).unwrap();
        assert!((half.quantile - 0.5).abs() < 1e-15 && half.rows == 9);
        assert_eq!(half.of(&[0.6, 0.4], 0), [0]);
        assert_eq!(half.of(&[0.4, 0.6], 1), [1]);
        let most = LabelSets::fit(0.1, 1.0, labelled()).unwrap();
        assert_eq!(most.of(&[0.15, 0.85], 1), [0, 1]);
        // p² normalised: .1^2/(.1^2 + .9^2).
        let sharp = LabelSets { temperature: 2.0, ..most.clone() };
        assert_eq!(sharp.of(&[0.15, 0.85], 1), [1]);
        // No label is below the quantile: the most probable one remains.
        let none = LabelSets { quantile: 0.1, ..most };
        assert_eq!(none.of(&[0.2, 0.45, 0.35], 1), [1]);
        let error = LabelSets::fit(0.05, 1.0, labelled()).unwrap_err().to_string();
        assert!(error.contains("at most 5 % need 19 rows, and there are 9"), "{error}");
        assert!(LabelSets::fit(0.1, 1.0, labelled().take(8)).is_err());
    }

    /// Four classes whose logits the model makes 2.5 times too large: 400 draws of 99 rows and 50 new texts. The coverage of a
    /// rule varies as Beta(90, 10), by .030, and its mean over 400 rules by .0015, with the texts by .0026.
    #[test]
    fn the_right_label_is_in_the_set_as_often_as_was_asked() {
        let mut draws = Generator::new(NoiseKey::new(11));
        let mut row = || -> (Vec<f64>, usize) {
            let logits: Vec<f64> = (0..4).map(|_| 1.5 * draws.normal()).collect();
            let truth = softmax(&logits, 4).unwrap();
            let uniform = draws.uniform();
            let mut sum = 0.0;
            let label = truth.iter().position(|p| {
                sum += p;
                uniform < sum
            });
            let wrong: Vec<f64> = logits.iter().map(|z| 2.5 * z).collect();
            (softmax(&wrong, 4).unwrap(), label.unwrap_or(3))
        };
        let mut covered = 0;
        let mut labels = 0;
        let mut right = 0;
        for _ in 0..400 {
            let held: Vec<(Vec<f64>, usize)> = (0..99).map(|_| row()).collect();
            let rows = held.iter().map(|(p, label)| (p.as_slice(), *label));
            let sets = LabelSets::fit(0.1, 1.5, rows).unwrap();
            for _ in 0..50 {
                let (p, label) = row();
                let class = argmax_rows(&p, 4).unwrap()[0];
                let set = sets.of(&p, class);
                covered += usize::from(set.contains(&label));
                labels += set.len();
                right += usize::from(class == label);
            }
        }
        let [coverage, size, accuracy] = [covered, labels, right].map(|n| n as f64 / 20_000.0);
        assert!((0.892..0.915).contains(&coverage), "{coverage}");
        assert!(accuracy < 0.75 && size < 3.0, "{accuracy} {size}");
    }
}
