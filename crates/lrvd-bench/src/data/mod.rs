//! Data: from files to batches of token ids, for every task of the table and for a user's own files.
//!
//! | File | Holds |
//! |---|---|
//! | `example` | [`Input`], [`Example`], [`Label`], [`Split`], [`Dataset`]; which rows are drawn or held out |
//! | `hash` | hashes of rows, by which they are recognised in another file |
//! | `table` | rows of typed values from TSV, CSV, JSON and parquet |
//! | `published` | a task of the table: its files in a data directory; examples from a file; both splits with notes; the shipped data of the quick profiles |
//! | `keep` | columns of a table that are carried to the answers |
//! | `rows`, `columns`, `content`, `classes`, `label_sets`, `own` | a user's files: bad rows; columns; texts for a language model; classes; several labels of a row; examples |
//! | `wording` | how a language model is asked for a class; the prompts of questions with choices |
//! | `tokens`, `reader` | the tokens of prompts and answers; [`TextReader`]: token ids of any example |
//! | `batch` | [`TokenExamples`](batch::TokenExamples): batches on the device; [`PreparedTask`] |
//!
//! A bad row is an error that names file, line and column, or is left out and counted where a user asks for that. Keys that are
//! not used, and questions that a prompt set does not use, are counted and noted.

pub mod batch;
mod classes;
mod columns;
mod content;
mod example;
mod hash;
mod keep;
mod label_sets;
mod own;
mod published;
mod reader;
mod rows;
pub mod table;
pub(crate) mod tokens;
mod wording;

pub use batch::PreparedTask;
pub use columns::{Columns, LanguageColumns, NamedColumns, NamedTexts, TextColumns};
pub(crate) use content::Pieces;
pub use content::{Content, TextRow};
pub(crate) use example::SplitFiles;
pub(crate) use example::held_out;
pub use example::{Dataset, Example, Input, Label, Labelled, Origin, Split, SplitName, Validation};
pub(crate) use hash::{labelled_row, text_row};
pub use keep::{Keep, KeptCells, kept_rows};
pub use own::{Asked, Data, OwnFiles, TextSet, read_texts};
pub(crate) use own::{asked, read_labelled};
pub(crate) use published::shipped;
pub use published::shipped::write_generated;
pub use published::{load, read_examples};
pub(crate) use reader::length_option;
pub use reader::{Encoded, InputForm, TextReader};
pub(crate) use rows::Rows;
pub use rows::{OnError, ReadOptions};
pub use table::{At, Format, Place, SourceFile};
pub use tokens::{
    AnswerToken, Cut, CutInputs, LLAMA_2_LABELS, answer_tokens, check_known, require_single,
};
pub use wording::{InputLayout, QuestionForm, Wording};
