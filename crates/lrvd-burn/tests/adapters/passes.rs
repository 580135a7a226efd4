//! Passes through an adapted layer: numbers and gradients by definition, draws, shared rows, dropout, and what trains.

use crate::support::prelude::*;
use burn::backend::autodiff::NodeId;
use burn::module::ParamId;
use burn::tensor::FloatDType;
use lrvd_burn::adapter::BaseBits;
use lrvd_burn::model::recomputed;

fn key() -> NoiseKey {
    NoiseKey::new(0x1234_5678_9abc).at_step(3)
}

fn run(layer: &AdaptedLinear, x: Tensor<3>, scheme: Scheme) -> Vec<f64> {
    host(layer.forward_with(x, &Pass::sampled(scheme, key())))
}

/// Each kind of adapter under each scheme: the numbers that the definition gives for the noise of the layer's own key,
/// and the slopes of these.
#[rstest]
#[case::plain(0)]
#[case::singular_values(1)]
#[case::rank_variance(2)]
#[case::noise_to_signal(3)]
#[case::element_variance(4)]
#[case::asym_rank_variance(5)]
#[case::noise_on_a(6)]
#[case::noise_on_both(7)]
#[case::of_another_method(8)]
fn numbers_and_gradients_are_those_of_the_definition(
    #[case] kind: usize,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let mut layer = every_layer(dtype).swap_remove(kind);
    layer.edit(|adapter| adapter.dropout = RATE).unwrap();
    for scheme in SCHEMES {
        let pass = Pass::sampled(scheme, key());
        let x = inputs(dtype);
        let name = format!("{scheme:?}");
        let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
        let out = layer.forward_with(x.clone(), &pass);
        check(&name, out, Some(&x), &layer, tolerance, definition(&layer, &pass, false));
        if dtype == DType::F32 {
            continue;
        }
        let rows = leaf(&numbers(5, 4 * D_INPUT), [1, 4, D_INPUT], dtype);
        let out = layer.prepare(&pass, BATCH).forward_shared(rows.clone().squeeze_dim(0));
        assert_eq!(out.dims(), [draws(&layer, scheme), 4, D_OUTPUT], "{name}");
        check(&name, out, Some(&rows), &layer, tolerance, definition(&layer, &pass, true));
        // Dropout has another key, and separate masks for tokens and for shared rows.
        let pass = pass.with_dropout(NoiseKey::new(6).at_step(1));
        let (out, name) = (layer.forward_with(x.clone(), &pass), format!("{name} with dropout"));
        check(&name, out, Some(&x), &layer, tolerance, definition(&layer, &pass, false));
        let out = layer.prepare(&pass, BATCH).forward_shared(rows.clone().squeeze_dim(0));
        check(&name, out, Some(&rows), &layer, tolerance, definition(&layer, &pass, true));
    }
}

#[test]
fn numbers_do_not_depend_on_the_threads() {
    // Large enough for several tasks of every operator and for a parallel product.
    let (sequences, tokens, d_input, d_output) = (4, 64, 96, 160);
    let config = AdapterConfig { rank: 8, ..AdapterConfig::default() };
    let x = numbers(1, sequences * tokens * d_input);
    for scheme in SCHEMES {
        let [one, three] = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut layer = base("wide", d_input, d_output, DType::F32);
                config.attach(&mut layer, "net.first", NoiseKey::new(3)).unwrap();
                let x = leaf(&x, [sequences, tokens, d_input], DType::F32);
                let pass = Pass::sampled(scheme, NoiseKey::new(3)).with_dropout(NoiseKey::new(4));
                let out = layer.forward_with(x.clone(), &pass);
                let gradients = out.clone().square().sum().backward();
                let leaves = layer_gradients(&layer, &gradients).concat();
                [host(out), gradient(&x, &gradients), leaves]
            })
        });
        assert!(one == three, "{scheme:?}");
    }
}

#[test]
fn a_batch_of_draws_is_as_many_batches_and_pairs_cancel() {
    const DRAWS: usize = 4;
    let rows: Tensor<2> = tensor(&numbers(3, 7 * D_INPUT), [7, D_INPUT], DType::F64);
    let one =
        |first_draw| Pass { first_draw, antithetic: true, ..Pass::sampled(WEIGHTS[0], key()) };
    let set = one(0).with_draws(DRAWS, BATCH);
    for family in VariationalFamily::ALL {
        let layer = layer(&noisy(family), DType::F64);
        let tokens = |x: Tensor<3>, pass: &Pass| host(layer.forward_with(x, pass));
        let each: Vec<f64> =
            (0..DRAWS as u32).flat_map(|draw| tokens(inputs(DType::F64), &one(draw))).collect();
        // From the rows of one draw, and from those of all of them.
        for x in [inputs(DType::F64), inputs(DType::F64).repeat_dim(0, DRAWS)] {
            close("tokens", &tokens(x, &set), &each, 1e-14);
        }
        // A single draw has no axis for the sequences, several have.
        let shared = |pass: &Pass| host(layer.prepare(pass, BATCH).forward_shared(rows.clone()));
        let expected: Vec<f64> =
            (0..DRAWS as u32).flat_map(|draw| shared(&one(draw)).repeat(BATCH)).collect();
        close("shared rows", &shared(&set), &expected, 1e-14);
        if family == VariationalFamily::AsymRankVariance {
            // Where noise enters linearly, a pair has the mean between its two members.
            let mean = tokens(inputs(DType::F64), &Pass::mean());
            for pair in each.chunks(2 * mean.len()) {
                let (a, b) = pair.split_at(mean.len());
                let middle: Vec<f64> = plus(a, b).iter().map(|sum| 0.5 * sum).collect();
                close("mean of a pair", &middle, &mean, 1e-13);
            }
            let first = tokens(inputs(DType::F64), &Pass::sampled(WEIGHTS[0], key()));
            close("first of a pair", &each[..mean.len()], &first, 1e-15);
        }
    }
}

/// Noise of sequences and tokens is that of further sequences, from the key of the first draw.
#[test]
fn draws_of_other_noise_are_further_sequences() {
    const DRAWS: usize = 3;
    let layer = layer(&noisy(VariationalFamily::RankVariance), DType::F64);
    for &scheme in &SCHEMES[2..] {
        let first = Pass { first_draw: 2, ..Pass::sampled(scheme, key()) };
        let all = Pass::sampled(scheme, key().at_step(key().step + 2));
        let run = |x: Tensor<3>, pass: &Pass| host(layer.forward_with(x, pass));
        let expected = run(inputs(DType::F64).repeat_dim(0, DRAWS), &all);
        let found = run(inputs(DType::F64), &first.with_draws(DRAWS, BATCH));
        same(&format!("{scheme:?}"), &found, &expected);
    }
}

/// The output for an input of any rank, whose features change and no other axis.
fn shaped<const D: usize>(layer: &AdaptedLinear, shape: [usize; D], scheme: Scheme) -> Vec<f64> {
    let x = tensor(&numbers(1, 12 * D_INPUT), shape, DType::F64);
    let out = layer.forward_with(x, &Pass::sampled(scheme, key()));
    assert_eq!(out.dims()[..D - 1], shape[..D - 1]);
    host(out)
}

#[test]
fn inputs_of_any_rank_are_sequences_by_tokens() {
    let layer = layer(&noisy(VariationalFamily::ElementVariance), DType::F64);
    for scheme in SCHEMES {
        let four = shaped(&layer, [2, 3, 2, D_INPUT], scheme);
        same(&format!("{scheme:?}"), &four, &shaped(&layer, [2, 6, D_INPUT], scheme));
        // A row is a sequence of one token.
        let two = shaped(&layer, [12, D_INPUT], scheme);
        same(&format!("{scheme:?}: rows"), &two, &shaped(&layer, [12, 1, D_INPUT], scheme));
    }
}

#[test]
fn the_ends_of_the_clamp_pass_the_gradient() {
    let [ends, beyond] = [[2.0, -20.0, 2.0, -20.0], [2.0, -20.0, 3.5, -25.0]].map(|values| {
        let noise = Some(host_noise(VariationalFamily::RankVariance, values.to_vec(), Vec::new()));
        layer(&HostAdapter { noise, ..plain() }, DType::F64)
    });
    for scheme in [WEIGHTS[1], Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested] {
        let out = beyond.forward_with(inputs(DType::F64), &Pass::sampled(scheme, key()));
        same(&format!("{scheme:?}"), &host(out.clone()), &run(&ends, inputs(DType::F64), scheme));
        let slope = layer_gradients(&beyond, &out.square().sum().backward()).remove(2);
        assert!(slope[0] != 0.0 && slope[1] != 0.0, "{scheme:?}: {slope:?}");
        assert_eq!(slope[2..], [0.0; 2], "{scheme:?}");
    }
}

#[test]
fn a_large_noise_to_signal_ratio_is_finite_in_single_precision() {
    let noise = Some(host_noise(VariationalFamily::NoiseToSignal, vec![50.0; RANK], Vec::new()));
    let layer = layer(&HostAdapter { noise, ..plain() }, DType::F32);
    for scheme in SCHEMES {
        let out = run(&layer, inputs(DType::F32), scheme);
        assert!(out.iter().all(|v| v.is_finite()), "{scheme:?}");
    }
}

/// Nodes that `pass` adds to Burn's graph. Other tests of the process may add some meanwhile, so the least of several.
fn nodes(pass: impl Fn()) -> u64 {
    let added = |_| {
        let before = NodeId::new().value;
        pass();
        NodeId::new().value - before
    };
    (0..9).map(added).min().unwrap()
}

/// A tensor that no loss reaches stays in Burn's graph as long as the parameter lives, and every backward pass visits it.
#[test]
fn a_pass_at_the_mean_tracks_no_more_than_that_of_lora() {
    let layers = every_layer(DType::F32);
    let mean = |layer: &AdaptedLinear| {
        nodes(|| drop(layer.forward_with(inputs(DType::F32), &Pass::mean()).sum().backward()))
    };
    let composed = |layer: &AdaptedLinear| {
        let layer = burn::nn::Linear { weight: layer.weight.clone(), bias: None };
        nodes(|| drop(layer.forward(inputs(DType::F32)).sum().backward()))
    };
    let expected = (mean(&layers[0]), composed(&layers[0]));
    // The posteriors, and independent noise on the entries.
    for layer in &layers[2..8] {
        assert_eq!((mean(layer), composed(layer)), expected, "{:?}", layer.extension());
    }
}

/// Three uses of a layer, of which the graph would hold each.
fn thrice(layer: &AdaptedLinear, x: Tensor<3>) -> Tensor<3> {
    (0..3).fold(x, |x, _| layer.forward_with(x, &Pass::mean()).tanh())
}

#[test]
fn a_block_without_trainable_parameters_is_recomputed_where_a_gradient_passes() {
    let frozen = base("square", D_INPUT, D_INPUT, DType::F64);
    let [held, recomputes] = [thrice as fn(&AdaptedLinear, Tensor<3>) -> Tensor<3>, |layer, x| {
        recomputed(layer, x, thrice)
    }];
    let of = |run: fn(&AdaptedLinear, Tensor<3>) -> Tensor<3>| {
        let x = inputs(DType::F64);
        let gradients = run(&frozen, x.clone()).sum().backward();
        (nodes(|| drop(run(&frozen, inputs(DType::F64)))), gradient(&x, &gradients))
    };
    let ((all, expected), (few, found)) = (of(held), of(recomputes));
    assert!(few + 5 < all, "{few} of {all} nodes");
    same("gradient", &found, &expected);
}

#[test]
fn a_recomputed_block_passes_the_gradient_of_a_weight_that_is_tied_transposed() {
    let [expected, found] = [false, true].map(|again| {
        let first = leaf(&numbers(8, D_INPUT * D_INPUT), [D_INPUT, D_INPUT], DType::F64);
        let weight = Param::initialized(ParamId::new(), first.clone().transpose());
        let layer = AdaptedLinear { weight, bias: None };
        let x = inputs(DType::F64);
        let out = if again { recomputed(&layer, x, thrice) } else { thrice(&layer, x) };
        gradient(&first, &out.sum().backward())
    });
    assert!(expected.iter().any(|slope| *slope != 0.0));
    close("gradient", &found, &expected, 1e-12);
}

/// An adapted layer and a gain in half precision.
#[derive(Module, Debug)]
struct Mixed {
    layer: AdaptedLinear,
    gain: Param<Tensor<1>>,
}

#[test]
fn a_recomputed_block_may_have_parameters_of_several_types() {
    let gain = leaf(&numbers(9, D_OUTPUT), [D_OUTPUT], DType::BF16);
    let layer = layer(&noisy(VariationalFamily::RankVariance), DType::F32);
    let block = Mixed { layer, gain: Param::initialized(ParamId::new(), gain) };
    let forward = |block: &Mixed, x: Tensor<3>| {
        let gain = block.gain.val().cast(FloatDType::F32);
        block.layer.forward_with(x, &Pass::sampled(WEIGHTS[1], key())) * gain.unsqueeze()
    };
    let [expected, found] = [false, true].map(|again| {
        let x = inputs(DType::F32);
        let out = if again { recomputed(&block, x, forward) } else { forward(&block, x) };
        let gradients = NamedGradients::collect(&block, &out.clone().square().sum().backward());
        let each = gradients.names().map(|name| host(gradients.get(name).unwrap().clone()));
        (host(out), each.collect::<Vec<_>>())
    });
    assert_eq!((found.1.len(), found.0), (4, expected.0));
    for (found, expected) in found.1.iter().zip(&expected.1) {
        close("gradient", found, expected, 1e-6);
    }
}

#[rstest]
#[case(DType::F32, 2e-6)]
#[case(DType::F64, 1e-13)]
fn a_merged_layer_is_the_mean_forward(#[case] dtype: DType, #[case] tolerance: f64) {
    for layer in every_layer(dtype) {
        if matches!(layer.extension(), Some(Extension::Op(_))) {
            assert!(layer.delta().is_none());
            let error = layer.merge().unwrap_err().to_string();
            assert_eq!(error, "layer `net.first` has an update that is not one matrix");
            continue;
        }
        let expected = run(&layer, inputs(dtype), Scheme::Mean);
        let merged = layer.merge().unwrap();
        close("merged", &host(merged.forward(inputs(dtype))), &expected, tolerance);
        assert_eq!(merged.weight.val().dtype(), dtype);
    }
    let bare = bare(dtype);
    assert!(bare.delta().is_none());
    same("bare", &host(bare.clone().merge().unwrap().weight.val()), &host(bare.weight.base()));
}

#[test]
fn a_narrow_weight_takes_the_update_in_with_one_rounding() {
    let mut layer = layer(&plain(), DType::F32);
    let narrow = layer.weight.base().cast(FloatDType::BF16);
    let wide = narrow.clone().cast(FloatDType::F32) + layer.delta().unwrap();
    layer.set_weight(narrow);
    let merged = layer.merge().unwrap().weight.val();
    assert_eq!(merged.dtype(), DType::BF16);
    same("merged", &host(merged), &host(wide.cast(FloatDType::BF16)));
}

#[test]
fn reading_back_keeps_every_entry_in_its_place() {
    for expected in VariationalFamily::ALL.map(noisy).into_iter().chain([with_singular_values()]) {
        assert!(HostAdapter::read(of(&layer(&expected, DType::F64))) == expected);
        // Frozen parameters are read alike.
        assert!(HostAdapter::read(of(&layer(&expected, DType::F64).valid())) == expected);
    }
}

#[test]
fn factors_and_noise_train_under_their_names_and_nothing_else() {
    let family = layer(&noisy(VariationalFamily::RankVariance), DType::F32);
    let cases = SCHEMES
        .map(|scheme| (family.clone(), scheme, &["lora_A", "lora_B", "rank_log_sigma2"][..]));
    let (square, softplus) = (NoiseMap::Square, NoiseMap::Softplus);
    let of = |extension| extended(extension, DType::F32);
    for (layer, scheme, parameters) in cases.into_iter().chain([
        // The mean has no gradient for deviations.
        (of(element_noise(square, false, DType::F32)), Scheme::Mean, &["lora_A", "lora_B"][..]),
        (
            of(element_noise(square, false, DType::F32)),
            Scheme::PerToken,
            &["lora_A", "lora_A_G", "lora_B"],
        ),
        (
            of(element_noise(softplus, true, DType::F32)),
            WEIGHTS[1],
            &["lora_A", "lora_A_rho", "lora_B", "lora_B_rho"],
        ),
        (of(scales(1, DType::F32)), WEIGHTS[0], &["lora_A", "lora_B", "lora_scales"]),
    ]) {
        let mut net = Net::new([None, None], DType::F32);
        *net.first = layer;
        check_trained(net.clone(), scheme, parameters);
        // A whole backward pass holds nothing for the base.
        let pass = Pass::sampled(scheme, NoiseKey::new(1));
        let gradients = net.first.forward_with(inputs(DType::F32), &pass).sum().backward();
        assert!(net.first.weight.base().grad(&gradients).is_none());
        assert!(net.first.bias.as_ref().unwrap().val().grad(&gradients).is_none());
    }
}

/// The weight in blocks of 32 inputs of an output, which share a scale.
fn rounded(weight: &[f64], [d_input, d_output]: [usize; 2], largest: f64) -> Vec<f64> {
    let mut out = weight.to_vec();
    for (column, block) in (0..d_output).flat_map(|c| (0..d_input / 32).map(move |b| (c, b))) {
        let at = |i: usize| (block * 32 + i) * d_output + column;
        let scale = (0..32).map(|i| weight[at(i)].abs()).fold(0.0, f64::max) / largest;
        for i in 0..32 {
            out[at(i)] = scale * (weight[at(i)] / scale).round();
        }
    }
    out
}

#[rstest]
#[case(BaseBits::Q8, 127.0)]
#[case(BaseBits::Q4, 7.0)]
fn a_quantised_base_is_its_rounded_weight(#[case] bits: BaseBits, #[case] largest: f64) {
    let shape = [64, 5];
    let weight = tensor(&numbers(3, 64 * 5), shape, DType::F32);
    let mut plain = AdaptedLinear::new(weight, Some(tensor(&numbers(4, 5), [5], DType::F32)));
    let config = AdapterConfig { rank: 3, ..AdapterConfig::default() };
    config.attach(&mut plain, "layer", NoiseKey::new(1)).unwrap();
    let quantized = plain.clone().quantized(bits).unwrap();
    assert!(matches!(quantized.weight.base().dtype(), DType::QFloat(_)));
    let dequantized = quantized.weight.base().dequantize();
    let expected = rounded(&host(plain.weight.base()), shape, largest);
    close("weight", &host(dequantized.clone()), &expected, 1e-6);
    let again = AdaptedLinear::new(dequantized.clone(), None).quantized(bits).unwrap();
    same("again", &host(again.weight.base().dequantize()), &host(dequantized.clone()));

    let mut reference = plain;
    reference.set_weight(dequantized);
    let x = || leaf(&numbers(5, 6 * 64), [2, 3, 64], DType::F32);
    for scheme in [Scheme::Mean, WEIGHTS[1], Scheme::Nested] {
        let run = |layer: &AdaptedLinear| {
            let x = x();
            let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, NoiseKey::new(2)));
            let gradients = (out.clone() * out.clone().detach()).sum().backward();
            let of_a = layer_gradients(layer, &gradients).remove(0);
            [host(out), gradient(&x, &gradients), of_a]
        };
        for (found, expected) in run(&quantized).iter().zip(run(&reference)) {
            close(&format!("{scheme:?}"), found, &expected, 1e-6);
        }
    }
    // What is merged is in full precision.
    let merged = quantized.clone().merge().unwrap().forward(x());
    close("merged", &host(merged), &host(quantized.forward(x())), 1e-4);

    let layer = AdaptedLinear::new(tensor(&numbers(1, 12), [6, 2], DType::F32), None);
    let error = layer.quantized(bits).unwrap_err().to_string();
    assert_eq!(error, "expected a multiple of 32 inputs to quantise, found shape [6, 2]");
}
