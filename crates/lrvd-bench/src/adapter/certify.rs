//! The threshold above which no answer is given, for an error rate, and what the end of a training fits.
//!
//! ```text
//! t   the largest for which answers that are given have an error rate of at most the target, with confidence 1 − δ
//! ```
//!
//! The rows of the fit neither trained nor chose the model. They may have fitted its temperature if the entropy is that at
//! temperature 1: neither this nor the most probable class depends on the temperature. The detector reads no label of these rows. So
//! the order in which thresholds are tested does not depend on which answers are right, as [`RiskCoverage::certified`] demands, and
//! the certificate is of the answers that both rules leave.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_burn::train::Prediction;
use lrvd_core::metrics::{RiskCoverage, argmax_rows};
use lrvd_core::noise::{NoiseKey, Stream, permutation};
use lrvd_models::AutoModel;

use super::abstain::raw_entropy;
use super::description::{
    Abstention, Certificate, DESCRIPTION_FILE, Description, FittedTo, RiskTarget, nothing_certified,
};
use super::evaluate::Evaluation;
use super::ood::{FEWEST, OUTSIDE, OodDetector};
use super::saved::SavedClassifier;
use crate::answers::AnswerSpace;
use crate::data::batch::TokenisedExample;
use crate::data::{Input, PreparedTask, Split};
use crate::error::Result;
use crate::eval::{RunContext, Scored, score_draws};
use crate::method::linear::features;
use crate::method::{DynMethod, EvaluationWork, FittedRows};
use crate::run::{Finished, HELD_OUT_PREDICTIONS, TrainSettings};

/// Most training rows that the distance of the detector is fitted to.
const MOST_REFERENCE: usize = 5_000;

/// The largest entropy of an answer that is given, and its certificate, from rows with these `entropies`, of which the
/// answers to some are `right`, and some are `unlike` the texts of training and have no answer. The error says in words why
/// there is none.
fn certified(
    entropies: &[f64],
    right: &[bool],
    unlike: &[bool],
    RiskTarget { risk, delta }: RiskTarget,
) -> Result<Result<(f64, Certificate), String>> {
    let asked = |(i, _): &(usize, _)| !unlike[*i];
    let (sure, right): (Vec<f64>, Vec<bool>) = entropies
        .iter()
        .zip(right)
        .enumerate()
        .filter(asked)
        .map(|(_, (entropy, right))| (-entropy, *right))
        .unzip();
    if sure.is_empty() {
        return Ok(Err("there are no rows".to_owned()));
    }
    let curve = RiskCoverage::new(&sure, &right)?;
    Ok(match Certificate::of(&curve, risk, delta)? {
        Some((least, found)) => {
            let share = sure.len() as f64 / entropies.len() as f64;
            let coverage = found.coverage * share;
            Ok((-least, Certificate { coverage, rows: entropies.len(), ..found }))
        }
        None => Err(nothing_certified(&curve, risk, delta)),
    })
}

/// Finds the largest entropy up to which the answers of `draws` draws in `evaluation` have an error rate of at most the target
/// with its confidence ([`RiskCoverage::certified`]), among the rows that the detector in the classifier's folder, if there is one,
/// does not find unlike those of training. Writes it into the folder, where [`Abstaining`](super::Abstaining) finds it.
pub fn fit_abstention(
    classifier: &SavedClassifier,
    labelled: &Split,
    evaluation: &Evaluation,
    draws: usize,
    target: RiskTarget,
) -> Result<Abstention> {
    classifier.check_unseen(labelled)?;
    let scored = evaluation.scored.get(&(draws as u32));
    let answers = scored.and_then(|scored| Some((scored, scored.uncertainty.as_ref()?)));
    let (answers, what) = match classifier.info.goal.answers {
        AnswerSpace::Labels { .. } => (None, "several labels"),
        _ => (answers, "numbers"),
    };
    let Some((scored, uncertainty)) = answers else {
        bail!("a threshold for giving no answer is for classes, and this one predicts {what}")
    };
    let dir = classifier.folder();
    let answered = argmax_rows(&scored.outputs, evaluation.task.labels)?;
    let labels = labelled.examples.iter().map(|example| example.label.class());
    let right: Vec<bool> = labels.zip(answered).map(|(own, class)| own == Some(class)).collect();
    let mut unlike = vec![false; right.len()];
    let detector = OodDetector::find(dir)?;
    if let Some(detector) = &detector {
        let inputs: Vec<Input> = labelled.examples.iter().map(|row| row.input.clone()).collect();
        let scored = detector.score(classifier, &inputs, 0)?;
        unlike = scored.iter().map(|found| found.p <= OUTSIDE).collect();
    }
    let found = certified(&uncertainty.predictive_entropy, &right, &unlike, target)?;
    let (above, certificate) = found.map_err(|why| anyhow!("{why}"))?;
    let found = Abstention {
        above,
        untempered: false,
        detector: detector.map(|_| OodDetector::hash(dir)).transpose()?.flatten(),
        fitted_to: FittedTo::Further,
        certificate,
    };
    let Some(mut info) = Description::read(dir)? else {
        bail!("`{}` has no `{DESCRIPTION_FILE}`, which stores fitted values", dir.display());
    };
    info.abstentions.insert(draws, found.clone());
    info.write(dir)?;
    classifier.certified_by(labelled)?;
    Ok(found)
}

/// Threshold and detector of a finished run.
#[derive(Default)]
pub(crate) struct EndFit {
    thresholds: BTreeMap<usize, Abstention>,
    detector: Option<OodDetector>,
    /// Hashes of the rows of the thresholds.
    pub(super) rows: Vec<u64>,
    /// Remarks on what could not be fitted.
    pub notes: Vec<String>,
}

/// Answers of one number of draws to the rows of a fit.
struct FreshAnswers {
    /// `[rows, classes]`
    probabilities: Vec<f64>,
    entropies: Vec<f64>,
}

impl EndFit {
    /// Fits the detector and, for each number of draws, the threshold of the run in `folder`, whose kept model is `model`.
    /// Rows that the model was also trained on are left out.
    pub(super) fn new(
        settings: &TrainSettings,
        context: &RunContext<'_>,
        (method, model): (&DynMethod, &AutoModel),
        finished: &Finished,
        target: RiskTarget,
        folder: &Path,
    ) -> Result<Self> {
        let task = context.task;
        let mut own = Self::default();
        if !matches!(task.goal.answers, AnswerSpace::Classes { .. }) {
            return Ok(own);
        }
        let more = |why: &str| {
            format!(
                "no threshold for `--abstain`: {why}; `lrvd abstain fit {} --data FILE` fits one to labelled rows that the run has \
                 not used, {} or more",
                folder.display(),
                target.fewest_rows()
            )
        };
        let which = FittedRows::fresh(settings.method, context.config, context.fitted, task);
        let mut known: HashSet<u64> = hashes(&task.train).collect();
        let fitted_to = match which {
            FittedRows::None => {
                let why = "the validation rows chose the model, and no other rows are held out from every choice";
                own.notes.push(more(why));
                return Ok(own);
            }
            FittedRows::Validation => FittedTo::Validation,
            FittedRows::Holdout => {
                known.extend(hashes(&task.validation));
                FittedTo::HeldOut
            }
        };
        let all = which.of(task);
        let places: Vec<usize> =
            (0..all.len()).filter(|&row| !known.contains(&all[row].row)).collect();
        let rows: Vec<TokenisedExample> = places.iter().map(|&row| all[row].clone()).collect();
        if rows.is_empty() {
            own.notes
                .push(more(&format!("all {} rows are also training rows", fitted_to.describe())));
            return Ok(own);
        }
        let fresh = PreparedTask {
            labels: task.labels,
            pad_id: task.pad_id,
            answers: task.answers.clone(),
            validation_ids: places.iter().map(ToString::to_string).collect(),
            validation: rows,
            ..PreparedTask::without_examples(task.goal.clone())
        };
        let answers = if which == FittedRows::Validation {
            picked(finished, &places, task.labels)
        } else {
            held_out(context, &fresh, (method, model), finished, folder)?
        };
        own.detect(settings, context, model, &fresh.validation)?;
        let unlike = own.detector.as_ref().map(OodDetector::calibrating_outside);
        let unlike = unlike.unwrap_or_else(|| vec![false; fresh.validation.len()]);
        let temperatures = finished.kept();
        // The rows of the temperature are those of the threshold.
        let is_shared = temperatures.folds == 0 && which == context.fitted;
        let labels: Vec<Option<usize>> =
            fresh.validation.iter().map(|row| row.answer.label()?.class()).collect();
        for (draws, answers) in answers {
            let temperature = temperatures.by_draws.get(&draws).copied().filter(|_| is_shared);
            let FreshAnswers { probabilities, mut entropies } = answers;
            if let Some(temperature) = temperature {
                let rows = probabilities.chunks(task.labels);
                entropies = rows.map(|row| raw_entropy(row, temperature)).collect();
            }
            let answered = argmax_rows(&probabilities, task.labels)?;
            let right: Vec<bool> =
                labels.iter().zip(answered).map(|(own, class)| *own == Some(class)).collect();
            match certified(&entropies, &right, &unlike, target)? {
                Ok((above, certificate)) => {
                    let untempered = temperature.is_some();
                    let found =
                        Abstention { above, untempered, detector: None, fitted_to, certificate };
                    own.thresholds.insert(draws, found);
                }
                Err(why) => {
                    let of = if draws == 0 { String::new() } else { format!(" of {draws} draws") };
                    own.notes.push(more(&format!("{why} ({} rows{of})", fitted_to.describe())));
                }
            }
        }
        if !own.thresholds.is_empty() {
            own.rows = hashes(&fresh.validation).collect();
        }
        Ok(own)
    }

    /// Fits the detector to training rows, calibrated by the rows `fresh`.
    fn detect(
        &mut self,
        settings: &TrainSettings,
        context: &RunContext<'_>,
        model: &AutoModel,
        fresh: &[TokenisedExample],
    ) -> Result<()> {
        let task = context.task;
        let work = EvaluationWork::new(settings.method, context.config);
        let most = work.rows_of_pass(task.validation.len()).min(MOST_REFERENCE);
        let order = NoiseKey::new(settings.seed).on_stream(Stream::DATA);
        let order = permutation(order, task.train.len()).into_iter();
        let classed = order.filter_map(|row| {
            let example = &task.train[row];
            Some((example.clone(), example.answer.label()?.class()?))
        });
        let (reference, classes): (Vec<TokenisedExample>, Vec<usize>) = classed.take(most).unzip();
        if let Some(found) = [reference.len(), fresh.len()].into_iter().find(|&n| n < FEWEST) {
            self.notes.push(format!(
                "texts unlike those of training are not told apart: {found} rows, and that takes {FEWEST} of training and {FEWEST} \
                 others; `lrvd ood fit` does it with other texts"
            ));
            return Ok(());
        }
        let read =
            |rows: &[TokenisedExample]| features(model, &context.inputs(&context.examples(rows)));
        let reference = read(&reference)?;
        let calibrating = read(fresh)?;
        // The run is worth more than its detector.
        match OodDetector::of_distance((&reference, &classes), &calibrating, settings.seed) {
            Ok(found) => self.detector = Some(found),
            Err(error) => self
                .notes
                .push(format!("texts unlike those of training are not told apart: {error:#}")),
        }
        Ok(())
    }

    /// Writes detector and thresholds beside the adapter in `folder`.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        if let Some(detector) = &self.detector {
            detector.write(folder)?;
        }
        if self.thresholds.is_empty() {
            return Ok(());
        }
        let detector = OodDetector::hash(folder)?;
        if let Some(mut info) = Description::read(folder)? {
            let own = self.thresholds.iter().map(|(&draws, found)| {
                (draws, Abstention { detector: detector.clone(), ..found.clone() })
            });
            info.abstentions = own.collect();
            info.write(folder)?;
        }
        Ok(())
    }
}

fn hashes(rows: &[TokenisedExample]) -> impl Iterator<Item = u64> {
    // Examples that were not read from a row have no hash.
    rows.iter().map(|row| row.row).filter(|&row| row != 0)
}

/// The answers to the validation rows at `places`, by number of draws.
fn picked(finished: &Finished, places: &[usize], width: usize) -> BTreeMap<usize, FreshAnswers> {
    let of = |(&draws, scored): (&u32, &Scored)| {
        let known = &scored.uncertainty.as_ref()?.predictive_entropy;
        let row = |&row: &usize| &scored.outputs[row * width..(row + 1) * width];
        let probabilities = places.iter().flat_map(row).copied().collect();
        let entropies = places.iter().map(|&row| known[row]).collect();
        Some((draws as usize, FreshAnswers { probabilities, entropies }))
    };
    finished.kept_answers().iter().filter_map(of).collect()
}

/// The answers to the held-out rows `fresh`, by number of draws, which are written beside those to the validation rows for label sets.
fn held_out(
    context: &RunContext<'_>,
    fresh: &PreparedTask,
    (method, model): (&DynMethod, &AutoModel),
    finished: &Finished,
    folder: &Path,
) -> Result<BTreeMap<usize, FreshAnswers>> {
    let examples = context.examples(&fresh.validation);
    let inputs = context.inputs(&examples);
    let answer = |&draws: &u32| {
        let logits = method.predict(model, &inputs.drawn(draws as usize))?;
        let logits: Prediction = finished.kept().soften(logits, draws as usize)?;
        Ok((draws, score_draws(&logits, fresh)?))
    };
    let scored = finished.kept_answers().keys().map(answer).collect::<Result<BTreeMap<_, _>>>()?;
    fresh.write_predictions(&scored, &folder.join(HELD_OUT_PREDICTIONS))?;
    let of = |(draws, scored): (u32, Scored)| {
        let entropies = scored.uncertainty?.predictive_entropy;
        Some((draws as usize, FreshAnswers { probabilities: scored.outputs, entropies }))
    };
    Ok(scored.into_iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lrvd_core::baselines::shrunk_temperature;
    use lrvd_core::metrics::{conformal_p, softmax};
    use lrvd_core::noise::Generator;

    use super::*;

    #[test]
    fn too_few_rows_and_too_many_errors_certify_nothing_and_say_so() {
        let fit = |right: &[bool], unlike: &[bool]| {
            // One class alone has an entropy of 0: all rows have one threshold.
            let entropies = vec![0.0; right.len()];
            certified(&entropies, right, unlike, RiskTarget::USUAL).unwrap()
        };
        let no = |n: usize| vec![false; n];
        let why = |found: Result<(f64, Certificate), String>| found.unwrap_err();
        assert_eq!(why(fit(&[], &[])), "there are no rows");
        assert_eq!(why(fit(&[true; 3], &[true; 3])), "there are no rows");
        let one = why(fit(&[true], &no(1)));
        assert!(one.contains("even without an error at least 59 rows are needed"), "{one}");
        // .95^59 = .0485
        assert!(fit(&[true; 58], &no(58)).is_err());
        let (above, all) = fit(&[true; 59], &no(59)).unwrap();
        let expected =
            Certificate { target: 0.05, delta: 0.05, risk: 0.0, coverage: 1.0, rows: 59 };
        assert!(above == 0.0 && all == expected, "{all:?}");
        let wrong = why(fit(&[false; 200], &no(200)));
        assert!(wrong.contains("200 of them are answered wrong (100.00 %)"), "{wrong}");
        // Wrong answers to texts unlike those of training are not given.
        let right: Vec<bool> = (0..80).map(|row| row < 60).collect();
        let unlike: Vec<bool> = right.iter().map(|right| !right).collect();
        let (_, found) = fit(&right, &unlike).unwrap();
        assert!(found.coverage == 0.75 && found.rows == 80 && found.risk == 0.0, "{found:?}");
        assert!(fit(&right, &no(80)).is_err());
    }

    struct Drawn {
        /// Logits of the model.
        logits: Vec<f64>,
        class: usize,
        /// Probability that the answer is wrong.
        error: f64,
        label: usize,
    }

    /// Four classes whose logits the model makes 2.5 times too large.
    fn drawn(draws: &mut Generator) -> Drawn {
        let truth: Vec<f64> = (0..4).map(|_| 2.0 * draws.normal()).collect();
        let p = softmax(&truth, 4).unwrap();
        let uniform = draws.uniform();
        let mut sum = 0.0;
        let label = p.iter().position(|p| {
            sum += p;
            uniform < sum
        });
        let class = argmax_rows(&p, 4).unwrap()[0];
        let logits = truth.iter().map(|z| 2.5 * z).collect();
        Drawn { logits, class, error: 1.0 - p[class], label: label.unwrap_or(3) }
    }

    /// 300 times 400 rows fit a temperature, a detector of the rows with the largest first logit, and a threshold for an error rate of
    /// a tenth: in a tenth of them at most the true error rate of the answers that are given is larger, give or take three
    /// standard deviations of the count. The true rate is over 4,000 rows, with an error of .003.
    #[test]
    fn rows_that_fitted_the_temperature_certify_a_threshold_at_temperature_1() {
        let mut draws = Generator::new(NoiseKey::new(23));
        let pool: Vec<Drawn> = (0..4_000).map(|_| drawn(&mut draws)).collect();
        let entropies = |rows: &[Drawn], temperature: f64| -> Vec<f64> {
            let of = |row: &Drawn| {
                let cooled: Vec<f64> = row.logits.iter().map(|z| z / temperature).collect();
                raw_entropy(&softmax(&cooled, 4).unwrap(), temperature)
            };
            rows.iter().map(of).collect()
        };
        let target = RiskTarget { risk: 0.1, delta: 0.1 };
        let trials = 300;
        let mut found = 0;
        let mut broken = 0;
        let mut answered = 0.0;
        for _ in 0..trials {
            let rows: Vec<Drawn> = (0..400).map(|_| drawn(&mut draws)).collect();
            let logits: Vec<f64> = rows.iter().flat_map(|row| row.logits.clone()).collect();
            let mut shares = vec![0.0; logits.len()];
            rows.iter().enumerate().for_each(|(i, row)| shares[4 * i + row.label] = 1.0);
            let temperature = shrunk_temperature(&logits, 4, &shares).unwrap().unwrap();
            let calibration: Vec<f64> = rows.iter().map(|row| row.logits[0]).collect();
            let is_unlike = |row: &Drawn| conformal_p(&calibration, row.logits[0]) <= OUTSIDE;
            let unlike: Vec<bool> = rows.iter().map(is_unlike).collect();
            let right: Vec<bool> = rows.iter().map(|row| row.class == row.label).collect();
            let fit = certified(&entropies(&rows, temperature), &right, &unlike, target).unwrap();
            let Ok((above, certificate)) = fit else { continue };
            found += 1;
            answered += certificate.coverage;
            let given = pool.iter().zip(entropies(&pool, temperature));
            let given = given.filter(|(row, own)| *own <= above && !is_unlike(row));
            let errors: Vec<f64> = given.map(|(row, _)| row.error).collect();
            broken += usize::from(errors.iter().sum::<f64>() / errors.len() as f64 > 0.1);
        }
        let most = 0.1 * f64::from(trials) + 3.0 * (0.09 * f64::from(trials)).sqrt();
        assert!(broken as f64 <= most, "{broken} of {trials}");
        // Measured: 130 thresholds, which leave .16 of the answers in the mean.
        assert!(found > 100 && answered / f64::from(found) > 0.1, "{found} {answered}");
    }
}
