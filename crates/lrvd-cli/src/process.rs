//! How the process runs and ends: its allocator, the thread of its command, signals, exit codes.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mimalloc::MiMalloc;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A training step allocates and frees a few hundred tensors of some megabytes. The system's allocator
/// hands such blocks back to the kernel each time, and every page of them faults anew.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// When the allocator gives freed pages back, in milliseconds; -1 for never.
const DELAY: &str = "MIMALLOC_PURGE_DELAY";

/// Starts the program anew with an allocator that keeps freed pages, unless the environment says when to
/// give them back.
///
/// The allocator's own delay is one second: a step of a large model is longer, and would fault in every
/// buffer again. It reads its settings once, before `main`; there is no other way to set them. The process
/// keeps its number, its files and its arguments.
#[expect(clippy::disallowed_methods, reason = "the allocator reads nothing else")]
fn keep_pages() {
    #[cfg(unix)]
    if std::env::var_os(DELAY).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        use std::os::unix::process::CommandExt;
        // Only a failure returns, and then the program runs on as it is.
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.clone().into());
        let _ =
            std::process::Command::new(program).arg0(name).args(arguments).env(DELAY, "-1").exec();
    }
}

/// A worker's stack: that of a main thread.
const STACK: usize = 8 << 20;

/// Runs `command` on a thread of the pool that the operators share.
///
/// They hand out their parts hundreds of times a step. From a thread outside the pool each time wakes a worker and
/// sleeps until it is done; a worker takes the first part itself. With `keeps_pages` freed memory stays with the process.
pub(crate) fn run<R: Send>(keeps_pages: bool, command: impl FnOnce() -> R + Send) -> R {
    if keeps_pages {
        keep_pages();
    }
    // Only a pool that is there already is rejected, and then that one serves.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global();
    rayon::scope(|_| command())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It did what was asked.
    Done = 0,
    /// It ran, and the answer is no: a check did not hold.
    No = 1,
    /// Arguments, configuration or files cannot be used.
    Usage = 2,
    /// Stopped by a signal after a checkpoint ("try again later"); run again with `--resume`.
    Requeue = 75,
}

impl ExitStatus {
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
