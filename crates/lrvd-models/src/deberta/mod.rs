//! DeBERTa-v2 and v3.

mod classifier;
mod config;
mod encoder;
mod layer;
mod relative_position;

/// The linear layers of an encoder layer that published experiments adapt, by the end of their path.
///
/// `output.dense` also matches `attention.output.dense`, which is listed for the reader.
pub const ADAPTER_TARGETS: [&str; 6] = [
    "query_proj",
    "key_proj",
    "value_proj",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
];

pub use classifier::DebertaClassifier;
pub use config::{ConvolutionActivation, ConvolutionConfig, DebertaConfig, ProblemType};
pub use encoder::DebertaEncoder;
pub use relative_position::RelativePositions;
