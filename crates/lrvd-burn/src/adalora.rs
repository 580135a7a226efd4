//! AdaLoRA's budget allocation on a model: sensitivities in, masked singular values out.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use lrvd_core::adalora::{
    AdaLoraAllocator, AdaLoraConfig, AdaLoraState, Allocation, TripletShape, TripletValues,
};

use crate::adapter::LowRankAdapter;
use crate::host::values;
use crate::model::NamedModule;
use crate::optimizer::NamedGradients;
use crate::parameters::replace;

/// Keeps the square root differentiable for factors that are exactly orthonormal.
const NORM_FLOOR: f64 = 1e-30;

/// The allocator of one training run.
///
/// # References
///
/// Zhang et al. 2023, arXiv:2303.10512; order of operations as in PEFT.
#[derive(Clone, Debug)]
pub struct AdaLora {
    paths: Vec<String>,
    allocator: AdaLoraAllocator,
    mask: Option<Vec<Vec<bool>>>,
}

/// Host copies of one triplet and its gradients, in PEFT's layout: of A, E and B.
type Triplet = [[Vec<f64>; 2]; 3];

impl AdaLora {
    /// An allocator over the AdaLoRA adapters of `model`, in the model's order.
    pub fn new(config: AdaLoraConfig, model: &impl NamedModule) -> Result<Self, lrvd_core::Error> {
        let (paths, shapes) = triplets(model);
        Ok(Self { paths, allocator: AdaLoraAllocator::new(config, shapes)?, mask: None })
    }

    /// An allocator that continues from `state`.
    pub fn from_state(
        config: AdaLoraConfig,
        model: &impl NamedModule,
        state: AdaLoraState,
    ) -> Result<Self, lrvd_core::Error> {
        let (paths, shapes) = triplets(model);
        let mask = state.mask.clone();
        let allocator = AdaLoraAllocator::from_state(config, shapes, state)?;
        Ok(Self { paths, allocator, mask })
    }

    /// Everything that a checkpoint must hold.
    pub fn state(&self) -> &AdaLoraState {
        self.allocator.state()
    }

    /// Paths of the adapters, in the order of masks and scores.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Triplet scores by adapter.
    pub fn scores(&self) -> Vec<Vec<f64>> {
        self.allocator.scores()
    }

    /// Directions that the last mask keeps, by adapter; `None` before the first mask.
    pub fn mask(&self) -> Option<&[Vec<bool>]> {
        self.mask.as_deref()
    }

    /// Advances the averages with the gradients of step `step` and zeroes the singular values that
    /// the budget leaves out.
    ///
    /// Call it after the optimiser's update with the gradients that the update used.
    pub fn update(
        &mut self,
        step: u32,
        model: &mut impl NamedModule,
        gradients: &NamedGradients,
    ) -> Result<Allocation, lrvd_core::Error> {
        self.check(model)?;
        let hosts = if self.allocator.config().reads_gradients(step) {
            read_triplets(model, gradients)
        } else {
            Vec::new()
        };
        let triplets: Vec<TripletValues<'_, f64>> = hosts
            .iter()
            .map(|triplet| triplet.each_ref().map(|pair| pair.each_ref().map(Vec::as_slice)))
            .collect();
        let allocation = self.allocator.update(step, &triplets)?;
        if let Some(mask) = &allocation.mask {
            if allocation.masked_now {
                self.apply(model, mask);
            }
            self.mask = Some(mask.clone());
        }
        Ok(allocation)
    }

    /// Zeroes the singular values outside the last mask once more.
    pub fn mask_again(&self, model: &mut impl NamedModule) {
        if let Some(mask) = &self.mask {
            self.apply(model, mask);
        }
    }

    /// Cuts every adapter to the directions that the last mask keeps.
    pub fn compact(&self, model: &mut impl NamedModule) {
        let Some(mask) = &self.mask else { return };
        let kept: BTreeMap<&str, Vec<usize>> = self
            .paths
            .iter()
            .zip(mask)
            .map(|(path, mask)| {
                let kept = mask.iter().enumerate().filter(|(_, keep)| **keep).map(|(i, _)| i);
                (path.as_str(), kept.collect())
            })
            .collect();
        model.visit_layers_mut(&mut |path, layer| {
            if let Some(kept) = kept.get(path)
                && kept.len() < layer.rank()
            {
                layer.select_ranks(kept);
            }
        });
    }

    /// Rejects a model whose adapters went or shrank.
    fn check(&self, model: &impl NamedModule) -> Result<(), lrvd_core::Error> {
        let mut found = Vec::new();
        model.visit_layers(&mut |_, layer| {
            if let Some(e) = layer.low_rank().and_then(LowRankAdapter::singular_values) {
                found.push(e.val().dims()[0]);
            }
        });
        let expected = self.paths.len();
        if found.len() != expected {
            return Err(lrvd_core::Error::length("model", found.len(), expected));
        }
        let expected = self.allocator.config().init_r;
        match found.into_iter().enumerate().find(|(_, rank)| *rank != expected) {
            Some((module, found)) => {
                Err(lrvd_core::Error::length(format!("E of module {module}"), found, expected))
            }
            None => Ok(()),
        }
    }

    fn apply(&self, model: &mut impl NamedModule, mask: &[Vec<bool>]) {
        let by_path: BTreeMap<&str, &Vec<bool>> =
            self.paths.iter().map(String::as_str).zip(mask).collect();
        model.visit_layers_mut(&mut |path, layer| {
            let Some(mask) = by_path.get(path) else { return };
            layer.edit(|adapter| {
                let Some(e) = adapter.singular_values_mut() else { return };
                let old = e.val();
                if old.dims()[0] != mask.len() {
                    // Cut to the mask by `compact`: nothing is left to zero.
                    return;
                }
                let device = old.device().inner();
                let keep: Vec<f32> = mask.iter().map(|&k| f32::from(u8::from(k))).collect();
                let n = keep.len();
                let keep = Tensor::from_data(TensorData::new(keep, [n]), (&device, old.dtype()));
                replace(e, old.without_autodiff() * keep);
            });
        });
    }
}

fn triplets(model: &impl NamedModule) -> (Vec<String>, Vec<TripletShape>) {
    let (mut paths, mut shapes) = (Vec::new(), Vec::new());
    model.visit_layers(&mut |path, layer| {
        if layer.low_rank().is_some_and(|a| a.singular_values().is_some()) {
            paths.push(path.to_owned());
            shapes.push(TripletShape { d_input: layer.d_input(), d_output: layer.d_output() });
        }
    });
    (paths, shapes)
}

fn read_triplets(model: &impl NamedModule, gradients: &NamedGradients) -> Vec<Triplet> {
    let mut hosts = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let Some(e) = adapter.singular_values() else { return };
        let (d_input, rank, d_output) = (adapter.d_input(), adapter.rank(), adapter.d_output());
        let gradient = |name: &str| gradients.get(&format!("{path}.{name}")).cloned();
        let zeros = |n: usize| vec![0.0; n];
        // PEFT's layout: A is `[rank, d_input]`, B is `[d_output, rank]`.
        hosts.push([
            [
                values(adapter.a.val().transpose()),
                gradient("lora_A").map_or_else(
                    || zeros(rank * d_input),
                    |g| values(g.reshape([d_input, rank]).transpose()),
                ),
            ],
            [values(e.val()), gradient("lora_E").map_or_else(|| zeros(rank), values)],
            [
                values(adapter.b.val().transpose()),
                gradient("lora_B").map_or_else(
                    || zeros(rank * d_output),
                    |g| values(g.reshape([rank, d_output]).transpose()),
                ),
            ],
        ]);
    });
    hosts
}

/// Mean over the factors of all AdaLoRA adapters of `‖AAᵀ − I‖_F` and `‖BᵀB − I‖_F`, `[1]`.
///
/// The norm is not squared, as in the reference implementation. `None` without AdaLoRA adapters.
pub fn orthogonality(model: &impl NamedModule) -> Option<Tensor<1>> {
    let mut sum: Option<Tensor<1>> = None;
    let mut count = 0;
    model.visit_layers(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        if adapter.singular_values().is_none() {
            return;
        }
        for norm in deviations(adapter) {
            count += 1;
            sum = Some(match sum.take() {
                Some(total) => total + norm,
                None => norm,
            });
        }
    });
    // Not a division: Burn's gradient of one rounds the reciprocal to single precision.
    sum.map(|total| total.mul_scalar(f64::from(count).recip()))
}

fn deviations(adapter: &LowRankAdapter) -> [Tensor<1>; 2] {
    let (a, b) = (adapter.a.val(), adapter.b.val());
    let device = a.clone().without_autodiff().device();
    let eye = Tensor::<2>::eye(adapter.rank(), &device).cast(a.dtype());
    let norm = |gram: Tensor<2>| (gram - eye.clone()).square().sum().add_scalar(NORM_FLOOR).sqrt();
    [norm(a.clone().transpose().matmul(a)), norm(b.clone().matmul(b.transpose()))]
}
