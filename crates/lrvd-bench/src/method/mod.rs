//! Fine-tuning methods: what each attaches, minimises, does around an update, and predicts.
//!
//! One more method is one more file here and one row of `table` (`docs/guides/add-a-method.md`).
#![expect(clippy::unnecessary_wraps, reason = "the constructors in the table have one type")]

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod gate_tests;
mod laplace;
mod lrvd;
mod name;
mod noisy;
mod point;
mod rslora;
mod setup;
mod swag;
mod table;
mod temperature;
mod tfb;

use lrvd_burn::train;

pub use name::MethodName;
pub use setup::RankRequest;
pub(crate) use table::Family;
pub use table::{Can, DynMethod, MethodEntry, MethodForm};
pub use temperature::Temperatures;
pub(crate) use temperature::softened;

pub type Inputs<'a> = train::Inputs<'a, lrvd_models::TokenBatch>;
/// What a method of a classifier is fitted to after training.
pub type Fitting<'a> = train::Fitting<'a, lrvd_models::TokenBatch>;

#[cfg(test)]
mod tests {
    use lrvd_burn::adapter::AdapterKind;

    use super::*;
    use crate::settings::Preset;

    #[test]
    fn the_table_says_what_the_code_does() {
        let config = Preset::ConstantWeight.config().checked().unwrap();
        for name in MethodName::all() {
            for name in [name, name.tempered()] {
                let (can, built) = (name.can(), name.build(&config, RankRequest::Initial));
                let Ok(method) = built else {
                    assert!(matches!(name.entry().form, MethodForm::Ensemble { .. }), "{name}");
                    continue;
                };
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
                let auto = Preset::Default.config();
                let method = name.build(&auto, RankRequest::Initial).unwrap();
                assert_eq!(name.searches(&auto), method.search().is_some(), "{name}");
            }
        }
    }
}
