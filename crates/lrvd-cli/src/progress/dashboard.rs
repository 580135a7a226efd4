//! burn-train's terminal dashboard, fed by the events of a run: the terminal is taken over, and given back in every case.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use burn::train::Interrupter;
use burn::train::metric::{
    LossMetric, Metric, MetricAttributes, MetricDefinition, MetricEntry, MetricId,
    NumericAttributes, NumericEntry, SerializedEntry,
};
use burn::train::renderer::tui::TuiMetricsRendererWrapper;
use burn::train::renderer::{MetricState, MetricsRenderer};
use console::Term;
use lrvd_bench::progress::Event;
use lrvd_burn::burn_train::StepMetric;

use super::lines::Lines;
#[cfg(unix)]
use super::loan;
use super::lock;
use crate::log;
use crate::terminal::{is_able, is_foreground};

/// Interval at which a stop request is looked for: well below the time between two presses of a key.
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
    curves: Option<Box<dyn Curves>>,
    held: Vec<Event>,
    lines: Lines,
    /// Nothing can be drawn: plain lines say the rest.
    is_dropped: bool,
}

impl Dashboard {
    pub(super) fn new(stage: Box<dyn Stage>, lines: Lines, stop: &Arc<AtomicBool>) -> Self {
        let screen = Screen { stage, curves: None, held: Vec::new(), lines, is_dropped: false };
        Self { screen: Arc::new(Mutex::new(screen)), stop: Arc::clone(stop), watcher: None }
    }

    /// Opens the screen for one run and watches for the end that its user may ask for.
    fn open(&mut self, runs_done: usize) {
        self.close();
        let mut screen = lock(&self.screen);
        if screen.is_dropped || self.stop.load(Ordering::Relaxed) {
            return;
        }
        let interrupter = Interrupter::new();
        screen.curves = screen.stage.open(interrupter.clone(), runs_done).ok();
        screen.is_dropped = screen.curves.is_none();
        drop(screen);
        let screen = Arc::clone(&self.screen);
        let stop = Arc::clone(&self.stop);
        let watch = move || {
            loop {
                thread::sleep(WATCH_EVERY);
                let mut screen = lock(&screen);
                if screen.curves.is_none() {
                    return;
                }
                if interrupter.should_stop() {
                    stop.store(true, Ordering::Relaxed);
                }
                let stopping = stop.load(Ordering::Relaxed);
                screen.is_dropped = screen.stage.is_broken();
                if stopping || screen.is_dropped {
                    screen.close();
                }
                if stopping {
                    screen.lines.line("stopping after this step and a checkpoint");
                }
            }
        };
        self.watcher = thread::Builder::new().spawn(watch).ok();
        if self.watcher.is_none() {
            // Nothing would look at its keys.
            let mut screen = lock(&self.screen);
            screen.is_dropped = true;
            screen.close();
        }
    }

    fn close(&mut self) {
        lock(&self.screen).close();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl Dashboard {
    pub(super) fn event(&mut self, event: &Event) {
        if let Event::RunStarted { index, .. } = event {
            self.open(index - 1);
        }
        let mut screen = lock(&self.screen);
        let Screen { curves, held, lines, .. } = &mut *screen;
        let Some(curves) = curves else { return lines.event(event) };
        if !matches!(event, Event::Step { .. } | Event::Searching { .. } | Event::Evaluating { .. })
        {
            held.push(event.clone());
        }
        // "Stop immediately" makes burn-train's renderer panic here, in the middle of the run. A
        // checkpoint first costs one step at most.
        if catch_unwind(AssertUnwindSafe(|| curves.draw(event))).is_err() {
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

impl Screen {
    /// Gives the screen back and says what was held back.
    fn close(&mut self) {
        let Some(curves) = self.curves.take() else { return };
        // Dropping them ends their thread and restores the terminal, but not while the thread that drops
        // them panics, and after "stop immediately" they panic themselves: both call for another thread.
        let _ = thread::Builder::new().spawn(move || drop(curves)).map(JoinHandle::join);
        let messages = self.stage.leave();
        for event in std::mem::take(&mut self.held) {
            self.lines.event(&event);
        }
        for message in messages {
            self.lines.line(&message);
        }
    }
}

/// Screen of the dashboard.
pub(super) trait Stage: Send {
    /// Takes the screen; `runs_done` of a suite came before.
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> io::Result<Box<dyn Curves>>;

    /// True if nothing can be seen on it any more.
    fn is_broken(&self) -> bool;

    /// Leaves the screen, after what [`Stage::open`] returned is gone, and tells what could not be
    /// shown meanwhile.
    fn leave(&self) -> Vec<String>;
}

pub(super) trait Curves: Send {
    fn draw(&mut self, event: &Event);
}

/// Name of burn-train's drawing thread.
const DRAWING_THREAD: &str = "train-renderer";
const ENTER_ALTERNATE_SCREEN: &[u8] = b"\x1b[?1049h";
/// Columns and rows in which the dashboard's curves can be told apart.
pub(super) const LEAST: (u16, u16) = (60, 20);

/// Messages of panics while the dashboard was up; `None` while it is not.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// True if keys, drawing and messages all have the foreground of a terminal that is large enough and can do more than print.
pub(super) fn is_possible() -> bool {
    let (least_columns, least_rows) = LEAST;
    let is_large = |(rows, columns)| rows >= least_rows && columns >= least_columns;
    is_able()
        && is_foreground(io::stdin())
        && is_foreground(io::stdout())
        && is_foreground(io::stderr())
        && Term::stdout().size_checked().is_some_and(is_large)
}

#[derive(Debug)]
pub(super) struct Terminal;

impl Stage for Terminal {
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> io::Result<Box<dyn Curves>> {
        // It may have gone away or to another process since the run before.
        if !is_possible() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        #[cfg(unix)]
        loan::take().inspect_err(|_| loan::give_back())?;
        HOOK.call_once(hold_panics);
        log::hold();
        *lock(&HELD) = Some(Vec::new());
        let runs_done = (runs_done > 0).then_some(runs_done);
        let renderer = TuiMetricsRendererWrapper::new(interrupter, runs_done);
        Ok(Box::new(Rendered { renderer: Box::new(renderer), registered: Vec::new() }))
    }

    fn is_broken(&self) -> bool {
        #[cfg(unix)]
        if loan::is_over() {
            return true;
        }
        lock(&HELD).as_ref().is_some_and(|messages| !messages.is_empty())
    }

    fn leave(&self) -> Vec<String> {
        #[cfg(unix)]
        loan::give_back();
        // The drawing thread does it unless a panic has ended it.
        #[cfg(not(unix))]
        let _ = io::stdout().write_all(b"\x1b[?25h");
        log::release();
        lock(&HELD).take().unwrap_or_default()
    }
}

struct Rendered {
    renderer: Box<dyn MetricsRenderer>,
    registered: Vec<String>,
}

impl Curves for Rendered {
    fn draw(&mut self, event: &Event) {
        match event {
            Event::RunStarted { index, runs, label, steps, done } => {
                // burn-train counts epochs of items; here they are runs of steps.
                self.renderer.start(*runs, *index, None, Some(label));
                self.renderer.start_split("train", *steps);
                self.renderer.update_split(*done);
                // Before the first validation, so that its metric is not the first curve.
                self.register(&definition(&LossMetric::new()));
            }
            Event::Step { done, loss, nll, kl, total_rank, examples_per_second, .. } => {
                self.renderer.update_split(*done);
                self.show(&LossMetric::new(), *loss, format!("{loss:.4}"));
                self.show(&StepMetric::nll(), *nll, format!("{nll:.4}"));
                if let Some(kl) = kl {
                    self.show(&StepMetric::kl(), *kl, format!("{kl:.0}"));
                }
                let rank = *total_rank as f64;
                self.show(&StepMetric::total_rank(), rank, total_rank.to_string());
                let speed = format!("{examples_per_second:.0} ex/s");
                let metric = StepMetric::examples_per_second();
                self.show(&metric, *examples_per_second, speed);
            }
            Event::Evaluated { metric, value, .. } => {
                let definition = MetricDefinition {
                    metric_id: MetricId::new(Arc::new(metric.clone())),
                    name: Arc::new(metric.clone()),
                    description: None,
                    attributes: MetricAttributes::Numeric(NumericAttributes::default()),
                };
                let state = self.state(definition, *value, format!("{value:.4}"));
                self.renderer.update_valid(state);
            }
            Event::Evaluating { done, total } => {
                if *done == 0 {
                    self.renderer.start_split("valid", *total);
                }
                self.renderer.update_split(*done);
            }
            Event::Pruned { .. } => self.renderer.log_event_training("Prunes".to_owned()),
            Event::Note(_) | Event::Searching { .. } | Event::RunFinished { .. } => {}
        }
    }
}

impl Rendered {
    fn show(&mut self, metric: &impl Metric, value: f64, text: String) {
        let state = self.state(definition(metric), value, text);
        self.renderer.update_train(state);
    }

    fn register(&mut self, definition: &MetricDefinition) {
        if !self.registered.contains(&definition.name) {
            self.registered.push(definition.name.to_string());
            self.renderer.register_metric(definition.clone());
        }
    }

    fn state(&mut self, definition: MetricDefinition, value: f64, text: String) -> MetricState {
        self.register(&definition);
        let text = SerializedEntry::new(text, value.to_string());
        let entry = MetricEntry::new(definition.metric_id, text);
        MetricState::Numeric(entry, Some(NumericEntry::Value(value)))
    }
}

fn definition(metric: &impl Metric) -> MetricDefinition {
    MetricDefinition::new(MetricId::new(metric.name()), metric)
}

/// Keeps the messages of panics until the terminal can show them.
///
/// burn-train's own hook runs before this one and leaves the alternate screen, but its thread may
/// draw once more; it shall not draw over what the user had on the screen.
fn hold_panics() {
    let previous = take_hook();
    set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let mut held = lock(&HELD);
        let Some(messages) = held.as_mut() else {
            drop(held);
            return previous(info);
        };
        let thread = thread::current();
        if thread.name() != Some(DRAWING_THREAD) {
            let mut out = io::stdout();
            let _ = out.write_all(ENTER_ALTERNATE_SCREEN).and_then(|()| out.flush());
        }
        let backtrace = Backtrace::capture();
        let mut message = format!("thread '{}' {info}", thread.name().unwrap_or("unnamed"));
        if backtrace.status() == BacktraceStatus::Captured {
            message = format!("{message}\n{backtrace}");
        }
        messages.push(message);
    }));
}

#[cfg(test)]
#[path = "dashboard_tests.rs"]
mod tests;
