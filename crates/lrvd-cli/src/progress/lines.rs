//! A bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lrvd_bench::progress::Event;
use lrvd_burn::train::Smooth;

use crate::printer::{BARS, Printer};

/// Least time between two plain lines about steps.
pub(crate) const LINE_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Lines {
    print: Box<dyn Fn(&str) + Send>,
    /// Hidden where only plain lines are shown, and between runs.
    bar: ProgressBar,
    bars: bool,
    line_every: Duration,
    last_line: Instant,
    evaluating: Instant,
    nll: Smooth,
    pruned: Option<Pruned>,
}

/// Consecutive cuts, printed as one line.
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
        Self::to(Box::new(move |text| printer.note(text)), bars, LINE_EVERY)
    }

    fn to(print: Box<dyn Fn(&str) + Send>, bars: bool, line_every: Duration) -> Self {
        Self {
            print,
            bar: ProgressBar::hidden(),
            bars,
            line_every,
            last_line: Instant::now(),
            evaluating: Instant::now(),
            nll: Smooth::default(),
            pruned: None,
        }
    }

    /// Prints a remark above the bar, after the cuts before it in one line: a method that cuts at every step would
    /// fill the screen.
    pub(super) fn line(&mut self, text: &str) {
        if let Some(cuts) = self.pruned.take() {
            (self.print)(&cuts.to_string());
        }
        (self.print)(text);
    }

    /// Moves the bar to `done` with `message` behind it; without a bar, prints `line` if the last one is some time ago.
    fn show(&mut self, done: usize, message: String, line: &str) {
        self.bar.set_position(done as u64);
        self.bar.set_message(message);
        if self.bar.is_hidden() && self.last_line.elapsed() >= self.line_every {
            self.last_line = Instant::now();
            self.line(line);
        }
    }
}

impl Lines {
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Note(text) => self.line(text),
            Event::RunStarted { index, runs, label, steps, done } => {
                let resumed =
                    if *done > 0 { format!(", resumed at {done}") } else { String::new() };
                self.line(&format!("[{index}/{runs}] {label}: {steps} steps{resumed}"));
                self.nll = Smooth::default();
                if self.bars {
                    self.bar = BARS.add(ProgressBar::new(*steps as u64));
                    let style = ProgressStyle::with_template("{bar:28} {pos}/{len} {wide_msg}");
                    self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                    self.bar.set_position(*done as u64);
                }
                self.last_line = Instant::now();
            }
            Event::Step {
                done, nll, kl, total_rank, examples_per_second, seconds_left, ..
            } => {
                let kl = kl.map_or_else(String::new, |kl| format!("  KL {kl:.0}"));
                let text = format!(
                    "training loss {:.4}{kl}  rank {total_rank}  {examples_per_second:.0} ex/s  {} left",
                    self.nll.add(*nll),
                    duration(*seconds_left),
                );
                let line = format!("  step {done}  {text}");
                self.show(*done, text, &line);
            }
            Event::Evaluated { done, metric, value, nll, total_rank } => {
                let nll = nll.filter(|_| metric != "nll");
                let nll = nll.map_or_else(String::new, |nll| format!("  NLL {nll:.4}"));
                self.line(&format!(
                    "  step {done}  validation {metric} {value:.4}{nll}  rank {total_rank}"
                ));
            }
            Event::Searching { total_rank, of } => {
                let message = format!("trying {total_rank} of {of} ranks on held-out rows");
                self.bar.set_message(message);
            }
            Event::Evaluating { done, total } => {
                if *done == 0 {
                    (self.evaluating, self.last_line) = (Instant::now(), Instant::now());
                    if self.bar.is_hidden() {
                        self.line(&format!("  evaluating: {total} answers"));
                    }
                }
                let seconds = self.evaluating.elapsed().as_secs_f64();
                let left = seconds / (*done).max(1) as f64 * (total - done) as f64;
                let left =
                    if *done == 0 { String::new() } else { format!("  {} left", duration(left)) };
                self.bar.set_length(*total as u64);
                let line = format!("  evaluating: {done} of {total} answers{left}");
                self.show(*done, format!("evaluating{left}"), &line);
            }
            Event::Pruned { done, before, after } => {
                self.pruned = Some(Pruned::and(self.pruned.take(), *done, *before, *after));
            }
            Event::RunFinished { label, summary, seconds } => {
                std::mem::replace(&mut self.bar, ProgressBar::hidden()).finish_and_clear();
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
    use std::sync::mpsc::channel;

    use super::*;

    fn step(done: usize, nll: f64) -> Event {
        Event::Step {
            done,
            loss: 9.0,
            nll,
            kl: None,
            total_rank: 12,
            examples_per_second: 100.0,
            seconds_left: 75.0,
        }
    }

    #[test]
    fn what_is_measured_is_printed_once_and_losses_are_smoothed() {
        let (said, lines) = channel();
        let print = move |text: &str| said.send(text.to_owned()).unwrap_or_default();
        let mut shown = Lines::to(Box::new(print), false, Duration::ZERO);
        let evaluated = |metric: &str, value| {
            let metric = metric.to_owned();
            Event::Evaluated { done: 1, metric, value, nll: Some(0.625), total_rank: 12 }
        };
        let label = "a / b".to_owned();
        shown.event(&Event::RunStarted { index: 1, runs: 2, label, steps: 9, done: 0 });
        for event in
            [step(1, 1.0), evaluated("accuracy", 0.5), step(2, 0.0), evaluated("nll", 0.625)]
        {
            shown.event(&event);
        }
        shown.event(&Event::Searching { total_rank: 4, of: 12 });
        // The mean of 1 and 0 with weights .95 and 1.
        let expected = [
            "[1/2] a / b: 9 steps",
            "  step 1  training loss 1.0000  rank 12  100 ex/s  1m15s left",
            "  step 1  validation accuracy 0.5000  NLL 0.6250  rank 12",
            "  step 2  training loss 0.4872  rank 12  100 ex/s  1m15s left",
            "  step 1  validation nll 0.6250  rank 12",
        ];
        assert_eq!(lines.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn cuts_in_a_row_are_one_line() {
        let one = Pruned::and(None, 6, 192, 180);
        assert_eq!(one.to_string(), "  step 6  rank 192 -> 180");
        let more = Pruned::and(Some(Pruned::and(Some(one), 7, 180, 170)), 9, 170, 150);
        assert_eq!(more.to_string(), "  steps 6 to 9  rank 192 -> 150 in 3 cuts");
    }
}
