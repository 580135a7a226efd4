//! Fine-tuning methods: what each attaches, minimises, does around an update, and predicts.
//!
//! One more method is one more file here, one line in `registry`, and one entry in the table of
//! methods in [`settings`](crate::settings) (`docs/guides/add-a-method.md`).

mod bbb;
mod blob;
mod c_lora;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod gate_tests;
mod kl_cycle;
mod laplace;
mod lora_ensemble;
mod lrvd;
mod map;
mod mc_dropout;
mod registry;
mod scala_bl;
mod second_optimizer;
mod setup;
mod swag;
mod tempered;
mod tfb;

use std::collections::BTreeMap;

use lrvd_burn::train;
use lrvd_models::AutoClassifier;

use crate::error::Result;
use crate::eval::RunContext;

pub use crate::settings::{MethodName, RankRequest};
pub(crate) use registry::LanguageMethod;
pub(crate) use tempered::softened;

pub type Method = Box<dyn Tuning>;

pub type Inputs<'a> = train::Inputs<'a, lrvd_models::TokenBatch>;

/// A way of fine-tuning and of predicting: the four traits of [`lrvd_burn::train`], and what comes
/// after training.
///
/// The life of a run: `attach`, then per step `terms`, `before_update` and `after_update`, then once
/// [`finish`](PostHoc::finish), then `predict`. Everything but `adapter` has a default, which is that of
/// maximum likelihood.
pub trait Tuning: train::Method<AutoClassifier> + PostHoc {}

impl<T: train::Method<AutoClassifier> + PostHoc + ?Sized> Tuning for T {}

/// What is fitted to a trained model, and kept beside it.
pub trait PostHoc {
    /// Share of the training examples that is kept out of training, for [`finish`](Self::finish).
    fn holdout(&self) -> f64 {
        0.0
    }

    /// What is fitted once training is over: curvature, a temperature, a noise scale.
    fn finish(&mut self, _model: &mut AutoClassifier, _context: &RunContext<'_>) -> Result<()> {
        Ok(())
    }

    /// The numbers that [`finish`](Self::finish) found and a reader would ask for, by name.
    fn fitted(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Temperature by number of draws, if that is what was fitted.
    fn temperatures(&self) -> BTreeMap<usize, f64> {
        BTreeMap::new()
    }

    /// Whether a model that answers among other tokens than it was trained with can be asked. What is fitted to the
    /// trained answers cannot.
    fn takes_other_answers(&self) -> bool {
        true
    }

    /// Numbers that the method keeps for prediction beside the trained parameters of the model; records
    /// and tables count them apart.
    fn stored_parameters(&self) -> usize {
        0
    }
}

impl PostHoc for train::Lora {}
impl PostHoc for train::AdaLora {}
impl PostHoc for train::BayesLora {}
