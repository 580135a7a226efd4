#![allow(clippy::unwrap_used)]

use std::error::Error;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use burn::train::LearnerSummary;
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::renderer::{EvaluationName, MetricsRendererEvaluation, MetricsRendererTraining};

use super::*;
use crate::printer::Format;

/// What a renderer was told, and what its user pressed.
#[derive(Clone, Default)]
struct Record {
    calls: Arc<Mutex<Vec<String>>>,
    interrupter: Arc<Mutex<Option<Interrupter>>>,
    closed: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    killed: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
}

impl Record {
    fn note(&self, call: String) {
        assert!(!self.killed.load(Ordering::Relaxed), "Killing training from user input.");
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

struct Fake(Record);

impl Drop for Fake {
    fn drop(&mut self) {
        assert!(!thread::panicking(), "burn-train would leave the terminal as it is");
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

struct FakeStage(Record);

impl Stage for FakeStage {
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> Box<dyn MetricsRenderer> {
        *self.0.interrupter.lock().unwrap() = Some(interrupter);
        self.0.note(format!("open after {runs_done}"));
        Box::new(Fake(self.0.clone()))
    }

    fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Relaxed)
    }

    fn leave(&self) -> Vec<String> {
        self.0.left.fetch_add(1, Ordering::Relaxed);
        Vec::new()
    }
}

fn metric(split: &str, state: MetricState) -> String {
    match state {
        MetricState::Numeric(entry, Some(value)) => {
            let text = entry.serialized_entry.formatted;
            format!("{split} {:?} {} `{text}`", entry.metric_id, value.current())
        }
        other => format!("{split} {other:?}"),
    }
}

impl MetricsRendererTraining for Fake {
    fn update_train(&mut self, state: MetricState) {
        self.0.note(metric("train", state));
    }
    fn update_valid(&mut self, state: MetricState) {
        self.0.note(metric("valid", state));
    }
}

impl MetricsRendererEvaluation for Fake {
    fn update_test(&mut self, _name: EvaluationName, _state: MetricState) {}
    fn on_test_end(&mut self, _summary: Option<LearnerSummary>) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
}

impl TrainingProgressLogger for Fake {
    fn start(&mut self, total: usize, first: usize, items: Option<usize>, label: Option<&str>) {
        self.0.note(format!("start {first}/{total} {items:?} {label:?}"));
    }
    fn update_epoch(&mut self, _epoch: usize) {}
    fn start_split(&mut self, split: &str, total_items: usize) {
        self.0.note(format!("{split} {total_items}"));
    }
    fn update_split(&mut self, items_processed: usize) {
        self.0.note(format!("at {items_processed}"));
    }
    fn end_split(&mut self) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, event: String) {
        self.0.note(event);
    }
}

impl EvaluationProgressLogger for Fake {
    fn start_global_progress(&mut self, _total_tests: usize) {}
    fn start_test(&mut self, _name: &str, _total_items: usize) {}
    fn update_test_progress(&mut self, _items_processed: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _event: String) {}
}

impl MetricsRenderer for Fake {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, definition: MetricDefinition) {
        self.0.note(format!("register {}", definition.name));
    }
}

fn dashboard() -> (Dashboard, Record, Arc<AtomicBool>) {
    let (record, stop) = (Record::default(), Arc::new(AtomicBool::new(false)));
    let lines = Lines::new(Printer { format: Format::Text, quiet: true }, false);
    (Dashboard::on(Box::new(FakeStage(record.clone())), lines, &stop), record, stop)
}

fn started(index: usize) -> Event {
    Event::RunStarted { index, runs: 3, label: "rte / bayeslora / 1".into(), steps: 40, done: 0 }
}

fn step(done: usize, kl: f64) -> Event {
    Event::Step {
        done,
        loss: 0.75,
        nll: 0.5,
        kl,
        total_rank: 96,
        examples_per_second: 31.6,
        seconds_left: 9.0,
    }
}

fn finished() -> Event {
    Event::RunFinished { label: String::new(), summary: String::new(), seconds: 1.0 }
}

/// Waits for what the watching thread does.
fn until(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if done() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn events_become_curves() {
    let (mut dashboard, record, stop) = dashboard();
    dashboard.event(&Event::Note("not on the screen yet".into()));
    let evaluated = Event::Evaluated {
        done: 1,
        metric: "accuracy".into(),
        value: 0.625,
        nll: None,
        total_rank: 96,
    };
    let pruned = Event::Pruned { done: 1, before: 96, after: 90 };
    for event in [started(2), step(1, 0.0), evaluated, pruned, step(2, 1234.5), finished()] {
        dashboard.event(&event);
    }
    let expected: Vec<&str> = include_str!("dashboard_calls.txt").lines().collect();
    assert_eq!(record.calls(), expected);
    assert_eq!(record.closed.load(Ordering::Relaxed), 1);
    // The next run gets a separate screen, with every metric to be registered again.
    for event in [started(3), step(1, 0.0)] {
        dashboard.event(&event);
    }
    assert_eq!(record.calls()[expected.len()], "open after 2");
    assert_eq!(record.calls().iter().filter(|call| *call == "register Loss").count(), 2);
    drop(dashboard);
    assert_eq!(record.closed.load(Ordering::Relaxed), 2);
    assert_eq!(record.left.load(Ordering::Relaxed), 2);
    assert!(!stop.load(Ordering::Relaxed));
}

#[test]
fn a_signal_a_key_and_a_broken_screen_give_the_terminal_back() {
    let relaxed = Ordering::Relaxed;
    for (cause, stops) in [("signal", true), ("stop", true), ("kill", true), ("broken", false)] {
        let (mut dashboard, record, stop) = dashboard();
        dashboard.event(&started(1));
        let calls = record.calls().len();
        match cause {
            "signal" => stop.store(true, relaxed),
            "stop" => record.interrupter.lock().unwrap().as_ref().unwrap().stop(None),
            "kill" => {
                record.killed.store(true, relaxed);
                dashboard.event(&step(1, 0.0));
            }
            _ => record.broken.store(true, relaxed),
        }
        assert!(until(|| record.left.load(relaxed) == 1), "{cause}");
        assert_eq!((stop.load(relaxed), record.closed.load(relaxed)), (stops, 1), "{cause}");
        // The following events are printed as lines.
        dashboard.event(&step(1, 0.0));
        assert_eq!(record.calls().len(), calls, "{cause}");
    }
}

#[test]
fn a_panic_of_the_run_gives_the_screen_back() {
    let (mut dashboard, record, _) = dashboard();
    let run = thread::spawn(move || {
        dashboard.event(&started(1));
        panic!("a run went wrong");
    });
    assert!(run.join().is_err());
    assert_eq!(record.closed.load(Ordering::Relaxed), 1);
    assert_eq!(record.left.load(Ordering::Relaxed), 1);
}
