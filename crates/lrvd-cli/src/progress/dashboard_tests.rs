#![allow(clippy::unwrap_used)]

use std::time::Instant;

use super::*;
use crate::printer::Printer;

/// Calls of a screen, and keys that its user pressed.
#[derive(Default)]
struct State {
    drawn: Vec<String>,
    interrupter: Option<Interrupter>,
    closed: usize,
    left: usize,
    killed: bool,
    broken: bool,
}

type Record = Arc<Mutex<State>>;

struct Fake(Record);

impl Curves for Fake {
    fn draw(&mut self, event: &Event) {
        let mut state = lock(&self.0);
        assert!(!state.killed, "Killing training from user input.");
        state.drawn.push(format!("{event:?}").split_once(' ').unwrap().0.to_owned());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        assert!(!thread::panicking(), "burn-train would leave the terminal as it is");
        lock(&self.0).closed += 1;
    }
}

impl Stage for Record {
    fn open(&self, interrupter: Interrupter, runs_done: usize) -> io::Result<Box<dyn Curves>> {
        let mut state = lock(self);
        state.interrupter = Some(interrupter);
        state.drawn.push(format!("open after {runs_done}"));
        Ok(Box::new(Fake(Arc::clone(self))))
    }

    fn is_broken(&self) -> bool {
        lock(self).broken
    }

    fn leave(&self) -> Vec<String> {
        lock(self).left += 1;
        Vec::new()
    }
}

fn dashboard() -> (Dashboard, Record, Arc<AtomicBool>) {
    let record = Record::default();
    let stop = Arc::new(AtomicBool::new(false));
    let lines = Lines::new(Printer { named: None, quiet: true }, false);
    (Dashboard::new(Box::new(Arc::clone(&record)), lines, &stop), record, stop)
}

fn started(index: usize) -> Event {
    Event::RunStarted { index, runs: 3, label: "rte / bayeslora / 1".into(), steps: 40, done: 0 }
}

fn pruned() -> Event {
    Event::Pruned { done: 1, before: 96, after: 90 }
}

#[test]
fn a_run_has_a_screen() {
    let (mut dashboard, record, stop) = dashboard();
    let finished =
        Event::RunFinished { label: String::new(), summary: String::new(), seconds: 1.0 };
    let note = || Event::Note("between runs".into());
    for event in [note(), started(2), pruned(), finished, note(), started(3), pruned()] {
        dashboard.event(&event);
    }
    drop(dashboard);
    let State { drawn, closed, left, .. } = &*lock(&record);
    let first = ["open after 1", "RunStarted", "Pruned", "RunFinished"];
    assert_eq!(*drawn, [&first[..], &["open after 2", "RunStarted", "Pruned"]].concat());
    assert_eq!((*closed, *left, stop.load(Ordering::Relaxed)), (2, 2, false));
}

#[test]
fn a_signal_a_key_and_a_broken_screen_give_the_terminal_back() {
    let relaxed = Ordering::Relaxed;
    for (cause, stops) in [("signal", true), ("stop", true), ("kill", true), ("broken", false)] {
        let (mut dashboard, record, stop) = dashboard();
        dashboard.event(&started(1));
        match cause {
            "signal" => stop.store(true, relaxed),
            "stop" => lock(&record).interrupter.as_ref().unwrap().stop(None),
            "kill" => {
                lock(&record).killed = true;
                dashboard.event(&pruned());
            }
            _ => lock(&record).broken = true,
        }
        // The watching thread does it.
        let begun = Instant::now();
        while lock(&record).left == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "{cause}");
            thread::sleep(Duration::from_millis(5));
        }
        // The following events are printed as lines.
        dashboard.event(&pruned());
        // No later run of a suite takes a screen that is gone.
        dashboard.event(&started(2));
        let State { drawn, closed, .. } = &*lock(&record);
        assert_eq!((drawn.len(), *closed, stop.load(relaxed)), (2, 1, stops), "{cause}");
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
    let State { closed, left, .. } = &*lock(&record);
    assert_eq!((*closed, *left), (1, 1));
}
