//! Several draws in one batch: the numbers of as many passes, to the bit, for every kind of adapter.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::adapter::{AdapterConfig, AdapterKind};
use lrvd_burn::model::{AdapterTargets, NamedModule, attach_adapters};
use lrvd_burn::sampling::{DrawPer, DrawSet, Pass, Scheme};
use lrvd_burn::train::{DrawPolicy, Examples, Inputs, Logits, Model};
use lrvd_core::family::VariationalFamily;
use lrvd_core::noise::NoiseKey;
use lrvd_models::TokenBatch;
use lrvd_models::deberta::DebertaClassifier;
use lrvd_models::llama::KvCache;

use crate::support::{
    PROMPTS, adapted, batch, deberta, model, names, numbers, padded, variational,
};

const DRAWS: usize = 3;
const ROWS: [&[u32]; 3] = [&[1, 7, 9, 30, 12, 2], &[1, 44, 3], &[1, 5, 5, 17]];
const SIX: [&str; 4] = ["query_proj", "key_proj", "value_proj", "dense"];

fn pass() -> Pass {
    Pass::sampled(Scheme::Weights(DrawPer::Batch), NoiseKey::new(12).at_step(5))
}

fn of_draw(draw: u32) -> Pass {
    let pass = pass();
    Pass { noise: pass.noise.at_step(pass.noise.step + draw), ..pass }
}

fn together(rows: usize) -> Pass {
    pass().with_draws(DrawSet { count: DRAWS, rows, ..DrawSet::ONE })
}

/// A tiny DeBERTa with adapters; `rest` are further settings.
fn adapted_deberta(rest: &str, kind: AdapterKind, targets: &AdapterTargets) -> DebertaClassifier {
    let mut model = deberta(rest, &Device::flex(), DType::F32);
    // The classifier has two outputs, and a rank is at most a layer's smaller width.
    let on_classifier = *targets == AdapterTargets::Paths(vec!["classifier".to_owned()]);
    let rank = if on_classifier { 2 } else { 4 };
    let adapter = AdapterConfig { rank, lora_alpha: 6.0, kind, ..AdapterConfig::default() };
    attach_adapters(&mut model, targets, &adapter, NoiseKey::new(6)).unwrap();
    // Large enough that every term shows.
    model.visit_layers_mut(&mut |path, layer| {
        layer.edit(|adapter| {
            let b = adapter.b.val().inner();
            let like = numbers(b.clone());
            let values: Vec<f32> =
                (0..like.len()).map(|i| ((i * 7 + path.len()) % 11) as f32 * 0.04 - 0.2).collect();
            let values = Tensor::<1>::from_floats(values.as_slice(), &Device::flex());
            adapter.b = Param::initialized(adapter.b.id, values.reshape(b.dims()));
        });
    });
    model.valid()
}

/// `found` holds the answers of a separate pass for every draw; `distinct` if they differ.
#[track_caller]
fn equal<const D: usize>(
    found: Tensor<D>,
    rows: usize,
    one: impl Fn(&Pass) -> Tensor<D>,
    distinct: bool,
) {
    let each: Vec<Vec<f64>> = (0..DRAWS as u32).map(|draw| numbers(one(&of_draw(draw)))).collect();
    assert_eq!(each[0] != each[1] && each[1] != each[2], distinct, "the draws must show");
    assert_eq!(found.dims()[0], if distinct { DRAWS * rows } else { rows });
    let expected = if distinct { each.concat() } else { each[0].clone() };
    assert_eq!(numbers(found), expected);
}

fn check_deberta(rest: &str, kind: AdapterKind, targets: &AdapterTargets, distinct: bool) {
    let model = adapted_deberta(rest, kind, targets);
    for rows in [1, ROWS.len()] {
        let input = batch(&ROWS[..rows], DType::F32);
        let found = model.forward(&input, &together(rows));
        equal(found, rows, |pass| model.forward(&input, pass), distinct);
    }
}

fn family(family: VariationalFamily) -> AdapterKind {
    AdapterKind::Variational { family, initial: -3.0 }
}

#[test]
fn every_family_of_posteriors_and_every_random_adapter() {
    for kind in VariationalFamily::ALL.map(family) {
        check_deberta("", kind, &names(&SIX), true);
    }
    let both = AdapterKind::BayesByBackprop { both: true, rho: -2.0, rho_std: 0.1, mean_std: None };
    let blob = AdapterKind::Blob { epsilon: 0.5 };
    let scala = AdapterKind::ScalaBl { epsilon: 0.5 };
    let context = AdapterKind::CLora { hidden: 5 };
    for kind in [both, blob, scala, context] {
        check_deberta("", kind, &names(&SIX), true);
    }
    check_deberta("", AdapterKind::Lora { b_bound: 0.1 }, &names(&SIX), false);
}

#[test]
fn wherever_the_first_live_adapter_is() {
    let kind = family(VariationalFamily::RankVariance);
    let layer = "deberta.encoder.layer.1";
    for name in [
        "attention.self.query_proj",
        "attention.self.value_proj",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    ] {
        let targets = AdapterTargets::Paths(vec![format!("{layer}.{name}")]);
        check_deberta("", kind, &targets, true);
    }
    for name in ["pooler.dense", "classifier"] {
        check_deberta("", kind, &AdapterTargets::Paths(vec![name.to_owned()]), true);
    }
    for name in ["pos_key_proj", "pos_query_proj", "key_proj"] {
        check_deberta(r#", "share_att_key": false"#, kind, &names(&[name]), true);
    }
    let narrow = r#", "embedding_size": 10"#;
    check_deberta(narrow, kind, &names(&["embed_proj"]), true);
    let convolution = r#", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1"#;
    check_deberta(convolution, kind, &names(&["value_proj"]), true);
}

#[test]
fn llama_with_and_without_a_cache() {
    let targets: [&[&str]; 5] = [
        &["q_proj", "v_proj", "lm_head"],
        &["model.layers.1.self_attn.k_proj"],
        &["up_proj"],
        &["model.layers.1.mlp.gate_proj", "model.layers.1.mlp.down_proj"],
        &["lm_head"],
    ];
    for (family, targets) in VariationalFamily::ALL.into_iter().cycle().zip(targets) {
        let model = adapted(model(true, DType::F32), &variational(family), targets).valid();
        let choice = model.clone().answering(vec![30, 4, 17]).unwrap();
        for rows in [1, PROMPTS.len()] {
            let whole = padded(&PROMPTS[..rows], true, DType::F32);
            let found = model.forward(&whole, &together(rows));
            equal(found, rows, |pass| model.forward(&whole, pass), true);
            let found = choice.logits(&whole, &together(rows));
            equal(found, rows, |pass| choice.logits(&whole, pass), true);
            let barred = whole.clone().answered_by(&vec![2; rows], 3);
            let found = choice.logits(&barred, &together(rows));
            equal(found.clone(), rows, |pass| choice.logits(&barred, pass), true);
            let free = numbers(choice.logits(&whole, &together(rows)));
            for (i, (found, free)) in numbers(found).into_iter().zip(free).enumerate() {
                assert!(
                    if i % 3 == 2 { found < -9e5 } else { found == free },
                    "{i}: {found}, {free}"
                );
            }
            let tokens = whole.ids.dims()[1];
            let pieces = |pass: &Pass| {
                let mut cache = KvCache::new();
                let mut piece = |range: std::ops::Range<usize>| {
                    let ids = whole.ids.clone().narrow(1, range.start, range.len());
                    let mask = whole.mask.clone().narrow(1, range.start, range.len());
                    model.forward_cached(ids, mask, &mut cache, pass)
                };
                let _ = piece(0..tokens - 2);
                (piece(tokens - 2..tokens), cache)
            };
            let (found, cache) = pieces(&together(rows));
            equal(found, rows, |pass| pieces(pass).0, true);
            if !targets.contains(&"up_proj") && !targets.contains(&"q_proj") {
                // Before the first layer that draws the cache holds the rows of one draw.
                assert_eq!(cache.keys(0).unwrap().dims()[0], rows);
            }
        }
    }
}

/// So many texts, which begin with [`ROWS`], for a model of such numbers.
pub(crate) struct Texts(pub(crate) usize, pub(crate) DType);

impl Texts {
    fn text(index: usize) -> Vec<u32> {
        let length = 3 + index % 5;
        let other = || (0..length).map(|i| (1 + (7 * index + 11 * i * i) % 49) as u32).collect();
        ROWS.get(index).map_or_else(other, |row| row.to_vec())
    }
}

impl Examples for Texts {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.0
    }

    fn size(&self, index: usize) -> usize {
        Self::text(index).len()
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let texts: Vec<Vec<u32>> = indices.iter().map(|&i| Self::text(i)).collect();
        Ok(batch(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), self.1))
    }
}

#[test]
fn predictions_do_not_depend_on_how_many_draws_a_pass_holds() {
    const { assert!(DebertaClassifier::HOLDS_DRAWS) };
    for kind in [family(VariationalFamily::RankVariance), AdapterKind::Lora { b_bound: 0.1 }] {
        let model = adapted_deberta("", kind, &names(&["value_proj"]));
        let texts = Texts(ROWS.len(), DType::F32);
        let asked = |batch_size, tokens_per_pass| {
            let policy = DrawPolicy { tokens_per_pass, ..DrawPolicy::default() };
            let inputs = Inputs { batch_size, seed: 4, policy, ..Inputs::new(&texts) };
            inputs.predict(&model, 7).unwrap()
        };
        let alone = asked(2, 0);
        assert_eq!(alone.members(), 7);
        // One draw, two, three or all of them in a pass, and other batches.
        for (batch_size, tokens) in [(2, 8), (2, 16), (2, 24), (2, 8192), (3, 8192), (1, 9)] {
            assert_eq!(asked(batch_size, tokens), alone, "{batch_size} {tokens}");
        }
    }
}

/// A model whose answers are neither all sure nor all unsure, with its answers by `policy`.
fn asked(draws: usize, policy: DrawPolicy) -> Logits {
    let kind = AdapterKind::Variational { family: VariationalFamily::RankVariance, initial: -5.0 };
    let model = adapted_deberta("", kind, &names(&SIX));
    let texts = Texts(64, DType::F32);
    let inputs = Inputs { batch_size: 8, seed: 4, policy, ..Inputs::new(&texts) };
    inputs.predict(&model, draws).unwrap()
}

/// Probability of the first class of each example.
fn first_class(logits: &Logits) -> Vec<f64> {
    logits.classes().unwrap().into_iter().map(|answer| answer.probabilities[0]).collect()
}

#[test]
fn a_cascade_draws_where_the_mean_is_undecided() {
    let with = |cascade| asked(8, DrawPolicy { cascade, ..DrawPolicy::default() });
    let (mean, all) = (asked(0, DrawPolicy::default()), with(None));
    let found = with(Some(0.3));
    let made = found.made.clone().unwrap();
    let margin = |p: f64| (2.0 * p - 1.0).abs();
    let values = |logits: &Logits, draw: usize, row: usize| {
        logits.values[(draw * logits.rows + row) * logits.width..][..logits.width].to_vec()
    };
    for (row, p) in first_class(&mean).into_iter().enumerate() {
        assert_eq!(made[row], if margin(p) < 0.3 { 8 } else { 0 });
        for draw in 0..8 {
            let expected =
                if made[row] > 0 { values(&all, draw, row) } else { values(&mean, 0, row) };
            for (found, expected) in values(&found, draw, row).iter().zip(expected) {
                // Other company in the batch, and so other padding.
                assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
            }
        }
    }
    // An answer at the mean has no mutual information, drawn ones have that of the draws.
    for ((answer, made), all) in
        found.classes().unwrap().iter().zip(&made).zip(all.classes().unwrap())
    {
        match answer.mutual_information {
            Some(found) => {
                assert!((found - all.mutual_information.unwrap()).abs() < 1e-5 && *made == 8);
            }
            None => assert_eq!(*made, 0),
        }
    }
    assert_eq!(with(Some(1.0)).made.unwrap(), [8; 64]);
    let none = with(Some(0.0));
    assert_eq!(none.made.clone().unwrap(), [0; 64]);
    assert_eq!(none.values, mean.values.repeat(8));
    // The error, in the probability and in the class.
    let errors: Vec<f64> =
        first_class(&found).iter().zip(first_class(&all)).map(|(a, b)| (a - b).abs()).collect();
    let mean_error = errors.iter().sum::<f64>() / 64.0;
    let class = |p: &f64| *p >= 0.5;
    let other = first_class(&found)
        .iter()
        .zip(first_class(&all))
        .filter(|(a, b)| class(a) != class(b))
        .count();
    let spared = made.iter().filter(|&&made| made == 0).count();
    // What the guide says: 44 of 64 at the mean, 0.055 in the probability, no other class.
    assert_eq!((spared, other), (44, 0));
    assert!(mean_error < 0.06, "{mean_error}");
}

#[test]
fn draws_end_where_the_leading_class_is_settled() {
    let with = |tolerance| asked(64, DrawPolicy { tolerance, ..DrawPolicy::default() });
    let (all, found) = (with(None), with(Some(0.02)));
    let made = found.made.clone().unwrap();
    let errors: Vec<f64> =
        first_class(&found).iter().zip(first_class(&all)).map(|(a, b)| (a - b).abs()).collect();
    let mut beyond = 0;
    for (row, error) in errors.iter().enumerate() {
        assert!(64_usize.is_multiple_of(made[row]) && made[row] >= 4);
        beyond += usize::from(*error > 0.04);
        if made[row] == 64 {
            assert!(*error < 1e-5);
        }
    }
    let total: usize = made.iter().sum();
    // What the guide says: 83 % of the draws, and 3 of 64 beyond twice the tolerance.
    assert!(total * 100 < 64 * 64 * 84 && beyond <= 3, "{total} {beyond}");
}

#[test]
fn pairs_are_the_same_in_one_pass_and_in_many() {
    let with = |tokens_per_pass| {
        asked(6, DrawPolicy { tokens_per_pass, antithetic: true, ..DrawPolicy::default() })
    };
    let alone = with(0);
    assert_eq!(with(8192), alone);
    assert_eq!(with(150), alone);
    let plain = asked(3, DrawPolicy::default());
    let n = plain.rows * plain.width;
    for pair in 0..3 {
        assert_eq!(alone.values[2 * pair * n..][..n], plain.values[pair * n..][..n]);
        assert_ne!(alone.values[(2 * pair + 1) * n..][..n], plain.values[pair * n..][..n]);
    }
}

#[test]
fn what_has_no_meaning_is_rejected() {
    let model = adapted_deberta("", family(VariationalFamily::RankVariance), &names(&SIX));
    let texts = Texts(3, DType::F32);
    let rejected = |policy: DrawPolicy, scheme| {
        let inputs = Inputs { policy, ..Inputs::new(&texts) };
        inputs.predict_by(scheme, &model, 4).unwrap_err().to_string()
    };
    let weights = Scheme::Weights(DrawPer::Batch);
    let policy = DrawPolicy { antithetic: true, ..DrawPolicy::default() };
    assert_eq!(
        rejected(policy, Scheme::FLIPOUT),
        "`antithetic` is for weights that are drawn once a batch"
    );
    let policy = DrawPolicy { cascade: Some(1.2), ..DrawPolicy::default() };
    assert_eq!(rejected(policy, weights), "`cascade` is 1.2, outside 0..=1");
}
