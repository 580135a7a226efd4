//! Updates of `ScalaBL`, C-LoRA and LoRA-Ensemble against loops, the loops against PyTorch, and what an observer sees.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use lrvd_bench::method::c_lora::{CONTEXT, CONTEXT_TOKEN, ContextMatrix, Divergences};
use lrvd_bench::method::lora_ensemble::Members;
use lrvd_bench::method::observer::{ObservedUse, Observer};
use lrvd_bench::method::scalabl::{self, RandomScales, SCALE};
use lrvd_bench::settings::KlDirection;
use lrvd_burn::adapter::{AdaptedLinear, Extension, LowRankAdapter, OpExtension, UpdateOp};
use lrvd_burn::model::{NamedModule, members, trainable_counts};
use lrvd_burn::optimizer::NamedGradients;
use lrvd_burn::parameters::Group;
use lrvd_burn::sampling::{Pass, Scheme};
use lrvd_burn::train::Model as _;
use lrvd_core::linalg::{identity, times, transpose};
use lrvd_core::noise::{NoiseKey, Stream, fill_normal_f64, fill_uniform};
use lrvd_models::AutoModel;
use serde_json::Value;

use super::harness::{Backbone, Bench, method, numbers};

const BATCH: usize = 2;
const TOKENS: usize = 3;
const RANK: usize = 4;
const D_INPUT: usize = 5;
const D_OUTPUT: usize = 7;
const HIDDEN: usize = 6;
const SCALING: f64 = 1.75;
const STD: f64 = 0.3;

/// `n` numbers in (-1, 1), different for every `seed`.
fn uniform(seed: u64, n: usize) -> Vec<f64> {
    let mut values = vec![0.0f32; n];
    fill_uniform(NoiseKey::new(seed).on_stream(Stream::DATA), 0, &mut values);
    values.into_iter().map(|v| 2.0 * f64::from(v) - 1.0).collect()
}

fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<D> {
    let data = TensorData::new(values.to_vec(), shape);
    Tensor::from_data(data, (&Device::flex(), DType::F64))
}

fn trainable<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    tensor(&uniform(seed, shape.iter().product()), shape).autodiff().require_grad()
}

fn inputs() -> Tensor<3> {
    trainable(1, [BATCH, TOKENS, D_INPUT])
}

/// A layer with the op on random factors, as the op starts.
fn started(op: impl UpdateOp + 'static, [d_input, rank, d_output]: [usize; 3]) -> AdaptedLinear {
    let weight = tensor(&uniform(2, d_input * d_output), [d_input, d_output]);
    let mut layer = AdaptedLinear::new(weight, None);
    let [a, b] = [trainable(3, [d_input, rank]), trainable(4, [rank, d_output])];
    let [mut a, mut b] = [a, b].map(Param::from_tensor);
    let count = op.parameter_count(rank, d_input, d_output);
    let op = OpExtension::new(Arc::new(op), &mut a, &mut b, NoiseKey::new(5)).unwrap();
    let mut adapter = LowRankAdapter::new(a, b, SCALING);
    adapter.extension = Some(Extension::Op(op));
    layer.attach("layer", adapter, rank).unwrap();
    let counts = trainable_counts(&layer);
    assert_eq!(counts.adapter + counts.posterior, rank * (d_input + d_output) + count);
    assert!(layer.slot().is_none(), "no LoRA file can hold it");
    layer
}

/// [`started`] with random parameters.
fn layer(op: impl UpdateOp + 'static) -> AdaptedLinear {
    let mut layer = started(op, [D_INPUT, RANK, D_OUTPUT]);
    let mut seed = 10;
    layer.visit_parameters_mut(&mut |p| {
        if p.group != Group::Backbone {
            seed += 1;
            let len = p.value.len();
            p.value.set_flat(tensor(&uniform(seed, len), [len]));
        }
    });
    layer
}

/// Values of A, B and the op's parameters, and their gradients.
fn leaves(layer: &AdaptedLinear) -> Vec<Vec<f64>> {
    let mut all = Vec::new();
    layer.visit_parameters(&mut |p| {
        if p.group != Group::Backbone {
            all.push(numbers(p.value.flat()));
        }
    });
    all
}

fn gradients(layer: &AdaptedLinear, gradients: &Gradients) -> Vec<Vec<f64>> {
    let gradients = NamedGradients::collect(layer, gradients);
    let mut all = Vec::new();
    layer.visit_parameters(&mut |p| {
        if p.group != Group::Backbone {
            let zeros = || vec![0.0; p.value.len()];
            all.push(gradients.get(p.name).map_or_else(zeros, |g| numbers(g.clone())));
        }
    });
    all
}

/// Asserts that the largest distance is at most `tolerance` of the largest expected number.
#[track_caller]
fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f64, |most, v| most.max(v.abs())).max(1e-300);
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs() / scale;
        assert!(off <= tolerance, "{what}: {found} for {expected} at {i}, off by {off:e}");
    }
}

/// Asserts that `found` are the slopes of `value` by every entry of the leaves: central differences of fourth order.
#[track_caller]
fn are_slopes(
    what: &str,
    found: &[Vec<f64>],
    leaves: &[Vec<f64>],
    value: impl Fn(&[Vec<f64>]) -> f64,
) {
    let mut moved = leaves.to_vec();
    for (i, found) in found.iter().enumerate() {
        let slope = |k: usize| {
            let step = 7e-4 * leaves[i][k].abs().max(0.05);
            let mut at = |steps: f64| {
                moved[i][k] = leaves[i][k] + steps * step;
                value(&moved)
            };
            let near = at(1.0) - at(-1.0);
            let far = at(2.0) - at(-2.0);
            moved[i][k] = leaves[i][k];
            (8.0 * near - far) / (12.0 * step)
        };
        let expected: Vec<f64> = (0..found.len()).map(slope).collect();
        close(&format!("{what}: gradient of leaf {i}"), found, &expected, 1e-7);
    }
}

/// Asserts value and slopes of `out`, a function `loop_` of x and the leaves of the layer.
#[track_caller]
fn check<const D: usize>(
    what: &str,
    out: Tensor<D>,
    x: &Tensor<3>,
    layer: &AdaptedLinear,
    loop_: impl Fn(&[Vec<f64>]) -> Vec<f64>,
) {
    let mut all = vec![numbers(x.clone().inner())];
    all.extend(leaves(layer));
    close(what, &numbers(out.clone().inner()), &loop_(&all), 1e-12);
    let weights = uniform(6, out.shape().num_elements());
    let slopes = (out.clone() * tensor(&weights, out.dims())).sum().backward();
    let of_x = x.grad(&slopes).map_or_else(|| vec![0.0; all[0].len()], numbers);
    let found = [vec![of_x], gradients(layer, &slopes)].concat();
    are_slopes(what, &found, &all, |leaves| {
        loop_(leaves).iter().zip(&weights).map(|(y, w)| y * w).sum()
    });
}

/// `x [n, inner] · w [inner, width]`.
fn product(x: &[f64], w: &[f64], inner: usize, width: usize) -> Vec<f64> {
    times(x, w, x.len() / inner, inner, width)
}

fn affine(x: &[f64], w: &[f64], bias: &[f64], inner: usize) -> Vec<f64> {
    let out = product(x, w, inner, bias.len());
    out.iter().zip(bias.iter().cycle()).map(|(y, b)| y + b).collect()
}

/// `SCALING · h·B`.
fn up(h: &[f64], b: &[f64], [_, rank, d_output]: [usize; 3]) -> Vec<f64> {
    product(h, b, rank, d_output).iter().map(|y| SCALING * y).collect()
}

/// `ScalaBL` with normals for each rank: x, A, B, `log_mean`, `log_std`.
fn scaled(sizes: [usize; 3], leaves: &[Vec<f64>], eps: &[f64]) -> Vec<f64> {
    let [x, a, b, log_mean, log_std] = leaves else { panic!("five leaves") };
    let h = product(x, a, sizes[0], sizes[1]);
    let scale = |k: usize| log_mean[k].exp() + log_std[k].exp() * eps[k];
    let h: Vec<f64> = h.iter().enumerate().map(|(i, h)| h * scale(i % sizes[1])).collect();
    up(&h, b, sizes)
}

/// C-LoRA with normals for each token: output, and divergence of each token. The leaves are x, A, B and the network's.
fn contextual(sizes: [usize; 3], leaves: &[Vec<f64>], eps: &[f64], prior: f64) -> [Vec<f64>; 2] {
    let [x, a, b, w1, b1, w2, b2] = leaves else { panic!("seven leaves") };
    let r = sizes[1];
    let square = sizes[1] * sizes[1];
    let z = product(x, a, sizes[0], r);
    let first: Vec<f64> = affine(&z, w1, b1, r).iter().map(|h| h.max(0.0)).collect();
    let second = affine(&first, w2, b2, b1.len());
    let mut u = Vec::new();
    let mut kl = Vec::new();
    for ((z, o), eps) in z.chunks(r).zip(second.chunks(2 * square)).zip(eps.chunks(square)) {
        let (mean, raw) = o.split_at(square);
        let std: Vec<f64> = raw.iter().map(|raw| (1.0 / (1.0 + (-raw).exp())).powi(2)).collect();
        let entry = |at: usize| mean[at] + std[at] * eps[at];
        u.extend((0..r).map(|i| (0..r).map(|j| entry(i * r + j) * z[j]).sum::<f64>()));
        kl.push(mean.iter().zip(&std).map(|(&mean, &std)| gaussian_kl(mean, std, prior)).sum());
    }
    [up(&u, b, sizes), kl]
}

/// KL of `N(mean, std²)` from `N(0, prior²)`, nats.
fn gaussian_kl(mean: f64, std: f64, prior: f64) -> f64 {
    let ratio = std / prior;
    0.5 * (ratio * ratio - 1.0 + (mean / prior).powi(2)) - ratio.ln()
}

fn scale_kl(log_mean: &[f64], log_std: &[f64], direction: KlDirection) -> f64 {
    let entry = |(mean, std): (&f64, &f64)| {
        let mean = mean.exp();
        let std = std.exp();
        match direction {
            KlDirection::Standard => gaussian_kl(mean, std, 1.0),
            KlDirection::Coded => gaussian_kl(mean, 1.0, std),
        }
    };
    log_mean.iter().zip(log_std).map(entry).sum()
}

fn normals(key: NoiseKey, n: usize) -> Vec<f64> {
    let mut values = vec![0.0; n];
    fill_normal_f64(key, 0, &mut values);
    values
}

const SIZES: [usize; 3] = [D_INPUT, RANK, D_OUTPUT];

fn key() -> NoiseKey {
    NoiseKey::new(0x1234_5678_9abc).at_step(3)
}

/// The layer's output less its base product.
fn update(layer: &AdaptedLinear, x: &Tensor<3>, pass: &Pass) -> Tensor<3> {
    let base = x.clone().inner().matmul(layer.weight.base().unsqueeze());
    layer.forward_with(x.clone(), pass) - base
}

/// Each op at the mean and under each scheme: values, and gradients of every leaf. The base product has no
/// part in the gradients of x, which its loop adds.
#[test]
fn ops_are_their_definitions() {
    let base = uniform(2, D_INPUT * D_OUTPUT);
    let with_base = |x: &[f64], update: Vec<f64>| -> Vec<f64> {
        product(x, &base, D_INPUT, D_OUTPUT).iter().zip(update).map(|(y, u)| y + u).collect()
    };
    let weights = [Scheme::Mean, Scheme::PerBatch, Scheme::PerSequence, Scheme::PerToken];
    let activations = [Scheme::Nested, Scheme::MomentMatched(lrvd_core::moments::CrossTerm::Exact)];
    for scheme in weights.into_iter().chain(activations) {
        let pass = Pass::sampled(scheme, key());
        // What an op does not draw by itself is a draw for each token.
        let draws = match scheme {
            Scheme::Mean | Scheme::PerBatch => 1,
            Scheme::PerSequence => BATCH,
            _ => BATCH * TOKENS,
        };
        // Normals of every draw, each for its share of the tokens.
        let drawn = |module: u32, stream: u32, n: usize| match scheme {
            Scheme::Mean => vec![0.0; n],
            _ => normals(pass.noise.for_module(module).on_stream(stream), draws * n),
        };
        let scales = layer(RandomScales { epsilon: 0.05 });
        let x = inputs();
        let eps = drawn(scales.noise_id(), SCALE, RANK);
        let out = scales.forward_with(x.clone(), &pass);
        check(&format!("scales {scheme}"), out, &x, &scales, |leaves| {
            let share = leaves[0].len() / (eps.len() / RANK);
            let parts = leaves[0].chunks(share).zip(eps.chunks(RANK));
            let update = parts
                .flat_map(|(x, eps)| scaled(SIZES, &[&[x.to_vec()], &leaves[1..]].concat(), eps));
            with_base(&leaves[0], update.collect())
        });
        let context = layer(ContextMatrix { hidden: HIDDEN, divergences: None });
        let x = inputs();
        let square = RANK * RANK;
        let eps = match scheme {
            Scheme::PerToken => {
                let key = pass.noise.for_module(context.noise_id()).on_stream(CONTEXT_TOKEN);
                normals(key.with_use(0), BATCH * TOKENS * square)
            }
            _ => {
                let eps = drawn(context.noise_id(), CONTEXT, square);
                let tokens = BATCH * TOKENS / (eps.len() / square);
                eps.chunks(square).flat_map(|eps| eps.repeat(tokens)).collect()
            }
        };
        let out = context.forward_with(x.clone(), &pass);
        check(&format!("context {scheme}"), out, &x, &context, |leaves| {
            with_base(&leaves[0], contextual(SIZES, leaves, &eps, 1.0)[0].clone())
        });
    }
}

#[test]
fn divergences_are_their_definitions() {
    let scales = layer(RandomScales { epsilon: 0.05 });
    for direction in [KlDirection::Standard, KlDirection::Coded] {
        let kl = scalabl::kl(&scales, direction).unwrap();
        check("scales", kl, &inputs(), &scales, |leaves| {
            vec![scale_kl(&leaves[3], &leaves[4], direction)]
        });
    }
    assert!(
        scalabl::kl(&AdaptedLinear::new(tensor(&[1.0], [1, 1]), None), KlDirection::Coded)
            .is_none()
    );
    let divergences = Divergences::from_prior(STD);
    let op = ContextMatrix { hidden: HIDDEN, divergences: Some(divergences.clone()) };
    let context = layer(op);
    let x = inputs();
    drop(context.forward_with(x.clone(), &Pass::mean()));
    let found = divergences.take().remove(0);
    assert!(divergences.take().is_empty(), "taken twice");
    assert_eq!((found.module, found.per_token.dims()), (context.noise_id(), [BATCH, TOKENS]));
    let eps = vec![0.0; BATCH * TOKENS * RANK * RANK];
    check("context", found.per_token, &x, &context, |leaves| {
        contextual(SIZES, leaves, &eps, STD)[1].clone()
    });
}

/// A batch of draws is as many passes, and shared rows reach every sequence of each.
#[test]
fn ops_hold_several_draws_of_a_batch() {
    const DRAWS: usize = 3;
    let of = |draws, first_draw| Pass {
        first_draw,
        ..Pass::sampled(Scheme::PerBatch, key()).with_draws(draws, BATCH)
    };
    let rows = tensor(&uniform(7, 4 * D_INPUT), [4, D_INPUT]);
    for layer in [
        layer(RandomScales { epsilon: 0.05 }),
        layer(ContextMatrix { hidden: HIDDEN, divergences: None }),
    ] {
        let tokens = |pass: &Pass| numbers(layer.forward_with(inputs().inner(), pass));
        let shared = |pass: &Pass| numbers(layer.prepare(pass, BATCH).forward_shared(rows.clone()));
        let each = |run: &dyn Fn(&Pass) -> Vec<f64>, copies: usize| -> Vec<f64> {
            (0..DRAWS as u32).flat_map(|draw| run(&of(1, draw)).repeat(copies)).collect()
        };
        close("tokens", &tokens(&of(DRAWS, 0)), &each(&tokens, 1), 1e-14);
        close("shared rows", &shared(&of(DRAWS, 0)), &each(&shared, BATCH), 1e-14);
    }
}

#[test]
fn ops_start_where_they_should() {
    let sizes = [60, 8, 50];
    // A·diag(s²)·Aᵀ is the LoRA's own A·Aᵀ: the rotation that the start drops has no part in it.
    let scales = leaves(&started(RandomScales { epsilon: 0.05 }, sizes));
    let a = transpose(&scales[0], sizes[0], sizes[1]);
    close("orthonormal", &product(&a, &scales[0], 60, 8), &identity(8), 1e-6);
    let stretched: Vec<f64> =
        scales[0].iter().enumerate().map(|(i, a)| a * scales[2][i % 8].exp().powi(2)).collect();
    let lora = numbers(trainable(3, [60, 8]).inner());
    let outer = |left: &[f64], right: &[f64]| product(left, &transpose(right, 60, 8), 8, 60);
    close("span", &outer(&stretched, &scales[0]), &outer(&lora, &lora), 1e-5);
    let low = 0.05 / 2.0_f64.sqrt();
    assert!(
        scales[3].iter().all(|s| (low * 0.999..=0.05001).contains(&s.exp())),
        "{:?}",
        scales[3]
    );

    // As a linear layer of PyTorch.
    let context = leaves(&started(ContextMatrix { hidden: 64, divergences: None }, sizes));
    for (values, inputs) in context[2..].iter().zip([8.0_f64, 8.0, 64.0, 64.0]) {
        let most = values.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
        let bound = inputs.sqrt().recip();
        assert!(most <= bound * 1.000_001 && most > 0.85 * bound, "{most} of {bound}");
    }
    let all = leaves(&started(Members { count: 3, gain: 10.0 }, sizes));
    let bound = 10.0 * (6.0_f64 / 68.0).sqrt();
    let a = [&all[0][..], &all[2]].concat();
    assert!(a.iter().all(|v| v.abs() <= bound) && a.iter().any(|v| v.abs() > 0.9 * bound));
    assert!((0..480).all(|i| a[i] != a[480 + i] && a[i] != a[960 + i]), "members start alike");
    assert!(all[3].iter().all(|b| *b == 0.0));
}

/// Members are separate adapters, and answers are rows of the full head.
#[test]
fn ensembles_answer_as_separate_adapters() {
    let ensemble = layer(Members { count: 3, gain: 1.0 });
    assert_eq!(members(&ensemble).unwrap(), 3);
    let all = leaves(&ensemble);
    let a = [&all[0][..], &all[2]].concat();
    let b = [&all[1][..], &all[3]].concat();
    let x = inputs();
    let out = update(&ensemble, &x.clone().repeat_dim(0, 3), &Pass::mean()).inner();
    for member in 0..3 {
        let h = product(
            &numbers(x.clone().inner()),
            &a[member * D_INPUT * RANK..][..D_INPUT * RANK],
            D_INPUT,
            RANK,
        );
        let expected = up(&h, &b[member * RANK * D_OUTPUT..][..RANK * D_OUTPUT], SIZES);
        let found = numbers(out.clone().narrow(0, member * BATCH, BATCH));
        close("member", &found, &expected, 1e-13);
    }
    let bench = Bench { dtype: DType::F64, ..Bench::new(Backbone::Llama) };
    for (key, scheme) in [
        ("lora-ensemble", Scheme::Mean),
        ("scalabl", Scheme::PerSequence),
        ("c-lora", Scheme::PerBatch),
    ] {
        let mut model = bench.fresh(method(key)).state.model;
        perturb(&mut model);
        let input = bench.batch().0.input.repeat(members(&model).unwrap());
        let AutoModel::Llama(model) = model else { panic!("a language model") };
        let pass = Pass::sampled(scheme, NoiseKey::new(3));
        let full = numbers(model.last_logits(&input, &pass).inner());
        let answers = [4, 20, 33];
        let width = full.len() / input.ids.dims()[0];
        let rows = full.chunks(width).flat_map(|row| answers.map(|id| row[id as usize]));
        let found = numbers(model.answer_logits(&input, &answers, &pass).inner());
        close(key, &found, &rows.collect::<Vec<_>>(), 1e-12);
    }
}

/// Gives B values, which start at 0.
fn perturb(model: &mut AutoModel) {
    let mut seed = 100;
    model.visit_parameters_mut(&mut |p| {
        if p.group == Group::AdapterMean {
            seed += 1;
            let noise = uniform(seed, p.value.len());
            let values = p.value.flat();
            let noise = Tensor::from_data(
                TensorData::new(noise, [p.value.len()]),
                (&values.device(), values.dtype()),
            );
            p.value.set_flat(values + noise.mul_scalar(0.1));
        }
    });
}

/// Input and arriving gradient of A, and of B.
fn pairs(used: &ObservedUse, gradients: &Gradients) -> [[Tensor<3>; 2]; 2] {
    [
        [used.input.clone(), used.rank_gradient(gradients).unwrap()],
        [used.rank_input.clone(), used.output_gradient(gradients).unwrap()],
    ]
}

fn loss(out: Tensor<3>) -> Tensor<1> {
    let weights = tensor(&uniform(8, out.shape().num_elements()), out.dims());
    (out.tanh() * weights).sum()
}

/// Inputs and arriving gradients multiply to the gradients of the factors, also for rows that sequences share, and to those
/// of single examples.
#[test]
fn observed_products_are_the_gradients_of_the_factors() {
    let observer = Observer::default();
    let observed = layer(observer.clone());
    let mut plain = observed.clone();
    plain.extend(None).unwrap();
    let rows = tensor(&uniform(9, 4 * D_INPUT), [4, D_INPUT]);
    let run = |layer: &AdaptedLinear, x: Tensor<3>| {
        let pass = Pass::mean();
        let n = x.dims()[0];
        let prepared = layer.prepare(&pass, n);
        let shared = prepared.forward_shared(rows.clone());
        let shared = if shared.dims()[0] == n { shared } else { shared.repeat_dim(0, n) };
        loss(prepared.forward(x)) + loss(shared)
    };
    let x = inputs();
    let slopes = run(&observed, x.clone()).backward();
    let uses = observer.take();
    assert!(observer.take().is_empty(), "taken twice");
    assert_eq!(
        uses.iter().map(|used| (used.module, used.use_index)).collect::<Vec<_>>(),
        [(observed.noise_id(), 1), (observed.noise_id(), 0)]
    );
    assert!(uses.iter().all(|used| used.input.dims()[0] == BATCH), "an axis of examples");
    let expected = gradients(&plain, &run(&plain, x).backward());
    for (factor, expected) in expected.iter().enumerate() {
        let terms = uses.iter().map(|used| {
            let [input, slope] = pairs(used, &slopes)[factor].clone().map(|t| t.flatten::<2>(0, 1));
            numbers(input.transpose().matmul(slope).inner())
        });
        let sum = terms.reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect()).unwrap();
        close("factor", &sum, expected, 1e-13);
    }
    // As after training: nothing but the probes asks for a gradient, and a use that the loss does not reach has none.
    let frozen = observed.valid();
    drop(frozen.forward_with(inputs().inner(), &Pass::mean()));
    let slopes = loss(frozen.forward_with(inputs().inner(), &Pass::mean())).backward();
    let uses = observer.take();
    assert!(uses[0].rank_gradient(&slopes).is_none() && uses[0].output_gradient(&slopes).is_none());
    for [_, slope] in pairs(&uses[1], &slopes) {
        assert!(numbers(slope).iter().any(|g| *g != 0.0));
    }
}

#[test]
fn an_observer_sees_every_row() {
    let bench = Bench::new(Backbone::Deberta);
    let mut model = bench.fresh(method("lora")).state.model;
    let observer = Observer::default();
    observer.observe(&mut model, |_| true).unwrap();
    let input = bench.batch().0.input;
    drop(model.logits(&input, &Pass::mean()));
    let uses = observer.take();
    assert!(uses.len() > 2, "{}", uses.len());
    for used in uses {
        let expected = if used.use_index == 0 { input.ids.dims()[1] } else { used.input.dims()[1] };
        assert_eq!(used.input.dims()[..2], [input.ids.dims()[0], expected]);
    }
}

fn reference() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../lrvd-core/tests/baselines/reference.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// An entry of `case`: a list as it is, and a matrix of `rows` transposed.
fn read(case: &Value, name: &str, rows: usize) -> Vec<f64> {
    let values: Vec<f64> = match case[name].as_array() {
        Some(all) => all.iter().map(|v| v.as_f64().unwrap()).collect(),
        None => vec![case[name].as_f64().unwrap()],
    };
    if rows == 0 { values } else { transpose(&values, rows, values.len() / rows) }
}

/// The loops above are PyTorch's: values, and gradients of autograd.
#[test]
fn definitions_are_pytorchs() {
    let document = reference();
    let sizes = ["d_input", "rank", "d_output"]
        .map(|name| document["shape"][name].as_u64().unwrap() as usize);
    assert_eq!(document["shape"]["scaling"], SCALING);
    let r = sizes[1];
    let gradients = |case: &Value, names: &[(&str, usize)]| -> Vec<Vec<f64>> {
        names.iter().map(|(name, rows)| read(case, &format!("grad_{name}"), *rows)).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();

    let case = &document["scala_bl"];
    let names = [("x", 0), ("v_h", r), ("b", 0), ("log_mean", 0), ("log_std_dev", 0)];
    let leaves = names.map(|(name, rows)| read(case, name, rows));
    let [eps, g] = ["eps", "grad_output"].map(|name| read(case, name, 0));
    close("output", &scaled(sizes, &leaves, &eps), &read(case, "output", 0), 1e-12);
    are_slopes("ScalaBL", &gradients(case, &names), &leaves, |leaves| {
        dot(&scaled(sizes, leaves, &eps), &g)
    });
    for (name, direction) in [
        ("posterior-from-prior", KlDirection::Standard),
        ("prior-from-posterior", KlDirection::Coded),
    ] {
        for (k, expected) in read(&case[name], "per_rank", 0).into_iter().enumerate() {
            let found = scale_kl(&leaves[3][k..=k], &leaves[4][k..=k], direction);
            close(name, &[found], &[expected], 1e-12);
        }
    }
    // The start from an A: its singular values and right vectors, whose signs are arbitrary.
    let basis = &case["basis"];
    let a = read(basis, "a", 0);
    let rank = 3;
    let parts = lrvd_core::linalg::svd(&a, rank, a.len() / rank);
    let logs: Vec<f64> = parts.values.iter().map(|s| s.ln()).collect();
    close("log_mean", &logs, &read(basis, "log_mean", 0), 1e-12);
    for (found, expected) in parts.right.chunks(7).zip(read(basis, "v_h", 0).chunks(7)) {
        let sign = (found[0] * expected[0]).signum();
        close("v_h", found, &expected.iter().map(|v| sign * v).collect::<Vec<_>>(), 1e-12);
    }

    let case = &document["c_lora"];
    let hidden = document["shape"]["hidden"].as_u64().unwrap() as usize;
    let names =
        [("x", 0), ("a", r), ("b", 0), ("w1", hidden), ("b1", 0), ("w2", 2 * r * r), ("b2", 0)];
    let leaves = names.map(|(name, rows)| read(case, name, rows));
    let of = |name| read(case, name, 0);
    let [mut eps, input_sign, output_sign, prior] =
        ["eps", "input_sign", "output_sign", "prior_std_dev"].map(of);
    // The published code multiplies the noise by signs.
    for (at, eps) in eps.iter_mut().enumerate() {
        let token = at / (r * r);
        let i = at / r % r;
        let j = at % r;
        *eps *= output_sign[token * r + i] * input_sign[token * r + j];
    }
    let [output, kl] = contextual(sizes, &leaves, &eps, prior[0]);
    close("output", &output, &of("output"), 1e-12);
    close("KL", &kl, &of("kl"), 1e-12);
    let mean = contextual(sizes, &leaves, &vec![0.0; eps.len()], prior[0]);
    close("mean output", &mean[0], &of("mean_output"), 1e-12);
    let [g, kl_weight] = ["grad_output", "kl_weight"].map(of);
    are_slopes("C-LoRA", &gradients(case, &names), &leaves, |leaves| {
        let [output, kl] = contextual(sizes, leaves, &eps, prior[0]);
        dot(&output, &g) + dot(&kl, &kl_weight)
    });
}
