//! Whether a claim is so.

use std::fmt;

use serde::{Serialize, Serializer};

use super::evidence::Paired;

/// What the numbers say of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is so, by two standard errors.
    Holds,
    /// It is not, by two standard errors.
    Fails,
    /// Neither.
    CannotBeSaid,
}

impl Verdict {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::CannotBeSaid => "cannot be said here",
        }
    }

    /// Of a sentence that needs all of `parts`: fails with the first that does, holds if all hold.
    pub fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let parts: Vec<Self> = parts.into_iter().collect();
        if parts.contains(&Self::Fails) {
            Self::Fails
        } else if parts.is_empty() || parts.contains(&Self::CannotBeSaid) {
            Self::CannotBeSaid
        } else {
            Self::Holds
        }
    }

    /// Of a sentence that needs one of `parts`.
    pub fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::all(parts.into_iter().map(Self::opposite)).opposite()
    }

    /// Of the opposite sentence.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Holds => Self::Fails,
            Self::Fails => Self::Holds,
            Self::CannotBeSaid => Self::CannotBeSaid,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A verdict with the numbers that carry it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers, one phrase each.
    pub because: Vec<String>,
}

impl Judgement {
    /// All of `parts` are needed, each with its own verdict.
    pub fn all(parts: impl IntoIterator<Item = (Paired, Verdict)>) -> Self {
        Self::by(parts, Verdict::all)
    }

    /// One of `parts` is needed.
    pub fn any(parts: impl IntoIterator<Item = (Paired, Verdict)>) -> Self {
        Self::by(parts, Verdict::any)
    }

    fn by(
        parts: impl IntoIterator<Item = (Paired, Verdict)>,
        rule: impl Fn(Vec<Verdict>) -> Verdict,
    ) -> Self {
        let parts: Vec<(Paired, Verdict)> = parts.into_iter().collect();
        let because = parts.iter().map(|(paired, _)| paired.to_string()).collect();
        Self { verdict: rule(parts.into_iter().map(|(_, verdict)| verdict).collect()), because }
    }
}
