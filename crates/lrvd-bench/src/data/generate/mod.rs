//! Tasks to train on where there is no data: those of the quick profile.
//!
//! Three tasks in the manner of GLUE, each from a small grammar over words of nineteenth-century novels:
//! deterministic, balanced, with label noise that is stated, and built so that the words of a sentence alone tell
//! little: the label hangs on order, roles, negation and agreement.
//!
//! | File          | Makes                                                     |
//! |---------------|-----------------------------------------------------------|
//! | `lexicon`     | the words                                                 |
//! | `morphology`  | their forms                                               |
//! | `phrase`      | draws of persons, things and deeds                        |
//! | `agreement`   | CoLA                                                      |
//! | `sentiment`   | SST-2                                                     |
//! | `entailment`  | RTE                                                       |
//! | `build`       | splits without shared sentences, and the label noise      |
//! | `write`       | the original file layouts, and the mark of a generated folder |

mod agreement;
mod build;
mod entailment;
mod lexicon;
mod morphology;
mod phrase;
mod sentiment;
#[cfg(test)]
mod tests;
mod write;

use crate::data::DataError;
use crate::task::GlueTask;

pub(crate) use build::{GenerateConfig, Generated, generate};
pub(crate) use write::GeneratedMark;
pub use write::write_generated;

/// The tasks that can be generated.
pub(crate) const GENERATED: [GlueTask; 3] = [GlueTask::Cola, GlueTask::Sst2, GlueTask::Rte];

/// Refuses a task that cannot be generated.
pub(crate) fn check_task(task: GlueTask) -> Result<(), DataError> {
    let wanted = || GENERATED.map(GlueTask::name).to_vec();
    let known = GENERATED.contains(&task);
    if known { Ok(()) } else { Err(DataError::NoGenerator { task: task.name(), wanted: wanted() }) }
}
