//! Reading and writing `lrvd_posterior.safetensors`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::adapter::PeftAdapter;
use super::error::PeftError;
use super::posterior::{PeftPosterior, PosteriorHeader, SCHEMA_VERSION};
use crate::files::{TensorFile, write_safetensors};

/// File name of the posterior in an adapter folder.
pub const POSTERIOR_FILE: &str = "lrvd_posterior.safetensors";
/// Key of the header among the texts of the file.
const HEADER_KEY: &str = "lrvd";

impl PeftPosterior {
    /// Writes the posterior beside the adapter it belongs to, atomically.
    ///
    /// # Errors
    ///
    /// Those of [`check_against`](Self::check_against): what could not be read back is not written.
    /// [`PeftError::File`] if writing fails.
    pub fn write(&self, dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<(), PeftError> {
        self.check_against(adapter)?;
        let path = dir.as_ref().join(POSTERIOR_FILE);
        let header = serde_json::to_string(&self.header)
            .map_err(|source| PeftError::PosteriorHeader { file: path.clone(), source })?;
        let metadata = [("format", "pt".to_owned()), (HEADER_KEY, header)]
            .map(|(key, text)| (key.to_owned(), text));
        Ok(write_safetensors(path, &self.tensors, &BTreeMap::from(metadata))?)
    }

    /// Reads the posterior beside an adapter and checks it against that adapter.
    ///
    /// # Errors
    ///
    /// [`PeftError::Posterior`] for a file without a header or of another version;
    /// [`PeftError::PosteriorHeader`] for a header with unknown or missing keys;
    /// [`PeftError::Load`] with a report of tensors that are missing, unexpected, mis-shaped or not
    /// finite; [`PeftError::Module`] for a rank or scale that is not the adapter's;
    /// [`PeftError::File`] if the file is absent or broken.
    pub fn read(dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<Self, PeftError> {
        let file = TensorFile::open(dir.as_ref().join(POSTERIOR_FILE))?;
        let header = read_header(&file)?;
        let posterior = Self { header, tensors: file.read_all()? };
        posterior.check_against(adapter)?;
        Ok(posterior)
    }
}

fn read_header(file: &TensorFile) -> Result<PosteriorHeader, PeftError> {
    let path = || PathBuf::from(file.path());
    let wrong = |key: &str, wanted: String, found: String| PeftError::Posterior {
        file: path(),
        key: key.to_owned(),
        wanted,
        found,
    };
    let text = file.metadata().get(HEADER_KEY).ok_or_else(|| {
        wrong(HEADER_KEY, "a header in the file's texts".to_owned(), "nothing".to_owned())
    })?;
    let broken = |source| PeftError::PosteriorHeader { file: path(), source };
    // The version first: of another version nothing else can be relied on.
    let document: Value = serde_json::from_str(text).map_err(broken)?;
    let version = document.get("schema_version");
    if version.and_then(Value::as_u64) != Some(u64::from(SCHEMA_VERSION)) {
        let found = version.map_or_else(|| "nothing".to_owned(), Value::to_string);
        return Err(wrong("schema_version", SCHEMA_VERSION.to_string(), found));
    }
    serde_json::from_str(text).map_err(broken)
}

#[cfg(test)]
#[path = "posterior_tests.rs"]
mod tests;
