//! Files in the cache, and downloads into it.
//!
//! The layout is that of Hugging Face's Python library: `models--OWNER--NAME` holds `blobs/ETAG` with the bytes,
//! `snapshots/COMMIT/FILE` with links to them, and `refs/main` with the commit. An unfinished download is
//! `blobs/ETAG.incomplete` and is resumed.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use tracing::{debug, info};
use ureq::http::StatusCode;

use super::client::{Client, Remote};
use crate::io::{create_dir, sha256_file, write_text};
use crate::text::quoted;

/// Bytes written at a time.
const BLOCK: usize = 1 << 16;
const RESUMED: &str = "the next run resumes it";
/// Characters of a name that becomes a file's.
const LONGEST: usize = 200;

/// Whether `name` is a file's name and no path, hidden file or anything else.
pub(super) fn is_plain(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.chars().all(usual)
}

/// The folder of repository `id` as it was last fetched, if it was.
pub(super) fn folder(cache: &Path, id: &str) -> Option<PathBuf> {
    let root = root(cache, id);
    let commit = std::fs::read_to_string(root.join("refs/main")).ok()?;
    let commit = commit.trim();
    is_plain(commit).then(|| root.join("snapshots").join(commit))
}

fn root(cache: &Path, id: &str) -> PathBuf {
    cache.join(format!("models--{}", id.replace('/', "--")))
}

/// A repository of which files are fetched, all of one commit.
pub(super) struct Repository<'a> {
    client: Client,
    root: PathBuf,
    id: &'a str,
    /// The commit, once the first file was fetched.
    commit: Option<String>,
}

impl<'a> Repository<'a> {
    pub(super) fn new(client: Client, cache: &Path, id: &'a str) -> Self {
        Self { client, root: root(cache, id), id, commit: None }
    }

    pub(super) fn fetch_first(&mut self, names: &[&str]) -> Result<PathBuf, String> {
        for name in names {
            if let Some(file) = self.fetch(name)? {
                return Ok(file);
            }
        }
        Err(format!("the hub does not have {} of this repository", quoted(names)))
    }

    /// The file `name`, downloaded if the cache does not have it; `None` if the repository does not have it.
    pub(super) fn fetch(&mut self, name: &str) -> Result<Option<PathBuf>, String> {
        if !is_plain(name) {
            return Err(format!("`{}` is not a plain file name", name.escape_default()));
        }
        if let Some(file) = self.commit.as_ref().map(|c| self.snapshot(c).join(name))
            && file.is_file()
        {
            return Ok(Some(file));
        }
        let revision = self.commit.as_deref().unwrap_or("main");
        let path = format!("{}/resolve/{revision}/{name}", self.id);
        let Some(remote) = self.client.ask(&path)? else { return Ok(None) };
        for (header, value) in [("commit", &remote.commit), ("etag", &remote.etag)] {
            if !is_plain(value) {
                let value = value.escape_default();
                return Err(format!("`{name}`: the hub's {header} `{value}` is not a plain name"));
            }
        }
        if self.commit.as_ref().is_some_and(|commit| *commit != remote.commit) {
            return Err(format!("`{name}`: the hub answered with another commit than before"));
        }
        let file = self.snapshot(&remote.commit).join(name);
        if !file.is_file() {
            let blob = self.root.join("blobs").join(&remote.etag);
            self.download(name, &remote, &blob).map_err(|why| format!("`{name}`: {why}"))?;
            link(&blob, &file).map_err(|error| format!("`{}`: {error}", file.display()))?;
        }
        self.commit = Some(remote.commit);
        Ok(Some(file))
    }

    /// Notes the commit in the cache, and returns its folder.
    pub(super) fn finish(self) -> Result<PathBuf, String> {
        let commit = self.commit.as_deref().ok_or("nothing was fetched")?;
        let refs = self.root.join("refs");
        let note = || write_text(&refs.join("main"), commit);
        create_dir(&refs).and_then(|()| note()).map_err(|error| error.to_string())?;
        Ok(self.snapshot(commit))
    }

    fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Downloads `remote` to `blob`, which is there whole and checked or not at all.
    fn download(&self, name: &str, remote: &Remote, blob: &Path) -> Result<(), String> {
        if blob.is_file() {
            return Ok(());
        }
        let words = |error: std::io::Error| error.to_string();
        if let Some(folder) = blob.parent() {
            std::fs::create_dir_all(folder).map_err(words)?;
        }
        let partial = blob.with_file_name(format!("{}.incomplete", remote.etag));
        let mut file = File::options().append(true).create(true).open(&partial).map_err(words)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                info!(file = name, "another process downloads it, waiting");
                file.lock().map_err(words)?;
            }
            Err(TryLockError::Error(error)) => return Err(words(error)),
        }
        // The other process may have finished it meanwhile.
        if !blob.is_file() {
            self.complete(&mut file, remote)?;
            file.sync_all().map_err(words)?;
            if let Err(why) = check(&partial, remote) {
                std::fs::remove_file(&partial).map_err(words)?;
                return Err(format!("{why}; the download was deleted"));
            }
            std::fs::rename(&partial, blob).map_err(words)?;
        }
        Ok(())
    }

    fn complete(&self, file: &mut File, remote: &Remote) -> Result<(), String> {
        let words = |error: std::io::Error| error.to_string();
        let mut length = file.metadata().map_err(words)?.len();
        if remote.size.is_some_and(|size| size <= length) {
            if remote.size == Some(length) && length > 0 {
                return Ok(());
            }
            length = 0;
        }
        let mut answer = self.client.read(&remote.url, length)?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            length = 0;
            answer = self.client.read(&remote.url, 0)?;
        }
        let part = answer.headers().get("content-range").and_then(|value| value.to_str().ok());
        let resumed = part.is_some_and(|part| part.starts_with(&format!("bytes {length}-")));
        match answer.status() {
            StatusCode::PARTIAL_CONTENT if resumed => debug!(length, "resumed"),
            StatusCode::OK => length = 0,
            status => return Err(format!("the server answered {status} to a download")),
        }
        file.set_len(length).map_err(words)?;
        let mut body = answer.into_body().into_reader();
        let mut block = vec![0; BLOCK];
        loop {
            let n = body.read(&mut block).map_err(|error| {
                format!("the download stopped after {length} bytes: {error}; {RESUMED}")
            })?;
            if n == 0 {
                break;
            }
            length += n as u64;
            if let Some(size) = remote.size.filter(|&size| size < length) {
                file.set_len(0).map_err(words)?;
                return Err(format!("the server sends more than the {size} bytes that it states"));
            }
            file.write_all(&block[..n]).map_err(words)?;
        }
        match remote.size {
            Some(size) if length < size => {
                Err(format!("the download stopped after {length} of {size} bytes; {RESUMED}"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the SHA-256 of a download where the hub states it.
fn check(file: &Path, remote: &Remote) -> Result<(), String> {
    // Small files have Git's own hash, of 40 digits.
    let is_sha256 = remote.etag.len() == 64 && remote.etag.chars().all(|c| c.is_ascii_hexdigit());
    if is_sha256 {
        let found = sha256_file(file).map_err(|error| error.to_string())?;
        if !found.eq_ignore_ascii_case(&remote.etag) {
            let stated = &remote.etag;
            return Err(format!("the SHA-256 of the download is {found}, the hub states {stated}"));
        }
    }
    Ok(())
}

/// Makes `file` a link to `blob`, relative as Python's library makes it.
fn link(blob: &Path, file: &Path) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // A link whose blob was removed.
    if file.is_symlink() {
        std::fs::remove_file(file)?;
    }
    #[cfg(unix)]
    let made = {
        let name = blob.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(Path::new("../../blobs").join(name), file)
    };
    #[cfg(not(unix))]
    let made = std::fs::copy(blob, file).map(drop);
    // Another process may have made it meanwhile.
    made.or_else(|error| if file.is_file() { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_no_paths() {
        for name in ["model-00001-of-00002.safetensors", "a", "e3b0c442", "x_y-5"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "a b", "a\n", "é", "C:"] {
            assert!(!is_plain(name), "{name}");
        }
        assert!(!is_plain(&"a".repeat(LONGEST + 1)));
    }
}
