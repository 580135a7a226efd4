//! DeBERTa-v2 and v3.
//!
//! | file | what |
//! |---|---|
//! | `config` | `config.json`, typed; what is not supported is refused by name |
//! | `relative_position` | log buckets of offsets, as integers |
//! | `embeddings`, `attention`, `layer`, `convolution`, `encoder` | the encoder |
//! | `positions` | the rows of the relative table that one sequence length needs |
//! | `classifier` | pooler and head |

mod attention;
mod classifier;
mod config;
mod convolution;
mod embeddings;
mod encoder;
mod layer;
mod positions;
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

pub use crate::config_error::PositionRangeError;
pub use classifier::DebertaClassifier;
pub use config::{
    ConfigError, Convolution as ConvolutionConfig, ConvolutionActivation, DebertaConfig,
    PositionAttention, ProblemType,
};
pub use encoder::DebertaEncoder;
pub use relative_position::RelativePositions;
