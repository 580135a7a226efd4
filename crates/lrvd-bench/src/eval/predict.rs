//! Forward passes over a split.

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::noise::NoiseKey;

use super::metrics::mean_metrics;
use crate::data::batch::{PaddedBatch, TokenisedExample, evaluation_batches, restore_order};
use crate::error::BenchError;
use crate::report::Metrics;
use crate::train::{DeviceBatch, FitContext, SequenceModel};

/// Mixed into the run's seed for prediction, so that a draw never repeats a training step's noise.
const PREDICTION_SALT: u64 = 0x5052_4544_4943_5421;

/// Addresses the fixed draws of a predictor: the `k` draws of a seed are a reproducible ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSeed(pub u64);

impl DrawSeed {
    /// The pass of draw number `draw`: one weight draw for every example.
    pub fn pass(self, draw: usize) -> Pass {
        let key = NoiseKey::new(self.0 ^ PREDICTION_SALT).at_step(draw as u32);
        Pass::sampled(Scheme::Weights(DrawPer::Batch), key)
    }
}

/// Logits of `examples` in their order under `pass`, `[n, labels]` row-major.
///
/// Batches hold examples of like length, so that no attention is spent on shared padding.
///
/// # Errors
///
/// [`BenchError`] if the examples cannot be batched.
pub fn predict_logits<M: SequenceModel>(
    model: &M,
    examples: &[TokenisedExample],
    pass: &Pass,
    shape: &Batching<'_>,
) -> Result<Vec<f64>, BenchError> {
    let lengths: Vec<usize> = examples.iter().map(|e| e.ids.len()).collect();
    let batches = evaluation_batches(&lengths, shape.batch_size)?;
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(examples.len());
    for indices in &batches {
        let padded = PaddedBatch::collate(examples, indices, shape.pad_id)?;
        let batch = DeviceBatch::new(&padded, shape.labels, shape.device, shape.dtype);
        let logits: Tensor<2> = model.logits(&batch.input, pass);
        let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
        rows.extend(values.chunks(shape.labels).map(<[f64]>::to_vec));
    }
    Ok(restore_order(&batches, rows)?.concat())
}

/// How examples become batches of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Batching<'a> {
    /// Examples per batch.
    pub batch_size: usize,
    /// Id that fills a batch.
    pub pad_id: u32,
    /// Width of the model's output.
    pub labels: usize,
    /// Where to compute.
    pub device: &'a Device,
    /// Float type.
    pub dtype: DType,
}

impl<'a> Batching<'a> {
    fn of(context: &FitContext<'a>) -> Self {
        Self {
            batch_size: context.config.evaluation_batch_size,
            pad_id: context.task.pad_id,
            labels: context.task.labels,
            device: context.device,
            dtype: context.dtype,
        }
    }
}

/// Validation logits at the posterior mean, `[n, labels]`.
///
/// # Errors
///
/// [`BenchError`] if the examples cannot be batched.
pub fn predict_mean<M: SequenceModel>(
    model: &M,
    context: &FitContext<'_>,
) -> Result<Vec<f64>, BenchError> {
    predict_logits(model, &context.task.validation, &Pass::mean(), &Batching::of(context))
}

/// Validation logits of draws `0..draws`, `[draws, n, labels]`.
///
/// # Errors
///
/// [`BenchError`] if the examples cannot be batched.
pub fn predict_draws<M: SequenceModel>(
    model: &M,
    context: &FitContext<'_>,
    draws: usize,
) -> Result<Vec<f64>, BenchError> {
    let seed = DrawSeed(context.seed);
    let mut all = Vec::new();
    for draw in 0..draws {
        let pass = seed.pass(draw);
        all.extend(predict_logits(model, &context.task.validation, &pass, &Batching::of(context))?);
    }
    Ok(all)
}

/// Metrics of the validation split at the posterior mean.
///
/// # Errors
///
/// As [`predict_mean`], and [`BenchError::Metric`] for logits that are not finite.
pub fn evaluate_mean<M: SequenceModel>(
    model: &M,
    context: &FitContext<'_>,
) -> Result<Metrics, BenchError> {
    let logits = predict_mean(model, context)?;
    mean_metrics(&logits, context.task)
}
