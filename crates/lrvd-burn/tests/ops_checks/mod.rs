//! Checks of the fused operators that hold on every device.

#![allow(clippy::unwrap_used, dead_code)]

pub(crate) mod cases;

use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::ops::by_definition;

use self::cases::{Check, each, each_of_many_rows, each_with_kernel};

/// An operator on flat tensors: reshapes its leaves, returns a flat result.
pub(crate) type Op<'a> = &'a (dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync);

/// Output and, for tracked leaves, gradients of `sum(out * weight)`.
#[derive(PartialEq)]
pub(crate) struct Run {
    pub(crate) out: Vec<f64>,
    pub(crate) grads: Vec<Option<Vec<f64>>>,
}

/// A property of operators on a device.
pub(crate) struct DeviceCheck {
    pub(crate) name: &'static str,
    /// Format that the device must have.
    pub(crate) dtype: DType,
    pub(crate) cases: fn(Check),
    /// Panics unless it holds.
    pub(crate) prove: fn(&Case, &Device),
}

/// Checks that hold on every device.
pub(crate) const DEVICE_CHECKS: [DeviceCheck; 6] = [
    DeviceCheck {
        name: "f32",
        dtype: DType::F32,
        cases: each,
        prove: |case, device| case.check(device, DType::F32, 5e-5),
    },
    DeviceCheck {
        name: "many rows",
        dtype: DType::F32,
        cases: each_of_many_rows,
        prove: |case, device| case.check_wide(device, DType::F32, DType::F64, 1e-3),
    },
    DeviceCheck {
        name: "central differences",
        dtype: DType::F32,
        cases: each,
        prove: |case, device| case.gradients_are_central_differences(device),
    },
    // Operators without a kernel compute in the format itself.
    DeviceCheck {
        name: "f16",
        dtype: DType::F16,
        cases: each_with_kernel,
        prove: |case, device| case.follows_single_precision(device, DType::F16, 4e-3),
    },
    DeviceCheck {
        name: "bf16",
        dtype: DType::BF16,
        cases: each_with_kernel,
        prove: |case, device| case.follows_single_precision(device, DType::BF16, 3e-2),
    },
    DeviceCheck {
        name: "same bits in two runs",
        dtype: DType::F32,
        cases: each_with_kernel,
        prove: |case, device| case.repeats_the_same_bits(device),
    },
];

/// Numbers between -1 and 1 that neither repeat nor hit a kink.
pub(crate) fn wave(count: usize, phase: f64) -> Vec<f64> {
    (0..count).map(|i| (i as f64 * 1.37 + phase + 0.11 * (i as f64).sqrt()).sin()).collect()
}

pub(crate) fn leaf(values: &[f64], device: &Device, dtype: DType) -> Tensor<1> {
    let data = TensorData::new(values.to_vec(), [values.len()]).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

/// Reads at once: device reads are lazy.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().convert_dtype(DType::F64).try_into_vec::<f64>().unwrap()
}

pub(crate) fn evaluate(
    op: Op,
    leaves: &[Vec<f64>],
    tracked: &[bool],
    device: &Device,
    dtype: DType,
) -> Run {
    let any = tracked.contains(&true);
    let device = if any { device.clone().autodiff() } else { device.clone() };
    let leaves: Vec<Tensor<1>> = leaves
        .iter()
        .zip(tracked)
        .map(|(values, &tracked)| leaf(values, &device, dtype).set_require_grad(tracked))
        .collect();
    let out = op(&leaves);
    let values = host(out.clone());
    let mut grads = vec![None; leaves.len()];
    if any {
        let weight = leaf(&wave(values.len(), 0.7), &device, dtype);
        let gradients = (out * weight).sum().backward();
        grads = leaves.iter().map(|leaf| leaf.grad(&gradients).map(host)).collect();
    }
    Run { out: values, grads }
}

/// Largest distance, relative to the largest expected number.
pub(crate) fn distance(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |s, w| s.max(w.abs())).max(1.0);
    got.iter().zip(expected).fold(0.0, |worst: f64, (g, w)| {
        let d = (g - w).abs() / scale;
        if d.is_nan() { f64::INFINITY } else { worst.max(d) }
    })
}

/// An operator and inputs.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) op: Op<'a>,
    pub(crate) leaves: Vec<Vec<f64>>,
    /// Leaves that may be tracked (masks may not).
    pub(crate) differentiable: Vec<bool>,
}

impl Case<'_> {
    /// Every leaf tracked alone, none, and all that may be.
    fn patterns(&self) -> Vec<Vec<bool>> {
        let n = self.leaves.len();
        let alone = |i: usize| (0..n).map(|k| k == i && self.differentiable[i]).collect();
        (0..n).map(alone).chain([vec![false; n], self.differentiable.clone()]).collect()
    }

    /// The operator on `device` gives the numbers of its definition on the CPU.
    pub(crate) fn check(&self, device: &Device, dtype: DType, tolerance: f64) {
        for pattern in self.patterns() {
            let run = |device: &Device| evaluate(self.op, &self.leaves, &pattern, device, dtype);
            let expected = by_definition(|| run(&Device::flex()));
            self.compare(&run(device), &expected, &pattern, tolerance);
        }
    }

    /// The operator on `device` in `dtype` gives the numbers of its definition on the CPU in the wider format `exact`, from
    /// the same inputs, with every leaf tracked that may be.
    pub(crate) fn check_wide(&self, device: &Device, dtype: DType, exact: DType, tolerance: f64) {
        let rounded = |values: &Vec<f64>| host(leaf(values, &Device::flex(), dtype));
        let leaves: Vec<Vec<f64>> = self.leaves.iter().map(rounded).collect();
        let run = |device: &Device, dtype| {
            evaluate(self.op, &leaves, &self.differentiable, device, dtype)
        };
        let expected = by_definition(|| run(&Device::flex(), exact));
        self.compare(&run(device, dtype), &expected, &self.differentiable, tolerance);
    }

    /// The gradients on `device` are central differences, in cases that are small enough.
    fn gradients_are_central_differences(&self, device: &Device) {
        if self.leaves.iter().map(Vec::len).sum::<usize>() < 700 {
            let d = self.distance_from_differences(device, DType::F32);
            assert!(d < 5e-5, "{}: {d:e}", self.name);
        }
    }

    /// As [`Self::check_wide`] beside single precision, in cases that are small enough.
    fn follows_single_precision(&self, device: &Device, dtype: DType, tolerance: f64) {
        if self.leaves.iter().all(|leaf| leaf.len() < 2_000) {
            self.check_wide(device, dtype, DType::F32, tolerance);
        }
    }

    fn repeats_the_same_bits(&self, device: &Device) {
        let run = || evaluate(self.op, &self.leaves, &self.differentiable, device, DType::F32);
        let (first, second) = (run(), run());
        assert!(first == second, "{}", self.name);
    }

    fn compare(&self, got: &Run, expected: &Run, pattern: &[bool], tolerance: f64) {
        let context = |what: &str| format!("{}: {what}, tracked {pattern:?}", self.name);
        let d = distance(&got.out, &expected.out);
        assert!(d <= tolerance, "{}: {d:e}", context("output"));
        for (i, (g, w)) in got.grads.iter().zip(&expected.grads).enumerate() {
            match (g, w) {
                (Some(g), Some(w)) => {
                    let d = distance(g, w);
                    assert!(d <= tolerance, "{}: {d:e}", context(&format!("gradient {i}")));
                }
                (None, None) => {}
                _ => panic!("{}", context(&format!("gradient {i} is there on one side only"))),
            }
            assert_eq!(g.is_some(), pattern[i], "{}", context("tracking"));
        }
    }

    /// Largest distance of the gradients on `device` from central differences of the definition in `f64` on
    /// the CPU.
    pub(crate) fn distance_from_differences(&self, device: &Device, dtype: DType) -> f64 {
        let run = evaluate(self.op, &self.leaves, &self.differentiable, device, dtype);
        let none = vec![false; self.leaves.len()];
        let weight = wave(run.out.len(), 0.7);
        let loss = |leaves: &[Vec<f64>]| -> f64 {
            let out = || evaluate(self.op, leaves, &none, &Device::flex(), DType::F64).out;
            by_definition(out).iter().zip(&weight).map(|(o, w)| o * w).sum()
        };
        let mut worst = 0.0f64;
        for (i, grad) in run.grads.iter().enumerate() {
            let Some(grad) = grad else { continue };
            let differences: Vec<f64> = (0..grad.len())
                .map(|k| {
                    let x = self.leaves[i][k];
                    let step = f64::EPSILON.cbrt() * x.abs().max(0.1);
                    let mut leaves = self.leaves.clone();
                    leaves[i][k] = x + step;
                    let above = loss(&leaves);
                    leaves[i][k] = x - step;
                    (above - loss(&leaves)) / (2.0 * step)
                })
                .collect();
            worst = worst.max(distance(grad, &differences));
        }
        worst
    }
}
