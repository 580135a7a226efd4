//! Metrics of a step: likelihood, divergence, rank, calibration, speed.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::{ExecutionError, Tensor, TensorReadError};
use burn::train::ItemLazy;
use burn::train::metric::{
    Adaptor, LossInput, Metric, MetricAttributes, MetricMetadata, MetricName, Numeric,
    NumericAttributes, NumericEntry, SerializedEntry,
};
use lrvd_core::metrics::{
    Binning, DEFAULT_BINS, Predictions, ReliabilityDiagram, argmax_rows, softmax,
};

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

/// What a [`StepMetric`] measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Negative log-likelihood, nats per example.
    Nll,
    /// Unweighted KL divergence of the posterior, nats.
    Kl,
    /// Sum of ranks over the adapters.
    TotalRank,
    /// Share of right answers.
    Accuracy,
    /// Expected calibration error with [`DEFAULT_BINS`] bins.
    Ece,
    /// Brier score, in `[0, 2]`.
    Brier,
    /// Examples per second since the epoch's first batch.
    ExamplesPerSecond,
}

impl Quantity {
    /// Name, description and unit.
    const fn texts(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Self::Nll => ("NLL", "mean negative log-likelihood per example", Some("nats")),
            Self::Kl => {
                ("KL", "KL divergence of the posterior from the prior, unweighted", Some("nats"))
            }
            Self::TotalRank => ("Total rank", "sum of ranks over the adapters", None),
            Self::Accuracy => ("Accuracy", "share of right answers", None),
            Self::Ece => ("ECE", "expected calibration error, 15 bins, torchmetrics' edges", None),
            Self::Brier => {
                ("Brier", "mean squared error of the probabilities, summed over classes", None)
            }
            Self::ExamplesPerSecond => {
                let what = "examples per second since the epoch's first batch";
                ("Examples per second", what, Some("ex/s"))
            }
        }
    }
}

/// A [`Quantity`] for burn-train's learner: `metric_train_numeric(StepMetric::new(Quantity::Nll))`.
#[derive(Clone, Debug)]
pub struct StepMetric {
    quantity: Quantity,
    /// Value of the last step, if it has one.
    batch: Option<f64>,
    /// Value over the steps of the epoch so far, if there is one.
    epoch: Option<f64>,
    /// Sum over examples, and their number.
    sum: f64,
    count: usize,
    bins: Option<ReliabilityDiagram>,
    started: Option<Instant>,
}

impl StepMetric {
    /// Measures `quantity`.
    pub fn new(quantity: Quantity) -> Self {
        let (batch, epoch, bins, started) = (None, None, None, None);
        Self { quantity, batch, epoch, sum: 0.0, count: 0, bins, started }
    }

    /// Takes the mean over examples of values that are themselves means over so many of them.
    fn average(&mut self, found: Option<(f64, usize)>) {
        if let Some((value, count)) = found {
            self.sum += value * count as f64;
            self.count += count;
            self.epoch = Some(self.sum / self.count as f64);
        }
        self.batch = found.map(|(value, _)| value);
    }

    fn add(&mut self, output: &StepOutput) -> Result<(), TensorReadError> {
        match self.quantity {
            Quantity::Nll => {
                let nll = output.nll.clone().try_into_scalar::<f64>()?;
                self.average(Some((nll, output.targets.answers())));
            }
            Quantity::Accuracy => {
                self.average(with_predictions(output, |p| Ok((p.accuracy(), p.len())))?);
            }
            Quantity::Brier => {
                self.average(with_predictions(output, |p| Ok((p.brier(), p.len())))?);
            }
            // The latest: they belong to the parameters, not to the batches.
            Quantity::Kl => {
                self.batch = output.kl.clone().map(Tensor::try_into_scalar::<f64>).transpose()?;
                self.epoch = self.batch.or(self.epoch);
            }
            Quantity::TotalRank => {
                self.batch = Some(output.total_rank as f64);
                self.epoch = self.batch;
            }
            Quantity::Ece => {
                let bins =
                    with_predictions(output, |p| p.reliability(DEFAULT_BINS, Binning::default()))?;
                self.batch = bins.as_ref().map(ReliabilityDiagram::ece);
                match (&mut self.bins, bins) {
                    (Some(total), Some(bins)) => {
                        for (bin, new) in total.bins.iter_mut().zip(bins.bins) {
                            bin.count += new.count;
                            bin.correct += new.correct;
                            bin.confidence_sum += new.confidence_sum;
                        }
                    }
                    (total, bins) => *total = bins.or(total.take()),
                }
                self.epoch = self.bins.as_ref().map(ReliabilityDiagram::ece);
            }
            Quantity::ExamplesPerSecond => match self.started {
                // The start of the first batch is not known here.
                None => self.started = Some(Instant::now()),
                Some(started) => {
                    self.count += output.targets.rows();
                    self.batch = Some(self.count as f64 / started.elapsed().as_secs_f64());
                    self.epoch = self.batch;
                }
            },
        }
        Ok(())
    }

    fn entry(&self, serialized: Option<NumericEntry>) -> SerializedEntry {
        let (_, _, unit) = self.quantity.texts();
        let Some(entry) = serialized else { return SerializedEntry::not_available(unit) };
        let text = |value: Option<f64>| {
            let number =
                value.map_or_else(|| SerializedEntry::NOT_AVAILABLE.to_owned(), format_value);
            unit.map_or_else(|| number.clone(), |unit| format!("{number} {unit}"))
        };
        let formatted = format!("epoch {} - batch {}", text(self.epoch), text(self.batch));
        SerializedEntry::new(formatted, entry.serialize())
    }
}

impl Metric for StepMetric {
    type Input = StepOutput;

    fn name(&self) -> MetricName {
        Arc::new(self.quantity.texts().0.to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(self.quantity.texts().1.to_owned())
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = self.quantity.texts().2.map(ToOwned::to_owned);
        let higher = [Quantity::Accuracy, Quantity::ExamplesPerSecond];
        NumericAttributes { unit, higher_is_better: higher.contains(&self.quantity) }.into()
    }

    fn update(
        &mut self,
        output: &StepOutput,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.add(output)?;
        Ok(self.entry(self.value()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.entry(self.epoch.map(NumericEntry::Final)))
    }

    fn clear(&mut self) {
        *self = Self::new(self.quantity);
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
