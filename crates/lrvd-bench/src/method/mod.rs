//! Fine-tuning methods: what each attaches, minimises, does around an update, and predicts.
//!
//! One more method is one more file here and one row of `table` (`docs/guides/add-a-method.md`).
#![expect(clippy::unnecessary_wraps, reason = "the constructors in the table have one type")]

pub mod c_lora;
#[cfg(test)]
pub(crate) mod fixture;
mod holdout;
mod interval;
mod label_thresholds;
mod laplace;
pub(crate) mod linear;
pub mod lora_ensemble;
mod lrvd;
pub mod minibatch_weight;
mod noisy;
pub mod observer;
mod point;
mod rslora;
pub mod scalabl;
mod setup;
mod swag;
mod table;
mod temperature;
mod tfb;

use lrvd_burn::train;

pub(crate) use holdout::EvaluationWork;
pub use holdout::{FittedRows, Holdout};
pub use interval::Intervals;
pub use label_thresholds::LabelThresholds;
pub use setup::RankRequest;
pub(crate) use table::Family;
pub use table::{Can, DynMethod, MethodEntry, MethodForm, MethodName};
pub use temperature::Temperatures;
pub(crate) use temperature::{averaged, softened};

pub type Inputs<'a> = train::Inputs<'a, lrvd_models::TokenBatch>;
pub type Fitting<'a> = train::Fitting<'a, lrvd_models::TokenBatch>;
