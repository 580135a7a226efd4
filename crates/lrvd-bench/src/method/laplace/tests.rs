//! Curvature and predictive against explicit gradients of single examples.
use burn::tensor::{DType, Tensor, TensorData};
use lrvd_burn::model::NamedModule;
use lrvd_burn::parameters::values;
use lrvd_burn::sampling::Pass;
use lrvd_burn::train::{Examples, Model};
use lrvd_core::baselines::laplace::{self, CurvatureBlock};
use lrvd_core::linalg::Cholesky;
use lrvd_core::metrics::softmax;
use lrvd_core::noise::{NoiseKey, fill_normal_f64};
use lrvd_models::AutoModel;

use super::super::observer::Observer;
use super::factors::Curvatures;
use super::{Watch, gaussian_logits, jacobians, one_hot, probabilities};
use crate::data::batch::TokenisedExample;
use crate::method::fixture::{
    Asked, LABELS, NO_POSITIONS, SHARED_KEYS, close, deberta, examples, inputs, inputs_of, llama,
};
use crate::settings::{
    LaplaceLayers as Layers, LaplacePredictive as Predictive, LaplaceSettings as Settings,
};

fn whole() -> Settings {
    Settings { low_rank_from: usize::MAX, ..Settings::default() }
}

fn curvatures(model: &AutoModel, inputs: &Asked<'_>, settings: &Settings) -> Curvatures {
    within(usize::MAX, model, inputs, settings)
}

/// With so many bytes for squares.
fn within(memory: usize, model: &AutoModel, inputs: &Asked<'_>, settings: &Settings) -> Curvatures {
    let watch = Watch::new(model, settings.layers, &inputs.examples).unwrap();
    Curvatures::of(&watch, &inputs.all(), settings, 1.0, memory).unwrap()
}

/// Curvature of a block along a fixed random direction, and its size.
fn probe(block: &CurvatureBlock, delta: f64) -> [f64; 2] {
    let mut direction = vec![0.0; block.n_parameters()];
    fill_normal_f64(NoiseKey::new(1), 0, &mut direction);
    [block.covariance(&direction, 1, delta).unwrap()[0], block.log_det(delta).unwrap()]
}

#[track_caller]
fn same(found: &[CurvatureBlock], expected: &[CurvatureBlock], limit: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.n_parameters(), expected.n_parameters());
        for delta in [0.01, 1.0] {
            close(&format!("block {i}"), &probe(found, delta), &probe(expected, delta), limit);
        }
    }
}

/// Gradients of `Σ seed·logit` of one example by A `[rank, d_input]` and B `[d_output, rank]` of every
/// adapter, by ordinary differentiation of the parameters.
fn explicit(
    model: &AutoModel,
    asked: &Asked<'_>,
    example: usize,
    seed: &[f64],
) -> Vec<[Vec<f64>; 2]> {
    let batch = asked.examples.input(&[example]).unwrap();
    let gradients = weighted(model.logits(&batch, &Pass::mean()), seed, asked).backward();
    let mut found = Vec::new();
    model.visit_layers(&mut |_, layer| {
        if let Some(adapter) = layer.low_rank() {
            let a = adapter.a.val().grad(&gradients).unwrap().transpose();
            let b = adapter.b.val().grad(&gradients).unwrap().transpose();
            found.push([values(a), values(b)]);
        }
    });
    found
}

/// `Σ seed·logit`.
fn weighted(logits: Tensor<2>, seed: &[f64], asked: &Asked<'_>) -> Tensor<1> {
    let seed = TensorData::new(seed.to_vec(), [1, LABELS]);
    (logits * Tensor::<2>::from_data(seed, (asked.examples.device, DType::F64))).sum()
}

#[test]
fn posthoc_jacobians_are_the_gradients_of_single_examples() {
    let inputs = inputs(&[5, 9, 2], 8);
    for model in [deberta(SHARED_KEYS), deberta(NO_POSITIONS)] {
        let watch = Watch::new(&model, Layers::All, &inputs.examples).unwrap();
        let batch = inputs.examples.input(&[0, 1, 2]).unwrap();
        let seen = watch.gradients(&batch, LABELS, |_| one_hot(LABELS, 3));
        let logits = inputs.all().logits(&model, &Pass::mean()).unwrap().values;
        close("logits", &seen.logits, &logits, 1e-12);
        assert_eq!(watch.modules.len(), 12);
        for example in 0..3 {
            for (class, unit) in one_hot(LABELS, 1).chunks_exact(LABELS).enumerate() {
                let expected = explicit(&model, &inputs, example, unit);
                for (module, expected) in expected.iter().enumerate() {
                    let found = jacobians(&seen, module, LABELS).unwrap();
                    for (found, expected) in found.iter().zip(expected) {
                        let at = (class * 3 + example) * expected.len();
                        close("gradient", &found[at..at + expected.len()], expected, 1e-11);
                    }
                }
            }
        }
    }
}

/// `S` and the sum of the inputs' outer products of one matrix.
#[derive(Clone, Default)]
struct Sums {
    output: Vec<f64>,
    input: Vec<f64>,
    tokens: usize,
}

/// `sum += weight · row·rowᵀ`.
fn add_outer(sum: &mut Vec<f64>, row: &[f64], weight: f64) {
    let width = row.len();
    sum.resize(width * width, 0.0);
    for (at, value) in sum.iter_mut().enumerate() {
        *value += weight * row[at / width] * row[at % width];
    }
}

/// The blocks by the definition: one example, one label, one pass at a time, sums on the host.
fn by_definition(model: &AutoModel, inputs: &Asked<'_>) -> Vec<CurvatureBlock> {
    let Watch { modules, .. } = Watch::new(model, Layers::All, &inputs.examples).unwrap();
    let mut model = model.clone();
    let observer = Observer::default();
    observer.observe(&mut model, |_| true).unwrap();
    let mut sums: Vec<Option<[Sums; 2]>> = vec![None; modules.len()];
    for example in 0..inputs.examples.len() {
        let batch = inputs.examples.input(&[example]).unwrap();
        for class in 0..LABELS {
            let logits = model.logits(&batch, &Pass::mean());
            let p = softmax(&values(logits.clone()), LABELS).unwrap();
            let seed: Vec<f64> = (0..LABELS).map(|c| p[c] - f64::from(c == class)).collect();
            let gradients = weighted(logits, &seed, inputs).backward();
            for used in observer.take() {
                let output = used.output_gradient(&gradients).unwrap();
                let [_, rows, d_output] = output.dims();
                let of_output = values(output);
                let of_rank = values(used.rank_gradient(&gradients).unwrap());
                let input = values(used.input);
                let rank_input = values(used.rank_input);
                let d_input = input.len() / rows;
                let rank = rank_input.len() / rows;
                let module = modules.iter().position(|&id| id == used.module).unwrap();
                let [a, b] = sums[module].get_or_insert_default();
                for row in 0..rows {
                    let of = |values: &[f64], width: usize| {
                        values[row * width..(row + 1) * width].to_vec()
                    };
                    let gradient = of(&of_output, d_output);
                    if used.use_index != 0 && gradient.iter().all(|&g| g == 0.0) {
                        continue;
                    }
                    if class == 0 {
                        for (sums, row) in
                            [(&mut *a, of(&input, d_input)), (&mut *b, of(&rank_input, rank))]
                        {
                            add_outer(&mut sums.input, &row, 1.0);
                            sums.tokens += 1;
                        }
                    }
                    add_outer(&mut a.output, &of(&of_rank, rank), p[class]);
                    add_outer(&mut b.output, &gradient, p[class]);
                }
            }
        }
    }
    let block = |sum: &Sums| -> CurvatureBlock {
        let input: Vec<f64> = sum.input.iter().map(|v| v / sum.tokens as f64).collect();
        let o = sum.output.len().isqrt();
        let i = input.len().isqrt();
        CurvatureBlock::full(&sum.output, o, &input, i).unwrap()
    };
    sums.iter().flatten().flatten().map(block).collect()
}

#[test]
fn posthoc_factors_are_those_of_the_definition() {
    // Short enough that every distance has a row of the table to itself.
    for model in [deberta(SHARED_KEYS), deberta(NO_POSITIONS)] {
        let inputs = inputs(&[5, 2, 4, 5, 3], 4);
        let found = curvatures(&model, &inputs, &whole());
        assert_eq!(found.blocks.len(), 24);
        same(&found.blocks, &by_definition(&model, &inputs), 1e-9);
    }
}

#[test]
fn posthoc_the_same_data_twice_is_the_same_as_a_scale_of_two() {
    let once = examples(&[5, 2, 7]);
    let twice: Vec<TokenisedExample> = once.iter().chain(&once).cloned().collect();
    let model = deberta(SHARED_KEYS);
    let of = |examples: &[TokenisedExample], settings: &Settings, scale: f64| {
        let inputs = inputs_of(examples.to_vec(), 4);
        let watch = Watch::new(&model, Layers::All, &inputs.examples).unwrap();
        Curvatures::of(&watch, &inputs.all(), settings, scale, usize::MAX).unwrap()
    };
    let cut = Settings { low_rank_from: 20, low_rank: 4, ..Settings::default() };
    for settings in [whole(), cut] {
        let one = of(&once, &settings, 1.0);
        let two = of(&twice, &settings, 1.0);
        let scaled = of(&once, &settings, 2.0);
        same(&scaled.blocks, &two.blocks, 1e-7);
        assert!((two.log_likelihood - scaled.log_likelihood).abs() < 1e-9);
        assert_eq!(scaled.log_likelihood, 2.0 * one.log_likelihood);
        assert_eq!(two.squared_norm, one.squared_norm);
    }
}

#[test]
fn posthoc_padding_changes_nothing() {
    // In one batch the table is projected before rows are picked, apart it is not; at 7 and 12 tokens
    // distances share rows.
    for model in [deberta(SHARED_KEYS), llama()] {
        let of =
            |batch_size: usize| curvatures(&model, &inputs(&[3, 12, 7, 1], batch_size), &whole());
        // Half of the batch size goes to the copies.
        let apart = of(1);
        let together = of(8);
        same(&together.blocks, &apart.blocks, 1e-9);
        close("norm", &[together.squared_norm], &[apart.squared_norm], 1e-12);
        let of = |batch_size: usize| {
            let inputs = inputs(&[3, 12, 7, 1], batch_size);
            let watch = Watch::new(&model, Layers::All, &inputs.examples).unwrap();
            let found = gaussian_logits(&watch, &apart, &inputs.all(), &[0.5]).unwrap();
            found.iter().flat_map(|e| e.covariances[0].values().to_vec()).collect::<Vec<f64>>()
        };
        close("covariance", &of(12), &of(1), 1e-9);
    }
}

#[test]
fn posthoc_few_columns_hold_all_of_a_narrow_span_and_never_more_than_there_is() {
    let inputs = inputs(&[5, 2, 7, 6], 4);
    let model = deberta(SHARED_KEYS);
    let full = curvatures(&model, &inputs, &whole());
    let cut = |columns| Settings { low_rank_from: 20, low_rank: columns, ..Settings::default() };
    // Summed first, or cut batch by batch.
    for memory in [usize::MAX, 0] {
        let of = |columns| within(memory, &model, &inputs, &cut(columns)).blocks;
        same(&of(40), &full.blocks, 1e-7);
        for (few, all) in of(2).iter().zip(&full.blocks) {
            let [few, few_det] = probe(few, 0.1);
            let [all, all_det] = probe(all, 0.1);
            assert!(few >= all * (1.0 - 1e-9) && few_det <= all_det + 1e-9);
        }
    }
}

#[test]
fn posthoc_the_predictive_is_centred_at_the_trained_model_and_tends_to_it() {
    let inputs = inputs(&[5, 2, 7, 4], 8);
    let model = deberta(SHARED_KEYS);
    let watch = Watch::new(&model, Layers::All, &inputs.examples).unwrap();
    let curvatures = Curvatures::of(&watch, &inputs.all(), &whole(), 1.0, 0).unwrap();
    let logits = inputs.all().logits(&model, &Pass::mean()).unwrap().values;
    let trained = softmax(&logits, LABELS).unwrap();
    let found = gaussian_logits(&watch, &curvatures, &inputs.all(), &[1.0, 1e12]).unwrap();
    for (example, logits) in found.iter().zip(logits.chunks_exact(LABELS)) {
        close("mean", &example.mean, logits, 1e-12);
        let covariance: &laplace::LogitCovariance = &example.covariances[0];
        let root = Cholesky::new("covariance", covariance.values(), LABELS);
        assert!(root.is_ok_and(|root| root.lower()[0] > 0.0));
    }
    for predictive in [Predictive::MonteCarlo, Predictive::Probit, Predictive::Bridge] {
        let settings = Settings { predictive, ..whole() };
        let wide = probabilities(&found, 0, &settings, 3).unwrap();
        assert_eq!(wide, probabilities(&found, 0, &settings, 3).unwrap());
        for row in wide.chunks_exact(LABELS) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12 && row.iter().all(|&p| p > 0.0));
        }
        let moved = wide.iter().zip(&trained).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(moved > 1e-3, "{predictive:?} {moved}");
        // The bridge does not depend on the scale of the covariance; the jitter of the draws has standard deviation 1e-3.
        if predictive != Predictive::Bridge {
            close("sharp", &probabilities(&found, 1, &settings, 3).unwrap(), &trained, 1e-4);
        }
    }
}

#[test]
fn posthoc_the_last_layer_of_a_language_model_is_its_head_at_the_answers() {
    let inputs = inputs(&[5, 2, 7], 8);
    let model = llama();
    let settings = Settings { layers: Layers::Last, ..whole() };
    let found = curvatures(&model, &inputs, &settings);
    let sizes: Vec<usize> = found.blocks.iter().map(CurvatureBlock::n_parameters).collect();
    assert_eq!(sizes, [4 * 20, LABELS * 4]);
    // The norm counts the answers' columns only.
    let mut norm = 0.0;
    model.visit_layers(&mut |path, layer| {
        if let (true, Some(adapter)) = (path == "lm_head", layer.low_rank()) {
            norm += values(adapter.a.val()).iter().map(|v| v * v).sum::<f64>();
            let columns = [7, 3, 40].map(|id| adapter.b.val().narrow(1, id, 1));
            norm += columns.into_iter().flat_map(values).map(|v| v * v).sum::<f64>();
        }
    });
    close("norm", &[found.squared_norm], &[norm], 1e-12);
    let all = curvatures(&model, &inputs, &whole());
    assert_eq!(all.blocks.len(), 2 * 5);
    same(&all.blocks[8..], &found.blocks, 1e-12);
}
