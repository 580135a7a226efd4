//! Events of a run, to be shown as bars in a terminal or as lines in a pipe. Nothing here prints.

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
        /// Training examples per second of training, evaluations not counted.
        examples_per_second: f64,
        /// Estimated seconds to the last step and its evaluation.
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

/// Receives events; a closure is one.
pub trait ProgressSink {
    /// Receives one event.
    fn event(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> ProgressSink for F {
    fn event(&mut self, event: &Event) {
        self(event);
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    fn event(&mut self, _event: &Event) {}
}

/// How long steps and evaluations take, to estimate the time that is left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Steps, their examples and seconds since the current phase started.
    steps: usize,
    examples: usize,
    step_seconds: f64,
    /// Evaluations with their checkpoints; those of earlier phases count.
    evaluations: usize,
    evaluation_seconds: f64,
}

impl Pace {
    /// At the start of a phase, after `evaluations` that took `seconds` together.
    pub(super) fn after(evaluations: usize, seconds: f64) -> Self {
        Self { evaluations, evaluation_seconds: seconds, ..Self::default() }
    }

    /// A step with so many examples took so long.
    pub(super) fn step(&mut self, examples: usize, seconds: f64) {
        self.steps += 1;
        self.examples += examples;
        self.step_seconds += seconds;
    }

    /// An evaluation took so long.
    pub(super) fn evaluation(&mut self, seconds: f64) {
        self.evaluations += 1;
        self.evaluation_seconds += seconds;
    }

    /// Examples per second of training.
    pub(super) fn examples_per_second(&self) -> f64 {
        self.examples as f64 / self.step_seconds
    }

    /// Seconds from the end of step `done` to that of the last of `steps`, with an evaluation after every `every` steps and
    /// after the last one.
    pub(super) fn seconds_left(&self, done: usize, steps: usize, every: usize) -> f64 {
        let mean = |seconds: f64, n: usize| if n == 0 { 0.0 } else { seconds / n as f64 };
        let due = |before: usize| before.saturating_sub(1) / every;
        let evaluations = due(steps).saturating_sub(due(done)) + 1;
        steps.saturating_sub(done) as f64 * mean(self.step_seconds, self.steps)
            + evaluations as f64 * mean(self.evaluation_seconds, self.evaluations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_falls_from_step_to_step() {
        let (steps, every) = (40, 10);
        // The evaluation before the first step took 6 s.
        let mut pace = Pace::after(1, 6.0);
        let mut before = f64::INFINITY;
        for done in 1..=steps {
            // The first step is slow.
            pace.step(8, if done == 1 { 3.0 } else { 2.0 });
            let left = pace.seconds_left(done, steps, every);
            assert!(left < before, "{done}: {left} after {before}");
            before = left;
            if done % every == 0 && done < steps {
                pace.evaluation(6.0);
            }
        }
        assert!((before - 6.0).abs() < 1e-12, "the last evaluation: {before}");
        assert!((pace.examples_per_second() - 320.0 / 81.0).abs() < 1e-12);
        assert!(Pace::default().seconds_left(1, 9, 2).abs() < 1e-12);
    }
}
