//! Encoders: DeBERTa-v2 and v3, as one without position terms in its scores BERT, RoBERTa, XLM-RoBERTa, DistilBERT and MPNet,
//! and ModernBERT.

mod activation;
mod classifier;
mod config;
mod encoder;
mod family;
mod layer;
mod relative_position;

pub use activation::Activation;
pub use classifier::DebertaClassifier;
pub use config::{ConvolutionConfig, DebertaConfig, LayerAttention, Pooling, ProblemType};
pub use encoder::DebertaEncoder;
pub use family::{ADAPTER_TARGETS, Family, FamilySpec};
pub use relative_position::{BIAS_ROWS, RelativePositions, bias_row};
