//! The hub in a program that was built without its client.

use std::path::PathBuf;

use super::BackboneError;

pub(super) fn snapshot(id: &str) -> Result<PathBuf, BackboneError> {
    config(id)
}

pub(super) fn config(id: &str) -> Result<PathBuf, BackboneError> {
    Err(BackboneError::Model {
        model: id.to_owned(),
        reason: "there is no such folder, and this program was built without its feature `hub`, which downloads \
                 models; build with it (`--features hub`), or pass `--model FOLDER`"
            .to_owned(),
    })
}
