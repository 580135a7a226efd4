//! Passes of adapters with noise by loops, in memory order: A is `[d_input, rank]`, B `[rank, d_output]`.
//!
//! `tests/by_hand.rs` compares them with PyTorch; the adapters are compared with them.

use lrvd_core::baselines::{StdMap, context_kl};

use super::product;

/// Sizes of an adapter.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) d_input: usize,
    pub(crate) rank: usize,
    pub(crate) d_output: usize,
    pub(crate) scaling: f64,
}

impl Sizes {
    /// `scaling · h·B`.
    fn up(self, h: &[f64], b: &[f64]) -> Vec<f64> {
        product(h, b, self.rank, self.d_output).iter().map(|y| self.scaling * y).collect()
    }
}

/// `ScalaBL`: the leaves are `x`, the basis, logarithms of mean scales and of their standard deviations, and B.
///
/// ```text
/// s = exp(log_mean) + exp(log_std) ∘ eps,   out = scaling · ((x·V) ∘ s)·B
/// ```
pub(crate) fn scala_bl(sizes: Sizes, leaves: &[Vec<f64>], eps: Option<&[f64]>) -> Vec<f64> {
    let [x, basis, log_mean, log_std, b] = leaves else { panic!("five leaves") };
    let scale = |k: usize| log_mean[k].exp() + eps.map_or(0.0, |eps| log_std[k].exp() * eps[k]);
    let mut h = product(x, basis, sizes.d_input, sizes.rank);
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
    let z = product(x, a, sizes.d_input, r);
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

/// What a flipout pass draws: normals for A in memory order, and signs of the inputs and of the rank activations.
pub(crate) struct Flips<'a> {
    pub(crate) eps: &'a [f64],
    pub(crate) input_sign: &'a [f64],
    pub(crate) rank_sign: &'a [f64],
}

/// Flipout on A: the leaves are `x`, A, the parameters of its standard deviations, and B.
///
/// ```text
/// h = x·A + ((x ∘ input_sign)·(sigma(rho) ∘ eps)) ∘ rank_sign,   out = scaling · h·B
/// ```
pub(crate) fn flipout(
    sizes: Sizes,
    map: StdMap,
    leaves: &[Vec<f64>],
    flips: &Flips<'_>,
) -> Vec<f64> {
    let [x, a, rho, b] = leaves else { panic!("four leaves") };
    let times =
        |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a * b).collect() };
    let noise: Vec<f64> = rho.iter().zip(flips.eps).map(|(&r, e)| map.value(r) * e).collect();
    let drawn = product(&times(x, flips.input_sign), &noise, sizes.d_input, sizes.rank);
    let mean = product(x, a, sizes.d_input, sizes.rank);
    let drawn = times(&drawn, flips.rank_sign);
    let h: Vec<f64> = mean.iter().zip(&drawn).map(|(m, d)| m + d).collect();
    sizes.up(&h, b)
}
