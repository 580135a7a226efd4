//! The fused operators on the device named by `LRVD_TEST_DEVICE` (`cpu` if unset; `wgpu` or `cuda`
//! when built in): one device per process, because Burn's device settings are process-wide.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod ops_checks;

use burn::tensor::{DType, Device};
use lrvd_burn::ops;
use lrvd_core::noise::{fill_normal_f64, fill_uniform};
use ops_checks::cases::{each, key};
use ops_checks::{distance, evaluate, host, leaf};

/// All checks in one test: they share the device.
#[test]
fn operators_on_the_named_device() {
    let name = std::env::var("LRVD_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = lrvd_burn::device::open(&name).unwrap();
    each(&mut |case| case.check(&device, DType::F32, 5e-5));
    normals_are_those_of_the_definition(&device);
    dropout_masks_are_the_same_bits(&device);
    repeated_runs_give_the_same_bits(&device);
    empty_tensors_stay_empty(&device);
}

fn normals_are_those_of_the_definition(device: &Device) {
    let like = leaf(&[0.0], device, DType::F32);
    // 33 columns: pitched memory on CUDA.
    let shape = [101, 33];
    let mut wanted = vec![0.0f64; 101 * 33];
    fill_normal_f64(key(), 0, &mut wanted);
    let got = host(ops::standard_normal(&like, shape, key()));
    let worst = distance(&got, &wanted);
    assert!(worst < 1e-5, "{worst:e}");
}

fn dropout_masks_are_the_same_bits(device: &Device) {
    let (count, rate) = (10_007, 0.1);
    let mut uniform = vec![0.0f32; count];
    fill_uniform(key(), 0, &mut uniform);
    let out = host(ops::dropout(leaf(&vec![1.0; count], device, DType::F32), rate, key()));
    for (&out, &uniform) in out.iter().zip(&uniform) {
        assert_eq!(out == 0.0, f64::from(uniform) < rate);
    }
}

fn repeated_runs_give_the_same_bits(device: &Device) {
    each(&mut |case| {
        let run = || evaluate(case.fused, &case.leaves, &case.differentiable, device, DType::F32);
        let (first, second) = (run(), run());
        assert_eq!(first.out, second.out, "{}", case.name);
        assert_eq!(first.grads, second.grads, "{}", case.name);
    });
}

fn empty_tensors_stay_empty(device: &Device) {
    let none = leaf(&[], device, DType::F32);
    assert_eq!(ops::gelu(none.clone()).dims(), [0]);
    assert_eq!(ops::dropout(none.clone(), 0.5, key()).dims(), [0]);
    assert_eq!(ops::standard_normal(&none, [0, 3], key()).dims(), [0, 3]);
    let rows = none.clone().reshape([0, 3]);
    assert_eq!(ops::add_gaussian_noise(rows.clone(), rows, key()).dims(), [0, 3]);
}
