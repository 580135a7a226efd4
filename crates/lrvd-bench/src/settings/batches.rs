//! Order and completeness of training batches.

use serde::{Deserialize, Serialize};

/// What a batch has in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucketing {
    /// Nothing: plain uniform shuffling, as a stock data loader does.
    #[default]
    Shuffled,
    /// Like lengths, hence less padding: the shuffled order is cut into windows of this many batches, each window
    /// is sorted by length and cut into batches, and the batches of the epoch are shuffled again.
    LengthBucketed {
        /// Batches in a window; 1 sorts within each batch only.
        window: usize,
    },
    /// The order of the file in every epoch, as one published protocol has it: seeds then differ in
    /// initial values and noise only.
    FileOrder,
}

/// What happens to the examples that do not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// They form a smaller batch.
    #[default]
    Keep,
    /// They are left out of this epoch; the next one shuffles anew.
    Drop,
}
