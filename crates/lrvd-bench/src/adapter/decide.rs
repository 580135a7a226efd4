//! Answers to typed questions: a probability for each option, how sure the answer is, and whether it is given.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use burn::tensor::Device;
use lrvd_burn::train::{ClassAnswer, Logits};
use lrvd_core::metrics::{argmax_rows, sample_sd};
use lrvd_models::Prefixes;

use super::description::{BaseInfo, Calibration, ClassifierInfo, RunInfo};
use super::open::Base;
use super::saved::SavedClassifier;
use crate::backbone::load_model;
use crate::data::batch::TokenisedExample;
use crate::data::{Input, LETTERS, Question, QuestionForm, QuestionKind, TextColumns};
use crate::error::{Kind, Result};
use crate::method::softened;
use crate::settings::BasePrecision;
use crate::task::Goal;

/// Standard deviation over draws, the rows of `each`, of what the options at `places` answer under a temperature: the expected
/// level of a score, the probability of true; `None` of a choice and below two draws.
fn deviation(
    kind: QuestionKind,
    each: Logits,
    places: &[usize],
    temperature: Option<f64>,
) -> Result<Option<f64>> {
    let temperatures = vec![temperature; each.rows];
    let answer = |found: ClassAnswer| {
        let probabilities = at(places, &found);
        match kind {
            QuestionKind::Noul => probabilities.first().copied(),
            QuestionKind::Choice | QuestionKind::Score => kind.score(&probabilities),
        }
    };
    let found = softened(each, &temperatures)?.classes()?.into_iter().map(answer);
    let answers: Option<Vec<f64>> = found.collect();
    Ok(answers.and_then(|answers| sample_sd(&answers).ok()))
}

/// The probabilities of the options, which are the classes at `places`.
fn at(places: &[usize], found: &ClassAnswer) -> Vec<f64> {
    places.iter().map(|&place| found.probabilities[place]).collect()
}

/// The answer to a typed question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    pub kind: QuestionKind,
    /// The options in the order of the question.
    pub names: Vec<String>,
    /// Of the options, averaged over the draws; they sum to 1.
    pub probabilities: Vec<f64>,
    /// The most probable option, the first of equals.
    pub choice: usize,
    /// Expected level of a score.
    pub score: Option<f64>,
    /// From 0 to 1, [by type](QuestionKind::confidence).
    pub confidence: f64,
    /// Of the probabilities, nats.
    pub entropy: f64,
    /// Between the answer and the weights, nats; `None` without draws.
    pub mutual_information: Option<f64>,
    /// Standard deviation over the draws of a score, or of the probability of true; `None` of a choice and below two draws.
    pub deviation: Option<f64>,
    /// The confidence below which no answer is given, where one was fitted.
    pub threshold: Option<f64>,
    /// Whether the confidence is below the threshold.
    pub abstained: bool,
    /// Draws that the answer is averaged over; 0 at the mean.
    pub draws: usize,
    /// Tokens that the model has read.
    pub tokens: usize,
    /// Whether a temperature was fitted for such answers.
    pub calibrated: bool,
}

impl SavedClassifier {
    /// A language model without an adapter: it answers typed questions by letters, uncalibrated.
    pub fn untrained(base: &Base, device: &Device) -> Result<Self> {
        const BATCH_SIZE: usize = 8;
        let backbone = Arc::clone(&base.0);
        backbone.decoder_for("answers to typed questions without training")?;
        let architecture = &backbone.architecture;
        let run = RunInfo::none("untrained", architecture.sizes().positions, BATCH_SIZE);
        let goal = Goal::questions("decisions", LETTERS);
        let info = ClassifierInfo {
            columns: Some(TextColumns::decisions()),
            wording: architecture.question_wording(QuestionForm::default(), LETTERS.len(), true),
            pairs: Some(true),
            ..ClassifierInfo::new(BaseInfo::of(&backbone), goal, run)
        };
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let dtype = backbone.stored_as(BasePrecision::F32)?;
        let (model, _) = load_model(&backbone, &task, info.pooling, false, 0, device, dtype)?;
        let folder = backbone.location.folder.clone();
        Ok(Self::bare(info, Path::new(&folder), backbone, model, device))
    }

    /// Whether it answers typed questions.
    pub fn is_decider(&self) -> bool {
        let columns = self.info.columns.as_ref();
        self.info.question.is_some() || columns.is_some_and(|columns| columns.questions.is_some())
    }

    /// The only question that it answers; `None` if it answers any, or none.
    pub fn fixed_question(&self) -> Option<&Question> {
        self.info.question.as_ref().filter(|_| !self.info.has_choices())
    }

    /// Answers each of `questions` about `state` at the posterior mean (`draws = 0`) or averaged over draws, which `seed`
    /// addresses: `draws` is a number that [`draws`](Self::draws) has returned. A state of 64 tokens or more is read once, and each
    /// question is a separate pass behind it, so the bits of an answer do not depend on what else is asked. A state that is too
    /// long loses its end.
    ///
    /// An error of [`Kind::Input`] names a question that this classifier does not answer.
    pub fn decide(
        &self,
        state: &str,
        questions: &[Question],
        draws: usize,
        seed: u64,
    ) -> Result<Vec<Decided>> {
        let prefixes = Prefixes::default();
        let answer = |question| self.decide_one(state, question, draws, seed, &prefixes);
        questions.iter().map(answer).collect()
    }

    fn decide_one(
        &self,
        state: &str,
        question: &Question,
        draws: usize,
        seed: u64,
        prefixes: &Prefixes,
    ) -> Result<Decided> {
        let (kind, n) = (question.kind, question.options.len());
        let (input, places) = self.asked(state, question)?;
        let calibration = self.calibration(kind, draws)?;
        let (logits, tokens) = self.on_examples(&[input], 0, Some(prefixes), |examples| {
            let tokens = examples.examples.iter().map(TokenisedExample::tokens).sum();
            Ok((self.logits(examples, draws, seed)?, tokens))
        })?;
        // What the draws disagree about is theirs, whatever the temperature.
        let drawn = logits.made.as_ref().map_or(draws, |made| made.iter().sum());
        let raw = logits.classes()?.into_iter().next();
        let temperature = self.info.temperature(Some(kind), draws);
        let (made, width) = (drawn.max(1), logits.width);
        let each = Logits::new(logits.values[..made * width].to_vec(), made, width);
        let found = softened(logits, &[temperature])?.classes()?.into_iter().next();
        let (Some(raw), Some(found)) = (raw, found) else { bail!("the model gave no answer") };
        let probabilities = at(&places, &found);
        let choice = argmax_rows(&probabilities, n)?[0];
        let confidence = kind.confidence(&probabilities)?;
        let threshold = calibration.and_then(|own| Some(own.threshold?.least));
        Ok(Decided {
            kind,
            names: question.names(),
            choice,
            score: kind.score(&probabilities),
            confidence,
            entropy: found.entropy,
            mutual_information: raw.mutual_information.filter(|_| drawn > 0),
            deviation: deviation(kind, each, &places, temperature)?,
            threshold,
            abstained: threshold.is_some_and(|least| confidence < least),
            draws: drawn,
            tokens,
            calibrated: temperature.is_some(),
            probabilities,
        })
    }

    /// What the model reads for a question, and the class of each of its options.
    fn asked(&self, state: &str, question: &Question) -> Result<(Input, Vec<usize>)> {
        if let Some(own) = self.fixed_question() {
            let places = own.places(question).ok_or_else(|| {
                let (own, other) = (own.describe(), question.describe());
                Kind::Input
                    .mark(anyhow!("this classifier answers {own}, and the question is {other}"))
            })?;
            return Ok((Input::state(own, state), places));
        }
        if !self.is_decider() {
            bail!(
                "`{}` was not trained on typed questions: `lrvd train` with rows of `state`, `questions` and `targets` does \
                 that",
                self.folder().display()
            );
        }
        Ok((Input::asking(question, state), (0..question.options.len()).collect()))
    }

    /// What was fitted for answers of `draws` draws to questions of this type, if anything was for the type.
    pub fn calibration(&self, kind: QuestionKind, draws: usize) -> Result<Option<&Calibration>> {
        let Some(fitted) = self.info.calibration.get(&kind) else { return Ok(None) };
        self.fitted(fitted, &format!("temperature of questions of the type `{kind}`"), draws)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_the_answers_of_the_draws_under_the_temperature() {
        // Under a temperature of 2 the probabilities of two draws, of which the third option of a noul is barred.
        let of = |kind, draws: &[[f64; 3]], places: &[usize]| {
            let values = draws.iter().flatten().map(|p| if *p > 0.0 { 2.0 * p.ln() } else { -1e6 });
            let each = Logits::new(values.collect(), draws.len(), 3);
            deviation(kind, each, places, Some(2.0)).unwrap()
        };
        let (noul, draws) =
            ([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0]], [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]);
        for (found, expected) in [
            // 0.8 and 0.6; expected levels of 0.75 and 1.25, and of 1 and 1.25 in another order.
            (of(QuestionKind::Noul, &noul, &[0, 1]), 0.2),
            (of(QuestionKind::Score, &draws, &[0, 1, 2]), 0.5),
            (of(QuestionKind::Score, &draws, &[1, 0, 2]), 0.25),
        ] {
            let expected = expected * std::f64::consts::FRAC_1_SQRT_2;
            assert!((found.unwrap() - expected).abs() < 1e-12, "{found:?}, expected {expected}");
        }
        assert_eq!(of(QuestionKind::Choice, &draws, &[0, 1, 2]), None);
        assert_eq!(of(QuestionKind::Score, &draws[..1], &[0, 1, 2]), None);
    }
}
