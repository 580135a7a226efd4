//! Rotary positions: the angle by which a feature pair is rotated at a position.
//!
//! Pure numbers first, tensors below: angles, cosines and sines are computed on the host in double precision and
//! rounded once, because a single-precision product of a late position and a frequency is wrong in its fourth digit.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::sampling::Pass;

/// The rotary frequencies of a head of `width` features in radians a token, by pair; half as many as features.
///
/// # Formula
///
/// ```text
/// f_i = theta^(−2i/d)                         i = 0 … d/2 − 1, d the head width
/// ```
///
/// # References
///
/// Su et al. 2021, arXiv:2104.09864.
pub(crate) fn frequencies(theta: f64, width: usize) -> Vec<f64> {
    (0..width / 2).map(|i| theta.powf(-((2 * i) as f64) / width as f64)).collect()
}

/// Cosines and sines by position, `[limit, d/2]`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl Table {
    /// Table of the positions below `limit`.
    pub(crate) fn new(frequencies: &[f64], limit: usize, device: &Device, dtype: DType) -> Self {
        let shape = [limit, frequencies.len()];
        let table = |of: fn(f64) -> f64| {
            let row = |position| frequencies.iter().map(move |f| of(position as f64 * f));
            let data = TensorData::new((0..limit).flat_map(row).collect::<Vec<f64>>(), shape);
            Tensor::<2>::from_data(data, (device, dtype))
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// Number of positions.
    pub(crate) fn limit(&self) -> usize {
        self.cos.dims()[0]
    }

    /// The rotations of the tokens at `positions`, `[batch, tokens]`, all below the limit.
    pub(crate) fn at(&self, positions: Tensor<2, Int>) -> RotaryEmbedding {
        let [batch, tokens] = positions.dims();
        let rows = positions.reshape([batch * tokens]);
        let [cos, sin] = [&self.cos, &self.sin].map(|table| {
            let half = table.dims()[1];
            table.clone().select(0, rows.clone()).reshape([batch, tokens, 1, 1, half])
        });
        RotaryEmbedding { cos, sin }
    }
}

/// Cosines and sines of one batch, shared by all layers.
///
/// Features `i` and `i + d/2` of a head make a pair, as in Hugging Face checkpoints:
///
/// ```text
/// out = (first·cos − second·sin | second·cos + first·sin)
/// ```
///
/// Both are `[batch, tokens, 1, 1, d/2]`.
#[derive(Clone)]
pub(crate) struct RotaryEmbedding {
    cos: Tensor<5>,
    sin: Tensor<5>,
}

impl RotaryEmbedding {
    /// Rotates every head of `[batch, tokens, heads, d]`.
    pub(crate) fn apply(&self, x: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let [batch, tokens, heads, width] = x.dims();
        let half = width / 2;
        let x = x.reshape([batch, tokens, heads, 2, half]);
        let (first, second) = (x.clone().narrow(3, 0, 1), x.narrow(3, 1, 1));
        let [cos, sin] = [&self.cos, &self.sin].map(|t| pass.repeated(t.clone(), batch));
        let rotated = [
            first.clone() * cos.clone() - second.clone() * sin.clone(),
            second * cos.clone() + first * sin.clone(),
        ];
        Tensor::cat(rotated.to_vec(), 3).reshape([batch, tokens, heads, width])
    }
}
