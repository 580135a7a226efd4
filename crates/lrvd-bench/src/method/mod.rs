//! Fine-tuning methods: what each attaches, minimises, does around an update, and predicts.
//!
//! One more method is one more file here, one line in `build`, and one entry in the table of
//! methods in [`settings`](crate::settings) (`docs/guides/add-a-method.md`).

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod gate_tests;
mod laplace;
mod lrvd;
mod noisy;
mod point;
mod setup;
mod swag;
mod tempered;
mod tfb;

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use lrvd_burn::train;
use lrvd_models::AutoClassifier;
use lrvd_models::llama::LlamaForCausalLm;

use crate::error::Result;
use crate::eval::RunContext;
use crate::settings::Config;
use laplace::Laplace;
use noisy::{Bbb, Blob, CLora, ScalaBl};
use point::{LoraEnsemble, Map, McDropout};
use swag::Swag;
use tempered::Tempered;
use tfb::Tfb;

pub use crate::settings::{MethodName, RankRequest};
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

/// The method called `key`; none for a row that is made of runs of other methods.
fn build(key: &str, config: &Config, request: RankRequest) -> Result<Option<Method>> {
    let own = &config.methods;
    Ok(Some(match key {
        "lora" => Box::new(lrvd::lora(config, request)),
        "map" => Box::new(Map::new(config, request)?),
        "mcd" => Box::new(McDropout::new(config, request)),
        "lora-ensemble" => Box::new(LoraEnsemble::new(config, request)),
        "bbb" => Box::new(Bbb::new(config, request, own.bbb)?),
        "bbb-a" => Box::new(Bbb::new(config, request, own.bbb_a)?),
        "laplace" => Box::new(Laplace::new(config, request, &own.laplace)),
        "swag" => Box::new(Swag::new(config, request)?),
        "blob" => Box::new(Blob::new(config, request)),
        "scalabl" => Box::new(ScalaBl::new(config, request)),
        "tfb" => Box::new(Tfb::new(config, request)),
        "c-lora" => Box::new(CLora::new(config, request)),
        "adalora" => Box::new(lrvd::adalora(config, request)?),
        "bayeslora" | "bayeslora-fixed" | "lrvd-nts" | "lrvd-element" | "lrvd-a-only"
        | "lrvd-ard" => Box::new(lrvd::variant(key, config)?),
        _ => return Ok(None),
    }))
}

pub(crate) type LanguageMethod = dyn train::Method<LlamaForCausalLm>;

impl MethodName {
    pub fn build(self, config: &Config, request: RankRequest) -> Result<Method> {
        let method = build(self.entry().key, config, request)?;
        let method = method.ok_or_else(|| {
            anyhow!("{} is made of runs of another method: use `lrvd bench`", self.name())
        })?;
        Ok(if self.is_tempered() {
            Box::new(Tempered::new(method, self.draws(config)))
        } else {
            method
        })
    }

    /// The method for a language model on texts: LoRA, AdaLoRA and `BayesLoRA` with its variants, which are the same for
    /// every model.
    pub(crate) fn build_for_language(
        self,
        config: &Config,
        request: RankRequest,
    ) -> Result<Box<LanguageMethod>> {
        let key = self.entry().key;
        Ok(match key {
            _ if !self.is_for_language() => {
                bail!("{key}: it is not for language modelling");
            }
            "lora" => Box::new(lrvd::lora(config, request)),
            "adalora" => Box::new(lrvd::adalora(config, request)?),
            _ => Box::new(lrvd::variant(key, config)?),
        })
    }

    /// Whether a language model can be trained on texts by it.
    pub fn is_for_language(self) -> bool {
        let can = self.can();
        let plain = can.posterior || matches!(self.entry().key, "lora" | "adalora");
        can.saved && !can.post_hoc && plain
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use lrvd_burn::adapter::AdapterKind;

    use super::*;
    use crate::settings::{MethodForm, Preset};

    #[test]
    fn the_table_says_what_the_code_does() {
        let config = Preset::ConstantWeight.config().checked().unwrap();
        for name in MethodName::all() {
            for name in [name, name.tempered()] {
                if !matches!(name.entry().form, MethodForm::Single) {
                    assert!(name.build(&config, RankRequest::Initial).is_err(), "{name}");
                    continue;
                }
                let (can, method) =
                    (name.can(), name.build(&config, RankRequest::Initial).unwrap());
                let plain = matches!(
                    method.adapter().kind,
                    AdapterKind::Lora { .. }
                        | AdapterKind::AdaLora
                        | AdapterKind::Variational { .. }
                );
                assert_eq!(can.saved, plain && !name.entry().can.post_hoc, "{name}");
                assert_eq!(can.post_hoc, name.is_tempered() || name.entry().can.post_hoc);
                assert_eq!(can.posterior, method.posterior(1).is_some(), "{name}");
                assert_eq!(can.draws, !name.draws(&config).is_empty(), "{name}");
            }
        }
    }
}
