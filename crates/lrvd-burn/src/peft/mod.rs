//! Adapters as Hugging Face PEFT folders, with the posterior in a separate file.
//!
//! A PEFT folder has `adapter_config.json` and `adapter_model.safetensors`. Such a folder is read
//! strictly into host memory, with the layers of a model that it adapts and their scales, and
//! written so that PEFT loads it. PEFT ignores the second safetensors file, which has
//! the variational posterior.

mod adapter;
mod config;
mod convert;
mod export;
mod model;
mod posterior;
mod rules;
#[cfg(test)]
mod tests;

pub use adapter::{PeftAdapter, PeftModule, WEIGHTS_FILE};
pub use config::{AdaLoraConfig, PeftConfig, PeftMethod, TargetModules};
pub use convert::{Cap, CapReport};
pub use export::{ExportLayout, ExportSummary, common_scale};
pub use model::{attach_peft, peft_from_model};
pub use posterior::{
    POSTERIOR_FILE, PeftPosterior, PosteriorHeader, PosteriorModuleHeader, PosteriorRun,
    attach_posterior, posterior_family_name, posterior_from_model,
};
