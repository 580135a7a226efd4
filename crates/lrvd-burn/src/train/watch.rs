//! The usual observer: validates, saves checkpoints, passes events on, checks a stop flag.

use std::sync::atomic::{AtomicBool, Ordering};

use lrvd_core::metrics::{Predictions, mean};

use super::checkpoint::Checkpoints;
use super::data::{LabelledExamples, Model, Targets};
use super::fit::Observer;
use super::inputs::{Inputs, PassWatch};
use super::method::Method;
use super::predict::Logits;
use super::progress::{Event, ProgressSink};
use super::rank_path::calibrated_losses;
use super::state::{Evaluation, TrainState};
use super::tokens::{TokenAnswers, token_answers};
use crate::error::Error;
use crate::host::values;

/// Rows of a batch of token answers.
const BATCH_SIZE: usize = 8;

/// Validation, checkpoints and progress of a run; nothing by default.
pub struct Watch<'a, I> {
    validation: Option<&'a dyn LabelledExamples<Input = I>>,
    held_out: Option<&'a dyn LabelledExamples<Input = I>>,
    checkpoints: Option<&'a Checkpoints>,
    sink: Option<&'a mut dyn ProgressSink>,
    stop: Option<&'a AtomicBool>,
}

impl<I> Default for Watch<'_, I> {
    fn default() -> Self {
        Self { validation: None, held_out: None, checkpoints: None, sink: None, stop: None }
    }
}

impl<'a, I> Watch<'a, I> {
    /// Measures the model on `examples` at its mean: accuracy and negative log-likelihood, or the mean
    /// squared error of scores. The best model is the one of the largest accuracy or smallest error, of tokens that of the
    /// smallest negative log-likelihood.
    #[must_use]
    pub fn validating(self, examples: &'a dyn LabelledExamples<Input = I>) -> Self {
        Self { validation: Some(examples), ..self }
    }

    /// Lets a [search](super::RankSearch) of ranks use `examples`, which training must not
    /// see before. Without them all ranks are kept.
    #[must_use]
    pub fn choosing_by(self, examples: &'a dyn LabelledExamples<Input = I>) -> Self {
        Self { held_out: Some(examples), ..self }
    }

    /// Keeps checkpoints there.
    #[must_use]
    pub fn keeping(self, checkpoints: &'a Checkpoints) -> Self {
        Self { checkpoints: Some(checkpoints), ..self }
    }

    /// Passes events on.
    #[must_use]
    pub fn telling(self, sink: &'a mut dyn ProgressSink) -> Self {
        Self { sink: Some(sink), ..self }
    }

    /// Ends the run after the step in which `flag` is found set, as a signal handler does.
    #[must_use]
    pub fn stopping_at(self, flag: &'a AtomicBool) -> Self {
        Self { stop: Some(flag), ..self }
    }
}

impl<I, M, T> Observer<M, T> for Watch<'_, I>
where
    M: Model<Input = I>,
    T: Method<M> + ?Sized,
{
    type Error = Error;

    fn event(&mut self, event: &Event) {
        if let Some(sink) = &mut self.sink {
            sink.event(event);
        }
    }

    fn evaluate(&mut self, model: &M, method: &T) -> Result<Option<Evaluation>, Error> {
        let Some(examples) = self.validation else { return Ok(None) };
        let targets = examples.all_targets()?;
        if matches!(targets, Targets::Tokens(_)) {
            return measure_tokens(&answers(model, examples)?).map(Some);
        }
        let logits = method.predict(model, &Inputs::new(&examples), 0)?;
        measure(&logits, &targets).map(Some)
    }

    fn held_out(&mut self, model: &M, method: &T) -> Result<Option<Vec<f64>>, Error> {
        let Some(examples) = self.held_out else { return Ok(None) };
        let targets = examples.all_targets()?;
        if matches!(targets, Targets::Tokens(_)) {
            return Ok(Some(answers(model, examples)?.row_losses()));
        }
        let logits = method.predict(model, &Inputs::new(&examples), 0)?;
        calibrated_losses(&logits, &targets).map(Some)
    }

    fn checkpoint(&mut self, state: &TrainState<M>, method: &T) -> Result<(), Error> {
        self.checkpoints.map_or(Ok(()), |checkpoints| checkpoints.save(state, method))
    }

    fn stops(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// The answers at the mean.
fn answers<M: Model>(
    model: &M,
    examples: &dyn LabelledExamples<Input = M::Input>,
) -> Result<TokenAnswers, Error> {
    token_answers(model, examples, BATCH_SIZE, 0, 0, PassWatch::default())
}

fn measure_tokens(answers: &TokenAnswers) -> Result<Evaluation, Error> {
    let nll = answers.nll()?;
    Ok(evaluation("nll", -nll, &[("accuracy", answers.accuracy()?), ("nll", nll)]))
}

fn measure(logits: &Logits, targets: &Targets) -> Result<Evaluation, Error> {
    Ok(match targets {
        Targets::Classes(_) => {
            let answers = logits.classes()?;
            let probabilities: Vec<f64> =
                answers.into_iter().flat_map(|answer| answer.probabilities).collect();
            let classes = targets.classes().unwrap_or_default();
            let predictions = Predictions::new(&probabilities, logits.width, &classes)?;
            let (accuracy, nll) = (predictions.accuracy(), predictions.nll());
            evaluation("accuracy", accuracy, &[("accuracy", accuracy), ("nll", nll)])
        }
        Targets::Scores(scores) => {
            let (found, expected) = (logits.scores()?, values(scores.clone()));
            let errors = found.iter().zip(expected).map(|(found, y)| (found.score - y).powi(2));
            let mse = mean(&errors.collect::<Vec<f64>>())?;
            evaluation("mse", -mse, &[("mse", mse)])
        }
        // Tokens are measured where they are answered.
        Targets::Tokens(_) => return Err(Error::token_logits()),
    })
}

/// The finite ones of `metrics`.
fn evaluation(metric: &str, score: f64, metrics: &[(&str, f64)]) -> Evaluation {
    let finite = metrics.iter().filter(|(_, value)| value.is_finite());
    Evaluation {
        metric: metric.to_owned(),
        score: Some(score).filter(|score| score.is_finite()),
        metrics: finite.map(|&(name, value)| (name.to_owned(), value)).collect(),
    }
}
