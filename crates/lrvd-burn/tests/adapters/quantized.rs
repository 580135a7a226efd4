//! Adapters on quantised base weights.

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, BaseBits};
use lrvd_burn::nn;
use lrvd_burn::{AdapterConfig, AdapterTargets, DrawPer, Pass, Scheme, attach};
use lrvd_core::noise::NoiseKey;
use rstest::rstest;

use crate::support::{host, numbers, tensor};

const D_IN: usize = 64;
const D_OUT: usize = 5;

/// A layer of random weights with an adapter.
fn layer(dtype: DType) -> AdaptedLinear {
    let weight = tensor(&numbers(3, D_IN * D_OUT), [D_IN, D_OUT], dtype);
    let bias = tensor(&numbers(4, D_OUT), [D_OUT], dtype);
    let mut layer = nn::Linear::new(weight, Some(bias));
    let config = AdapterConfig { rank: 3, ..AdapterConfig::default() };
    config.attach(&mut layer, "layer", NoiseKey::new(1)).unwrap();
    layer
}

fn input(dtype: DType) -> Tensor<3> {
    tensor(&numbers(5, 2 * 3 * D_IN), [2, 3, D_IN], dtype)
}

/// Blocks of 32 inputs of an output share a scale.
fn rounded(weight: &[f64], largest: f64) -> Vec<f64> {
    let mut out = weight.to_vec();
    for column in 0..D_OUT {
        for block in 0..D_IN / 32 {
            let at = |i: usize| (block * 32 + i) * D_OUT + column;
            let scale = (0..32).map(|i| weight[at(i)].abs()).fold(0.0, f64::max) / largest;
            for i in 0..32 {
                out[at(i)] = scale * (weight[at(i)] / scale).round();
            }
        }
    }
    out
}

#[rstest]
#[case(BaseBits::Q8, 127.0)]
#[case(BaseBits::Q4, 7.0)]
fn a_quantised_base_is_its_rounded_weight(#[case] bits: BaseBits, #[case] largest: f64) {
    let plain = layer(DType::F32);
    let quantized = plain.clone().quantized(bits).unwrap();
    assert!(matches!(quantized.weight.base().dtype(), DType::QFloat(_)));
    let expected = rounded(&host(plain.weight.base()), largest);
    let found = host(quantized.weight.base().dequantize());
    let step = 1e-6 * largest.recip();
    assert!(found.iter().zip(&expected).all(|(x, y)| (x - y).abs() < step.max(1e-6)));
    // Again is the same.
    let again = quantized.clone();
    let mut again = AdaptedLinear::new(again.weight.base().dequantize(), None);
    again = again.quantized(bits).unwrap();
    assert_eq!(host(again.weight.base().dequantize()), found);

    let mut reference = plain;
    reference.set_weight(quantized.weight.base().dequantize());
    for scheme in [Scheme::Mean, Scheme::Weights(DrawPer::Sequence), Scheme::Nested] {
        let pass = Pass::sampled(scheme, NoiseKey::new(2));
        let run = |layer: &AdaptedLinear| {
            let x = input(DType::F32).autodiff().require_grad();
            let out = layer.forward_with(x.clone(), &pass);
            let gradients = (out.clone() * out.clone().detach()).sum().backward();
            let adapter = layer.low_rank().unwrap();
            let of_a = adapter.a.val().grad(&gradients).unwrap();
            (host(out), host(x.grad(&gradients).unwrap()), host(of_a))
        };
        let close = |x: &[f64], y: &[f64]| {
            let most = y.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
            x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-6 * most)
        };
        let (found, expected) = (run(&quantized), run(&reference));
        assert!(close(&found.0, &expected.0) && close(&found.1, &expected.1), "{scheme:?}");
        assert!(close(&found.2, &expected.2), "{scheme:?}");
    }
    // What is merged is in full precision.
    let merged = quantized.clone().merge();
    let [x, y] = [merged.forward(input(DType::F32)), quantized.forward(input(DType::F32))];
    assert!((x - y).abs().max().into_scalar::<f32>() < 1e-4);
}

#[test]
fn inputs_that_are_no_whole_number_of_blocks_are_an_error() {
    let layer = nn::Linear::new(tensor(&numbers(1, 12), [6, 2], DType::F32), None);
    let error = layer.quantized(BaseBits::Q8).unwrap_err().to_string();
    assert_eq!(error, "a weight `[6, 2]` cannot be quantised: expected a multiple of 32 inputs");
}

#[derive(Module, Debug)]
struct Pair {
    composed: burn::nn::Linear,
    applied: nn::Linear,
}

#[test]
fn a_composed_weight_stands_on_a_quantised_base_too() {
    let device = Device::flex();
    let composed = burn::nn::LinearConfig::new(D_IN, D_OUT).init(&device);
    let applied = nn::Linear::from(composed.clone()).quantized(BaseBits::Q8).unwrap();
    let composed = burn::nn::Linear { weight: applied.weight.clone(), bias: composed.bias };
    let config = AdapterConfig { rank: 2, ..AdapterConfig::default() };
    let pair = attach(Pair { composed, applied }, config, AdapterTargets::AllLinear, 1).unwrap();
    for layer in [pair.composed.weight.base(), pair.applied.weight.base()] {
        assert!(matches!(layer.dtype(), DType::QFloat(_)));
    }
    let x = input(DType::F32);
    let out = host(pair.composed.forward(x));
    assert!(out.iter().all(|value| value.is_finite()));
}
