//! How a run is shown, by burn-train's dashboard, a bar or plain lines, and what is kept of it.

#[cfg(feature = "dashboard")]
mod dashboard;
mod journal;
mod lines;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueEnum;
use lrvd_bench::progress::ProgressSink;

#[cfg(feature = "dashboard")]
use crate::log;
use crate::printer::Printer;
pub(crate) use journal::Journal;
pub(crate) use lines::LINE_EVERY;
use lines::Lines;

#[cfg(all(unix, feature = "dashboard"))]
pub(crate) use dashboard::give_back as give_back_terminal;

/// No output takes over the terminal.
#[cfg(all(unix, not(feature = "dashboard")))]
pub(crate) fn give_back_terminal() {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressStyle {
    /// burn-train's dashboard: curves of loss, KL, rank and accuracy; needs a terminal.
    Dashboard,
    /// A progress bar, redrawn in place; needs a terminal.
    Bar,
    /// A line from time to time.
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Event files for TensorBoard, a folder for each run.
    Tensorboard,
}

/// Shows events in `style`, or in the richest one that the terminal allows.
///
/// `stop` is set where the dashboard's user asks for the end of the run.
#[cfg_attr(not(feature = "dashboard"), expect(unused_variables, reason = "only its keys stop"))]
pub(crate) fn sink(
    printer: Printer,
    style: Option<ProgressStyle>,
    stop: &Arc<AtomicBool>,
) -> Box<dyn ProgressSink> {
    #[cfg(feature = "dashboard")]
    {
        // Log lines are for reading during the run.
        let is_usual = style.is_none() && !log::is_on();
        let is_named = style == Some(ProgressStyle::Dashboard);
        if (is_usual || is_named) && dashboard::is_complete() {
            let (stage, lines) = (Box::new(dashboard::Terminal), Lines::new(printer, false));
            return Box::new(dashboard::Dashboard::new(stage, lines, stop));
        }
        if is_named {
            printer.note("the dashboard needs a terminal");
        }
    }
    #[cfg(not(feature = "dashboard"))]
    if style == Some(ProgressStyle::Dashboard) {
        printer.note(&lrvd_bench::left_out("dashboard").to_string());
    }
    let bars = style != Some(ProgressStyle::Lines) && std::io::stderr().is_terminal();
    Box::new(Lines::new(printer, bars))
}
