//! Logits to the numbers of a record.

use std::collections::BTreeMap;

use lrvd_burn::train::Logits;
use lrvd_core::metrics::{
    BinaryCounts, Binning, DEFAULT_BINS, Predictions, Uncertainty, f1_macro, log_softmax, mean,
    mean_probability, pearson, spearman, uncertainty,
};

use crate::data::{Label, PreparedTask};
use crate::error::Result;
use crate::record::{Metrics, Reliability};
use crate::task::Metric;

/// Everything computed from the logits of one predictor.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Averaged probabilities `[n, classes]`, or mean scores `[n]` for regression.
    pub outputs: Vec<f64>,
    pub metrics: Metrics,
    /// Reliability bins; `None` for regression.
    pub reliability: Option<Reliability>,
    /// Per-example uncertainty; `None` for regression.
    pub uncertainty: Option<Uncertainty>,
}

pub fn score_draws(logits: &Logits, task: &PreparedTask) -> Result<Scored> {
    if task.goal.is_regression() {
        regression(&logits.values, logits.members(), task)
    } else {
        classes(logits, task)
    }
}

fn classes(logits: &Logits, task: &PreparedTask) -> Result<Scored> {
    // Rows that a cascade answered at the mean have no mutual information, so their mean has no value either.
    let all_drawn = logits.made.as_ref().is_none_or(|made| made.iter().all(|&made| made > 0));
    let (draws, logits, classes) = (logits.members(), &logits.values, task.labels);
    let labels: Vec<usize> = task.validation.iter().filter_map(|e| e.label.class()).collect();
    let logs = log_softmax(logits, classes)?;
    let outputs = mean_probability(&logs, draws, classes)?;
    let found = uncertainty(&logs, draws, classes)?;
    let predictions = Predictions::new(&outputs, classes, &labels)?;
    let diagram = predictions.reliability(DEFAULT_BINS, Binning::Torchmetrics)?;
    let mut standard = BTreeMap::new();
    for metric in &task.goal.standard_metrics {
        let value = match metric {
            Metric::Accuracy => predictions.accuracy(),
            Metric::F1 => BinaryCounts::new(&predictions.predicted(), &labels)?.f1(),
            Metric::Matthews => BinaryCounts::new(&predictions.predicted(), &labels)?.mcc(),
            Metric::Pearson | Metric::Spearman => continue,
        };
        standard.insert(metric.name().to_owned(), value);
    }
    let metrics = Metrics {
        n: labels.len() as u64,
        accuracy: Some(predictions.accuracy()),
        macro_f1: Some(f1_macro(&predictions.predicted(), &labels, classes)?),
        standard,
        nll: Some(predictions.nll()),
        ece: Some(diagram.ece()),
        brier: Some(predictions.brier()),
        entropy: Some(mean(&found.predictive_entropy)?),
        mutual_information: if draws > 1 && all_drawn {
            Some(mean(&found.mutual_information)?)
        } else {
            None
        },
    };
    let reliability = Reliability::from(&diagram);
    Ok(Scored { outputs, metrics, reliability: Some(reliability), uncertainty: Some(found) })
}

fn regression(logits: &[f64], draws: usize, task: &PreparedTask) -> Result<Scored> {
    let targets: Vec<f64> = task.validation.iter().filter_map(|e| e.label.score()).collect();
    let n = targets.len();
    let outputs: Vec<f64> =
        (0..n).map(|i| (0..draws).map(|t| logits[t * n + i]).sum::<f64>() / draws as f64).collect();
    let errors: Vec<f64> = outputs.iter().zip(&targets).map(|(p, y)| (p - y).powi(2)).collect();
    let standard = BTreeMap::from([
        (Metric::Pearson.name().to_owned(), pearson(&outputs, &targets)?),
        (Metric::Spearman.name().to_owned(), spearman(&outputs, &targets)?),
        ("mse".to_owned(), mean(&errors)?),
    ]);
    let metrics = Metrics {
        n: n as u64,
        accuracy: None,
        macro_f1: None,
        standard,
        nll: None,
        ece: None,
        brier: None,
        entropy: None,
        mutual_information: None,
    };
    Ok(Scored { outputs, metrics, reliability: None, uncertainty: None })
}

pub fn label_number(label: Label) -> f64 {
    match label {
        Label::Class(class) => class as f64,
        Label::Score(score) => score,
    }
}
