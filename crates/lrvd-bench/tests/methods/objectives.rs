//! Each objective's terms against their definitions, in double precision.

use burn::tensor::{DType, TensorData};
use lrvd_bench::settings::KlWeight;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_burn::train::{Model, Terms};
use lrvd_core::baselines::minibatch_weight::{falling_weight, rescaled_cycle, rising_weight};
use lrvd_core::baselines::{ElementGaussian, ElementReduction, ScaleMixture, StdMap};
use lrvd_core::kl::gaussian_kl;
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64, module_id};

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

type NoisyFactor = (String, Vec<f64>, Vec<f64>);

fn noisy_factors(bench: &Bench, key: &str) -> Vec<NoisyFactor> {
    let (state, _) = bench.fresh(method(key));
    let rho = values(&state.model, &["_rho"]);
    let means = values(&state.model, &["lora_A", "lora_B"]);
    rho.into_iter()
        .map(|(name, rho)| {
            let mean_name = name.trim_end_matches("_rho");
            let mean = means.iter().find(|(name, _)| name == mean_name).unwrap();
            (mean_name.to_owned(), mean.1.clone(), rho)
        })
        .collect()
}

#[test]
fn methods_bbb_adds_the_closed_form() {
    let (plain, torch) = (double(), bayesian_torch());
    for (bench, key, prior, reduction, weight, factors) in [
        (&plain, "bbb", 0.2, ElementReduction::Sum, 1.0 / 14.0, 2),
        (&plain, "bbb-a", 0.2, ElementReduction::Sum, 1.0 / 14.0, 1),
        (&torch, "bbb", 1.0, ElementReduction::Mean, 1.0 / 4.0, 2),
    ] {
        let found = regularised(bench, key, &Pass::mean());
        let pairs = noisy_factors(bench, key);
        assert_eq!(pairs.len(), factors * modules(&bench.fresh(method(key)).0.model), "{key}");
        let kl = |(_, mean, rho): &NoisyFactor| {
            let q = ElementGaussian::new(mean, rho, StdMap::Softplus).unwrap();
            q.kl(prior, reduction).unwrap()
        };
        close(numbers(found.kl.unwrap())[0], pairs.iter().map(kl).sum(), 1e-12, key);
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
fn methods_bbb_mixture_is_the_sampled_divergence_of_the_batch() {
    let mut bench = double();
    bench.assign("methods.bbb.prior=mixture methods.bbb.weight=blundell");
    let key = NoiseKey::new(5).at_step(2);
    let pass = Pass::sampled(Scheme::Weights(DrawPer::Batch), key);
    let found = regularised(&bench, "bbb", &pass);
    let prior = ScaleMixture::new(0.5, 1.0, (-6.0_f64).exp()).unwrap();
    let expected: f64 = noisy_factors(&bench, "bbb")
        .iter()
        .map(|(name, mean, rho)| {
            let (path, factor) = name.rsplit_once('.').unwrap();
            let stream = if factor == "lora_A" { Stream::WEIGHT_A } else { Stream::WEIGHT_B };
            let mut eps = vec![0.0; mean.len()];
            fill_normal_f64(key.for_module(module_id(path)).on_stream(stream), 0, &mut eps);
            let q = ElementGaussian::new(mean, rho, StdMap::Softplus).unwrap();
            q.sampled_kl(&prior, &eps, ElementReduction::Sum).unwrap()
        })
        .sum();
    close(numbers(found.kl.unwrap())[0], expected, 1e-10, "mixture");
    // The first of 4 batches of 4.
    close(found.kl_weight, falling_weight(1, 4).unwrap() / 4.0, 1e-15, "weight");
}

#[test]
fn methods_c_lora_weighs_the_divergence_of_every_token() {
    let mut bench = double();
    // Layers that see tokens only: the query and key projections also see relative positions.
    bench.assign("steps=2000 target_modules=[\"value_proj\",\"intermediate.dense\"]");
    let (mut state, tuning) = bench.fresh(method("c-lora"));
    let square = bench.config.initial_rank * bench.config.initial_rank;
    // Without a second layer the law is that of its bias, whatever the input.
    let mut bias: Vec<f64> = Vec::new();
    state.model.visit_parameters_mut(&mut |p| {
        if p.name.ends_with("lora_context_w2") {
            let shape = p.value.shape();
            p.value.set_data(TensorData::new(vec![0.0_f64; p.value.len()], shape));
        } else if p.name.ends_with("lora_context_b2") {
            bias.extend(numbers(p.value.flat()));
        }
    });
    let modules = modules(&state.model);
    let expected: f64 = bias
        .chunks(2 * square)
        .flat_map(|bias| bias[..square].iter().zip(&bias[square..]))
        .map(|(&mean, &raw)| {
            let std = (1.0 / (1.0 + (-raw).exp())).powi(2);
            gaussian_kl(mean, std, 0.2)
        })
        .sum();
    let (batch, sizes) = bench.batch();
    let positions = batch.input.ids.dims().iter().product::<usize>() as f64;
    let pass = Pass::sampled(tuning.scheme(), NoiseKey::new(1));
    drop(state.model.logits(&batch.input, &pass));
    let found = tuning.terms(&state.model, &pass, sizes).unwrap();
    close(numbers(found.kl.unwrap())[0], positions * expected, 1e-10, "divergence");
    let cycle = rescaled_cycle(14, 8.0, 1, 4).unwrap();
    let weight = rising_weight(1, cycle).unwrap() * 1e-6 / modules as f64;
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
