//! What can be reasoned about where there is no data?
//!
//! Six sets in the layouts of the originals, from small grammars over the words of children's stories, which is what
//! the small pretrained decoder that ships with the workspace has read: deterministic, with label noise that is
//! stated, short enough for a context of a few hundred tokens of a vocabulary of 512. Some questions hang on a word
//! of theirs (in three of four rows the choices stand in a fixed order), others on who did what to whom, so that a tiny
//! model learns something but not everything.
//!
//! | File         | Makes                                                                         |
//! |--------------|-------------------------------------------------------------------------------|
//! | `words`      | the words, by what they stand for                                             |
//! | `teller`     | draws of words                                                                |
//! | `winogrande` | twin sentences that differ in a few words and in the answer                   |
//! | `arc`        | which one is a toy? (easy); which one is not, who has what, who is bigger     |
//! | `openbook`   | beginnings of sentences about everyday facts                                  |
//! | `boolq`      | a few sentences and a yes/no question on them                                 |
//! | `build`      | splits without shared items, and the label noise                              |
//! | `write`      | the original file layouts, and the mark of a generated folder                 |

mod arc;
mod boolq;
mod build;
mod openbook;
mod teller;
#[cfg(test)]
mod tests;
mod winogrande;
mod words;
mod write;

pub use build::{GeneratedSet, ReasoningGenerateConfig, generate};
pub use write::{FileMark, ReasoningMark, write_all};
