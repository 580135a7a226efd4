//! Element-wise activation functions.

use burn::tensor::{Tensor, activation};
use lrvd_burn::ops::gelu;
use serde::Deserialize;

/// An activation, by transformers' name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Activation {
    /// `x · Phi(x)` with the exact `Phi`.
    #[serde(rename = "gelu")]
    Gelu,
    /// `x/2 · (1 + tanh(sqrt(2/π) · (x + 0.044715·x³)))`.
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh")]
    GeluTanh,
    /// `max(x, 0)`.
    #[serde(rename = "relu")]
    Relu,
    /// Hyperbolic tangent.
    #[serde(rename = "tanh")]
    Tanh,
}

impl Activation {
    /// Names of the file for those that a feed-forward layer has.
    pub(super) const HIDDEN: [&str; 4] = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"];

    /// Applies the function to every value.
    pub(super) fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Gelu => gelu(x),
            Self::GeluTanh => {
                let cube = x.clone() * x.clone() * x.clone() * 0.044_715;
                let slope = (2.0 / std::f64::consts::PI).sqrt();
                x.clone() * (activation::tanh((x + cube) * slope) + 1.0) * 0.5
            }
            Self::Relu => activation::relu(x),
            Self::Tanh => activation::tanh(x),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{DType, Device, TensorData};
    use lrvd_burn::parameters::values;

    use super::*;

    /// The values are torch's, `gelu(x, approximate='tanh')` in double precision.
    #[test]
    fn the_tanh_form_of_gelu_is_that_of_torch() {
        let expected = [
            -0.045_402_305_912_224_94,
            -0.154_285_990_174_856_06,
            0.0,
            0.841_191_990_608_276_8,
            2.996_362_607_918_227,
        ];
        let x = TensorData::new(vec![-2.0, -0.5, 0.0, 1.0, 3.0], [5]);
        let x = Tensor::<1>::from_data(x, (&Device::flex(), DType::F64));
        for (found, expected) in values(Activation::GeluTanh.apply(x)).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
    }
}
