//! The entropy above which a classifier had better give no answer.

use lrvd_core::metrics::{RiskCoverage, argmax_rows};

use super::error::ClassifyError;
use super::evaluate::Evaluation;
use super::info::{Abstention, ClassifierInfo};
use super::load::SavedClassifier;
use crate::data::Example;

/// Finds the entropy up to which the answers of `draws` draws in `evaluation` are wrong at a rate of at most `target`, but
/// with probability `delta`, and writes it into the classifier's folder, where [`SavedClassifier::abstention`] finds it.
///
/// # Errors
///
/// [`ClassifyError::NoThreshold`] if `examples` cannot promise that of any entropy, [`ClassifyError::Undescribed`] for an
/// adapter without a description, [`ClassifyError::Metric`] for numbers outside 0 to 1.
pub fn fit_abstention(
    classifier: &SavedClassifier,
    examples: &[Example],
    evaluation: &Evaluation,
    draws: usize,
    target: f64,
    delta: f64,
) -> Result<Abstention, ClassifyError> {
    let scored = evaluation.scored.get(&(draws as u32));
    let answers = scored.and_then(|scored| Some((scored, scored.uncertainty.as_ref()?)));
    let Some((scored, uncertainty)) = answers else { return Err(ClassifyError::Scores) };
    let width = classifier.info.goal.n_labels();
    let answered = argmax_rows(&scored.outputs, width)?;
    let correct: Vec<bool> = examples
        .iter()
        .zip(answered)
        .map(|(example, class)| example.label.class() == Some(class))
        .collect();
    let sure: Vec<f64> = uncertainty.predictive_entropy.iter().map(|entropy| -entropy).collect();
    let (rows, curve) = (correct.len(), RiskCoverage::new(&sure, &correct)?);
    let Some((point, bound)) = curve.certified(target, delta)? else {
        let best = curve.points().iter().map(|point| point.risk).fold(1.0, f64::min);
        return Err(ClassifyError::NoThreshold { target, delta, rows, best });
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
        return Err(ClassifyError::Undescribed { dir: dir.to_owned() });
    };
    info.abstentions.insert(draws, found);
    info.write(dir)?;
    Ok(found)
}

impl SavedClassifier {
    /// Where no answer of `draws` draws is given, if that was fitted.
    ///
    /// # Errors
    ///
    /// [`ClassifyError::NoAbstention`] if it was fitted for other numbers of draws, or draws are spared.
    pub fn abstention(&self, draws: usize) -> Result<Option<Abstention>, ClassifyError> {
        let fitted = &self.info.abstentions;
        let spared = self.policy.asked().is_some();
        match fitted.get(&draws).filter(|_| !spared) {
            Some(found) => Ok(Some(*found)),
            None if fitted.is_empty() => Ok(None),
            None => Err(ClassifyError::NoAbstention { draws, dir: self.folder().to_owned() }),
        }
    }
}
