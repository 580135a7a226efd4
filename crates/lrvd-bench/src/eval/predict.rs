//! Forward passes over a split.

use burn::tensor::{DType, Device, Tensor};
use lrvd_burn::model::check_scheme;
use lrvd_burn::sampling::{DrawPer, Pass, Scheme};
use lrvd_core::moments::CrossTerm;
use lrvd_core::noise::NoiseKey;

use super::{EvalError, RunContext};
use crate::backbone::SequenceModel;
use crate::data::batch::{
    DeviceBatch, PaddedBatch, TokenisedExample, evaluation_batches, restore_order,
};
use crate::settings::PredictionDraws;

/// Mixed into the run's seed for prediction, so that a draw never repeats a training step's noise.
const PREDICTION_SALT: u64 = 0x5052_4544_4943_5421;

/// Addresses the fixed draws of a predictor: the `k` draws of a seed are a reproducible ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSeed(pub u64);

impl DrawSeed {
    /// The key of draw number `draw`.
    pub fn key(self, draw: usize) -> NoiseKey {
        NoiseKey::new(self.0 ^ PREDICTION_SALT).at_step(draw as u32)
    }

    /// The key of draw number `draw` in batch number `batch`, for draws that differ between batches.
    fn key_in_batch(self, draw: usize, batch: usize) -> NoiseKey {
        // Above every seed that a suite takes.
        Self(self.0 ^ ((batch as u64 + 1) << 40)).key(draw)
    }

    /// The pass of draw number `draw`: one weight draw for every example.
    pub fn pass(self, draw: usize) -> Pass {
        weight_draw(self.key(draw))
    }
}

/// Logits of `examples` in their order under `pass`, `[n, labels]` row-major.
///
/// Batches hold examples of like length, so that no attention is spent on shared padding.
///
/// # Errors
///
/// [`EvalError`] if the examples cannot be batched.
pub fn predict_logits<M: SequenceModel>(
    model: &M,
    examples: &[TokenisedExample],
    pass: &Pass,
    shape: &Batching<'_>,
) -> Result<Vec<f64>, EvalError> {
    member_logits(model, examples, &|_| *pass, shape, 1)
}

/// As [`predict_logits`], of a model that holds `members` models side by side,
/// `[members, n, labels]`, with the pass of each batch by its number.
fn member_logits<M: SequenceModel>(
    model: &M,
    examples: &[TokenisedExample],
    pass: &dyn Fn(usize) -> Pass,
    shape: &Batching<'_>,
    members: usize,
) -> Result<Vec<f64>, EvalError> {
    let lengths: Vec<usize> = examples.iter().map(|e| e.ids.len()).collect();
    // A pass has every example once for each member, and about as many rows as other methods' passes.
    let batches = evaluation_batches(&lengths, shape.batch_size.div_ceil(members))?;
    let mut rows: Vec<Vec<Vec<f64>>> = vec![Vec::with_capacity(examples.len()); members];
    for (number, indices) in batches.iter().enumerate() {
        let padded = PaddedBatch::collate(examples, indices, shape.pad_id)?;
        let batch = DeviceBatch::new(&padded, shape.labels, shape.device, shape.dtype);
        let logits: Tensor<2> = model.logits(&batch.repeat(members).input, &pass(number));
        let values: Vec<f64> = logits.into_data().iter::<f64>().collect();
        for (rows, values) in rows.iter_mut().zip(values.chunks(indices.len() * shape.labels)) {
            rows.extend(values.chunks(shape.labels).map(<[f64]>::to_vec));
        }
    }
    let mut all = Vec::with_capacity(members * examples.len() * shape.labels);
    for rows in rows {
        all.extend(restore_order(&batches, rows)?.concat());
    }
    Ok(all)
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
    fn of(context: &RunContext<'a>) -> Self {
        Self {
            batch_size: context.config.evaluation_batch_size,
            pad_id: context.task.pad_id,
            labels: context.task.labels,
            device: context.device,
            dtype: context.dtype,
        }
    }
}

/// Examples that a method answers, with the seed of its draws.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The examples.
    pub examples: &'a [TokenisedExample],
    /// How they become batches.
    pub batching: Batching<'a>,
    /// Addresses the draws.
    pub seed: u64,
    /// What a draw is.
    pub prediction_draws: PredictionDraws,
}

impl<'a> Inputs<'a> {
    /// Any examples of a run.
    pub fn of(context: &RunContext<'a>, examples: &'a [TokenisedExample]) -> Self {
        Self {
            examples,
            batching: Batching::of(context),
            seed: context.seed,
            prediction_draws: context.config.prediction_draws,
        }
    }

    /// The validation split.
    pub fn validation(context: &RunContext<'a>) -> Self {
        Self::of(context, &context.task.validation)
    }

    /// The examples kept out of training.
    pub fn holdout(context: &RunContext<'a>) -> Self {
        Self::of(context, &context.task.holdout)
    }

    /// Logits under one pass, `[n, labels]`.
    ///
    /// # Errors
    ///
    /// [`EvalError`] if the examples cannot be batched.
    pub fn logits<M: SequenceModel>(&self, model: &M, pass: &Pass) -> Result<Vec<f64>, EvalError> {
        predict_logits(model, self.examples, pass, &self.batching)
    }

    /// Logits under one pass of a model that holds `members` models side by side (LoRA-Ensemble),
    /// `[members, n, labels]`.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn logits_of_members<M: SequenceModel>(
        &self,
        model: &M,
        pass: &Pass,
        members: usize,
    ) -> Result<Vec<f64>, EvalError> {
        member_logits(model, self.examples, &|_| *pass, &self.batching, members.max(1))
    }

    /// Logits of one pass for each of `draws` keys, `[draws, n, labels]`. A key serves all batches or,
    /// unless the settings ask for fixed draws, one.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn drawn<M: SequenceModel>(
        &self,
        model: &M,
        draws: usize,
        pass: impl Fn(NoiseKey) -> Pass,
    ) -> Result<Vec<f64>, EvalError> {
        let mut all = Vec::with_capacity(draws * self.examples.len() * self.batching.labels);
        let seed = DrawSeed(self.seed);
        for draw in 0..draws {
            let of_batch = |batch| match self.prediction_draws {
                PredictionDraws::Weights => pass(seed.key(draw)),
                PredictionDraws::Fresh | PredictionDraws::Activation => {
                    pass(seed.key_in_batch(draw, batch))
                }
            };
            all.extend(member_logits(model, self.examples, &of_batch, &self.batching, 1)?);
        }
        Ok(all)
    }

    /// The posterior mean for 0 draws, else draws of the kind that the settings ask for,
    /// `[max(draws, 1), n, labels]`.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn predict<M: SequenceModel>(
        &self,
        model: &M,
        draws: usize,
    ) -> Result<Vec<f64>, EvalError> {
        let outputs = Scheme::MomentMatched(CrossTerm::Exact);
        let scheme = match self.prediction_draws {
            PredictionDraws::Activation if check_scheme(model, outputs).is_ok() => outputs,
            _ => Scheme::Weights(DrawPer::Batch),
        };
        self.predict_by(scheme, model, draws)
    }

    /// The mean for 0 draws, else passes of `scheme`, `[max(draws, 1), n, labels]`.
    ///
    /// # Errors
    ///
    /// As [`Inputs::logits`].
    pub fn predict_by<M: SequenceModel>(
        &self,
        scheme: Scheme,
        model: &M,
        draws: usize,
    ) -> Result<Vec<f64>, EvalError> {
        if draws == 0 {
            return self.logits(model, &Pass::mean());
        }
        self.drawn(model, draws, |key| Pass::sampled(scheme, key))
    }
}

/// One weight draw for every example.
fn weight_draw(key: NoiseKey) -> Pass {
    Pass::sampled(Scheme::Weights(DrawPer::Batch), key)
}
