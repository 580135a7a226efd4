//! Several draws in one batch, draws of a policy, and blocks that are computed again in the backward pass.

use burn::module::Module;
use burn::tensor::{DType, Tensor};
use lrvd_burn::adapter::AdapterKind;
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::sampling::{Draws, Pass, Scheme};
use lrvd_burn::train::{DrawPolicy, Examples, Inputs, Model, Prediction};
use lrvd_core::noise::NoiseKey;
use lrvd_core::posterior::VariationalFamily;
use lrvd_models::deberta::DebertaClassifier;
use lrvd_models::llama::KvCache;
use lrvd_models::{AutoModel, TokenBatch};
use rstest::rstest;

use crate::support::{
    ANSWERS, LORA, NOISY, PROMPTS, adapted, batch, close, deberta, left_padded, llama, modernbert,
    numbers,
};

const DRAWS: usize = 3;
const DENSE: [&str; 4] = ["query_proj", "key_proj", "value_proj", "dense"];

/// The pass of one draw.
fn of_draw(draw: u32) -> Pass {
    Pass::sampled(Scheme::PerBatch, NoiseKey::new(12).at_step(5 + draw))
}

/// The pass of all draws.
fn together() -> Pass {
    of_draw(0).with_draws(DRAWS, PROMPTS.len())
}

/// `found` holds the answers of a separate pass for every draw, of one if they do not differ.
#[track_caller]
fn equal<const D: usize>(found: Tensor<D>, one: impl Fn(&Pass) -> Tensor<D>) -> Vec<f64> {
    let each: Vec<Vec<f64>> = (0..DRAWS as u32).map(|draw| numbers(one(&of_draw(draw)))).collect();
    let distinct = each[0] != each[1] && each[1] != each[2];
    let expected = if distinct { each.concat() } else { each[0].clone() };
    assert_eq!(numbers(found), expected);
    expected
}

/// To the bit for every kind of random adapter, and wherever the first one is.
#[test]
fn a_batch_of_draws_is_as_many_passes() {
    let both = AdapterKind::BayesByBackprop { both: true, rho: -2.0, rho_std: 0.1, mean_std: None };
    let family = VariationalFamily::AsymRankVariance;
    let separate = r#", "share_att_key": false"#;
    let convolution = r#", "conv_kernel_size": 3, "conv_act": "gelu", "conv_groups": 1"#;
    for (rest, kind, names) in [
        ("", AdapterKind::Variational { family, initial: -3.0 }, &DENSE[..]),
        ("", both, &DENSE),
        ("", AdapterKind::Blob { epsilon: 0.5 }, &DENSE),
        ("", LORA, &DENSE),
        ("", NOISY, &["layer.1.attention.self.query_proj"]),
        ("", NOISY, &["layer.1.attention.self.value_proj"]),
        ("", NOISY, &["layer.1.attention.output.dense"]),
        ("", NOISY, &["layer.1.intermediate.dense"]),
        ("", NOISY, &["layer.1.output.dense"]),
        ("", NOISY, &["pooler.dense"]),
        ("", NOISY, &["classifier"]),
        (separate, NOISY, &["pos_key_proj"]),
        (separate, NOISY, &["pos_query_proj"]),
        (r#", "embedding_size": 10"#, NOISY, &["embed_proj"]),
        (convolution, NOISY, &["value_proj"]),
    ] {
        let plain = matches!(kind, AdapterKind::Lora { .. });
        let model = adapted(deberta(rest, DType::F32), kind, names).valid();
        let input = batch(&PROMPTS, DType::F32);
        let all = equal(model.forward(&input, &together()), |pass| model.forward(&input, pass));
        let copies = if plain { 1 } else { DRAWS };
        assert_eq!(all.len(), copies * PROMPTS.len() * 2, "{names:?}");
    }
}

#[rstest]
#[case(&["Wqkv", "Wo", "Wi"])]
#[case(&["layers.1.attn.Wqkv"])]
#[case(&["layers.1.attn.Wo"])]
#[case(&["layers.2.mlp.Wi"])]
#[case(&["layers.2.mlp.Wo"])]
#[case(&["head.dense"])]
fn a_batch_of_draws_of_a_modernbert_is_as_many_passes(#[case] names: &[&str]) {
    let model = adapted(modernbert(DType::F32), NOISY, names).valid();
    let input = batch(&PROMPTS, DType::F32);
    let all = equal(model.forward(&input, &together()), |pass| model.forward(&input, pass));
    assert_eq!(all.len(), DRAWS * PROMPTS.len() * 2);
}

/// The whole text, asked columns, answers, and pieces through a cache.
#[rstest]
#[case(&["q_proj", "v_proj", "lm_head"])]
#[case(&["model.layers.1.self_attn.k_proj"])]
#[case(&["up_proj"])]
#[case(&["model.layers.1.mlp.down_proj"])]
#[case(&["lm_head"])]
fn a_batch_of_draws_of_a_llama_is_as_many_passes(#[case] names: &[&str]) {
    let model = adapted(llama(DType::F32), NOISY, names).valid();
    let whole = left_padded(&PROMPTS, DType::F32);
    equal(model.forward(&whole, &together()), |pass| model.forward(&whole, pass));
    let asked = TokenBatch {
        columns: vec![vec![1, 2, 3], vec![0], vec![0, 2]],
        ..batch(&PROMPTS, DType::F32)
    };
    let expected = equal(model.logits(&asked, &together()), |pass| model.logits(&asked, pass));
    let keys: Vec<NoiseKey> = (0..DRAWS as u32).map(|draw| of_draw(draw).noise).collect();
    let drawn = model.drawn_together(&keys).unwrap().logits(&asked, &Pass::mean());
    close(&numbers(drawn), &expected, 1e-5);

    let choice = model.clone().answering(ANSWERS.to_vec()).unwrap();
    let free = equal(choice.logits(&whole, &together()), |pass| choice.logits(&whole, pass));
    let barred = whole.clone().with_answer_mask(&[2; PROMPTS.len()], ANSWERS.len());
    let found = equal(choice.logits(&barred, &together()), |pass| choice.logits(&barred, pass));
    for (i, (found, free)) in found.into_iter().zip(free).enumerate() {
        assert!(if i % 3 == 2 { found < -9e5 } else { found == free }, "{i}: {found}, {free}");
    }

    let tokens = whole.ids.dims()[1];
    let pieces = |pass: &Pass| {
        let mut cache = KvCache::new();
        let mut piece = |from: usize, columns: usize| {
            let ids = whole.ids.clone().narrow(1, from, columns);
            let mask = whole.mask.clone().narrow(1, from, columns);
            model.head(model.model.read(ids, mask, &mut cache, pass), pass)
        };
        let _ = piece(0, tokens - 2);
        (piece(tokens - 2, 2), cache)
    };
    let (found, cache) = pieces(&together());
    equal(found, |pass| pieces(pass).0);
    if !names.contains(&"up_proj") && !names.contains(&"q_proj") {
        // Before the first layer that draws the cache holds the rows of one draw.
        assert_eq!(cache.keys(0).unwrap().dims()[0], PROMPTS.len());
    }
}

/// So many texts of 3 to 7 tokens.
struct Texts(usize);

impl Examples for Texts {
    type Input = TokenBatch;

    fn len(&self) -> usize {
        self.0
    }

    fn size(&self, index: usize) -> usize {
        3 + index % 5
    }

    fn input(&self, indices: &[usize]) -> Result<TokenBatch, lrvd_burn::Error> {
        let text = |&index: &usize| -> Vec<u32> {
            (0..self.size(index)).map(|i| (1 + (7 * index + 11 * i * i) % 49) as u32).collect()
        };
        let texts: Vec<Vec<u32>> = indices.iter().map(text).collect();
        Ok(batch(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), DType::F32))
    }
}

fn with_draws(texts: &Texts, count: usize) -> Inputs<'_, TokenBatch> {
    Inputs { draws: Draws { count, seed: 4 }, ..Inputs::new(texts) }
}

/// Answers to 64 texts by a model that is neither always sure nor always unsure.
fn asked(draws: usize, policy: DrawPolicy) -> Prediction {
    let kind = AdapterKind::Variational { family: VariationalFamily::RankVariance, initial: -5.0 };
    let model = adapted(deberta("", DType::F32), kind, &DENSE).valid();
    let inputs = Inputs { batch_size: 8, policy, ..with_draws(&Texts(64), draws) };
    inputs.predict(&model).unwrap()
}

#[rstest]
fn predictions_do_not_depend_on_how_many_draws_a_pass_holds(
    #[values(NOISY, LORA)] kind: AdapterKind,
    #[values(false, true)] antithetic: bool,
) {
    const { assert!(DebertaClassifier::HOLDS_DRAWS) };
    let model = adapted(deberta("", DType::F32), kind, &["value_proj"]).valid();
    let texts = Texts(PROMPTS.len());
    let predict = |batch_size, tokens_per_pass| {
        let policy = DrawPolicy { tokens_per_pass, antithetic, ..DrawPolicy::default() };
        let inputs = Inputs { batch_size, policy, ..with_draws(&texts, 6) };
        inputs.predict(&model).unwrap()
    };
    let alone = predict(2, 0);
    assert_eq!(alone.members(), 6);
    // One draw, two, three or all of them in a pass, and other batches.
    for (batch_size, tokens) in [(2, 8), (2, 16), (2, 24), (2, 8192), (3, 8192), (1, 9)] {
        assert_eq!(predict(batch_size, tokens), alone, "{batch_size} {tokens}");
    }
}

#[test]
fn a_cascade_draws_where_the_mean_is_undecided() {
    let with = |cascade| asked(8, DrawPolicy { cascade, ..DrawPolicy::default() });
    let (mean, all) = (asked(0, DrawPolicy::default()), with(None));
    let found = with(Some(0.3));
    let made = found.draws_per_example.clone().unwrap();
    let values = |logits: &Prediction, draw: usize, row: usize| {
        logits.values[(draw * logits.rows + row) * logits.width..][..logits.width].to_vec()
    };
    for (row, answer) in mean.classes().unwrap().into_iter().enumerate() {
        let undecided = (2.0 * answer.probabilities[0] - 1.0).abs() < 0.3;
        assert_eq!(made[row], if undecided { 8 } else { 0 });
        for draw in 0..8 {
            let expected = if undecided { values(&all, draw, row) } else { values(&mean, 0, row) };
            // Other company in the batch, and so other padding.
            close(&values(&found, draw, row), &expected, 1e-5);
        }
    }
    assert!(made.contains(&0) && made.contains(&8));
    // An answer at the mean has no mutual information.
    let answers = found.classes().unwrap();
    assert!(answers.iter().zip(&made).all(|(a, &n)| a.mutual_information.is_some() == (n > 0)));
}

#[test]
fn pairs_need_weights_that_are_drawn_once_a_batch() {
    let model = adapted(deberta("", DType::F32), NOISY, &DENSE);
    let policy = DrawPolicy { antithetic: true, ..DrawPolicy::default() };
    let texts = Texts(3);
    let inputs = Inputs { policy, ..with_draws(&texts, 4) };
    let error = inputs.predict_by(Scheme::PerToken, &model).unwrap_err().to_string();
    assert_eq!(error, "`antithetic` should be off unless weights are drawn once a batch, found on");
}

/// Equal answers to the bit, and equal gradients.
#[rstest]
#[case(AutoModel::Deberta(adapted(deberta("", DType::F32), NOISY, &DENSE)))]
#[case(AutoModel::Deberta(adapted(modernbert(DType::F32), NOISY, &["Wqkv", "Wo", "Wi"])))]
#[case(AutoModel::Llama(
    adapted(llama(DType::F32), NOISY, &["q_proj", "v_proj", "up_proj"]).answering(vec![3, 5]).unwrap()
))]
fn gradients_of_recomputed_blocks_are_those_of_held_activations(#[case] model: AutoModel) {
    let key = NoiseKey::new(2);
    let input = batch(&PROMPTS, DType::F32);
    let mut recomputing = model.clone();
    recomputing.recompute(true);
    for pass in [
        Pass::sampled(Scheme::PerSequence, key),
        Pass::sampled(Scheme::Nested, key).with_dropout(key),
    ] {
        let [(expected, held), (found, again)] = [&model, &recomputing].map(|model| {
            let logits: Tensor<2> = model.logits(&input, &pass);
            let gradients = (logits.clone() * logits.clone().detach()).sum().backward();
            (numbers(logits), NamedGradients::collect(model, &gradients))
        });
        assert_eq!(found, expected);
        assert!(held.names().count() > 8 && held.names().eq(again.names()));
        for name in held.names() {
            let [held, again] = [&held, &again].map(|g| numbers(g.get(name).unwrap().clone()));
            // The sums of a residual are taken in another order.
            close(&again, &held, 1e-5);
        }
    }
}
