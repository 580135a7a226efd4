//! What is measured of a trained model while it is still there.

use std::path::Path;

use lrvd_models::AutoClassifier;

use super::SuiteError;
use super::one_run::folder;
use super::plan::PlannedRun;
use crate::eval::RunContext;
use crate::io::{JsonLayout, read_json, write_json};
use crate::method::Tuning;
use crate::record::{Measurement, RunRecord};

/// Name of the file beside a run's record.
const FILE: &str = "analysis.json";

/// A run that has just finished, ranks that are not in use cut away and everything fitted.
pub struct Trained<'a> {
    /// Settings, tokenised data, seed and device.
    pub context: &'a RunContext<'a>,
    /// The model after the last step.
    pub model: &'a AutoClassifier,
    /// The method, which answers with it.
    pub method: &'a (dyn Tuning + 'static),
    /// What the run is recorded as.
    pub record: &'a RunRecord,
}

/// Looks at a trained model where its record is not enough.
pub trait Analysis: Sync {
    /// Measures `trained`; whatever is random goes by its seed.
    ///
    /// # Errors
    ///
    /// [`SuiteError`] if something cannot be measured: the run then counts as not made.
    fn measure(&self, trained: &Trained<'_>) -> Result<Vec<Measurement>, SuiteError>;
}

/// Writes what `analysis` measures of `trained` into the folder of `run`.
pub(super) fn measure(
    analysis: &dyn Analysis,
    trained: &Trained<'_>,
    out: &Path,
    run: &PlannedRun,
) -> Result<(), SuiteError> {
    let found = analysis.measure(trained)?;
    Ok(write_json(&folder(out, run).join(FILE), &found, JsonLayout::Compact)?)
}

/// What was measured of `run`; nothing where nothing was to be.
pub(super) fn measured(out: &Path, run: &PlannedRun) -> Result<Vec<Measurement>, SuiteError> {
    let path = folder(out, run).join(FILE);
    if path.is_file() { Ok(read_json(&path)?) } else { Ok(Vec::new()) }
}
