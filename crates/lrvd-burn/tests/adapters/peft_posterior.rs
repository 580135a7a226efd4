//! A posterior through its file: off a model, to the disk, and onto another model.

use crate::support::prelude::*;
use lrvd_burn::adapter::AdapterSlot;
use lrvd_burn::peft::{
    ExportLayout, PeftAdapter, PeftConfig, PeftPosterior, PosteriorRun, TargetModules, attach_peft,
    attach_posterior, peft_from_model, posterior_from_model,
};
use lrvd_core::prune::StatisticAggregate;

const RUN: PosteriorRun = PosteriorRun {
    scheme: Scheme::Weights(DrawPer::Sequence),
    statistic: StatisticAggregate::Energy,
    log_alpha_threshold: 3.5,
    kl_weight: 0.25,
    seed: 7,
};

/// A net whose second layer lost every rank.
fn trained(family: VariationalFamily, dtype: DType) -> Net {
    let mut net = Net::new([Some(&noisy(family)), None], dtype);
    net.second.attach_empty(
        "net.second",
        AdapterSlot { initial_rank: 6, scaling: 0.5, family: Some(family) },
    );
    net
}

/// Adapter and posterior of `net`, through their files.
fn through_files(net: &mut Net) -> (PeftAdapter, PeftPosterior) {
    let dir = tempfile::tempdir().unwrap();
    let template = PeftConfig::lora(4, 7.0, TargetModules::AllLinear);
    let adapter = peft_from_model(net, &template).unwrap();
    let posterior = posterior_from_model(net, RUN).unwrap().unwrap();
    adapter.write(dir.path(), ExportLayout::Ragged).unwrap();
    posterior.write(dir.path(), &adapter).unwrap();
    let adapter = PeftAdapter::read(dir.path()).unwrap();
    let read = PeftPosterior::read(dir.path(), &adapter).unwrap();
    assert!(read == posterior);
    (adapter, read)
}

#[test]
fn a_loaded_posterior_draws_what_the_trained_one_draws() {
    for dtype in [DType::F32, DType::F64] {
        for family in VariationalFamily::ALL {
            let mut net = trained(family, dtype);
            let (adapter, posterior) = through_files(&mut net);
            let mut loaded = Net::new([None, None], dtype);
            attach_peft(&mut loaded, &adapter, false).unwrap();
            attach_posterior(&mut loaded, &posterior).unwrap();
            for scheme in SCHEMES.into_iter().chain([Scheme::FLIPOUT]) {
                let pass = Pass::sampled(scheme, NoiseKey::new(5).at_step(3));
                let [a, b] = [&net, &loaded].map(|net| host(net.forward(data(dtype).0, &pass)));
                same(&format!("{family} {scheme:?} {dtype:?}"), &a, &b);
            }
            for layer in [&loaded.first, &loaded.second] {
                assert_eq!(layer.slot().unwrap().family, Some(family));
            }
            assert_eq!(loaded.second.slot().unwrap().initial_rank, 6);
            let again = posterior_from_model(&loaded, RUN).unwrap().unwrap();
            assert!(again == posterior, "{family}");
        }
    }
}

#[test]
fn a_model_without_a_posterior_has_none() {
    let net = Net::new([Some(&plain()), None], DType::F32);
    assert!(posterior_from_model(&net, RUN).unwrap().is_none());
}

#[test]
fn families_do_not_mix() {
    let mut net = trained(VariationalFamily::RankVariance, DType::F32);
    let family = Some(VariationalFamily::NoiseToSignal);
    net.second.attach_empty("net.second", AdapterSlot { initial_rank: 6, scaling: 0.5, family });
    let error = posterior_from_model(&net, RUN).unwrap_err();
    assert!(error.to_string().starts_with("module `net.second`"), "{error}");
}

/// What does not fit is rejected, and the model stays as it was.
#[test]
fn a_posterior_must_fit_the_model() {
    let family = VariationalFamily::RankVariance;
    let (adapter, posterior) = through_files(&mut trained(family, DType::F32));
    let fails = |edit: &dyn Fn(&mut PeftPosterior), attached: bool| {
        let mut posterior = posterior.clone();
        edit(&mut posterior);
        let mut net = Net::new([None, None], DType::F32);
        if attached {
            attach_peft(&mut net, &adapter, false).unwrap();
        }
        let error = attach_posterior(&mut net, &posterior).unwrap_err();
        net.visit_layers(&mut |_, layer| {
            let posterior = layer.low_rank().and_then(|a| a.posterior());
            assert!(posterior.is_none());
            assert!(layer.slot().is_none_or(|slot| slot.family.is_none()));
        });
        error
    };
    let error = fails(&|_| (), false);
    assert!(error.to_string().starts_with("module `net.first`"), "no factors: {error}");
    let error = fails(&|p| p.header.log_variance_clamp = [-20.0, 3.0], true);
    assert!(error.to_string().contains("as `log_variance_clamp`, found"), "{error}");
    let error = fails(&|p| p.header.modules.get_mut("net.first").unwrap().rank = 2, true);
    assert!(error.to_string().starts_with("module `net.first`"), "{error}");
    let missing = |p: &mut PeftPosterior| drop(p.tensors.remove("net.first.rank_log_sigma2"));
    let other = |p: &mut PeftPosterior| p.header.family = VariationalFamily::ElementVariance;
    for edit in [&missing as &dyn Fn(&mut PeftPosterior), &other] {
        assert!(matches!(fails(edit, true), lrvd_burn::Error::Load(_)));
    }
    let unknown = |p: &mut PeftPosterior| {
        let module = p.header.modules["net.first"].clone();
        p.header.modules.insert("net.third".into(), module);
        let parameters = p.tensors["net.first.rank_log_sigma2"].clone();
        p.tensors.insert("net.third.rank_log_sigma2".into(), parameters);
    };
    let error = fails(&unknown, true);
    assert!(error.to_string().starts_with("module `net.third`"), "{error}");
}

/// What is missing, left over or of another shape is listed, and the model stays as it was.
#[test]
fn an_adapter_must_fit_the_model() {
    let net = Net::new([Some(&plain()), None], DType::F32);
    let template = PeftConfig {
        modules_to_save: vec!["second".to_owned()],
        ..PeftConfig::lora(4, 7.0, TargetModules::AllLinear)
    };
    let adapter = peft_from_model(&net, &template).unwrap();
    let fails = |edit: &dyn Fn(&mut PeftAdapter)| {
        let mut adapter = adapter.clone();
        edit(&mut adapter);
        let mut net = Net::new([None, None], DType::F32);
        let error = attach_peft(&mut net, &adapter, false).unwrap_err();
        assert!(net.first.adapter().is_none());
        error.to_string()
    };
    let renamed = fails(&|adapter| {
        let module = adapter.modules.remove("net.first").unwrap();
        adapter.modules.insert("net.third".to_owned(), module);
    });
    for (line, path) in [("missing (2):", "first"), ("unexpected (2):", "third")] {
        let expected = format!("{line}\n  `base_model.model.net.{path}.lora_A.weight`\n");
        assert!(renamed.contains(&expected), "{renamed}");
    }
    let turned = fails(&|adapter| {
        let module = adapter.modules.get_mut("net.first").unwrap();
        module.a = module.a.transpose2().unwrap();
    });
    assert!(turned.contains("mis-shaped (1):\n  `base_model.model.net.first.lora_A.weight`: "));
    let headless = fails(&|adapter| drop(adapter.saved.remove("net.second.bias")));
    assert!(headless.ends_with("missing (1):\n  `base_model.model.net.second.bias`"), "{headless}");
}
