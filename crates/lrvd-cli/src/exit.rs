//! How the process ends: exit codes and signals.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lrvd_bench::{Kind, Result, kind_of};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::printer::Printer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// The command ended as asked.
    Done = 0,
    /// The command ran, and a check did not hold.
    CheckFailed = 1,
    /// Arguments, configuration or files cannot be used.
    Usage = 2,
    /// The hub, a disk or a folder that another run uses: the same command may succeed later.
    Unavailable = 3,
    /// Stopped by a signal after a checkpoint ("try again later"); run again with `--resume`.
    Requeue = 75,
}

impl ExitStatus {
    /// The status of a command that ended in `error`.
    pub(crate) fn of(error: &lrvd_bench::Error) -> Self {
        match kind_of(error) {
            Some(Kind::Unavailable | Kind::InUse) => Self::Unavailable,
            Some(Kind::Stopped) => Self::Requeue,
            _ => Self::Usage,
        }
    }

    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// Exit status of a process that a second Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Signals that end a run after a checkpoint, and a server after its answers.
const ENDING: &[i32] = &[
    SIGTERM,
    SIGINT,
    #[cfg(unix)]
    signal_hook::consts::SIGXCPU,
];

/// Signals that end a run after a checkpoint, and that a server passes over: a lost terminal, the notice of a cluster, the
/// rotation of logs.
#[cfg(unix)]
const PASSING: [i32; 3] = {
    use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
    [SIGHUP, SIGUSR1, SIGUSR2]
};

/// A flag that the signals of a run set; the first one is acknowledged.
pub(crate) fn run_flag(printer: Printer) -> Result<Arc<AtomicBool>> {
    stop_flag(false, move |name, _| {
        // The dashboard prints this line.
        if !crate::log::is_held() {
            printer.note(&format!("{name}: stopping after this step and a checkpoint"));
        }
    })
}

/// A flag that the signals of a run or a server set. `seen` gets the name of each signal, and whether it sets the flag. A second
/// Ctrl-C ends the process at once, after the terminal is as it was; the others come from programs, which often send them
/// twice, and always leave time for the checkpoint.
#[cfg(unix)]
pub(crate) fn stop_flag(
    is_server: bool,
    seen: impl Fn(&str, bool) + Send + 'static,
) -> Result<Arc<AtomicBool>> {
    use lrvd_bench::no_threads;
    use signal_hook::low_level::{exit, signal_name};
    use std::sync::atomic::Ordering;

    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let all = ENDING.iter().copied().chain(PASSING);
    let mut signals =
        signal_hook::iterator::Signals::new(all.filter(|signal| !is_ignored(*signal)))?;
    // On a separate thread: within a handler the terminal could not be given back.
    let watch = move || {
        for signal in &mut signals {
            let ends = !is_server || ENDING.contains(&signal);
            let again = ends && flag.swap(true, Ordering::Relaxed);
            if again && signal == SIGINT {
                crate::progress::give_back_terminal();
                exit(INTERRUPTED);
            }
            if !again {
                seen(signal_name(signal).unwrap_or("signal"), ends);
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(watch);
    thread.map(|_| stop).map_err(|error| no_threads(1, error))
}

/// `true` of a SIGHUP or SIGINT that the process was started to ignore, by `nohup` or as a background job of a script: it stays
/// ignored.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    if ![SIGINT, signal_hook::consts::SIGHUP].contains(&signal) {
        return false;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    match mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()) {
        Some(mask) => (mask >> (signal - 1)) & 1 == 1,
        None => survives(signal),
    }
}

/// True if a child survives sending itself `signal`: signals that are ignored are inherited.
#[cfg(unix)]
fn survives(signal: i32) -> bool {
    let mut child = std::process::Command::new("sh");
    child.args(["-c", &format!("kill -{signal} $$")]);
    child.status().is_ok_and(|status| status.success())
}

/// The dashboard's raw mode makes no signal of Ctrl-C here.
#[cfg(not(unix))]
pub(crate) fn stop_flag(
    _is_server: bool,
    _seen: impl Fn(&str, bool) + Send + 'static,
) -> Result<Arc<AtomicBool>> {
    use signal_hook::flag;

    let stop = Arc::new(AtomicBool::new(false));
    // Registered first, so that it sees the flag of an earlier signal.
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&stop))?;
    for &signal in ENDING {
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Lets a file that grows beyond the system's limit fail to be written, as a full disk does; without a handler SIGXFSZ would end
/// the process without a word.
pub(crate) fn fail_at_file_limit() -> io::Result<()> {
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_child_tells_what_the_system_says() {
        for signal in [SIGINT, signal_hook::consts::SIGHUP] {
            assert_eq!(survives(signal), is_ignored(signal), "{signal}");
        }
    }
}
