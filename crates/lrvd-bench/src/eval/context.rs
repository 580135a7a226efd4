//! What one run is about.

use burn::tensor::{DType, Device};
use lrvd_burn::train::{Inputs, PassWatch};
use lrvd_models::TokenBatch;

use super::PeakMemory;
use crate::data::PreparedTask;
use crate::data::batch::{TokenExamples, TokenisedExample};
use crate::settings::ValidConfig;

/// What training, fitting and answering need beside the model.
#[derive(Clone, Copy, Debug)]
pub struct RunContext<'a> {
    pub config: &'a ValidConfig,
    pub task: &'a PreparedTask,
    pub seed: u64,
    pub device: &'a Device,
    pub dtype: DType,
    /// Resident memory since the start of the run.
    pub memory: PeakMemory,
    pub watch: PassWatch<'a>,
}

impl<'a> RunContext<'a> {
    /// `examples` as this run's model reads them.
    pub fn examples(&self, examples: &'a [TokenisedExample]) -> TokenExamples<'a> {
        let Self { task, device, dtype, .. } = *self;
        TokenExamples { examples, pad_id: task.pad_id, labels: task.labels, device, dtype }
    }

    /// `examples` to be asked about with this run's draws, by its policy.
    pub fn inputs<'e>(&self, examples: &'e TokenExamples<'_>) -> Inputs<'e, TokenBatch>
    where
        'a: 'e,
    {
        Inputs {
            batch_size: self.config.evaluation_batch_size,
            seed: self.seed,
            kind: self.config.prediction_draws,
            policy: self.config.prediction,
            watch: self.watch,
            ..Inputs::new(examples)
        }
    }
}
