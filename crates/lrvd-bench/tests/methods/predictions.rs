//! What single methods answer, and steps of BLoB, `ScalaBL` and C-LoRA by hand in double precision.

use std::collections::BTreeMap;

use burn::tensor::DType;
use lrvd_burn::adapter::Adapter;
use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Model, StepState, TrainState};
use lrvd_core::baselines::KlDirection;
use lrvd_core::baselines::minibatch_weight::{rescaled_cycle, rising_weight};
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoModel;

use super::harness::{Backbone, Bench, LABELS, asked, close, method, numbers, trained};

fn answers(bench: &Bench, model: &AutoModel, key: &str, draws: usize) -> Vec<f64> {
    let examples = bench.validation();
    bench.build(method(key)).predict(model, &asked(bench, &examples), draws).unwrap().values
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
fn methods_of_members_answer_as_each_member_alone() {
    for backbone in Backbone::WIDE {
        let bench = Bench::new(backbone);
        let model = after_training(&bench, "lora-ensemble");
        let found = answers(&bench, &model, "lora-ensemble", 0);
        let each = 5 * LABELS;
        assert_eq!(found.len(), 4 * each);
        for (m, logits) in found.chunks(each).enumerate() {
            let mut alone = model.clone();
            alone.visit_layers_mut(&mut |_, layer| {
                if let Some(Adapter::Members(members)) = layer.adapter() {
                    let member = members.member(m).unwrap();
                    let rank = member.rank();
                    layer.attach(member, rank).unwrap();
                }
            });
            let examples = bench.validation();
            let expected = asked(&bench, &examples).logits(&alone, &Pass::mean()).unwrap().values;
            for (f, w) in logits.iter().zip(expected) {
                assert!((f - w).abs() < 2e-5 * w.abs().max(1.0), "member {m}: {f} {w}");
            }
        }
        assert_ne!(found[..each], found[each..2 * each]);
    }
}

#[test]
fn methods_c_lora_watches_training_only() {
    let bench = Bench::new(Backbone::Deberta);
    let (mut state, mut tuning) = bench.fresh(method("c-lora"));
    bench.train(&mut state, &mut *tuning);
    let examples = bench.validation();
    tuning.predict(&state.model, &asked(&bench, &examples), 2).unwrap();
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
    let by_first = all(&state);
    hook(&mut state, true);
    Step { gradients: kept, before, by_first, after: all(&state) }
}

fn bench() -> Bench {
    let mut bench = Bench { dtype: DType::F64, ..Bench::new(Backbone::Deberta) };
    // As long as published, so that cycles are.
    bench.assign("steps=5000 gradient_clip=none methods.blob.kl_learning_rate=0.01");
    bench
}

fn all_close(found: &[f64], expected: impl Iterator<Item = f64>, what: &str) {
    for (&f, w) in found.iter().zip(expected) {
        close(f, w, 1e-9, what);
    }
}

/// Names of means that the KL moves with those of their noise parameters, beside their ending.
fn pairs(step: &Step, mean: &str, noise: &str) -> Vec<(String, String)> {
    let found: Vec<(String, String)> = step
        .after
        .keys()
        .filter_map(|name| Some((name.clone(), format!("{}{noise}", name.strip_suffix(mean)?))))
        .collect();
    assert!(!found.is_empty());
    found
}

/// Slopes of `KL(N(mean, σ²) ‖ N(0, 0.2²)) = ln(0.2/σ) + (σ² + mean²)/(2·0.2²) − ½` by the mean.
fn blob_by_mean(mean: f64) -> f64 {
    mean / 0.04
}

/// The slope by G, of which σ is the square.
fn blob_by_g(g: f64) -> f64 {
    (g * g / 0.04 - 1.0 / (g * g)) * 2.0 * g
}

/// Slopes of the divergence of scales `N(m, v)`, `m = exp(log_mean)`, `v = exp(2·log_std)`, from `N(0, 1)` or the other way
/// round, by the two logarithms.
fn scale_slopes(log_mean: f64, log_std: f64, direction: KlDirection) -> [f64; 2] {
    let (m, v) = (log_mean.exp(), (2.0 * log_std).exp());
    match direction {
        KlDirection::PosteriorFromPrior => [m * m, v - 1.0],
        KlDirection::PriorFromPosterior => [m * m / v, 1.0 - (1.0 + m * m) / v],
    }
}

#[test]
fn methods_blob_takes_two_steps_or_gives_adamw_everything() {
    let weight = rising_weight(cycle(), cycle()).unwrap();
    let rate = 0.01 * FACTOR;
    let mut bench = bench();
    let own = step(&bench, "blob");
    bench.assign("methods.blob.optimizers=bayesadapt");
    let theirs = step(&bench, "blob");
    for (a, g) in pairs(&own, "lora_A", "lora_A_G") {
        // AdamW moves the means by the likelihood and leaves G.
        assert_ne!(own.before[&a], own.by_first[&a]);
        assert_eq!(own.before[&g], own.by_first[&g]);
        let moved = own.by_first[&a].iter().map(|v| v - rate * weight * blob_by_mean(*v));
        all_close(&own.after[&a], moved, &a);
        let moved = own.before[&g].iter().zip(&own.gradients[&g]);
        let moved = moved.map(|(v, nll)| v - rate * (weight * blob_by_g(*v) + nll));
        all_close(&own.after[&g], moved, &g);
        assert!(own.gradients[&g].iter().any(|nll| *nll != 0.0));
        assert_ne!(theirs.before[&g], theirs.by_first[&g]);
        let moved = theirs.by_first[&g].iter().map(|v| v - rate * weight * blob_by_g(*v));
        all_close(&theirs.after[&g], moved, &g);
    }
    for (name, value) in &own.after {
        if !name.ends_with("lora_A") && !name.ends_with("lora_A_G") {
            assert_eq!(value, &own.by_first[name], "{name} is AdamW's alone");
        }
    }
}

#[test]
fn methods_scalabl_descends_on_the_divergence_of_the_scales() {
    for (settings, rate, direction) in [
        ("", 0.1, KlDirection::PriorFromPosterior),
        ("methods.scalabl.kl_direction=standard", 1.0, KlDirection::PosteriorFromPrior),
    ] {
        let mut bench = bench();
        bench.assign(settings);
        let step = step(&bench, "scalabl");
        let rate = rate * FACTOR * rising_weight(cycle(), cycle()).unwrap();
        for (mean, std) in pairs(&step, "lora_scale_log_mean", "lora_scale_log_std") {
            for (which, name) in [&mean, &std].into_iter().enumerate() {
                let pairs = step.by_first[&mean].iter().zip(&step.by_first[&std]);
                let moved = pairs
                    .map(|(&m, &s)| [m, s][which] - rate * scale_slopes(m, s, direction)[which]);
                all_close(&step.after[name], moved, name);
            }
        }
        let mut factors = step.after.iter().filter(|(name, _)| name.ends_with("lora_A"));
        assert!(factors.all(|(name, value)| *value == step.by_first[name]));
    }
}

#[test]
fn methods_blob_does_not_clip_the_gradient_of_the_noise() {
    // The step of G is that of its whole gradient, however little the experiment leaves of the others'.
    let moved = |clip: &str| {
        let mut bench = bench();
        bench.assign(&format!("gradient_clip={clip}"));
        let step = step(&bench, "blob");
        let noise = step.after.into_iter().filter(|(name, _)| name.ends_with("lora_A_G"));
        noise.collect::<Values>()
    };
    assert_eq!(moved("1e-3"), moved("none"));
    assert!(!moved("none").is_empty());
}

#[test]
fn methods_c_lora_moves_its_network_by_plain_descent() {
    let bench = bench();
    let step = step(&bench, "c-lora");
    let (mut network, mut others) = (0, 0);
    for (name, value) in &step.after {
        if name.contains(".lora_context_") {
            network += 1;
            assert_eq!(step.before[name], step.by_first[name], "{name} is not AdamW's");
            let moved = step.before[name].iter().zip(&step.gradients[name]);
            all_close(value, moved.map(|(v, g)| v - 0.01 * FACTOR * g), name);
            assert!(step.gradients[name].iter().any(|g| *g != 0.0), "{name}");
        } else {
            others += 1;
            assert_eq!(value, &step.by_first[name], "{name} is AdamW's alone");
        }
    }
    assert!(network > 0 && others > 0);
}
