//! What may be done with noise per entry and on scales: merge, reject, save, prune, train.

use crate::support::net::{Net, WIDTHS, optimizer, train_step};
use crate::support::noisy::{WEIGHTS, element_noise, extended, gaussian, key, scale_noise, scales};
use crate::support::{
    BATCH, D_INPUT, D_OUTPUT, RANK, TOKENS, base, close, host, host_adapter, inputs, layer,
    numbers, of, parameter, tensor,
};
use burn::tensor::DType;
use lrvd_burn::adapter::{ElementGaussian, Extension};
use lrvd_burn::model::{check_scheme, ranks};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::peft::{PeftConfig, TargetModules, peft_from_model};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_core::baselines::StdMap;
use lrvd_core::family::VariationalFamily;
use lrvd_core::moments::CrossTerm;

const N: usize = BATCH * TOKENS;

#[test]
fn the_mean_merges_and_the_rest_is_rejected() {
    let x = tensor(&numbers(1, N * D_INPUT), [BATCH, TOKENS, D_INPUT], DType::F64);
    for extension in [element_noise(StdMap::Square, false, DType::F64), scale_noise(DType::F64)] {
        let layer = extended(extension, DType::F64);
        assert!(layer.has_dense_mean());
        let expected = host(layer.forward_with(x.clone(), &Pass::mean()));
        close("merged", &host(layer.merge().forward(x.clone())), &expected, 1e-13);
    }
}

#[test]
fn schemes_without_a_meaning_are_rejected_by_name() {
    let rejected = [Scheme::MomentMatched(CrossTerm::Exact), Scheme::Nested];
    let [noise, scales] =
        [element_noise(StdMap::Square, false, DType::F32), scale_noise(DType::F32)];
    for scheme in [Scheme::Mean, WEIGHTS[0], WEIGHTS[1], Scheme::FLIPOUT] {
        assert!(noise.supports(scheme));
        assert_eq!(scales.supports(scheme), scheme != Scheme::FLIPOUT);
    }
    assert!(rejected.iter().all(|&s| !noise.supports(s) && !scales.supports(s)));
    let mut net = Net::new([Some(&host_adapter(None, 10)), None], DType::F32);
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
    let mut bare = base("net.first", D_INPUT, D_OUTPUT, DType::F32);
    let error = bare.extend(Some(scale_noise(DType::F32))).unwrap_err();
    assert_eq!(error.to_string(), "the layer has no adapter of two factors");
    // An extension replaces what was there: two at a time cannot be written down.
    let mut posterior =
        layer("net.first", &host_adapter(Some(VariationalFamily::RankVariance), 10), DType::F32);
    let old = posterior.extend(Some(element_noise(StdMap::Square, false, DType::F32))).unwrap();
    assert!(matches!(old, Some(Extension::Posterior(_))));
    assert!(of(&posterior).posterior().is_none());
    assert_eq!(posterior.slot().unwrap().family, None);
    let mut plain = layer("net.first", &host_adapter(None, 10), DType::F32);
    let narrow = parameter(&numbers(1, D_INPUT), [D_INPUT, 1], DType::F32);
    let narrow = ElementGaussian::new(StdMap::Square, narrow, None);
    let error = plain.extend(Some(Extension::Gaussian(narrow))).unwrap_err();
    let expected = "adapter `net.first`: `lora_A_G` should have shape [5, 4], found [5, 1]";
    assert_eq!(error.to_string(), expected);
    assert!(plain.extension().is_none() && plain.slot().is_some() && plain.rank() == RANK);
}

#[test]
fn files_hold_the_mean_of_element_noise_and_nothing_of_the_rest() {
    let template = PeftConfig::lora(RANK, 7.0, TargetModules::Names(vec!["first".to_owned()]));
    let mut net = Net::new([Some(&host_adapter(None, 10)), None], DType::F32);
    let plain = peft_from_model(&net, &template).unwrap();
    net.first.extend(Some(element_noise(StdMap::Softplus, true, DType::F32))).unwrap();
    assert_eq!(peft_from_model(&net, &template).unwrap(), plain, "a posterior stays behind");

    let taken = net.first.extend(None).unwrap();
    assert!(matches!(taken, Some(Extension::Gaussian(_))) && net.first.extension().is_none());
    assert_eq!(peft_from_model(&net, &template).unwrap(), plain);
    net.first.extend(Some(scale_noise(DType::F32))).unwrap();
    let rejected = peft_from_model(&net, &template);
    assert!(
        rejected
            .as_ref()
            .is_err_and(|e| e.to_string().starts_with("module `net.first`: `extension`")),
        "{rejected:?}"
    );
    assert_eq!(ranks(&net), [("net.first".to_owned(), RANK)]);
    // Plain factors may be written again, whatever stood between them.
    net.first.extend(None).unwrap();
    assert_eq!(peft_from_model(&net, &template).unwrap(), plain);
    assert!(net.first.detach().is_some() && net.first.slot().is_none());
}

#[test]
fn dropping_directions_takes_their_noise_along() {
    let kept = [0, 2];
    for both in [false, true] {
        let mut layer = extended(element_noise(StdMap::Square, both, DType::F64), DType::F64);
        let full = host(gaussian(&layer).a.val());
        let of_b = gaussian(&layer).b.as_ref().map(|b| host(b.val()));
        layer.select_ranks(&kept);
        let noise = gaussian(&layer);
        let expected: Vec<f64> =
            (0..D_INPUT).flat_map(|i| kept.map(|k| full[i * RANK + k])).collect();
        assert_eq!((host(noise.a.val()), noise.std_map()), (expected, StdMap::Square));
        if let (Some(b), Some(full)) = (&noise.b, of_b) {
            let expected = kept.map(|k| full[k * D_OUTPUT..(k + 1) * D_OUTPUT].to_vec()).concat();
            assert_eq!(host(b.val()), expected);
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
fn noise_parameters_train_under_their_names() {
    for (extension, scheme, expected) in [
        (element_noise(StdMap::Square, false, DType::F32), Scheme::FLIPOUT, vec!["lora_A_G"]),
        (
            element_noise(StdMap::Softplus, true, DType::F32),
            WEIGHTS[1],
            vec!["lora_A_rho", "lora_B_rho"],
        ),
        (scale_noise(DType::F32), WEIGHTS[0], vec!["lora_scale_log_mean", "lora_scale_log_std"]),
    ] {
        let mut net = Net::new([Some(&host_adapter(None, 10)), None], DType::F32);
        assert_eq!(WIDTHS[..2], [D_INPUT, D_OUTPUT]);
        net.first.extend(Some(extension)).unwrap();
        let before = net.snapshot();
        let mut optimizer = optimizer();
        for step in 0..2 {
            train_step(&mut net, &mut optimizer, step, scheme, DType::F32);
        }
        let mut trained = vec!["head.bias".to_owned(), "head.weight".to_owned()];
        trained
            .extend(["lora_A", "lora_B"].iter().chain(&expected).map(|n| format!("net.first.{n}")));
        trained.sort();
        assert_eq!(optimizer.state().keys().cloned().collect::<Vec<_>>(), trained);
        for ((name, _, old), (_, _, new)) in before.into_iter().zip(net.snapshot()) {
            assert_eq!(trained.contains(&name), old != new, "{name}");
        }
    }
    // Without a sampled pass the deviations get no gradient.
    let mut net = Net::new([Some(&host_adapter(None, 10)), None], DType::F32);
    net.first.extend(Some(element_noise(StdMap::Square, false, DType::F32))).unwrap();
    let out = net.first.forward_with(inputs(DType::F32), &Pass::mean());
    let gradients = NamedGradients::collect(&net, &out.sum().backward());
    assert!(gradients.get("net.first.lora_A_G").is_none());
}
