//! Shared by the adapter tests: numbers, layers and comparisons.

mod activation_noise;
pub(crate) mod definition;
pub(crate) mod net;

/// Names that nearly every test uses.
pub(crate) mod prelude {
    pub(crate) use super::definition::*;
    pub(crate) use super::net::{Net, WIDTHS, check_trained, data, factors, optimizer, train_step};
    pub(crate) use super::*;
    pub(crate) use burn::module::Module;
    pub(crate) use lrvd_burn::adapter::{AdapterConfig, AdapterKind, Prior};
    pub(crate) use lrvd_burn::model::ranks;
    pub(crate) use lrvd_burn::sampling::Pass;
    pub(crate) use lrvd_core::kl::KlReduction;
    pub(crate) use rstest::rstest;
}

pub(crate) use std::sync::Arc;

pub(crate) use burn::module::Param;
pub(crate) use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
pub(crate) use lrvd_burn::adapter::{
    AdaptedLinear, Axis, Extension, Gaussian, LowRankAdapter, NoiseMap, OpExtension, OpLayer,
    OpParameter, ParameterSchema, PreparedUpdate, UpdateOp,
};
pub(crate) use lrvd_burn::model::NamedModule;
pub(crate) use lrvd_burn::optimizer::NamedGradients;
pub(crate) use lrvd_burn::parameters::Group;
pub(crate) use lrvd_burn::parameters::values as host;
pub(crate) use lrvd_burn::sampling::Scheme;
pub(crate) use lrvd_core::linalg::{dot, transpose};
pub(crate) use lrvd_core::moments::CrossTerm;
pub(crate) use lrvd_core::noise::{NoiseKey, Stream, fill_uniform};
pub(crate) use lrvd_core::posterior::VariationalFamily;
use lrvd_core::{Error, Factors, Noise, Posterior};

/// Distinct sizes, so that a transposed or exchanged axis cannot pass.
pub(crate) const BATCH: usize = 2;
pub(crate) const TOKENS: usize = 3;
pub(crate) const RANK: usize = 4;
pub(crate) const D_INPUT: usize = 5;
pub(crate) const D_OUTPUT: usize = 7;
pub(crate) const SCALING: f64 = 1.75;
/// Rows of [`inputs`].
pub(crate) const N: usize = BATCH * TOKENS;

/// One draw of the weights for all tokens of a batch, and one for each sequence.
pub(crate) const WEIGHTS: [Scheme; 2] = [Scheme::PerBatch, Scheme::PerSequence];
/// Every scheme and all values of its switch.
pub(crate) const SCHEMES: [Scheme; 7] = [
    Scheme::Mean,
    WEIGHTS[0],
    WEIGHTS[1],
    Scheme::PerToken,
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

/// The gradient of `tensor`.
pub(crate) fn gradient<const D: usize>(tensor: &Tensor<D>, gradients: &Gradients) -> Vec<f64> {
    host(tensor.grad(gradients).unwrap())
}

/// Calls `visit` with name, values and gradient of every parameter of the layer's adapter.
fn each_leaf(layer: &AdaptedLinear, mut visit: impl FnMut(&str, Tensor<1>)) {
    layer.visit_parameters(&mut |p| {
        if p.group != Group::Backbone {
            visit(p.name, p.value.flat());
        }
    });
}

/// The values of A, B and the parameters of the extension, in memory order.
pub(crate) fn leaves(layer: &AdaptedLinear) -> Vec<Vec<f64>> {
    let mut all = Vec::new();
    each_leaf(layer, |_, values| all.push(host(values)));
    all
}

/// The gradients of [`leaves`], zeros where the loss does not reach them.
pub(crate) fn layer_gradients(layer: &AdaptedLinear, gradients: &Gradients) -> Vec<Vec<f64>> {
    let gradients = NamedGradients::collect(layer, gradients);
    let mut all = Vec::new();
    each_leaf(layer, |name, values| {
        all.push(host(gradients.get(name).cloned().unwrap_or_else(|| values.zeros_like())));
    });
    all
}

/// Relative error of central differences that tests of gradients allow for.
const SLOPES: f64 = 1e-8;

/// Asserts that gradients are the slopes of `value` by every entry of the leaves, relative to the largest of each leaf.
///
/// The slopes are central differences of fourth order. The step is 7e-4 of an entry, or of 0.05 if that is larger: what
/// is left is some 1e-9 of the largest slope.
#[track_caller]
pub(crate) fn close_to_slopes(
    what: &str,
    gradients: &[Vec<f64>],
    leaves: &[Vec<f64>],
    tolerance: f64,
    value: impl Fn(&[Vec<f64>]) -> f64,
) {
    assert_eq!(gradients.len(), leaves.len(), "{what}");
    let mut moved = leaves.to_vec();
    for (i, found) in gradients.iter().enumerate() {
        let slope = |k: usize| {
            let step = 7e-4 * leaves[i][k].abs().max(0.05);
            let mut at = |steps: f64| {
                moved[i][k] = leaves[i][k] + steps * step;
                value(&moved)
            };
            let (near, far) = (at(1.0) - at(-1.0), at(2.0) - at(-2.0));
            moved[i][k] = leaves[i][k];
            (8.0 * near - far) / (12.0 * step)
        };
        let expected: Vec<f64> = (0..found.len()).map(slope).collect();
        close(&format!("{what}: gradient of leaf {i}"), found, &expected, tolerance.max(SLOPES));
    }
}

/// Asserts that `out` is `reference` of the leaves, which are `x` and those of the layer, and that their gradients are
/// its slopes, for a random direction of `out`.
#[track_caller]
pub(crate) fn check<const D: usize>(
    what: &str,
    out: Tensor<D>,
    x: Option<&Tensor<3>>,
    layer: &AdaptedLinear,
    tolerance: f64,
    reference: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) {
    let values: Vec<Vec<f64>> =
        x.map(|x| host(x.clone())).into_iter().chain(leaves(layer)).collect();
    close(&format!("{what}: output"), &host(out.clone()), &reference(&values), tolerance);
    let weights = tensor(&numbers(2, out.shape().num_elements()), out.dims(), out.dtype());
    let gradients = (out * weights.clone()).sum().backward();
    let found = x.map(|x| gradient(x, &gradients)).into_iter();
    let found: Vec<Vec<f64>> = found.chain(layer_gradients(layer, &gradients)).collect();
    let weights = host(weights);
    close_to_slopes(what, &found, &values, tolerance, |leaves| dot(&reference(leaves), &weights));
}

pub(crate) fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(crate) fn times(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

/// `x [n, inner] · w [inner, width]`.
pub(crate) fn product(x: &[f64], w: &[f64], inner: usize, width: usize) -> Vec<f64> {
    lrvd_core::linalg::times(x, w, x.len() / inner, inner, width)
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

/// Noise parameters on the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostNoise {
    pub(crate) family: VariationalFamily,
    /// One for each rank direction, or one for each entry of A, `[rank, d_input]`.
    pub(crate) a: Vec<f64>,
    /// One for each entry of B, `[rank, d_output]`; empty where there is one for each rank direction.
    pub(crate) b: Vec<f64>,
}

/// One adapter on the host, both factors by rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostAdapter {
    pub(crate) rank: usize,
    pub(crate) d_input: usize,
    pub(crate) d_output: usize,
    /// `[rank, d_input]`.
    pub(crate) a: Vec<f64>,
    /// `[rank, d_output]`.
    pub(crate) b: Vec<f64>,
    pub(crate) e: Option<Vec<f64>>,
    pub(crate) noise: Option<HostNoise>,
    pub(crate) scaling: f64,
}

impl HostAdapter {
    pub(crate) fn read(adapter: &LowRankAdapter) -> Self {
        let factors = adapter.host_factors();
        let Factors { rank, d_input, d_output, .. } = factors;
        let noise = adapter.host_posterior().unwrap().map(|q| {
            let Noise { family, a, b } = q.noise().clone();
            HostNoise { family, a, b: transpose(&b, b.len() / rank, rank) }
        });
        let b = factors.b_by_rank();
        let e = adapter.singular_values().map(|e| host(e.val()));
        let scaling = adapter.scaling;
        Self { rank, d_input, d_output, a: factors.a, b, e, noise, scaling }
    }

    pub(crate) fn posterior(&self) -> Result<Option<Posterior>, Error> {
        let Some(HostNoise { family, a, b }) = self.noise.clone() else { return Ok(None) };
        let Self { rank, d_input, d_output, .. } = *self;
        let stored = |b: &[f64]| transpose(b, rank, b.len() / rank);
        let factors = Factors { rank, d_input, d_output, a: self.a.clone(), b: stored(&self.b) };
        Posterior::new(factors, Noise { family, a, b: stored(&b) }).map(Some)
    }
}

/// Noise parameters: `a` per rank, or `a` and `b` of the entries.
pub(crate) fn host_noise(family: VariationalFamily, a: Vec<f64>, b: Vec<f64>) -> HostNoise {
    HostNoise { family, a, b }
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
    let [a, b] = match family {
        VariationalFamily::NoiseToSignal => [vec![-1.0, 0.5, -2.0, 2.5], Vec::new()],
        VariationalFamily::ElementVariance => {
            let (mut a, mut b) = (spread(13, RANK * D_INPUT), spread(14, RANK * D_OUTPUT));
            (a[6], b[11]) = (2.7, -21.0);
            [a, b]
        }
        _ => [vec![-3.1, 2.5, -1.2, -0.4], Vec::new()],
    };
    HostAdapter { noise: Some(host_noise(family, a, b)), ..plain() }
}

/// The adapter as a trainable module.
pub(crate) fn adapter(host: &HostAdapter, dtype: DType) -> LowRankAdapter {
    let (rank, d_input, d_output) = (host.rank, host.d_input, host.d_output);
    let of_a = |v: &[f64]| parameter(&transpose(v, rank, d_input), [d_input, rank], dtype);
    let of_b = |v: &[f64]| parameter(v, [rank, d_output], dtype);
    let noise = host.noise.as_ref().map(|HostNoise { family, a, b }| {
        let map = if family.is_relative() { NoiseMap::Relative } else { NoiseMap::Additive };
        if family.is_per_entry() {
            Gaussian::per_entry(map, of_a(a), Some(of_b(b)))
        } else {
            Gaussian::per_rank(map, family.has_random_b(), parameter(a, [rank], dtype))
        }
    });
    let values = host.e.as_ref().map(|e| Extension::SingularValues(parameter(e, [rank], dtype)));
    let mut adapter = LowRankAdapter::new(of_a(&host.a), of_b(&host.b), host.scaling);
    adapter.extension = noise.map(Extension::Gaussian).or(values);
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
pub(crate) fn element_noise(map: NoiseMap, both: bool, dtype: DType) -> Extension {
    let b = both.then(|| random(32, [RANK, D_OUTPUT], dtype));
    Extension::Gaussian(Gaussian::per_entry(map, random(31, [D_INPUT, RANK], dtype), b))
}

/// Scales between the factors as the update of another method, `members` of which share a batch.
#[derive(Debug)]
pub(crate) struct Scales {
    pub(crate) members: usize,
}

const SCALES: ParameterSchema = ParameterSchema::mean("lora_scales", &[Axis::Rank], 0);

impl UpdateOp for Scales {
    fn start(
        &self,
        a: &mut Param<Tensor<2>>,
        _b: &mut Param<Tensor<2>>,
        key: NoiseKey,
    ) -> Result<Vec<OpParameter>, lrvd_burn::Error> {
        let [_, rank] = a.val().dims();
        let mut values = vec![0.0; rank];
        fill_uniform(key, 0, &mut values);
        Ok(vec![OpParameter::trainable(&SCALES, a, values, [rank])])
    }

    fn parameter_count(&self, rank: usize, _: usize, _: usize) -> usize {
        rank
    }

    fn members(&self) -> usize {
        self.members
    }

    fn prepare<'a>(&'a self, layer: OpLayer<'a>) -> Box<PreparedUpdate<'a>> {
        let (a, b) = (layer.a.val(), layer.b.val());
        let scales = layer.extension.parameter::<1>(0);
        Box::new(move |x, use_index| {
            let a = (a.clone() * scales.clone().unsqueeze()).unsqueeze_dim::<3>(0);
            let b = b.clone().unsqueeze_dim::<3>(0);
            let (a, b) = (a.repeat_dim(0, self.members), b.repeat_dim(0, self.members));
            layer.members_update(x, use_index, a, b)
        })
    }
}

/// [`Scales`] on an adapter of the shape of [`plain`].
pub(crate) fn scales(members: usize, dtype: DType) -> Extension {
    let mut adapter = adapter(&plain(), dtype);
    let op = OpExtension::new(
        Arc::new(Scales { members }),
        &mut adapter.a,
        &mut adapter.b,
        NoiseKey::new(33),
    );
    Extension::Op(op.unwrap())
}

/// A layer with `extension` on plain factors.
pub(crate) fn extended(extension: Extension, dtype: DType) -> AdaptedLinear {
    let mut layer = layer(&plain(), dtype);
    layer.extend(Some(extension)).unwrap();
    layer
}

/// A layer with each kind of adapter of two factors.
pub(crate) fn every_layer(dtype: DType) -> Vec<AdaptedLinear> {
    let hosts = [plain(), with_singular_values()].into_iter();
    let hosts = hosts.chain(VariationalFamily::ALL.map(noisy)).map(|host| layer(&host, dtype));
    let extensions = [
        element_noise(NoiseMap::Square, false, dtype),
        element_noise(NoiseMap::Softplus, true, dtype),
        scales(1, dtype),
    ];
    hosts.chain(extensions.map(|extension| extended(extension, dtype))).collect()
}
