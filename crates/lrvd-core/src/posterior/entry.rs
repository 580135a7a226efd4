//! The noise of one weight, from its parameter.

use crate::family::{LOG_ALPHA_MAX, clamp_log_variance};

/// Which of the two factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
}

/// How one entry's noise follows from its parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// The parameter is a log-variance, clamped.
    Additive,
    /// The parameter is a log noise-to-signal ratio.
    Multiplicative,
    /// No noise.
    Fixed,
}

/// One entry of a factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) mean: f64,
    pub(crate) parameter: f64,
    pub(crate) kind: EntryKind,
}

impl Entry {
    /// Its variance, after the clamp.
    pub(crate) fn variance(self) -> f64 {
        match self.kind {
            EntryKind::Additive => clamp_log_variance(self.parameter).exp(),
            EntryKind::Multiplicative => {
                self.parameter.min(LOG_ALPHA_MAX).exp() * self.mean * self.mean
            }
            EntryKind::Fixed => 0.0,
        }
    }

    /// Its signed scale in weight space.
    pub(crate) fn noise_scale(self) -> f64 {
        match self.kind {
            EntryKind::Additive => (0.5 * clamp_log_variance(self.parameter)).exp(),
            EntryKind::Multiplicative => {
                (0.5 * self.parameter.min(LOG_ALPHA_MAX)).exp() * self.mean
            }
            EntryKind::Fixed => 0.0,
        }
    }
}
