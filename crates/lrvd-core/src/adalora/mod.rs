//! The singular triplets that `AdaLoRA` keeps, and when it chooses them.
//!
//! The baseline writes an update as `scaling · B diag(E) A` and takes ranks away by zeroing entries of `E`. This
//! module holds its arithmetic as the reference implementation (PEFT) runs it: smoothed importance of every
//! entry, a score per triplet, a cubic budget, one global threshold, and the orthogonality penalty.
//!
//! References: Zhang et al. 2023, arXiv:2303.10512; where publication and implementation differ the
//! implementation is followed, and the difference named.

mod allocator;
mod config;
mod importance;
mod orthogonality;
mod state;

pub use allocator::{AdaLoraAllocator, Allocation, EntryValues, TripletValues};
pub use config::{AdaLoraConfig, Phase, adalora_scaling, matched_target_rank};
pub use importance::{EntryImportance, TripletImportance, TripletShape, mask_to_budget};
pub use orthogonality::{TripletFactors, orthogonality};
pub use state::AdaLoraState;
