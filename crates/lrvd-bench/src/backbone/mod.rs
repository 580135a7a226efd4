//! The pretrained model of a run: a folder, a GGUF file, a shipped checkpoint, or a repository on the Hub.

mod architecture;
#[cfg(feature = "hub")]
mod hub;
#[cfg(not(feature = "hub"))]
#[path = "no_hub.rs"]
mod hub;
mod load;
mod locate;
mod reader;

pub(crate) use architecture::Architecture;
pub(crate) use load::{Backbone, load_language_model, load_model, open_tokenizer, open_weights};
pub(crate) use locate::{
    ModelLocation, is_hub_id, local, locate_config, locate_model, shared_name,
};
pub(crate) use reader::TextReader;
