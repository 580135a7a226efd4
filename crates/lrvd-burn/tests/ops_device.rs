//! The fused operators on the device named by `LRVD_TEST_DEVICE` (`cpu` if unset; `wgpu` or `cuda`
//! when built in): one device per process, because Burn's device settings are process-wide.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

mod ops_checks;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{DType, Device, Tensor, TensorData};
use lrvd_burn::ops::disentangled_attention::{AttentionLayout, PositionRows};
use lrvd_burn::ops::{self, Window};
use lrvd_burn::{BayesLora, Tuned};
use ops_checks::cases::{key, noise};
use ops_checks::{DEVICE_CHECKS, DeviceCheck, host, leaf};

/// All checks in one test: they share the device.
#[test]
fn operators_on_the_named_device() {
    let name = std::env::var("LRVD_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = lrvd_burn::device::open(&name).unwrap();
    for DeviceCheck { dtype, cases, prove, .. } in DEVICE_CHECKS {
        if device.supports_dtype(dtype) {
            cases(&mut |case| prove(case, &device));
        } else {
            eprintln!("{dtype:?} is not checked: the device does not have it");
        }
    }
    empty_tensors_stay_empty(&device, name == "cpu");
    a_tuned_model_follows_the_cpu(&device, &name);
}

/// Attached, trained, cut, stored, loaded and drawn on the device: the numbers of the CPU, which share seeds.
fn a_tuned_model_follows_the_cpu(device: &Device, name: &str) {
    let numbers = |shape: [usize; 2], phase: f32, device: &Device| {
        let values = (0..shape[0] * shape[1]).map(|i| (i as f32 * 0.7 + phase).sin() * 0.5);
        Tensor::<2>::from_data(TensorData::new(values.collect(), shape), device)
    };
    let run = |device: &Device, kind: &str| {
        let device = device.clone().autodiff();
        let layer = |d_in, d_out, phase| {
            let layer: Linear = LinearConfig::new(d_in, d_out).with_bias(false).init(&device);
            Linear { weight: Param::from_tensor(numbers([d_in, d_out], phase, &device)), ..layer }
        };
        let net = vec![layer(8, 16, 0.0), layer(16, 3, 1.0)];
        let forward = |net: &Vec<Linear>, x: Tensor<2>| net[1].forward(net[0].forward(x).tanh());
        let x = numbers([12, 8], 2.0, &device);
        let goal = numbers([12, 3], 3.0, &device);
        let config = BayesLora { initial: -4.0, ..BayesLora::new(4) };
        let mut tuned = config.targets(["0"]).unfreeze(["1"]).attach(net.clone(), 7).unwrap();
        let mut optimizer = AdamWConfig::new().init();
        for step in 0..20 {
            let error = forward(&tuned.draw(step), x.clone()) - goal.clone();
            let loss = error.square().mean() + tuned.kl(12).unwrap();
            tuned.step(&mut optimizer, 1e-2, loss);
        }
        let trained = host(forward(tuned.model(), x.clone()));
        let event = tuned.prune().unwrap();
        let folder = new_folder(kind);
        tuned.save(&folder).unwrap();
        let loaded = Tuned::load(net, &folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let drawn = host(forward(&loaded.valid().draw(3), x.clone()));
        assert_eq!(host(forward(loaded.model(), x.clone())), host(forward(tuned.model(), x)));
        (event.kept, trained, drawn)
    };
    let (kept, trained, drawn) = run(device, &name.replace(':', "-"));
    let (kept_on_cpu, trained_on_cpu, drawn_on_cpu) = run(&Device::flex(), "reference");
    assert_eq!(kept, kept_on_cpu);
    for (values, expected) in [(trained, trained_on_cpu), (drawn, drawn_on_cpu)] {
        assert_eq!(values.len(), expected.len());
        for (value, expected) in values.iter().zip(&expected) {
            assert!((value - expected).abs() < 1e-4, "{value} for {expected}");
        }
    }
}

/// A folder that does not exist yet.
fn new_folder(kind: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("lrvd-ops-device-{kind}-{}", std::process::id()))
}

fn empty_tensors_stay_empty(device: &Device, cpu: bool) {
    let none = leaf(&[], device, DType::F32);
    assert_eq!(ops::dropout(none.clone(), 0.5, key()).dims(), [0]);
    assert_eq!(ops::standard_normal(&none, [0, 3], key()).dims(), [0, 3]);
    let rows = none.clone().reshape([0, 3]);
    let three = leaf(&[0.5; 3], device, DType::F32);
    // An adapter pruned to rank 0 has no KL to sum; a width of 0 gives zeros.
    assert_eq!(host(ops::kl_log_uniform(rows.clone(), 1, three.clone())), [0.0; 3]);
    assert_eq!(ops::kl_log_uniform(rows.clone(), 0, none.clone()).dims(), [0]);
    assert_eq!(ops::add_gaussian_noise(rows.clone(), rows.clone(), noise()).dims(), [0, 3]);
    if !cpu {
        // There the others are Burn's operations, which panic on empty tensors in a development build
        // (burn-cubecl 0.22.1, `CubeTensor::is_nonoverlapping`: 0 - 1 overflows).
        return;
    }
    assert_eq!(ops::gelu(none.clone()).dims(), [0]);
    let shift = Some(three.clone());
    assert_eq!(ops::layer_norm(rows.clone(), three.clone(), shift, 1e-5).dims(), [0, 3]);
    assert_eq!(ops::rms_norm(rows.clone(), three.clone(), 1e-5).dims(), [0, 3]);
    assert_eq!(ops::gated_silu(rows.clone(), rows.clone()).dims(), [0, 3]);
    let noisy = ops::add_rank_two_noise(rows, none.clone(), three, none.clone(), noise());
    assert_eq!(noisy.dims(), [0, 3]);
    for shape in [[2, 0, 1, 3], [0, 3, 2, 1]] {
        let tokens = Tensor::<4>::zeros(shape, device);
        let mask = Tensor::<2>::zeros([shape[0], shape[1]], device);
        let [query, key] = [&tokens; 2].map(Tensor::clone);
        let out = ops::attention(query, key, tokens, mask, Window::CAUSAL, 1.0);
        assert_eq!(out.dims(), shape);
    }
    let states = none.clone().reshape([0, 3, 4]);
    let [query, key, value] = [states.clone(), states.clone(), states];
    let rows = PositionRows { shared: Tensor::zeros([1, 5, 4], device), low: None };
    let rows_of = [0, 1, 2, 3, 4].into();
    let layout = AttentionLayout { heads: 2, rows: rows_of, scale: 1.0, dropout: None };
    let mask = Some(none.reshape([0, 3]));
    let out = ops::disentangled_attention(query, key, value, Some(rows), None, mask, layout);
    assert_eq!(out.dims(), [0, 3, 4]);
}
