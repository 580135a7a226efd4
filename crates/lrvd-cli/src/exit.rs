//! How the process ends: exit codes and signals.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lrvd_bench::{Kind, kind_of};
use signal_hook::consts::{SIGINT, SIGTERM};

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

/// A flag that Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 set. A second Ctrl-C ends the process at once, after
/// the terminal is as it was; the others come from programs, which often send them twice, and always
/// leave time for the checkpoint.
#[cfg(unix)]
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGUSR1};
    use std::sync::atomic::Ordering;

    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    // On a separate thread: within a handler the terminal could not be given back.
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in &mut signals {
            if flag.swap(true, Ordering::Relaxed) && signal == SIGINT {
                crate::progress::give_back_terminal();
                signal_hook::low_level::exit(INTERRUPTED);
            }
        }
    })?;
    Ok(stop)
}

/// As on Unix; the dashboard's raw mode makes no signal of Ctrl-C here.
#[cfg(not(unix))]
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::flag;

    let stop = Arc::new(AtomicBool::new(false));
    // Registered first, so that it sees the flag of an earlier signal.
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&stop))?;
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
