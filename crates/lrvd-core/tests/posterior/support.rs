//! Fixture reading shared by these tests.

use std::path::Path;

use lrvd_core::numeric::dense::transpose;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

pub(crate) use crate::shared::{TestRng, assert_close, central_difference, gradient_error};

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
