//! Checks of the fused operators that hold on every device.

#![allow(clippy::unwrap_used, dead_code)]

pub(crate) mod cases;

use burn::tensor::{DType, Device, Tensor, TensorData};

/// An operator on flat tensors: reshapes its leaves, returns a flat result.
pub(crate) type Op<'a> = &'a (dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync);

/// Output and, for tracked leaves, gradients of `sum(out * weight)`.
#[derive(PartialEq)]
pub(crate) struct Run {
    pub(crate) out: Vec<f64>,
    pub(crate) grads: Vec<Option<Vec<f64>>>,
}

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

/// A fused operator, its composite, and inputs.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) fused: Op<'a>,
    pub(crate) composite: Op<'a>,
    pub(crate) leaves: Vec<Vec<f64>>,
    /// Leaves that may be tracked (masks may not).
    pub(crate) differentiable: Vec<bool>,
}

impl Case<'_> {
    /// Every pattern of tracked leaves, the empty one included; with many leaves each alone, all and none.
    fn patterns(&self) -> Vec<Vec<bool>> {
        let n = self.leaves.len();
        let all = (1usize << n) - 1;
        let patterns: Vec<usize> = if n > 5 {
            (0..n).map(|i| 1 << i).chain([0, all]).collect()
        } else {
            (0..=all).collect()
        };
        let allowed = |(i, &d): (usize, &bool)| usize::from(d) << i;
        let allowed: usize = self.differentiable.iter().enumerate().map(allowed).sum();
        let mut patterns: Vec<usize> = patterns.into_iter().map(|bits| bits & allowed).collect();
        patterns.sort_unstable();
        patterns.dedup();
        patterns.into_iter().map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect()).collect()
    }

    /// The fused operator on `device` gives the composite's numbers on the CPU.
    pub(crate) fn check(&self, device: &Device, dtype: DType, tolerance: f64) {
        for pattern in self.patterns() {
            let got = evaluate(self.fused, &self.leaves, &pattern, device, dtype);
            let expected = evaluate(self.composite, &self.leaves, &pattern, &Device::flex(), dtype);
            self.compare(&got, &expected, &pattern, tolerance);
        }
    }

    /// The fused operator on `device` in `dtype` gives the numbers of the composite on the CPU in the wider format
    /// `exact`, from the same inputs, with every leaf tracked that may be.
    pub(crate) fn check_wide(&self, device: &Device, dtype: DType, exact: DType, tolerance: f64) {
        let rounded = |values: &Vec<f64>| host(leaf(values, &Device::flex(), dtype));
        let leaves: Vec<Vec<f64>> = self.leaves.iter().map(rounded).collect();
        let tracked = &self.differentiable;
        let got = evaluate(self.fused, &leaves, tracked, device, dtype);
        let expected = evaluate(self.composite, &leaves, tracked, &Device::flex(), exact);
        self.compare(&got, &expected, tracked, tolerance);
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

    /// Largest distance of the gradients from central differences, in `f64` on the CPU.
    pub(crate) fn gradient_distance(&self) -> f64 {
        self.distance_from_differences(&Device::flex(), DType::F64, self.fused)
    }

    /// Largest distance of the gradients on `device` from central differences of `definition` in `f64` on
    /// the CPU.
    pub(crate) fn distance_from_differences(
        &self,
        device: &Device,
        dtype: DType,
        definition: Op,
    ) -> f64 {
        let run = evaluate(self.fused, &self.leaves, &self.differentiable, device, dtype);
        let none = vec![false; self.leaves.len()];
        let weight = wave(run.out.len(), 0.7);
        let loss = |leaves: &[Vec<f64>]| -> f64 {
            let out = evaluate(definition, leaves, &none, &Device::flex(), DType::F64).out;
            out.iter().zip(&weight).map(|(o, w)| o * w).sum()
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
