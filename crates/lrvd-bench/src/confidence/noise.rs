//! How much of the posterior's noise the held-out rows want.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::module::Param;
use burn::tensor::Tensor;
use lrvd_burn::adapter::{Extension, Posterior};
use lrvd_burn::model::{AdaptedModel, ranks};
use lrvd_core::numeric::minimise_on_log;
use lrvd_models::AutoClassifier;

use super::{Fits, Form, averaged};
use crate::method::{MethodError, add_noise, rotate};

/// Factors of a posterior's standard deviations that are looked at.
const FACTORS: (f64, f64) = (0.25, 64.0);
/// Standard deviations of noise on plain factors, in the basis of TFB.
const LEVELS: (f64, f64) = (1e-3, 0.256);
/// A factor 2 apart.
const POINTS: usize = 9;
/// Golden-section steps between the best of them and its neighbours.
const STEPS: usize = 3;

/// Most draws of an answer while a scale is looked for: the same ones for every scale.
const SWEEP: usize = 4;
/// The same while the modules' own scales are: there are two looks for each.
const MODULE_SWEEP: usize = 2;

/// A number for every module.
pub(super) type ByModule = BTreeMap<String, f64>;

/// A trained model whose noise can be set.
pub(super) struct Noisy {
    base: AutoClassifier,
    form: Form,
}

impl Noisy {
    /// Around the means of `model`: its own posterior, or noise on A alone where it has none.
    pub(super) fn new(model: &AutoClassifier) -> Result<Self, MethodError> {
        let (mut base, form) = (model.clone(), Form::of(model));
        if form == Form::Plain {
            rotate(&mut base)?;
        }
        Ok(Self { base, form })
    }

    /// The model with standard deviations times `scale` of each module, or of that size on plain factors.
    pub(super) fn at(&self, scale: &ByModule) -> Result<AutoClassifier, MethodError> {
        let mut model = self.base.clone();
        if self.form == Form::Plain {
            add_noise(&mut model, |path| scale[path])?;
            return Ok(model);
        }
        model.visit_layers_mut(&mut |path, layer| {
            let Some(adapter) = layer.low_rank_mut() else { return };
            let Some(Extension::Posterior(posterior)) = &mut adapter.extension else { return };
            let shift = 2.0 * scale[path].ln();
            match posterior {
                Posterior::RankVariance(p)
                | Posterior::NoiseToSignal(p)
                | Posterior::AsymRankVariance(p) => moved(&mut p.value, shift),
                Posterior::ElementVariance(p) => {
                    moved(&mut p.a, shift);
                    moved(&mut p.b, shift);
                }
            }
        });
        Ok(model)
    }
}

fn moved<const D: usize>(value: &mut Param<Tensor<D>>, shift: f64) {
    let sum = value.val().inner().add_scalar(shift);
    *value = Param::initialized(value.id, sum).set_require_grad(false);
}

/// One scale for all modules, and one for each.
pub(super) fn add(
    fits: &mut Fits<'_>,
    model: &AutoClassifier,
    noise_size: usize,
) -> Result<(), MethodError> {
    let noisy = Noisy::new(model)?;
    let draws = fits.effort.draws;
    let paths: Vec<String> =
        ranks(model).into_iter().filter(|(_, rank)| *rank > 0).map(|(path, _)| path).collect();
    let all = |scale: f64| -> ByModule { paths.iter().map(|p| (p.clone(), scale)).collect() };
    let held_out = |scale: &ByModule, most: usize| -> Result<f64, MethodError> {
        let (model, draws) = (noisy.at(scale)?, draws.min(most));
        let answers = fits.ask(fits.sets[0], |inputs| averaged(&inputs.predict(&model, draws)?))?;
        fits.nll(&answers)
    };
    let begun = Instant::now();
    let range = if noisy.form == Form::Plain { LEVELS } else { FACTORS };
    let (scale, _) = minimise_on_log(range, POINTS, STEPS, |scale| held_out(&all(scale), SWEEP))?;
    let shared = ("noise", 1, all(scale), begun);
    let begun = Instant::now();
    let mut scales = all(scale);
    let mut best = held_out(&scales, MODULE_SWEEP)?;
    for path in &paths {
        for factor in [0.5, 2.0] {
            let mut tried = scales.clone();
            tried.insert(path.clone(), scale * factor);
            let nll = held_out(&tried, MODULE_SWEEP)?;
            if nll < best {
                (scales, best) = (tried, nll);
                break;
            }
        }
    }
    let own = ("noise-module", paths.len(), scales, begun);
    for (name, numbers, scales, begun) in [shared, own] {
        let model = noisy.at(&scales)?;
        let answers = fits.each(|inputs| averaged(&inputs.predict(&model, draws)?))?;
        let fitted =
            if numbers == 1 { BTreeMap::from([("scale".to_owned(), scale)]) } else { scales };
        fits.add(name, noise_size + numbers, fitted, begun, answers)?;
    }
    Ok(())
}
