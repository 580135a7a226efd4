//! What the adapter tests share: numbers, layers, the core's answer, and a model of one's own.

#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod by_hand;
pub(crate) mod net;
pub(crate) mod noisy;
pub(crate) mod reference;

use burn::module::Param;
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use lrvd_burn::adapter::{
    AdaptedLinear, ElementParameters, Extension, LowRankAdapter, Posterior, RankParameters,
};
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream, fill_uniform};

use lrvd_burn::sampling::{DrawPer, Scheme};

/// Distinct sizes, so that a transposed or exchanged axis cannot pass.
pub(crate) const BATCH: usize = 2;
pub(crate) const TOKENS: usize = 3;
pub(crate) const RANK: usize = 4;
pub(crate) const D_INPUT: usize = 5;
pub(crate) const D_OUTPUT: usize = 7;
pub(crate) const SCALING: f64 = 1.75;

/// Every scheme and both values of its switch.
pub(crate) const SCHEMES: [Scheme; 6] = [
    Scheme::Mean,
    Scheme::Weights(DrawPer::Sequence),
    Scheme::Weights(DrawPer::Batch),
    Scheme::MomentMatched(CrossTerm::Exact),
    Scheme::MomentMatched(CrossTerm::Omitted),
    Scheme::Nested,
];

/// `n` numbers in (-1, 1), different for every `seed`.
pub(crate) fn numbers(seed: u64, n: usize) -> Vec<f64> {
    let mut values = vec![0.0f32; n];
    fill_uniform(NoiseKey::new(seed).on_stream(Stream::DATA), 0, &mut values);
    values.into_iter().map(|v| 2.0 * f64::from(v) - 1.0).collect()
}

/// A constant on the CPU.
pub(crate) fn tensor<const D: usize>(values: &[f64], shape: [usize; D], dtype: DType) -> Tensor<D> {
    let data = TensorData::new(values.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (&Device::flex(), dtype))
}

/// A tensor that gets a gradient.
pub(crate) fn leaf<const D: usize>(values: &[f64], shape: [usize; D], dtype: DType) -> Tensor<D> {
    tensor(values, shape, dtype).autodiff().require_grad()
}

/// Inputs of a layer, `[BATCH, TOKENS, D_INPUT]`, that get a gradient.
pub(crate) fn inputs(dtype: DType) -> Tensor<3> {
    leaf(&numbers(1, BATCH * TOKENS * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype)
}

/// A trainable parameter.
pub(crate) fn parameter<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: DType,
) -> Param<Tensor<D>> {
    Param::from_tensor(leaf(values, shape, dtype))
}

/// The values in row-major order, read at once.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().convert_dtype(DType::F64).try_into_vec::<f64>().unwrap()
}

/// The gradient of `tensor`, zeros where the loss does not reach it.
pub(crate) fn gradient<const D: usize>(tensor: &Tensor<D>, gradients: &Gradients) -> Vec<f64> {
    match tensor.grad(gradients) {
        Some(gradient) => host(gradient),
        None => vec![0.0; tensor.dims().iter().product()],
    }
}

/// Slopes of `value` by every entry of the leaves, from central differences of fourth order.
///
/// The step is 7e-4 of an entry, or of 0.05 if that is larger: what is left is some 1e-9 of the largest slope.
pub(crate) fn slopes(leaves: &[Vec<f64>], value: impl Fn(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
    let mut moved = leaves.to_vec();
    let mut slope = |i: usize, k: usize| {
        let step = 7e-4 * leaves[i][k].abs().max(0.05);
        let mut at = |steps: f64| {
            moved[i][k] = leaves[i][k] + steps * step;
            value(&moved)
        };
        let (near, far) = (at(1.0) - at(-1.0), at(2.0) - at(-2.0));
        moved[i][k] = leaves[i][k];
        (8.0 * near - far) / (12.0 * step)
    };
    let of_leaf = |(i, leaf): (usize, &Vec<f64>)| (0..leaf.len()).map(|k| slope(i, k)).collect();
    leaves.iter().enumerate().map(of_leaf).collect()
}

/// Relative error of [`slopes`] that tests of gradients allow for.
pub(crate) const SLOPES: f64 = 1e-8;

/// Asserts that gradients are the [`slopes`] of `value`, relative to the largest of each leaf.
#[track_caller]
pub(crate) fn close_to_slopes(
    what: &str,
    gradients: &[(&str, Vec<f64>)],
    leaves: &[Vec<f64>],
    tolerance: f64,
    value: impl Fn(&[Vec<f64>]) -> f64,
) {
    assert_eq!(gradients.len(), leaves.len(), "{what}");
    for ((name, found), expected) in gradients.iter().zip(slopes(leaves, value)) {
        close(&format!("{what}: gradient for {name}"), found, &expected, tolerance.max(SLOPES));
    }
}

/// `⟨x, y⟩`.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// `[rows, columns]` to `[columns, rows]`.
pub(crate) fn transposed(values: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    assert_eq!(values.len(), rows * columns);
    (0..columns).flat_map(|j| (0..rows).map(move |i| values[i * columns + j])).collect()
}

/// `x [n, inner] · w [inner, width]`.
pub(crate) fn product(x: &[f64], w: &[f64], inner: usize, width: usize) -> Vec<f64> {
    let row = |x: &[f64]| -> Vec<f64> {
        (0..width).map(|o| (0..inner).map(|i| x[i] * w[i * width + o]).sum()).collect()
    };
    x.chunks(inner).flat_map(row).collect()
}

/// Largest distance relative to the largest expected number; infinite for a NaN.
pub(crate) fn distance(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len(), "number of values");
    let largest = expected.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    got.iter().zip(expected).fold(0.0, |worst: f64, (g, w)| {
        let d = (g - w).abs() / scale;
        if d.is_nan() { f64::INFINITY } else { worst.max(d) }
    })
}

#[track_caller]
pub(crate) fn close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    let d = distance(got, expected);
    assert!(d <= tolerance, "{what}: off by {d:e}, allowed {tolerance:e}\n{got:?}\n{expected:?}");
}

/// An adapter on the host, `[rank, d_input]` and `[rank, d_output]`, with values of every size.
///
/// Two log-variances lie outside their clamp where there is one per entry, one where there is one
/// per rank.
pub(crate) fn host_adapter(family: Option<VariationalFamily>, seed: u64) -> HostAdapter {
    let spread = |seed, n: usize| -> Vec<f64> {
        numbers(seed, n).into_iter().map(|v| 2.5 * v - 2.0).collect()
    };
    let per_rank = || vec![-3.1, 2.5, -1.2, -0.4];
    let noise = family.map(|family| match family {
        VariationalFamily::RankVariance => HostNoise::RankVariance(per_rank()),
        VariationalFamily::AsymRankVariance => HostNoise::AsymRankVariance(per_rank()),
        VariationalFamily::NoiseToSignal => HostNoise::NoiseToSignal(vec![-1.0, 0.5, -2.0, 2.5]),
        VariationalFamily::ElementVariance => {
            let (mut a, mut b) =
                (spread(seed + 3, RANK * D_INPUT), spread(seed + 4, RANK * D_OUTPUT));
            (a[6], b[11]) = (2.7, -21.0);
            HostNoise::ElementVariance { a, b }
        }
    });
    HostAdapter {
        rank: RANK,
        d_input: D_INPUT,
        d_output: D_OUTPUT,
        a: numbers(seed + 1, RANK * D_INPUT),
        b: numbers(seed + 2, RANK * D_OUTPUT),
        e: None,
        noise,
        scaling: SCALING,
    }
}

/// The adapter as a trainable module.
pub(crate) fn adapter(host: &HostAdapter, dtype: DType) -> LowRankAdapter {
    let (rank, d_input, d_output) = (host.rank, host.d_input, host.d_output);
    let per_rank = |v: &[f64]| RankParameters { value: parameter(v, [rank], dtype) };
    let of_a = |v: &[f64]| parameter(&transposed(v, rank, d_input), [d_input, rank], dtype);
    let of_b = |v: &[f64]| parameter(v, [rank, d_output], dtype);
    let posterior = host.noise.as_ref().map(|noise| match noise {
        HostNoise::RankVariance(v) => Posterior::RankVariance(per_rank(v)),
        HostNoise::NoiseToSignal(v) => Posterior::NoiseToSignal(per_rank(v)),
        HostNoise::AsymRankVariance(v) => Posterior::AsymRankVariance(per_rank(v)),
        HostNoise::ElementVariance { a, b } => {
            Posterior::ElementVariance(ElementParameters { a: of_a(a), b: of_b(b) })
        }
    });
    let singular_values = host.e.as_ref().map(|e| parameter(e, [rank], dtype));
    let mut adapter = LowRankAdapter::new(of_a(&host.a), of_b(&host.b), host.scaling);
    adapter.extension = match (posterior, singular_values) {
        (posterior, None) => posterior.map(Extension::Posterior),
        (None, Some(e)) => Some(Extension::SingularValues(e)),
        (Some(_), Some(_)) => unreachable!("no test asks for both"),
    };
    adapter
}

/// A frozen layer of the adapter's widths with a bias, at `path`.
pub(crate) fn base(path: &str, d_input: usize, d_output: usize, dtype: DType) -> AdaptedLinear {
    let seed = path.len() as u64;
    let weight = tensor(&numbers(90 + seed, d_input * d_output), [d_input, d_output], dtype);
    let bias = tensor(&numbers(80 + seed, d_output), [d_output], dtype);
    AdaptedLinear::new(weight, Some(bias))
}

/// [`base`] with the adapter on it.
pub(crate) fn layer(path: &str, host: &HostAdapter, dtype: DType) -> AdaptedLinear {
    let mut layer = base(path, host.d_input, host.d_output, dtype);
    layer.attach(path, adapter(host, dtype), host.rank).unwrap();
    layer
}

/// The adapter of a layer that has one.
pub(crate) fn of(layer: &AdaptedLinear) -> &LowRankAdapter {
    layer.low_rank().unwrap()
}
