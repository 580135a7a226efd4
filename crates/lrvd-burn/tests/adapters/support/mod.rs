//! Shared by the adapter tests: numbers, layers and comparisons.

#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod net;
pub(crate) mod reference;

/// What nearly every test uses.
pub(crate) mod prelude {
    pub(crate) use super::net::{Net, WIDTHS, check_trained, data, factors, optimizer, train_step};
    pub(crate) use super::reference::*;
    pub(crate) use super::*;
    pub(crate) use burn::module::{Module, Param};
    pub(crate) use burn::tensor::{DType, Gradients, Tensor};
    pub(crate) use lrvd_burn::adapter::{
        AdaptedLinear, AdapterConfig, AdapterKind, AdapterStream, ElementGaussian, Extension, Prior,
    };
    pub(crate) use lrvd_burn::host::{HostAdapter, HostNoise};
    pub(crate) use lrvd_burn::model::NamedModule;
    pub(crate) use lrvd_burn::optimizer::NamedGradients;
    pub(crate) use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
    pub(crate) use lrvd_core::baselines::StdMap;
    pub(crate) use lrvd_core::family::VariationalFamily;
    pub(crate) use lrvd_core::kl::KlReduction;
    pub(crate) use lrvd_core::moments::CrossTerm;
    pub(crate) use lrvd_core::noise::{NoiseKey, Stream};
    pub(crate) use rstest::rstest;
}

use burn::module::Param;
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use lrvd_burn::adapter::{
    AdaptedLinear, Adapter, ContextualGaussian, ElementGaussian, ElementParameters, Extension,
    LowRankAdapter, Posterior, RankParameters, ScaleGaussian,
};
use lrvd_burn::host::{HostAdapter, HostNoise};
use lrvd_burn::sampling::{DrawPer, Scheme};
use lrvd_core::baselines::StdMap;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::{NoiseKey, Stream, fill_uniform};

/// Distinct sizes, so that a transposed or exchanged axis cannot pass.
pub(crate) const BATCH: usize = 2;
pub(crate) const TOKENS: usize = 3;
pub(crate) const RANK: usize = 4;
pub(crate) const D_INPUT: usize = 5;
pub(crate) const D_OUTPUT: usize = 7;
pub(crate) const SCALING: f64 = 1.75;
/// Rows of [`inputs`].
pub(crate) const N: usize = BATCH * TOKENS;
/// Width of the hidden layer of [`context_noise`].
const HIDDEN: usize = 6;

/// Every scheme and both values of its switch.
pub(crate) const SCHEMES: [Scheme; 6] = [
    Scheme::Mean,
    Scheme::Weights(DrawPer::Sequence),
    Scheme::Weights(DrawPer::Batch),
    Scheme::MomentMatched(CrossTerm::Exact),
    Scheme::MomentMatched(CrossTerm::Omitted),
    Scheme::Nested,
];
/// One draw of the weights for all tokens of a batch, and one for each sequence.
pub(crate) const WEIGHTS: [Scheme; 2] =
    [Scheme::Weights(DrawPer::Batch), Scheme::Weights(DrawPer::Sequence)];

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
    leaf(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], dtype)
}

/// A trainable parameter.
pub(crate) fn parameter<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: DType,
) -> Param<Tensor<D>> {
    Param::from_tensor(leaf(values, shape, dtype))
}

/// A trainable parameter with [`numbers`].
pub(crate) fn random<const D: usize>(
    seed: u64,
    shape: [usize; D],
    dtype: DType,
) -> Param<Tensor<D>> {
    parameter(&numbers(seed, shape.iter().product()), shape, dtype)
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

/// Reads a gradient.
type Read = dyn Fn(&Gradients) -> Vec<f64>;

/// A tensor of any shape that gets a gradient, by name.
pub(crate) struct Tracked {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<f64>,
    gradient: Box<Read>,
}

impl Tracked {
    pub(crate) fn gradient(&self, gradients: &Gradients) -> Vec<f64> {
        (self.gradient)(gradients)
    }
}

pub(crate) fn tracked<const D: usize>(name: &'static str, tensor: Tensor<D>) -> Tracked {
    let values = host(tensor.clone());
    Tracked { name, values, gradient: Box::new(move |gradients| gradient(&tensor, gradients)) }
}

/// A, B and the parameters of the extension, in memory order.
pub(crate) fn leaves_of(layer: &AdaptedLinear) -> Vec<Tracked> {
    let adapter = match layer.adapter().unwrap() {
        Adapter::LowRank(adapter) => adapter,
        Adapter::Members(all) => {
            return vec![tracked("A", all.a.val()), tracked("B", all.b.val())];
        }
    };
    let mut all = vec![tracked("A", adapter.a.val()), tracked("B", adapter.b.val())];
    all.extend(match &adapter.extension {
        None => Vec::new(),
        Some(Extension::SingularValues(e)) => vec![tracked("E", e.val())],
        Some(Extension::Posterior(Posterior::ElementVariance(p))) => {
            vec![tracked("noise of A", p.a.val()), tracked("noise of B", p.b.val())]
        }
        Some(Extension::Posterior(
            Posterior::RankVariance(p)
            | Posterior::NoiseToSignal(p)
            | Posterior::AsymRankVariance(p),
        )) => vec![tracked("noise", p.value.val())],
        Some(Extension::Gaussian(noise)) => {
            let b = noise.b.as_ref().map(|b| tracked("noise of B", b.val()));
            [tracked("noise of A", noise.a.val())].into_iter().chain(b).collect()
        }
        Some(Extension::Scale(scales)) => vec![
            tracked("log_mean", scales.log_mean.val()),
            tracked("log_std", scales.log_std.val()),
        ],
        Some(Extension::Contextual(net)) => vec![
            tracked("w1", net.w1.val()),
            tracked("b1", net.b1.val()),
            tracked("w2", net.w2.val()),
            tracked("b2", net.b2.val()),
        ],
    });
    all
}

/// The input and [`leaves_of`] the layer.
pub(crate) fn leaves_with<const D: usize>(x: Tensor<D>, layer: &AdaptedLinear) -> Vec<Tracked> {
    [tracked("x", x)].into_iter().chain(leaves_of(layer)).collect()
}

/// The gradients of [`leaves_of`] the layer.
pub(crate) fn layer_gradients(layer: &AdaptedLinear, gradients: &Gradients) -> Vec<Vec<f64>> {
    leaves_of(layer).iter().map(|leaf| leaf.gradient(gradients)).collect()
}

/// Slopes of `value` by every entry of the leaves, from central differences of fourth order.
///
/// The step is 7e-4 of an entry, or of 0.05 if that is larger: what is left is some 1e-9 of the largest slope.
fn slopes(leaves: &[Vec<f64>], value: impl Fn(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
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

/// Relative error of central differences that tests of gradients allow for.
const SLOPES: f64 = 1e-8;

/// Asserts that gradients are the slopes of `value`, relative to the largest of each leaf.
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

/// Asserts that `out` is `reference` of the leaves' values, and that the leaves' gradients are its slopes, for a
/// random direction of `out`.
#[track_caller]
pub(crate) fn check<const D: usize>(
    what: &str,
    out: Tensor<D>,
    leaves: &[Tracked],
    tolerance: f64,
    reference: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) -> Gradients {
    let values: Vec<Vec<f64>> = leaves.iter().map(|leaf| leaf.values.clone()).collect();
    close(&format!("{what}: output"), &host(out.clone()), &reference(&values), tolerance);
    let weights = tensor(&numbers(2, out.shape().num_elements()), out.dims(), out.dtype());
    let gradients = (out * weights.clone()).sum().backward();
    let found = leaves.iter().map(|leaf| (leaf.name, leaf.gradient(&gradients)));
    let (found, weights) = (found.collect::<Vec<_>>(), host(weights));
    close_to_slopes(what, &found, &values, tolerance, |leaves| dot(&reference(leaves), &weights));
    gradients
}

/// `⟨x, y⟩`.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

pub(crate) fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(crate) fn times(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
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

/// Asserts that the largest distance is at most `tolerance` of the largest expected number.
#[track_caller]
pub(crate) fn close(what: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}: number of values");
    let largest = expected.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (got - expected).abs() / scale;
        let is_close = off <= tolerance;
        assert!(is_close, "{what}: {got} for {expected} at {i}, off by {off:e} of {tolerance:e}");
    }
}

/// Asserts that the numbers are equal.
#[track_caller]
pub(crate) fn same(what: &str, got: &[f64], expected: &[f64]) {
    close(what, got, expected, 0.0);
}

/// Asserts that no number is equal.
#[track_caller]
pub(crate) fn all_differ(what: &str, got: &[f64], other: &[f64]) {
    assert_eq!(got.len(), other.len(), "{what}: number of values");
    assert!(got.iter().zip(other).all(|(a, b)| a != b), "{what}: some numbers are equal");
}

/// Asserts that the mean of independent `values` is within five standard errors of `expected`.
#[track_caller]
pub(crate) fn within(what: &str, values: impl Iterator<Item = f64> + Clone, expected: f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let variance = values.map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let errors = (mean - expected).abs() / (variance / n).sqrt();
    assert!(errors < 5.0, "{what}: {mean} for {expected}, {errors:.2} standard errors");
}

/// Noise parameters: `a` per rank, or `a` and `b` of the entries.
pub(crate) fn host_noise(family: VariationalFamily, a: Vec<f64>, b: Vec<f64>) -> HostNoise {
    HostNoise { family, a, b }
}

pub(crate) fn family_of(adapter: &HostAdapter) -> VariationalFamily {
    adapter.posterior().unwrap().unwrap().family()
}

/// An adapter on the host without noise, `[rank, d_input]` and `[rank, d_output]`.
pub(crate) fn plain() -> HostAdapter {
    HostAdapter {
        rank: RANK,
        d_input: D_INPUT,
        d_output: D_OUTPUT,
        a: numbers(11, RANK * D_INPUT),
        b: numbers(12, RANK * D_OUTPUT),
        e: None,
        noise: None,
        scaling: SCALING,
    }
}

/// [`plain`] with singular values.
pub(crate) fn with_singular_values() -> HostAdapter {
    HostAdapter { e: Some(vec![0.5, -2.0, 0.0, 1.5]), ..plain() }
}

/// [`plain`] with noise of every size.
///
/// Two log-variances are outside their clamp where there is one per entry, one where there is one per rank.
pub(crate) fn noisy(family: VariationalFamily) -> HostAdapter {
    let spread = |seed, n: usize| -> Vec<f64> {
        numbers(seed, n).into_iter().map(|v| 2.5 * v - 2.0).collect()
    };
    let noise = match family {
        VariationalFamily::NoiseToSignal => [vec![-1.0, 0.5, -2.0, 2.5], Vec::new()],
        VariationalFamily::ElementVariance => {
            let (mut a, mut b) = (spread(13, RANK * D_INPUT), spread(14, RANK * D_OUTPUT));
            (a[6], b[11]) = (2.7, -21.0);
            [a, b]
        }
        _ => [vec![-3.1, 2.5, -1.2, -0.4], Vec::new()],
    };
    let [a, b] = noise;
    HostAdapter { noise: Some(host_noise(family, a, b)), ..plain() }
}

/// The adapter as a trainable module.
pub(crate) fn adapter(host: &HostAdapter, dtype: DType) -> LowRankAdapter {
    let (rank, d_input, d_output) = (host.rank, host.d_input, host.d_output);
    let per_rank = |v: &[f64]| RankParameters { value: parameter(v, [rank], dtype) };
    let of_a = |v: &[f64]| parameter(&transposed(v, rank, d_input), [d_input, rank], dtype);
    let of_b = |v: &[f64]| parameter(v, [rank, d_output], dtype);
    let posterior = host.noise.as_ref().map(|HostNoise { family, a, b }| match family {
        VariationalFamily::RankVariance => Posterior::RankVariance(per_rank(a)),
        VariationalFamily::NoiseToSignal => Posterior::NoiseToSignal(per_rank(a)),
        VariationalFamily::AsymRankVariance => Posterior::AsymRankVariance(per_rank(a)),
        VariationalFamily::ElementVariance => {
            Posterior::ElementVariance(ElementParameters { a: of_a(a), b: of_b(b) })
        }
    });
    let singular_values = host.e.as_ref().map(|e| parameter(e, [rank], dtype));
    let mut adapter = LowRankAdapter::new(of_a(&host.a), of_b(&host.b), host.scaling);
    adapter.extension = match (posterior, singular_values) {
        (posterior, None) => posterior.map(Extension::Posterior),
        (None, Some(e)) => Some(Extension::SingularValues(e)),
        (Some(_), Some(_)) => unreachable!("no test has both"),
    };
    adapter
}

/// A frozen layer with a bias, which depends on the length of `path`.
pub(crate) fn base(path: &str, d_input: usize, d_output: usize, dtype: DType) -> AdaptedLinear {
    let seed = path.len() as u64;
    let weight = tensor(&numbers(90 + seed, d_input * d_output), [d_input, d_output], dtype);
    let bias = tensor(&numbers(80 + seed, d_output), [d_output], dtype);
    AdaptedLinear::new(weight, Some(bias))
}

/// [`base`] with the adapter on it.
pub(crate) fn layer_at(path: &str, host: &HostAdapter, dtype: DType) -> AdaptedLinear {
    let mut layer = base(path, host.d_input, host.d_output, dtype);
    layer.attach(path, adapter(host, dtype), host.rank).unwrap();
    layer
}

pub(crate) fn layer(host: &HostAdapter, dtype: DType) -> AdaptedLinear {
    layer_at("net.first", host, dtype)
}

/// The frozen layer of [`layer`].
pub(crate) fn bare(dtype: DType) -> AdaptedLinear {
    base("net.first", D_INPUT, D_OUTPUT, dtype)
}

/// The adapter of a layer that has one of two factors.
pub(crate) fn of(layer: &AdaptedLinear) -> &LowRankAdapter {
    layer.low_rank().unwrap()
}

/// Noise per entry, on A or on both factors.
pub(crate) fn element_noise(map: StdMap, both: bool, dtype: DType) -> Extension {
    let b = both.then(|| random(32, [RANK, D_OUTPUT], dtype));
    Extension::Gaussian(ElementGaussian::new(map, random(31, [D_INPUT, RANK], dtype), b))
}

pub(crate) fn scale_noise(dtype: DType) -> Extension {
    let (log_mean, log_std) = (random(33, [RANK], dtype), random(34, [RANK], dtype));
    Extension::Scale(ScaleGaussian { log_mean, log_std })
}

pub(crate) fn context_noise(dtype: DType) -> Extension {
    Extension::Contextual(ContextualGaussian {
        w1: random(51, [RANK, HIDDEN], dtype),
        b1: random(52, [HIDDEN], dtype),
        w2: random(53, [HIDDEN, 2 * RANK * RANK], dtype),
        b2: random(54, [2 * RANK * RANK], dtype),
    })
}

/// A layer with `extension` on plain factors.
pub(crate) fn extended(extension: Extension, dtype: DType) -> AdaptedLinear {
    let mut layer = layer(&plain(), dtype);
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

pub(crate) fn context(layer: &AdaptedLinear) -> &ContextualGaussian {
    match layer.extension() {
        Some(Extension::Contextual(context)) => context,
        _ => unreachable!("the tests put it there"),
    }
}
