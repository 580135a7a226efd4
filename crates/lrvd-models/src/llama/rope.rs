//! Rotary positions: the angle by which a feature pair is rotated at a position.
//!
//! Pure numbers first, tensors below: angles, cosines and sines are computed on the host in double precision and
//! rounded once, because a single-precision product of a late position and a frequency is wrong in its fourth digit.

use std::f64::consts::TAU;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lrvd_burn::sampling::Pass;

use super::config::{Llama3Scaling, LlamaConfig};

/// The rotary frequencies of a model.
///
/// # Formula
///
/// ```text
/// f_i = theta^(−2i/d)                         i = 0 … d/2 − 1, d the head width
/// wavelength = 2π/f_i,  s = (L/wavelength − low)/(high − low), limited to [0, 1]
/// llama3: f_i ← (1 − s)·f_i/factor + s·f_i    L the original length in tokens
/// ```
///
/// so that short wavelengths stay, long ones are stretched by `factor`, and those between pass over smoothly.
///
/// # References
///
/// Su et al. 2021, arXiv:2104.09864; the stretching is that of Llama 3.1.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    frequencies: Vec<f64>,
}

impl Rotary {
    /// The frequencies of `config`, in radians a token.
    pub fn new(config: &LlamaConfig) -> Self {
        let width = config.head_dim as f64;
        let plain = |i: usize| config.rope_theta.powf(-((2 * i) as f64) / width);
        let frequencies = (0..config.head_dim / 2).map(|i| match &config.rope_scaling {
            None => plain(i),
            Some(scaling) => stretched(plain(i), scaling),
        });
        Self { frequencies: frequencies.collect() }
    }

    /// The frequencies, in radians a token, by pair; half as many as a head has features.
    pub fn frequencies(&self) -> &[f64] {
        &self.frequencies
    }

    /// Cosines and sines of the positions below `limit`.
    pub(super) fn table(&self, limit: usize, device: &Device, dtype: DType) -> Table {
        let shape = [limit, self.frequencies.len()];
        let table = |of: fn(f64) -> f64| {
            let row = |position| self.frequencies.iter().map(move |f| of(position as f64 * f));
            let data = TensorData::new((0..limit).flat_map(row).collect::<Vec<f64>>(), shape);
            Tensor::<2>::from_data(data, (device, dtype))
        };
        Table { cos: table(f64::cos), sin: table(f64::sin) }
    }
}

/// Cosines and sines by position, `[limit, d/2]`.
#[derive(Clone, Debug)]
pub(super) struct Table {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl Table {
    /// Number of positions.
    pub(super) fn limit(&self) -> usize {
        self.cos.dims()[0]
    }

    /// The rotations of the tokens at `positions`, `[batch, tokens]`, all below the limit.
    pub(super) fn at(&self, positions: Tensor<2, Int>) -> RotaryEmbedding {
        let [batch, tokens] = positions.dims();
        let half = self.cos.dims()[1];
        let rows = positions.reshape([batch * tokens]);
        let pick = |table: &Tensor<2>| {
            table.clone().select(0, rows.clone()).reshape([batch, tokens, 1, 1, half])
        };
        RotaryEmbedding { cos: pick(&self.cos), sin: pick(&self.sin) }
    }
}

fn stretched(frequency: f64, scaling: &Llama3Scaling) -> f64 {
    let wavelength = TAU / frequency;
    let length = scaling.original_max_position_embeddings as f64;
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    let keep = ((length / wavelength - low) / (high - low)).clamp(0.0, 1.0);
    (1.0 - keep) * frequency / scaling.factor + keep * frequency
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
pub(super) struct RotaryEmbedding {
    cos: Tensor<5>,
    sin: Tensor<5>,
}

impl RotaryEmbedding {
    /// Rotates every head of `[batch, tokens, heads·d]`; the result is `[batch, tokens, heads, d]`.
    pub(super) fn apply(&self, x: Tensor<3>, heads: usize, pass: &Pass) -> Tensor<4> {
        let [batch, tokens, width] = x.dims();
        let half = width / heads / 2;
        let x = x.reshape([batch, tokens, heads, 2, half]);
        let (first, second) = (x.clone().narrow(3, 0, 1), x.narrow(3, 1, 1));
        let [cos, sin] = [&self.cos, &self.sin].map(|t| pass.repeated(t.clone(), batch));
        let rotated = [
            first.clone() * cos.clone() - second.clone() * sin.clone(),
            second * cos.clone() + first * sin.clone(),
        ];
        Tensor::cat(rotated.to_vec(), 3).reshape([batch, tokens, heads, 2 * half])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rotary(rest: &str) -> Rotary {
        let text = format!(
            r#"{{"model_type": "llama", "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 5,
                "num_hidden_layers": 1, "intermediate_size": 4{rest}}}"#
        );
        Rotary::new(&LlamaConfig::parse(text.as_bytes(), "config.json".as_ref()).unwrap())
    }

    #[test]
    fn frequencies_fall_geometrically() {
        let rotary = rotary(r#", "rope_theta": 10000.0"#);
        // 10000^(-i/4)
        for (found, expected) in rotary.frequencies().iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((found - expected).abs() < 1e-15 * expected.max(0.1), "{found}");
        }
    }

    #[test]
    fn long_wavelengths_are_stretched_and_short_ones_stay() {
        // Wavelengths 2π·10^i = 6.28, 62.8, 628, 6283; with a length of 1000: stays below 1000/4 = 250,
        // stretched above 1000/1; between, s = (1000/628.3 − 1)/3 = 0.197183.
        let rotary = rotary(
            r#", "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 1000}"#,
        );
        let s: f64 = (1000.0 / (TAU * 100.0) - 1.0) / 3.0;
        assert!((s - 0.197183).abs() < 1e-6);
        let between = 0.01 * ((1.0 - s) / 8.0 + s);
        for (found, expected) in rotary.frequencies().iter().zip([1.0, 0.1, between, 0.000125]) {
            assert!((found - expected).abs() < 1e-14, "{found} and {expected}");
        }
    }

    #[test]
    fn a_pair_is_rotated_by_position_times_frequency() {
        let (device, dtype) = (Device::flex(), DType::F64);
        let rotary = rotary("");
        let positions = Tensor::<2, Int>::from_ints([[0, 3]], &device);
        let rotations = rotary.table(4, &device, dtype).at(positions);
        // Two heads: the first has 1 in feature 1, the second in feature 5, its partner.
        let mut row = vec![0.0; 16];
        row[1] = 1.0;
        row[8 + 5] = 1.0;
        let data = TensorData::new([row.clone(), row.clone()].concat(), [1, 2, 16]);
        let rotated = rotations.apply(Tensor::from_data(data, (&device, dtype)), 2, &Pass::mean());
        let found: Vec<f64> = rotated.into_data().iter::<f64>().collect();
        assert_eq!(found[..16], row, "position 0 stays");
        let (sin, cos) = 0.3_f64.sin_cos();
        let mut expected = vec![0.0; 16];
        (expected[1], expected[5], expected[8 + 1], expected[8 + 5]) = (cos, sin, -sin, cos);
        for (found, expected) in found[16..].iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-15, "{found} and {expected}");
        }
    }
}
