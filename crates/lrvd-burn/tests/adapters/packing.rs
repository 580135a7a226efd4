//! Weights in the form in which products read them.

use crate::support::prelude::*;
use lrvd_burn::model::packed;
use lrvd_burn::ops::Packing;

/// Depths of several blocks, and columns of several panels with a rest.
const SIZES: [usize; 2] = [395, 709];

/// A layer with a posterior of three ranks.
fn wide() -> AdaptedLinear {
    let [d_input, d_output] = SIZES;
    let noise = host_noise(VariationalFamily::RankVariance, vec![-3.1, 0.5, -1.2], Vec::new());
    let (a, b) = (numbers(11, 3 * d_input), numbers(12, 3 * d_output));
    let host = HostAdapter { rank: 3, d_input, d_output, a, b, noise: Some(noise), ..plain() };
    layer(&host, DType::F32)
}

fn rows(sequences: usize, tokens: usize) -> Tensor<3> {
    let [d_input, _] = SIZES;
    tensor(&numbers(3, sequences * tokens * d_input), [sequences, tokens, d_input], DType::F32)
}

#[rstest]
#[case(1, 1)]
#[case(2, 4)]
#[case(4, 7)]
#[case(4, 40)]
fn panels_give_the_same_bits(#[case] sequences: usize, #[case] tokens: usize) {
    let (x, layer) = (rows(sequences, tokens), wide());
    let mut bare = layer.clone();
    bare.detach();
    for layer in [layer, bare] {
        let panels = packed(&layer, Packing::Panels);
        assert_eq!(ranks(&panels), ranks(&layer));
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(5));
            // The first pass makes the form, the second has it.
            for _ in 0..2 {
                let [found, expected] =
                    [&panels, &layer].map(|layer| host(layer.forward_with(x.clone(), &pass)));
                assert!(found == expected, "{scheme:?}: {sequences} x {tokens}");
            }
        }
    }
}

#[test]
fn a_weight_that_has_changed_is_read_in_its_own_form() {
    let mut layer = packed(&wide(), Packing::Panels);
    let x = rows(2, 9);
    layer.forward(x.clone());
    let weight = layer.weight.base() * 2.0;
    layer.set_weight(weight.clone());
    let mut other = wide();
    other.set_weight(weight);
    assert!(host(layer.forward(x.clone())) == host(other.forward(x)));
}

/// The formula of `Packing::Integer`, in double precision and exact sums.
#[cfg(feature = "int8")]
fn in_eight_bits(x: &[f32], weight: &[f32], bias: &[f32]) -> Vec<f64> {
    let [depth, columns] = SIZES;
    let fold = |values: &mut dyn Iterator<Item = f32>, f: fn(f32, f32) -> f32| values.fold(0.0, f);
    let scales: Vec<f32> = (0..columns)
        .map(|j| fold(&mut (0..depth).map(|p| weight[p * columns + j].abs()), f32::max) / 63.0)
        .collect();
    let of_weight = |p: usize, j: usize| match scales[j] {
        0.0 => 0,
        scale => (weight[p * columns + j] / scale).round_ties_even() as i64,
    };
    let mut out = Vec::new();
    for row in x.chunks(depth) {
        let least = fold(&mut row.iter().copied(), f32::min);
        let scale = (fold(&mut row.iter().copied(), f32::max) - least) / 255.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let zero = (-least * inverse).round_ties_even();
        let value = |x: f32| (x * inverse + (zero + 0.5)).floor().clamp(0.0, 255.0) as i64;
        for j in 0..columns {
            let sum: i64 =
                (0..depth).map(|p| (value(row[p]) - zero as i64) * of_weight(p, j)).sum();
            out.push(f64::from(scale) * f64::from(scales[j]) * sum as f64 + f64::from(bias[j]));
        }
    }
    out
}

#[cfg(feature = "int8")]
#[test]
fn a_layer_whose_ranks_are_all_cut_keeps_its_form() {
    let mut layer = wide();
    let slot = layer.slot().unwrap();
    layer.detach();
    let mut cut = packed(&layer, Packing::Integer);
    let expected = host(cut.forward(rows(2, 5)));
    cut.attach_empty("net.first", slot);
    assert!(host(cut.forward(rows(2, 5))) == expected);
}

#[cfg(feature = "int8")]
#[test]
fn products_of_eight_bits_are_those_of_the_formula() {
    let mut layer = wide();
    layer.detach();
    let [depth, columns] = SIZES;
    let narrow = |values: Vec<f64>| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
    let mut weight = narrow(host(layer.weight.base()));
    // An output without weights, and one of a single sign.
    for p in 0..depth {
        weight[p * columns] = 0.0;
        weight[p * columns + 1] = weight[p * columns + 1].abs();
    }
    let values: Vec<f64> = weight.iter().map(|&w| f64::from(w)).collect();
    layer.set_weight(tensor(&values, SIZES, DType::F32));
    let bias = narrow(host(layer.bias.as_ref().unwrap().val()));
    let integer = packed(&layer, Packing::Integer);
    for count in [1, 2, 8, 9, 70, 150] {
        let mut x = narrow(numbers(7, count * depth));
        // A row of zeros, and rows of one sign.
        x[..depth].fill(0.0);
        for (i, row) in x.chunks_mut(depth).enumerate().skip(1).take(2) {
            for v in row {
                *v = v.abs() * if i == 1 { 3.0 } else { -1.0 };
            }
        }
        let input: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
        let input = tensor(&input, [1, count, depth], DType::F32);
        let found = host(integer.forward(input.clone()));
        close("eight bits", &found, &in_eight_bits(&x, &weight, &bias), 3e-7);
        let exact = host(layer.forward(input));
        let off = found.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let most = exact.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        assert!(count == 1 || (off > 0.0 && off < 0.02 * most), "{count} rows: {off} of {most}");
    }
    let none = integer.forward(tensor(&[], [0, 3, depth], DType::F32));
    assert_eq!(none.dims(), [0, 3, columns]);
    let mut broken = numbers(8, 2 * depth);
    broken[depth + 3] = f64::NAN;
    let out = host(integer.forward(tensor(&broken, [1, 2, depth], DType::F32)));
    assert!(out[..columns].iter().all(|v| v.is_finite()), "the row beside it");
    assert!(out[columns..].iter().all(|v| v.is_nan()), "a row with a NaN");
}

/// The update is that of single precision, and a row has the same bits alone and among others.
#[cfg(feature = "int8")]
#[test]
fn an_adapter_beside_eight_bits_stays_in_single_precision() {
    let layer = wide();
    let integer = packed(&layer, Packing::Integer);
    let bare = |mut layer: AdaptedLinear| {
        layer.edit(|adapter| adapter.scaling = 0.0);
        layer
    };
    let x = rows(4, 5);
    for scheme in [Scheme::Mean, Scheme::PerBatch, Scheme::PerSequence, Scheme::PerToken] {
        let pass = Pass::sampled(scheme, NoiseKey::new(5));
        let update = |layer: &AdaptedLinear| {
            let [with, without] = [layer.clone(), bare(layer.clone())]
                .map(|layer| host(layer.forward_with(x.clone(), &pass)));
            plus(&with, &times(&without, &vec![-1.0; without.len()]))
        };
        close(&format!("{scheme:?}"), &update(&integer), &update(&layer), 1e-5);
    }
    let all = host(integer.forward(x.clone()));
    let one = host(integer.forward(x.narrow(1, 3, 1).narrow(0, 2, 1)));
    assert!(one[..] == all[13 * SIZES[1]..][..SIZES[1]]);
}
