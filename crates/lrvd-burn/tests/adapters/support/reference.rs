//! Passes by loops, as functions of a layer's leaves in memory order: A is `[d_input, rank]`, B `[rank, d_output]`.
//!
//! Those of the posterior families are the core's; `pytorch.rs` compares the others with PyTorch.

use burn::tensor::DType;
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::host::HostAdapter;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::baselines::context_kl;
use lrvd_core::forward::{drawn_weights, moment_matched, nested};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal, fill_normal_f64};

use super::{
    D_INPUT, D_OUTPUT, RANK, SCALING, family_of, host, host_noise, plus, product, times, transposed,
};

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

/// The adapter with other values of A, B and the noise parameters.
pub(crate) fn with_leaves(adapter: &HostAdapter, leaves: &[Vec<f64>]) -> HostAdapter {
    let [a, b, noise @ ..] = leaves else { unreachable!("A, B and noise") };
    let of_a = |values: &[f64]| transposed(values, adapter.d_input, adapter.rank);
    let noise = match noise {
        [a, b] => host_noise(family_of(adapter), of_a(a), b.clone()),
        _ => host_noise(family_of(adapter), noise[0].clone(), Vec::new()),
    };
    HostAdapter { a: of_a(a), b: b.clone(), noise: Some(noise), ..adapter.clone() }
}

/// Base product with bias.
pub(crate) fn base_of(layer: &AdaptedLinear, x: &[f64]) -> Vec<f64> {
    let bias = host(layer.bias.as_ref().unwrap().val());
    let out = product(x, &host(layer.weight.base()), D_INPUT, D_OUTPUT);
    out.iter().enumerate().map(|(i, o)| o + bias[i % D_OUTPUT]).collect()
}

/// The noise that a layer draws in a pass.
enum Drawn {
    /// A in the core's layout and B, for each draw.
    Weights(Vec<[Vec<f64>; 2]>),
    Output(Vec<f64>),
    Nested([Vec<f64>; 2]),
}

/// Base product plus update for `x` of `sequences` with `rows` in all, and for the layer's own noise.
///
/// `use_index` is 0 for tokens, 1 for shared rows.
pub(crate) fn reference(
    layer: &AdaptedLinear,
    [sequences, rows]: [usize; 2],
    pass: Pass,
    use_index: u32,
) -> impl Fn(&[Vec<f64>]) -> Vec<f64> {
    let adapter = HostAdapter::read(layer.low_rank().unwrap());
    let dtype = layer.weight.base().dtype();
    let (n_a, n_b, c) = (D_INPUT * RANK, RANK * D_OUTPUT, adapter.scaling);
    let key = pass.noise.for_module(layer.noise_id());
    let of = |stream, n| noise(key.on_stream(stream).with_use(use_index), n, dtype);
    let drawn = match pass.scheme {
        Scheme::Mean => Drawn::Weights(vec![[vec![0.0; n_a], vec![0.0; n_b]]]),
        Scheme::Weights(per) => {
            let draws = if per == DrawPer::Sequence { sequences } else { 1 };
            let of_a = noise(key.on_stream(Stream::WEIGHT_A), draws * n_a, dtype);
            let of_b = noise(key.on_stream(Stream::WEIGHT_B), draws * n_b, dtype);
            let draw = |(a, b): (&[f64], &[f64])| [transposed(a, D_INPUT, RANK), b.to_vec()];
            Drawn::Weights(of_a.chunks(n_a).zip(of_b.chunks(n_b)).map(draw).collect())
        }
        Scheme::MomentMatched(_) => Drawn::Output(of(Stream::OUTPUT, rows * D_OUTPUT)),
        Scheme::Nested => {
            Drawn::Nested([of(Stream::RANK, rows * RANK), of(Stream::OUTPUT, rows * D_OUTPUT)])
        }
    };
    move |leaves| {
        let (x, adapter) = (&leaves[0], with_leaves(&adapter, &leaves[1..]));
        let q = &adapter.posterior().unwrap().unwrap();
        let update = match (&drawn, pass.scheme) {
            (Drawn::Weights(draws), _) => {
                let of_draw =
                    |([a, b], x): (&[Vec<f64>; 2], &[f64])| drawn_weights(q, x, [a, b], c).unwrap();
                draws.iter().zip(x.chunks(x.len() / draws.len())).flat_map(of_draw).collect()
            }
            (Drawn::Output(eps), Scheme::MomentMatched(cross)) => {
                moment_matched(q, x, eps, c, cross).unwrap()
            }
            (Drawn::Nested([rank, output]), _) => nested(q, x, [rank, output], c).unwrap(),
            (Drawn::Output(_), _) => unreachable!("noise on outputs is moment-matched"),
        };
        plus(&base_of(layer, x), &update)
    }
}

/// Sizes of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) d_input: usize,
    pub(crate) rank: usize,
    pub(crate) d_output: usize,
    pub(crate) scaling: f64,
}

/// Sizes of the layers of the tests.
pub(crate) const SIZES: Sizes =
    Sizes { d_input: D_INPUT, rank: RANK, d_output: D_OUTPUT, scaling: SCALING };

impl Sizes {
    /// `x·A`.
    fn down(self, x: &[f64], a: &[f64]) -> Vec<f64> {
        product(x, a, self.d_input, self.rank)
    }

    /// `scaling · h·B`.
    fn up(self, h: &[f64], b: &[f64]) -> Vec<f64> {
        product(h, b, self.rank, self.d_output).iter().map(|y| self.scaling * y).collect()
    }
}

/// `ScalaBL`: the leaves are `x`, the basis, B, and logarithms of mean scales and of their standard deviations.
///
/// ```text
/// s = exp(log_mean) + exp(log_std) ∘ eps,   out = scaling · ((x·V) ∘ s)·B
/// ```
pub(crate) fn scala_bl(sizes: Sizes, leaves: &[Vec<f64>], eps: Option<&[f64]>) -> Vec<f64> {
    let [x, basis, b, log_mean, log_std] = leaves else { panic!("five leaves") };
    let scale = |k: usize| log_mean[k].exp() + eps.map_or(0.0, |eps| log_std[k].exp() * eps[k]);
    let mut h = sizes.down(x, basis);
    for (i, h) in h.iter_mut().enumerate() {
        *h *= scale(i % sizes.rank);
    }
    sizes.up(&h, b)
}

/// C-LoRA: output, and divergence of each token; the leaves are `x`, A, B, and weights `[inputs, outputs]` and biases of
/// both layers of the network.
///
/// ```text
/// z = x·A,   o = relu(z·w1 + b1)·w2 + b2,   u_i = Σ_j (o_ij + logistic(o_(r²+ij))²·eps_ij)·z_j,   out = scaling · u·B
/// ```
pub(crate) fn c_lora(
    sizes: Sizes,
    leaves: &[Vec<f64>],
    eps: Option<&[f64]>,
    prior: f64,
) -> (Vec<f64>, Vec<f64>) {
    let [x, a, b, w1, b1, w2, b2] = leaves else { panic!("seven leaves") };
    let (r, hidden) = (sizes.rank, b1.len());
    let square = r * r;
    let affine = |x: &[f64], w: &[f64], bias: &[f64], inputs: usize| -> Vec<f64> {
        let out = product(x, w, inputs, bias.len());
        out.iter().zip(bias.iter().cycle()).map(|(y, b)| y + b).collect()
    };
    let z = sizes.down(x, a);
    let first: Vec<f64> = affine(&z, w1, b1, r).iter().map(|h| h.max(0.0)).collect();
    let second = affine(&first, w2, b2, hidden);
    let (mut u, mut kl) = (Vec::new(), Vec::new());
    for (token, (z, o)) in z.chunks(r).zip(second.chunks(2 * square)).enumerate() {
        let (mean, raw) = o.split_at(square);
        let entry = |at: usize| {
            let std = (1.0 / (1.0 + (-raw[at]).exp())).powi(2);
            mean[at] + eps.map_or(0.0, |eps| std * eps[token * square + at])
        };
        u.extend((0..r).map(|i| (0..r).map(|j| entry(i * r + j) * z[j]).sum::<f64>()));
        kl.push(context_kl(mean, raw, prior).unwrap());
    }
    (sizes.up(&u, b), kl)
}

/// What a flipout pass draws, for A and for B: normals in memory order, and signs of the factor's inputs and outputs.
pub(crate) struct Flips {
    pub(crate) eps: [Vec<f64>; 2],
    pub(crate) input_sign: [Vec<f64>; 2],
    pub(crate) output_sign: [Vec<f64>; 2],
}

/// Flipout with standard deviations of A and, unless it is empty, of B.
///
/// ```text
/// h = x·A + ((x ∘ r)·(σ_A ∘ eps_A)) ∘ q,   out = scaling · (h·B + ((h ∘ t)·(σ_B ∘ eps_B)) ∘ u)
/// ```
pub(crate) fn flipout(
    sizes: Sizes,
    [x, a, b]: [&[f64]; 3],
    [std_a, std_b]: [&[f64]; 2],
    Flips { eps, input_sign, output_sign }: &Flips,
) -> Vec<f64> {
    let drawn = sizes.down(&times(x, &input_sign[0]), &times(std_a, &eps[0]));
    let h = plus(&sizes.down(x, a), &times(&drawn, &output_sign[0]));
    let mean = sizes.up(&h, b);
    if std_b.is_empty() {
        return mean;
    }
    let drawn = sizes.up(&times(&h, &input_sign[1]), &times(std_b, &eps[1]));
    plus(&mean, &times(&drawn, &output_sign[1]))
}
