//! Answers that are not given: uncertain ones, and those to texts unlike those of training.
//!
//! ```text
//! no answer   where p(x) ≤ α by the detector of other texts (OodDetector, α = OUTSIDE), or else where H(x) > t
//! H           the entropy of the answer, or that at temperature 1
//! t           fitted for an error rate (`certify`), or stated
//! ```

use anyhow::{anyhow, bail};
use serde::Serialize;

use super::description::{Abstention, Certificate};
use super::ood::{OUTSIDE, OodDetector};
use super::saved::{AbstainBy, RowAnswer, SavedClassifier};
use super::sets::untempered;
use crate::answers::{AnswerSpace, QuestionKind};
use crate::data::Input;
use crate::error::{Error, Result};
use crate::text::percent;

/// Rule by which answers are withheld.
#[derive(Clone, Debug, PartialEq)]
pub enum Withheld {
    /// With an entropy above this, nats.
    Above(f64),
    /// With an entropy above a fitted threshold.
    Fitted {
        above: f64,
        /// That of the probabilities, if the entropy is that at temperature 1.
        temperature: Option<f64>,
        /// SHA-256 of the detector of texts unlike those of training, which withholds more.
        detector: Option<String>,
    },
    /// To a question of the type, with a confidence below this.
    Below(QuestionKind, f64),
}

impl Withheld {
    /// `true` for an answer with these probabilities and this entropy.
    pub fn contains(&self, probabilities: &[f64], entropy: f64) -> bool {
        match *self {
            Self::Above(limit) | Self::Fitted { above: limit, temperature: None, .. } => {
                entropy > limit
            }
            Self::Fitted { above, temperature: Some(temperature), .. } => {
                raw_entropy(probabilities, temperature) > above
            }
            Self::Below(kind, least) => kind.confidence(probabilities).is_ok_and(|own| own < least),
        }
    }
}

/// Reason for which no answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The answer is above the threshold.
    Uncertain,
    /// The text is unlike those of training.
    UnlikeTraining,
}

impl Reason {
    /// Its name in files, and words for a reader.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::UnlikeTraining => "unlike_training",
        }
    }

    pub const fn describe(self) -> &'static str {
        match self {
            Self::Uncertain => "uncertain",
            Self::UnlikeTraining => "unlike the training texts",
        }
    }
}

/// An answer, and whether it is given.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedAnswer {
    pub answer: RowAnswer,
    /// `None` if there is no rule.
    pub abstained: Option<bool>,
    /// `None` if it is given.
    pub reason: Option<Reason>,
}

/// The rule of a classifier, with its detector.
#[derive(Clone, Debug)]
pub struct Abstaining {
    pub asked: Option<AbstainBy>,
    /// With its SHA-256, by which thresholds name it.
    detector: Option<(String, OodDetector)>,
}

impl Abstaining {
    /// The rule that is `asked` for, if `classifier` has it for the answers of `draws` draws.
    pub fn open(
        classifier: &SavedClassifier,
        asked: Option<AbstainBy>,
        draws: usize,
    ) -> Result<Self> {
        let found = classifier.withheld(asked, draws)?;
        let mut own = Self { asked, detector: None };
        if let Some(Withheld::Fitted { detector: Some(hash), .. }) = found {
            let folder = classifier.folder();
            if OodDetector::hash(folder)?.as_ref() != Some(&hash) {
                bail!(
                    "the threshold in `{dir}` was fitted with a detector of texts unlike those of training that is not there, or \
                     is another one by now: run `lrvd abstain fit {dir} --data FILE` with labelled rows that the run has not used",
                    dir = folder.display()
                );
            }
            own.detector = OodDetector::find(folder)?.map(|detector| (hash, detector));
        }
        Ok(own)
    }

    /// `answers` of `draws` draws to `inputs`, with those that are withheld; `first` is the number of inputs before these.
    pub fn judge(
        &self,
        classifier: &SavedClassifier,
        inputs: &[Input],
        answers: Vec<RowAnswer>,
        (draws, first): (usize, usize),
    ) -> Result<Vec<JudgedAnswer>> {
        let rule = classifier.withheld(self.asked, draws)?;
        let mut unlike = vec![false; inputs.len()];
        if let Some(Withheld::Fitted { detector: Some(hash), .. }) = &rule {
            let known = self.detector.as_ref().filter(|(own, _)| own == hash);
            let Some((_, detector)) = known else {
                bail!(
                    "the threshold of {draws} draws was fitted with another detector than that of the others"
                );
            };
            let scored = detector.score(classifier, inputs, first)?;
            unlike = scored.iter().map(|found| found.p <= OUTSIDE).collect();
        }
        let judged = |(answer, unlike): (RowAnswer, bool)| {
            let (RowAnswer::Class { probabilities, entropy, .. }, Some(rule)) = (&answer, &rule)
            else {
                return JudgedAnswer { answer, abstained: None, reason: None };
            };
            let reason = if unlike {
                Some(Reason::UnlikeTraining)
            } else {
                rule.contains(probabilities, *entropy).then_some(Reason::Uncertain)
            };
            JudgedAnswer { abstained: Some(reason.is_some()), reason, answer }
        };
        Ok(answers.into_iter().zip(unlike).map(judged).collect())
    }
}

impl SavedClassifier {
    /// Rule for answers to texts from `draws` draws, as it is `asked` for. Answers to a typed question with a fitted threshold have
    /// it without being asked.
    pub fn withheld(&self, asked: Option<AbstainBy>, draws: usize) -> Result<Option<Withheld>> {
        let option = match asked {
            Some(AbstainBy::Fitted) => "--abstain",
            Some(AbstainBy::Above(_)) => "--abstain-above",
            None => "",
        };
        match (asked, &self.info.goal.answers) {
            (None, _) => {}
            (_, AnswerSpace::Labels { .. }) => {
                bail!(
                    "`{option}` is for classifiers of one class, and this one gives several labels"
                )
            }
            (_, AnswerSpace::Score) => {
                bail!("`{option}` is for classifiers, and this one predicts numbers")
            }
            (
                Some(AbstainBy::Above(_)),
                AnswerSpace::Question { .. } | AnswerSpace::Questions { .. },
            ) => bail!(
                "`--abstain-above` is an entropy, and typed questions have a threshold on the confidence: leave it out"
            ),
            (_, AnswerSpace::Questions { .. }) => bail!(
                "`--abstain` is for classifiers, and answers to typed questions have their threshold without it: leave it out"
            ),
            (Some(AbstainBy::Above(above)), _) => return Ok(Some(Withheld::Above(above))),
            (Some(AbstainBy::Fitted), _) => {}
        }
        if let AnswerSpace::Question { question } = &self.info.goal.answers {
            let found = self.calibration(question.kind, draws)?;
            let least = found.and_then(|own| Some(own.threshold?.least));
            if let (None, Some(_)) = (least, asked) {
                return Err(self.no_threshold());
            }
            return Ok(least.map(|least| Withheld::Below(question.kind, least)));
        }
        if asked.is_none() {
            return Ok(None);
        }
        let Some(found) = self.fitted(&self.info.abstentions, "threshold", draws)? else {
            return Err(self.no_threshold());
        };
        let temperature = self.info.temperature(None, draws).filter(|_| found.untempered);
        let detector = found.detector.clone();
        Ok(Some(Withheld::Fitted { above: found.above, temperature, detector }))
    }

    fn no_threshold(&self) -> Error {
        let dir = self.dir.display();
        anyhow!(
            "`--abstain`: no threshold was fitted in `{dir}`: run `lrvd abstain fit {dir} --data FILE` with labelled rows that the run \
             has not used, or pass `--abstain-above NATS`"
        )
    }

    /// The fitted thresholds of the answers of `draws` draws, one sentence each; that of classes where it is `asked` for.
    pub fn thresholds(&self, asked: Option<AbstainBy>, draws: usize) -> Vec<String> {
        let abstains = asked == Some(AbstainBy::Fitted);
        let above = self.info.abstentions.get(&draws).filter(|_| abstains);
        let below = self.info.calibration.iter().filter_map(|(kind, own)| {
            let found = own.get(&draws)?.threshold?;
            let what = format!("an answer to a {kind} with a confidence below {:.4}", found.least);
            let rows = format!("{} rows", found.certificate.rows);
            Some(found.certificate.describe(&what, &rows, draws))
        });
        above.map(|own| own.describe(draws)).into_iter().chain(below).collect()
    }
}

impl Abstention {
    /// A sentence.
    pub fn describe(&self, draws: usize) -> String {
        let Self { above, untempered, detector, fitted_to, certificate } = self;
        let scale = if *untempered { " at temperature 1" } else { "" };
        let unlike = if detector.is_some() {
            format!(
                ", or to one of the {} % of texts most unlike those of training,",
                percent(OUTSIDE)
            )
        } else {
            String::new()
        };
        let what = format!("an answer with an entropy above {above:.4} nats{scale}{unlike}");
        let rows = format!("{} {} rows", certificate.rows, fitted_to.describe());
        certificate.describe(&what, &rows, draws)
    }
}

impl Certificate {
    /// A sentence on what has no answer.
    fn describe(&self, what: &str, rows: &str, draws: usize) -> String {
        let risk = percent(self.target);
        let confidence = percent(1.0 - self.delta);
        format!(
            "threshold: {what} is withheld, which was fitted to {rows} with {draws} draws for at most {risk} % wrong answers at \
             {confidence} % confidence"
        )
    }
}

/// Entropy at temperature 1 of an answer with these `probabilities` at `temperature`, nats.
pub(super) fn raw_entropy(probabilities: &[f64], temperature: f64) -> f64 {
    let own = untempered(probabilities, temperature);
    own.into_iter().filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum()
}

#[cfg(test)]
mod tests {
    use lrvd_core::metrics::softmax;

    use super::*;

    #[test]
    fn the_entropy_at_temperature_1_is_that_of_the_logits() {
        let logits = [2.0, -1.0, 0.5];
        let p = softmax(&logits, 3).unwrap();
        let expected: f64 = p.iter().map(|p| -p * p.ln()).sum();
        for temperature in [0.3, 1.0, 2.7] {
            let cooled = logits.map(|z| z / temperature);
            let found = raw_entropy(&softmax(&cooled, 3).unwrap(), temperature);
            assert!((found - expected).abs() < 1e-12, "{temperature}: {found}");
        }
        assert_eq!(raw_entropy(&[1.0, 0.0], 2.0), 0.0);
    }
}
