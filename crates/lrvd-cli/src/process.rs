//! How the process runs: its allocator and the thread of its command.

use std::ffi::OsString;
use std::num::NonZero;
use std::thread::{Builder, available_parallelism};

use lrvd_bench::{Error, Result, no_threads};
use mimalloc::MiMalloc;
use rayon::{ThreadBuilder, ThreadPoolBuilder};

/// A training step allocates and frees a few hundred tensors of some megabytes. The system's allocator
/// hands such blocks back to the kernel each time, and every page of them faults anew; this one keeps them for ten minutes
/// (`allocator.c`).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A worker's stack: that of a main thread.
const STACK: usize = 8 << 20;
/// Most threads that compute: beyond the cores of any machine, more of them are only slower.
const MAX_THREADS: usize = 1024;
/// The number of threads where no option says it.
const THREADS: &str = "RAYON_NUM_THREADS";

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_THREADS).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

/// The number of threads that the environment asks for, or of the cores that the process may use.
fn usual_threads(variable: Option<OsString>) -> Result<usize> {
    let Some(found) = variable.filter(|found| !found.is_empty()) else {
        return Ok(available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS));
    };
    // Text that is not UTF-8 is no number either.
    let number = threads(&found.to_string_lossy());
    number.map_err(|expected| Error::msg(format!("{THREADS} is `{}`: {expected}", found.display())))
}

/// Starts the pool of `threads` threads that the operators share.
fn start(threads: usize) -> Result<()> {
    let mut started = 0;
    let builder = ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK);
    let spawn = |thread: ThreadBuilder| {
        let builder = Builder::new().stack_size(STACK);
        builder.spawn(move || thread.run()).map(|_| started += 1)
    };
    let built = builder.spawn_handler(spawn).build_global();
    built.map_err(|error| no_threads(threads - started, error))
}

/// Runs `command` on a thread of the pool that the operators share, which has `threads` threads, or as many as the
/// environment asks for.
///
/// They hand out their parts hundreds of times a step. From a thread outside the pool each time wakes a worker and
/// sleeps until it is done; a worker takes the first part itself.
#[expect(clippy::disallowed_methods, reason = "the variable of the pool")]
pub(crate) fn run<R: Send>(
    threads: Option<usize>,
    command: impl FnOnce() -> R + Send,
) -> Result<R> {
    start(threads.map_or_else(|| usual_threads(std::env::var_os(THREADS)), Ok)?)?;
    Ok(rayon::scope(|_| command()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_threads_that_is_none_is_refused_with_the_range() {
        let usual =
            |text: &str| usual_threads(Some(text.into())).map_err(|error| error.to_string());
        assert_eq!((usual("1"), usual("1024")), (Ok(1), Ok(1024)));
        let cores = usual_threads(None).unwrap();
        assert!(cores >= 1);
        assert_eq!(usual(""), Ok(cores));
        for bad in ["abc", "-1", "0", "1025", "2.5", "99999999999999999999"] {
            let expected =
                format!("RAYON_NUM_THREADS is `{bad}`: expected a number from 1 to 1024");
            assert_eq!(usual(bad), Err(expected));
        }
    }
}
