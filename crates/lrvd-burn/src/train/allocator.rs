//! AdaLoRA's budget allocation on a model: sensitivities in, masked singular values out.

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use lrvd_core::adalora::{
    AdaLoraAllocator, AdaLoraConfig, AdaLoraState, Phase, TripletShape, TripletValues,
};

use crate::adapter::Extension;
use crate::model::{NamedModule, adapters};
use crate::optimizer::NamedGradients;
use crate::parameters::{replace, values};

/// Keeps the square root differentiable for factors that are exactly orthonormal.
const NORM_FLOOR: f64 = 1e-30;

/// The allocator of one training run.
///
/// # References
///
/// Zhang et al. 2023, arXiv:2303.10512; order of operations as in PEFT.
#[derive(Clone, Debug)]
pub struct BudgetAllocator {
    paths: Vec<String>,
    allocator: AdaLoraAllocator,
}

impl BudgetAllocator {
    /// An allocator over the AdaLoRA adapters of `model`, in the model's order.
    pub fn new(config: AdaLoraConfig, model: &impl NamedModule) -> Result<Self, lrvd_core::Error> {
        let (paths, shapes) = shapes(model);
        Ok(Self { paths, allocator: AdaLoraAllocator::new(config, shapes)? })
    }

    /// An allocator that continues from `state`.
    pub fn from_state(
        config: AdaLoraConfig,
        model: &impl NamedModule,
        state: AdaLoraState,
    ) -> Result<Self, lrvd_core::Error> {
        let (paths, shapes) = shapes(model);
        Ok(Self { paths, allocator: AdaLoraAllocator::from_state(config, shapes, state)? })
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
        self.state().mask.as_deref()
    }

    /// Advances the averages with the gradients of step `step` and zeroes the singular values that
    /// the budget leaves out.
    ///
    /// Call it after the optimizer's update with the gradients that the update used. A model whose adapters went or
    /// shrank is an error.
    pub fn update(
        &mut self,
        step: u32,
        model: &mut impl NamedModule,
        gradients: &NamedGradients,
    ) -> Result<Phase, lrvd_core::Error> {
        let (config, triplets) = (self.allocator.config(), triplets(model));
        if triplets.len() != self.paths.len() {
            return Err(lrvd_core::Error::length("model", triplets.len(), self.paths.len()));
        }
        for (module, triplet) in triplets.iter().enumerate() {
            let rank = triplet.e.dims()[0];
            if rank != config.init_r {
                let name = format!("E of module {module}");
                return Err(lrvd_core::Error::length(name, rank, config.init_r));
            }
        }
        let hosts: Vec<_> = if config.reads_gradients(step) {
            triplets.iter().map(|triplet| triplet.read(gradients)).collect()
        } else {
            Vec::new()
        };
        let hosts: Vec<TripletValues<'_>> = hosts
            .iter()
            .map(|triplet| triplet.each_ref().map(|pair| pair.each_ref().map(Vec::as_slice)))
            .collect();
        let phase = self.allocator.update(step, &hosts)?;
        if let Some(mask) = self.mask().filter(|_| phase != Phase::Rest) {
            let by_path: BTreeMap<&str, &Vec<bool>> =
                self.paths.iter().map(String::as_str).zip(mask).collect();
            model.visit_layers_mut(&mut |path, layer| {
                let Some(mask) = by_path.get(path) else { return };
                layer.edit(|adapter| {
                    let Some(Extension::SingularValues(e)) = &mut adapter.extension else { return };
                    let old = e.val();
                    let keep: Vec<f32> = mask.iter().map(|&k| f32::from(u8::from(k))).collect();
                    let keep = TensorData::new(keep, [mask.len()]);
                    let keep = Tensor::from_data(keep, (&old.device().inner(), old.dtype()));
                    replace(e, old.without_autodiff() * keep);
                });
            });
        }
        Ok(phase)
    }

    /// Cuts every adapter to the directions that the last mask keeps.
    pub fn compact(&self, model: &mut impl NamedModule) {
        let Some(mask) = self.mask() else { return };
        let by_path: BTreeMap<&str, &Vec<bool>> =
            self.paths.iter().map(String::as_str).zip(mask).collect();
        model.visit_layers_mut(&mut |path, layer| {
            let Some(mask) = by_path.get(path) else { return };
            let kept: Vec<usize> = (0..mask.len()).filter(|&i| mask[i]).collect();
            if kept.len() < layer.rank() {
                layer.select_ranks(&kept);
            }
        });
    }
}

/// One AdaLoRA adapter.
struct Triplet {
    path: String,
    a: Tensor<2>,
    e: Tensor<1>,
    b: Tensor<2>,
}

impl Triplet {
    /// Values and gradients of A `[rank, d_input]`, E and B `[d_output, rank]`: PEFT's layout.
    fn read(&self, gradients: &NamedGradients) -> [[Vec<f64>; 2]; 3] {
        let gradient = |name: &str| gradients.get(&format!("{}.{name}", self.path)).cloned();
        let of = |name: &str, factor: &Tensor<2>| {
            let slope = gradient(name).map_or_else(
                || vec![0.0; factor.shape().num_elements()],
                |g| values(g.reshape(factor.dims()).transpose()),
            );
            [values(factor.clone().transpose()), slope]
        };
        let slope = gradient("lora_E").map_or_else(|| vec![0.0; self.e.dims()[0]], values);
        [of("lora_A", &self.a), [values(self.e.clone()), slope], of("lora_B", &self.b)]
    }
}

fn triplets(model: &impl NamedModule) -> Vec<Triplet> {
    let adapters = adapters(model).into_iter();
    let triplet = adapters.filter_map(|attached| {
        let adapter = attached.adapter.as_ref()?;
        let (a, e, b) = (adapter.a.val(), adapter.singular_values()?.val(), adapter.b.val());
        Some(Triplet { path: attached.path.to_string(), a, e, b })
    });
    triplet.collect()
}

fn shapes(model: &impl NamedModule) -> (Vec<String>, Vec<TripletShape>) {
    let shape = |a: &Tensor<2>, b: &Tensor<2>| {
        let (d_input, d_output) = (a.dims()[0], b.dims()[1]);
        TripletShape { d_input, d_output }
    };
    triplets(model).into_iter().map(|t| (t.path, shape(&t.a, &t.b))).unzip()
}

/// Mean over the factors of all AdaLoRA adapters of `‖AAᵀ − I‖_F` and `‖BᵀB − I‖_F`, `[1]`.
///
/// The norm is not squared, as in the reference implementation. `None` without AdaLoRA adapters.
pub fn orthogonality(model: &impl NamedModule) -> Option<Tensor<1>> {
    let norms: Vec<Tensor<1>> = triplets(model)
        .into_iter()
        .flat_map(|Triplet { a, b, .. }| {
            let (rank, device) = (a.dims()[1], a.clone().without_autodiff().device());
            let eye = Tensor::<2>::eye(rank, &device).cast(a.dtype());
            let grams = [a.clone().transpose().matmul(a), b.clone().matmul(b.transpose())];
            grams.map(|gram| (gram - eye.clone()).square().sum().add_scalar(NORM_FLOOR).sqrt())
        })
        .collect();
    // Not a division: Burn's gradient of one rounds the reciprocal to single precision.
    let weight = (norms.len() as f64).recip();
    norms.into_iter().reduce(|sum, norm| sum + norm).map(|sum| sum.mul_scalar(weight))
}
