//! What can go wrong in the whole crate.

use crate::classify::ClassifyError;
use crate::settings::SettingError;
use crate::suite::SuiteError;
use crate::verify::VerifyError;

/// Whatever a call into this crate can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A classifier of a user's own data.
    #[error(transparent)]
    Classify(#[from] ClassifyError),
    /// A reproduction.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// Verification.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}
