//! Reading and writing `lrvd_posterior.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::adapter::PeftAdapter;
use super::posterior::{PeftPosterior, PosteriorHeader, SCHEMA_VERSION};
use crate::error::Error;
use crate::files::{TensorFile, write_safetensors};

/// File name of the posterior in an adapter folder.
pub const POSTERIOR_FILE: &str = "lrvd_posterior.safetensors";
/// Key of the header among the texts of the file.
const HEADER_KEY: &str = "lrvd";

impl PeftPosterior {
    /// Writes the posterior beside the adapter it belongs to, atomically.
    ///
    /// What could not be read back ([`check_against`](Self::check_against)) is not written.
    pub fn write(&self, dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<(), Error> {
        self.check_against(adapter)?;
        let path = dir.as_ref().join(POSTERIOR_FILE);
        let header =
            serde_json::to_string(&self.header).map_err(|source| Error::json(&path, source))?;
        let metadata = [("format", "pt".to_owned()), (HEADER_KEY, header)]
            .map(|(key, text)| (key.to_owned(), text));
        write_safetensors(path, &self.tensors, &BTreeMap::from(metadata))
    }

    /// Reads the posterior beside an adapter and checks it against that adapter.
    pub fn read(dir: impl AsRef<Path>, adapter: &PeftAdapter) -> Result<Self, Error> {
        let file = TensorFile::open(dir.as_ref().join(POSTERIOR_FILE))?;
        let header = read_header(&file)?;
        let posterior = Self { header, tensors: file.read_all()? };
        posterior.check_against(adapter)?;
        Ok(posterior)
    }
}

fn read_header(file: &TensorFile) -> Result<PosteriorHeader, Error> {
    let path = file.path();
    let text = file.metadata().get(HEADER_KEY);
    let text = text.ok_or_else(|| Error::value(path, HEADER_KEY, "a header", "nothing"))?;
    let broken =
        |error| Error::file(path, format!("has a posterior header that cannot be read: {error}"));
    // The version first: of another version nothing else can be relied on.
    let document: Value = serde_json::from_str(text).map_err(broken)?;
    let version = document.get("schema_version");
    if version.and_then(Value::as_u64) != Some(u64::from(SCHEMA_VERSION)) {
        let found = version.map_or_else(|| "nothing".to_owned(), Value::to_string);
        return Err(Error::value(path, "schema_version", SCHEMA_VERSION, found));
    }
    serde_json::from_str(text).map_err(broken)
}

#[cfg(test)]
#[path = "posterior_tests.rs"]
mod tests;
