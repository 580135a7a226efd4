//! Keys that queries of an attention see.

use std::ops::Range;

/// Keys that a query sees: those at most so many tokens before and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Most tokens from a key to a later query.
    pub before: usize,
    /// Most tokens from a query to a later key.
    pub after: usize,
}

impl Window {
    /// Every token.
    pub const ALL: Self = Self::around(usize::MAX);
    /// The token itself and all before it.
    pub const CAUSAL: Self = Self { before: usize::MAX, after: 0 };

    /// At most `distance` tokens away on either side.
    pub const fn around(distance: usize) -> Self {
        Self { before: distance, after: distance }
    }

    /// Of `keys` tokens those that one of the queries `first..=last` sees.
    pub(crate) fn columns(self, first: usize, last: usize, keys: usize) -> Range<usize> {
        first.saturating_sub(self.before)
            ..last.saturating_add(self.after).saturating_add(1).min(keys)
    }
}
