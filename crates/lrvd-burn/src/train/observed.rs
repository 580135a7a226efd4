//! A model whose adapters show what they do, example by example.

use std::collections::BTreeSet;

use burn::module::Param;
use burn::tensor::Tensor;
use lrvd_core::noise::NoiseKey;

use super::data::Model;
use crate::adapter::{AdaptedLinear, Extension, Gaussian, LowRankAdapter, NoiseMap, Observer};
use crate::error::Error;
use crate::sampling::{Pass, Scheme};

/// `ln α` of a posterior without noise: its exponential is 0 in every float type.
const NO_NOISE: f64 = -1e4;

/// A copy of a model at its posterior mean whose adapters show an observer what they do, example by example.
///
/// Rows that all sequences of a batch share (`DeBERTa`'s table of relative positions) pass through an adapter
/// once, and the gradient there is a sum over the batch. Such adapters get a posterior without noise and are
/// drawn once a sequence, which keeps their values and gives every example its own rows.
#[derive(Debug)]
pub struct Observed<M> {
    /// The model; no parameter of it asks for a gradient.
    pub model: M,
    /// What its adapters show.
    pub observer: Observer,
    /// The pass under which they do.
    pub pass: Pass,
    /// Width of the model's answer.
    pub width: usize,
}

impl<M: Model> Observed<M> {
    /// Observes the adapters that `meant` names, with their posterior mean in place of a posterior; `input`,
    /// of any examples, shows which of them meet rows that sequences share.
    pub fn new(
        model: &M,
        input: &M::Input,
        meant: impl Fn(&AdaptedLinear) -> bool,
    ) -> Result<Self, Error> {
        let mut model = model.clone().valid();
        let observer = Observer::of_gradients();
        let mut outcome = Ok(());
        model.visit_layers_mut(&mut |_, layer| {
            if outcome.is_ok() && layer.low_rank().and_then(LowRankAdapter::posterior).is_some() {
                outcome = layer.extend(None).map(drop);
            }
            let meant = layer.low_rank().is_some() && meant(layer);
            layer.observe(meant.then(|| observer.clone()));
        });
        outcome?;
        let [_, width] = model.logits(input, &Pass::mean()).dims();
        let uses = observer.take_uses();
        let shared: BTreeSet<u32> =
            uses.into_iter().filter(|used| used.use_index != 0).map(|used| used.module).collect();
        let mut outcome = Ok(());
        model.visit_layers_mut(&mut |_, layer| {
            let Some(adapter) = layer.low_rank() else { return };
            if shared.contains(&layer.noise_id()) && outcome.is_ok() {
                let a = adapter.a.val();
                let value =
                    Tensor::full([adapter.rank()], NO_NOISE, (&a.device().inner(), a.dtype()));
                let value = Param::from_tensor(value).set_require_grad(false);
                let noise = Gaussian::per_rank(NoiseMap::Relative, true, value);
                outcome = layer.extend(Some(Extension::Gaussian(noise))).map(drop);
            }
        });
        outcome?;
        let pass = Pass::sampled(Scheme::PerSequence, NoiseKey::new(0));
        Ok(Self { model, observer, pass, width })
    }
}
