//! Errors between a user's files and a classifier.

use std::path::PathBuf;

use crate::backbone::BackboneError;
use crate::data::{DataError, Place, TableError, WordingError};
use crate::eval::EvalError;
use crate::io::IoError;
use crate::language::LanguageError;
use crate::run::RunError;
use crate::saved::SavedError;
use crate::settings::SettingError;

/// A classifier cannot be trained, saved, loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassifyError {
    /// Training.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The base model.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The adapter's folder.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Evaluation.
    #[error(transparent)]
    Eval(#[from] EvalError),
    /// Checkpoints.
    #[error(transparent)]
    Train(#[from] lrvd_burn::Error),
    /// Benchmark data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Settings.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// Files of ours.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Tokenizer, model configuration, an adapter of llama.cpp.
    #[error(transparent)]
    Models(#[from] lrvd_models::Error),
    /// The question to a language model.
    #[error(transparent)]
    Wording(#[from] WordingError),
    /// The core refused its input.
    #[error(transparent)]
    Core(#[from] lrvd_core::Error),
    /// The language model that an adapter is of.
    #[error(transparent)]
    LanguageModel(#[from] LanguageError),
    /// An adapter of a language model has no classes.
    #[error(
        "`{dir}` holds a language model, which has no classes: `lrvd generate {dir}` continues texts, `lrvd eval {dir} \
         --data FILE` measures it"
    )]
    Language {
        /// As given.
        dir: PathBuf,
    },
    /// A label is given twice.
    #[error("label `{found}` is given twice")]
    RepeatedLabel {
        /// The label.
        found: String,
    },
    /// A data file.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A label is none of the classes.
    #[error("{place}, column `{column}`: unknown label `{found}`, wanted one of {wanted}")]
    UnknownLabel {
        /// File and line or row.
        place: Place,
        /// The column.
        column: String,
        /// The label.
        found: String,
        /// The classes.
        wanted: String,
    },
    /// A question has too few or too many choices.
    #[error("{place}, column `{column}`: {found} choices where 2 to {most} are wanted")]
    ChoiceCount {
        /// File and line or row.
        place: Place,
        /// The column, or the columns.
        column: String,
        /// Number of choices.
        found: usize,
        /// Most of them: as many as there are letters, or as there were in training.
        most: usize,
    },
    /// An answer is none of the choices.
    #[error(
        "{place}, column `{column}`: answer `{found}` is none of the choices {wanted}; wanted the text of one, its letter \
         (`A` for the first) or its place counted from 0"
    )]
    Answer {
        /// File and line or row.
        place: Place,
        /// The column.
        column: String,
        /// The answer.
        found: String,
        /// The choices.
        wanted: String,
    },
    /// An answer is several of the choices.
    #[error(
        "{place}, column `{column}`: answer `{found}` may mean {meant}: it is read as the text of a choice, as its letter \
         and as its place counted from 0; write it so that one choice is meant"
    )]
    AmbiguousAnswer {
        /// File and line or row.
        place: Place,
        /// The column.
        column: String,
        /// The answer.
        found: String,
        /// Letters of the choices.
        meant: String,
    },
    /// A regression target is no finite number.
    #[error("{place}, column `{column}`: `{found}` is not a finite number")]
    Score {
        /// File and line or row.
        place: Place,
        /// The column.
        column: String,
        /// The text.
        found: String,
    },
    /// A label stands for a missing one.
    #[error(
        "{place}, column `{column}`: `{found}` marks a missing label and is no class; leave the row out, or name \
         the class with `--labels`"
    )]
    NoClass {
        /// File and line or row.
        place: Place,
        /// The column.
        column: String,
        /// The label.
        found: String,
    },
    /// Two labels differ as texts only.
    #[error(
        "`{file}`, column `{column}`: labels `{first}` and `{second}` are one number; write it in one way"
    )]
    SameNumber {
        /// The training file.
        file: PathBuf,
        /// The column.
        column: String,
        /// A label.
        first: String,
        /// The other label.
        second: String,
    },
    /// There are too few classes to tell apart, or too many to be classes.
    #[error("`{file}`, column `{column}`: {found} distinct labels, wanted 2 to {most}{hint}")]
    Classes {
        /// The training file.
        file: PathBuf,
        /// The column.
        column: String,
        /// Number of labels.
        found: usize,
        /// Largest number.
        most: usize,
        /// What may be meant.
        hint: &'static str,
    },
    /// Parameters are neither in the adapter nor in the base model.
    #[error("neither the adapter `{dir}` nor the base model has {names}")]
    NoHead {
        /// The adapter folder.
        dir: PathBuf,
        /// The parameters.
        names: String,
    },
    /// The merged model does not answer as base and adapter do.
    #[error(
        "a logit of the merged model is off by {difference:.3e}, more than {limit:e} of the largest, {largest:.3}: \
         nothing was written"
    )]
    Differs {
        /// Largest difference.
        difference: f64,
        /// Largest logit of the adapter, or 1.
        largest: f64,
        /// What is tolerated, in units of that.
        limit: f64,
    },
    /// llama.cpp has no such model.
    #[error(
        "a GGUF adapter is for a Llama, and `{model}` is an encoder, which llama.cpp does not run: use `--to merged` or `--to peft`"
    )]
    NoGguf {
        /// The base model.
        model: String,
    },
    /// Labels of data and classifier differ.
    #[error("the classifier knows the labels {wanted}, the data has {found}")]
    OtherLabels {
        /// Of the classifier.
        wanted: String,
        /// Of the data.
        found: String,
    },
    /// A value of the description is out of range.
    #[error("`{file}`: {key} is {found}, expected {expected}")]
    Description {
        /// The description.
        file: PathBuf,
        /// Its key.
        key: String,
        /// The value.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// Abstention is from answers that are right or wrong.
    #[error("a threshold for giving no answer is for classes, and this one predicts numbers")]
    Scores,
    /// No threshold is certified.
    #[error(
        "no threshold has an error rate below {target} with {confidence} % confidence on these {rows} rows (the \
         lowest observed rate of the most confident rows is {best:.4}): allow more errors with `--risk`, or pass more rows"
    )]
    NoThreshold {
        /// Largest allowed error rate.
        target: f64,
        /// Percent.
        confidence: f64,
        /// Rows.
        rows: usize,
        /// Lowest observed error rate of the most confident rows.
        best: f64,
    },
    /// Rows that the model was fitted to say nothing about its error rate.
    #[error(
        "`{file}` trained or chose this model, so its error rate there is not that of new texts: pass rows that the \
         run has not used"
    )]
    SeenRows {
        /// The file.
        file: String,
    },
    /// An adapter of another program has no place for what is fitted.
    #[error("`{dir}` has no `lrvd_classifier.json`, where what is fitted is kept")]
    Undescribed {
        /// The folder.
        dir: PathBuf,
    },
    /// A threshold was fitted, and not for this answer.
    #[error(
        "no threshold was fitted for the answers of {draws} draws with these options in `{dir}`, only for {known} draws: \
         pass `--draws`, run `lrvd abstain fit` with these options, or pass `--abstain-above` (`inf` always answers)"
    )]
    NoAbstention {
        /// Number of draws.
        draws: usize,
        /// Numbers of draws that have one.
        known: String,
        /// The folder.
        dir: PathBuf,
    },
    /// The answer of so many draws has no temperature, and those of other numbers have.
    #[error(
        "no temperature was fitted for {draws} draws in `{dir}`: pass `--draws` with one of {known}"
    )]
    NoTemperature {
        /// Draws asked for.
        draws: usize,
        /// The folder.
        dir: PathBuf,
        /// Numbers of draws that have one.
        known: String,
    },
    /// What is fitted to held-out rows has none.
    #[error(
        "a share of {share} of {rows} training rows is held out for the temperature, which is not one row: pass more rows, a \
         larger share (`--set holdout=0.5`), or a method without a temperature (`--method lora`)"
    )]
    HeldOut {
        /// Training rows.
        rows: usize,
        /// Share of them.
        share: f64,
    },
    /// A tensor cannot be used.
    #[error("module `{path}`: {source}")]
    Tensor {
        /// The module.
        path: String,
        /// Why.
        source: lrvd_burn::Error,
    },
    /// A pair is given to a classifier of single texts, or the other way round.
    #[error("input {number} is {found}, the classifier was trained on {wanted}")]
    Pairs {
        /// Input, from 1.
        number: usize,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// An input has other choices than the classifier has answers.
    #[error("input {number} has {found} choices, the classifier was trained on {wanted}")]
    Choices {
        /// Input, from 1.
        number: usize,
        /// How many it has.
        found: usize,
        /// What it should have.
        wanted: String,
    },
    /// A text is passed to a classifier that answers questions.
    #[error("`{dir}` answers questions with choices, and a text has none; `lrvd predict {dir} --input FILE` answers them", dir = dir.display())]
    OfChoices {
        /// As given.
        dir: PathBuf,
    },
    /// Two options exclude or demand each other.
    #[error("{0}")]
    Options(&'static str),
}
