//! Layers with noise per entry or on scales, and what their passes are computed from.

use burn::tensor::DType;
use lrvd_burn::adapter::{AdaptedLinear, ElementGaussian, Extension, ScaleGaussian};
use lrvd_burn::sampling::{DrawPer, Scheme};
use lrvd_core::baselines::StdMap;
use lrvd_core::noise::NoiseKey;

use super::by_hand::Sizes;
use super::{
    D_INPUT, D_OUTPUT, RANK, SCALING, host, host_adapter, layer, numbers, parameter, product,
};

/// One draw of the weights for all tokens of a batch, and one for each sequence.
pub(crate) const WEIGHTS: [Scheme; 2] =
    [Scheme::Weights(DrawPer::Batch), Scheme::Weights(DrawPer::Sequence)];

/// Sizes of the layers here.
pub(crate) const SIZES: Sizes =
    Sizes { d_input: D_INPUT, rank: RANK, d_output: D_OUTPUT, scaling: SCALING };

pub(crate) fn key() -> NoiseKey {
    NoiseKey::new(0xabc).at_step(3)
}

pub(crate) fn element_noise(map: StdMap, both: bool, dtype: DType) -> Extension {
    let rho =
        |seed, shape: [usize; 2]| parameter(&numbers(seed, shape[0] * shape[1]), shape, dtype);
    let b = both.then(|| rho(32, [RANK, D_OUTPUT]));
    Extension::Gaussian(ElementGaussian::new(map, rho(31, [D_INPUT, RANK]), b))
}

pub(crate) fn scale_noise(dtype: DType) -> Extension {
    Extension::Scale(ScaleGaussian {
        log_mean: parameter(&numbers(33, RANK), [RANK], dtype),
        log_std: parameter(&numbers(34, RANK), [RANK], dtype),
    })
}

pub(crate) fn extended(extension: Extension, dtype: DType) -> AdaptedLinear {
    let mut layer = layer("net.first", &host_adapter(None, 10), dtype);
    layer.extend(Some(extension)).unwrap();
    layer
}

pub(crate) fn gaussian(layer: &AdaptedLinear) -> &ElementGaussian {
    match layer.extension() {
        Some(Extension::Gaussian(noise)) => noise,
        _ => unreachable!("the tests put it there"),
    }
}

pub(crate) fn scales(layer: &AdaptedLinear) -> &ScaleGaussian {
    match layer.extension() {
        Some(Extension::Scale(scales)) => scales,
        _ => unreachable!("the tests put it there"),
    }
}

pub(crate) fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Base product with bias.
pub(crate) fn base_of(layer: &AdaptedLinear, x: &[f64]) -> Vec<f64> {
    let bias = host(layer.bias.as_ref().unwrap().val());
    let out = product(x, &host(layer.weight.base()), D_INPUT, D_OUTPUT);
    out.iter().enumerate().map(|(i, o)| o + bias[i % D_OUTPUT]).collect()
}
