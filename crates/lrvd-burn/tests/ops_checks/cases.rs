//! The operators with inputs of odd sizes.

use burn::tensor::Tensor;
use lrvd_burn::ops::disentangled_attention::{AttentionLayout, PositionRows};
use lrvd_burn::ops::{
    LowRank, Noise, OutputNoise, Window, adapted_linear, add_gaussian_noise, add_rank_two_noise,
    attention, disentangled_attention, dropout, gated_silu, gaussian_draw, gelu, kl_log_uniform,
    layer_norm, moment_matched_linear, rms_norm, row_energy, standard_normal,
};
use lrvd_core::noise::NoiseKey;

use super::{Case, wave};

/// Called with each case.
pub(crate) type Check<'a> = &'a mut dyn FnMut(&Case);

fn case(
    f: Check,
    name: &str,
    leaves: Vec<Vec<f64>>,
    differentiable: Vec<bool>,
    op: impl Fn(&[Tensor<1>]) -> Tensor<1> + Sync,
) {
    f(&Case { name, op: &op, leaves, differentiable });
}

pub(crate) fn key() -> NoiseKey {
    NoiseKey::new(0x1234_5678_9abc_def0).at_step(3).for_module(77).on_stream(2)
}

/// A scale other than 1, so that a forgotten factor shows.
pub(crate) fn noise() -> Noise {
    Noise { key: key(), scale: 1.75 }
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    tensor.flatten(0, D - 1)
}

/// Leaf `i` with a shape.
fn at<const D: usize>(x: &[Tensor<1>], i: usize, shape: [usize; D]) -> Tensor<D> {
    x[i].clone().reshape(shape)
}

fn scaled(values: Vec<f64>, factor: f64, shift: f64) -> Vec<f64> {
    values.into_iter().map(|v| v * factor + shift).collect()
}

/// Runs `f` on every case of every operator.
pub(crate) fn each(f: Check) {
    linear_cases(f);
    pointwise_cases(f);
    norm_cases(f);
    attention_cases(f);
    energy_cases(f);
    each_with_kernel(f);
}

/// Runs `f` on every case of the operators that have a kernel, alone or as a part.
pub(crate) fn each_with_kernel(f: Check) {
    dropout_cases(f, &[(1, 0.5), (7, 0.1), (20_011, 0.3), (9, 1.0), (9, 0.0)]);
    disentangled_cases(
        f,
        &[
            ([3, 1, 2, 3, 5, 1, 2], true, true, 0.0),
            ([2, 2, 3, 5, 9, 1, 2], true, true, 0.0),
            ([2, 1, 2, 4, 3, 1, 0], true, false, 0.3),
            ([2, 2, 1, 3, 4, 2, 1], false, true, 0.3),
            ([1, 2, 2, 1, 1, 1, 1], true, true, 0.0),
            ([2, 1, 2, 3, 1, 1, 0], false, false, 0.0),
            ([2, 3, 17, 37, 41, 1, 3], true, true, 0.1),
        ],
    );
    normal_cases(f, &[1, 3_333]);
    draw_cases(
        f,
        &[
            (1, [1, 1], [1, 1]),
            (3, [4, 3], [1, 3]),
            (2, [3, 5], [3, 1]),
            (2, [4, 6], [4, 6]),
            (2, [97, 91], [1, 91]),
        ],
    );
    moment_matched_cases(
        f,
        &[([1, 3, 5, 4, 2], true), ([2, 7, 19, 33, 3], false), ([2, 25, 40, 70, 9], true)],
    );
    noise_cases(f, &[[3, 5], [1, 1], [1, 7], [29, 770]]);
    kl_cases(
        f,
        &[([4, 7], 0), ([7, 4], 1), ([1, 1], 0), ([3, 1111], 0), ([1111, 3], 1), ([5, 700], 1)],
    );
}

/// Runs `f` on cases of every operator with a kernel at the sizes of a training step of DeBERTa-base: adapters of rank 8 on
/// layers of 768, for `texts` of `tokens` each.
pub(crate) fn each_of_a_step(texts: usize, tokens: usize, f: Check) {
    let rows = texts * tokens;
    dropout_cases(f, &[(rows * 768, 0.1)]);
    disentangled_cases(f, &[([texts, 12, 64, tokens, 512, 1, 8], true, true, 0.1)]);
    normal_cases(f, &[rows * 768]);
    draw_cases(f, &[(texts, [768, 8], [1, 8])]);
    moment_matched_cases(f, &[([texts, tokens, 768, 768, 8], true)]);
    noise_cases(f, &[[rows, 768]]);
    kl_cases(f, &[([768, 8], 1)]);
}

/// Runs `f` on a case of every kernel that takes a row at a time, with more rows than a device counts
/// along one axis, and on one with rows longer than a cube.
pub(crate) fn each_of_many_rows(f: Check) {
    disentangled_cases(
        f,
        &[
            ([17_000, 2, 1, 2, 2, 1, 0], true, true, 0.0),
            ([1, 1, 2, 300, 70, 1, 1], true, true, 0.1),
        ],
    );
    kl_cases(f, &[([70_001, 3], 0), ([3, 70_001], 1), ([70_001, 3], 1)]);
}

fn linear_cases(f: Check) {
    // Sequences, tokens, features in and out, groups, rank: one row and column; products of few rows; draws per
    // sequence; two members; a depth of more than one block, more rows and columns than one tile, ranks beyond a vector.
    for [n, t, i, o, g, r] in [
        [2, 3, 5, 7, 1, 2],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 203, 9, 1, 3],
        [2, 1, 6, 205, 2, 2],
        [3, 1, 5, 17, 1, 2],
        [4, 1, 7, 10, 4, 3],
        [3, 5, 4, 9, 3, 3],
        [4, 2, 6, 2, 2, 5],
        [2, 21, 203, 37, 2, 17],
        [2, 60, 24, 70, 1, 8],
    ] {
        for (with_bias, with_low) in [(true, true), (false, true), (true, false)] {
            let name = format!("adapted_linear {n}x{t}x{i}x{o} {g}/{r} {with_bias} {with_low}");
            let root = 1.0 / (i as f64).sqrt();
            let leaves = vec![
                wave(n * t * i, 0.1),
                scaled(wave(i * o, 0.5), root, 0.0),
                wave(o, 1.1),
                scaled(wave(g * i * r, 1.5), root, 0.0),
                wave(g * r * o, 2.1),
            ];
            let tracked = vec![true, true, with_bias, with_low, with_low];
            case(f, &name, leaves, tracked, |x| {
                // The input and the weight come as transposed views.
                let low = LowRank { a: at(x, 3, [g, i, r]), b: at(x, 4, [g, r, o]), scale: 0.7 };
                flat(adapted_linear(
                    at(x, 0, [t, n, i]).swap_dims(0, 1),
                    at(x, 1, [o, i]).transpose(),
                    with_bias.then(|| x[2].clone()),
                    with_low.then_some(low),
                ))
            });
        }
    }
}

fn pointwise_cases(f: Check) {
    for [rows, columns] in [[1, 1], [1, 5], [3, 257], [17, 1177]] {
        let x = scaled(wave(rows * columns, 0.2), 5.0, 0.3);
        let name = format!("gelu {rows}x{columns}");
        case(f, &name, vec![x.clone()], vec![true], |x| gelu(x[0].clone()));
        let leaves = vec![x, wave(rows * columns, 1.2)];
        let name = format!("gated_silu {rows}x{columns}");
        case(f, &name, leaves, vec![true; 2], |x| {
            let gate = at(x, 0, [columns, rows]).transpose();
            flat(gated_silu(gate, at(x, 1, [rows, columns])))
        });
    }
}

fn dropout_cases(f: Check, sizes: &[(usize, f64)]) {
    for &(count, rate) in sizes {
        let (name, leaves) = (format!("dropout {count} at {rate}"), vec![wave(count, 0.4)]);
        case(f, &name, leaves, vec![true], |x| dropout(x[0].clone(), rate, key()));
    }
}

fn norm_cases(f: Check) {
    for [b, n, d] in [[2, 3, 5], [1, 1, 17], [3, 41, 130], [2, 3, 1]] {
        let (x, gamma) = (scaled(wave(b * n * d, 0.1), 2.0, 0.7), scaled(wave(d, 0.9), 0.5, 1.0));
        // A width of 1 has variance 0 whatever the input; the root of eps then scales rounding.
        let same = if d == 1 { vec![0.5; b * n] } else { x.clone() };
        let (name, leaves) =
            (format!("layer_norm {b}x{n}x{d}"), vec![same, gamma.clone(), wave(d, 1.9)]);
        case(f, &name, leaves, vec![true; 3], |x| {
            let shift = Some(x[2].clone());
            flat(layer_norm(at(x, 0, [n, b, d]).swap_dims(0, 1), x[1].clone(), shift, 1e-7))
        });
        let (name, leaves) = (format!("rms_norm {b}x{n}x{d}"), vec![x, gamma]);
        case(f, &name, leaves, vec![true; 2], |x| {
            flat(rms_norm(at(x, 0, [n, b, d]).swap_dims(0, 1), x[1].clone(), 1e-5))
        });
    }
}

fn attention_cases(f: Check) {
    // One key head per query head, groups of two and of three, one group; less and more than a block of keys.
    for [b, t, h, g, d] in [[2, 5, 2, 2, 3], [1, 1, 2, 1, 2], [2, 7, 3, 1, 2], [2, 67, 4, 2, 5]] {
        // The first example is padded on the right, the second on the left: its first queries see no key.
        let mask = (0..b * t).map(|i| if i < t { i < t - t / 3 } else { i % t >= t / 4 });
        let leaves = vec![
            scaled(wave(b * t * h * d, 0.3), 3.0, 0.0),
            scaled(wave(b * t * g * d, 1.3), 3.0, 0.0),
            wave(b * t * g * d, 2.3),
            mask.map(|live| f64::from(u8::from(live))).collect(),
        ];
        // One on either side leaves most keys of a block unseen, and the next block starts behind the first key.
        for window in
            [Window::CAUSAL, Window::ALL, Window::around(1), Window { before: 3, after: 0 }]
        {
            let name = format!("attention {b}x{t}x{h}/{g}x{d} {window:?}");
            case(f, &name, leaves.clone(), vec![true, true, true, false], |x| {
                flat(attention(
                    at(x, 0, [b, t, h, d]),
                    // Keys come as a transposed view.
                    at(x, 1, [b, g, t, d]).swap_dims(1, 2),
                    at(x, 2, [b, t, g, d]),
                    at(x, 3, [b, t]),
                    window,
                    0.37,
                ))
            });
        }
    }
}

fn disentangled_cases(f: Check, sizes: &[([usize; 7], bool, bool, f64)]) {
    // Sequences, heads, width of a head, tokens, position rows, copies of them, rank of the low part: one
    // factor for each of two sequences, and one for all three.
    for &([b, h, d, l, rows, copies, r], with_keys, with_queries, rate) in sizes {
        let factors = if b == 3 { 1 } else { b };
        // Far offsets share rows, as logarithmic buckets do.
        let offsets = (2 * l - 1) as f64;
        let places: Vec<u32> =
            (0..2 * l - 1).map(|o| (o as f64 / offsets * rows as f64) as u32).collect();
        let layout = AttentionLayout {
            heads: h,
            rows: places.into(),
            scale: 0.37,
            dropout: (rate > 0.0).then(|| (rate, key())),
        };
        // In the second example every key but the first is masked if there are two.
        let mask =
            (0..b * l).map(|i| f64::from(u8::from(i % l < l - l / 3 && i / l == 0 || i == l)));
        let (operand, shared) = (b * l * h * d, copies * rows * h * d);
        let (hidden, up) = (factors * rows * r, factors * r * h * d);
        let sizes = [operand, operand, operand, shared, hidden, up, shared, hidden, up];
        let mut leaves: Vec<Vec<f64>> = (0u8..)
            .zip(sizes)
            .map(|(i, size)| scaled(wave(size, 0.3 + f64::from(i)), 1.5, 0.0))
            .collect();
        leaves.push(mask.collect());
        let terms = [with_keys, with_queries].map(|with| [with, with && r > 0, with && r > 0]);
        let mut differentiable = vec![true; 3];
        differentiable.extend(terms.concat());
        differentiable.push(false);
        let name = format!("disentangled_attention {b}x{h}x{d}x{l} {rows}/{copies}/{r} {rate}");
        case(f, &name, leaves, differentiable, |x| {
            let term = |i: usize| PositionRows {
                shared: at(x, i, [copies, rows, h * d]),
                low: (r > 0)
                    .then(|| (at(x, i + 1, [factors, rows, r]), at(x, i + 2, [factors, r, h * d]))),
            };
            flat(disentangled_attention(
                at(x, 0, [b, l, h * d]),
                // Keys come as a transposed view.
                at(x, 1, [l, b, h * d]).swap_dims(0, 1),
                at(x, 2, [b, l, h * d]),
                with_keys.then(|| term(3)),
                with_queries.then(|| term(6)),
                Some(at(x, 9, [b, l])),
                layout.clone(),
            ))
        });
    }
}

fn normal_cases(f: Check, counts: &[usize]) {
    for &count in counts {
        let name = format!("standard_normal {count}");
        case(f, &name, vec![wave(count, 0.3)], vec![true], |x| {
            x[0].clone() * standard_normal(&x[0], [count], key())
        });
    }
}

/// Draws, the mean's shape, and that of the deviations.
fn draw_cases(f: Check, sizes: &[(usize, [usize; 2], [usize; 2])]) {
    for &(count, [rows, columns], narrow) in sizes {
        let name = format!("gaussian_draw {count}x{rows}x{columns} {narrow:?}");
        let std = scaled(wave(narrow[0] * narrow[1], 0.5), 0.4, 1.0);
        let leaves = vec![wave(rows * columns, 0.1), std];
        case(f, &name, leaves, vec![true; 2], |x| {
            let mean = at(x, 0, [columns, rows]).transpose();
            flat(gaussian_draw(mean, at(x, 1, narrow), count, key()))
        });
    }
}

fn energy_cases(f: Check) {
    for ([n, d], weighted) in
        [([3, 5], true), ([1, 1], false), ([7, 300], true), ([40, 301], false)]
    {
        let name = format!("row_energy {n}x{d} {weighted}");
        let leaves = vec![wave(n * d, 0.1), wave(d, 0.5)];
        case(f, &name, leaves, vec![true, weighted], |x| {
            let rows = at(x, 0, [d, n]).transpose();
            row_energy(rows, weighted.then(|| x[1].clone()))
        });
    }
}

fn moment_matched_cases(f: Check, sizes: &[([usize; 5], bool)]) {
    for (&([n, t, i, o, r], with_bias), both) in sizes.iter().flat_map(|s| [(s, true), (s, false)])
    {
        let noise = OutputNoise { noise: noise(), both, cross: if r == 2 { 0.0 } else { 1.0 } };
        let leaves = vec![
            wave(n * t * i, 0.1),
            wave(i * o, 0.9),
            wave(o, 0.4),
            wave(i * r, 1.7),
            wave(r * o, 2.3),
            (0..r).map(|k| 0.1 + 0.05 * k as f64).collect(),
        ];
        let name = format!("moment_matched_linear {n}x{t}x{i}x{o} {r} {with_bias} {both}");
        let differentiable = vec![true, false, with_bias, true, true, true];
        case(f, &name, leaves, differentiable, |x| {
            let scale = noise.noise.scale;
            let low = LowRank { a: at(x, 3, [1, i, r]), b: at(x, 4, [1, r, o]), scale };
            let bias = with_bias.then(|| x[2].clone());
            let (rows, weight) = (at(x, 0, [n, t, i]), at(x, 1, [i, o]));
            flat(moment_matched_linear(rows, weight, bias, low, x[5].clone(), noise))
        });
    }
}

fn noise_cases(f: Check, sizes: &[[usize; 2]]) {
    for &[n, d] in sizes {
        let leaves = vec![
            wave(n * d, 0.1),
            scaled(wave(n, 0.5), 0.4, 1.0),
            scaled(wave(d, 1.5), 0.3, 0.6),
            // The second row is negative throughout: its variance is clamped.
            (0..n).map(|i| if i == 1 { -3.0 } else { 0.2 + 0.01 * i as f64 }).collect(),
        ];
        let name = format!("add_rank_two_noise {n}x{d}");
        case(f, &name, leaves, vec![true; 4], |x| {
            let [q, w, t] = [1, 2, 3].map(|i: usize| x[i].clone());
            flat(add_rank_two_noise(at(x, 0, [n, d]), q, w, t, noise()))
        });
        let variance = wave(n * d, 2.5).into_iter().map(|v| v + 0.2_f64.copysign(v)).collect();
        let leaves = vec![wave(n * d, 0.1), variance];
        let name = format!("add_gaussian_noise {n}x{d}");
        case(f, &name, leaves, vec![true; 2], |x| {
            let [mean, variance] = [0, 1].map(|i: usize| at(x, i, [n, d]));
            flat(add_gaussian_noise(mean, variance, noise()))
        });
    }
}

fn kl_cases(f: Check, sizes: &[([usize; 2], usize)]) {
    for &(shape, rank_axis) in sizes {
        // Inside, below and above the clamp.
        let log_variance = wave(shape[rank_axis], 0.2).into_iter().enumerate();
        let log_variance = log_variance.map(|(k, v)| match k % 4 {
            1 => -22.0 + v,
            3 => 3.0 + 0.5 * v,
            _ => -5.0 + 4.0 * v,
        });
        let mean = wave(shape[0] * shape[1], 0.6).into_iter();
        let mean = mean.map(|v| 0.3 * v + 0.02_f64.copysign(v));
        let leaves = vec![mean.collect(), log_variance.collect()];
        let name = format!("kl_log_uniform {shape:?} rank axis {rank_axis}");
        case(f, &name, leaves, vec![true; 2], |x| {
            kl_log_uniform(at(x, 0, [shape[1], shape[0]]).transpose(), rank_axis, x[1].clone())
        });
    }
}
