//! Exit codes.

use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// It did what was asked.
    Done = 0,
    /// It ran, and the answer is no: a check did not hold.
    No = 1,
    /// Arguments, configuration or files cannot be used.
    Usage = 2,
    /// Stopped by a signal after a checkpoint ("try again later"); run again with `--resume`.
    Requeue = 75,
}

impl ExitStatus {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}
