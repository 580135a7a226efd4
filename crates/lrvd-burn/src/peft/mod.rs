//! Adapters as Hugging Face PEFT folders, and the posterior beside them.
//!
//! A PEFT folder holds `adapter_config.json` and `adapter_model.safetensors`. Such a folder is read
//! strictly into host memory, with the layers of a model that it adapts and their scales, and
//! written so that PEFT loads it. The variational posterior, which PEFT does not
//! know, is in a second safetensors file.

mod adapter;
mod attach;
mod cap;
mod card;
mod check;
mod config;
mod config_json;
mod config_reader;
mod convert;
mod export;
mod features;
mod keys;
mod pattern;
mod posterior;
mod posterior_file;
mod posterior_model;
mod posterior_names;

pub use adapter::{PeftAdapter, PeftModule, WEIGHTS_FILE};
pub use attach::{attach_peft, peft_from_model};
pub use cap::CapReport;
pub use config::{AdaLoraConfig, PeftConfig, PeftMethod, TargetModules};
pub use export::{ExportLayout, ExportSummary};
pub use pattern::ModuleRules;
pub use posterior::{PeftPosterior, PosteriorHeader, PosteriorModuleHeader, PosteriorRun};
pub use posterior_file::POSTERIOR_FILE;
pub use posterior_model::{attach_posterior, posterior_from_model};
pub use posterior_names::posterior_family_name;
