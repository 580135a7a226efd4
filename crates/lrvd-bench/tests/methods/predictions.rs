//! What single methods answer.

use lrvd_burn::model::AdaptedModel;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::Model;
use lrvd_core::noise::NoiseKey;
use lrvd_models::AutoClassifier;

use super::harness::{Backbone, Bench, LABELS, asked, method, numbers, trained};

fn answers(bench: &Bench, model: &AutoClassifier, key: &str, draws: usize) -> Vec<f64> {
    let examples = bench.validation();
    bench.build(method(key)).predict(model, &asked(bench, &examples), draws).unwrap().values
}

fn after_training(bench: &Bench, key: &str) -> AutoClassifier {
    let (mut state, mut tuning) = bench.fresh(method(key));
    bench.train(&mut state, &mut tuning);
    state.model
}

#[test]
fn methods_with_noise_draw_and_without_it_give_their_mean() {
    for backbone in Backbone::WIDE {
        for key in ["mcd", "bbb", "bbb-a", "blob", "scalabl", "c-lora"] {
            let bench = Bench::new(backbone);
            let model = after_training(&bench, key);
            let drawn = answers(&bench, &model, key, 3);
            let each = 5 * LABELS;
            assert_eq!(drawn.len(), 3 * each, "{key}");
            assert_ne!(drawn[..each], drawn[each..2 * each], "{key}");
            // Two draws are the first two of three.
            assert_eq!(answers(&bench, &model, key, 2), drawn[..2 * each], "{key}");
            let examples = bench.validation();
            let mean = asked(&bench, &examples).logits(&model, &Pass::mean()).unwrap().values;
            assert_eq!(answers(&bench, &model, key, 0), mean, "{key}");
            assert_ne!(mean, drawn[..each], "{key}");
        }
    }
}

#[test]
fn methods_mcd_leaves_the_backbone_alone() {
    let mut bench = Bench::new(Backbone::Deberta);
    bench.change(|config| config.backbone_dropout = true);
    bench.set("mcd", serde_json::json!({ "dropout": 0.4 }));
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
                let Some(lrvd_burn::adapter::Adapter::Members(members)) = layer.adapter() else {
                    return;
                };
                let member = members.member(m).unwrap();
                let rank = member.rank();
                layer.attach(member, rank).unwrap();
            });
            let examples = bench.validation();
            let wanted = asked(&bench, &examples).logits(&alone, &Pass::mean()).unwrap().values;
            for (f, w) in logits.iter().zip(wanted) {
                assert!((f - w).abs() < 2e-5 * w.abs().max(1.0), "member {m}: {f} {w}");
            }
        }
        assert_ne!(found[..each], found[each..2 * each]);
    }
}

#[test]
fn methods_of_members_start_each_as_the_base_model() {
    let bench = Bench::new(Backbone::Deberta);
    let (state, _) = bench.fresh(method("lora-ensemble"));
    let (batch, _) = bench.batch();
    let single = numbers(bench.model().logits(&batch.input, &Pass::mean()));
    let all = numbers(state.model.logits(&batch.input, &Pass::mean()));
    assert_eq!(all.len(), 4 * single.len());
    // B is 0 at the start, so all members are the base model.
    for member in all.chunks(batch.rows() * LABELS) {
        for (f, w) in member.iter().zip(&single) {
            assert!((f - w).abs() < 1e-5, "{f} {w}");
        }
    }
    let mut named = 0;
    state.model.visit_parameters(&mut |p| named += usize::from(p.name.ends_with("_members")));
    assert!(named > 0);
}

#[test]
fn methods_c_lora_watches_training_only() {
    let bench = Bench::new(Backbone::Deberta);
    let (mut state, mut tuning) = bench.fresh(method("c-lora"));
    bench.train(&mut state, &mut tuning);
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
