//! Exit codes.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It did what was asked.
    Done,
    /// It ran, and the answer is no: a check did not hold.
    No,
    /// Arguments, configuration or files cannot be used.
    Usage,
    /// Stopped by a signal after a checkpoint; run again with `--resume`.
    Requeue,
}

impl ExitStatus {
    /// The process exit code: 0, 1, 2, or 75 ("try again later").
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Requeue => 75,
        })
    }
}
