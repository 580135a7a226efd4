//! The pretrained model of a run: a folder, a shipped checkpoint, or a repository on the Hub.

mod hub;
mod load;
mod locate;

pub use load::{Backbone, load_classifier};
pub use locate::{ModelLocation, locate_model};
