//! Each objective's terms against their definitions, in double precision.

use burn::tensor::{DType, Tensor};
use lrvd_bench::settings::KlWeight;
use lrvd_burn::adapter::{AdaptedLinear, Observer};
use lrvd_burn::model::{observe, total_over_adapters};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::{Model, Terms};
use lrvd_core::baselines::minibatch_weight::{falling_weight, rescaled_cycle, rising_weight};
use lrvd_core::baselines::{ElementReduction, ScaleMixture};
use lrvd_core::noise::NoiseKey;

use super::harness::{Backbone, Bench, close, method, modules, numbers, trained, values};

fn double() -> Bench {
    Bench { dtype: DType::F64, ..Bench::new(Backbone::Deberta) }
}

fn regularised(bench: &Bench, key: &str, pass: &Pass) -> Terms {
    let (state, tuning) = bench.fresh(method(key));
    let (batch, sizes) = bench.batch();
    drop(state.model.logits(&batch.input, pass));
    tuning.terms(&state.model, pass, sizes).unwrap()
}

#[test]
fn methods_map_decays_or_penalises() {
    let mut bench = double();
    let groups =
        |bench: &Bench| bench.build(method("map")).groups(&bench.config.training(0).groups);
    // 3 steps at 1, ⅔, ⅓ of 0.01: the decay that makes their sum 1.
    close(groups(&bench).adapter.weight_decay, 1.0 / (2.0 * 1e-2), 1e-12, "decay");
    assert_eq!(groups(&bench).head, bench.config.training(0).groups.head);
    assert!(regularised(&bench, "map", &Pass::mean()).penalty.is_none());
    bench.assign("methods.map.weight_decay=1e-5");
    assert_eq!(groups(&bench).adapter.weight_decay, 1e-5);
    bench.assign("methods.map.l2_in_loss=true methods.map.precision=3.0");
    assert_eq!(groups(&bench).adapter.weight_decay, 0.0);
    let (state, _) = bench.fresh(method("map"));
    let factors = values(&state.model, &["lora_A", "lora_B"]);
    let squares: f64 = factors.iter().flat_map(|(_, v)| v).map(|v| v * v).sum();
    let found = regularised(&bench, "map", &Pass::mean()).penalty.unwrap();
    close(numbers(found)[0], 3.0 / (2.0 * 14.0) * squares, 1e-12, "penalty");
}

#[test]
fn methods_bbb_weighs_the_divergence_from_its_prior() {
    let (plain, torch, mut mixed) = (double(), bayesian_torch(), double());
    mixed.assign("methods.bbb.prior=mixture methods.bbb.weight=blundell");
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), NoiseKey::new(5).at_step(2));
    let mixture = ScaleMixture::new(0.5, 1.0, (-6.0_f64).exp()).unwrap();
    let sum = |layer: &AdaptedLinear| layer.kl_elements(0.2, ElementReduction::Sum);
    let mean = |layer: &AdaptedLinear| layer.kl_elements(1.0, ElementReduction::Mean);
    let sampled = |layer: &AdaptedLinear| layer.kl_mixture(&pass, &mixture, ElementReduction::Sum);
    // The first of 4 batches of 4.
    let falling = falling_weight(1, 4).unwrap() / 4.0;
    let cases: [(_, _, &dyn Fn(&AdaptedLinear) -> Option<Tensor<1>>, f64); 4] = [
        (&plain, "bbb", &sum, 1.0 / 14.0),
        (&plain, "bbb-a", &sum, 1.0 / 14.0),
        (&torch, "bbb", &mean, 1.0 / 4.0),
        (&mixed, "bbb", &sampled, falling),
    ];
    for (bench, key, kl, weight) in cases {
        let found = regularised(bench, key, &pass);
        let expected = total_over_adapters(&bench.fresh(method(key)).0.model, kl).unwrap();
        assert_eq!(numbers(found.kl.unwrap()), numbers(expected), "{key}");
        close(found.kl_weight / found.divisor, weight, 1e-15, key);
    }
}

#[test]
fn methods_bbb_noise_can_go_from_its_start_to_the_prior_within_the_run() {
    // σ_p = 0.2 from ρ = −6, σ_p = 1 from ρ = −3, and a mixture whose wider part has σ = 1, in 1 + ⅔ + ⅓ steps.
    let reaching =
        |width: f64, from: f64| (width.exp_m1().ln() - from) / (1.0 + 2.0 / 3.0 + 1.0 / 3.0);
    let rate = |bench: &Bench, key: &str| {
        bench.build(method(key)).groups(&bench.config.training(0).groups).log_variance.learning_rate
    };
    let mut bench = double();
    close(rate(&bench, "bbb"), reaching(0.2, -6.0), 1e-12, "bbb");
    close(rate(&bench, "bbb-a"), reaching(0.2, -6.0), 1e-12, "bbb-a");
    close(rate(&bayesian_torch(), "bbb"), reaching(1.0, -3.0), 1e-12, "Bayesian-Torch");
    bench.assign("methods.bbb.prior=mixture");
    close(rate(&bench, "bbb"), reaching(1.0, -6.0), 1e-12, "mixture");
    bench.assign("methods.bbb.rho_learning_rate=0.125");
    assert_eq!(rate(&bench, "bbb"), 0.125);
}

/// With Bayesian-Torch's defaults for Bayes by backprop.
fn bayesian_torch() -> Bench {
    let mut bench = double();
    bench.assign(
        "methods.bbb.rho=-3.0 methods.bbb.rho_std=0.1 methods.bbb.mean_std=0.1 methods.bbb.prior_std=1.0 \
         methods.bbb.weight=batch methods.bbb.reduction=mean",
    );
    bench
}

#[test]
fn methods_c_lora_weighs_the_divergence_of_every_token() {
    let mut bench = double();
    // Layers that see tokens only: the query and key projections also see relative positions.
    bench.assign("steps=2000 target_modules=[\"value_proj\",\"intermediate.dense\"]");
    let (state, tuning) = bench.fresh(method("c-lora"));
    let (batch, sizes) = bench.batch();
    let pass = Pass::sampled(tuning.scheme(), NoiseKey::new(1));
    let (mut model, observer) = (state.model.clone(), Observer::of_divergences(0.2));
    observe(&mut model, Some(&observer));
    for model in [&model, &state.model] {
        drop(model.logits(&batch.input, &pass));
    }
    let seen = observer.take_divergences().into_iter();
    let expected: f64 = seen.flat_map(|seen| numbers(seen.per_token)).sum();
    let found = tuning.terms(&state.model, &pass, sizes).unwrap();
    close(numbers(found.kl.unwrap())[0], expected, 1e-10, "divergence");
    let cycle = rescaled_cycle(14, 8.0, 1, 4).unwrap();
    let weight = rising_weight(1, cycle).unwrap() * 1e-6 / modules(&state.model) as f64;
    close(found.kl_weight / found.divisor, weight, 1e-12, "weight");
    // What was asked once is gone.
    assert!(tuning.terms(&state.model, &pass, sizes).unwrap().kl.is_none());
}

#[test]
fn methods_of_the_lrvd_family_keep_the_rate_of_the_settings_or_have_the_authors() {
    let bench = double();
    let config = &bench.config;
    let rates = |key: &str| {
        bench.build(method(key)).groups(&config.training(0).groups).log_variance.learning_rate
    };
    let own = config.learning_rate * config.log_variance.learning_rate_factor;
    for key in ["bayeslora-fixed", "lrvd-element", "lrvd-a-only", "lrvd-ard"] {
        assert_eq!(rates(key), own, "{key}");
    }
    // 3 steps at 1, ⅔, ⅓ must carry ln α from −4 to 4.
    close(rates("lrvd-nts"), 8.0 / 2.0, 1e-12, "rate");
    let KlWeight::Fixed(fixed) = config.kl_weight else { panic!("{:?}", config.kl_weight) };
    assert_eq!(regularised(&bench, "bayeslora-fixed", &Pass::mean()).kl_weight, fixed);
}

#[test]
fn methods_divide_the_divergence_by_what_the_loader_gives_at_once() {
    for (accumulation, expected) in [(1, 4.0), (2, 2.0), (4, 1.0)] {
        let mut bench = double();
        bench.assign(&format!(
            "steps=1 evaluate_every=1 accumulation={accumulation} kl_weight=1e-3 kl_divisor=batch"
        ));
        let (mut state, mut tuning) = bench.fresh(method("bayeslora"));
        bench.train(&mut state, &mut *tuning);
        let parts = state.journal.history.last().unwrap().parts.unwrap();
        close(1e-3 * parts.kl / (parts.loss - parts.nll), expected, 1e-6, "divisor");
    }
}

#[test]
fn methods_forget_moments_at_a_prune_as_the_settings_say() {
    let after = |optimizer: &str, threshold: f64| {
        let mut bench = double();
        bench.assign(&format!(
            "steps=4 prune.log_alpha_threshold={threshold:?} prune.min_rank=2 prune.start=0.0 prune.every=0.5 \
             prune.end=1.0 prune.optimizer={optimizer}"
        ));
        let (mut state, mut tuning) = bench.fresh(method("bayeslora"));
        bench.train(&mut state, &mut *tuning);
        trained(&state.model)
    };
    let (nothing, most) = (50.0, -50.0);
    assert_eq!(after("reset-if-changed", nothing), after("slice", nothing));
    assert_ne!(after("reset", nothing), after("slice", nothing));
    assert_eq!(after("reset-if-changed", most), after("reset", most));
    assert_ne!(after("reset", most), after("slice", most));
}
