//! Tasks over rayon's threads.

use rayon::prelude::*;

/// Elements of a task: some ten microseconds of arithmetic, and a few of them fit a core's cache.
pub(crate) const TASK: usize = 8192;

/// Whole rows of `width` elements that make up one task; depends on nothing but the shape.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (TASK / width.max(1)).max(1)
}

/// Runs `task` on every item and returns the results in the items' order.
///
/// A single item runs on the calling thread: waking a worker costs more than a small tensor does.
pub(crate) fn run<T: Send, R: Send>(items: Vec<T>, task: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if items.len() <= 1 {
        items.into_iter().map(task).collect()
    } else {
        items.into_par_iter().map(task).collect()
    }
}
