//! How a module gives a walk of ours what Burn's visitors do not: an object instead of its parameters.

use std::any::Any;
use std::cell::Cell;

use burn::module::{ModuleMapper, ModuleVisitor};

/// Container type under which something is handed out.
pub(crate) const HANDED: &str = "lrvd:handed";

thread_local! {
    /// Whether a walk of ours runs on this thread.
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
    /// What was handed out last.
    static PART: Cell<Option<Box<dyn Any>>> = const { Cell::new(None) };
}

/// Gives `part` to the walk of ours behind `visitor`; `false` if there is none.
pub(crate) fn hand_out<T: Any, V: ModuleVisitor>(
    visitor: &mut V,
    part: impl FnOnce() -> T,
) -> bool {
    let is_taken = put(part);
    if is_taken {
        visitor.enter_module("", HANDED);
    }
    is_taken
}

/// Gives `part` to the walk of ours behind `mapper` and returns what it made of it; `Err` if there is none.
pub(crate) fn hand_over<T: Any + Clone, M: ModuleMapper>(mapper: &mut M, part: T) -> Result<T, T> {
    if !put(|| part.clone()) {
        return Err(part);
    }
    mapper.enter_module("", HANDED);
    match take().map(<Box<dyn Any>>::downcast) {
        Some(Ok(changed)) => Ok(*changed),
        _ => Err(part),
    }
}

/// Hands `part` to the walk on this thread; `false` if there is none.
pub(crate) fn put<T: Any>(part: impl FnOnce() -> T) -> bool {
    let is_open = IS_OPEN.get();
    if is_open {
        PART.set(Some(Box::new(part())));
    }
    is_open
}

/// What was handed out.
pub(crate) fn take() -> Option<Box<dyn Any>> {
    PART.take()
}

/// A stretch of time in which modules hand out or do not; ends with the value.
pub(crate) struct Handing(bool);

impl Handing {
    /// For the length of a walk.
    pub(crate) fn on() -> Self {
        Self(IS_OPEN.replace(true))
    }

    /// For a call out of a walk, which may start another one.
    pub(crate) fn off() -> Self {
        Self(IS_OPEN.replace(false))
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        IS_OPEN.set(self.0);
    }
}
