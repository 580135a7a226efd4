//! Whole text and JSON files, and hashes, with errors that name the file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use lrvd_burn::files::write_atomic;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{debug, trace};

/// Bytes read at a time when hashing.
const HASH_BLOCK: usize = 1 << 16;

/// A file or folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system refused it.
    #[error("cannot {action} `{path}`")]
    File {
        /// What was tried: `read`, `write`, `create`, `rename`.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A JSON file is not what it should be, or a value has no JSON form.
    #[error("`{path}`: {source}")]
    Json { path: PathBuf, source: serde_json::Error },
    /// A file was written by a version that this build does not read.
    #[error("`{}` has schema version {found}, wanted {wanted}", file.display())]
    Schema { file: PathBuf, wanted: u32, found: u32 },
}

impl IoError {
    pub(crate) fn at<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(std::io::Error) -> Self + 'a {
        move |source| Self::File { action, path: path.to_owned(), source }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonLayout {
    Compact,
    Pretty,
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, IoError> {
    parse_json(path, &read_text(path)?)
}

pub(crate) fn read_text(path: &Path) -> Result<String, IoError> {
    std::fs::read_to_string(path).map_err(IoError::at("read", path))
}

/// The value in `text`, which was read from `path`.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, IoError> {
    serde_json::from_str(text).map_err(|source| IoError::Json { path: path.to_owned(), source })
}

/// Reads a JSON file whose `schema_version` must be `wanted`: the version is looked at first, because of another version
/// nothing else can be relied on.
pub(crate) fn read_versioned<T: DeserializeOwned>(path: &Path, wanted: u32) -> Result<T, IoError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let text = read_text(path)?;
    let Version { schema_version: found } = parse_json(path, &text)?;
    if found != wanted {
        return Err(IoError::Schema { file: path.to_owned(), wanted, found });
    }
    parse_json(path, &text)
}

/// The values of a file that holds one on each line.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, IoError> {
    read_text(path)?.lines().map(|line| parse_json(path, line)).collect()
}

/// Writes `value` to `path`, whole or not at all.
pub(crate) fn write_json(
    path: &Path,
    value: &impl Serialize,
    layout: JsonLayout,
) -> Result<(), IoError> {
    let text = match layout {
        JsonLayout::Compact => serde_json::to_string(value),
        JsonLayout::Pretty => serde_json::to_string_pretty(value),
    };
    let text = text.map_err(|source| IoError::Json { path: path.to_owned(), source })?;
    write_text(path, &text)
}

/// Writes a text file atomically. A link at `path` is replaced, never followed.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), IoError> {
    write_atomic(path, text.as_bytes()).map_err(|error| match error {
        lrvd_burn::Error::Io { action, path, source } => IoError::File { action, path, source },
        other => IoError::at("write", path)(std::io::Error::other(other)),
    })?;
    trace!(file = %path.display(), bytes = text.len(), "wrote");
    Ok(())
}

pub(crate) fn create_dir(path: &Path) -> Result<(), IoError> {
    std::fs::create_dir_all(path).map_err(IoError::at("create", path))
}

/// SHA-256 of a file in lower-case hex.
pub(crate) fn sha256_file(path: &Path) -> Result<String, IoError> {
    let mut file = File::open(path).map_err(IoError::at("read", path))?;
    let mut hasher = Sha256::new();
    let mut block = vec![0_u8; HASH_BLOCK];
    loop {
        let n = file.read(&mut block).map_err(IoError::at("read", path))?;
        if n == 0 {
            break;
        }
        hasher.update(&block[..n]);
    }
    debug!(file = %path.display(), "hashed");
    Ok(hex(&hasher.finalize()))
}

/// SHA-256 of a text in lower-case hex.
pub(crate) fn sha256_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hash_of_a_known_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        // FIPS 180-4 example.
        assert_eq!(
            sha256_file(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let missing = folder.path().join("none");
        let error = sha256_file(&missing).unwrap_err().to_string();
        assert!(error.starts_with("cannot read `") && error.ends_with("none`"), "{error}");
    }
}
