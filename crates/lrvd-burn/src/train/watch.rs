//! Events of a training run, and its [`Observer`]. Nothing here prints.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use lrvd_core::metrics::{LabelSetMetrics, Predictions, mean};

use super::checkpoint::Checkpoints;
use super::choice::{HeldOutLosses, LossMeasure, calibrated_losses};
use super::data::{Examples, Model, Targets};
use super::method::Method;
use super::predict::{Inputs, PassWatch};
use super::state::{Evaluation, TrainState};
use super::tokens::token_answers;
use crate::error::Error;
use crate::parameters::values;

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A message.
    Note(String),
    /// One fine-tuning run starts or continues.
    RunStarted {
        /// Position among all runs, from 1.
        index: usize,
        /// Number of runs.
        runs: usize,
        /// `task / method / seed`.
        label: String,
        /// Optimizer steps of the run.
        steps: usize,
        /// Steps already done by an earlier process.
        done: usize,
    },
    /// A step was taken.
    Step {
        /// Completed steps.
        done: usize,
        /// The objective: everything below, weighted, and any penalty.
        loss: f64,
        /// Mean negative log-likelihood of the batch, nats; of scores the mean squared error.
        nll: f64,
        /// Unweighted KL, nats; `None` where it is not part of the objective.
        kl: Option<f64>,
        /// Sum of ranks over all adapters.
        total_rank: usize,
        /// Training examples per second of the last steps, evaluations not counted.
        examples_per_second: f64,
        /// Estimated seconds to the last step and its evaluation, at the rate of the last steps.
        seconds_left: f64,
    },
    /// The validation split was evaluated.
    Evaluated {
        /// Completed steps.
        done: usize,
        /// Name of the metric.
        metric: String,
        /// Its value.
        value: f64,
        /// Mean negative log-likelihood, nats; `None` where it was not measured.
        nll: Option<f64>,
        /// Sum of ranks over all adapters.
        total_rank: usize,
    },
    /// A search for ranks tried a size on the held-out rows.
    Searching {
        /// Sum of ranks that was tried.
        total_rank: usize,
        /// Sum of ranks of the whole model.
        of: usize,
    },
    /// The trained model is being evaluated, which may take as long as training did; first with `done = 0`.
    Evaluating {
        /// Answers so far: examples times draws.
        done: usize,
        /// Answers that are expected.
        total: usize,
    },
    /// Ranks were removed.
    Pruned {
        /// Completed steps.
        done: usize,
        /// Sum of ranks before.
        before: usize,
        /// Sum of ranks after.
        after: usize,
    },
    /// A run ended.
    RunFinished {
        /// `task / method / seed`.
        label: String,
        /// One line of results.
        summary: String,
        /// Seconds in training.
        seconds: f64,
    },
}

/// Callbacks of a run: events, evaluations, checkpoints.
pub trait Observer<M: Model, T: Method<M> + ?Sized> {
    /// Error of the callbacks.
    type Error: From<Error>;

    /// `true` of the error with which a callback ends between its passes because of a stop request. It ends the run with
    /// [`Outcome::Stopped`](super::Outcome::Stopped).
    fn is_stop(_error: &Self::Error) -> bool {
        false
    }

    /// Receives an event; a break ends the run after the step.
    fn event(&mut self, _event: &Event) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Evaluates the model, which has no gradients; `None` measures nothing.
    fn evaluate(&mut self, _model: &M, _method: &T) -> Result<Option<Evaluation>, Self::Error> {
        Ok(None)
    }

    /// Losses of `model` on the rows that are held out of training, if any, for a [search](super::RankSearch) of ranks. Of
    /// classes best by [`calibrated_losses`](super::calibrated_losses).
    fn held_out(&mut self, _model: &M, _method: &T) -> Result<HeldOutLosses, Self::Error> {
        Ok(HeldOutLosses::default())
    }

    /// Saves a checkpoint; called before the evaluation of a step, a search for ranks and a stop, and at the end.
    fn checkpoint(&mut self, _state: &TrainState<M>, _method: &T) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Rows of a batch of token answers.
const BATCH_SIZE: usize = 8;

/// The usual observer of a run, which does nothing by default.
pub struct Watch<'a, I> {
    /// Rows that the model is measured on at its mean: accuracy and negative log-likelihood, or the mean squared error of
    /// scores. The best model is the one of the largest accuracy or smallest error, of tokens that of the smallest negative
    /// log-likelihood.
    pub validation: Option<&'a dyn Examples<Input = I>>,
    /// Rows for a [search](super::RankSearch) of ranks, which training must not see. Without them all ranks are kept.
    pub held_out: Option<&'a dyn Examples<Input = I>>,
    /// Folder of the checkpoints.
    pub checkpoints: Option<&'a Checkpoints>,
    /// Receives the events.
    pub sink: Option<&'a mut dyn FnMut(&Event)>,
    /// Ends the run after the step, or the pass of an evaluation, in which it is found set, as a signal handler does.
    pub stop: Option<&'a AtomicBool>,
}

impl<I> Default for Watch<'_, I> {
    fn default() -> Self {
        Self { validation: None, held_out: None, checkpoints: None, sink: None, stop: None }
    }
}

impl<I> Watch<'_, I> {
    fn goes_on(&self) -> bool {
        !self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl<I, M, T> Observer<M, T> for Watch<'_, I>
where
    M: Model<Input = I>,
    T: Method<M> + ?Sized,
{
    type Error = Error;

    fn is_stop(error: &Error) -> bool {
        matches!(error, Error::Stopped)
    }

    fn event(&mut self, event: &Event) -> ControlFlow<()> {
        if let Some(sink) = &mut self.sink {
            sink(event);
        }
        if self.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn evaluate(&mut self, model: &M, method: &T) -> Result<Option<Evaluation>, Error> {
        let Some(examples) = self.validation else { return Ok(None) };
        let targets = examples.all_targets()?;
        let goes_on = |_: usize| self.goes_on();
        let watch: PassWatch<'_> = Some(&goes_on);
        let inputs = Inputs { watch, ..Inputs::new(examples) };
        let predict = || method.predict(model, &inputs);
        let (metric, score, metrics) = match &targets {
            Targets::Classes(_) => {
                let logits = predict()?;
                let answers = logits.classes()?.into_iter();
                let probabilities: Vec<f64> = answers.flat_map(|a| a.probabilities).collect();
                let classes = targets.classes().unwrap_or_default();
                let predictions = Predictions::new(&probabilities, logits.width, &classes)?;
                let (accuracy, nll) = (predictions.accuracy(), predictions.nll());
                ("accuracy", accuracy, vec![("accuracy", accuracy), ("nll", nll)])
            }
            Targets::Labels(present) => {
                let answers = predict()?.per_label().classes()?.into_iter();
                let probabilities: Vec<f64> = answers.map(|a| a.probabilities[0]).collect();
                let [_, labels] = present.dims();
                let present: Vec<bool> =
                    values(present.clone()).into_iter().map(|y| y > 0.5).collect();
                let found = LabelSetMetrics::new(&probabilities, &vec![0.5; labels], &present)?;
                let metrics = vec![("micro_f1", found.micro_f1), ("nll", found.nll)];
                ("micro_f1", found.micro_f1, metrics)
            }
            Targets::Scores(scores) => {
                let (found, expected) = (predict()?.scores()?, values(scores.clone()));
                let errors = found.iter().zip(expected).map(|(found, y)| (found.score - y).powi(2));
                let mse = mean(&errors.collect::<Vec<f64>>())?;
                ("mse", -mse, vec![("mse", mse)])
            }
            Targets::Tokens { .. } => {
                let answers = token_answers(model, &Inputs { batch_size: BATCH_SIZE, ..inputs })?;
                let nll = answers.nll()?;
                ("nll", -nll, vec![("accuracy", answers.accuracy()?), ("nll", nll)])
            }
        };
        let finite = metrics.into_iter().filter(|(_, value)| value.is_finite());
        Ok(Some(Evaluation {
            metric: metric.to_owned(),
            score: Some(score).filter(|score| score.is_finite()),
            metrics: finite.map(|(name, value)| (name.to_owned(), value)).collect(),
        }))
    }

    fn held_out(&mut self, model: &M, method: &T) -> Result<HeldOutLosses, Error> {
        let Some(examples) = self.held_out else { return Ok(HeldOutLosses::default()) };
        let targets = examples.all_targets()?;
        let goes_on = |_: usize| self.goes_on();
        let watch: PassWatch<'_> = Some(&goes_on);
        let inputs = Inputs { watch, ..Inputs::new(examples) };
        if matches!(targets, Targets::Tokens { .. }) {
            let rows =
                token_answers(model, &Inputs { batch_size: BATCH_SIZE, ..inputs })?.row_losses();
            return Ok(HeldOutLosses { rows, measure: LossMeasure::Tokens });
        }
        calibrated_losses(&method.predict(model, &inputs)?, &targets)
    }

    fn checkpoint(&mut self, state: &TrainState<M>, method: &T) -> Result<(), Error> {
        self.checkpoints.map_or(Ok(()), |checkpoints| checkpoints.save(state, method))
    }
}
