//! Reading and writing `lrvd_posterior.safetensors`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::adapter::PeftAdapter;
use super::error::PeftError;
use super::posterior::{PeftPosterior, PosteriorHeader, PosteriorModule, SCHEMA_VERSION, suffixes};
use crate::files::{LoadReport, TensorFile, write_safetensors};

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
        let family = self.header.family;
        let tensors = self.modules.iter().flat_map(|(module, parameters)| {
            let tensors = parameters.tensors(family).into_iter();
            tensors.map(move |(end, tensor)| (format!("{module}.{end}"), tensor.clone()))
        });
        Ok(write_safetensors(path, &tensors.collect(), &BTreeMap::from(metadata))?)
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
        let ends = suffixes(header.family);
        let mut report = LoadReport::new(file.path().display());
        let mut modules = BTreeMap::new();
        let mut used = 0;
        for (path, _) in header.modules.iter().filter(|(_, module)| module.rank > 0) {
            let mut tensors = Vec::with_capacity(ends.len());
            for name in ends.iter().map(|end| format!("{path}.{end}")) {
                if file.contains(&name) {
                    tensors.push(file.read(&name)?);
                    used += 1;
                } else {
                    report.missing.push(name);
                }
            }
            let mut tensors = tensors.into_iter();
            let parameters = match (tensors.next(), tensors.next()) {
                (Some(tensor), None) if ends.len() == 1 => PosteriorModule::PerRank(tensor),
                (Some(a), Some(b)) => PosteriorModule::PerEntry { a, b },
                // What is not there is in the report.
                _ => continue,
            };
            modules.insert(path.clone(), parameters);
        }
        if used != file.len() {
            let known = |name: &str| {
                name.rsplit_once('.').is_some_and(|(path, end)| {
                    ends.contains(&end) && header.modules.get(path).is_some_and(|m| m.rank > 0)
                })
            };
            report.unexpected =
                file.names().filter(|name| !known(name)).map(str::to_owned).collect();
        }
        report.into_result()?;
        let posterior = Self { header, modules };
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
