//! How a module gives a walk of ours what Burn's visitors do not: an object instead of its parameters.

use std::any::Any;
use std::cell::RefCell;

use burn::module::{ModuleMapper, ModuleVisitor};

/// Container type under which something is handed out.
pub(crate) const HANDED: &str = "lrvd:handed";

/// Whether a walk of ours runs on this thread, and what was handed out last.
enum Hands {
    Closed,
    Open,
    Full(Box<dyn Any>),
}

thread_local! {
    static HANDS: RefCell<Hands> = const { RefCell::new(Hands::Closed) };
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

/// Puts `part` into the hands of the walk on this thread; `false` if there is none.
pub(crate) fn put<T: Any>(part: impl FnOnce() -> T) -> bool {
    HANDS.with_borrow_mut(|hands| {
        let is_open = !matches!(hands, Hands::Closed);
        if is_open {
            *hands = Hands::Full(Box::new(part()));
        }
        is_open
    })
}

/// What was handed out.
pub(crate) fn take() -> Option<Box<dyn Any>> {
    HANDS.with_borrow_mut(|hands| match hands {
        Hands::Full(_) => match std::mem::replace(hands, Hands::Open) {
            Hands::Full(part) => Some(part),
            Hands::Closed | Hands::Open => None,
        },
        Hands::Closed | Hands::Open => None,
    })
}

/// A stretch of time in which modules hand out or do not; ends with the value.
pub(crate) struct Handing(Hands);

impl Handing {
    /// For the length of a walk.
    pub(crate) fn on() -> Self {
        Self(HANDS.replace(Hands::Open))
    }

    /// For a call out of a walk, which may start another one.
    pub(crate) fn off() -> Self {
        Self(HANDS.replace(Hands::Closed))
    }
}

impl Drop for Handing {
    fn drop(&mut self) {
        HANDS.set(std::mem::replace(&mut self.0, Hands::Closed));
    }
}
