//! The methods' code by name.

use anyhow::{anyhow, bail};
use lrvd_burn::train;
use lrvd_models::llama::LlamaForCausalLm;

use super::bbb::Bbb;
use super::blob::Blob;
use super::c_lora::CLora;
use super::laplace::Laplace;
use super::lora_ensemble::LoraEnsemble;
use super::map::Map;
use super::mc_dropout::McDropout;
use super::scala_bl::ScalaBl;
use super::swag::Swag;
use super::tempered::Tempered;
use super::tfb::Tfb;
use super::{Method, lrvd};
use crate::error::Result;
use crate::settings::{ExperimentConfig, MethodName, RankRequest, ValidConfig};

/// The method called `key`; none for a row that is made of runs of other methods.
fn build(key: &str, config: &ExperimentConfig, request: RankRequest) -> Result<Option<Method>> {
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

impl MethodName {
    pub fn build(self, config: &ValidConfig, request: RankRequest) -> Result<Method> {
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
}

pub(crate) type LanguageMethod = dyn train::Method<LlamaForCausalLm>;

impl MethodName {
    /// The method for a language model on texts: LoRA, AdaLoRA and `BayesLoRA` with its variants, which are the same for
    /// every model.
    pub(crate) fn build_for_language(
        self,
        config: &ValidConfig,
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
        let config = Preset::ConstantWeight.config().validate().unwrap();
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
