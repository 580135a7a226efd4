//! Evaluation: predictions at the posterior mean and at Monte Carlo draws, metrics, selective prediction, ranks.

mod by_class;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use burn::tensor::{DType, Device};
use lrvd_burn::adapter::LowRankAdapter;
use lrvd_burn::model::NamedModule;
use lrvd_burn::prune::statistics;
use lrvd_burn::sampling::Draws;
use lrvd_burn::train::{Fitting, Inputs, PassWatch, Prediction, TokenAnswers};
use lrvd_core::metrics::{
    self, LabelSetMetrics, Predictions, ReliabilityDiagram, mean, uncertainty,
};
use lrvd_core::update::{UpdateEnergy, area, normalised_gap, order_by_statistic};
use lrvd_models::TokenBatch;
use serde::Serialize;

use crate::answers::AnswerSpace;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::data::{At, Label, PreparedTask};
use crate::error::Result;
use crate::io::{create_dir, write_json_lines};
use crate::method::{FittedRows, LabelThresholds};
use crate::record::{
    self, EnergyRecord, Metrics, PredictionLine, Reliability, SelectiveRecord, StatisticRecord,
};
use crate::settings::Config;
use crate::task::Metric;

pub use by_class::{Confusion, Residual};
pub(crate) use by_class::{class_report, class_reports, confusion, residuals};

/// Settings, rows and device of training, fitting and answering: everything beside the model.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub config: &'a Config,
    pub task: &'a PreparedTask,
    pub seed: u64,
    /// Rows that something is fitted to after training.
    pub fitted: FittedRows,
    pub device: &'a Device,
    pub dtype: DType,
    pub memory: PeakMemory,
    pub watch: PassWatch<'a>,
}

impl<'a> RunContext<'a> {
    pub fn examples(&self, examples: &'a [TokenisedExample]) -> TokenExamples<'a> {
        TokenExamples { dtype: self.dtype, ..self.task.examples(examples, self.device) }
    }

    pub fn fitted<T>(&self, fit: impl FnOnce(&Fitting<'_, TokenBatch>) -> T) -> T {
        let [train, holdout] =
            [&self.task.train, self.fitted.of(self.task)].map(|examples| self.examples(examples));
        fit(&Fitting { train: &train, holdout: &holdout, inputs: self.inputs(&train) })
    }

    /// `examples` to be asked about with this run's draws, by its policy.
    pub fn inputs<'e>(&self, examples: &'e TokenExamples<'_>) -> Inputs<'e, TokenBatch>
    where
        'a: 'e,
    {
        Inputs {
            batch_size: self.config.evaluation_batch_size,
            draws: Draws { count: 0, seed: self.seed },
            scheme: self.config.prediction_draws.scheme(),
            fresh: self.config.prediction_draws.is_fresh(),
            policy: self.config.prediction,
            watch: self.watch,
            ..Inputs::new(examples)
        }
    }
}

/// The system's high-water mark of this process, reset at the start of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakMemory {
    /// Resident bytes at the start, which are part of every later peak; `None` where the system does not set its mark back.
    pub start: Option<u64>,
}

impl PeakMemory {
    /// Sets the mark back to what is resident now (Linux: `5` into `/proc/self/clear_refs`).
    pub fn start() -> Self {
        let reset = fs::write("/proc/self/clear_refs", "5").ok();
        Self { start: reset.and_then(|()| Self::mark()) }
    }

    /// Largest resident set since the start in bytes; `None` where the start is not known.
    pub fn bytes(self) -> Option<u64> {
        self.start.and_then(|_| Self::mark())
    }

    fn mark() -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1024)
    }
}

#[derive(Clone, Debug)]
pub struct Scored {
    /// Averaged probabilities `[n, classes]` or `[n, labels]`, or mean scores `[n]` for regression; empty for texts.
    pub outputs: Vec<f64>,
    pub metrics: Metrics,
    pub reliability: Option<Reliability>,
    pub uncertainty: Option<metrics::Uncertainty>,
    pub tokens: Option<TokenAnswers>,
}

/// Metrics per token: `nll` in nats, its exponential as `perplexity`, the calibration of the most likely token.
pub fn score_tokens(tokens: TokenAnswers, draws: usize) -> Result<Scored> {
    let nll = tokens.nll()?;
    let diagram = tokens.reliability()?;
    let several = (draws > 1).then(|| mean(&tokens.mutual_information));
    let metrics = Metrics {
        n: tokens.log_probability.len() as u64,
        accuracy: Some(tokens.accuracy()?),
        macro_f1: None,
        standard: BTreeMap::from([("perplexity".to_owned(), Some(nll.exp()))]),
        nll: Some(nll),
        ece: Some(diagram.ece()),
        brier: None,
        entropy: Some(mean(&tokens.entropy)?),
        mutual_information: several.transpose()?,
    };
    let reliability = Some(Reliability::from(&diagram));
    Ok(Scored {
        outputs: Vec::new(),
        metrics,
        reliability,
        uncertainty: None,
        tokens: Some(tokens),
    })
}

/// Answers to the validation rows of `task` from their class logits, and metrics; labels are given
/// from a probability of .5 on.
pub fn score_draws(logits: &Prediction, task: &PreparedTask) -> Result<Scored> {
    match task.goal.answers {
        AnswerSpace::Score => regression(logits, task),
        AnswerSpace::Labels { .. } => {
            let thresholds = LabelThresholds::default().of(0, task.labels);
            score_labels(logits, task, &thresholds)
        }
        _ => classes(logits, task),
    }
}

/// The labels that `rows` have, `[rows, labels]`.
pub(crate) fn present(rows: &[TokenisedExample], labels: usize) -> Vec<bool> {
    let of_row = |row: &TokenisedExample| {
        let mut present = vec![false; labels];
        if let Some(Label::Set(own)) = row.answer.label() {
            for &label in own {
                present[label] = true;
            }
        }
        present
    };
    rows.iter().flat_map(of_row).collect()
}

/// Probabilities of presence from logits of two classes for each label, averaged over the members.
pub(crate) fn presence(logits: &Prediction) -> Result<Vec<f64>> {
    let logs = metrics::log_softmax(&logits.values, logits.width)?;
    let both = metrics::mean_probability(&logs, logits.members(), logits.width)?;
    // The sum of rounded terms may be larger than 1.
    Ok(both.chunks(logits.width).map(|pair| pair[0].min(1.0)).collect())
}

/// Answers and metrics of several labels, each given from its entry of `thresholds` on. Entropy and mutual information of a row
/// are sums over its labels, and calibration is that of the probability of a label.
pub(crate) fn score_labels(
    logits: &Prediction,
    task: &PreparedTask,
    thresholds: &[f64],
) -> Result<Scored> {
    let outputs = presence(logits)?;
    let present = present(&task.validation, task.labels);
    let found = LabelSetMetrics::new(&outputs, thresholds, &present)?;
    let shares: Vec<f64> = present.iter().map(|&present| f64::from(present)).collect();
    let diagram = ReliabilityDiagram::from_shares(&outputs, &shares)?;
    let logs = metrics::log_softmax(&logits.values, logits.width)?;
    let split = uncertainty(&logs, logits.members(), logits.width)?;
    let of_rows = |values: &[f64]| -> Vec<f64> {
        values.chunks(task.labels).map(|labels| labels.iter().sum()).collect()
    };
    let split = metrics::Uncertainty {
        predictive_entropy: of_rows(&split.predictive_entropy),
        expected_entropy: of_rows(&split.expected_entropy),
        mutual_information: of_rows(&split.mutual_information),
    };
    let several = (logits.members() > 1).then(|| mean(&split.mutual_information));
    let metrics = Metrics {
        n: task.validation.len() as u64,
        accuracy: Some(found.subset_accuracy),
        macro_f1: Some(found.macro_f1),
        standard: BTreeMap::from([(Metric::MicroF1.name().to_owned(), Some(found.micro_f1))]),
        nll: Some(found.nll),
        ece: Some(diagram.ece()),
        brier: Some(found.brier),
        entropy: Some(mean(&split.predictive_entropy)?),
        mutual_information: several.transpose()?,
    };
    let reliability = Some(Reliability::from(&diagram));
    Ok(Scored { outputs, metrics, reliability, uncertainty: Some(split), tokens: None })
}

fn classes(logits: &Prediction, task: &PreparedTask) -> Result<Scored> {
    // Rows that a cascade answered at the mean have no mutual information, so their mean has no value either.
    let all_drawn =
        logits.draws_per_example.as_ref().is_none_or(|made| made.iter().all(|&made| made > 0));
    let draws = logits.members();
    let logits = &logits.values;
    let classes = task.labels;
    let labels = labels(task);
    let logs = metrics::log_softmax(logits, classes)?;
    let outputs = metrics::mean_probability(&logs, draws, classes)?;
    let found = uncertainty(&logs, draws, classes)?;
    let several = (draws > 1 && all_drawn).then(|| mean(&found.mutual_information));
    let shares = shares(task);
    let mut predictions = Predictions::new(&outputs, classes, &labels)?;
    if let Some(shares) = &shares {
        predictions = predictions.with_shares(shares)?;
    }
    let diagram = predictions.reliability()?;
    let mut standard = BTreeMap::new();
    for metric in &task.goal.standard_metrics {
        let value = match metric {
            Metric::Accuracy => predictions.accuracy(),
            Metric::F1 => predictions.f1()?,
            Metric::Matthews => predictions.mcc()?,
            Metric::Pearson | Metric::Spearman | Metric::MicroF1 | Metric::Nll => continue,
        };
        standard.insert(metric.name().to_owned(), Some(value));
    }
    let metrics = Metrics {
        n: labels.len() as u64,
        accuracy: Some(predictions.accuracy()),
        macro_f1: Some(predictions.macro_f1()),
        standard,
        nll: Some(predictions.nll()),
        ece: Some(diagram.ece()),
        brier: Some(predictions.brier()),
        entropy: Some(mean(&found.predictive_entropy)?),
        mutual_information: several.transpose()?,
    };
    let reliability = Some(Reliability::from(&diagram));
    Ok(Scored { outputs, metrics, reliability, uncertainty: Some(found), tokens: None })
}

/// Classes that are the labels of the validation rows.
fn labels(task: &PreparedTask) -> Vec<usize> {
    task.validation.iter().filter_map(|row| row.answer.label()?.class()).collect()
}

/// The shares of the labels, `[rows, labels]`, if one of them is soft.
fn shares(task: &PreparedTask) -> Option<Vec<f64>> {
    let labels = || task.validation.iter().filter_map(|example| example.answer.label());
    let is_soft = labels().any(|label| matches!(label, Label::Shares(_)));
    is_soft.then(|| labels().filter_map(|label| label.shares(task.labels)).flatten().collect())
}

/// Predicted numbers, averaged over the members of `logits`.
pub(crate) fn mean_scores(logits: &Prediction) -> Vec<f64> {
    let members = logits.members() as f64;
    let own = |i: usize| logits.values.iter().skip(i).step_by(logits.rows).sum::<f64>();
    (0..logits.rows).map(|i| own(i) / members).collect()
}

/// Numbers that are the labels of `rows`.
pub(crate) fn targets(rows: &[TokenisedExample]) -> impl Iterator<Item = f64> {
    rows.iter().filter_map(|row| row.answer.label()?.score())
}

fn regression(logits: &Prediction, task: &PreparedTask) -> Result<Scored> {
    let outputs = mean_scores(logits);
    let targets: Vec<f64> = targets(&task.validation).collect();
    let errors: Vec<f64> = outputs.iter().zip(&targets).map(|(p, y)| (p - y).powi(2)).collect();
    // One row, or equal targets or predictions, have no correlation.
    let defined = |found: std::result::Result<f64, lrvd_core::Error>| match found {
        Err(lrvd_core::Error::Undefined { .. } | lrvd_core::Error::Length { .. }) => Ok(None),
        found => found.map(Some),
    };
    let standard = BTreeMap::from([
        (Metric::Pearson.name().to_owned(), defined(metrics::pearson(&outputs, &targets))?),
        (Metric::Spearman.name().to_owned(), defined(metrics::spearman(&outputs, &targets))?),
        ("mse".to_owned(), Some(mean(&errors)?)),
    ]);
    let metrics = Metrics { n: targets.len() as u64, standard, ..Metrics::default() };
    Ok(Scored { outputs, metrics, reliability: None, uncertainty: None, tokens: None })
}

/// Metrics, and reliability but of scores, by number of draws; of texts per token.
pub(crate) fn measures(
    scored: &BTreeMap<u32, Scored>,
) -> (BTreeMap<u32, Metrics>, BTreeMap<u32, Reliability>) {
    let reliable = |(&k, s): (&u32, &Scored)| Some((k, s.reliability.clone()?));
    let metrics = scored.iter().map(|(&k, s)| (k, s.metrics.clone())).collect();
    (metrics, scored.iter().filter_map(reliable).collect())
}

impl PreparedTask {
    pub(crate) fn write_predictions(
        &self,
        scored: &BTreeMap<u32, Scored>,
        path: &Path,
    ) -> Result<()> {
        path.parent().map_or(Ok(()), create_dir)?;
        if self.goal.answers == AnswerSpace::Tokens {
            write_json_lines(path, self.texts(scored))
        } else {
            write_json_lines(path, self.lines(scored))
        }
    }

    /// The answers to labelled validation rows, one by one.
    pub(crate) fn lines(
        &self,
        scored: &BTreeMap<u32, Scored>,
    ) -> impl Iterator<Item = PredictionLine> {
        let width = self.labels;
        let uncertain =
            || scored.iter().filter_map(|(&k, s)| Some((k, s, s.uncertainty.as_ref()?)));
        let rows = self.validation_ids.iter().zip(&self.validation).enumerate();
        rows.map(move |(i, (id, example))| PredictionLine {
            id: id.clone(),
            line: self.validation_places.get(i).and_then(|at| at.line()),
            row: self.validation_places.get(i).and_then(|at| at.row()),
            label: match example.answer.label() {
                Some(Label::Score(score)) => *score,
                label => label.and_then(Label::class).map_or(f64::NAN, |class| class as f64),
            },
            labels: match example.answer.label() {
                Some(Label::Set(labels)) => Some(labels.clone()),
                _ => None,
            },
            probs: scored
                .iter()
                .map(|(&k, s)| (k, s.outputs[i * width..(i + 1) * width].to_vec()))
                .collect(),
            entropy: uncertain().map(|(k, _, u)| (k, u.predictive_entropy[i])).collect(),
            // A single model agrees with itself: its mean is absent, and so are its values.
            mutual_information: uncertain()
                .filter(|(_, s, _)| s.metrics.mutual_information.is_some())
                .map(|(k, _, u)| (k, u.mutual_information[i]))
                .collect(),
        })
    }

    fn texts(&self, scored: &BTreeMap<u32, Scored>) -> impl Iterator<Item = TextLine<'_>> {
        let answers: Vec<(u32, &TokenAnswers)> =
            scored.iter().filter_map(|(&k, s)| Some((k, s.tokens.as_ref()?))).collect();
        let mut start = 0;
        self.validation_ids.iter().enumerate().map(move |(row, id)| {
            let tokens = answers.first().map_or(0, |(_, answers)| answers.per_row[row]);
            let means = |values: fn(&TokenAnswers) -> &[f64]| -> BTreeMap<u32, f64> {
                let mean = |answers| mean(&values(answers)[start..start + tokens]).unwrap_or(0.0);
                answers.iter().map(|&(draws, answers)| (draws, mean(answers))).collect()
            };
            let mut nll = means(|answers| &answers.log_probability);
            for log in nll.values_mut() {
                *log = -*log;
            }
            let entropy = means(|answers| &answers.entropy);
            let mut mutual_information = means(|answers| &answers.mutual_information);
            // A single model agrees with itself.
            mutual_information.retain(|&draws, _| draws > 1);
            start += tokens;
            let at = self.validation_places.get(row).copied();
            TextLine { id, at, tokens, nll, entropy, mutual_information }
        })
    }
}

#[derive(Serialize)]
struct TextLine<'a> {
    id: &'a str,
    #[serde(flatten)]
    at: Option<At>,
    tokens: usize,
    nll: BTreeMap<u32, f64>,
    entropy: BTreeMap<u32, f64>,
    mutual_information: BTreeMap<u32, f64>,
}

/// Shares of wrong answers for which a threshold is looked up.
const TARGETS: [f64; 4] = [0.01, 0.05, 0.1, 0.2];
const POINTS: usize = 100;

/// Risk against coverage, by number of draws; empty but for classes.
pub fn selective_records(
    scored: &BTreeMap<u32, Scored>,
    task: &PreparedTask,
) -> Result<BTreeMap<u32, SelectiveRecord>> {
    if matches!(
        task.goal.answers,
        AnswerSpace::Labels { .. } | AnswerSpace::Score | AnswerSpace::Tokens
    ) {
        return Ok(BTreeMap::new());
    }
    let labels = labels(task);
    let mut records = BTreeMap::new();
    for (&draws, scored) in scored {
        let predictions = Predictions::new(&scored.outputs, task.labels, &labels)?;
        let curve = metrics::RiskCoverage::new(&predictions.confidence(), &predictions.correct())?;
        let points = curve.points();
        let every = points.len().div_ceil(POINTS).max(1);
        // The last point, full coverage, is always there.
        let kept = points.iter().rev().step_by(every).map(|p| (p.coverage, p.risk));
        let mut thinned: Vec<(f64, f64)> = kept.collect();
        thinned.reverse();
        let targets = TARGETS.into_iter().map(|risk| {
            let found = curve.threshold_for_risk(risk);
            record::SelectiveTarget {
                risk,
                threshold: found.map(|point| point.threshold),
                coverage: found.map_or(0.0, |point| point.coverage),
            }
        });
        let record =
            SelectiveRecord { area: curve.area(), targets: targets.collect(), curve: thinned };
        records.insert(draws, record);
    }
    Ok(records)
}

/// The statistic `log α̂` of every rank direction, and of those `removed`; `None` without a posterior. The `threshold` is that at
/// which the method removes a direction, if it has one.
pub fn statistic_record(
    model: &impl NamedModule,
    config: &Config,
    threshold: Option<f64>,
    removed: &BTreeMap<String, Vec<f64>>,
) -> Result<Option<StatisticRecord>> {
    let present = statistics(model, config.statistic_options())?;
    if present.is_empty() && removed.is_empty() {
        return Ok(None);
    }
    let sorted = |mut map: BTreeMap<String, Vec<f64>>| {
        for values in map.values_mut() {
            values.sort_by(f64::total_cmp);
        }
        map
    };
    Ok(Some(StatisticRecord {
        name: "log_alpha".to_owned(),
        threshold,
        present: sorted(present),
        removed: sorted(removed.clone()),
    }))
}

/// Energy of the mean update that the first `k` directions capture, for every module of rank 2 or more that has a posterior:
/// the learned order is by its statistic.
pub fn energy_records(
    model: &impl NamedModule,
    config: &Config,
) -> Result<BTreeMap<String, EnergyRecord>> {
    let learned = statistics(model, config.statistic_options())?;
    let mut updates = Vec::new();
    model.visit_layers(&mut |path, layer| {
        let is_ordered = |a: &&LowRankAdapter| a.posterior().is_some() && a.rank() >= 2;
        if let Some(adapter) = layer.low_rank().filter(is_ordered) {
            updates.push((path.to_owned(), adapter.host_factors()));
        }
    });
    let mut records = BTreeMap::new();
    for (path, factors) in updates {
        let Ok(energy) = UpdateEnergy::new(&factors) else {
            // Shares are undefined for an update of norm 0.
            continue;
        };
        let magnitude = energy.order_by_norm_product();
        let Some(order) = learned.get(&path).map(|statistic| order_by_statistic(statistic)) else {
            continue;
        };
        let svd = energy.singular_value_curve();
        let learned = energy.curve(&order)?;
        let by_norm = energy.curve(&magnitude)?;
        let random = energy.permutation_mean();
        let auc = record::EnergyAuc {
            svd: area(&svd)?,
            learned: area(&learned)?,
            magnitude: area(&by_norm)?,
            random: area(&random)?,
            normalised_gap: normalised_gap(area(&learned)?, area(&random)?, area(&svd)?).ok(),
        };
        // A curve has the value 0 at `k = 0`.
        let from_zero = |curve| std::iter::once(0.0).chain::<Vec<f64>>(curve).collect();
        let record = EnergyRecord {
            definition: "residual".to_owned(),
            svd: from_zero(svd),
            learned: from_zero(learned),
            magnitude: from_zero(by_norm),
            random_mean: from_zero(random),
            auc,
        };
        records.insert(path, record);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::read_lines;
    use crate::method::fixture;
    use crate::settings::Preset;
    use crate::task::Goal;

    #[test]
    fn a_later_run_does_not_inherit_the_mark_of_an_earlier_one() {
        const LARGE: usize = 512 << 20;
        let first = PeakMemory::start();
        let block = vec![1_u8; LARGE];
        assert_eq!(std::hint::black_box(&block)[LARGE - 1], 1);
        let earlier = first.bytes();
        drop(block);
        let later = PeakMemory::start().bytes();
        assert_eq!(earlier.is_some(), later.is_some());
        if let (Some(earlier), Some(later)) = (earlier, later) {
            assert!(earlier >= LARGE as u64 && later < earlier, "{earlier} {later}");
        }
    }

    #[test]
    fn no_order_is_learned_without_a_posterior() {
        let lora = fixture::deberta(fixture::NO_POSITIONS);
        let records = energy_records(&lora, &Preset::Default.config()).unwrap();
        assert!(records.is_empty(), "{records:?}");
    }

    #[test]
    fn a_correlation_that_is_not_defined_is_none_beside_the_squared_error() {
        let scored = |targets: &[f64], outputs: &[f64]| {
            let example = |score: &f64| TokenisedExample::single(vec![1], Label::Score(*score));
            let task = PreparedTask {
                validation: targets.iter().map(example).collect(),
                ..PreparedTask::without_examples(Goal::new("score", AnswerSpace::Score))
            };
            let logits = Prediction::new(outputs.to_vec(), outputs.len(), 1);
            score_draws(&logits, &task).unwrap().metrics
        };
        for (targets, outputs, mse) in [
            (&[3.0][..], &[1.0][..], 4.0),
            (&[2.0, 2.0, 2.0], &[1.0, 2.0, 3.0], 2.0 / 3.0),
            (&[1.0, 2.0, 3.0], &[2.0, 2.0, 2.0], 2.0 / 3.0),
        ] {
            let metrics = scored(targets, outputs);
            let [pearson, spearman] = ["pearson", "spearman"].map(|name| metrics.standard[name]);
            assert_eq!((pearson, spearman), (None, None));
            assert!((metrics.standard["mse"].unwrap() - mse).abs() < 1e-15);
            let text = serde_json::to_string(&metrics).unwrap();
            assert!(text.contains(r#""pearson":null"#), "{text}");
            assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), metrics);
        }
        // What is not finite is an error all the same.
        assert!(scored(&[1.0, 2.0], &[1.0, 2.0]).standard["pearson"].is_some());
    }

    #[test]
    fn patience_and_evaluation_measure_soft_labels_against_their_shares() {
        let even = Label::Shares(vec![0.5, 0.5]);
        let task = PreparedTask {
            validation: vec![TokenisedExample::single(vec![1], even); 2],
            ..PreparedTask::without_examples(Goal::classification(
                "c",
                ["a", "b"].map(String::from).to_vec(),
            ))
        };
        let nll = |z: f64| {
            let logits = Prediction::new([z, 0.0].repeat(2), 2, 2);
            let metrics = score_draws(&logits, &task).unwrap().metrics;
            (metrics.nll.unwrap(), metrics.brier.unwrap(), metrics.ece.unwrap())
        };
        // ln 9 is a probability of .9: −½ ln .9 − ½ ln .1.
        let even = nll(0.0);
        let sure = nll(9.0_f64.ln());
        assert!(
            (even.0 - std::f64::consts::LN_2).abs() < 1e-12 && even.1 < 1e-20 && even.2 < 1e-12
        );
        assert!((sure.0 - 1.203_972_804_325_936).abs() < 1e-12, "{sure:?}");
        assert!((sure.1 - 0.32).abs() < 1e-12 && (sure.2 - 0.4).abs() < 1e-12, "{sure:?}");
    }

    #[test]
    fn uncertainty_is_written_for_every_number_of_draws() {
        let goal = Goal::classification("tone", ["a", "b", "c"].map(String::from).to_vec());
        let task = PreparedTask {
            validation: vec![TokenisedExample::single(vec![1], Label::Class(1))],
            validation_ids: vec!["first".to_owned()],
            ..PreparedTask::without_examples(goal)
        };
        // Without draws two members that contradict each other; one draw; two draws that agree.
        let b = [0.0, 9.0, 0.0];
        let c = [0.0, 0.0, 9.0];
        let answers = [(0, [b, c].concat()), (1, b.to_vec()), (2, [b, b].concat())];
        let scored = answers
            .map(|(k, logits)| (k, score_draws(&Prediction::new(logits, 1, 3), &task).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("predictions.jsonl");
        task.write_predictions(&BTreeMap::from(scored), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        let [line] = lines.as_slice() else { panic!("one example") };
        assert_eq!((line.id.as_str(), line.label), ("first", 1.0));
        assert_eq!(line.entropy.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(line.entropy[&0] > 0.6 && line.entropy[&1] < 0.1);
        // A single model has no members that could disagree.
        assert_eq!(line.mutual_information.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(line.mutual_information[&0] > 0.6 && line.mutual_information[&2] < 1e-12);

        // Answered at the mean: no mutual information, where a cascade spared the draws.
        let spared = Prediction {
            draws_per_example: Some(vec![0]),
            ..Prediction::new([b, b].concat(), 1, 3)
        };
        let scored = score_draws(&spared, &task).unwrap();
        assert_eq!(scored.metrics.mutual_information, None);
        task.write_predictions(&BTreeMap::from([(2, scored)]), &path).unwrap();
        let lines: Vec<PredictionLine> = read_lines(&path).unwrap();
        assert!(lines[0].mutual_information.is_empty() && lines[0].entropy.len() == 1);
    }
}
