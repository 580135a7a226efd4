//! What is measured: likelihood, divergence, rank, calibration, speed.

use std::time::Instant;

use burn::tensor::{Tensor, TensorReadError};
use lrvd_core::metrics::{Binning, DEFAULT_BINS, Predictions, ReliabilityDiagram, softmax};

use super::metric::{Measured, Quantity};

/// Mean negative log-likelihood of a batch.
#[derive(Clone, Debug)]
pub struct NllInput {
    /// Mean over the batch, nats, `[1]`.
    pub nll: Tensor<1>,
    /// Examples of the batch.
    pub examples: usize,
}

/// `Σ KL(q ‖ p)` over the adapters, unweighted.
#[derive(Clone, Debug)]
pub struct KlInput {
    /// Nats, `[1]`; `None` without a posterior.
    pub kl: Option<Tensor<1>>,
}

/// Sum of ranks over the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInput {
    /// Rank directions left.
    pub total_rank: usize,
}

/// Predicted classes of a batch with their labels.
#[derive(Clone, Debug)]
pub struct ClassesInput {
    /// `[batch, classes]`.
    pub logits: Tensor<2>,
    /// One-hot, `[batch, classes]`; `None` if the targets are no classes.
    pub labels: Option<Tensor<2>>,
}

/// Size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExamplesInput {
    /// Examples.
    pub examples: usize,
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

/// A mean over examples.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, mean: f64, count: usize) {
        self.sum += mean * count as f64;
        self.count += count;
    }

    fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// See [`NllMetric`].
#[derive(Clone, Debug, Default)]
pub struct Nll(Mean);

impl Quantity for Nll {
    type Input = NllInput;
    const NAME: &'static str = "NLL";
    const DESCRIPTION: &'static str = "mean negative log-likelihood per example";
    const UNIT: Option<&'static str> = Some("nats");
    const HIGHER_IS_BETTER: bool = false;

    fn update(&mut self, input: &NllInput) -> Result<Option<f64>, TensorReadError> {
        let value = input.nll.clone().try_into_scalar::<f64>()?;
        self.0.add(value, input.examples);
        Ok(Some(value))
    }

    fn epoch(&self) -> Option<f64> {
        self.0.value()
    }
}

/// See [`KlMetric`].
#[derive(Clone, Debug, Default)]
pub struct Kl(Option<f64>);

impl Quantity for Kl {
    type Input = KlInput;
    const NAME: &'static str = "KL";
    const DESCRIPTION: &'static str = "KL divergence of the posterior from the prior, unweighted";
    const UNIT: Option<&'static str> = Some("nats");
    const HIGHER_IS_BETTER: bool = false;

    fn update(&mut self, input: &KlInput) -> Result<Option<f64>, TensorReadError> {
        let kl = input.kl.clone().map(Tensor::try_into_scalar::<f64>).transpose()?;
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
pub struct TotalRank(Option<usize>);

impl Quantity for TotalRank {
    type Input = RankInput;
    const NAME: &'static str = "Total rank";
    const DESCRIPTION: &'static str = "sum of ranks over the adapters";
    const UNIT: Option<&'static str> = None;
    const HIGHER_IS_BETTER: bool = false;

    fn update(&mut self, input: &RankInput) -> Result<Option<f64>, TensorReadError> {
        self.0 = Some(input.total_rank);
        Ok(self.epoch())
    }

    fn epoch(&self) -> Option<f64> {
        self.0.map(|rank| rank as f64)
    }
}

/// Calls `use_predictions` with the batch's probabilities, in f64; `None` without classes, and for
/// logits that are no numbers.
fn with_predictions<T>(
    input: &ClassesInput,
    use_predictions: impl FnOnce(Predictions<'_>) -> Result<T, lrvd_core::Error>,
) -> Result<Option<T>, TensorReadError> {
    let Some(labels) = &input.labels else { return Ok(None) };
    let classes = input.logits.dims()[1];
    let logits = input.logits.clone().try_into_vec_as::<f64>()?;
    let one_hot = labels.clone().try_into_vec_as::<f64>()?;
    let checked = || {
        let labels = lrvd_core::metrics::argmax_rows(&one_hot, classes)?;
        let probabilities = softmax(&logits, classes)?;
        use_predictions(Predictions::new(&probabilities, classes, &labels)?)
    };
    Ok(checked().ok())
}

/// Quantities of single predictions, averaged over examples.
macro_rules! averaged {
    ($(#[$doc:meta] $name:ident, $shown:literal, $description:literal, $higher:literal, $value:ident;)*) => {$(
        #[$doc]
        #[derive(Clone, Debug, Default)]
        pub struct $name(Mean);

        impl Quantity for $name {
            type Input = ClassesInput;
            const NAME: &'static str = $shown;
            const DESCRIPTION: &'static str = $description;
            const UNIT: Option<&'static str> = None;
            const HIGHER_IS_BETTER: bool = $higher;

            fn update(&mut self, input: &ClassesInput) -> Result<Option<f64>, TensorReadError> {
                let batch = with_predictions(input, |p| Ok((p.$value(), p.len())))?;
                Ok(batch.map(|(value, count)| {
                    self.0.add(value, count);
                    value
                }))
            }

            fn epoch(&self) -> Option<f64> {
                self.0.value()
            }
        }
    )*};
}

averaged! {
    /// See [`AccuracyMetric`].
    Accuracy, "Accuracy", "share of right answers", true, accuracy;
    /// See [`BrierMetric`].
    Brier, "Brier", "mean squared error of the probabilities, summed over classes", false, brier;
}

/// See [`EceMetric`].
#[derive(Clone, Debug, Default)]
pub struct Ece(Option<ReliabilityDiagram>);

impl Quantity for Ece {
    type Input = ClassesInput;
    const NAME: &'static str = "ECE";
    const DESCRIPTION: &'static str = "expected calibration error, 15 bins, torchmetrics' edges";
    const UNIT: Option<&'static str> = None;
    const HIGHER_IS_BETTER: bool = false;

    fn update(&mut self, input: &ClassesInput) -> Result<Option<f64>, TensorReadError> {
        let batch = with_predictions(input, |p| p.reliability(DEFAULT_BINS, Binning::default()))?;
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
    type Input = ExamplesInput;
    const NAME: &'static str = "Examples per second";
    const DESCRIPTION: &'static str = "examples per second since the epoch's first batch";
    const UNIT: Option<&'static str> = Some("ex/s");
    const HIGHER_IS_BETTER: bool = true;

    fn update(&mut self, input: &ExamplesInput) -> Result<Option<f64>, TensorReadError> {
        match self.started {
            // The start of the first batch is not known here.
            None => self.started = Some(Instant::now()),
            Some(started) => {
                self.examples += input.examples;
                self.speed = Some(self.examples as f64 / started.elapsed().as_secs_f64());
            }
        }
        Ok(self.speed)
    }

    fn epoch(&self) -> Option<f64> {
        self.speed
    }
}
