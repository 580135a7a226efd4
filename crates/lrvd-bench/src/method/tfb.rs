//! TFB: as much noise on a trained LoRA as its predictions tolerate.
//!
//! Objective of the training: mean negative log-likelihood. Afterwards, with the thin singular value
//! decomposition of every `B`, one noise level for all of them:
//!
//! ```text
//! B = U·diag(d)·Vᵀ,   A ← Vᵀ·A,   B ← U·diag(d),   q(A_ij) = N(A_ij, (σ_q/d_i)²)
//! σ_q = the largest that changes the predictions of some training examples no more than allowed
//! ```
//!
//! The noise is held in the scaling `A ← diag(d)·Vᵀ·A`, `B ← U`, in which the same law is `σ_q` for every rank (`σ_q/d_i` would
//! leave the range of a log-variance where `B` is small): the adapters become ones of the family that has noise on A only.
//! Draws use flipout, in the search and in the answers.
//!
//! Labels are not used: the change is that of the negative log-likelihood of the trained model's own answers, relative to what
//! it was. If even the smallest level tried changes too much there is no noise. A regression task is rejected.
//!
//! Parameters: LoRA's, `rank·(d_input + d_output)` per layer, and one number. Source: Shi et al. 2024, arXiv:2412.05723. Its code
//! divides the change by the number of examples as well, and so does the default; without that (`nll`) the criterion is 500
//! times as strict. Its code answers with the last level that was too much (`last-violating`); here the last that was not is
//! the default.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};
use lrvd_burn::adapter::{AdapterConfig, Extension, Gaussian, LowRankAdapter, NoiseMap};
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::ParameterValue;
use lrvd_burn::sampling::{Draws, Scheme};
use lrvd_burn::train::{DrawPolicy, Fitted, Method, Prediction, Setup, TrainConfig};
use lrvd_core::Factors;
use lrvd_core::baselines::tfb::{AdmissibleChange, RotatedAdapter, largest_admissible};
use lrvd_core::metrics::{log_softmax, mean_probability};
use lrvd_models::AutoModel;

use super::setup::lora;
use super::{Fitting, Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{Config, TfbCriterion, TfbSettings};

/// Mixed into the run's seed, so that the search does not see the draws of the answers.
const SALT: u64 = 0x5446_4253_4541_5243;

impl TfbSettings {
    fn criterion(&self, anchors: usize) -> AdmissibleChange {
        let tolerance = self.tolerance;
        match self.criterion {
            // The formula divides by the number of anchors.
            TfbCriterion::Nll => {
                AdmissibleChange::NllPerAnchor { tolerance: tolerance / anchors as f64 }
            }
            TfbCriterion::NllPerAnchor => AdmissibleChange::NllPerAnchor { tolerance },
            TfbCriterion::Flipped => AdmissibleChange::Flipped { tolerance },
        }
    }
}

pub(super) struct Tfb {
    adapter: AdapterConfig,
    settings: TfbSettings,
}

impl Tfb {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let settings = config.methods.tfb.clone();
        Ok(Self { adapter: lora(config, request), settings })
    }
}

impl Method<AutoModel> for Tfb {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(Setup::new(self.adapter, config))
    }

    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        inputs.predict_by(Scheme::PerToken, model)
    }

    /// `noise-std` is `σ_q`; 0 if even the smallest level was too much.
    fn finish(&mut self, model: &mut AutoModel, data: &Fitting<'_>) -> Burn<Fitted> {
        if data.is_regression()? {
            return Err(lrvd_burn::Error::Labels {
                expected: "classes, which TFB compares",
                found: "scores",
            });
        }
        rotate(model)?;
        let anchors = data.picked(SALT, self.settings.anchors);
        // The criterion is about all draws, whatever is spared later.
        let draws = Draws { count: 0, seed: data.inputs.draws.seed ^ SALT };
        let inputs = Inputs { draws, policy: DrawPolicy::default(), ..data.inputs(&anchors) };
        let change = Change::new(model.clone().valid(), &inputs, &self.settings)?;
        let found = largest_admissible(
            self.settings.range,
            self.settings.iterations,
            self.settings.answer,
            |level| change.is_admissible(level),
        )?;
        if let Some(level) = found {
            add_noise(model, level)?;
        }
        let values = [("noise-std".to_owned(), found.unwrap_or(0.0))].into();
        Ok(Fitted { values, stored: 1, ..Fitted::default() })
    }
}

/// Change of the answers to some examples under noise.
struct Change<'a> {
    model: AutoModel,
    inputs: &'a Inputs<'a>,
    samples: usize,
    criterion: AdmissibleChange,
    /// Probabilities without noise, of one member.
    reference: Prediction,
}

impl<'a> Change<'a> {
    fn new(model: AutoModel, inputs: &'a Inputs<'a>, settings: &TfbSettings) -> Burn<Self> {
        let criterion = settings.criterion(inputs.examples.len());
        let reference = averaged(&model, inputs, 0)?;
        Ok(Self { model, inputs, samples: settings.samples, criterion, reference })
    }

    fn is_admissible(&self, level: f64) -> Burn<bool> {
        let labels = self.reference.width;
        // No change is small beside nothing: a model that is certain of every answer gets no noise.
        if self.reference.values.chunks_exact(labels).all(|answer| answer.contains(&1.0)) {
            return Ok(false);
        }
        let mut noisy = self.model.clone();
        add_noise(&mut noisy, level)?;
        let noisy = averaged(&noisy, self.inputs, self.samples)?;
        Ok(self.criterion.holds(&self.reference.values, &noisy.values, labels)?)
    }
}

/// Probabilities averaged over draws, of one member.
fn averaged(model: &AutoModel, inputs: &Inputs<'_>, draws: usize) -> Burn<Prediction> {
    let logits = inputs.drawn(draws).predict_by(Scheme::PerToken, model)?;
    let logs = log_softmax(&logits.values, logits.width)?;
    let values = mean_probability(&logs, draws.max(1), logits.width)?;
    Ok(Prediction { values, ..logits })
}

/// Brings every adapter into the form `A ← diag(d)·Vᵀ·A`, `B ← U`; its product stays.
fn rotate(model: &mut AutoModel) -> Burn<()> {
    let mut outcome = Ok(());
    model.visit_layers_mut(&mut |_, layer| {
        if outcome.is_ok() {
            outcome = layer.edit(rotate_adapter).unwrap_or(Ok(()));
        }
    });
    outcome
}

fn rotate_adapter(adapter: &mut LowRankAdapter) -> Burn<()> {
    let factors = adapter.host_factors();
    let Factors { rank, d_input, d_output, .. } = factors;
    let rotated = RotatedAdapter::new(&factors.a, &factors.b_by_rank(), rank)?;
    // 1/d_i, and 0 for a rank without a direction in the output.
    let inverse = rotated.noise_std_dev(1.0)?;
    let mut a = vec![0.0; d_input * rank];
    let mut b = vec![0.0; rank * d_output];
    for (i, (d, inverse)) in rotated.singular_values.iter().zip(inverse).enumerate() {
        for (j, value) in rotated.a[i * d_input..][..d_input].iter().enumerate() {
            a[j * rank + i] = d * value;
        }
        for (j, value) in rotated.b[i * d_output..][..d_output].iter().enumerate() {
            b[i * d_output + j] = inverse * value;
        }
    }
    adapter.a.set_data(TensorData::new(a, [d_input, rank]));
    adapter.b.set_data(TensorData::new(b, [rank, d_output]));
    Ok(())
}

/// Gives every adapter noise of the standard deviation `level` on A, which is not trained: the log-variances take no gradient.
fn add_noise(model: &mut AutoModel, level: f64) -> Burn<()> {
    let mut outcome = Ok(());
    model.visit_layers_mut(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let a = adapter.a.val();
        let place = (&a.device().inner(), a.dtype());
        let value = Tensor::full([adapter.rank()], 2.0 * level.ln(), place);
        let value = Param::from_tensor(value).set_require_grad(false);
        let noise = Gaussian::per_rank(NoiseMap::Additive, false, value);
        if outcome.is_ok() {
            outcome = layer.extend(Some(Extension::Gaussian(noise))).map(drop);
        }
    });
    outcome
}

#[cfg(test)]
mod tests {
    use lrvd_burn::model::trainable_counts;
    use lrvd_burn::parameters::values;
    use lrvd_core::baselines::tfb::SearchAnswer;

    use super::*;
    use crate::method::fixture::{SHARED_KEYS, close, deberta, inputs};

    fn deltas(model: &AutoModel) -> Vec<Vec<f64>> {
        let mut found = Vec::new();
        model.visit_layers(&mut |_, layer| found.extend(layer.delta().map(values)));
        found
    }

    #[test]
    fn posthoc_rotation_leaves_every_update_and_turns_b_into_directions() {
        let mut model = deberta(SHARED_KEYS);
        let before = deltas(&model);
        let counts = trainable_counts(&model);
        rotate(&mut model).unwrap();
        for (after, before) in deltas(&model).iter().zip(&before) {
            close("update", after, before, 1e-12);
        }
        model.visit_layers(&mut |_, layer| {
            let Some(adapter) = layer.low_rank() else { return };
            let b = adapter.b.val().inner();
            let gram = values(b.clone().matmul(b.transpose()));
            for (at, value) in gram.iter().enumerate() {
                assert!((value - f64::from(at % 5 == 0)).abs() < 1e-12, "{gram:?}");
            }
        });
        add_noise(&mut model, 0.01).unwrap();
        assert_eq!(trainable_counts(&model), counts, "noise is not trained");
    }

    #[test]
    fn posthoc_the_noise_found_is_admissible_keeps_the_mean_and_moves_the_draws() {
        let asked = inputs(&[5, 2, 7, 4, 6, 3, 8, 5], 8);
        let inputs = asked.all();
        let mut model = deberta(SHARED_KEYS);
        rotate(&mut model).unwrap();
        let range = (0.0, 0.2);
        let criterion = TfbCriterion::Nll;
        let settings = TfbSettings { range, tolerance: 0.2, criterion, ..TfbSettings::default() };
        let change = Change::new(model.clone().valid(), &inputs, &settings).unwrap();
        let answer = SearchAnswer::LastAdmissible;
        let found = largest_admissible(range, settings.iterations, answer, |level| {
            change.is_admissible(level)
        });
        let found = found.unwrap().unwrap();
        let next = found + 0.2 * 0.5_f64.powi(settings.iterations as i32);
        assert!(change.is_admissible(found).unwrap() && !change.is_admissible(next).unwrap());
        // Divided by the number of anchors, more is allowed.
        let settings = TfbSettings { criterion: TfbCriterion::NllPerAnchor, ..settings };
        let published = Change::new(model.clone().valid(), &inputs, &settings).unwrap();
        assert!(published.is_admissible(next).unwrap());
        // A model that is certain of every answer has no change that is small beside none.
        let values = [1.0, 0.0, 0.0].repeat(8);
        let certain =
            Change { reference: Prediction { values, ..published.reference }, ..published };
        assert!(!certain.is_admissible(found).unwrap());
        let before = inputs.predict(&model).unwrap().values;
        add_noise(&mut model, found).unwrap();
        let predicted = |draws| inputs.drawn(draws).predict(&model).unwrap().values;
        close("mean", &predicted(0), &before, 1e-12);
        assert!(predicted(2)[..before.len()] != before[..]);
    }
}
