//! Data: from files to batches of token ids, for every task of the table and for a user's own files.
//!
//! | File | Holds |
//! |---|---|
//! | `example` | [`Input`], [`Example`], [`Label`], [`Split`], [`Dataset`] |
//! | `table` | rows of typed values from TSV, CSV, JSON and parquet |
//! | `locate`, `read`, `load` | a task: its files in a data directory; examples from a file; both splits with notes |
//! | `columns`, `content`, `own` | a user's files: their columns; texts for a language model; classes and examples |
//! | `split` | which rows are drawn, held out or validated on |
//! | `quick` | the shipped data of the quick profiles |
//! | `wording`, `prompt` | how a language model is asked for a class; the prompts of questions with choices |
//! | `questions`, `encode` | token ids of questions; [`TextReader`]: token ids of any example; [`PreparedTask`] |
//! | `batch` | [`TokenExamples`](batch::TokenExamples): batches on the device; the longest beginning that fits |
//!
//! A bad row is an error that names file, line and column; no row is skipped. Questions that a prompt set does not use are
//! counted and noted.

pub mod batch;
mod columns;
mod content;
mod encode;
mod example;
mod load;
mod locate;
mod own;
mod prompt;
mod questions;
pub(crate) mod quick;
mod read;
mod split;
pub mod table;
mod wording;

pub use batch::Cut;
pub use columns::{LanguageColumns, NamedColumns, NamedTexts, TextColumns};
pub(crate) use content::Pieces;
pub use content::{Content, TextRow};
pub use encode::{Encoded, PreparedTask, TextReader};
pub use example::{Dataset, Example, Input, Label, Labelled, Origin, Split, SplitName};
pub use load::load;
pub(crate) use own::read_labelled;
pub use own::{Data, OwnFiles, TextSet, read_texts};
pub use prompt::LETTERS;
pub use questions::{
    AnswerToken, InputForm, LLAMA_2_LABELS, QuestionForm, Questions, answer_tokens, check_known,
    require_single,
};
pub use quick::write_generated;
pub use read::read_examples;
pub use split::Validation;
pub(crate) use split::{held_out_rows, in_order};
pub use table::{At, Format, Place, SourceFile};
pub use wording::{WordedTexts, Wording};
