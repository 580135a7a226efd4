//! Repositories of models and data sets on the Hugging Face Hub, or in its local cache.
//!
//! The cache has the layout of Hugging Face's Python library and is shared with it: `models--OWNER--NAME` or
//! `datasets--OWNER--NAME` holds `blobs/HASH` with the bytes, `snapshots/COMMIT/FILE` with links to them, `.no_exist/COMMIT/FILE`
//! for a file that the repository does not have, and `refs/REVISION` with the commit. An unfinished download is
//! `blobs/HASH.incomplete` and is resumed.
//!
//! A snapshot of Python's library may lack files that only this program reads. Each file that is looked for is in the snapshot
//! or known not to exist, else the hub is asked for it: a model has the same files, whatever program filled the cache. Where the hub
//! cannot be asked, the snapshot is used and a note names the files.
//!
//! Environment variables are those of Python's library (`huggingface_hub/constants.py`): the cache is at `HF_HUB_CACHE`, else
//! `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache`; the token is
//! `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN`, else that of the file `HF_TOKEN_PATH`, else of `token` in the same home. An empty
//! one is as if it were not set. Offline (`HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`) only the cache is read.

#[cfg(feature = "hub")]
mod client;
#[cfg(feature = "hub")]
mod environment;
#[cfg(feature = "hub")]
mod repository;
#[cfg(not(feature = "hub"))]
mod repository {
    use std::path::Path;

    use super::{Get, RepositoryKind, Snapshot};
    use crate::error::{Result, left_out};

    /// There is none.
    pub(crate) enum Repository {}

    impl Repository {
        pub(crate) fn new(kind: RepositoryKind, id: &str, _revision: &str) -> Result<Self> {
            let here =
                format!("{} `{id}`: it is not here, and it cannot be downloaded", kind.noun());
            Err(left_out("hub").context(here))
        }

        pub(crate) fn cache(&self) -> &Path {
            match *self {}
        }

        pub(crate) fn folder(&self, _look_up: impl Fn(Get<'_>) -> Result<()>) -> Result<Snapshot> {
            match *self {}
        }

        pub(crate) fn files(&self) -> Result<(String, Vec<String>)> {
            match *self {}
        }
    }
}

use std::path::{Path, PathBuf};

use anyhow::bail;
use lrvd_burn::files::is_there;

pub(crate) use repository::Repository;

use crate::error::Result;
use crate::text::quoted;

/// The branch of a repository that is taken where no revision is named.
pub(crate) const MAIN: &str = "main";
const LONGEST: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepositoryKind {
    Model,
    DataSet,
}

impl RepositoryKind {
    /// In messages.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::DataSet => "data set",
        }
    }

    /// In addresses of the hub's interface, and in names of folders of the cache.
    #[cfg(feature = "hub")]
    const fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::DataSet => "datasets",
        }
    }
}

/// The folder of a repository's files at one commit, which is its name, and what is to be known of them.
pub(crate) type Snapshot = (PathBuf, Option<String>);

/// Looks a file of a repository up by its path; `None` if there is none.
pub(crate) type Get<'a> = &'a dyn Fn(&str) -> Result<Option<PathBuf>>;

/// The first of `names` that there is.
pub(crate) fn first(names: &[&str], get: Get<'_>) -> Result<PathBuf> {
    for name in names {
        if let Some(file) = get(name)? {
            return Ok(file);
        }
    }
    bail!("the hub does not have {} of this repository", quoted(names))
}

/// `true` if `name` is a file's name and no path, hidden file or anything else.
pub(crate) fn is_plain(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.chars().all(usual)
}

/// `true` if something is at `path`, or what is there cannot be seen.
pub(crate) fn may_be_there(path: &str) -> bool {
    is_there(Path::new(path)).unwrap_or(true)
}

/// The id and the revision of `owner/name`, `owner/name@revision`, or the same without an owner (`gpt2`).
pub(crate) fn named(name: &str) -> Option<(&str, Option<&str>)> {
    let (id, revision) = match name.split_once('@') {
        Some((id, revision)) => (id, Some(revision)),
        None => (name, None),
    };
    let parts: Vec<&str> = id.split('/').collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_id = match parts.as_slice() {
        [name] => name.chars().all(is_plain) && !name.to_ascii_lowercase().ends_with(".gguf"),
        [_, _] => true,
        _ => false,
    };
    let is_part = |part: &&str| !part.is_empty() && !part.starts_with('.');
    (is_id && parts.iter().all(is_part)).then_some((id, revision))
}
