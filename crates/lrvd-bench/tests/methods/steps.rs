//! Each objective's terms against their definitions, what single methods answer, and steps of BLoB, `ScalaBL` and C-LoRA.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use lrvd_bench::method::c_lora::{ContextMatrix, Divergences};
use lrvd_bench::method::minibatch_weight::{falling_weight, rescaled_cycle, rising_weight};
use lrvd_bench::method::scalabl;
use lrvd_bench::settings::KlDirection;
use lrvd_burn::adapter::{AdaptedLinear, Extension};
use lrvd_burn::model::{NamedModule, total_over_adapters};
use lrvd_burn::objective::Objective;
use lrvd_burn::optimizer::{NamedGradients, ParameterGroups};
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::{Model, Run, StepContext, StepState, TrainState, UpdatePhase};
use lrvd_core::baselines::{ElementReduction, ScaleMixture};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;

use super::harness::{Backbone, Bench, close, method, numbers, trained};

fn double() -> Bench {
    Bench { dtype: DType::F64, ..Bench::new(Backbone::Deberta) }
}

fn regularised(bench: &Bench, key: &str, pass: &Pass) -> Objective {
    let Run { state, method: tuning, .. } = bench.fresh(method(key));
    drop(state.model.logits(&bench.batch().0.input, pass));
    bench.objective(&*tuning, &state.model, pass)
}

fn groups(bench: &Bench, key: &str) -> ParameterGroups {
    bench.build(method(key)).setup(&bench.config.training(0)).unwrap().groups
}

#[test]
fn methods_map_decays_or_penalises() {
    let mut bench = double();
    let groups = |bench: &Bench| groups(bench, "map");
    // 3 steps at 1, ⅔, ⅓ of 0.01: the decay that makes their sum 1.
    close(groups(&bench).adapter.weight_decay, 1.0 / (2.0 * 1e-2), 1e-12, "decay");
    assert_eq!(groups(&bench).head, bench.config.training(0).groups.head);
    assert!(regularised(&bench, "map", &Pass::mean()).penalty.is_none());
    bench.assign("methods.map.weight_decay=1e-5");
    assert_eq!(groups(&bench).adapter.weight_decay, 1e-5);
    bench.assign("methods.map.l2_in_loss=true methods.map.precision=3.0");
    assert_eq!(groups(&bench).adapter.weight_decay, 0.0);
    let state = bench.fresh(method("map")).state;
    let mut factors = trained(&state.model);
    factors.retain(|(name, _)| name.ends_with("lora_A") || name.ends_with("lora_B"));
    let squares: f64 = factors.iter().flat_map(|(_, v)| v).map(|v| v * v).sum();
    let found = regularised(&bench, "map", &Pass::mean()).penalty.unwrap();
    close(numbers(found)[0], 3.0 / (2.0 * 14.0) * squares, 1e-12, "penalty");
}

#[test]
fn methods_bbb_weighs_the_divergence_from_its_prior() {
    type Term<'a> = &'a dyn Fn(&AdaptedLinear) -> Option<Tensor<1>>;
    let plain = double();
    let torch = bayesian_torch();
    let mut mixed = double();
    mixed.assign("methods.bbb.prior=mixture methods.bbb.weight=blundell");
    let pass = Pass::sampled(Scheme::PerBatch, NoiseKey::new(5).at_step(2));
    let mixture = ScaleMixture::new(0.5, 1.0, (-6.0_f64).exp()).unwrap();
    let sum = |layer: &AdaptedLinear| layer.kl_elements(0.2, ElementReduction::Sum);
    let mean = |layer: &AdaptedLinear| layer.kl_elements(1.0, ElementReduction::Mean);
    let sampled = |layer: &AdaptedLinear| layer.kl_mixture(&pass, &mixture, ElementReduction::Sum);
    // The first of 4 batches of 4.
    let falling = falling_weight(0, 4).unwrap() / 4.0;
    let cases: [(_, _, Term<'_>, f64); 4] = [
        (&plain, "bbb", &sum, 1.0 / 14.0),
        (&plain, "bbb-a", &sum, 1.0 / 14.0),
        (&torch, "bbb", &mean, 1.0 / 4.0),
        (&mixed, "bbb", &sampled, falling),
    ];
    for (bench, key, kl, weight) in cases {
        let found = regularised(bench, key, &pass);
        let expected = total_over_adapters(&bench.fresh(method(key)).state.model, kl).unwrap();
        assert_eq!(numbers(found.kl.unwrap()), numbers(expected), "{key}");
        close(found.kl_weight / found.divisor, weight, 1e-15, key);
    }
}

#[test]
fn methods_bbb_noise_can_go_from_its_start_to_the_prior_within_the_run() {
    // σ_p = 0.2 from ρ = −6, σ_p = 1 from ρ = −3, and a mixture whose wider part has σ = 1, in 1 + ⅔ + ⅓ steps.
    let reaching =
        |width: f64, from: f64| (width.exp_m1().ln() - from) / (1.0 + 2.0 / 3.0 + 1.0 / 3.0);
    let rate = |bench: &Bench, key: &str| groups(bench, key).log_variance.learning_rate;
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
    let Run { state, method: tuning, .. } = bench.fresh(method("c-lora"));
    let (batch, _) = bench.batch();
    let pass = Pass::sampled(Scheme::PerToken, NoiseKey::new(1));
    let mut model = state.model.clone();
    let divergences = Divergences::from_prior(0.2);
    let hidden = bench.config.methods.c_lora.hidden;
    let op = Arc::new(ContextMatrix { hidden, divergences: Some(divergences.clone()) });
    model.visit_layers_mut(&mut |_, layer| {
        layer.edit(|adapter| {
            let Some(Extension::Op(extension)) = &mut adapter.extension else { panic!("no op") };
            extension.op = op.clone();
        });
    });
    for model in [&model, &state.model] {
        drop(model.logits(&batch.input, &pass));
    }
    let seen = divergences.take().into_iter();
    let expected: f64 = seen.flat_map(|seen| numbers(seen.per_token)).sum();
    let found = bench.objective(&*tuning, &state.model, &pass);
    close(numbers(found.kl.unwrap())[0], expected, 1e-10, "divergence");
    let cycle = rescaled_cycle(14, 8.0, 4).unwrap();
    let weight = rising_weight(0, cycle).unwrap() * 1e-6 / state.ranks().len() as f64;
    close(found.kl_weight / found.divisor, weight, 1e-12, "weight");
    // What was asked once is gone.
    assert!(bench.objective(&*tuning, &state.model, &pass).kl.is_none());
}

#[test]
fn methods_divide_the_divergence_by_what_the_loader_gives_at_once() {
    for (accumulation, expected) in [(1, 4.0), (2, 2.0), (4, 1.0)] {
        let mut bench = double();
        bench.assign(&format!(
            "steps=1 evaluate_every=1 accumulation={accumulation} kl_weight=1e-3 kl_divisor=batch"
        ));
        let state = bench.trained(method("bayeslora")).state;
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
        let state = bench.trained(method("bayeslora")).state;
        trained(&state.model)
    };
    let nothing = 50.0;
    let most = -50.0;
    assert_eq!(after("reset-if-changed", nothing), after("slice", nothing));
    assert_ne!(after("reset", nothing), after("slice", nothing));
    assert_eq!(after("reset-if-changed", most), after("reset", most));
    assert_ne!(after("reset", most), after("slice", most));
}

#[test]
fn methods_mcd_leaves_the_backbone_alone() {
    let mut bench = Bench::new(Backbone::Deberta);
    bench.assign("backbone_dropout=true methods.mcd.dropout=0.4");
    let Run { state, method: tuning, .. } = bench.trained(method("mcd"));
    let mut model = state.model;
    model.visit_layers(&mut |_, layer| {
        if let Some(adapter) = layer.low_rank() {
            assert_eq!(adapter.dropout, 0.4);
        }
    });
    let examples = bench.validation();
    let inputs = bench.context().inputs(&examples);
    let answers =
        |model: &AutoModel, draws| tuning.predict(model, &inputs.drawn(draws)).unwrap().values;
    assert_ne!(answers(&model, 1), answers(&model, 0));
    // With adapters that add nothing, nothing is left that could be dropped.
    model.visit_layers_mut(&mut |_, layer| drop(layer.detach()));
    assert_eq!(answers(&model, 1), answers(&model, 0));
}

#[test]
fn methods_c_lora_watches_training_only() {
    let bench = Bench::new(Backbone::Deberta);
    let Run { state, method: tuning, .. } = bench.trained(method("c-lora"));
    let examples = bench.validation();
    tuning.predict(&state.model, &bench.context().inputs(&examples).drawn(2)).unwrap();
    let (batch, _) = bench.batch();
    let pass = Pass::sampled(Scheme::PerToken, NoiseKey::new(1));
    assert!(bench.objective(&*tuning, &state.model, &pass).kl.is_none());
    drop(state.model.logits(&batch.input, &pass));
    assert!(bench.objective(&*tuning, &state.model, &pass).kl.is_some());
}

type Values = BTreeMap<String, Vec<f64>>;

/// A step whose weight of the KL is ½, taken in three parts.
struct Step {
    gradients: Values,
    before: Values,
    /// As AdamW left it, and its values.
    model: AutoModel,
    by_first: Values,
    after: Values,
}

const FACTOR: f64 = 0.75;

fn cycle() -> u32 {
    rescaled_cycle(14, 8.0, 4).unwrap()
}

fn step(bench: &Bench, key: &str) -> Step {
    let run = bench.fresh(method(key));
    let pass = Pass::sampled(run.setup().unwrap().scheme, NoiseKey::new(3));
    let Run { mut state, method: mut tuning, .. } = run;
    // B = 0 at the start gives A no gradient: one step of AdamW first.
    let gradients = bench.gradients(&mut state.model, &pass);
    state.optimizer.step(&mut state.model, &gradients, 1.0);
    let mut gradients = bench.gradients(&mut state.model, &pass);
    let kept = |name: &str| (name.to_owned(), numbers(gradients.get(name).unwrap().clone()));
    let kept = gradients.names().map(kept).collect();
    let all = |state: &TrainState<AutoModel>| trained(&state.model).into_iter().collect::<Values>();
    let before = all(&state);
    let mut hook = |state: &mut TrainState<AutoModel>, when: UpdatePhase| {
        let context = StepContext { step: cycle() as usize - 1, pass, ..bench.batch().1 };
        let gradients = &mut gradients;
        let step = StepState {
            context,
            rate_factor: FACTOR,
            model: &mut state.model,
            rank_masks: &mut state.in_use,
            removed: &mut state.journal.removed,
            optimizer: &mut state.optimizer,
            skip_next_update: &mut state.skip_next_update,
            gradients,
        };
        assert!(tuning.update(when, step).unwrap().is_none());
        if when == UpdatePhase::BeforeUpdate {
            state.optimizer.step(&mut state.model, gradients, FACTOR);
        }
    };
    hook(&mut state, UpdatePhase::BeforeUpdate);
    let model = state.model.clone();
    let by_first = all(&state);
    hook(&mut state, UpdatePhase::AfterUpdate);
    Step { gradients: kept, before, model, by_first, after: all(&state) }
}

fn bench() -> Bench {
    let mut bench = double();
    // As long as published, so that cycles are.
    bench.assign("steps=5000 gradient_clip=none methods.blob.kl_learning_rate=0.01");
    bench
}

type Kl = fn(&AdaptedLinear) -> Option<Tensor<1>>;

#[test]
fn methods_with_two_optimisers_descend_on_the_divergence_and_on_what_is_theirs() {
    let entries: Kl = |layer| layer.kl_elements(0.2, ElementReduction::Sum);
    let coded: Kl = |layer| scalabl::kl(layer, KlDirection::Coded);
    let standard: Kl = |layer| scalabl::kl(layer, KlDirection::Standard);
    let nothing: Kl = |_| None;
    // Settings, the part of a name that AdamW leaves to the second optimiser, its rate and its divergence.
    for (key, settings, owned, rate, kl) in [
        ("blob", "", Some("lora_A_G"), 0.01, entries),
        // However little the experiment leaves of the others' gradients, the noise has its whole one.
        ("blob", "gradient_clip=1e-3", Some("lora_A_G"), 0.01, entries),
        ("blob", "methods.blob.optimizers=bayesadapt", None, 0.01, entries),
        ("scalabl", "", None, 0.1, coded),
        ("scalabl", "methods.scalabl.kl_direction=standard", None, 1.0, standard),
        ("c-lora", "", Some(".lora_context_"), 0.01, nothing),
    ] {
        let mut bench = bench();
        bench.assign(settings);
        let Step { gradients, before, model, by_first, after } = step(&bench, key);
        let weight = rising_weight(u64::from(cycle()) - 1, cycle()).unwrap();
        let slopes = total_over_adapters(&model, kl)
            .map(|kl| NamedGradients::collect(&model, &kl.mul_scalar(weight).backward()));
        let mut moved = 0;
        for (name, after) in &after {
            let is_owned = owned.is_some_and(|part| name.contains(part));
            assert_eq!(before[name] == by_first[name], is_owned, "{name} by AdamW");
            let mut slope = vec![0.0; after.len()];
            let of_kl = slopes.as_ref().and_then(|slopes| slopes.get(name)).cloned().map(numbers);
            let own = is_owned.then(|| gradients[name].clone());
            for part in [of_kl, own].into_iter().flatten() {
                assert!(part.iter().any(|value| *value != 0.0), "{name}");
                slope.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                moved += 1;
            }
            for ((found, first), slope) in after.iter().zip(&by_first[name]).zip(slope) {
                close(*found, first - rate * FACTOR * slope, 1e-9, name);
            }
        }
        assert!(moved > 0, "{key}");
    }
}
