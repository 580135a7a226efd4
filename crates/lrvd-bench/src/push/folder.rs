//! Which files of a folder go to the hub.

use std::path::{Path, PathBuf};

use super::error::PushError;
use crate::io::IoError;

/// A file to upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalFile {
    /// Path in the repository, with slashes.
    pub(super) path: String,
    pub(super) place: PathBuf,
    pub(super) size: u64,
}

/// All files below `dir`, by path; hidden ones stay.
pub(super) fn files(dir: &Path) -> Result<Vec<LocalFile>, PushError> {
    let mut found = Vec::new();
    collect(dir, "", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    let has = |name: &str| found.iter().any(|file| file.path == name);
    let ends =
        |end: &str| found.iter().any(|file| !file.path.contains('/') && file.path.ends_with(end));
    let export = has("adapter_config.json") || (has("config.json") && ends(".safetensors"));
    // The output of a training run has its adapter one folder further down.
    if export || ends(".gguf") {
        Ok(found)
    } else {
        Err(PushError::NoExport { dir: dir.to_owned() })
    }
}

fn collect(dir: &Path, prefix: &str, found: &mut Vec<LocalFile>) -> Result<(), PushError> {
    for entry in std::fs::read_dir(dir).map_err(IoError::at("list", dir))? {
        let place = entry.map_err(IoError::at("list", dir))?.path();
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        let metadata = std::fs::metadata(&place).map_err(IoError::at("look at", &place))?;
        if metadata.is_dir() {
            collect(&place, &format!("{path}/"), found)?;
        } else {
            found.push(LocalFile { path, place, size: metadata.len() });
        }
    }
    Ok(())
}
