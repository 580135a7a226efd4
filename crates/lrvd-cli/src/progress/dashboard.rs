//! burn-train's terminal dashboard, fed by the events of a run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use burn::train::Interrupter;
use burn::train::metric::{
    LossMetric, Metric, MetricAttributes, MetricDefinition, MetricEntry, MetricId,
    NumericAttributes, NumericEntry, SerializedEntry,
};
use burn::train::renderer::{MetricState, MetricsRenderer};
use lrvd_bench::progress::{Event, ProgressSink};
use lrvd_burn::burn_train::{ExamplesPerSecondMetric, KlMetric, NllMetric, TotalRankMetric};

use super::lines::Lines;
use super::terminal::{Stage, Terminal};
use crate::printer::Printer;

/// How often a stop request is looked for: well below the time between two presses of a key.
const WATCH_EVERY: Duration = Duration::from_millis(25);

/// Shows one run at a time; what plain lines would have said appears when the run ends.
///
/// A stop request, from the keyboard or from elsewhere, gives the screen back at once and sets the
/// stop flag, so that the run ends as it does without a dashboard: after a checkpoint.
pub(super) struct Dashboard {
    screen: Arc<Mutex<Screen>>,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

struct Screen {
    stage: Box<dyn Stage>,
    renderer: Option<Box<dyn MetricsRenderer>>,
    registered: Vec<String>,
    held: Vec<Event>,
    lines: Lines,
}

#[derive(Clone, Copy)]
enum Split {
    Training,
    Validation,
}

impl Dashboard {
    /// A dashboard on the terminal.
    pub(super) fn new(printer: Printer, stop: &Arc<AtomicBool>) -> Self {
        Self::on(Box::new(Terminal), Lines::new(printer, false), stop)
    }

    fn on(stage: Box<dyn Stage>, lines: Lines, stop: &Arc<AtomicBool>) -> Self {
        let (registered, held) = (Vec::new(), Vec::new());
        let screen = Screen { stage, renderer: None, registered, held, lines };
        Self { screen: Arc::new(Mutex::new(screen)), stop: Arc::clone(stop), watcher: None }
    }

    /// Opens the screen for one run and watches for the end that its user may ask for.
    fn open(&mut self, runs_done: usize) {
        self.close();
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let interrupter = Interrupter::new();
        let mut screen = lock(&self.screen);
        screen.renderer = Some(screen.stage.open(interrupter.clone(), runs_done));
        drop(screen);
        let (screen, stop) = (Arc::clone(&self.screen), Arc::clone(&self.stop));
        let watch = move || {
            loop {
                thread::sleep(WATCH_EVERY);
                let mut screen = lock(&screen);
                if screen.renderer.is_none() {
                    return;
                }
                if interrupter.should_stop() {
                    stop.store(true, Ordering::Relaxed);
                }
                let stopping = stop.load(Ordering::Relaxed);
                if stopping || screen.stage.is_broken() {
                    screen.close();
                }
                if stopping {
                    screen.lines.line("stopping after this step and a checkpoint");
                }
            }
        };
        self.watcher = Some(thread::spawn(watch));
    }

    fn close(&mut self) {
        lock(&self.screen).close();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl ProgressSink for Dashboard {
    fn event(&mut self, event: &Event) {
        if let Event::RunStarted { index, .. } = event {
            self.open(index - 1);
        }
        let mut screen = lock(&self.screen);
        if screen.renderer.is_none() {
            return screen.lines.event(event);
        }
        if !matches!(event, Event::Step { .. } | Event::Searching { .. } | Event::Evaluating { .. })
        {
            screen.held.push(event.clone());
        }
        // "Stop immediately" makes burn-train's renderer panic here, in the middle of the run. A
        // checkpoint first costs one step at most.
        if catch_unwind(AssertUnwindSafe(|| screen.draw(event))).is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        if matches!(event, Event::RunFinished { .. }) {
            screen.close();
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.close();
    }
}

fn definition(metric: &impl Metric) -> MetricDefinition {
    MetricDefinition::new(MetricId::new(metric.name()), metric)
}

fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Screen {
    fn draw(&mut self, event: &Event) {
        let Some(renderer) = &mut self.renderer else { return };
        match event {
            Event::RunStarted { index, runs, label, steps, done } => {
                // burn-train counts epochs of items; here they are runs of steps.
                renderer.start(*runs, *index, None, Some(label));
                renderer.start_split("train", *steps);
                renderer.update_split(*done);
                // Before the first validation, so that its metric is not the first curve.
                self.register(&definition(&LossMetric::new()));
            }
            Event::Step { done, loss, nll, kl, total_rank, examples_per_second, .. } => {
                renderer.update_split(*done);
                self.show(&LossMetric::new(), *loss, format!("{loss:.4}"));
                self.show(&NllMetric::default(), *nll, format!("{nll:.4}"));
                // Without a posterior it is 0 throughout.
                if *kl != 0.0 {
                    self.show(&KlMetric::default(), *kl, format!("{kl:.0}"));
                }
                let rank = *total_rank as f64;
                self.show(&TotalRankMetric::default(), rank, total_rank.to_string());
                let speed = format!("{examples_per_second:.0} ex/s");
                self.show(&ExamplesPerSecondMetric::default(), *examples_per_second, speed);
            }
            Event::Evaluated { metric, value, .. } => {
                let definition = MetricDefinition {
                    metric_id: MetricId::new(Arc::new(metric.clone())),
                    name: Arc::new(metric.clone()),
                    description: None,
                    attributes: MetricAttributes::Numeric(NumericAttributes::default()),
                };
                self.push(Split::Validation, definition, *value, format!("{value:.4}"));
            }
            Event::Evaluating { done, total } => {
                if *done == 0 {
                    renderer.start_split("valid", *total);
                }
                renderer.update_split(*done);
            }
            Event::Pruned { .. } => renderer.log_event_training("Prunes".to_owned()),
            Event::Note(_) | Event::Searching { .. } | Event::RunFinished { .. } => {}
        }
    }

    fn show(&mut self, metric: &impl Metric, value: f64, text: String) {
        self.push(Split::Training, definition(metric), value, text);
    }

    fn register(&mut self, definition: &MetricDefinition) {
        let Some(renderer) = &mut self.renderer else { return };
        if !self.registered.contains(&definition.name) {
            self.registered.push(definition.name.to_string());
            renderer.register_metric(definition.clone());
        }
    }

    fn push(&mut self, split: Split, definition: MetricDefinition, value: f64, text: String) {
        self.register(&definition);
        let Some(renderer) = &mut self.renderer else { return };
        let text = SerializedEntry::new(text, value.to_string());
        let entry = MetricEntry::new(definition.metric_id, text);
        let state = MetricState::Numeric(entry, Some(NumericEntry::Value(value)));
        match split {
            Split::Training => renderer.update_train(state),
            Split::Validation => renderer.update_valid(state),
        }
    }

    /// Gives the screen back and says what was held back.
    fn close(&mut self) {
        let Some(renderer) = self.renderer.take() else { return };
        // Dropping it ends its thread and restores the terminal, but not while the thread that drops
        // it panics, and after "stop immediately" it panics itself: both call for another thread.
        let _ = thread::Builder::new().spawn(move || drop(renderer)).map(JoinHandle::join);
        let messages = self.stage.leave();
        self.registered.clear();
        for event in std::mem::take(&mut self.held) {
            self.lines.event(&event);
        }
        for message in messages {
            self.lines.line(&message);
        }
    }
}

#[cfg(test)]
#[path = "dashboard_tests.rs"]
mod tests;
