//! The state of Burn's optimiser, cut along with the ranks.
//!
//! A rank policy cuts the moments of this project's optimiser. Here such an optimiser holds, in
//! place of moments, the position of every value; what is left of them after the policy had its say
//! tells which of Burn's values to keep.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use burn::module::ParamId;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::RecordError;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_pack::{Reader, Writer};

use crate::error::Error;
use crate::model::AdaptedModel;
use crate::optimizer::{AdamW, AdamWConfig, GroupRates, Moments, ParameterGroups};
use crate::parameters::Role;

/// Positions of the values of every adapter parameter, as moments.
#[derive(Clone)]
pub(super) struct Positions(pub(super) AdamW);

/// Their number only: burn-train prints the model, and this with it, at the end of a training.
impl Debug for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Positions").field(&self.0.state().len()).finish()
    }
}

/// What is left of one parameter.
struct Cut {
    /// Positions before, in order; empty if the parameter is gone.
    kept: Vec<i64>,
    /// Number of values before.
    before: usize,
    /// Shape now.
    shape: Vec<usize>,
    /// Where to cut.
    device: Device,
}

/// A parameter that ranks run through.
struct Ranked {
    id: ParamId,
    shape: Vec<usize>,
    device: Device,
}

impl Positions {
    pub(super) fn new(model: &impl AdaptedModel) -> Result<Self, Error> {
        let rates = GroupRates { learning_rate: 0.0, weight_decay: 0.0 };
        let groups = ParameterGroups {
            adapter: rates,
            log_variance: rates,
            pooler: rates,
            head: rates,
            backbone: rates,
        };
        let mut positions = AdamW::new(AdamWConfig::default(), groups);
        let mut state = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if is_ranked(p.role) && p.value.is_trainable() {
                let device = p.value.flat().device();
                let count: Vec<f32> = (0..p.value.len()).map(|i| i as f32).collect();
                let first = Tensor::from_floats(count.as_slice(), &device);
                let moments = Moments { second: first.clone(), first, steps: 0 };
                state.insert(p.name.to_owned(), moments);
            }
        });
        positions.restore(model, state)?;
        Ok(Self(positions))
    }
}

/// The adapter parameters of `model` by name.
pub(super) struct Shapes(BTreeMap<String, Ranked>);

impl Shapes {
    pub(super) fn of(model: &impl AdaptedModel) -> Self {
        let mut shapes = BTreeMap::new();
        model.visit_parameters(&mut |p| {
            if is_ranked(p.role) && p.value.is_trainable() {
                let (id, shape) = (p.value.id(), p.value.shape());
                let device = p.value.flat().device();
                shapes.insert(p.name.to_owned(), Ranked { id, shape, device });
            }
        });
        Self(shapes)
    }

    /// Cuts the state in `optimizer` to what `positions` has left, if a rank went.
    pub(super) fn cut(
        &self,
        model: &impl AdaptedModel,
        positions: &Positions,
        optimizer: &mut ModuleOptimizer,
    ) -> Result<(), RecordError> {
        let now = Self::of(model);
        let mut cuts = BTreeMap::new();
        for (name, old) in &self.0 {
            let shape = now.0.get(name).map_or_else(Vec::new, |new| new.shape.clone());
            if shape != old.shape {
                let left = positions.0.state().get(name).map(|m| m.first.clone());
                let kept = left.map_or_else(Vec::new, |t| t.into_data().iter::<i64>().collect());
                let (before, device) = (old.shape.iter().product(), old.device.clone());
                cuts.insert(old.id.val(), Cut { kept, before, shape, device });
            }
        }
        if !cuts.is_empty() {
            *optimizer = cut_record(optimizer.clone(), &cuts)?;
        }
        Ok(())
    }
}

/// Forgets everything that `optimizer` has learnt.
pub(super) fn reset(optimizer: &mut ModuleOptimizer) {
    *optimizer = optimizer.clone().load_record(OptimizerRecord::default());
}

fn is_ranked(role: Role) -> bool {
    matches!(role, Role::AdapterMean | Role::LogVariance)
}

/// The only way to a state in Burn's optimiser is through its bytes.
fn cut_record(
    optimizer: ModuleOptimizer,
    cuts: &BTreeMap<u64, Cut>,
) -> Result<ModuleOptimizer, RecordError> {
    let reader = Reader::from_bytes(optimizer.into_bytes()?)?;
    let gone = |key: &str| {
        let id = key.split('.').next().and_then(|id| id.parse().ok());
        id.and_then(|id: u64| cuts.get(&id)).is_some_and(|cut| cut.kept.is_empty())
    };
    let scalars: Vec<_> = reader
        .scalars()
        .iter()
        .filter(|(key, _)| !gone(key))
        .map(|(k, v)| (k.clone(), *v))
        .collect();
    let metadata: Vec<_> = reader
        .metadata()
        .iter()
        .filter(|(key, _)| !gone(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut tensors = Vec::new();
    for tensor in reader.into_tensors()? {
        let (name, dtype, shape, id, bytes) = tensor.into_parts()?;
        let data = TensorData::from_bytes(bytes, shape, dtype);
        // A state of another size than its parameter, such as a row of it, starts anew.
        let data = match id.and_then(|id| cuts.get(&id)) {
            None => data,
            Some(cut) if !cut.kept.is_empty() && data.num_elements() == cut.before => {
                selected(data, cut)
            }
            Some(_) => continue,
        };
        let (bytes, shape, dtype) = data.into_parts();
        tensors.push(burn_pack::Tensor::new(name, dtype, shape, id, bytes));
    }
    let mut writer = Writer::new(tensors);
    for (key, value) in scalars {
        writer = writer.with_scalar(&key, value);
    }
    for (key, value) in metadata {
        writer = writer.with_metadata(&key, &value);
    }
    optimizer.from_bytes(writer.into_bytes()?)
}

fn selected(data: TensorData, cut: &Cut) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    let flat = TensorData::from_bytes(bytes, [cut.before], dtype);
    let flat = Tensor::<1>::from_data(flat, (&cut.device, dtype));
    let positions = TensorData::new(cut.kept.clone(), [cut.kept.len()]);
    let kept = flat.select(0, Tensor::<1, Int>::from_data(positions, &cut.device));
    let (bytes, _, dtype) = kept.into_data().into_parts();
    TensorData::from_bytes(bytes, cut.shape.clone(), dtype)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use burn::optim::{AdamWConfig, GradientsParams};
    use lrvd_core::noise::NoiseKey;

    use super::*;
    use crate::adapter::{AdaptedLinear, AdapterConfig};
    use crate::burn_train::gradients;
    use crate::optimizer::NamedGradients;
    use crate::prune::{self, PruneEvent};

    /// One update by gradients that are a function of step and original position.
    fn step(
        optimizer: &mut ModuleOptimizer,
        layer: AdaptedLinear,
        positions: &Positions,
        step: u32,
    ) -> AdaptedLinear {
        let mut named = NamedGradients::default();
        for (name, moments) in positions.0.state() {
            named.insert(name.clone(), moments.first.clone().add_scalar(step).sin());
        }
        let mut gradients = GradientsParams::new();
        gradients::put(&layer, &named, &mut gradients);
        optimizer.step(1e-2, layer, gradients)
    }

    fn values(layer: &AdaptedLinear) -> Vec<(String, Vec<f32>)> {
        let mut all = Vec::new();
        layer.visit_parameters(&mut |p| {
            all.push((p.name.to_owned(), p.value.flat().into_data().try_into_vec().unwrap()));
        });
        all
    }

    fn event(kept: &[usize]) -> PruneEvent {
        let kept = BTreeMap::from([("net.layer".to_owned(), kept.to_vec())]);
        PruneEvent { changed: kept.keys().cloned().collect(), kept, ..PruneEvent::default() }
    }

    #[test]
    fn a_pruned_state_goes_on_as_the_kept_part_of_the_whole() {
        let device = Device::flex();
        let mut whole = AdaptedLinear::new("net.layer", Tensor::ones([5, 3], &device), None);
        let config = AdapterConfig { rank: 4, ..AdapterConfig::default() };
        config.attach(&mut whole, NoiseKey::new(1)).unwrap();
        let everything = Positions::new(&whole).unwrap();
        let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).init();
        for t in 0..3 {
            whole = step(&mut optimizer, whole, &everything, t);
        }

        let (mut pruned, mut cut) = (whole.clone(), optimizer.clone());
        let mut positions = everything.clone();
        let shapes = Shapes::of(&pruned);
        prune::apply(&mut pruned, &event(&[0, 2]), Some(&mut positions.0), None);
        shapes.cut(&pruned, &positions, &mut cut).unwrap();
        for t in 3..6 {
            whole = step(&mut optimizer, whole, &everything, t);
            pruned = step(&mut cut, pruned, &positions, t);
        }
        prune::apply(&mut whole, &event(&[0, 2]), None, None);
        assert_eq!(values(&pruned), values(&whole));

        // A layer without ranks leaves nothing behind.
        let shapes = Shapes::of(&pruned);
        prune::apply(&mut pruned, &event(&[]), Some(&mut positions.0), None);
        shapes.cut(&pruned, &positions, &mut cut).unwrap();
        assert!(cut.to_record().is_empty());
    }
}
