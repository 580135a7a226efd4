//! `metrics.jsonl`: the events of a run, in its folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use lrvd_bench::progress::Event;
use lrvd_burn::files::write_atomic;
use serde_json::{Value, json};

use crate::printer::Printer;

const METRICS_FILE: &str = "metrics.jsonl";
const EVALUATED: &str = "evaluated";
const FINISHED: &str = "finished";

/// Shows events as `shown` does, and writes them down.
///
/// A line of `metrics.jsonl` is one event with the run it belongs to. A run that continues from a checkpoint takes back
/// the lines of the steps that it repeats. Training continues if a line cannot be written; one note says so.
pub(crate) struct Journal {
    shown: Box<dyn FnMut(&Event)>,
    printer: Printer,
    /// The folder of a run, by its label.
    folder: Box<dyn Fn(&str) -> PathBuf>,
    run: String,
    step: usize,
    lines: Option<File>,
    failed: bool,
}

impl Journal {
    /// Writes into the `folder` of each run, by its label, which exists once the run starts.
    pub(crate) fn new(
        shown: Box<dyn FnMut(&Event)>,
        printer: Printer,
        folder: impl Fn(&str) -> PathBuf + 'static,
    ) -> Self {
        Self {
            shown,
            printer,
            folder: Box::new(folder),
            run: String::new(),
            step: 0,
            lines: None,
            failed: false,
        }
    }

    /// Opens the file for lines of `run` after `done` steps; later ones in it are taken back.
    fn open(&mut self, run: &str, done: usize) -> io::Result<()> {
        run.clone_into(&mut self.run);
        self.step = done;
        let path = (self.folder)(run).join(METRICS_FILE);
        let old = read(&path)?.unwrap_or_default();
        let kept: String =
            old.split_inclusive('\n').filter(|line| is_kept(line, run, done)).collect();
        if kept.len() < old.len() {
            write_atomic(&path, kept.as_bytes()).map_err(io::Error::other)?;
        }
        self.lines = Some(OpenOptions::new().create(true).append(true).open(&path)?);
        Ok(())
    }

    /// Opens the file of a run that an earlier process finished, if that process did not write its last line; `None` if
    /// nothing is missing.
    fn reopen(&mut self, run: &str) -> io::Result<Option<()>> {
        let path = (self.folder)(run).join(METRICS_FILE);
        let Some(old) = read(&path)? else { return Ok(None) };
        // A suite has many lines of other runs, which need not be parsed.
        let name = json!(run).to_string();
        let lines = old.lines().filter(|line| line.contains(&name));
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let own: Vec<Value> = lines.filter(|line| line["run"] == run).collect();
        if own.iter().any(|line| line["event"] == FINISHED) {
            return Ok(None);
        }
        let last = own.iter().filter_map(|line| line["step"].as_u64()).max().unwrap_or(0);
        // Nothing is repeated.
        self.open(run, last as usize + 1)?;
        self.step = last as usize;
        Ok(Some(()))
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::RunStarted { label, done, .. } => self.open(label, *done)?,
            // A run that this process did not start was finished by an earlier one.
            Event::RunFinished { label, .. }
                if self.run != *label && self.reopen(label)?.is_none() =>
            {
                return Ok(());
            }
            _ => {}
        }
        let Some((kind, step, values)) = described(event, self.step) else { return Ok(()) };
        self.step = step;
        if let Some(file) = &mut self.lines {
            let mut line = json!({ "run": self.run, "event": kind, "step": step });
            for (name, value) in values.as_object().into_iter().flatten() {
                line[name] = value.clone();
            }
            file.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }
}

impl Journal {
    pub(crate) fn event(&mut self, event: &Event) {
        (self.shown)(event);
        if self.failed {
            return;
        }
        if let Err(error) = self.write(event) {
            self.failed = true;
            let file = (self.folder)(&self.run).join(METRICS_FILE);
            self.printer
                .note(&format!("{}: {error}; training continues without it", file.display()));
        }
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        // A damaged line is no JSON, or has another letter.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if a line is kept if `run` continues after `done` steps, with the evaluation that was due then.
fn is_kept(line: &str, run: &str, done: usize) -> bool {
    // A line that a kill cut short is no loss.
    let Ok(line) = serde_json::from_str::<Value>(line) else { return false };
    let is_before = |step| {
        step <= done as u64 && done > 0 && !(step == done as u64 && line["event"] == EVALUATED)
    };
    line["run"] != run || line["step"].as_u64().is_some_and(is_before)
}

/// Kind, step and values of an event; `None` if it is no number of a run.
fn described(event: &Event, step: usize) -> Option<(&'static str, usize, Value)> {
    Some(match event {
        Event::Note(_) | Event::Searching { .. } | Event::Evaluating { .. } => return None,
        Event::RunStarted { steps, done, .. } => {
            ("run", *done, json!({ "steps": steps, "done": done }))
        }
        Event::Step { done, loss, nll, kl, total_rank, examples_per_second, .. } => {
            let values = json!({
                "loss": loss, "nll": nll, "kl": kl, "total_rank": total_rank,
                "examples_per_second": examples_per_second,
            });
            ("step", *done, values)
        }
        Event::Evaluated { done, metric, value, total_rank, .. } => {
            let values = json!({ "metric": metric, "value": value, "total_rank": total_rank });
            (EVALUATED, *done, values)
        }
        Event::Pruned { done, before, after } => {
            ("pruned", *done, json!({ "before": before, "after": after }))
        }
        Event::RunFinished { summary, seconds, .. } => {
            (FINISHED, step, json!({ "summary": summary, "seconds": seconds }))
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn started(label: &str, done: usize) -> Event {
        Event::RunStarted { index: 1, runs: 2, label: label.into(), steps: 9, done }
    }

    fn step(done: usize) -> Event {
        Event::Step {
            done,
            loss: 0.75,
            nll: 0.5,
            kl: Some(40.0),
            total_rank: 12,
            examples_per_second: 100.0,
            seconds_left: 3.0,
        }
    }

    fn tell(out: &Path, events: &[Event]) {
        let printer = Printer { named: None, quiet: true };
        let folder = out.to_owned();
        let mut journal = Journal::new(Box::new(|_| {}), printer, move |_| folder.clone());
        for event in events {
            journal.event(event);
        }
        assert!(!journal.failed);
    }

    /// Last letter of the run, event and step of every line.
    fn lines(out: &Path) -> String {
        let text = fs::read_to_string(out.join(METRICS_FILE)).unwrap();
        let line = |line: &str| {
            let line = serde_json::from_str::<Value>(line).unwrap();
            let [run, event] = ["run", "event"].map(|key| line[key].as_str().unwrap());
            format!("{} {event} {}", run.rsplit(' ').next().unwrap(), line["step"])
        };
        text.lines().map(line).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_run_that_goes_on_repeats_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let pruned = Event::Pruned { done: 2, before: 12, after: 7 };
        let evaluated = |done| {
            let metric = "accuracy".to_owned();
            Event::Evaluated { done, metric, value: 0.5, nll: None, total_rank: 7 }
        };
        let events = [started("a / b", 0), step(1), evaluated(1), step(2), pruned, evaluated(2)];
        tell(out, &[&events[..], &[step(3)]].concat());
        // A kill in the middle of a line.
        let mut file = OpenOptions::new().append(true).open(out.join(METRICS_FILE)).unwrap();
        // A byte that is not UTF-8, too.
        file.write_all(b"{\"run\":\"a / b\",\"ev\xff").unwrap();
        tell(out, &[started("a / c", 0), step(1)]);
        // The checkpoint of step 2 was written before the evaluation of that step.
        tell(out, &[started("a / b", 2), evaluated(2), step(3)]);
        let c = "c run 0, c step 1";
        let first = "b run 0, b step 1, b evaluated 1, b step 2, b pruned 2";
        let both = format!("{first}, {c}, b run 2, b evaluated 2, b step 3");
        assert_eq!(lines(out), both);
        let finished = |label: &str| Event::RunFinished {
            label: label.into(),
            summary: "s".into(),
            seconds: 1.0,
        };
        // A finished run that lacks its last line gets it, once; in a suite several in one process, before and after a run that
        // starts here.
        let [first, second, third, again] = ["a / b", "a / c", "a / d", "a / b"].map(finished);
        tell(out, &[first, second, started("a / d", 0), step(1), third, again]);
        let more = "c finished 1, d run 0, d step 1, d finished 1";
        assert_eq!(lines(out), format!("{both}, b finished 3, {more}"));
        assert_eq!(fs::read_dir(out).unwrap().count(), 1, "one file");
        // A run that starts anew leaves nothing of the old one.
        tell(out, &[started("a / b", 0), step(1)]);
        assert_eq!(lines(out), format!("{c}, {more}, b run 0, b step 1"));
    }
}
