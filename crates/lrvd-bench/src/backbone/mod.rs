//! The pretrained model of a run: a folder, a GGUF file, a shipped checkpoint, or a repository on the Hub.

mod architecture;
mod hub;
mod load;
mod shipped;

pub(crate) use architecture::{Architecture, Sizes};
pub(crate) use load::{
    Backbone, GENERATION_FILE, Head, ModelLocation, READ_FILES, check_end, is_hub_id,
    load_language_model, load_model, local, locate_config, locate_model, open_tokenizer,
    shared_name, split_revision,
};
pub(crate) use shipped::{public_place, shipped};
