//! What a study is.

use super::evidence::{Evidence, Quantity};
use super::verdict::Judgement;
use crate::settings::Preset;
use crate::suite::Analysis;

/// One question, what is trained to answer it, and how the answer is read.
#[derive(Clone, Copy)]
pub struct Study {
    /// Name on the command line and of its files.
    pub name: &'static str,
    /// The question, one sentence.
    pub question: &'static str,
    /// What is said about it, and whether that is so.
    pub claims: &'static [Claim],
    /// What is trained.
    pub arms: fn() -> Vec<Arm>,
    /// What is measured of a trained model beyond its record.
    pub analysis: Option<&'static dyn Analysis>,
    /// Columns of the page's table.
    pub columns: &'static [Column],
    /// Images.
    pub figures: &'static [Figure],
    /// What a reader must know, as markdown; may be empty.
    pub notes: &'static str,
}

/// A sentence that may be true.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Short name, unique in its study.
    pub id: &'static str,
    /// The sentence.
    pub sentence: &'static str,
    /// Who says so: the paper and its section, or ours.
    pub source: &'static str,
    /// Judges it.
    pub judge: fn(&Evidence) -> Judgement,
}

/// What an arm's own settings come on top of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The recipe: lengths, rates and posterior.
    Recipe,
    /// A preset with the recipe's lengths and ranks.
    Preset(Preset),
}

/// One setting under study.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Name in tables, unique in its study.
    pub label: String,
    /// The setting as a number, for figures.
    pub value: Option<f64>,
    /// Method by its key.
    pub method: &'static str,
    /// What comes first.
    pub base: Base,
    /// Settings `key=value` that come on top.
    pub set: Vec<String>,
}

impl Arm {
    /// `method` by the recipe with `set` on top.
    pub fn new(label: impl Into<String>, method: &'static str, set: &[&str]) -> Self {
        let set = set.iter().map(|text| (*text).to_owned()).collect();
        Self { label: label.into(), value: None, method, base: Base::Recipe, set }
    }

    /// BayesLoRA by the recipe with `key=value`, one arm for each of `values`.
    pub fn sweep(key: &str, values: &[f64]) -> Vec<Self> {
        let arm = |&value: &f64| {
            let assignment = format!("{key}={value}");
            let label = format!("{} {value}", key.rsplit('.').next().unwrap_or(key));
            Self { value: Some(value), ..Self::new(label, "bayeslora", &[&assignment]) }
        };
        values.iter().map(arm).collect()
    }

    /// The same arm on another base.
    #[must_use]
    pub fn on(self, base: Base) -> Self {
        Self { base, ..self }
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub heading: &'static str,
    /// What stands in it.
    pub quantity: Quantity,
    /// Digits after the point.
    pub digits: usize,
}

impl Column {
    /// Quality and cost of a classifier at its mean and with ten draws.
    pub const COMMON: &'static [Self] = &[
        Self::new("accuracy", Quantity::at("accuracy", 0.0), 3),
        Self::new("NLL, k = 0", Quantity::at("nll", 0.0), 3),
        Self::new("NLL, k = 10", Quantity::at("nll", 10.0), 3),
        Self::new("ECE, k = 0", Quantity::at("ece", 0.0), 3),
        Self::new("ECE, k = 10", Quantity::at("ece", 10.0), 3),
        Self::new("ranks", Quantity::of("total_rank"), 1),
        Self::new("% of ranks", Quantity::of("percent_rank"), 1),
        Self::new("training, s", Quantity::of("train_seconds"), 0),
    ];

    /// A column.
    pub const fn new(heading: &'static str, quantity: Quantity, digits: usize) -> Self {
        Self { heading, quantity, digits }
    }
}

/// An image.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// End of the file's name.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// What goes to the right.
    pub x: &'static str,
    /// What goes up.
    pub y: &'static str,
    /// Whether equal steps to the right are equal factors.
    pub log_x: bool,
    /// What is drawn.
    pub curves: Curves,
}

/// Curves of an image; each point is a mean over seeds with its standard error.
#[derive(Clone, Copy, Debug)]
pub enum Curves {
    /// Quantities, with their names, over the arms' values, or over the arms in a row where none has
    /// a value.
    OverArms(&'static [(&'static str, Quantity)]),
    /// Metrics over what they are a function of, a curve for each arm.
    OverAt(&'static [&'static str]),
    /// A point for each name `n` of the metrics `x/n` and `y/n`, a colour for each arm.
    Points {
        /// Goes to the right.
        x: &'static str,
        /// Goes up.
        y: &'static str,
    },
}
