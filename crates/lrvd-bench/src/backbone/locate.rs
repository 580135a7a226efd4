//! Where a model's files are.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lrvd_models::llama::gguf::GgufModel;

use super::hub;
use crate::error::Result;
use crate::io::cannot;
use crate::text::quoted;

/// A folder with `config.json`, weights and tokenizer, or a GGUF file, which holds all three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelLocation {
    /// Name as given: a path or a repository id.
    pub(crate) name: String,
    /// The folder, or the one GGUF file that holds all of it.
    pub(crate) folder: PathBuf,
}

impl ModelLocation {
    /// A name that still finds the model from another working directory.
    pub(crate) fn lasting_name(&self) -> String {
        // A repository keeps its name: where its files lie is the cache's business.
        if is_repository(&self.name) && !Path::new(&self.name).exists() {
            return self.name.clone();
        }
        let folder = self.folder.canonicalize();
        folder.unwrap_or_else(|_| self.folder.clone()).display().to_string()
    }
}

/// Whether `name` is the id of a repository of a hub, and no place on this machine.
pub(crate) fn is_hub_id(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    is_repository(name) && name.chars().all(plain) && !Path::new(name).exists()
}

/// The name of a base model for files that leave this machine: the id of a repository as it is, of a path its last part.
pub(crate) fn shared_name(name: &str) -> &str {
    let last = || name.rsplit(['/', '\\']).find(|part| !part.is_empty());
    if is_hub_id(name) { name } else { last().unwrap_or(name) }
}

/// Finds `model`: an existing folder or GGUF file, or else a repository id `owner/name` in the local Hub cache
/// or, unless offline, on the Hub.
pub(crate) fn locate_model(model: &str) -> Result<ModelLocation> {
    locate(model, hub::snapshot)
}

/// As [`locate_model`], but only `config.json` is needed, and fetched.
pub(crate) fn locate_config(model: &str) -> Result<ModelLocation> {
    locate(model, hub::config)
}

fn locate(model: &str, from_hub: impl Fn(&str) -> Result<PathBuf>) -> Result<ModelLocation> {
    let path = Path::new(model);
    if let Some(folder) = local(path)? {
        return Ok(ModelLocation { name: model.to_owned(), folder });
    }
    if !is_repository(model) {
        bail!(
            "model `{model}`: no such folder or `.gguf` file, and not a repository id of the form `owner/name`"
        );
    }
    let folder = from_hub(model)?;
    Ok(ModelLocation { name: model.to_owned(), folder })
}

fn is_repository(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    matches!(parts.as_slice(), [owner, name]
        if [owner, name].iter().all(|p| !p.is_empty() && !p.starts_with('.')))
}

/// The folder or GGUF file at `path`, if there is one. A folder without `config.json` that holds one GGUF file is that
/// file.
pub(crate) fn local(path: &Path) -> Result<Option<PathBuf>> {
    if GgufModel::is_at(path) {
        return Ok(Some(path.to_owned()));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    if path.join("config.json").is_file() {
        return Ok(Some(path.to_owned()));
    }
    let entries = std::fs::read_dir(path).map_err(cannot("list", path))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|file| GgufModel::is_at(file)).collect();
    files.sort();
    match files.as_slice() {
        [] => Ok(Some(path.to_owned())),
        [file] => Ok(Some(file.clone())),
        _ => Err(anyhow!(
            "model `{model}`: the folder has no `config.json` and more than one GGUF file: name one of {}",
            quoted(files.iter().map(|file| file.display().to_string())),
            model = path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_shared_name_has_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("nano").display().to_string();
        for (name, shared) in [
            ("microsoft/deberta-v3-base", "microsoft/deberta-v3-base"),
            ("bert-base-uncased", "bert-base-uncased"),
            ("/home/me/models/nano/", "nano"),
            ("./models/nano", "nano"),
            ("../nano", "nano"),
            ("C:\\models\\nano.gguf", "nano.gguf"),
            (local.as_str(), "nano"),
            ("/", "/"),
        ] {
            assert_eq!(shared_name(name), shared, "{name}");
        }
    }

    #[test]
    fn a_folder_with_one_gguf_file_is_that_file() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one.gguf", "two.gguf"].map(|name| folder.path().join(name));
        assert_eq!(local(folder.path()).unwrap().unwrap(), folder.path());
        assert_eq!(local(&one).unwrap(), None);
        std::fs::write(&one, "").unwrap();
        assert_eq!(local(folder.path()).unwrap().unwrap(), one);
        assert_eq!(local(&one).unwrap().unwrap(), one);
        std::fs::write(&two, "").unwrap();
        let text = local(folder.path()).unwrap_err().to_string();
        assert!(text.contains("one.gguf") && text.contains("two.gguf"), "{text}");
        // A Hugging Face folder that also holds another form of the model.
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert_eq!(local(folder.path()).unwrap().unwrap(), folder.path());
    }
}
