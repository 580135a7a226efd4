//! The hub in a program that was built without its client.

use std::path::PathBuf;

use anyhow::anyhow;

use crate::error::Result;

pub(super) fn snapshot(id: &str) -> Result<PathBuf> {
    config(id)
}

pub(super) fn config(id: &str) -> Result<PathBuf> {
    Err(anyhow!(
        "model `{id}`: there is no such folder, and this program was built without its feature `hub`, which \
         downloads models; build with it (`--features hub`), or pass `--model FOLDER`"
    ))
}
