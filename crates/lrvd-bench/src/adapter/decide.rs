//! Answers to typed questions: a probability for each option, how sure the answer is, and whether it is given.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use burn::tensor::Device;
use lrvd_burn::train::{ClassAnswer, PassWatch, Prediction};
use lrvd_core::metrics::{argmax_rows, sample_sd};
use lrvd_models::Prefixes;

use super::description::{BaseInfo, Calibration, Description, RunInfo};
use super::open::Base;
use super::saved::SavedClassifier;
use crate::answers::{AnswerSpace, Invalid, LETTERS, Question, QuestionKind, Readout};
use crate::backbone::{Head, load_model};
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::{Columns, Input, InputLayout, QuestionForm, TextColumns};
use crate::error::{Burn, Error, Kind, Result, kind_of, unreadable};
use crate::method::softened;
use crate::settings::BasePrecision;
use crate::task::Goal;

/// Standard deviation over draws, the rows of `each`, of what the options at `places` answer under a temperature: the expected
/// level of a score, the probability of true; `None` of a choice and below two draws.
fn deviation(
    kind: QuestionKind,
    each: Prediction,
    places: &[usize],
    temperature: Option<f64>,
) -> Result<Option<f64>> {
    let temperatures = vec![temperature; each.rows];
    let answer = |found: ClassAnswer| {
        let probabilities = at(places, &found);
        match kind {
            QuestionKind::YesNo => probabilities.first().copied(),
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
    /// Standard deviation over the draws of a score, or of the probability of true; `None` of a choice and below two draws. It
    /// leaves out the spread of the probabilities, which are the predictive distribution.
    pub draws_deviation: Option<f64>,
    /// The confidence below which no answer is given, where one was fitted.
    pub threshold: Option<f64>,
    /// `true` if the confidence is below the threshold.
    pub abstained: bool,
    /// Draws that the answer is averaged over; 0 at the mean.
    pub draws: usize,
    /// Tokens that the model has read.
    pub tokens: usize,
    /// `true` if a temperature was fitted for answers to such questions: of a type, or to the one question of the training.
    pub calibrated: bool,
}

/// Most tokens of scored options that share a pass, unless one option has more.
const PART: usize = 512;

/// `options` in their order, in parts of at most [`PART`] tokens or of one option.
fn parts(options: &[Vec<u32>]) -> Vec<&[Vec<u32>]> {
    let mut parts = Vec::new();
    let mut first = 0;
    let mut tokens = 0;
    for (place, option) in options.iter().enumerate() {
        if place > first && tokens + option.len() > PART {
            parts.push(&options[first..place]);
            (first, tokens) = (place, 0);
        }
        tokens += option.len();
    }
    parts.push(&options[first..]);
    parts
}

/// Fault of a question that cannot be read; the error itself if it has another cause. If it does not fit, its options are at
/// fault: all else may be cut.
fn of_question(question: &Question, error: Error) -> Result<Invalid> {
    let Some(message) = unreadable(&error) else { return Err(error) };
    let is_of_options = kind_of(&error) == Some(Kind::Input) && !question.options.is_empty();
    Ok(Invalid::at(if is_of_options { &["criteria"] } else { &[] }, message))
}

impl SavedClassifier {
    /// A language model without an adapter: it answers typed questions by `readout`, uncalibrated.
    pub fn untrained(base: &Base, readout: Readout, device: &Device) -> Result<Self> {
        const BATCH_SIZE: usize = 8;
        let backbone = Arc::clone(&base.0);
        backbone.decoder_for("answers to typed questions without training")?;
        let architecture = &backbone.architecture;
        let run = RunInfo::none("untrained", architecture.sizes().positions, BATCH_SIZE);
        let answers = AnswerSpace::Questions { max_options: LETTERS.len(), usual: None };
        let goal = Goal::new("decisions", answers);
        let layout = InputLayout::Question(QuestionForm::own(readout));
        let info = Description {
            columns: Some(Columns::Labelled(TextColumns::decisions())),
            pairs: Some(true),
            ..Description::new(BaseInfo::of(&backbone), goal, layout, run)
        };
        let task = info.reader(&backbone)?.prepare(info.goal.clone(), &[], &[])?;
        let dtype = backbone.stored_as(BasePrecision::F32)?;
        let (model, _) =
            load_model(&backbone, &task, (info.pooling, &Head::New), false, 0, device, dtype)?;
        let folder = backbone.location.folder.clone();
        Ok(Self::bare(info, Path::new(&folder), backbone, model, device))
    }

    /// Answers each of `questions` about `state` at the posterior mean (`draws = 0`) or averaged over draws, which `seed`
    /// addresses: `draws` is a number that [`draws`](Self::draws) has returned. A state of 64 tokens or more is read once, and each
    /// question is a separate pass behind it, so the bits of an answer do not depend on what else is asked. A state that is too
    /// long loses its end. An encoder, which reads the state alone, is asked once.
    ///
    /// A question that this classifier does not answer, or whose options do not fit, costs the others nothing. `watch` is asked
    /// before every question and after every pass, of which a question with many options has several; once it says no, the error
    /// is one of [`Kind::Stopped`](crate::Kind::Stopped).
    pub fn decide(
        &self,
        state: &str,
        questions: &[Question],
        draws: usize,
        seed: u64,
        watch: PassWatch<'_>,
    ) -> Result<Vec<Result<Decided, Invalid>>> {
        if !matches!(
            self.info.goal.answers,
            AnswerSpace::Question { .. } | AnswerSpace::Questions { .. }
        ) {
            bail!(
                "`{}` was not trained on typed questions: `lrvd train` with rows of `state`, `questions` and `targets` does \
                 that",
                self.folder().display()
            );
        }
        let prefixes = Prefixes::default();
        let mut read = Vec::new();
        let mut all = Vec::with_capacity(questions.len());
        for question in questions {
            if watch.is_some_and(|goes_on| !goes_on(0)) {
                return Err(lrvd_burn::Error::Stopped.into());
            }
            let calibration = self.calibration(question.kind, draws)?;
            let (input, places) = match self.asked(state, question) {
                Ok(found) => found,
                Err(invalid) => {
                    all.push(Err(invalid));
                    continue;
                }
            };
            let logits = self.read_once(input, (draws, seed), &prefixes, &mut read, watch);
            all.push(match logits {
                Ok(found) => Ok(self.decided(question, &places, calibration, found, draws)?),
                Err(error) => Err(of_question(question, error)?),
            });
        }
        Ok(all)
    }

    /// The logits of `input` and the tokens that were read, which are those of `known` if it was asked before.
    fn read_once(
        &self,
        input: Input,
        (draws, seed): (usize, u64),
        prefixes: &Prefixes,
        known: &mut Vec<(Input, Prediction, usize)>,
        watch: PassWatch<'_>,
    ) -> Result<(Prediction, usize)> {
        if let Some((_, logits, tokens)) = known.iter().find(|(own, ..)| *own == input) {
            return Ok((logits.clone(), *tokens));
        }
        let found = self.on_examples(std::slice::from_ref(&input), 0, Some(prefixes), |examples| {
            let tokens = examples.examples.iter().map(TokenisedExample::tokens).sum();
            Ok((self.in_parts(examples, draws, seed, watch)?, tokens))
        });
        let (logits, tokens) = found?;
        known.push((input, logits.clone(), tokens));
        Ok((logits, tokens))
    }

    /// The logits of one question. Options that are scored come in parts of [`PART`] tokens where that changes no draw: the score of
    /// an option does not depend on the others, and a request can be ended between parts.
    fn in_parts(
        &self,
        examples: &TokenExamples<'_>,
        draws: usize,
        seed: u64,
        watch: PassWatch<'_>,
    ) -> Burn<Prediction> {
        let is_free = self.is_batch_free(draws) && self.policy.cascade.is_none();
        let (example, options) = match examples.examples {
            [example @ TokenisedExample { scored: Some(options), .. }] if is_free => {
                (example, options)
            }
            _ => return self.logits_while(examples, draws, seed, watch),
        };
        let mut each = vec![Vec::with_capacity(options.len()); draws.max(1)];
        for part in parts(options) {
            let choices = Some(part.len());
            let scored = Some(part.into());
            let own = [TokenisedExample { choices, scored, ..example.clone() }];
            let part = TokenExamples { examples: &own, labels: part.len(), ..*examples };
            let found = self.logits_while(&part, draws, seed, watch)?;
            for (draw, values) in each.iter_mut().zip(found.values.chunks(found.width)) {
                draw.extend_from_slice(&values[..part.labels]);
            }
        }
        Ok(Prediction::new(each.concat(), 1, options.len()))
    }

    fn decided(
        &self,
        question: &Question,
        places: &[usize],
        calibration: Option<&Calibration>,
        (logits, tokens): (Prediction, usize),
        draws: usize,
    ) -> Result<Decided> {
        let kind = question.kind;
        let n = question.options.len();
        // What the draws disagree about is theirs, whatever the temperature.
        let drawn = logits.draws_per_example.as_ref().map_or(draws, |made| made.iter().sum());
        let raw = logits.classes()?.into_iter().next();
        let temperature = self.info.temperature(Some(kind), draws);
        let made = drawn.max(1);
        let width = logits.width;
        let each = Prediction::new(logits.values[..made * width].to_vec(), made, width);
        let found = softened(logits, &[temperature])?.classes()?.into_iter().next();
        let (Some(raw), Some(found)) = (raw, found) else { bail!("the model gave no answer") };
        let probabilities = at(places, &found);
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
            draws_deviation: deviation(kind, each, places, temperature)?,
            threshold,
            abstained: threshold.is_some_and(|least| confidence < least),
            draws: drawn,
            tokens,
            calibrated: calibration.is_some()
                || temperature.is_some() && self.is_trained_on(question),
            probabilities,
        })
    }

    /// `true` if the training, and its held-out rows, had such questions: all rows of it may have had one and the same.
    fn is_trained_on(&self, question: &Question) -> bool {
        match &self.info.goal.answers {
            AnswerSpace::Question { question: own }
            | AnswerSpace::Questions { usual: Some(own), .. } => {
                own.places_of_same(question).is_ok()
            }
            _ => true,
        }
    }

    /// Input of the model for a question, and the class of each of its options.
    fn asked(&self, state: &str, question: &Question) -> Result<(Input, Vec<usize>), Invalid> {
        match &self.info.goal.answers {
            AnswerSpace::Question { question: own } => {
                Ok((Input::asking(own, state), own.places_of_same(question)?))
            }
            _ => Ok((Input::asking(question, state), (0..question.options.len()).collect())),
        }
    }

    /// Calibration of answers of `draws` draws to questions of this type, if there is one for the type.
    pub fn calibration(&self, kind: QuestionKind, draws: usize) -> Result<Option<&Calibration>> {
        let Some(fitted) = self.info.calibration.get(&kind) else { return Ok(None) };
        self.fitted(fitted, &format!("temperature of questions of the type `{kind}`"), draws)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use super::*;
    use crate::answers::QuestionOption;

    /// The language model of the repository without an adapter.
    fn untrained(readout: Readout) -> SavedClassifier {
        let base = Base::open(&format!("{}/assets/stories260K", env!("CARGO_MANIFEST_DIR")), None);
        SavedClassifier::untrained(&base.unwrap(), readout, &Device::flex()).unwrap()
    }

    fn choice(instructions: &str, options: usize, words: &str) -> Question {
        let option = |i| QuestionOption { name: format!("opt {i}{words}"), description: None };
        let options = (0..options).map(option).collect();
        Question { kind: QuestionKind::Choice, instructions: instructions.to_owned(), options }
    }

    #[test]
    fn a_watch_that_says_no_ends_before_the_next_question_and_between_parts_of_options() {
        let model = untrained(Readout::Options);
        let ask = |questions: &[Question], most: usize| {
            let passes = Cell::new(0);
            let watch = |answers: usize| {
                passes.set(passes.get() + answers);
                passes.get() < most
            };
            let found = model.decide("a long day", questions, 0, 0, Some(&watch));
            (found.map(|found| found.len()).map_err(|error| kind_of(&error)), passes.get())
        };
        let few = ["Which?", "What?", "Who?"].map(|words| choice(words, 3, ""));
        assert_eq!(ask(&few, usize::MAX), (Ok(3), 3));
        assert_eq!(ask(&few, 1), (Err(Some(Kind::Stopped)), 1));
        assert_eq!(ask(&few, 0), (Err(Some(Kind::Stopped)), 0));
        let wide = [choice("Which?", 255, " with a longer text")];
        let (answered, parts) = ask(&wide, usize::MAX);
        assert!(answered == Ok(1) && parts > 3, "{parts}");
        assert_eq!(ask(&wide, 2), (Err(Some(Kind::Stopped)), 2));
        // The same question again is not read again.
        assert_eq!(ask(&[few[0].clone(), few[0].clone()], usize::MAX), (Ok(2), 1));
    }

    #[test]
    fn options_that_are_scored_in_parts_have_the_scores_of_all_in_one_pass() {
        let (model, question) =
            (untrained(Readout::Options), choice("Which?", 255, " with a longer text"));
        let input = Input::asking(&question, "a long day");
        let whole = model.on_examples(&[input], 0, None, |all| Ok(model.logits(all, 0, 0)?));
        let whole = whole.unwrap().classes().unwrap().remove(0).probabilities;
        let found = model.decide("a long day", &[question], 0, 0, None).unwrap().remove(0).unwrap();
        assert_eq!((found.probabilities.len(), whole.len()), (255, 255));
        for (part, whole) in found.probabilities.iter().zip(whole) {
            assert!((part - whole).abs() < 1e-5 * whole, "{part} {whole}");
        }
    }

    #[test]
    fn options_that_do_not_fit_cost_their_own_question_alone() {
        let mut model = untrained(Readout::Letters);
        model.info.run.max_length = 96;
        let questions = [2, 26, 5, 8, 40].map(|options| choice("Which?", options, ""));
        let found = model.decide("a day", &questions, 0, 0, None).unwrap();
        let names = found.iter().map(|found| found.as_ref().map(|found| found.names.len()));
        let wrong = |found: &Invalid| (found.path.join("."), found.message.contains("is 96"));
        let own: Vec<_> = names.map(|found| found.map_err(wrong)).collect();
        let unfit = |is_long| Err(("criteria".to_owned(), is_long));
        assert_eq!(own, [Ok(2), unfit(true), Ok(5), unfit(true), unfit(false)]);
        // Scored by their texts all of them fit, but for two that have the same tokens.
        let mut model = untrained(Readout::Options);
        model.info.run.max_length = 96;
        let same = Question { kind: QuestionKind::Score, ..choice("Which?", 2, "") };
        let described = |option: &QuestionOption| QuestionOption {
            description: Some("the same".to_owned()),
            ..option.clone()
        };
        let options = same.options.iter().map(described).collect();
        let questions = [questions.to_vec(), vec![Question { options, ..same }]].concat();
        let found = model.decide("a day", &questions, 0, 0, None).unwrap();
        let own = found.iter().map(|found| found.as_ref().map(|found| found.names.len()));
        let own: Vec<_> = own.map(|found| found.map_err(|wrong| wrong.path.join("."))).collect();
        assert_eq!(own, [Ok(2), Ok(26), Ok(5), Ok(8), Ok(40), Err("criteria".to_owned())]);
    }

    #[test]
    fn the_deviation_is_that_of_the_answers_of_the_draws_under_the_temperature() {
        // Under a temperature of 2 the probabilities of two draws, of which the third option of a yes-or-no question is barred.
        let of = |kind, draws: &[[f64; 3]], places: &[usize]| {
            let values = draws.iter().flatten().map(|p| if *p > 0.0 { 2.0 * p.ln() } else { -1e6 });
            let each = Prediction::new(values.collect(), draws.len(), 3);
            deviation(kind, each, places, Some(2.0)).unwrap()
        };
        let (sides, draws) =
            ([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0]], [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]);
        for (found, expected) in [
            // 0.8 and 0.6; expected levels of 0.75 and 1.25, and of 1 and 1.25 in another order.
            (of(QuestionKind::YesNo, &sides, &[0, 1]), 0.2),
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
