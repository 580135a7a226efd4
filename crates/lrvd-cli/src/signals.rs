//! Interrupts that end a run after its next checkpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that Ctrl-C, SIGTERM and SIGUSR1 set; a second Ctrl-C or SIGTERM ends the process at once.
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Registered first, so that it sees the flag of an earlier signal.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    #[cfg(unix)]
    flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&stop))?;
    Ok(stop)
}
