//! How the process runs: its allocator and the thread of its command.

use mimalloc::MiMalloc;

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
