//! A posterior through its file, off a model, to the disk and onto another model; what a LoRA file has of extensions.

use crate::support::prelude::*;
use lrvd_burn::adapter::AdapterSlot;
use lrvd_burn::peft::{
    ExportLayout, PeftAdapter, PeftConfig, PeftPosterior, PosteriorRun, TargetModules, attach_peft,
    attach_posterior, peft_from_model, posterior_from_model,
};
use lrvd_core::prune::StatisticAggregate;

const RUN: PosteriorRun = PosteriorRun {
    scheme: Some(Scheme::PerSequence),
    statistic: Some(StatisticAggregate::Energy),
    log_alpha_threshold: Some(3.5),
    kl_weight: Some(0.25),
    seed: Some(7),
};

/// A net whose second layer lost every rank.
fn trained(family: VariationalFamily, dtype: DType) -> Net {
    let mut net = Net::new([Some(&noisy(family)), None], dtype);
    let slot = AdapterSlot { initial_rank: 6, scaling: 0.5, family: Some(family) };
    net.second.attach_empty("net.second", slot);
    net
}

/// Adapter and posterior of `net`, through their files.
fn through_files(net: &Net) -> (PeftAdapter, PeftPosterior) {
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
    for (dtype, family) in VariationalFamily::ALL
        .map(|family| (DType::F32, family))
        .into_iter()
        .chain([(DType::F64, VariationalFamily::ElementVariance)])
    {
        let net = trained(family, dtype);
        let (adapter, posterior) = through_files(&net);
        let mut loaded = Net::new([None, None], dtype);
        attach_peft(&mut loaded, &adapter, false).unwrap();
        attach_posterior(&mut loaded, &posterior).unwrap();
        // Without autodiff anywhere, as in prediction.
        let plain = loaded.valid();
        for scheme in SCHEMES {
            let pass = Pass::sampled(scheme, NoiseKey::new(5).at_step(3));
            let [a, b] = [&net, &plain].map(|net| host(net.forward(data(dtype).0, &pass)));
            same(&format!("{family} {scheme:?} {dtype:?}"), &a, &b);
        }
        for layer in [&loaded.first, &loaded.second] {
            assert_eq!(layer.slot().unwrap().family, Some(family));
        }
        assert_eq!(loaded.second.slot().unwrap().initial_rank, 6);
        assert!(posterior_from_model(&loaded, RUN).unwrap().unwrap() == posterior, "{family}");
    }
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

/// A posterior that does not fit is rejected, and the model stays as it was.
#[rstest]
#[case::no_factors(false, |_: &mut PeftPosterior| (), "module `net.first`")]
#[case::clamp(true, |p: &mut PeftPosterior| p.header.log_variance_clamp = [-20.0, 3.0],
    "as `log_variance_clamp`, found")]
#[case::rank(true,
    |p: &mut PeftPosterior| p.header.modules.get_mut("net.first").unwrap().rank = 2,
    "module `net.first`")]
#[case::missing(true,
    |p: &mut PeftPosterior| drop(p.tensors.remove("net.first.rank_log_sigma2")),
    "net.first.rank_log_sigma2")]
#[case::other_family(true,
    |p: &mut PeftPosterior| p.header.family = VariationalFamily::ElementVariance,
    "net.first.log_sigma2_a")]
#[case::unknown(true, |p: &mut PeftPosterior| {
    let module = p.header.modules["net.first"].clone();
    p.header.modules.insert("net.third".into(), module);
    let parameters = p.tensors["net.first.rank_log_sigma2"].clone();
    p.tensors.insert("net.third.rank_log_sigma2".into(), parameters);
}, "module `net.third`")]
fn a_posterior_must_fit_the_model(
    #[case] attached: bool,
    #[case] edit: fn(&mut PeftPosterior),
    #[case] message: &str,
) {
    let (adapter, mut posterior) =
        through_files(&trained(VariationalFamily::RankVariance, DType::F32));
    edit(&mut posterior);
    let mut net = Net::new([None, None], DType::F32);
    if attached {
        attach_peft(&mut net, &adapter, false).unwrap();
    }
    let error = attach_posterior(&mut net, &posterior).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
    net.visit_layers(&mut |_, layer| {
        assert!(layer.low_rank().is_none_or(|adapter| adapter.posterior().is_none()));
        assert!(layer.slot().is_none_or(|slot| slot.family.is_none()));
    });
}

#[test]
fn files_hold_the_mean_of_element_noise_and_nothing_of_the_rest() {
    let template = PeftConfig::lora(RANK, 7.0, TargetModules::Names(vec!["first".to_owned()]));
    let mut net = Net::new([Some(&plain()), None], DType::F32);
    let plain = peft_from_model(&net, &template).unwrap();
    net.first.extend(Some(element_noise(NoiseMap::Softplus, true, DType::F32))).unwrap();
    assert!(peft_from_model(&net, &template).unwrap() == plain, "a posterior is not in the file");
    net.first.extend(Some(scales(1, DType::F32))).unwrap();
    let error = peft_from_model(&net, &template).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("module `net.first`: `extension`"), "{error}");
    // Plain factors may be written again, whatever stood between them.
    assert!(matches!(net.first.extend(None).unwrap(), Some(Extension::Op(_))));
    assert!(peft_from_model(&net, &template).unwrap() == plain);
    assert!(net.first.detach().is_some() && net.first.slot().is_none());
}

/// Tensors that are missing, left over or of another shape are listed, and the model stays as it was.
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
        assert!(net.first.low_rank().is_none());
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
