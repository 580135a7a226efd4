//! How a run is shown, by burn-train's dashboard, a bar or plain lines, and what is kept of it.

#[cfg(feature = "dashboard")]
mod dashboard;
mod journal;
mod lines;
#[cfg(all(unix, feature = "dashboard"))]
mod loan;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "dashboard")]
use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use lrvd_bench::progress::Event;

#[cfg(feature = "dashboard")]
use crate::log;
use crate::printer::Printer;
use crate::terminal::{is_foreground, is_recorded};
pub(crate) use journal::Journal;
pub(crate) use lines::LINE_EVERY;
use lines::Lines;

#[cfg(all(unix, feature = "dashboard"))]
pub(crate) use loan::end as give_back_terminal;

/// No output takes over the terminal.
#[cfg(all(unix, not(feature = "dashboard")))]
pub(crate) fn give_back_terminal() {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressStyle {
    /// burn-train's dashboard: curves of loss, KL, rank and accuracy; needs the foreground of a terminal of 60 columns and
    /// 20 rows.
    Dashboard,
    /// A progress bar, redrawn in place; needs the foreground of a terminal.
    Bar,
    /// A line from time to time.
    Lines,
}

/// Shows events in `style`, or in the richest one that the terminal allows; in lines where a notebook or the log of a build keeps
/// every redraw.
///
/// `stop` is set where the dashboard's user asks for the end of the run.
#[cfg_attr(not(feature = "dashboard"), expect(unused_variables, reason = "only its keys stop"))]
pub(crate) fn sink(
    printer: Printer,
    style: Option<ProgressStyle>,
    stop: &Arc<AtomicBool>,
) -> Box<dyn FnMut(&Event)> {
    #[cfg(feature = "dashboard")]
    {
        // Log lines are for reading during the run.
        let is_usual = style.is_none() && !log::is_on() && !is_recorded();
        let is_named = style == Some(ProgressStyle::Dashboard);
        if (is_usual || is_named) && dashboard::is_possible() {
            let stage = Box::new(dashboard::Terminal);
            let lines = Lines::new(printer, false);
            let mut dashboard = dashboard::Dashboard::new(stage, lines, stop);
            return Box::new(move |event| dashboard.event(event));
        }
        if is_named {
            let (columns, rows) = dashboard::LEAST;
            printer.note(&format!(
                "the dashboard needs the foreground of a terminal of {columns} columns and {rows} rows"
            ));
        }
    }
    #[cfg(not(feature = "dashboard"))]
    if style == Some(ProgressStyle::Dashboard) {
        printer.note(&lrvd_bench::left_out("dashboard").to_string());
    }
    let bars = match style {
        Some(style) => style != ProgressStyle::Lines,
        None => !is_recorded(),
    };
    let bars = bars && is_foreground(std::io::stderr());
    let mut lines = Lines::new(printer, bars);
    Box::new(move |event| lines.event(event))
}

/// A thread that panicked leaves lines that are still to be shown.
#[cfg(feature = "dashboard")]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
