//! A bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lrvd_bench::progress::{Event, ProgressSink};

use crate::log;
use crate::printer::Printer;

/// Least time between two plain lines about steps.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows events on standard error.
pub(super) struct Lines {
    printer: Printer,
    bar: Option<ProgressBar>,
    bars: bool,
    last_line: Instant,
    /// Start of the evaluation at the end.
    evaluating: Instant,
    evaluated: String,
    pruned: Option<Pruned>,
}

/// Cuts that no other line has come between.
struct Pruned {
    first: usize,
    last: usize,
    before: usize,
    after: usize,
    times: usize,
}

impl Pruned {
    /// One more cut, at step `done`.
    fn and(earlier: Option<Self>, done: usize, before: usize, after: usize) -> Self {
        let (first, before, times) =
            earlier.map_or((done, before, 1), |cuts| (cuts.first, cuts.before, cuts.times + 1));
        Self { first, last: done, before, after, times }
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, before, after, times } = self;
        if *times == 1 {
            return write!(f, "  step {first}  rank {before} -> {after}");
        }
        write!(f, "  steps {first} to {last}  rank {before} -> {after} in {times} cuts")
    }
}

impl Lines {
    /// Plain lines, and with `bars` a bar that standard error must be a terminal for.
    pub(super) fn new(printer: Printer, bars: bool) -> Self {
        let (now, evaluated) = (Instant::now(), String::new());
        let (last_line, evaluating) = (now, now);
        Self { printer, bar: None, bars, last_line, evaluating, evaluated, pruned: None }
    }

    /// Prints a remark above the bar, after the cuts before it in one line: a method that cuts at every step would
    /// fill the screen.
    pub(super) fn line(&mut self, text: &str) {
        if let Some(cuts) = self.pruned.take() {
            self.print(&cuts.to_string());
        }
        self.print(text);
    }

    fn print(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.printer.note(text)),
            None => self.printer.note(text),
        }
    }
}

impl ProgressSink for Lines {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Note(text) => self.line(text),
            Event::RunStarted { index, runs, label, steps, done } => {
                let resumed =
                    if *done > 0 { format!(", resumed at {done}") } else { String::new() };
                self.line(&format!("[{index}/{runs}] {label}: {steps} steps{resumed}"));
                self.evaluated.clear();
                if self.bars {
                    let bar = ProgressBar::with_draw_target(
                        Some(*steps as u64),
                        ProgressDrawTarget::stderr(),
                    );
                    if let Ok(style) =
                        ProgressStyle::with_template("{bar:28} {pos}/{len} {wide_msg}")
                    {
                        bar.set_style(style);
                    }
                    bar.set_position(*done as u64);
                    log::above(&bar);
                    self.bar = Some(bar);
                }
                self.last_line = Instant::now();
            }
            Event::Step {
                done, nll, kl, total_rank, examples_per_second, seconds_left, ..
            } => {
                let text = format!(
                    "loss {nll:.4}  KL {kl:.0}  rank {total_rank}  {examples_per_second:.0} ex/s  \
                     {} left{}",
                    duration(*seconds_left),
                    self.evaluated
                );
                if let Some(bar) = &self.bar {
                    bar.set_position(*done as u64);
                    bar.set_message(text);
                } else if self.last_line.elapsed() >= LINE_EVERY {
                    self.last_line = Instant::now();
                    self.line(&format!("  step {done}  {text}"));
                }
            }
            Event::Evaluated { done, metric, value, total_rank } => {
                self.evaluated = format!("  {metric} {value:.4}");
                if self.bar.is_none() {
                    self.line(&format!("  step {done}  {metric} {value:.4}  rank {total_rank}"));
                }
            }
            Event::Evaluating { done, total } => {
                if *done == 0 {
                    (self.evaluating, self.last_line) = (Instant::now(), Instant::now());
                    if self.bar.is_none() {
                        self.line(&format!("  evaluating: {total} answers"));
                    }
                }
                let seconds = self.evaluating.elapsed().as_secs_f64();
                let left = seconds / (*done).max(1) as f64 * (total - done) as f64;
                let left =
                    if *done == 0 { String::new() } else { format!("  {} left", duration(left)) };
                if let Some(bar) = &self.bar {
                    bar.set_length(*total as u64);
                    bar.set_position(*done as u64);
                    bar.set_message(format!("evaluating{left}"));
                } else if self.last_line.elapsed() >= LINE_EVERY {
                    self.last_line = Instant::now();
                    self.line(&format!("  evaluating: {done} of {total} answers{left}"));
                }
            }
            Event::Pruned { done, before, after } => {
                self.pruned = Some(Pruned::and(self.pruned.take(), *done, *before, *after));
            }
            Event::RunFinished { label, summary, seconds } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                self.line(&format!("  {label}: {summary}, {} training", duration(*seconds)));
            }
        }
    }
}

/// `75` as `1m15s`.
fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_in_a_row_are_one_line() {
        let one = Pruned::and(None, 6, 192, 180);
        assert_eq!(one.to_string(), "  step 6  rank 192 -> 180");
        let more = Pruned::and(Some(Pruned::and(Some(one), 7, 180, 170)), 9, 170, 150);
        assert_eq!(more.to_string(), "  steps 6 to 9  rank 192 -> 150 in 3 cuts");
    }
}
