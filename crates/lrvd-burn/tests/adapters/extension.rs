//! Noise per entry, on scales and from a context: passes and gradients for the layer's own noise, and what may be
//! done with such layers.

use crate::support::prelude::*;
use lrvd_burn::adapter::Observer;
use lrvd_burn::model::{check_scheme, ranks};
use lrvd_burn::peft::{PeftConfig, TargetModules, peft_from_model};

const PRIOR: f64 = 0.3;
const SQUARE: usize = RANK * RANK;

fn key() -> NoiseKey {
    NoiseKey::new(0xabc).at_step(3)
}

/// Draws of a pass, each for its share of the sequences.
fn draws(scheme: Scheme) -> usize {
    if scheme == Scheme::Weights(DrawPer::Sequence) { BATCH } else { 1 }
}

/// The update with drawn factors in tensors of double precision, whose gradients are Burn's.
#[rstest]
fn element_noise_draws_what_the_definition_draws(
    #[values(StdMap::Softplus, StdMap::Square)] map: StdMap,
    #[values(false, true)] both: bool,
    #[values(Scheme::Mean, WEIGHTS[0], WEIGHTS[1])] scheme: Scheme,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 5e-6 };
    let layer = extended(element_noise(map, both, dtype), dtype);
    let x = inputs(dtype);
    let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
    let weights = tensor(&numbers(2, N * D_OUTPUT), [BATCH, TOKENS, D_OUTPUT], dtype);
    let gradients = (out.clone() * weights.clone()).sum().backward();
    let found = leaves_with(x, &layer);

    let x = leaf(&found[0].values, [BATCH, TOKENS, D_INPUT], DType::F64);
    let exact = |at: usize, shape: [usize; 2]| leaf(&found[at].values, shape, DType::F64);
    let (of_a, of_b) = ([D_INPUT, RANK], [RANK, D_OUTPUT]);
    let (a, b, rho_a) = (exact(1, of_a), exact(2, of_b), exact(3, of_a));
    let rho_b = both.then(|| exact(4, of_b));
    let (draws, key) = (draws(scheme), key().for_module(layer.noise_id()));
    let drawn = |draw: usize, mean: &Tensor<2>, rho: &Tensor<2>, stream| {
        let n = mean.shape().num_elements();
        let eps = noise(key.on_stream(stream), draws * n, dtype);
        let eps = tensor(&eps[draw * n..][..n], mean.dims(), DType::F64);
        let std = match map {
            StdMap::Softplus => rho.clone().exp().add_scalar(1.0).log(),
            StdMap::Square => rho.clone().square(),
        };
        if scheme == Scheme::Mean { mean.clone() } else { mean.clone() + std * eps }
    };
    let update = (0..draws).map(|draw| {
        let rows = BATCH / draws;
        let of_b = rho_b.as_ref().map(|rho| drawn(draw, &b, rho, Stream::WEIGHT_B));
        let h = x.clone().narrow(0, draw * rows, rows);
        let h = h.matmul(drawn(draw, &a, &rho_a, Stream::WEIGHT_A).unsqueeze());
        h.matmul(of_b.unwrap_or_else(|| b.clone()).unsqueeze())
    });
    let update = Tensor::cat(update.collect(), 0).mul_scalar(SCALING);
    let weight = tensor(&host(layer.weight.base()), [1, D_INPUT, D_OUTPUT], DType::F64);
    let bias = tensor(&host(layer.bias.as_ref().unwrap().val()), [1, 1, D_OUTPUT], DType::F64);
    let expected = x.clone().matmul(weight) + bias + update;
    close("output", &host(out), &host(expected.clone()), tolerance);
    let weights = tensor(&host(weights), [BATCH, TOKENS, D_OUTPUT], DType::F64);
    let exact = (expected * weights).sum().backward();
    let mut leaves = vec![tracked("x", x), tracked("A", a), tracked("B", b)];
    leaves.push(tracked("noise of A", rho_a));
    leaves.extend(rho_b.map(|rho| tracked("noise of B", rho)));
    assert_eq!(found.len(), leaves.len());
    for (found, leaf) in found.iter().zip(leaves) {
        close(leaf.name, &found.gradient(&gradients), &leaf.gradient(&exact), tolerance);
    }
}

#[rstest]
fn scales_equal_the_loops(
    #[values(Scheme::Mean, WEIGHTS[0], WEIGHTS[1])] scheme: Scheme,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 5e-6 };
    let layer = extended(scale_noise(dtype), dtype);
    let x = inputs(dtype);
    let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
    let draws = draws(scheme);
    let key = key().for_module(layer.noise_id()).on_stream(AdapterStream::SCALE);
    let eps = noise(key, draws * RANK, dtype);
    check("scales", out, &leaves_with(x, &layer), tolerance, |leaves| {
        let shares = leaves[0].chunks(N * D_INPUT / draws).zip(eps.chunks(RANK));
        let update = shares.flat_map(|(x, eps)| {
            let leaves = [&[x.to_vec()], &leaves[1..]].concat();
            scala_bl(SIZES, &leaves, Some(eps).filter(|_| scheme != Scheme::Mean))
        });
        plus(&base_of(&layer, &leaves[0]), &update.collect::<Vec<f64>>())
    });
}

/// The noise of a pass through C-LoRA, a matrix per token.
fn noise_of_context(layer: &AdaptedLinear, scheme: Scheme, dtype: DType) -> Option<Vec<f64>> {
    let key = key().for_module(layer.noise_id());
    match scheme {
        Scheme::Weights(DrawPer::Token) => {
            Some(noise(key.on_stream(AdapterStream::CONTEXT_TOKEN), N * SQUARE, dtype))
        }
        Scheme::Weights(_) => {
            let draws = draws(scheme);
            let all = noise(key.on_stream(AdapterStream::CONTEXT), draws * SQUARE, dtype);
            Some(all.chunks(SQUARE).flat_map(|eps| eps.repeat(N / draws)).collect())
        }
        _ => None,
    }
}

#[rstest]
fn contexts_and_their_divergences_equal_the_loops(
    #[values(Scheme::Mean, WEIGHTS[0], WEIGHTS[1], Scheme::FLIPOUT)] scheme: Scheme,
    #[values(DType::F64, DType::F32)] dtype: DType,
) {
    let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
    let mut layer = extended(context_noise(dtype), dtype);
    let observer = Observer::of_divergences(PRIOR);
    layer.observe(Some(observer.clone()));
    let x = inputs(dtype);
    let out = layer.forward_with(x.clone(), &Pass::sampled(scheme, key()));
    let divergence = observer.take_divergences().remove(0);
    assert_eq!((divergence.module, divergence.use_index), (layer.noise_id(), 0));
    let kl = divergence.per_token;
    assert_eq!(kl.dims(), [BATCH, TOKENS]);
    let eps = noise_of_context(&layer, scheme, dtype);
    let run = |leaves: &[Vec<f64>]| {
        let (update, kl) = c_lora(SIZES, leaves, eps.as_deref(), PRIOR);
        (plus(&base_of(&layer, &leaves[0]), &update), kl)
    };
    let leaves = leaves_with(x, &layer);
    let values: Vec<Vec<f64>> = leaves.iter().map(|leaf| leaf.values.clone()).collect();
    let (output, expected) = run(&values);
    close("output", &host(out.clone()), &output, tolerance);
    close("KL", &host(kl.clone()), &expected, tolerance);
    // The gradients of both together.
    let all = Tensor::cat(vec![out.flatten::<1>(0, 2), kl.flatten::<1>(0, 1)], 0);
    check("context", all, &leaves, tolerance, |leaves| {
        let (output, kl) = run(leaves);
        [output, kl].concat()
    });
}

#[rstest]
#[case::elements(element_noise(StdMap::Softplus, true, DType::F64))]
#[case::scales(scale_noise(DType::F64))]
#[case::context(context_noise(DType::F64))]
fn shared_rows_meet_the_draws_of_the_tokens(#[case] extension: Extension) {
    const ROWS: usize = 4;
    let rows = numbers(5, ROWS * D_INPUT);
    let is_context = matches!(extension, Extension::Contextual(_));
    let layer = extended(extension, DType::F64);
    let uses = |scheme| {
        let (pass, draws) = (Pass::sampled(scheme, key()), draws(scheme));
        let prepared = layer.prepare(&pass, BATCH);
        let shared = prepared.forward_shared(tensor(&rows, [ROWS, D_INPUT], DType::F64));
        assert_eq!(shared.dims(), [draws, ROWS, D_OUTPUT]);
        let tokens = tensor(&rows.repeat(draws), [draws, ROWS, D_INPUT], DType::F64);
        (host(shared), host(prepared.forward(tokens)))
    };
    for scheme in WEIGHTS {
        let (shared, tokens) = uses(scheme);
        close("as tokens", &shared, &tokens, 1e-13);
    }
    if is_context {
        let (shared, tokens) = uses(Scheme::FLIPOUT);
        all_differ("a matrix per token", &shared, &tokens);
    }
}

#[test]
fn a_gradient_observer_records_no_divergence_and_the_other_way_round() {
    let mut layer = extended(context_noise(DType::F32), DType::F32);
    let [slopes, costs] = [Observer::of_gradients(), Observer::of_divergences(PRIOR)];
    for observer in [&slopes, &costs] {
        layer.observe(Some(observer.clone()));
        drop(layer.forward_with(inputs(DType::F32), &Pass::mean()));
    }
    assert_eq!((slopes.take_uses().len(), slopes.take_divergences().len()), (1, 0));
    assert_eq!((costs.take_uses().len(), costs.take_divergences().len()), (0, 1));
}

#[rstest]
#[case(element_noise(StdMap::Square, false, DType::F64))]
#[case(scale_noise(DType::F64))]
fn the_mean_merges(#[case] extension: Extension) {
    let layer = extended(extension, DType::F64);
    assert!(layer.has_dense_mean());
    let expected = host(layer.forward_with(inputs(DType::F64), &Pass::mean()));
    close("merged", &host(layer.merge().forward(inputs(DType::F64))), &expected, 1e-13);
}

#[test]
fn schemes_without_a_meaning_are_rejected_by_name() {
    let rejected = [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested];
    let supports = |e: &Extension, scheme| extended(e.clone(), DType::F32).supports(scheme);
    let [noise, scales] =
        [element_noise(StdMap::Square, false, DType::F32), scale_noise(DType::F32)];
    for scheme in [Scheme::Mean, WEIGHTS[0], WEIGHTS[1], Scheme::FLIPOUT] {
        assert!(supports(&noise, scheme));
        assert_eq!(supports(&scales, scheme), scheme != Scheme::FLIPOUT);
    }
    assert!(rejected.iter().all(|&s| !supports(&noise, s) && !supports(&scales, s)));
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    for scheme in rejected {
        assert!(check_scheme(&net, scheme).is_ok(), "a plain adapter runs at its mean");
    }
    net.first.extend(Some(noise)).unwrap();
    let error = check_scheme(&net, Scheme::Nested).unwrap_err();
    assert_eq!(error.to_string(), "adapter `net.first` cannot be sampled by Nested");
}

#[test]
#[should_panic(expected = "an adapter cannot be sampled by Nested")]
fn a_rejected_scheme_is_not_run_at_the_mean() {
    let layer = extended(scale_noise(DType::F32), DType::F32);
    drop(layer.forward_with(inputs(DType::F32), &Pass::sampled(Scheme::Nested, key())));
}

#[test]
fn extensions_stand_on_two_factors_of_their_shape() {
    let error = bare(DType::F32).extend(Some(scale_noise(DType::F32))).unwrap_err();
    assert_eq!(error.to_string(), "the layer has no adapter of two factors");
    // An extension replaces what was there.
    let mut posterior = layer(&noisy(VariationalFamily::RankVariance), DType::F32);
    let old = posterior.extend(Some(element_noise(StdMap::Square, false, DType::F32))).unwrap();
    assert!(matches!(old, Some(Extension::Posterior(_))));
    assert!(of(&posterior).posterior().is_none());
    assert_eq!(posterior.slot().unwrap().family, None);
    let mut plain = layer(&plain(), DType::F32);
    let narrow = ElementGaussian::new(StdMap::Square, random(1, [D_INPUT, 1], DType::F32), None);
    let error = plain.extend(Some(Extension::Gaussian(narrow))).unwrap_err();
    let expected = "adapter `net.first`: `lora_A_G` should have shape [5, 4], found [5, 1]";
    assert_eq!(error.to_string(), expected);
    assert!(plain.extension().is_none() && plain.slot().is_some() && plain.rank() == RANK);
}

#[test]
fn files_hold_the_mean_of_element_noise_and_nothing_of_the_rest() {
    let template = PeftConfig::lora(RANK, 7.0, TargetModules::Names(vec!["first".to_owned()]));
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    let plain = peft_from_model(&net, &template).unwrap();
    net.first.extend(Some(element_noise(StdMap::Softplus, true, DType::F32))).unwrap();
    assert!(peft_from_model(&net, &template).unwrap() == plain, "a posterior is not in the file");

    let taken = net.first.extend(None).unwrap();
    assert!(matches!(taken, Some(Extension::Gaussian(_))) && net.first.extension().is_none());
    assert!(peft_from_model(&net, &template).unwrap() == plain);
    net.first.extend(Some(scale_noise(DType::F32))).unwrap();
    let error = peft_from_model(&net, &template).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("module `net.first`: `extension`"), "{error}");
    assert_eq!(ranks(&net), [("net.first".to_owned(), RANK)]);
    // Plain factors may be written again, whatever stood between them.
    net.first.extend(None).unwrap();
    assert!(peft_from_model(&net, &template).unwrap() == plain);
    assert!(net.first.detach().is_some() && net.first.slot().is_none());
}

#[test]
fn dropping_directions_drops_their_noise() {
    let kept = [0, 2];
    for both in [false, true] {
        let mut layer = extended(element_noise(StdMap::Square, both, DType::F64), DType::F64);
        let full = host(gaussian(&layer).a.val());
        let of_b = gaussian(&layer).b.as_ref().map(|b| host(b.val()));
        layer.select_ranks(&kept);
        let noise = gaussian(&layer);
        let rows = full.chunks(RANK).flat_map(|row| kept.map(|k| row[k]));
        same("noise of A", &host(noise.a.val()), &rows.collect::<Vec<f64>>());
        assert_eq!((noise.std_map(), noise.b.is_some()), (StdMap::Square, both));
        if let (Some(b), Some(full)) = (&noise.b, of_b) {
            let expected = kept.map(|k| full[k * D_OUTPUT..(k + 1) * D_OUTPUT].to_vec()).concat();
            same("noise of B", &host(b.val()), &expected);
        }
        assert_eq!(layer.rank(), 2);
        drop(layer.forward_with(inputs(DType::F64), &Pass::sampled(WEIGHTS[1], key())));
    }
    let mut layer = extended(scale_noise(DType::F64), DType::F64);
    let full = host(scales(&layer).log_std.val());
    layer.select_ranks(&kept);
    assert_eq!(host(scales(&layer).log_std.val()), kept.map(|k| full[k]));
    layer.select_ranks(&[]);
    assert!(layer.adapter().is_none() && layer.extension().is_none());
}

#[test]
fn dropping_directions_of_a_context_equals_zeroing_them() {
    let mut cut = extended(context_noise(DType::F64), DType::F64);
    cut.select_ranks(&[0, 2]);
    assert_eq!((cut.rank(), context(&cut).w1.dims()[0]), (2, 2));
    let mut zeroed = extended(context_noise(DType::F64), DType::F64);
    let mask = tensor(&[1.0, 0.0, 1.0, 0.0], [4], DType::F64);
    zeroed.edit(|adapter| {
        let (a, b) = (adapter.a.val().inner(), adapter.b.val().inner());
        adapter.a = Param::from_tensor(a * mask.clone().unsqueeze_dim(0));
        adapter.b = Param::from_tensor(b * mask.unsqueeze_dim(1));
    });
    let run = |layer: &AdaptedLinear| host(layer.forward_with(inputs(DType::F64), &Pass::mean()));
    close("cut", &run(&cut), &run(&zeroed), 1e-13);
}

#[rstest]
#[case(element_noise(StdMap::Square, false, DType::F32), Scheme::FLIPOUT,
    &["lora_A", "lora_A_G", "lora_B"])]
#[case(element_noise(StdMap::Softplus, true, DType::F32), WEIGHTS[1],
    &["lora_A", "lora_A_rho", "lora_B", "lora_B_rho"])]
#[case(scale_noise(DType::F32), WEIGHTS[0],
    &["lora_A", "lora_B", "lora_scale_log_mean", "lora_scale_log_std"])]
fn noise_parameters_train_under_their_names(
    #[case] extension: Extension,
    #[case] scheme: Scheme,
    #[case] parameters: &[&str],
) {
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    net.first.extend(Some(extension)).unwrap();
    check_trained(net, scheme, parameters);
}

#[test]
fn the_mean_has_no_gradient_for_deviations() {
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    net.first.extend(Some(element_noise(StdMap::Square, false, DType::F32))).unwrap();
    let out = net.first.forward_with(inputs(DType::F32), &Pass::mean());
    let gradients = NamedGradients::collect(&net, &out.sum().backward());
    assert!(gradients.get("net.first.lora_A_G").is_none());
}
