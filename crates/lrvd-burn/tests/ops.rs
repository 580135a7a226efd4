//! The fused operators on the CPU: against their composites, central differences, definitions in
//! plain loops, and outside values.

#![cfg(feature = "flex")]
#![allow(clippy::unwrap_used)]

mod ops_checks;

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::ops;
use lrvd_burn::ops::disentangled_attention::{AttentionLayout, PositionRows};
use lrvd_core::noise::{fill_normal, fill_normal_f64, fill_uniform};
use ops_checks::cases::{each, key, noise};
use ops_checks::{Case, distance, evaluate, host, leaf, wave};
use rstest::rstest;

#[rstest]
#[case(DType::F32, 2e-5)]
#[case(DType::F64, 1e-13)]
fn operators_follow_the_composites(#[case] dtype: DType, #[case] tolerance: f64) {
    each(&mut |case| case.check(&Device::flex(), dtype, tolerance));
}

#[test]
fn brain_floats_run_the_composites() {
    each(&mut |case| {
        // Sums over long rows lose digits in this format; the small cases show the route works.
        if case.leaves.iter().all(|leaf| leaf.len() < 60) {
            case.check(&Device::flex(), DType::BF16, 0.02);
        }
    });
}

#[test]
fn gradients_are_central_differences() {
    each(&mut |case| {
        if case.leaves.iter().map(Vec::len).sum::<usize>() < 700 {
            let d = case.gradient_distance();
            assert!(d < 2e-8, "{}: {d:e}", case.name);
        }
    });
}

#[test]
fn the_gradient_check_finds_a_wrong_gradient() {
    // The square with one factor cut from the graph has half the gradient.
    let half = Case {
        name: "half",
        fused: &|x| x[0].clone() * Tensor::from_inner(x[0].clone().inner()),
        composite: &|x| x[0].clone(),
        leaves: vec![wave(5, 0.3)],
        differentiable: vec![true],
    };
    assert!(half.gradient_distance() > 0.1);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    each(&mut |case| {
        let [one, three] = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (leaves, tracked) = (&case.leaves, &case.differentiable);
            pool.install(|| evaluate(case.fused, leaves, tracked, &Device::flex(), DType::F32))
        });
        assert!(one == three, "{}", case.name);
    });
}

#[test]
fn inputs_that_are_still_in_use_keep_their_values() {
    each(&mut |case| {
        let device = Device::flex();
        let leaves: Vec<_> =
            case.leaves.iter().map(|values| leaf(values, &device, DType::F32)).collect();
        let before: Vec<_> = leaves.iter().cloned().map(host).collect();
        let first = host((case.fused)(&leaves));
        // Fresh buffers, which the operators may write over.
        let fresh: Vec<_> = leaves.iter().map(|leaf| leaf.clone().mul_scalar(1.0)).collect();
        assert!(first == host((case.fused)(&fresh)), "{}", case.name);
        let after: Vec<_> = leaves.into_iter().map(host).collect();
        assert!(before == after, "{}", case.name);
    });
}

#[test]
fn temporaries_are_written_over_and_give_the_same_numbers() {
    let device = Device::flex();
    let (values, other) = (wave(20_011, 0.3), wave(20_011, 1.3));
    let x = leaf(&values, &device, DType::F32);
    let y = leaf(&other, &device, DType::F32);
    let kept = host(ops::gelu(x.clone()));
    assert!(kept == host(ops::gelu(x.clone().mul_scalar(1.0))));
    let rows = |t: &Tensor<1>| t.clone().mul_scalar(1.0).reshape([20_011, 1]);
    let shared = x.clone().reshape([20_011, 1]);
    let noisy = host(ops::add_gaussian_noise(shared, rows(&y), noise()));
    assert!(noisy == host(ops::add_gaussian_noise(rows(&x), rows(&y), noise())));
}

#[test]
fn gelu_is_x_times_the_normal_distribution_function() {
    // x · Phi(x) to 17 digits (mpmath, 50-digit working precision).
    let table = [
        (-6.0, -5.919_525_870_260_645e-9),
        (-3.0, -0.004_049_694_094_890_283_6),
        (-1.0, -0.158_655_253_931_457_05),
        (-0.1, -0.046_017_216_272_297_1),
        (0.0, 0.0),
        (0.5, 0.345_731_230_637_006_6),
        (2.0, 1.954_499_736_103_641_6),
        (7.0, 6.999_999_999_991_041),
    ];
    let inputs: Vec<f64> = table.iter().map(|row| row.0).collect();
    let device = Device::flex();
    let single = host(ops::gelu(leaf(&inputs, &device, DType::F32)));
    let double = host(ops::gelu(leaf(&inputs, &device, DType::F64)));
    for (i, (x, expected)) in table.into_iter().enumerate() {
        assert!((single[i] - expected).abs() <= 3e-7 * f64::abs(x), "{x}: {}", single[i]);
        assert!((double[i] - expected).abs() <= 1e-15 * f64::abs(x), "{x}: {}", double[i]);
    }
}

#[test]
fn disentangled_attention_follows_its_definition() {
    let [b, h, d, l, count, r] = [2, 3, 2, 5, 7, 2];
    let places: Vec<u32> = vec![0, 0, 1, 2, 3, 4, 5, 6, 6];
    let width = h * d;
    let [query, key, value] = [0.1, 1.1, 2.1].map(|phase| wave(b * l * width, phase));
    let (pk, pq) = (wave(count * width, 3.1), wave(count * width, 4.1));
    let (hidden, up) = (wave(b * count * r, 5.1), wave(b * r * width, 6.1));
    // The second example has no key at all.
    let mask: Vec<f64> = (0..b * l).map(|i| if i < 3 { 1.0 } else { 0.0 }).collect();
    let scale = 0.6;
    let mut expected = vec![0.0; b * l * width];
    for example in 0..b {
        for head in 0..h {
            let at = |x: &[f64], row: usize, c: usize| x[row * width + head * d + c];
            let key_row = |row: usize, c: usize| {
                let low = |k: usize| {
                    hidden[(example * count + row) * r + k] * at(&up, example * r + k, c)
                };
                at(&pk, row, c) + (0..r).map(low).sum::<f64>()
            };
            for i in 0..l {
                let weight = |j: usize| {
                    let row = places[i + l - 1 - j] as usize;
                    let score: f64 = (0..d)
                        .map(|c| {
                            let q = at(&query, example * l + i, c);
                            let k = at(&key, example * l + j, c);
                            q * k + q * key_row(row, c) + k * at(&pq, row, c)
                        })
                        .sum();
                    mask[example * l + j] * (score * scale).exp()
                };
                let total: f64 = (0..l).map(weight).sum();
                for j in 0..l {
                    for c in 0..d {
                        let p = if total == 0.0 { 0.0 } else { weight(j) / total };
                        let v = at(&value, example * l + j, c);
                        expected[(example * l + i) * width + head * d + c] += p * v;
                    }
                }
            }
        }
    }
    let device = Device::flex();
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6)] {
        let tensor = |x: &[f64], shape| leaf(x, &device, dtype).reshape::<3, _>(shape);
        let [query, key, value] = [&query, &key, &value].map(|x| tensor(x, [b, l, width]));
        let keys = PositionRows {
            shared: tensor(&pk, [1, count, width]),
            low: Some((tensor(&hidden, [b, count, r]), tensor(&up, [b, r, width]))),
        };
        let queries = PositionRows { shared: tensor(&pq, [1, count, width]), low: None };
        let mask = leaf(&mask, &device, dtype).reshape([b, l]);
        let rows = places.clone().into();
        let layout = AttentionLayout { heads: h, rows, scale, dropout: None };
        let (keys, queries) = (Some(keys), Some(queries));
        let out = ops::disentangled_attention(query, key, value, keys, queries, Some(mask), layout);
        let out = host(out);
        assert!(distance(&out, &expected) < tolerance);
        assert!(out.iter().zip(&expected).all(|(&o, &w)| (o == 0.0) == (w == 0.0)));
    }
}

#[test]
fn causal_attention_follows_its_definition() {
    let (b, t, h, g, d, scale) = (2, 35, 4, 2, 3, 0.7);
    let (query, key) = (wave(b * t * h * d, 0.3), wave(b * t * g * d, 1.3));
    let value = wave(b * t * g * d, 2.3);
    let mask: Vec<f64> = (0..b * t).map(|i| f64::from(u8::from(i % 5 != 0))).collect();
    let mut expected = vec![0.0; b * t * h * d];
    for (row, out) in expected.chunks_exact_mut(d).enumerate() {
        let (example, token, head) = (row / h / t, row / h % t, row % h);
        let at = |s: usize| ((example * t + s) * g + head / (h / g)) * d;
        let weight = |s: usize| {
            let score: f64 = (0..d).map(|c| query[row * d + c] * key[at(s) + c]).sum();
            mask[example * t + s] * (score * scale).exp()
        };
        let total: f64 = (0..=token).map(weight).sum();
        for s in 0..=token {
            for (c, out) in out.iter_mut().enumerate() {
                *out += if total == 0.0 { 0.0 } else { weight(s) / total * value[at(s) + c] };
            }
        }
    }
    // The first query of either example sees nothing.
    assert!(expected[..h * d].iter().all(|&out| out == 0.0));
    let device = Device::flex();
    for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6)] {
        let out = ops::causal_attention(
            leaf(&query, &device, dtype).reshape([b, t, h, d]),
            leaf(&key, &device, dtype).reshape([b, t, g, d]),
            leaf(&value, &device, dtype).reshape([b, t, g, d]),
            leaf(&mask, &device, dtype).reshape([b, t]),
            scale,
        );
        assert!(distance(&host(out), &expected) < tolerance);
    }
}

#[test]
fn masked_keys_may_hold_anything_finite() {
    let device = Device::flex();
    let tensor = |values: &[f64]| leaf(values, &device, DType::F32).reshape([1, 2, 1]);
    let (query, key) = (tensor(&[1.0, -1.0]), tensor(&[1.0, 3.0e38]));
    let mask = leaf(&[1.0, 0.0], &device, DType::F32).reshape([1, 2]);
    let layout = AttentionLayout { heads: 1, rows: [].into(), scale: 2.0, dropout: None };
    let value = tensor(&[5.0, 7.0]);
    let out = ops::disentangled_attention(query, key, value, None, None, Some(mask), layout);
    assert_eq!(host(out), [5.0, 5.0]);
}

#[test]
fn kl_follows_the_table_of_its_definition() {
    // docs/math/kl.md, "One weight": a = log_alpha, KL(a), dKL/da; with mean 1, a = log_variance - ln(1 + 1e-8).
    let table = [
        (-20.0, 10.635_760_001_030, -0.499_999_998_970),
        (-8.0, 4.635_899_480_334, -0.499_874_289_042),
        (-2.0, 1.540_532_741_238, -0.617_465_340_248),
        (0.0, 0.431_238_950_990, -0.359_127_728_320),
        (2.0, 0.068_416_546_037, -0.066_908_274_514),
    ];
    let log_variance: Vec<f64> = table.iter().map(|row| row.0).collect();
    let device = Device::flex().autodiff();
    let log_variance = leaf(&log_variance, &device, DType::F64).require_grad();
    let mean = leaf(&[1.0; 10], &device, DType::F64).reshape([2, 5]);
    let kl = ops::kl_log_uniform(mean, 1, log_variance.clone());
    let slopes = host(log_variance.grad(&kl.clone().sum().backward()).unwrap());
    for ((kl, slope), row) in host(kl).into_iter().zip(slopes).zip(table) {
        assert!((kl / 2.0 - row.1).abs() < 1e-8, "KL({}) = {kl}", row.0);
        assert!((slope / 2.0 - row.2).abs() < 1e-8, "KL'({}) = {slope}", row.0);
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

#[test]
fn dropout_keeps_what_the_uniform_numbers_say() {
    let (count, rate) = (10_007, 0.1);
    let mut uniform = vec![0.0f32; count];
    fill_uniform(key(), 0, &mut uniform);
    let x = leaf(&vec![1.0; count], &Device::flex(), DType::F64);
    let out = host(ops::dropout(x, rate, key()));
    for (&out, &uniform) in out.iter().zip(&uniform) {
        assert_eq!(out, if f64::from(uniform) >= rate { 1.0 / 0.9 } else { 0.0 });
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
        let hidden = ops::layer_norm(hidden, w.clone(), w.clone(), 1e-7);
        let hidden = ops::add_rank_two_noise(hidden, q.clone(), w.clone().exp(), t.exp(), noise());
        let noise = ops::standard_normal(&q, [3, 5], key());
        let loss = (ops::dropout(hidden, 0.2, key()) * noise).sum();
        let grads = loss.backward();
        [x, q, w].map(|leaf| host(leaf.grad(&grads).unwrap()))
    });
    assert!(plain == checkpointed);
}
