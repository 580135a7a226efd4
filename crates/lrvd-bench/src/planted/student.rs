//! The frozen network with layers that can carry adapters.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use lrvd_burn::train::Model;
use lrvd_burn::{AdaptedLinear, Pass, adapted_model};
use lrvd_core::numeric::dense::transpose;

use super::task::{CLASSES, HIDDEN, PlantedTask};

/// `x ↦ readout·tanh(layer·…)`: what the planted network was before the update.
#[derive(Module, Debug)]
pub struct Student {
    layers: Vec<AdaptedLinear>,
    readout: AdaptedLinear,
}

adapted_model!(Student { layers, readout });

impl Model for Student {
    type Input = Tensor<2>;

    fn logits(&self, input: &Tensor<2>, pass: &Pass) -> Tensor<2> {
        let forward = |hidden: Tensor<2>, layer: &AdaptedLinear| layer.forward(hidden, pass).tanh();
        self.readout.forward(self.layers.iter().fold(input.clone(), forward), pass)
    }
}

impl Student {
    /// The frozen network of `task`; layers are called `layer.0`, `layer.1`.
    pub fn new(task: &PlantedTask, device: &Device) -> Self {
        let layer = |path: &str, values: &[f64], [n_out, n_in]: [usize; 2]| {
            let data = TensorData::new(transpose(values, n_out, n_in), [n_in, n_out]);
            AdaptedLinear::new(path, Tensor::from_data(data, device), None)
        };
        let layers = task.layers.iter().enumerate().map(|(l, planted)| {
            layer(&format!("layer.{l}"), &planted.frozen, [HIDDEN, planted.width])
        });
        Self {
            layers: layers.collect(),
            readout: layer("readout", &task.readout, [CLASSES, HIDDEN]),
        }
    }
}
