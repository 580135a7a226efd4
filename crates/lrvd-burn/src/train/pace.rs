//! Rate of the last steps, and the time that is left at it.

/// Weight of all earlier values in a smoothed one.
const MEMORY: f64 = 0.95;

/// An exponential moving average that starts at its first value: about the last 20 values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Smooth {
    sum: f64,
    weight: f64,
}

impl Smooth {
    /// Adds a value, and returns the average.
    pub fn add(&mut self, value: f64) -> f64 {
        self.sum = MEMORY * self.sum + (1.0 - MEMORY) * value;
        self.weight = MEMORY * self.weight + (1.0 - MEMORY);
        self.average()
    }

    /// The average; 0 without a value.
    pub fn average(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }
}

/// Examples and seconds of the last steps of a stage, and seconds of the evaluations of a run.
#[derive(Default)]
pub(super) struct Pace {
    examples: Smooth,
    seconds: Smooth,
    /// Evaluations of the run with their checkpoints.
    pub(super) evaluations: usize,
    pub(super) evaluation_seconds: f64,
}

impl Pace {
    /// A stage after as many evaluations of a run.
    pub(super) fn new(evaluations: usize, evaluation_seconds: f64) -> Self {
        Self { evaluations, evaluation_seconds, ..Self::default() }
    }

    pub(super) fn is_new(&self) -> bool {
        self.seconds.weight == 0.0
    }

    pub(super) fn add(&mut self, examples: usize, seconds: f64) {
        self.examples.add(examples as f64);
        self.seconds.add(seconds);
    }

    pub(super) fn examples_per_second(&self) -> f64 {
        self.examples.average() / self.seconds.average()
    }

    /// Seconds from the end of step `done` to that of the last of `steps`, with an evaluation after every `every` steps and
    /// after the last one.
    pub(super) fn seconds_left(&self, done: usize, steps: usize, every: usize) -> f64 {
        let due = |before: usize| before.saturating_sub(1) / every;
        let evaluations = due(steps).saturating_sub(due(done)) + 1;
        let mean = self.evaluation_seconds / self.evaluations.max(1) as f64;
        steps.saturating_sub(done) as f64 * self.seconds.average() + evaluations as f64 * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_counts_steps_and_evaluations() {
        let mut pace = Pace::default();
        pace.add(10, 2.5);
        pace.add(10, 2.5);
        assert!((pace.examples_per_second() - 4.0).abs() < 1e-12);
        assert!((pace.seconds_left(2, 40, 10) - 95.0).abs() < 1e-12);
        (pace.evaluations, pace.evaluation_seconds) = (2, 12.0);
        // After steps 10, 20, 30 and 40; the one after step 10 is still due when step 10 is done.
        for (done, expected) in [(2, 119.0), (10, 99.0), (11, 90.5), (40, 6.0)] {
            assert!((pace.seconds_left(done, 40, 10) - expected).abs() < 1e-12, "{done}");
        }
    }

    #[test]
    fn a_run_that_slows_down_has_the_time_of_its_last_steps() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.add(32, 0.05);
        }
        for _ in 0..60 {
            pace.add(32, 0.5);
        }
        // The mean of all 160 steps is .219 s; a twentieth of the average is of the fast ones, .95^60.
        let seconds = 0.5 - 0.45 * 0.95_f64.powi(60);
        assert!((pace.seconds_left(0, 100, 1000) / (100.0 * seconds) - 1.0).abs() < 0.01);
        assert!((pace.examples_per_second() * seconds / 32.0 - 1.0).abs() < 0.01);
    }
}
