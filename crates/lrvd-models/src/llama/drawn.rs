//! Posteriors at given weight draws, for answers that take many passes.

use burn::module::Param;
use burn::tensor::Tensor;
use lrvd_burn::adapter::{AdapterMembers, LowRankAdapter};
use lrvd_burn::model::NamedModule;
use lrvd_burn::ops::standard_normal;
use lrvd_core::noise::{NoiseKey, Stream};

use super::causal_lm::LlamaForCausalLm;

impl LlamaForCausalLm {
    /// The model with every posterior at one weight draw, as plain adapters: what a pass with one draw a batch under
    /// `noise` computes, without drawing again for every piece of text.
    ///
    /// Extensions of the baselines stay, and draw under the pass.
    #[must_use]
    pub fn drawn(&self, noise: NoiseKey) -> Self {
        let mut drawn = self.clone();
        drawn.visit_layers_mut(&mut |_, layer| {
            let key = noise.for_module(layer.noise_id());
            layer.edit(|adapter| {
                let Some([a, b]) = draw(adapter, key) else { return };
                adapter.take_posterior();
                (adapter.a, adapter.b) = (fixed(a), fixed(b));
            });
        });
        drawn
    }

    /// The model with every posterior at several weight draws side by side, as ensemble members that share a batch: rows
    /// `m·n .. (m+1)·n` are answered by draw `m`, as a pass under `keys[m]` answers them.
    ///
    /// The base product of all draws is one product, and nothing is drawn again for another piece of text.
    ///
    /// # Errors
    ///
    /// [`lrvd_burn::Error`] if a layer cannot hold members.
    pub fn drawn_together(&self, keys: &[NoiseKey]) -> Result<Self, lrvd_burn::Error> {
        let (mut drawn, mut outcome) = (self.clone(), Ok(()));
        drawn.visit_layers_mut(&mut |path, layer| {
            let Some(adapter) = layer.low_rank().cloned() else { return };
            let draws: Option<Vec<[Tensor<2>; 2]>> =
                keys.iter().map(|key| draw(&adapter, key.for_module(layer.noise_id()))).collect();
            let Some(draws) = draws.filter(|draws| !draws.is_empty()) else { return };
            let (a, b): (Vec<_>, Vec<_>) = draws.into_iter().map(|[a, b]| (a, b)).unzip();
            let initial_rank = layer.slot().map_or(adapter.rank(), |slot| slot.initial_rank);
            let members = AdapterMembers {
                a: fixed(Tensor::stack(a, 0)),
                b: fixed(Tensor::stack(b, 0)),
                scaling: adapter.scaling,
                dropout: 0.0,
            };
            if outcome.is_ok() {
                outcome = layer.attach(path, members, initial_rank);
            }
        });
        outcome.map(|()| drawn)
    }
}

/// The factors at a draw; `None` of an adapter without a posterior.
fn draw(adapter: &LowRankAdapter, key: NoiseKey) -> Option<[Tensor<2>; 2]> {
    let posterior = adapter.posterior()?;
    let (a, b) = (adapter.a.val().without_autodiff(), adapter.b.val().without_autodiff());
    let (std_a, std_b) = posterior.deviations(&a, &b);
    let a = at(a, Some(std_a), key.on_stream(Stream::WEIGHT_A));
    Some([a, at(b, std_b, key.on_stream(Stream::WEIGHT_B))])
}

/// One draw of a factor.
fn at(mean: Tensor<2>, std: Option<Tensor<2>>, key: NoiseKey) -> Tensor<2> {
    match std {
        Some(std) => {
            mean.clone() + standard_normal(&mean, mean.dims(), key) * std.without_autodiff()
        }
        None => mean,
    }
}

fn fixed<const D: usize>(value: Tensor<D>) -> Param<Tensor<D>> {
    Param::from_tensor(value).set_require_grad(false)
}
