//! The pretrained model of a run: a folder, a GGUF file, a shipped checkpoint, or a repository on the Hub.

mod architecture;
#[cfg(feature = "hub")]
mod hub;
#[cfg(not(feature = "hub"))]
mod hub {
    use std::path::PathBuf;

    use crate::error::{Result, left_out};

    pub(super) fn snapshot(id: &str, _revision: &str) -> Result<(PathBuf, Option<String>)> {
        let here =
            format!("model `{id}`: there is no such folder here, and it cannot be downloaded");
        Err(left_out("hub").context(here))
    }

    pub(super) use snapshot as config;
}
mod load;
mod shipped;

pub(crate) use architecture::{Architecture, Sizes};
pub(crate) use load::{
    Backbone, GENERATION_FILE, Head, ModelLocation, READ_FILES, check_end, is_hub_id,
    load_language_model, load_model, local, locate_config, locate_model, may_be_there,
    open_tokenizer, shared_name, split_revision,
};
pub(crate) use shipped::{public_place, shipped};
