//! The methods' code by name.

use super::tempered::Tempered;
use super::{Method, MethodError};
use crate::settings::{ExperimentConfig, MethodForm, MethodName, RankRequest, ValidConfig};

/// Makes a method from its settings.
pub(super) type Builder = fn(&ExperimentConfig, RankRequest) -> Result<Method, MethodError>;

/// The builder of the method called `key`; none for a row that is made of runs of other methods.
fn builder(key: &str) -> Option<Builder> {
    Some(match key {
        "lora" => super::lrvd::build_lora,
        "map" => super::map::build,
        "mcd" => super::mc_dropout::build,
        "lora-ensemble" => super::lora_ensemble::build,
        "bbb" => super::bbb::build,
        "bbb-a" => super::bbb::build_a,
        "bbb-bt" => super::bbb::build_bayesian_torch,
        "laplace" => super::laplace::build,
        "laplace-last" => super::laplace::build_last,
        "swag" => super::swag::build,
        "blob" => super::blob::build,
        "scalabl" => super::scala_bl::build,
        "tfb" => super::tfb::build,
        "c-lora" => super::c_lora::build,
        "adalora" => super::lrvd::build_adalora,
        "bayeslora" => super::lrvd::build_bayes_lora,
        "bayeslora-fixed" => super::lrvd::build_fixed,
        "lrvd-nts" => super::lrvd::build_noise_to_signal,
        "lrvd-element" => super::lrvd::build_element,
        "lrvd-a-only" => super::lrvd::build_a_only,
        "lrvd-ard" => super::lrvd::build_ard,
        "bayeslora-expanded-run" => super::lrvd::build_expanded_run,
        _ => return None,
    })
}

impl MethodName {
    /// The method itself.
    ///
    /// # Errors
    ///
    /// [`MethodError`] for settings that do not go together, [`MethodError::NotOneRun`] for an ensemble, which
    /// is made of runs of another method.
    pub fn build(self, config: &ValidConfig, request: RankRequest) -> Result<Method, MethodError> {
        let build = match self.entry().form {
            MethodForm::Single => builder(self.entry().key),
            MethodForm::Ensemble { .. } | MethodForm::Matched { .. } => None,
        };
        let build = build.ok_or_else(|| MethodError::NotOneRun { method: self.name() })?;
        let method = build(config, request)?;
        Ok(if self.is_tempered() {
            Box::new(Tempered::new(method, self.draws(config)))
        } else {
            method
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use lrvd_burn::adapter::AdapterKind;

    use super::*;
    use crate::settings::Preset;

    #[test]
    fn the_table_says_what_the_code_does() {
        let config = Preset::Default.config().validate().unwrap();
        let expanded = MethodName::from_name("bayeslora-expanded-run");
        for name in MethodName::all().chain(expanded) {
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
                assert_eq!(can.saved, plain && !can.post_hoc, "{name}");
                assert_eq!(can.posterior, method.posterior(1).is_some(), "{name}");
                assert_eq!(can.draws, !name.draws(&config).is_empty(), "{name}");
            }
        }
    }
}
