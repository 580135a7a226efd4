//! A thread for templates, because they come with downloaded models.
//!
//! The engine bounds instructions and bytes by its fuel. It does not bound the recursion of its parser and of nested values,
//! nor the work of joining and comparing nested lists. So it runs on a thread with a large stack, and the caller waits for
//! a limited time.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Bytes of stack, which take memory only once they are used. The deepest nesting that a source of 64 KiB and the fuel
/// allow needs a quarter.
const STACK: usize = 256 << 20;
/// Longest wait: a usual rendering takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `work` gives, or in words why it gave nothing.
pub(super) fn contained<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = sync_channel(1);
    let thread = Builder::new().name("chat template".to_owned()).stack_size(STACK);
    let run = move || drop(sender.send(work()));
    thread.spawn(run).map_err(|error| format!("it has no thread to run on: {error}"))?;
    receiver.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => format!("it takes longer than {} s", PATIENCE.as_secs()),
        RecvTimeoutError::Disconnected => "the template engine failed".to_owned(),
    })
}
