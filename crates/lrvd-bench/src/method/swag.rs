//! SWAG-LoRA: the tail of the optimizer's path as a Gaussian.
//!
//! Objective: mean negative log-likelihood. From a share of the steps on the learning rate goes to a constant in a
//! line, and every so many steps the factors `θ` of the adapters are collected:
//!
//! ```text
//! mean, second moment:  running averages of θ, θ²        deviations: the last K of θ − mean
//! θ ~ mean + √scale·( √max(second − mean², 1e-30) ∘ z1 + 1/√(K − 1)·Σ_j deviation_j·z2_j )
//! ```
//!
//! `k = 0` is the mean of the path (SWA); `z2` is shared by all factors. A head that is trained along is answered by its mean.
//!
//! Parameters: LoRA's, `P = rank·(d_input + d_output)` per layer, of which the mean takes the place; second moment and deviations
//! store `(1 + K)·P` numbers more. Source: Maddox et al. 2019, arXiv:1902.02476; on adapters Onal et al. 2024, arXiv:2405.03425,
//! whose configuration is the default (`scale` is 1, the standard sampler has ½). Its tail continues from the model with the
//! lowest validation loss so far; here from the step before.

use std::collections::BTreeMap;

use anyhow::bail;
use burn::tensor::TensorData;
use lrvd_burn::adapter::AdapterConfig;
use lrvd_burn::files::HostTensor;
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::values;
use lrvd_burn::parameters::{Group, NamedParameter, ParameterValue};
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{
    Fitted, Method, MethodState, Prediction, RankCause, Setup, StepState, TrainConfig, UpdatePhase,
};
use lrvd_core::baselines::Swag as Moments;
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64, module_id};
use lrvd_models::AutoModel;
use serde_json::json;

use super::setup::lora;
use super::{Fitting, Inputs, RankRequest};
use crate::error::{Burn, Result};
use crate::settings::{Config, SwagSettings};

/// Linear change of the learning rate to a constant.
///
/// ```text
/// factor = from + (to − from)·min(1, (step − start)/steps)        from `start` on
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
struct ConstantTail {
    /// First step of the tail.
    start: usize,
    /// Steps from there to the constant.
    steps: usize,
    /// Factor of the peak rates at its start.
    from: f64,
    /// The constant factor.
    to: f64,
}

impl ConstantTail {
    /// Factor at `step`; before the tail it is `scheduled`.
    fn factor(self, step: usize, scheduled: f64) -> f64 {
        let Self { start, steps, from, to } = self;
        let Some(since) = step.checked_sub(start) else { return scheduled };
        if since >= steps { to } else { from + (to - from) * since as f64 / steps as f64 }
    }
}

/// Fields of the moments that are lists, as they are stored.
const LISTS: [&str; 3] = ["mean", "second_moment", "deviations"];

pub(super) struct Swag {
    adapter: AdapterConfig,
    settings: SwagSettings,
    tail: ConstantTail,
    /// Steps between collections in the tail.
    every: usize,
    /// Of every factor, by name; a head has a mean only.
    moments: BTreeMap<String, Moments>,
}

impl Swag {
    pub(super) fn new(config: &Config, request: RankRequest) -> Result<Self> {
        let settings = config.methods.swag;
        let start = config.share(settings.start);
        let every = config.share(settings.every).max(1);
        let collections = config.steps.saturating_sub(start) / every;
        if collections < 2 {
            bail!(
                "SWAG: {} steps leave {collections} collections after `swag.start`, expected at least 2: \
                 train longer, start earlier or collect more often",
                config.steps
            );
        }
        let adapter = lora(config, request);
        let tail = ConstantTail {
            start,
            steps: config.share(settings.anneal),
            from: config.training(0).check()?.factor(start as u32),
            to: settings.learning_rate_factor,
        };
        Ok(Self { adapter, settings, tail, every, moments: BTreeMap::new() })
    }

    fn is_due(&self, done: usize) -> bool {
        let start = self.tail.start;
        done > start && (done - start).is_multiple_of(self.every)
    }

    fn collect(&mut self, model: &AutoModel) -> Burn<()> {
        let mut outcome = Ok(());
        let moments = &mut self.moments;
        let deviations = self.settings.deviations;
        model.visit_parameters(&mut |p| {
            let kept = match p.group {
                Group::AdapterMean => deviations,
                Group::Pooler | Group::Head => 0,
                Group::Backbone | Group::LogVariance => return,
            };
            if outcome.is_ok() && p.value.is_trainable() {
                let weights = values(p.value.flat());
                let new = || Moments::new(weights.len(), kept);
                let moments = moments.entry(p.name.to_owned()).or_insert_with(new);
                outcome = moments.collect(&weights);
            }
        });
        Ok(outcome?)
    }

    fn drawn(&self, model: &AutoModel, key: NoiseKey) -> Burn<AutoModel> {
        let mut model = model.clone();
        let mut outcome = Ok(());
        model.visit_parameters_mut(&mut |p| {
            if p.group == Group::AdapterMean
                && outcome.is_ok()
                && let Some(moments) = self.moments.get(p.name)
            {
                match self.draw(moments, p.name, key) {
                    Ok(values) => set(p, values),
                    Err(error) => outcome = Err(error),
                }
            }
        });
        outcome.map(|()| model)
    }

    fn draw(&self, moments: &Moments, name: &str, key: NoiseKey) -> Burn<Vec<f64>> {
        let mut diagonal = vec![0.0; moments.mean().len()];
        let of_factor = key.for_module(module_id(name)).on_stream(Stream::WEIGHT_A);
        fill_normal_f64(of_factor, 0, &mut diagonal);
        let mut shared = vec![0.0; moments.n_deviations()];
        fill_normal_f64(key.on_stream(Stream::WEIGHT_B), 0, &mut shared);
        Ok(moments.sample(self.settings.scale, &diagonal, &shared)?)
    }
}

fn set(p: NamedParameter<'_, &mut dyn ParameterValue>, values: Vec<f64>) {
    if values.len() == p.value.len() {
        p.value.set_data(TensorData::new(values, p.value.shape()));
    }
}

impl Method<AutoModel> for Swag {
    fn setup(&self, config: &TrainConfig) -> Burn<Setup> {
        Ok(Setup::new(self.adapter, config))
    }

    fn rate_factor(&self, step: usize, scheduled: f64) -> f64 {
        self.tail.factor(step, scheduled)
    }

    fn update(
        &mut self,
        when: UpdatePhase,
        step: StepState<'_, AutoModel>,
    ) -> Burn<Option<RankCause>> {
        if when == UpdatePhase::AfterUpdate && self.is_due(step.context.step + 1) {
            self.collect(step.model)?;
        }
        Ok(None)
    }

    fn state(&self) -> MethodState {
        let mut state = MethodState { values: json!({}), ..MethodState::default() };
        for (name, moments) in &self.moments {
            // The fields in memory: numbers do not pass through text.
            let Ok(mut fields) = serde_json::to_value(moments) else { continue };
            for list in LISTS {
                let numbers: Vec<f64> =
                    serde_json::from_value(fields[list].take()).unwrap_or_default();
                if let Ok(tensor) = HostTensor::from_f64(&[numbers.len()], &numbers) {
                    state.tensors.insert(format!("{name}.{list}"), tensor);
                }
            }
            state.values[name] = fields;
        }
        state
    }

    fn restore(&mut self, _model: &AutoModel, mut state: MethodState) -> Burn<()> {
        let Some(stored) = state.values.as_object_mut() else { return Ok(()) };
        let missing = lrvd_burn::Error::checkpoint_entry;
        for (name, mut fields) in std::mem::take(stored) {
            for list in LISTS {
                let key = format!("{name}.{list}");
                let tensor = state.tensors.remove(&key).filter(|_| fields.is_object());
                fields[list] = json!(tensor.ok_or_else(|| missing(&key))?.to_f64()?);
            }
            let moments = serde_json::from_value(fields).map_err(|_| missing(&name))?;
            self.moments.insert(name, moments);
        }
        Ok(())
    }

    fn predict(&self, model: &AutoModel, inputs: &Inputs<'_>) -> Burn<Prediction> {
        let draws = inputs.draws;
        if draws.count == 0 {
            return inputs.logits(model, &Pass::mean());
        }
        let mut all = Prediction::new(Vec::new(), inputs.examples.len(), 0);
        for draw in 0..draws.count {
            let drawn = self.drawn(model, draws.key(draw))?;
            let one = inputs.logits(&drawn, &Pass::mean())?;
            all.width = one.width;
            all.values.extend(one.values);
        }
        Ok(all)
    }

    /// The mean of the path becomes the model.
    fn finish(&mut self, model: &mut AutoModel, _data: &Fitting<'_>) -> Burn<Fitted> {
        model.visit_parameters_mut(&mut |p| {
            if let Some(moments) = self.moments.get(p.name) {
                set(p, moments.mean().to_vec());
            }
        });
        let random = self.moments.values().filter(|moments| moments.n_deviations() > 0);
        let stored = |moments: &Moments| (1 + moments.n_deviations()) * moments.mean().len();
        Ok(Fitted { stored: random.map(stored).sum(), ..Fitted::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::fixture::{NO_POSITIONS, close, deberta, inputs};
    use crate::settings::Preset;

    fn swag(settings: SwagSettings) -> Swag {
        let tail = ConstantTail { start: 50, steps: 20, from: 0.6, to: 0.3 };
        let adapter = AdapterConfig::default();
        Swag { adapter, settings, tail, every: 10, moments: BTreeMap::new() }
    }

    fn moved(model: &mut AutoModel, by: f64) {
        model.visit_parameters_mut(&mut |p| {
            if p.group == Group::AdapterMean {
                let values = values(p.value.flat()).into_iter().enumerate();
                set(p, values.map(|(i, v)| v + by * (i as f64).sin()).collect());
            }
        });
    }

    /// That a resumed run has the same state is tested with all methods.
    #[test]
    fn posthoc_swag_without_scale_answers_with_the_mean_and_needs_its_whole_state() {
        let asked = inputs(&[5, 3], 4);
        let inputs = asked.all();
        let mut model = deberta(NO_POSITIONS);
        let mut swag = swag(SwagSettings { scale: 0.0, deviations: 3, ..SwagSettings::default() });
        for by in [0.2, -0.1, 0.3, 0.1] {
            moved(&mut model, by);
            swag.collect(&model).unwrap();
        }
        // Two blocks of four layers 24 wide and two from 24 to 40 or back, rank 4.
        let factors = 2 * 4 * (4 * (24 + 24) + 2 * (24 + 40));
        assert_eq!(swag.moments.values().map(|m| m.mean().len()).sum::<usize>(), factors);
        let mut mean = model.clone();
        let examples = asked.examples;
        let data = Fitting { train: &examples, holdout: &examples, inputs };
        assert_eq!(swag.finish(&mut mean, &data).unwrap().stored, (1 + 3) * factors);
        let drawn = swag.predict(&model, &inputs.drawn(1)).unwrap();
        model.visit_parameters_mut(&mut |p| {
            if let Some(moments) = swag.moments.get(p.name) {
                set(p, moments.mean().to_vec());
            }
        });
        let mean = swag.predict(&model, &inputs).unwrap();
        close("mean", &drawn.values, &mean.values, 1e-12);
        let mut broken = swag.state();
        broken.tensors.retain(|name, _| !name.contains(".mean"));
        let failed = swag.restore(&model, broken).unwrap_err();
        assert!(failed.to_string().contains("is missing or does not fit"), "{failed}");
    }

    #[test]
    fn posthoc_swag_holds_the_rate_and_needs_two_collections() {
        let swag = swag(SwagSettings::default());
        let rates = [49, 50, 60, 70, 99].map(|step| swag.tail.factor(step, 0.62));
        for (found, expected) in rates.into_iter().zip([0.62, 0.6, 0.45, 0.3, 0.3]) {
            assert!((found - expected).abs() < 1e-15, "{rates:?}");
        }
        let due: Vec<usize> = (0..=80).filter(|&done| swag.is_due(done)).collect();
        assert_eq!(due, [60, 70, 80]);
        let build = |start: f64, every: f64| {
            let mut config = Config { steps: 100, ..Preset::ConstantWeight.config() };
            config.methods.swag = SwagSettings { start, every, ..SwagSettings::default() };
            Swag::new(&config, RankRequest::Initial).map(drop)
        };
        assert!(build(0.5, 0.25).is_ok());
        let failed = build(0.6, 0.25).unwrap_err();
        assert!(failed.to_string().starts_with("SWAG: "), "{failed}");
    }
}
