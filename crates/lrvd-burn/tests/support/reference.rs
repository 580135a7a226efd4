//! A layer's output and gradients by the core's loops, fed with the noise that the layer draws.

use burn::tensor::{DType, Gradients, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, LowRankAdapter, Posterior};
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::forward::{
    ForwardGradient, MomentMatchedPass, NestedNoise, NestedPass, WeightNoise, WeightPass,
};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_normal_f64};
use lrvd_core::posterior::{Entries, ParameterGradient, PosteriorGradient};

use super::{gradient, host, product, transposed};

/// Output, gradient for the input and gradient for the posterior.
pub(crate) struct Reference {
    pub(crate) out: Vec<f64>,
    pub(crate) x: Vec<f64>,
    pub(crate) posterior: PosteriorGradient,
}

/// The standard normals of `key` as a tensor of `dtype` holds them.
pub(crate) fn noise(key: NoiseKey, n: usize, dtype: DType) -> Vec<f64> {
    if dtype == DType::F64 {
        let mut values = vec![0.0; n];
        fill_normal_f64(key, 0, &mut values);
        return values;
    }
    let mut values = vec![0.0f32; n];
    fill_normal(key, 0, &mut values);
    values.into_iter().map(f64::from).collect()
}

/// Base product plus update for `x [sequences, tokens, d_input]`, with `grad` the gradient of the
/// loss for the output.
///
/// `use_index` is 0 for tokens, 1 for shared rows.
pub(crate) fn reference(
    layer: &AdaptedLinear,
    x: &[f64],
    sequences: usize,
    grad: &[f64],
    pass: &Pass,
    use_index: u32,
) -> Reference {
    let adapter = HostAdapter::read(layer.low_rank().unwrap());
    let posterior = adapter.posterior().unwrap().unwrap();
    let weight = layer.weight.val();
    let dtype = weight.dtype();
    let (rank, d_in, d_out, c) = (adapter.rank, adapter.d_input, adapter.d_output, adapter.scaling);
    let key = pass.noise.for_module(layer.noise_id());
    let rows = x.len() / d_in;

    let mut total =
        Reference { out: Vec::new(), x: Vec::new(), posterior: posterior.zero_gradient() };
    let mut add = |out: &[f64], gradient: ForwardGradient| {
        total.out.extend_from_slice(out);
        total.x.extend(gradient.x);
        add_to(&mut total.posterior, &gradient.posterior);
    };
    match pass.scheme {
        Scheme::Mean => {
            let (a, b) = (vec![0.0; rank * d_in], vec![0.0; rank * d_out]);
            let p = WeightPass::new(posterior, x, WeightNoise { a: &a, b: &b }, c).unwrap();
            add(p.output(), p.backward(grad).unwrap());
        }
        Scheme::Weights(per) => {
            let draws = if per == DrawPer::Sequence { sequences } else { 1 };
            // In memory A is `[d_input, rank]`, and so is its noise.
            let of_a = noise(key.on_stream(Stream::WEIGHT_A), draws * d_in * rank, dtype);
            let of_b = noise(key.on_stream(Stream::WEIGHT_B), draws * rank * d_out, dtype);
            let per_draw = x.len() / draws;
            for (s, x) in x.chunks(per_draw).enumerate() {
                let a = transposed(&of_a[s * d_in * rank..][..d_in * rank], d_in, rank);
                let b = &of_b[s * rank * d_out..][..rank * d_out];
                let grad = &grad[s * rows / draws * d_out..][..rows / draws * d_out];
                let p = WeightPass::new(posterior, x, WeightNoise { a: &a, b }, c).unwrap();
                add(p.output(), p.backward(grad).unwrap());
            }
        }
        Scheme::MomentMatched(cross) => {
            let key = key.on_stream(Stream::OUTPUT).with_use(use_index);
            let eps = noise(key, rows * d_out, dtype);
            let p = MomentMatchedPass::new(posterior, x, &eps, c, cross).unwrap();
            add(p.output(), p.backward(grad).unwrap());
        }
        Scheme::Nested => {
            let of = |stream, n| noise(key.on_stream(stream).with_use(use_index), n, dtype);
            let (first, second) = (of(Stream::RANK, rows * rank), of(Stream::OUTPUT, rows * d_out));
            let noise = NestedNoise { rank: &first, output: &second };
            let p = NestedPass::new(posterior, x, noise, c).unwrap();
            add(p.output(), p.backward(grad).unwrap());
        }
    }
    let weight = host(weight);
    let bias = host(layer.bias.as_ref().unwrap().val());
    for (i, (out, base)) in total.out.iter_mut().zip(product(x, &weight, d_in, d_out)).enumerate() {
        *out += base + bias[i % d_out];
    }
    let through_base = product(grad, &transposed(&weight, d_in, d_out), d_out, d_in);
    for (x, base) in total.x.iter_mut().zip(through_base) {
        *x += base;
    }
    total
}

/// `a`, `b` and the noise parameters of an adapter's gradient, in the core's layout.
pub(crate) fn posterior_gradient(
    adapter: &LowRankAdapter,
    gradients: &Gradients,
) -> PosteriorGradient {
    let (rank, d_in) = (adapter.rank(), adapter.d_input());
    let of_a = |t: &Tensor<2>| transposed(&gradient(t, gradients), d_in, rank);
    let parameters = match adapter.posterior().unwrap() {
        Posterior::RankVariance(p)
        | Posterior::NoiseToSignal(p)
        | Posterior::AsymRankVariance(p) => {
            ParameterGradient::PerRank(gradient(&p.value.val(), gradients))
        }
        Posterior::ElementVariance(p) => ParameterGradient::PerEntry(Entries {
            a: of_a(&p.a.val()),
            b: gradient(&p.b.val(), gradients),
        }),
    };
    PosteriorGradient {
        a_mean: of_a(&adapter.a.val()),
        b_mean: gradient(&adapter.b.val(), gradients),
        parameters,
    }
}

/// The gradient in pieces, with their names.
pub(crate) fn pieces(gradient: &PosteriorGradient) -> Vec<(&'static str, &[f64])> {
    let mut pieces = vec![("A", &gradient.a_mean[..]), ("B", &gradient.b_mean[..])];
    match &gradient.parameters {
        ParameterGradient::PerRank(v) => pieces.push(("noise", v)),
        ParameterGradient::PerEntry(v) => pieces.extend([("noise A", &v.a[..]), ("noise B", &v.b)]),
    }
    pieces
}

fn add_to(sum: &mut PosteriorGradient, term: &PosteriorGradient) {
    let add = |into: &mut [f64], from: &[f64]| {
        for (i, f) in into.iter_mut().zip(from) {
            *i += f;
        }
    };
    add(&mut sum.a_mean, &term.a_mean);
    add(&mut sum.b_mean, &term.b_mean);
    match (&mut sum.parameters, &term.parameters) {
        (ParameterGradient::PerRank(i), ParameterGradient::PerRank(f)) => add(i, f),
        (ParameterGradient::PerEntry(i), ParameterGradient::PerEntry(f)) => {
            add(&mut i.a, &f.a);
            add(&mut i.b, &f.b);
        }
        _ => unreachable!("both belong to one posterior"),
    }
}
