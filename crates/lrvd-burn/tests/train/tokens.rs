//! Rows that ask for any number of tokens.

use super::*;
use lrvd_burn::sampling::{Draws, MAX_SEED, check_seed};
use lrvd_burn::train::{Examples, token_answers};

/// Row `i` has `LENGTHS[i]` tokens.
const LENGTHS: [usize; 5] = [3, 1, 4, 2, 2];

struct Texts {
    inputs: Vec<f64>,
    expected: Vec<i64>,
}

impl Texts {
    fn new() -> Self {
        let all: usize = LENGTHS.iter().sum();
        let expected = (0..all as i64).map(|i| i * i % CLASSES as i64).collect();
        Self { inputs: normal(31, all * WIDTH), expected }
    }

    fn inputs(&self, seed: u64, count: usize) -> Inputs<'_, Tensor<2>> {
        Inputs { batch_size: 2, draws: Draws { count, seed }, ..Inputs::new(self) }
    }

    fn places(indices: &[usize]) -> Vec<usize> {
        let start = |row: usize| LENGTHS[..row].iter().sum::<usize>();
        indices.iter().flat_map(|&row| start(row)..start(row) + LENGTHS[row]).collect()
    }
}

impl Examples for Texts {
    type Input = Tensor<2>;

    fn len(&self) -> usize {
        LENGTHS.len()
    }

    fn size(&self, index: usize) -> usize {
        LENGTHS[index]
    }

    fn input(&self, indices: &[usize]) -> Result<Tensor<2>, lrvd_burn::Error> {
        let places = Self::places(indices);
        let rows = places.iter().flat_map(|&p| self.inputs[p * WIDTH..(p + 1) * WIDTH].to_vec());
        Ok(tensor(rows.collect(), [places.len(), WIDTH]))
    }

    fn targets(&self, indices: &[usize]) -> Result<Targets, lrvd_burn::Error> {
        let ids: Vec<i64> = Self::places(indices).into_iter().map(|p| self.expected[p]).collect();
        let n = ids.len();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &Device::flex());
        let per_row = indices.iter().map(|&i| LENGTHS[i]).collect();
        Ok(Targets::Tokens { ids, per_row })
    }

    fn answers(&self, index: usize) -> usize {
        LENGTHS[index]
    }
}

fn targets() -> Selection {
    Selection::Names(vec!["layer".to_owned()])
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|z| z.exp()).sum();
    logits.iter().map(|z| z.exp() / total).collect()
}

fn entropy(p: &[f64]) -> f64 {
    -p.iter().map(|p| p * p.ln()).sum::<f64>()
}

#[test]
fn every_token_weighs_the_same_however_a_batch_is_cut() {
    // One step on all rows: whole, and in micro-batches of 3 + 1 + ... tokens.
    let step = |accumulation: usize| {
        let config = TrainConfig { warmup_ratio: 0.0, evaluate_every: 1, ..config(2) };
        let lora = Lora { rank: 2, b_bound: 0.3, ..Lora::default() };
        let mut run = Run::new(one(), Box::new(lora), &targets(), &config).unwrap();
        let order = OrderConfig { accumulation, ..OrderConfig::shuffled(5) };
        let mut batches = Ordered::new(leaked(Texts::new()), order, 1).unwrap();
        assert_eq!(batches.n_train(), 12);
        let texts = Texts::new();
        let mut watch = Watch { validation: Some(&texts), ..Watch::default() };
        run.fit(&mut batches, &mut watch).unwrap();
        let history = run.state.journal.history.clone();
        let losses: Vec<f64> = history.iter().filter_map(|point| Some(point.parts?.nll)).collect();
        // The loss of the first step is that of every token before it.
        assert!((losses[0] - history[0].evaluation.metrics["nll"]).abs() < 1e-5, "{losses:?}");
        (losses, parameters(&run.state.model))
    };
    let (whole, parts) = (step(1), step(5));
    for (a, b) in whole.0.iter().zip(&parts.0) {
        assert!((a - b).abs() < 1e-6);
    }
    for ((name, a), (_, b)) in whole.1.iter().zip(&parts.1) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5), "{name}");
    }
}

fn drawn() -> One {
    let posterior = BayesLora { initial: -1.0, ..BayesLora::new(3) };
    let config = TrainConfig { steps: 6, evaluate_every: 3, ..TrainConfig::default() };
    let mut run = posterior.targets(targets()).run(one(), &config).unwrap();
    let mut batches = Ordered::new(leaked(Texts::new()), OrderConfig::shuffled(2), 1).unwrap();
    run.fit(&mut batches, &mut Watch::default()).unwrap();
    run.state.model.clone().valid()
}

#[test]
fn a_watch_counts_the_answers_and_ends_them() {
    let (model, texts) = (drawn(), Texts::new());
    let seen = std::cell::Cell::new(0);
    let count = |answers| {
        seen.set(seen.get() + answers);
        seen.get() < 7
    };
    // Batches of 2, 2 and 1 rows, four draws of each: the fourth pass makes eight.
    let stopped = token_answers(&model, &Inputs { watch: Some(&count), ..texts.inputs(8, 4) });
    assert!(matches!(stopped, Err(lrvd_burn::Error::Stopped)));
    assert_eq!(seen.get(), 8);
}

#[test]
fn answers_are_those_of_averaged_probabilities() {
    let (model, texts) = (drawn(), Texts::new());
    let all: Vec<usize> = (0..5).collect();
    let input = texts.input(&all).unwrap();
    for draws in [0, 4] {
        let found = token_answers(&model, &texts.inputs(8, draws)).unwrap();
        assert_eq!(found.per_row, LENGTHS);
        let passes = Draws { count: draws, seed: 8 }.passes().unwrap();
        let logits: Vec<Vec<f64>> = passes
            .iter()
            .map(|pass| model.logits(&input, pass).into_data().iter::<f64>().collect())
            .collect();
        let mut nll = 0.0;
        for (token, &expected) in texts.expected.iter().enumerate() {
            let each: Vec<Vec<f64>> = logits
                .iter()
                .map(|l| softmax(&l[token * CLASSES..(token + 1) * CLASSES]))
                .collect();
            let n = each.len() as f64;
            let mean: Vec<f64> =
                (0..CLASSES).map(|c| each.iter().map(|p| p[c]).sum::<f64>() / n).collect();
            let best = (0..CLASSES).max_by(|&a, &b| mean[a].total_cmp(&mean[b])).unwrap();
            let own = each.iter().map(|p| entropy(p)).sum::<f64>() / n;
            let near = |a: f64, b: f64| assert!((a - b).abs() < 2e-6, "{a} {b}");
            near(found.log_probability[token], mean[expected as usize].ln());
            near(found.confidence[token], mean[best]);
            near(found.entropy[token], entropy(&mean));
            near(found.mutual_information[token], entropy(&mean) - own);
            assert_eq!(found.correct[token], best as i64 == expected);
            nll -= mean[expected as usize].ln() / 12.0;
        }
        assert!((found.nll().unwrap() - nll).abs() < 1e-6);
        let rows = found.row_losses();
        assert!((rows.iter().sum::<f64>() / 5.0 - nll).abs() < 1e-6);
        // The second row has one token of the twelve.
        assert!((rows[1] + 5.0 / 12.0 * found.log_probability[3]).abs() < 1e-12);
        assert_eq!(draws > 0, found.mutual_information.iter().any(|m| *m > 1e-4));
    }
}

#[test]
fn what_tokens_do_not_have_is_an_error() {
    let (model, texts) = (drawn(), Texts::new());
    let error = Inputs::new(&texts).logits(&model, &Pass::mean()).unwrap_err();
    assert!(error.to_string().contains("expected a label per row"), "{error}");
    token_answers(&model, &texts.inputs(MAX_SEED, 1)).unwrap();
    let expected = check_seed(MAX_SEED + 1).unwrap_err().to_string();
    let tokens = token_answers(&model, &texts.inputs(MAX_SEED + 1, 1));
    assert_eq!(tokens.unwrap_err().to_string(), expected);
}
