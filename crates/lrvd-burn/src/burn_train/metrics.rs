//! Metrics of a step: likelihood, divergence, rank, calibration, speed.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{ExecutionError, Tensor, TensorReadError};
use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, LossInput, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry, SerializedEntry,
};
use lrvd_core::metrics::{Predictions, ReliabilityDiagram, argmax_rows, softmax};

use crate::train::Targets;

/// Outcome of one training or validation step.
#[derive(Clone, Debug)]
pub struct StepOutput {
    /// The objective, `[1]`.
    pub loss: Tensor<1>,
    /// Mean negative log-likelihood, nats, `[1]`.
    pub nll: Tensor<1>,
    /// `Σ KL(q ‖ p)`, nats, `[1]`; `None` without a posterior.
    pub kl: Option<Tensor<1>>,
    /// Sum of ranks over the adapters.
    pub total_rank: usize,
    /// `[rows, classes]`, scores `[rows, 1]`, or those of tokens `[answers, vocabulary]`.
    pub logits: Tensor<2>,
    /// Expected answers.
    pub targets: Targets,
}

impl ItemLazy for StepOutput {
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        Ok(Self {
            loss: self.loss.without_autodiff(),
            nll: self.nll.without_autodiff(),
            kl: self.kl.map(Tensor::without_autodiff),
            logits: self.logits.without_autodiff(),
            ..self
        })
    }
}

impl Adaptor<LossInput> for StepOutput {
    fn adapt(&self) -> LossInput {
        LossInput::new(self.loss.clone())
    }
}

impl Adaptor<StepOutput> for StepOutput {
    fn adapt(&self) -> Self {
        self.clone()
    }
}

/// A quantity of the steps of an epoch for burn-train's learner: `metric_train_numeric(StepMetric::nll())`.
#[derive(Clone, Debug)]
pub struct StepMetric {
    name: &'static str,
    description: &'static str,
    unit: Option<&'static str>,
    /// Adds a step to the epoch, and returns its own value, if it has one.
    add: fn(&mut Self, &StepOutput) -> Result<Option<f64>, TensorReadError>,
    /// Value of the last step, and that over the steps of the epoch so far.
    batch: Option<f64>,
    epoch: Option<f64>,
    /// Sum over examples, and their number.
    sum: f64,
    count: usize,
    bins: Option<ReliabilityDiagram>,
    started: Option<Instant>,
}

impl StepMetric {
    fn new(
        name: &'static str,
        description: &'static str,
        unit: Option<&'static str>,
        add: fn(&mut Self, &StepOutput) -> Result<Option<f64>, TensorReadError>,
    ) -> Self {
        let (batch, epoch, sum, count, bins, started) = (None, None, 0.0, 0, None, None);
        Self { name, description, unit, add, batch, epoch, sum, count, bins, started }
    }

    /// Negative log-likelihood, nats per example.
    pub fn nll() -> Self {
        Self::new("NLL", "mean negative log-likelihood per example", Some("nats"), |m, output| {
            let nll = output.nll.clone().try_into_scalar::<f64>()?;
            Ok(m.average(Some((nll, output.targets.answers()))))
        })
    }

    /// Unweighted KL divergence of the posterior, nats; the latest, as it belongs to the parameters and not to the batches.
    pub fn kl() -> Self {
        let what = "KL divergence of the posterior from the prior, unweighted";
        Self::new("KL", what, Some("nats"), |m, output| {
            let kl = output.kl.clone().map(Tensor::try_into_scalar::<f64>).transpose()?;
            m.epoch = kl.or(m.epoch);
            Ok(kl)
        })
    }

    /// Sum of ranks over the adapters, the latest.
    pub fn total_rank() -> Self {
        Self::new("Total rank", "sum of ranks over the adapters", None, |m, output| {
            m.epoch = Some(output.total_rank as f64);
            Ok(m.epoch)
        })
    }

    /// Share of right answers.
    pub fn accuracy() -> Self {
        Self::new("Accuracy", "share of right answers", None, |m, output| {
            Ok(m.average(with_predictions(output, |p| Ok((p.accuracy(), p.len())))?))
        })
    }

    /// Brier score, in `[0, 2]`.
    pub fn brier() -> Self {
        let what = "mean squared error of the probabilities, summed over classes";
        Self::new("Brier", what, None, |m, output| {
            Ok(m.average(with_predictions(output, |p| Ok((p.brier(), p.len())))?))
        })
    }

    /// Expected calibration error; see [`ReliabilityDiagram`].
    pub fn ece() -> Self {
        let what = "expected calibration error, 15 bins, torchmetrics' edges";
        Self::new("ECE", what, None, |m, output| {
            let found = |p: Predictions<'_>| p.reliability();
            let Some(batch) = with_predictions(output, found)? else { return Ok(None) };
            let value = batch.ece();
            match &mut m.bins {
                Some(total) => {
                    for (bin, new) in total.bins.iter_mut().zip(batch.bins) {
                        bin.count += new.count;
                        bin.correct += new.correct;
                        bin.confidence_sum += new.confidence_sum;
                    }
                }
                none => *none = Some(batch),
            }
            m.epoch = m.bins.as_ref().map(ReliabilityDiagram::ece);
            Ok(Some(value))
        })
    }

    /// Examples per second since the epoch's first batch, whose own start is not known.
    pub fn examples_per_second() -> Self {
        let what = "examples per second since the epoch's first batch";
        Self::new("Examples per second", what, Some("ex/s"), |m, output| {
            if let Some(started) = m.started {
                m.count += output.targets.rows();
                m.epoch = Some(m.count as f64 / started.elapsed().as_secs_f64());
            }
            m.started.get_or_insert_with(Instant::now);
            Ok(m.epoch)
        })
    }

    /// Takes the mean over examples of values that are themselves means over so many of them.
    fn average(&mut self, found: Option<(f64, usize)>) -> Option<f64> {
        let (value, count) = found?;
        self.sum += value * count as f64;
        self.count += count;
        self.epoch = Some(self.sum / self.count as f64);
        Some(value)
    }

    fn entry(&self, serialized: Option<NumericEntry>) -> SerializedEntry {
        let Some(entry) = serialized else { return SerializedEntry::not_available(self.unit) };
        let text = |value: Option<f64>| {
            let number =
                value.map_or_else(|| SerializedEntry::NOT_AVAILABLE.to_owned(), format_value);
            self.unit.map_or_else(|| number.clone(), |unit| format!("{number} {unit}"))
        };
        let formatted = format!("epoch {} - batch {}", text(self.epoch), text(self.batch));
        SerializedEntry::new(formatted, entry.serialize())
    }
}

impl Metric for StepMetric {
    type Input = StepOutput;

    fn name(&self) -> MetricName {
        Arc::new(self.name.to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(self.description.to_owned())
    }

    fn attributes(&self) -> MetricAttributes {
        let higher_is_better = ["Accuracy", "Examples per second"].contains(&self.name);
        NumericAttributes { unit: self.unit.map(ToOwned::to_owned), higher_is_better }.into()
    }

    fn update(
        &mut self,
        output: &StepOutput,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.batch = (self.add)(self, output)?;
        Ok(self.entry(self.value()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.entry(self.epoch.map(NumericEntry::Final)))
    }

    fn clear(&mut self) {
        *self = Self::new(self.name, self.description, self.unit, self.add);
    }
}

impl Numeric for StepMetric {
    fn value(&self) -> Option<NumericEntry> {
        self.batch.map(NumericEntry::Value)
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.epoch.map(NumericEntry::Value)
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.epoch.unwrap_or(f64::NAN))
    }
}

/// Four significant digits or all digits before the point.
fn format_value(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && magnitude < 1e-3 {
        format!("{value:.3e}")
    } else if magnitude < 100.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.0}")
    }
}

/// Calls `of` with the probabilities of a step, in f64; `None` without classes, and for logits that are no numbers.
fn with_predictions<T>(
    output: &StepOutput,
    of: impl FnOnce(Predictions<'_>) -> Result<T, lrvd_core::Error>,
) -> Result<Option<T>, TensorReadError> {
    let Targets::Classes(one_hot) = &output.targets else { return Ok(None) };
    let classes = output.logits.dims()[1];
    let logits = output.logits.clone().try_into_vec_as::<f64>()?;
    let one_hot = one_hot.clone().try_into_vec_as::<f64>()?;
    let checked = || {
        let labels = argmax_rows(&one_hot, classes)?;
        let probabilities = softmax(&logits, classes)?;
        of(Predictions::new(&probabilities, classes, &labels)?)
    };
    Ok(checked().ok())
}
