//! Questions to train on where there are no data: the sets of the quick profile and those it compares them with.
//!
//! Five sets in the layouts of the originals, from small grammars over the words of children's stories, which is what
//! the small pretrained decoder that ships with the workspace has read: deterministic, with label noise that is
//! stated, short enough for a context of a few hundred tokens of a vocabulary of 512. Some questions hang on a word
//! of theirs (in three of four rows the choices stand in a fixed order), others on who did what to whom, so that a tiny
//! model learns something but not everything.
//!
//! | File         | Makes                                                                         |
//! |--------------|-------------------------------------------------------------------------------|
//! | `words`      | the words, by what they stand for                                             |
//! | `choices`    | children, and questions with their choices                                    |
//! | `winogrande` | twin sentences that differ in a few words and in the answer                   |
//! | `arc`        | which one is a toy? (easy); which one is not, who has what, who is bigger     |
//! | `openbook`   | beginnings of sentences about everyday facts                                  |
//! | `build`      | splits without shared items, and the label noise                              |
//! | `write`      | the original file layouts, and the mark of a generated folder                 |

mod arc;
mod build;
mod choices;
mod openbook;
#[cfg(test)]
mod tests;
mod winogrande;
mod words;
mod write;

use crate::data::DataError;
use crate::reasoning::ReasoningSet;

pub(crate) use build::{GeneratedSet, ReasoningGenerateConfig, generate};
pub(crate) use write::{ReasoningMark, write_all};

/// The sets that can be generated.
pub(crate) const GENERATED: [ReasoningSet; 5] = [
    ReasoningSet::WgS,
    ReasoningSet::ArcC,
    ReasoningSet::ArcE,
    ReasoningSet::WgM,
    ReasoningSet::Obqa,
];

/// Refuses a set that cannot be generated.
pub(crate) fn check_set(set: ReasoningSet) -> Result<(), DataError> {
    let wanted = || GENERATED.map(ReasoningSet::name).to_vec();
    let known = GENERATED.contains(&set);
    if known { Ok(()) } else { Err(DataError::NoGenerator { task: set.name(), wanted: wanted() }) }
}
