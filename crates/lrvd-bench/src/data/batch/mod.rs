//! Batches: the order of the examples, and their padding.
//!
//! All but `device` is host-side and free of tensors: orders are index lists, batches are flat `i64` vectors.
//!
//! | File       | Holds                                                                          |
//! |------------|--------------------------------------------------------------------------------|
//! | `order`    | [`EpochOrder`]: which examples form the next training batch, resumable          |
//! | `evaluate` | [`evaluation_batches`]: batches of like length; [`restore_order`]               |
//! | `collate`  | [`PaddedBatch`]: token ids padded to the longest row of the batch               |
//! | `device`   | [`DeviceBatch`]: the same on the device, with its targets                       |

mod collate;
mod device;
mod evaluate;
mod order;

use thiserror::Error;

pub use collate::{BatchLabels, PaddedBatch, TokenisedExample};
pub use device::{DeviceBatch, Targets};
pub use evaluate::{evaluation_batches, restore_order};
pub use order::{EpochOrder, OrderConfig, OrderState};

/// Why examples cannot be put into batches.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A size that must be at least 1 is 0.
    #[error("`{name}` is 0, wanted at least 1")]
    Zero {
        /// Name of the setting.
        name: &'static str,
    },
    /// There are too few examples for one batch.
    #[error("{found} examples make no batch, wanted at least {wanted}")]
    TooFew {
        /// Smallest number of examples that would do.
        wanted: usize,
        /// Number of examples.
        found: usize,
    },
    /// A resumed position lies behind the end of the epoch.
    #[error("order resumes at batch {found}, but an epoch has {wanted} batches")]
    Position {
        /// Batches in an epoch.
        wanted: usize,
        /// Position as given.
        found: usize,
    },
    /// An index points behind the last example.
    #[error("example {found} is wanted, but there are {wanted}")]
    Index {
        /// Number of examples.
        wanted: usize,
        /// Index as given.
        found: usize,
    },
    /// Token ids and segment ids of an example differ in number.
    #[error("example {index} has {wanted} token ids but {found} segment ids")]
    Segments {
        /// Index of the example.
        index: usize,
        /// Number of token ids.
        wanted: usize,
        /// Number of segment ids.
        found: usize,
    },
    /// Classes and scores are mixed in one batch.
    #[error("example {index} mixes scores and classes in one batch")]
    MixedLabels {
        /// Index of the first example that differs from the batch's first.
        index: usize,
    },
    /// Numbers of values and of examples differ.
    #[error("{found} values for {wanted} examples")]
    Values {
        /// Number of examples.
        wanted: usize,
        /// Number of values.
        found: usize,
    },
}
