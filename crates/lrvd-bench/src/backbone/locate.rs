//! Where a model's files are.

use std::path::{Path, PathBuf};

use super::{BackboneError, hub};

/// A folder with `config.json`, weights and tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelLocation {
    /// Name as given: a path or a repository id.
    pub(crate) name: String,
    /// The folder.
    pub(crate) folder: PathBuf,
}

impl ModelLocation {
    /// A name that still finds the model from another working directory.
    pub(crate) fn lasting_name(&self) -> String {
        let given = Path::new(&self.name);
        match given.is_dir().then(|| given.canonicalize()) {
            Some(Ok(absolute)) => absolute.display().to_string(),
            _ => self.name.clone(),
        }
    }
}

/// Finds `model`: an existing folder, or else a repository id `owner/name` in the local Hub cache
/// or, unless offline, on the Hub.
pub(crate) fn locate_model(model: &str) -> Result<ModelLocation, BackboneError> {
    locate(model, hub::snapshot)
}

/// As [`locate_model`], but only `config.json` is needed, and fetched.
pub(crate) fn locate_config(model: &str) -> Result<ModelLocation, BackboneError> {
    locate(model, hub::config)
}

fn locate(
    model: &str,
    from_hub: impl Fn(&str) -> Result<PathBuf, BackboneError>,
) -> Result<ModelLocation, BackboneError> {
    let path = Path::new(model);
    if path.is_dir() {
        return Ok(ModelLocation { name: model.to_owned(), folder: path.to_owned() });
    }
    let parts: Vec<&str> = model.split('/').collect();
    let is_id = matches!(parts.as_slice(), [owner, name]
        if [owner, name].iter().all(|p| !p.is_empty() && !p.starts_with('.')));
    if !is_id {
        return Err(BackboneError::Model {
            model: model.to_owned(),
            reason: "no such folder, and not a repository id of the form `owner/name`".to_owned(),
        });
    }
    let folder = from_hub(model)?;
    Ok(ModelLocation { name: model.to_owned(), folder })
}
