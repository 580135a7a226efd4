//! Fixture reading, comparison, random numbers and difference quotients shared by these tests.

use std::path::Path;

use lrvd_core::numeric::dense::transpose;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// One golden folder.
pub(crate) struct Case {
    pub(crate) json: Value,
    inputs: Option<Vec<u8>>,
    expected: Vec<u8>,
}

impl Case {
    pub(crate) fn load(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/bayes").join(name);
        let json = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        Self {
            json: serde_json::from_str(&json).unwrap(),
            inputs: std::fs::read(folder.join("inputs.safetensors")).ok(),
            expected: std::fs::read(folder.join("expected.safetensors")).unwrap(),
        }
    }

    pub(crate) fn input(&self, name: &str) -> Vec<f64> {
        read(self.inputs.as_ref().unwrap(), name).1
    }

    pub(crate) fn input_shape(&self, name: &str) -> Vec<usize> {
        read(self.inputs.as_ref().unwrap(), name).0
    }

    pub(crate) fn expected(&self, name: &str) -> Vec<f64> {
        read(&self.expected, name).1
    }

    /// A matrix `[n, r]` of the expected file, rank-major.
    pub(crate) fn expected_transposed(&self, name: &str) -> Vec<f64> {
        let (shape, values) = read(&self.expected, name);
        transpose(&values, shape[0], shape[1])
    }

    /// A matrix `[n, r]` of the input file, rank-major.
    pub(crate) fn input_transposed(&self, name: &str) -> Vec<f64> {
        let shape = self.input_shape(name);
        transpose(&self.input(name), shape[0], shape[1])
    }

    pub(crate) fn expected_names(&self) -> Vec<String> {
        let mut names: Vec<String> = SafeTensors::deserialize(&self.expected)
            .unwrap()
            .names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }
}

fn read(bytes: &[u8], name: &str) -> (Vec<usize>, Vec<f64>) {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let tensor = file.tensor(name).unwrap_or_else(|_| panic!("tensor `{name}`"));
    let data = tensor.data();
    let values = match tensor.dtype() {
        Dtype::F64 => {
            data.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
        }
        Dtype::F32 => data
            .chunks_exact(4)
            .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
            .collect(),
        Dtype::I64 => {
            data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect()
        }
        Dtype::U8 => data.iter().map(|&b| f64::from(b)).collect(),
        other => panic!("`{name}` has dtype {other:?}"),
    };
    (tensor.shape().to_vec(), values)
}

/// Largest difference allowed, relative to the largest entry of the wanted tensor.
pub(crate) const GOLDEN: f64 = 1e-10;

/// Asserts equality relative to the largest wanted entry.
pub(crate) fn assert_close(what: &str, found: &[f64], wanted: &[f64], relative: f64) {
    assert_eq!(found.len(), wanted.len(), "length of {what}");
    let scale = wanted.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let allowed = if scale > 0.0 { relative * scale } else { 1e-300 };
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!((f - w).abs() <= allowed, "{what}[{i}]: {f}, wanted {w} (allowed {allowed})");
    }
}

/// A small generator of its own (xorshift64*, Box–Muller), so that no test depends on the crate's.
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        ((word >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }

    pub(crate) fn normals(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.normal()).collect()
    }
}

/// Central differences of a scalar function, step `ε^(1/3)·max(1, |x|)`.
pub(crate) fn central_difference(at: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    (0..at.len())
        .map(|i| {
            let h = f64::EPSILON.cbrt() * at[i].abs().max(1.0);
            let mut moved = at.to_vec();
            moved[i] = at[i] + h;
            let (up, above) = (f(&moved), moved[i]);
            moved[i] = at[i] - h;
            let (down, below) = (f(&moved), moved[i]);
            (up - down) / (above - below)
        })
        .collect()
}

/// Whether a written gradient agrees with the difference quotient, relative to its largest entry.
pub(crate) fn gradient_error(written: &[f64], at: &[f64], f: impl Fn(&[f64]) -> f64) -> f64 {
    let numeric = central_difference(at, f);
    assert_eq!(written.len(), numeric.len());
    let scale = numeric.iter().fold(1e-3_f64, |m, v| m.max(v.abs()));
    written.iter().zip(&numeric).map(|(w, n)| (w - n).abs() / scale).fold(0.0, f64::max)
}
