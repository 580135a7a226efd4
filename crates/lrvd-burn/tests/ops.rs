//! The fused operators on the CPU: threads, buffers, noise and edges; `ops_device` holds them against their
//! definitions.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod ops_checks;

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdaptedLinear, BaseBits};
use lrvd_burn::ops::disentangled_attention::AttentionLayout;
use lrvd_burn::ops::{self, LowRank, Window};
use lrvd_core::noise::{fill_normal, fill_normal_f64};
use ops_checks::cases::{each, key, noise};
use ops_checks::{Case, distance, evaluate, host, leaf, wave};
use rstest::rstest;

#[test]
fn the_gradient_check_finds_a_wrong_gradient() {
    // The square with one factor cut from the graph has half the gradient.
    let half = Case {
        name: "half",
        op: &|x| x[0].clone() * Tensor::from_inner(x[0].clone().inner()),
        leaves: vec![wave(5, 0.3)],
        differentiable: vec![true],
    };
    assert!(half.distance_from_differences(&Device::flex(), DType::F64) > 0.1);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    each(&mut |case| {
        let [one, three] = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (leaves, tracked) = (&case.leaves, &case.differentiable);
            pool.install(|| evaluate(case.op, leaves, tracked, &Device::flex(), DType::F32))
        });
        assert!(one == three, "{}", case.name);
    });
}

#[test]
fn inputs_that_are_still_in_use_keep_their_values() {
    each(&mut |case| {
        let tensors = |values: &Vec<f64>| leaf(values, &Device::flex(), DType::F32);
        let leaves: Vec<_> = case.leaves.iter().map(tensors).collect();
        let before: Vec<_> = leaves.iter().cloned().map(host).collect();
        let _ = (case.op)(&leaves);
        let after: Vec<_> = leaves.into_iter().map(host).collect();
        assert!(before == after, "{}", case.name);
    });
}

#[test]
fn masked_keys_may_hold_anything_finite_and_a_row_without_keys_is_zero() {
    let device = Device::flex();
    let tensor = |values: &[f64]| leaf(values, &device, DType::F32).reshape([2, 2, 1]);
    let (query, key) = (tensor(&[1.0, -1.0, 1.0, 2.0]), tensor(&[1.0, 1.0e38, 1.0, 2.0]));
    let mask = leaf(&[1.0, 0.0, 0.0, 0.0], &device, DType::F32).reshape([2, 2]);
    let value = tensor(&[5.0, 7.0, 1.0, 2.0]);
    let layout = AttentionLayout { heads: 1, rows: [].into(), scale: 2.0, dropout: None };
    let operands = [query, key, value];
    for definition in [false, true] {
        let [query, key, value] = operands.clone();
        let [q, k, v] = operands.clone().map(|x| x.unsqueeze_dim(2));
        let (mask, layout) = (mask.clone(), layout.clone());
        let both = || {
            let windowed = ops::attention(q, k, v, mask.clone(), Window::CAUSAL, 2.0);
            let out =
                ops::disentangled_attention(query, key, value, None, None, Some(mask), layout);
            [host(out), host(windowed)]
        };
        let found = if definition { ops::by_definition(both) } else { both() };
        assert_eq!(found, [[5.0, 5.0, 0.0, 0.0], [5.0, 5.0, 0.0, 0.0]]);
    }
}

#[test]
fn noise_is_the_stream_of_its_key() {
    let device = Device::flex();
    let shape = [3, 67, 131];
    let count = shape.iter().product();
    let (mut single, mut double) = (vec![0.0f32; count], vec![0.0f64; count]);
    fill_normal(key(), 0, &mut single);
    fill_normal_f64(key(), 0, &mut double);
    let like = leaf(&[0.0], &device, DType::F32);
    let noise = ops::standard_normal(&like, shape, key());
    assert_eq!(noise.dims(), shape);
    assert!(noise.into_data().try_into_vec::<f32>().unwrap() == single);
    let like = leaf(&[0.0], &device, DType::F64);
    assert!(host(ops::standard_normal(&like, shape, key())) == double);
    let tracked = leaf(&[0.0], &device.autodiff(), DType::F32).require_grad();
    let product = ops::standard_normal(&tracked, [2], key()) * tracked.clone();
    assert!(tracked.grad(&product.sum().backward()).is_some());
}

/// Up to eight rows meet the weight in place, up to 128 in strips, and more rows meet it packed as a whole. Depths of several blocks and of less than one,
/// with and without a rest of four; columns of several tasks, and of fewer than a vector.
#[rstest]
#[case([608, 705, 3])]
#[case([203, 37, 2])]
#[case([5, 3, 1])]
fn a_row_of_a_layer_has_the_same_bits_alone_and_among_others(#[case] sizes: [usize; 3]) {
    let [depth, columns, rank] = sizes;
    let rows = 140;
    let values = |phase, shape: [usize; 2]| -> Tensor<2> {
        leaf(&wave(shape[0] * shape[1], phase), &Device::flex(), DType::F32).reshape(shape)
    };
    let x = values(0.1, [rows, depth]);
    let [a, b] = [values(0.3, [depth, rank]), values(0.4, [rank, columns])];
    let low = LowRank { a: a.unsqueeze(), b: b.unsqueeze(), scale: 0.7 };
    let bias: Tensor<1> = values(0.5, [1, columns]).squeeze_dim(0);
    let stored = values(0.2, [depth, columns]);
    let view = values(0.2, [columns, depth]).transpose();
    let layer = |weight: &Tensor<2>, x: Tensor<3>, low| {
        ops::adapted_linear(x, weight.clone(), Some(bias.clone()), low)
    };
    let half = |weight: &Tensor<2>, x: Tensor<3>| {
        let bias = bias.clone().cast(DType::BF16);
        ops::adapted_linear(x.cast(DType::BF16), weight.clone(), Some(bias), None)
    };
    let half_stored = stored.clone().cast(DType::BF16);
    let half_view = values(0.2, [columns, depth]).cast(DType::BF16).transpose();
    let quantized = AdaptedLinear::new(stored.clone(), Some(bias.clone())).quantized(BaseBits::Q8);
    // Blocks have 32 inputs.
    assert_eq!(quantized.is_ok(), depth.is_multiple_of(32));
    let forms: [(&str, &dyn Fn(Tensor<3>) -> Tensor<3>); 7] = [
        ("stored", &|x| layer(&stored, x, None)),
        ("stored, low", &|x| layer(&stored, x, Some(low.clone()))),
        ("view", &|x| layer(&view, x, None)),
        ("view, low", &|x| layer(&view, x, Some(low.clone()))),
        ("half", &|x| half(&half_stored, x)),
        ("half view", &|x| half(&half_view, x)),
        ("quantized", &|x| quantized.as_ref().unwrap().forward(x)),
    ];
    for (form, run) in forms.into_iter().take(6 + usize::from(quantized.is_ok())) {
        let all = host(run(x.clone().unsqueeze()));
        for count in (1..=9).chain([14, 50]) {
            let first = rows - count - count % 3;
            let few = host(run(x.clone().narrow(0, first, count).unsqueeze()));
            assert!(few[..] == all[first * columns..][..count * columns], "{form}: {count} rows");
        }
    }
}

#[rstest]
fn rows_in_half_precision_are_rounded_once(#[values(1, 2, 3, 5, 7, 8, 11)] rows: usize) {
    let [depth, columns] = [200, 70];
    let half = |phase, shape: [usize; 2]| -> Tensor<2> {
        leaf(&wave(shape[0] * shape[1], phase), &Device::flex(), DType::BF16).reshape(shape)
    };
    let bias: Tensor<1> = half(0.5, [1, columns]).squeeze_dim(0);
    for weight in [half(0.2, [depth, columns]), half(0.2, [columns, depth]).transpose()] {
        let x = half(0.1, [rows, depth]);
        let out =
            ops::adapted_linear(x.clone().unsqueeze(), weight.clone(), Some(bias.clone()), None);
        let wide = |x: Tensor<2>| x.cast(DType::F32);
        let exact = wide(x).matmul(wide(weight)) + bias.clone().cast(DType::F32).unsqueeze();
        assert!(distance(&host(out), &host(exact.cast(DType::BF16))) < 1e-2);
    }
}

#[test]
fn checkpointing_devices_give_the_same_gradients() {
    let leaves = [wave(15, 0.2), wave(3, 0.3), wave(5, 0.4), wave(3, 0.5)];
    let [plain, checkpointed] = [false, true].map(|checkpointing| {
        let device = Device::flex().autodiff();
        let device = if checkpointing { device.gradient_checkpointing() } else { device };
        let [x, q, w, t] = leaves.clone().map(|v| leaf(&v, &device, DType::F32).require_grad());
        let hidden = ops::gelu(x.clone().reshape([3, 5]));
        let hidden = ops::layer_norm(hidden, w.clone(), Some(w.clone()), 1e-7);
        let hidden = ops::add_rank_two_noise(hidden, q.clone(), w.clone().exp(), t.exp(), noise());
        let noise = ops::standard_normal(&q, [3, 5], key());
        let loss = (ops::dropout(hidden, 0.2, key()) * noise).sum();
        let grads = loss.backward();
        [x, q, w].map(|leaf| host(leaf.grad(&grads).unwrap()))
    });
    assert!(plain == checkpointed);
}
