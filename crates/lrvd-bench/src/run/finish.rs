//! The evaluation at the end of a run: how far it is, and its end by a stop request.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::progress::{Event, ProgressSink};

pub(crate) struct FinalWatch<'a> {
    stop: &'a AtomicBool,
    sink: RefCell<&'a mut dyn ProgressSink>,
    done: Cell<usize>,
    total: usize,
}

impl<'a> FinalWatch<'a> {
    /// An evaluation of about `total` answers, which `stop` ends.
    pub(crate) fn new(stop: &'a AtomicBool, sink: &'a mut dyn ProgressSink, total: usize) -> Self {
        sink.event(&Event::Evaluating { done: 0, total });
        Self { stop, sink: RefCell::new(sink), done: Cell::new(0), total }
    }

    pub(crate) fn passed(&self, answers: usize) -> bool {
        // What a method spares or adds is not known before.
        let done = (self.done.get() + answers).min(self.total);
        self.done.set(done);
        self.sink.borrow_mut().event(&Event::Evaluating { done, total: self.total });
        !self.stop.load(Ordering::Relaxed)
    }
}
