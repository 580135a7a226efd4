//! Interrupts that end a run after its next checkpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 set. A second Ctrl-C ends the process at once; the
/// others come from programs, which often send them twice, and always leave time for the checkpoint.
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // Registered first, so that it sees the flag of an earlier signal.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop))?;
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGHUP, signal_hook::consts::SIGUSR1] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
