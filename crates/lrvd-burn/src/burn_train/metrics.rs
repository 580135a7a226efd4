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

/// What a metric measures: its name, how it reads a step, and its value over the steps of an epoch.
pub trait Quantity: Clone + Default + Send + Sync {
    /// Name in the dashboard, in summaries and in log files.
    const NAME: &'static str;
    /// What the name leaves open.
    const DESCRIPTION: &'static str;
    /// Unit, if it has one.
    const UNIT: Option<&'static str> = None;
    /// Which direction is better.
    const HIGHER_IS_BETTER: bool = false;

    /// Adds a step and returns its value; `None` if the quantity is undefined for it.
    fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError>;

    /// Value over the steps of the epoch so far; `None` if there is none.
    fn epoch(&self) -> Option<f64>;
}

/// A [`Quantity`] for burn-train's learner: `metric_train_numeric(NllMetric::default())`.
#[derive(Clone, Debug, Default)]
pub struct Measured<Q> {
    quantity: Q,
    batch: Option<f64>,
}

impl<Q: Quantity> Measured<Q> {
    fn entry(&self, serialized: Option<NumericEntry>) -> SerializedEntry {
        let Some(entry) = serialized else { return SerializedEntry::not_available(Q::UNIT) };
        let text = |value: Option<f64>| {
            let number =
                value.map_or_else(|| SerializedEntry::NOT_AVAILABLE.to_owned(), format_value);
            Q::UNIT.map_or_else(|| number.clone(), |unit| format!("{number} {unit}"))
        };
        let formatted =
            format!("epoch {} - batch {}", text(self.quantity.epoch()), text(self.batch));
        SerializedEntry::new(formatted, entry.serialize())
    }
}

impl<Q: Quantity> Metric for Measured<Q> {
    type Input = StepOutput;

    fn name(&self) -> MetricName {
        Arc::new(Q::NAME.to_owned())
    }

    fn description(&self) -> Option<String> {
        Some(Q::DESCRIPTION.to_owned())
    }

    fn attributes(&self) -> MetricAttributes {
        let unit = Q::UNIT.map(ToOwned::to_owned);
        NumericAttributes { unit, higher_is_better: Q::HIGHER_IS_BETTER }.into()
    }

    fn update(
        &mut self,
        output: &StepOutput,
        _metadata: &MetricMetadata,
    ) -> Result<SerializedEntry, TensorReadError> {
        self.batch = self.quantity.update(output)?;
        Ok(self.entry(self.value()))
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.entry(self.quantity.epoch().map(NumericEntry::Final)))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<Q: Quantity> Numeric for Measured<Q> {
    fn value(&self) -> Option<NumericEntry> {
        self.batch.map(NumericEntry::Value)
    }

    fn running_value(&self) -> Option<NumericEntry> {
        self.quantity.epoch().map(NumericEntry::Value)
    }

    fn final_value(&self) -> NumericEntry {
        NumericEntry::Final(self.quantity.epoch().unwrap_or(f64::NAN))
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

/// Negative log-likelihood, nats per example.
pub type NllMetric = Measured<Nll>;
/// Unweighted KL divergence of the posterior, nats.
pub type KlMetric = Measured<Kl>;
/// Sum of ranks over the adapters.
pub type TotalRankMetric = Measured<TotalRank>;
/// Share of right answers.
pub type AccuracyMetric = Measured<Accuracy>;
/// Expected calibration error with [`DEFAULT_BINS`] bins.
pub type EceMetric = Measured<Ece>;
/// Brier score, in `[0, 2]`.
pub type BrierMetric = Measured<Brier>;
/// Examples per second since the epoch's first batch.
pub type ExamplesPerSecondMetric = Measured<ExamplesPerSecond>;

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

/// Quantities that are averaged over examples: from a step's value and number of examples.
macro_rules! averaged {
    ($(#[$doc:meta] $name:ident, $shown:literal, $unit:expr, $higher:literal, $description:literal, $value:expr;)*) => {$(
        #[$doc]
        #[derive(Clone, Debug, Default)]
        pub struct $name {
            sum: f64,
            count: usize,
        }

        impl Quantity for $name {
            const NAME: &'static str = $shown;
            const DESCRIPTION: &'static str = $description;
            const UNIT: Option<&'static str> = $unit;
            const HIGHER_IS_BETTER: bool = $higher;

            fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError> {
                let value: fn(&StepOutput) -> Result<Option<(f64, usize)>, TensorReadError> = $value;
                Ok(value(output)?.map(|(value, count)| {
                    self.sum += value * count as f64;
                    self.count += count;
                    value
                }))
            }

            fn epoch(&self) -> Option<f64> {
                (self.count > 0).then(|| self.sum / self.count as f64)
            }
        }
    )*};
}

averaged! {
    /// See [`NllMetric`].
    Nll, "NLL", Some("nats"), false, "mean negative log-likelihood per example",
        |o| Ok(Some((o.nll.clone().try_into_scalar::<f64>()?, o.targets.answers())));
    /// See [`AccuracyMetric`].
    Accuracy, "Accuracy", None, true, "share of right answers",
        |o| with_predictions(o, |p| Ok((p.accuracy(), p.len())));
    /// See [`BrierMetric`].
    Brier, "Brier", None, false, "mean squared error of the probabilities, summed over classes",
        |o| with_predictions(o, |p| Ok((p.brier(), p.len())));
}

/// See [`KlMetric`].
#[derive(Clone, Debug, Default)]
pub struct Kl(Option<f64>);

impl Quantity for Kl {
    const NAME: &'static str = "KL";
    const DESCRIPTION: &'static str = "KL divergence of the posterior from the prior, unweighted";
    const UNIT: Option<&'static str> = Some("nats");

    fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError> {
        let kl = output.kl.clone().map(Tensor::try_into_scalar::<f64>).transpose()?;
        self.0 = kl.or(self.0);
        Ok(kl)
    }

    /// The latest: it belongs to the parameters, not to the batches.
    fn epoch(&self) -> Option<f64> {
        self.0
    }
}

/// See [`TotalRankMetric`].
#[derive(Clone, Debug, Default)]
pub struct TotalRank(Option<f64>);

impl Quantity for TotalRank {
    const NAME: &'static str = "Total rank";
    const DESCRIPTION: &'static str = "sum of ranks over the adapters";

    fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError> {
        self.0 = Some(output.total_rank as f64);
        Ok(self.0)
    }

    fn epoch(&self) -> Option<f64> {
        self.0
    }
}

/// See [`EceMetric`].
#[derive(Clone, Debug, Default)]
pub struct Ece(Option<ReliabilityDiagram>);

impl Quantity for Ece {
    const NAME: &'static str = "ECE";
    const DESCRIPTION: &'static str = "expected calibration error, 15 bins, torchmetrics' edges";

    fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError> {
        let batch = with_predictions(output, |p| p.reliability(DEFAULT_BINS, Binning::default()))?;
        let Some(batch) = batch else { return Ok(None) };
        let value = batch.ece();
        match &mut self.0 {
            None => self.0 = Some(batch),
            Some(total) => {
                for (bin, new) in total.bins.iter_mut().zip(&batch.bins) {
                    bin.count += new.count;
                    bin.correct += new.correct;
                    bin.confidence_sum += new.confidence_sum;
                }
            }
        }
        Ok(Some(value))
    }

    fn epoch(&self) -> Option<f64> {
        self.0.as_ref().map(ReliabilityDiagram::ece)
    }
}

/// See [`ExamplesPerSecondMetric`].
#[derive(Clone, Debug, Default)]
pub struct ExamplesPerSecond {
    started: Option<Instant>,
    examples: usize,
    speed: Option<f64>,
}

impl Quantity for ExamplesPerSecond {
    const NAME: &'static str = "Examples per second";
    const DESCRIPTION: &'static str = "examples per second since the epoch's first batch";
    const UNIT: Option<&'static str> = Some("ex/s");
    const HIGHER_IS_BETTER: bool = true;

    fn update(&mut self, output: &StepOutput) -> Result<Option<f64>, TensorReadError> {
        match self.started {
            // The start of the first batch is not known here.
            None => self.started = Some(Instant::now()),
            Some(started) => {
                self.examples += output.targets.rows();
                self.speed = Some(self.examples as f64 / started.elapsed().as_secs_f64());
            }
        }
        Ok(self.speed)
    }

    fn epoch(&self) -> Option<f64> {
        self.speed
    }
}
