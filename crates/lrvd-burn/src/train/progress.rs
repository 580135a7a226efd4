//! What happens during a run, as events to show.
//!
//! Nothing here prints: a terminal draws bars, a pipe gets plain lines, a test collects the events.

/// One thing worth showing.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A line of general interest.
    Note(String),
    /// One fine-tuning run starts or continues.
    RunStarted {
        /// Position among all runs, from 1.
        index: usize,
        /// Number of runs.
        runs: usize,
        /// `task / method / seed`.
        label: String,
        /// Optimiser steps of the run.
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
        /// Mean negative log-likelihood of the batch, nats.
        nll: f64,
        /// Unweighted KL, nats; 0 without a posterior.
        kl: f64,
        /// Sum of ranks over all adapters.
        total_rank: usize,
        /// Training examples per second over the run so far.
        examples_per_second: f64,
        /// Estimated seconds to the end of this run.
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
        /// Sum of ranks over all adapters.
        total_rank: usize,
    },
    /// The trained model is being evaluated, which may take as long as training did. Comes with `done = 0` first.
    Evaluating {
        /// Answers so far: examples times draws.
        done: usize,
        /// Answers that are expected.
        total: usize,
    },
    /// Ranks went.
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

/// Receives events.
pub trait ProgressSink {
    /// Takes one event.
    fn event(&mut self, event: &Event);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    fn event(&mut self, _event: &Event) {}
}
