//! What single methods answer, and steps of BLoB, `ScalaBL` and C-LoRA in double precision.

use std::collections::BTreeMap;

use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::AdaptedLinear;
use lrvd_burn::model::{AdaptedModel, total_over_adapters};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Model, StepState, TrainState};

use lrvd_core::baselines::minibatch_weight::{rescaled_cycle, rising_weight};
use lrvd_core::baselines::{ElementReduction, KlDirection};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;

use super::harness::{Backbone, Bench, close, method, numbers, trained};

fn answers(bench: &Bench, model: &AutoModel, key: &str, draws: usize) -> Vec<f64> {
    let examples = bench.validation();
    bench
        .build(method(key))
        .predict(model, &bench.context().inputs(&examples), draws)
        .unwrap()
        .values
}

fn after_training(bench: &Bench, key: &str) -> AutoModel {
    let (mut state, mut tuning) = bench.fresh(method(key));
    bench.train(&mut state, &mut *tuning);
    state.model
}

#[test]
fn methods_mcd_leaves_the_backbone_alone() {
    let mut bench = Bench::new(Backbone::Deberta);
    bench.assign("backbone_dropout=true methods.mcd.dropout=0.4");
    let mut model = after_training(&bench, "mcd");
    model.visit_layers(&mut |_, layer| {
        if let Some(adapter) = layer.low_rank() {
            assert_eq!(adapter.dropout, 0.4);
        }
    });
    assert_ne!(answers(&bench, &model, "mcd", 1), answers(&bench, &model, "mcd", 0));
    // With adapters that add nothing, nothing is left that could be dropped.
    model.visit_layers_mut(&mut |_, layer| drop(layer.detach()));
    assert_eq!(answers(&bench, &model, "mcd", 1), answers(&bench, &model, "mcd", 0));
}

#[test]
fn methods_c_lora_watches_training_only() {
    let bench = Bench::new(Backbone::Deberta);
    let (mut state, mut tuning) = bench.fresh(method("c-lora"));
    bench.train(&mut state, &mut *tuning);
    let examples = bench.validation();
    tuning.predict(&state.model, &bench.context().inputs(&examples), 2).unwrap();
    let (batch, sizes) = bench.batch();
    let pass = Pass::sampled(tuning.scheme(), NoiseKey::new(1));
    assert!(tuning.terms(&state.model, &pass, sizes).unwrap().kl.is_none());
    let observed = state.model.clone();
    tuning.compact(&mut state.model);
    drop(state.model.logits(&batch.input, &pass));
    assert!(tuning.terms(&state.model, &pass, sizes).unwrap().kl.is_none());
    drop(observed.logits(&batch.input, &pass));
    assert!(tuning.terms(&observed, &pass, sizes).unwrap().kl.is_some());
    assert_eq!(trained(&observed), trained(&state.model));
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
    rescaled_cycle(14, 8.0, 1, 4).unwrap()
}

fn step(bench: &Bench, key: &str) -> Step {
    let (mut state, mut tuning) = bench.fresh(method(key));
    let pass = Pass::sampled(tuning.scheme(), NoiseKey::new(3));
    // B = 0 at the start gives A no gradient: one step of AdamW first.
    let gradients = bench.gradients(&mut state.model, &pass);
    state.optimizer.step(&mut state.model, &gradients, 1.0);
    let mut gradients = bench.gradients(&mut state.model, &pass);
    let kept = |name: &str| (name.to_owned(), numbers(gradients.get(name).unwrap().clone()));
    let kept = gradients.names().map(kept).collect();
    let all = |state: &TrainState<AutoModel>| trained(&state.model).into_iter().collect::<Values>();
    let before = all(&state);
    let mut hook = |state: &mut TrainState<AutoModel>, after: bool| {
        let mut sizes = bench.batch().1;
        sizes.step = cycle() as usize - 1;
        let TrainState { model, optimizer, .. } = state;
        let (pass, gradients) = (&pass, &mut gradients);
        let step = StepState { sizes, pass, rate_factor: FACTOR, model, optimizer, gradients };
        let change = if after { tuning.after_update(step) } else { tuning.before_update(step) };
        assert!(change.unwrap().is_none());
        if !after {
            state.optimizer.step(&mut state.model, gradients, FACTOR);
        }
    };
    hook(&mut state, false);
    let (model, by_first) = (state.model.clone(), all(&state));
    hook(&mut state, true);
    Step { gradients: kept, before, model, by_first, after: all(&state) }
}

fn bench() -> Bench {
    let mut bench = Bench { dtype: DType::F64, ..Bench::new(Backbone::Deberta) };
    // As long as published, so that cycles are.
    bench.assign("steps=5000 gradient_clip=none methods.blob.kl_learning_rate=0.01");
    bench
}

type Kl = fn(&AdaptedLinear) -> Option<Tensor<1>>;

#[test]
fn methods_with_two_optimisers_descend_on_the_divergence_and_on_what_is_theirs() {
    let entries: Kl = |layer| layer.kl_elements(0.2, ElementReduction::Sum);
    let coded: Kl = |layer| layer.kl_scale(KlDirection::PriorFromPosterior);
    let standard: Kl = |layer| layer.kl_scale(KlDirection::PosteriorFromPrior);
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
        let weight = rising_weight(cycle(), cycle()).unwrap();
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
