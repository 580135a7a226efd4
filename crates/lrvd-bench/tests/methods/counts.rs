//! Exact numbers of parameters.

use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_bench::settings::Preset;
use lrvd_bench::settings::{MethodForm, MethodName, RankRequest};
use lrvd_burn::files::WeightStore;
use lrvd_burn::model::{AdaptedModel, AdapterTargets, trainable_counts};
use lrvd_core::baselines::{CountedMethod, LayerShape, c_lora};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoClassifier;
use lrvd_models::deberta::{DebertaClassifier, DebertaConfig};

use super::harness::{Backbone, Bench, method, set};

fn nano() -> AutoClassifier {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/deberta-v3-nano");
    let config = DebertaConfig::read(&folder.join("config.json")).unwrap();
    let store = WeightStore::open(&folder).unwrap();
    let seed = NoiseKey::new(0);
    let device = Device::flex();
    let loaded = DebertaClassifier::from_pretrained(&store, &config, seed, &device, DType::F32);
    AutoClassifier::Deberta(loaded.unwrap().0)
}

#[test]
fn methods_add_exactly_what_is_counted_for_them() {
    let config = Preset::ConstantWeight.config().validate().unwrap();
    let targets = AdapterTargets::Names(config.target_modules.clone());
    let base = nano();
    let mut layers = Vec::new();
    base.visit_layers(&mut |path, layer| {
        if targets.select(path) {
            layers.push(LayerShape { d_input: layer.d_input(), d_output: layer.d_output() });
        }
    });
    assert_eq!(layers.len(), 6 * 4);
    let cases = [
        ("lora", CountedMethod::Lora),
        ("map", CountedMethod::Lora),
        ("mcd", CountedMethod::Lora),
        ("lora-ensemble", CountedMethod::Ensemble { members: 4 }),
        ("bbb", CountedMethod::ElementOnBoth),
        ("bbb-a", CountedMethod::ElementOnA),
        ("blob", CountedMethod::ElementOnA),
        ("scalabl", CountedMethod::ScalaBl),
        ("c-lora", CountedMethod::CLora { hidden: c_lora::HIDDEN }),
        ("adalora", CountedMethod::AdaLora),
        ("bayeslora", CountedMethod::BayesLora),
        ("bayeslora-fixed", CountedMethod::BayesLora),
        ("lrvd-nts", CountedMethod::BayesLora),
        ("lrvd-element", CountedMethod::ElementOnBoth),
        ("lrvd-a-only", CountedMethod::BayesLora),
        ("lrvd-ard", CountedMethod::BayesLora),
    ];
    for (key, counted) in cases {
        let built = method(key).build(&config, RankRequest::Initial).unwrap();
        let mut model = base.clone();
        built.attach(&mut model, &targets, NoiseKey::new(1)).unwrap();
        let counts = trainable_counts(&model);
        let found = counts.adapter + counts.posterior + built.stored_parameters();
        assert_eq!(found, counted.parameter_count(&layers, config.initial_rank), "{key}");
        assert_eq!(counts.head + counts.backbone, 0, "{key}");
    }
}

#[test]
fn methods_refuse_targets_that_match_no_layer() {
    let built = method("lora")
        .build(&Preset::ConstantWeight.config().validate().unwrap(), RankRequest::Initial)
        .unwrap();
    let names = ["query_proj", "quary_proj"].map(str::to_owned).to_vec();
    let mut model = nano();
    let refused = built.attach(&mut model, &AdapterTargets::Names(names), NoiseKey::new(1));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("quary_proj") && !error.contains("query_proj"), "{error}");
    assert_eq!(trainable_counts(&model).adapter, 0, "nothing is attached then");
}

#[test]
fn methods_with_a_uniform_rank_take_the_rank_asked_for() {
    let bench = Bench::new(Backbone::Deberta);
    let uniform = ["map", "mcd", "lora-ensemble", "bbb", "bbb-a", "blob", "scalabl", "c-lora"];
    for key in uniform {
        let built = method(key).build(&bench.config, RankRequest::Average(3)).unwrap();
        assert_eq!(built.adapter().rank, 3, "{key}");
    }
}

#[test]
fn methods_at_another_rank_keep_the_scaling() {
    let bench = Bench::new(Backbone::Deberta);
    let scaling = |key: &str, request: RankRequest| {
        let adapter = method(key).build(&bench.config, request).unwrap().adapter();
        adapter.lora_alpha / adapter.rank as f64
    };
    for key in ["lora", "map", "mcd", "tfb", "blob", "bbb"] {
        for request in [RankRequest::Initial, RankRequest::Average(1), RankRequest::Average(3)] {
            assert_eq!(scaling(key, request), 6.0 / 4.0, "{key} {request:?}");
        }
    }
    // The published update of LoRA-Ensemble is not scaled.
    assert_eq!(scaling("lora-ensemble", RankRequest::Average(3)), 1.0);
}

#[test]
fn methods_of_several_runs_name_single_ones() {
    let single = |key: &str| {
        let member = MethodName::from_name(key).unwrap_or_else(|| panic!("{key}"));
        assert!(matches!(member.entry().form, MethodForm::Single), "{key}");
    };
    for method in MethodName::all() {
        match method.entry().form {
            MethodForm::Single => {}
            MethodForm::Ensemble { member, members } => {
                single(member);
                assert!(members > 1, "{method}");
            }
        }
    }
}

#[test]
fn methods_refuse_settings_out_of_range_and_unknown_ones() {
    use serde_json::json;
    let cases = [
        ("map", json!({ "weight_decay": -1.0 })),
        ("map", json!({ "precision": -1.0 })),
        ("map", json!({ "decay": 1.0 })),
        ("mcd", json!({ "dropout": 0.0 })),
        ("mcd", json!({ "dropout": 1.0 })),
        ("lora-ensemble", json!({ "members": 0 })),
        ("lora-ensemble", json!({ "gain": 0.0 })),
        ("lora-ensemble", json!({ "learning_rate": -1.0 })),
        ("bbb", json!({ "prior_std": 0.0 })),
        ("bbb", json!({ "prior": "laplace" })),
        ("bbb", json!({ "rho": 11.0 })),
        ("bbb", json!({ "rho_learning_rate": -1.0 })),
        ("bbb-a", json!({ "mixture.weight": 1.5 })),
        ("bbb", json!({ "mean_std": 0.0 })),
        ("blob", json!({ "epsilon": 0.0 })),
        ("blob", json!({ "gamma": 0.0 })),
        ("blob", json!({ "kl_learning_rate": -0.1 })),
        ("blob", json!({ "optimizers": "three" })),
        ("scalabl", json!({ "kl_direction": "both" })),
        ("scalabl", json!({ "epsilon": 2.0 })),
        ("scalabl", json!({ "kl_learning_rate": -1.0 })),
        ("blob", json!({ "noise_rate_factor": -1.0 })),
        ("c-lora", json!({ "learning_rate": -1.0 })),
        ("c-lora", json!({ "hidden": 0 })),
        ("c-lora", json!({ "kl_weight": -1.0 })),
    ];
    for (key, settings) in cases {
        let refused = set(&Bench::new(Backbone::Deberta).config, key, &settings);
        assert!(refused.is_err(), "{key} {settings}");
    }
}
