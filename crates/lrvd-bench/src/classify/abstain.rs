//! The entropy above which a classifier gives no answer.

use anyhow::{anyhow, bail};
use lrvd_core::metrics::{RiskCoverage, argmax_rows};

use super::evaluate::{Evaluation, Labelled};
use super::info::{Abstention, ClassifierInfo};
use super::load::SavedClassifier;
use crate::error::Result;
use crate::text::quoted;

/// Finds the largest entropy up to which the answers of `draws` draws in `evaluation` have an error rate of at most `target`
/// with confidence `1 − delta` ([`RiskCoverage::certified`]), and writes it into the classifier's folder, where
/// [`SavedClassifier::abstention`] finds it.
pub fn fit_abstention(
    classifier: &SavedClassifier,
    labelled: &Labelled,
    evaluation: &Evaluation,
    draws: usize,
    target: f64,
    delta: f64,
) -> Result<Abstention> {
    classifier.check_unseen(labelled)?;
    let scored = evaluation.scored.get(&(draws as u32));
    let answers = scored.and_then(|scored| Some((scored, scored.uncertainty.as_ref()?)));
    let Some((scored, uncertainty)) = answers else {
        bail!("a threshold for giving no answer is for classes, and this one predicts numbers")
    };
    let width = classifier.info.goal.n_labels();
    let answered = argmax_rows(&scored.outputs, width)?;
    let correct: Vec<bool> = labelled
        .examples
        .iter()
        .zip(answered)
        .map(|(example, class)| example.label.class() == Some(class))
        .collect();
    let sure: Vec<f64> = uncertainty.predictive_entropy.iter().map(|entropy| -entropy).collect();
    let (rows, curve) = (correct.len(), RiskCoverage::new(&sure, &correct)?);
    let Some((point, bound)) = curve.certified(target, delta)? else {
        let best = curve.points().iter().map(|point| point.risk).fold(1.0, f64::min);
        let confidence = 100.0 * (1.0 - delta);
        bail!(
            "no threshold has an error rate below {target} with {confidence} % confidence on these {rows} rows \
             (the lowest observed rate of the most confident rows is {best:.4}): allow more errors with \
             `--risk`, or pass more rows"
        );
    };
    let found = Abstention {
        above: -point.threshold,
        target,
        delta,
        bound,
        risk: point.risk,
        coverage: point.coverage,
        rows,
    };
    let dir = classifier.folder();
    let Some(mut info) = ClassifierInfo::read(dir)? else {
        bail!("`{}` has no `lrvd_classifier.json`, where what is fitted is kept", dir.display());
    };
    info.abstentions.insert(draws, found);
    info.write(dir)?;
    Ok(found)
}

impl SavedClassifier {
    /// Checks that no file of `labelled` trained or chose this model.
    ///
    /// Files are compared by SHA-256, so copies of single rows are not noticed. Validation rows of a run with
    /// `checkpoint = "last"` pass: nothing was chosen by them.
    pub fn check_unseen(&self, labelled: &Labelled) -> Result<()> {
        match labelled.files.iter().find(|(_, sha256)| self.info.seen.contains(*sha256)) {
            Some((file, _)) => Err(anyhow!(
                "`{file}` trained or chose this model, so its error rate there is not that of new texts: pass \
                 rows that the run has not used"
            )),
            None => Ok(()),
        }
    }

    pub fn abstention(&self, draws: usize) -> Result<Option<Abstention>> {
        let fitted = &self.info.abstentions;
        let spared = self.policy.asked().is_some();
        match fitted.get(&draws).filter(|_| !spared) {
            Some(found) => Ok(Some(*found)),
            None if fitted.is_empty() => Ok(None),
            None => {
                let known = quoted(fitted.keys().map(usize::to_string));
                Err(anyhow!(
                    "no threshold was fitted for the answers of {draws} draws with these options in `{dir}`, \
                     only for {known} draws: pass `--draws`, run `lrvd abstain fit` with these options, or pass \
                     `--abstain-above` (`inf` always answers)",
                    dir = self.folder().display()
                ))
            }
        }
    }
}
