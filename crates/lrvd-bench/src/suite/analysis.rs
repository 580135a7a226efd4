//! What is measured of a trained model while it is still there.

use std::path::Path;

use lrvd_models::AutoClassifier;

use super::SuiteError;
use super::one_run::folder;
use super::plan::PlannedRun;
use super::task::SuiteTask;
use crate::backbone::Backbone;
use crate::data::batch::TokenisedExample;
use crate::data::{self, DataError, Label, Texts};
use crate::eval::RunContext;
use crate::io::{JsonLayout, read_json, write_json};
use crate::method::Tuning;
use crate::record::{Measurement, RunRecord};
use crate::task::GlueTask;

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
    /// The task.
    pub(super) task: SuiteTask,
    /// What reads its texts.
    pub(super) backbone: &'a Backbone,
    /// Where the data of all tasks are.
    pub(super) data_dir: &'a Path,
}

/// Tasks whose texts are shown to models of another one: of three kinds, and small.
const OTHERS: [GlueTask; 3] = [GlueTask::Cola, GlueTask::Mrpc, GlueTask::Rte];

impl Trained<'_> {
    /// The first `rows` validation texts of every other task of a few that has files here, as the model reads those of
    /// its own, by the task's key; their labels mean nothing. Of a pair a task of single texts sees the first.
    ///
    /// # Errors
    ///
    /// [`SuiteError::Data`] for files that cannot be read, [`SuiteError::Backbone`] for a text that cannot be encoded.
    pub fn other_texts(
        &self,
        rows: usize,
    ) -> Result<Vec<(&'static str, Vec<TokenisedExample>)>, SuiteError> {
        let SuiteTask::Glue(own) = self.task else { return Ok(Vec::new()) };
        let (backbone, config) = (self.backbone, self.context.config);
        let wording = self.task.wording(&backbone.architecture, config)?;
        let reader = backbone.reader(self.task.key(), wording.as_ref(), config.max_length)?;
        let is_pair = |task: GlueTask| task.spec().keys.len() == 2;
        let mut found = Vec::new();
        let fit = |task: &GlueTask| *task != own && (is_pair(*task) || !is_pair(own));
        for task in OTHERS.into_iter().filter(fit) {
            let dataset = match data::load(self.data_dir, task) {
                Err(DataError::NotFound { .. }) => continue,
                other => other?,
            };
            let texts = dataset.validation.examples.iter().take(rows).map(|example| {
                let all = example.texts();
                let texts = Texts { pair: all.pair.filter(|_| is_pair(own)), ..all };
                Ok(reader.encode(texts, Label::Class(0))?.0)
            });
            found.push((task.name(), texts.collect::<Result<Vec<_>, SuiteError>>()?));
        }
        Ok(found)
    }
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
