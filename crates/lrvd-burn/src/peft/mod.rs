//! How does an adapter travel between this crate and Hugging Face PEFT?
//!
//! A PEFT folder holds `adapter_config.json` and `adapter_model.safetensors`. Everything here is
//! host memory only: it reads such a folder strictly, says which layers of a model it adapts and
//! with which scale, and writes one that PEFT loads. The variational posterior, which PEFT does not
//! know, lies in a second safetensors file.
//!
//! | Module | Answers |
//! |---|---|
//! | `config` | `adapter_config.json` as types; what is refused, and why |
//! | `pattern` | which module paths are targeted, with which rank and scale |
//! | `keys` | names of tensors in the file |
//! | `adapter`, `check` | the tensors, and whether they fit the configuration and a model |
//! | `attach` | onto a model, and off it |
//! | `convert` | `AdaLoRA` to `LoRA` |
//! | `export`, `card` | writing a folder |
//! | `posterior` | the second file |

mod adapter;
mod attach;
mod card;
mod check;
mod config;
mod config_json;
mod config_reader;
mod convert;
mod error;
mod export;
mod features;
mod keys;
mod pattern;
mod posterior;
mod posterior_file;

pub use adapter::{PeftAdapter, PeftModule};
pub use attach::{attach_peft, peft_from_model};
pub use config::{AdaLoraConfig, PeftConfig, PeftMethod, TargetModules};
pub use error::PeftError;
pub use export::{ExportLayout, ExportSummary};
pub use pattern::ModuleRules;
pub use posterior::{
    PeftPosterior, PosteriorFamily, PosteriorHeader, PosteriorModule, PosteriorModuleHeader,
    PosteriorScheme,
};
pub use posterior_file::POSTERIOR_FILE;
