//! The pretrained model of a run: a folder, a shipped checkpoint, or a repository on the Hub.

mod hub;
mod load;
mod locate;

pub use load::{Architecture, Backbone, LLAMA_TARGETS, load_model, load_model_reporting};
pub use locate::{ModelLocation, locate_model};
