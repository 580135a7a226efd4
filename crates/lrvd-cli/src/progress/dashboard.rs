//! burn-train's terminal dashboard, fed by the events of a run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use burn::train::Interrupter;
use lrvd_bench::progress::{Event, ProgressSink};

use super::lines::Lines;
use super::terminal::{Curves, Stage, Terminal};
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
    curves: Option<Box<dyn Curves>>,
    held: Vec<Event>,
    lines: Lines,
}

impl Dashboard {
    pub(super) fn new(printer: Printer, stop: &Arc<AtomicBool>) -> Self {
        Self::on(Box::new(Terminal), Lines::new(printer, false), stop)
    }

    fn on(stage: Box<dyn Stage>, lines: Lines, stop: &Arc<AtomicBool>) -> Self {
        let screen = Screen { stage, curves: None, held: Vec::new(), lines };
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
        screen.curves = Some(screen.stage.open(interrupter.clone(), runs_done));
        drop(screen);
        let (screen, stop) = (Arc::clone(&self.screen), Arc::clone(&self.stop));
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

fn lock<T>(screen: &Mutex<T>) -> MutexGuard<'_, T> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
#[path = "dashboard_tests.rs"]
mod tests;
