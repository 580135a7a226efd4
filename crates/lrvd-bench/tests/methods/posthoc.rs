//! Methods that are fitted to a trained LoRA, from the first step to the answers.

use std::cell::Cell;

use burn::module::Module;
use lrvd_bench::answers::AnswerSpace;
use lrvd_bench::data::batch::TokenisedExample;
use lrvd_bench::data::{Label, PreparedTask};
use lrvd_bench::eval::{RunContext, score_draws};
use lrvd_bench::method::{FittedRows, Temperatures};
use lrvd_bench::record::Metrics;
use lrvd_bench::settings::Preset;
use lrvd_bench::task::Goal;
use lrvd_burn::Error;
use lrvd_burn::model::NamedModule;
use lrvd_burn::train::{Prediction, Run};
use lrvd_core::metrics::{Predictions, softmax};
use lrvd_core::noise::{Generator, NoiseKey, Stream};
use lrvd_models::AutoModel;

use super::harness::{Backbone, Bench, Finished, method, prepared};

const LABELS: usize = 3;

/// Texts whose class is the most frequent third of the vocabulary in them, one in eight mislabelled.
fn task(seed: u64, n_train: usize, n_validation: usize) -> PreparedTask {
    let mut draws = Generator::new(NoiseKey::new(seed).on_stream(Stream::DATA));
    let mut examples = |n: usize| -> Vec<TokenisedExample> {
        let mut one = || {
            let class = draws.index(LABELS);
            let length = 4 + draws.index(8);
            let token = |draws: &mut Generator| {
                let third = if draws.uniform() < 0.6 { class } else { draws.index(LABELS) };
                2 + (third * 16 + draws.index(16)) as u32
            };
            let ids = std::iter::once(1).chain((1..length).map(|_| token(&mut draws))).collect();
            let label = if draws.uniform() < 0.125 { draws.index(LABELS) } else { class };
            TokenisedExample::single(ids, Label::Class(label))
        };
        (0..n).map(|_| one()).collect()
    };
    let goal = Goal::classification("thirds", ["a", "b", "c"].map(str::to_owned).to_vec());
    prepared(goal, examples(n_train), examples(n_validation))
}

impl Bench {
    fn random(steps: usize, settings: &str, task: PreparedTask) -> Self {
        let config = Preset::ConstantWeight.config();
        let bench = Self::new(Backbone::Random);
        let mut bench = Self { config, task, seed: 11, fitted: FittedRows::Holdout, ..bench };
        bench.assign(&format!(
            "steps={steps} initial_rank=4 batch_size=16 evaluation_batch_size=64 learning_rate=1e-2 \
             head_learning_rate=1e-2 gradient_clip=1.0 backbone_dropout=false evaluate_every=1000000 \
             draws=[5] {settings}"
        ));
        bench
    }

    fn logits(&self, run: &Finished, draws: usize) -> Prediction {
        let model = run.model.clone().valid();
        let context = self.context();
        let examples = self.validation();
        let logits = run.method.predict(&model, &context.inputs(&examples).drawn(draws)).unwrap();
        run.temperatures.soften(logits, draws).unwrap()
    }

    fn metrics(&self, run: &Finished, draws: usize) -> Metrics {
        score_draws(&self.logits(run, draws), &self.task).unwrap().metrics
    }
}

#[test]
fn posthoc_fits_end_at_their_next_pass_after_a_stop_request() {
    for key in ["laplace", "tfb", "lora"] {
        let mut bench = Bench::random(1, "", task(1, 96, 64));
        bench.task = bench.task.holding_out(0.5, bench.seed);
        let Run { state, method: mut fitted, .. } = bench.trained(method(key));
        let mut model = state.compacted();
        let passes = Cell::new(0);
        let stop = |_: usize| {
            passes.set(passes.get() + 1);
            false
        };
        let context = RunContext { watch: Some(&stop), ..bench.context() };
        let ended = context.fitted(|data| {
            fitted.finish(&mut model, data)?;
            Temperatures::fit(&*fitted, &model, data, &[5])
        });
        assert!(matches!(ended, Err(Error::Stopped)), "{key}: {ended:?}");
        assert_eq!(passes.get(), 1, "{key}");
    }
}

#[test]
fn posthoc_laplace_softens_what_lora_answers() {
    let task = task(1, 96, 64);
    let mut lora = Bench::random(80, "", task.clone());
    let run = lora.finished(method("lora"));
    let plain = lora.metrics(&run, 0);
    assert!(plain.accuracy.unwrap() > 0.6, "{plain:?}");
    for predictive in ["monte-carlo", "probit", "bridge"] {
        let settings = format!("methods.laplace.predictive={predictive}");
        let mut bed = Bench::random(80, &settings, task.clone());
        let run = bed.finished(method("laplace"));
        let found = bed.metrics(&run, 0);
        // Less sure than the point estimate, of nearly the same classes.
        assert!(found.entropy.unwrap() > plain.entropy.unwrap(), "{predictive}: {found:?}");
        assert!((found.accuracy.unwrap() - plain.accuracy.unwrap()).abs() < 0.1, "{predictive}");
        // The bridge's mean does not depend on the scale of the covariance.
        let allowed = if predictive == "bridge" { 1.0 } else { 0.0 };
        assert!(found.nll.unwrap() < plain.nll.unwrap() + allowed, "{predictive}: {found:?}");
        assert!(method("laplace").draws(&bed.config).is_empty());
        assert_eq!(run.fitted.stored, 1 + factor_entries(&run.model));
    }
}

#[test]
fn posthoc_laplace_chooses_its_prior_on_held_out_examples_and_narrows_to_the_last_layer() {
    let run = |settings: &str| {
        let mut bed = Bench::random(60, settings, task(2, 96, 48));
        let run = bed.finished(method("laplace"));
        let metrics = bed.metrics(&run, 0);
        assert!(metrics.nll.unwrap().is_finite());
        ([bed.task.train.len(), bed.task.holdout.len()], metrics.entropy.unwrap())
    };
    let held_out =
        "methods.laplace.prior=validation methods.laplace.holdout=0.25 methods.laplace.samples=500";
    assert_eq!(run(held_out).0, [72, 24]);
    // The curvature of a third of the examples, times three.
    run("methods.laplace.examples=32");
    // Fewer random matrices, the same training: less spread.
    let [all, last] =
        ["methods.laplace.layers=all", "methods.laplace.layers=last"].map(|layers| run(layers).1);
    assert!(last < all, "{last} {all}");
}

/// Numbers of the factors of A and B of every layer, with 10 columns of a side of 100 or more.
fn factor_entries(model: &AutoModel) -> usize {
    let mut sum = 0;
    model.visit_layers(&mut |_, layer| {
        let Some(adapter) = layer.low_rank() else { return };
        let side = |n: usize| if n < 100 { n * n } else { 10 * n };
        sum += side(layer.d_input()) + side(layer.d_output()) + 2 * adapter.rank().pow(2);
    });
    sum
}

#[test]
fn posthoc_scores_get_the_trained_answer_or_a_rejection() {
    let mut task = task(3, 32, 16);
    task.goal = Goal::new("number", AnswerSpace::Score);
    task.labels = 1;
    for example in task.train.iter_mut().chain(&mut task.validation) {
        let score = example.answer.label().unwrap().class().unwrap() as f64;
        example.answer = Label::Score(score).into();
    }
    let mut bed = Bench::random(20, "", task);
    let [lora, laplace] = ["lora", "laplace"].map(|key| bed.finished(method(key)));
    let plain = bed.logits(&lora, 0).values;
    assert_eq!(bed.logits(&laplace, 0).values, plain);
    let run = bed.finished(method("lora+ts"));
    assert_eq!(bed.logits(&run, 0).values.len(), plain.len());
    let Run { mut state, method: mut tfb, .. } = bed.fresh(method("tfb"));
    let failed = bed.context().fitted(|data| tfb.finish(&mut state.model, data));
    let failed = failed.unwrap_err();
    assert!(failed.to_string().ends_with("expected classes, which TFB compares"), "{failed}");
}

#[test]
fn posthoc_temperature_keeps_accuracy_and_lowers_the_held_out_loss() {
    // Long enough to be too sure.
    let mut bed = Bench::random(150, "holdout=0.25", task(6, 96, 48));
    let run = bed.finished(method("lora+ts"));
    assert_eq!((bed.task.train.len(), bed.task.holdout.len()), (72, 24));
    assert_eq!((run.fitted.stored, run.temperatures.by_draws.len()), (0, 1));
    let context = bed.context();
    let examples = context.examples(&bed.task.holdout);
    let plain = context.inputs(&examples).predict(&run.model.clone().valid()).unwrap();
    let logits = plain.values.clone();
    let labels: Vec<usize> =
        bed.task.holdout.iter().filter_map(|e| e.answer.label()?.class()).collect();
    let of = |logits: &[f64]| {
        let probabilities = softmax(logits, LABELS).unwrap();
        let predictions = Predictions::new(&probabilities, LABELS, &labels).unwrap();
        (predictions.predicted(), predictions.nll())
    };
    let scaled = run.temperatures.soften(plain, 0).unwrap().values;
    let (before, nll_before) = of(&logits);
    let (after, nll_after) = of(&scaled);
    assert_eq!(after, before);
    assert!(nll_after < nll_before, "{nll_after} {nll_before}");
    // One number for all: differences of log-probabilities have its ratio.
    let temperature = run.temperatures.by_draws[&0];
    assert!(temperature > 1.0, "a model this sure is cooled: {temperature}");
    for (plain, scaled) in logits.chunks(LABELS).zip(scaled.chunks(LABELS)) {
        let plain = plain[0] - plain[1];
        let scaled = scaled[0] - scaled[1];
        assert!((plain - temperature * scaled).abs() < 1e-6 * plain.abs().max(1.0));
    }
}
