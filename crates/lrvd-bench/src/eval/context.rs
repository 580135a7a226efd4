//! What one run is about.

use burn::tensor::{DType, Device};

use super::PeakMemory;
use crate::data::PreparedTask;
use crate::settings::ValidConfig;

/// What training, fitting and answering need beside the model.
#[derive(Clone, Copy, Debug)]
pub struct RunContext<'a> {
    /// Settings.
    pub config: &'a ValidConfig,
    /// Tokenised data.
    pub task: &'a PreparedTask,
    /// Seed of the run.
    pub seed: u64,
    /// Where to compute.
    pub device: &'a Device,
    /// Float type.
    pub dtype: DType,
    /// Resident memory since the run began.
    pub memory: PeakMemory,
}
