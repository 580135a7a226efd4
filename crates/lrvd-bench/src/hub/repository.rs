//! Files of one repository, in the cache or downloaded.

use std::cell::RefCell;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use lrvd_burn::files::{is_file, lacks_locks};
use sha1::{Digest as _, Sha1};
use tracing::{debug, info};
use ureq::http::StatusCode;

use super::client::{Hub, Large, Listing, Remote, SLOWEST, unavailable};
use super::environment::{cache, offline, text, variable};
use super::{Get, RepositoryKind, Snapshot, is_plain};
use crate::error::{Error, Result};
use crate::io::{cannot, create_dir, hex, sha256_file, write_text};
use crate::text::quoted;

/// A repository at a branch, tag or commit.
pub(crate) struct Repository {
    kind: RepositoryKind,
    id: String,
    revision: String,
    cache: PathBuf,
}

impl Repository {
    pub(crate) fn new(kind: RepositoryKind, id: &str, revision: &str) -> Result<Self> {
        let cache = cache(&variable)
            .with_context(|| format!("{} `{id}`: there is no place for it", kind.noun()))?;
        Ok(Self { kind, id: id.to_owned(), revision: revision.to_owned(), cache })
    }

    /// Folder of all repositories.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The commit of the revision, and the paths of its files, as the hub lists them.
    pub(crate) fn files(&self) -> Result<(String, Vec<String>)> {
        self.check()?;
        let Listing { commit, siblings } = self.listed(&self.revision)?.listing;
        Ok((commit, siblings.into_iter().map(|file| file.rfilename).collect()))
    }

    /// The folder with all files that `look_up` looks up; what the cache lacks is downloaded. In its error a file is missing that
    /// is needed.
    pub(crate) fn folder(&self, look_up: impl Fn(Get<'_>) -> Result<()>) -> Result<Snapshot> {
        self.check()?;
        let Self { id, revision, .. } = self;
        let root = self.root();
        let noted = if is_commit(revision) {
            revision.clone()
        } else {
            text(&root.join("refs").join(revision))?.unwrap_or_default()
        };
        let commit = noted.trim().to_owned();
        let folder = root.join("snapshots").join(&commit);
        let marks = absent(&root, &commit);
        let unknown = RefCell::new(Vec::new());
        let held = |name: &str| -> Result<Option<PathBuf>> {
            let file = folder.join(name);
            let file = is_file(&file)?.then_some(file);
            if file.is_none() && !is_file(&marks.join(name))? {
                unknown.borrow_mut().push(name.to_owned());
            }
            Ok(file)
        };
        let is_usable = is_plain(&commit) && look_up(&held).is_ok();
        let unknown = unknown.into_inner();
        if is_usable && unknown.is_empty() {
            debug!(repository = id, folder = %folder.display(), "in the cache");
            return Ok((folder, None));
        }
        debug!(repository = id, cache = %self.cache.display(), "not all in the cache");
        let fetched = || {
            // What is there keeps its commit.
            let listed = self.listed(if is_usable { &commit } else { revision })?;
            look_up(&|name| listed.fetch(name))?;
            listed.finish(revision)
        };
        match fetched() {
            Ok(folder) => {
                debug!(repository = id, "fetched");
                Ok((folder, None))
            }
            Err(error) if is_usable => {
                let note = format!(
                    "{} `{id}`: the cache has no {}, and it is not known if the repository has ({error:#}); the files of the \
                     cache are used",
                    self.kind.noun(),
                    quoted(unknown)
                );
                Ok((folder, Some(note)))
            }
            Err(error) => Err(error),
        }
    }

    fn check(&self) -> Result<()> {
        for (what, name) in [("repository's name", &self.id), ("revision", &self.revision)] {
            ensure!(
                name.split('/').all(is_plain),
                "a {what} has letters, digits, `.`, `-` and `_`"
            );
        }
        Ok(())
    }

    fn root(&self) -> PathBuf {
        let id = self.id.replace('/', "--");
        self.cache.join(format!("{}--{id}", self.kind.plural()))
    }

    /// The hub's list of the files at `revision`.
    fn listed(&self, revision: &str) -> Result<Listed<'_>> {
        ensure!(!offline()?, "HF_HUB_OFFLINE is set and the cache does not hold it");
        let hub = Hub::of_environment()?;
        let revision = revision.replace('/', "%2F");
        let path = format!("api/{}/{}/revision/{revision}?blobs=true", self.kind.plural(), self.id);
        let listing = hub.get(&path, 0, hub.patience)?;
        let listing: Listing = listing.into_body().read_json().map_err(|error| {
            unavailable(format!("the hub's list of files cannot be read: {error}"))
        })?;
        if !is_plain(&listing.commit) {
            bail!("the hub's commit `{}` is not a plain name", listing.commit.escape_default());
        }
        Ok(Listed { hub, repository: self, root: self.root(), listing })
    }
}

/// Folder of the empty files that mark what a repository does not have at a commit.
fn absent(root: &Path, commit: &str) -> PathBuf {
    root.join(".no_exist").join(commit)
}

/// `true` for the hash of a commit, as opposed to the name of a branch or tag.
fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// A repository of which files are fetched, all of one commit.
struct Listed<'a> {
    hub: Hub,
    repository: &'a Repository,
    root: PathBuf,
    listing: Listing,
}

impl Listed<'_> {
    /// The file `name`, downloaded if the cache does not have it; `None` if the repository does not have it, which is noted.
    fn fetch(&self, name: &str) -> Result<Option<PathBuf>> {
        if !name.split('/').all(is_plain) {
            bail!("`{}` is not a plain file name", name.escape_default());
        }
        let mut files = self.listing.siblings.iter();
        let Some(remote) = files.find(|remote| remote.rfilename == name) else {
            let mark = absent(&self.root, &self.listing.commit).join(name);
            mark.parent().map_or(Ok(()), create_dir)?;
            File::create(&mark).map_err(cannot("create", &mark))?;
            return Ok(None);
        };
        let hash = remote.hash();
        if !is_plain(hash) {
            bail!("`{name}`: the hub's hash `{}` is not a plain name", hash.escape_default());
        }
        let file = self.snapshot().join(name);
        if !file.is_file() {
            let blob = self.root.join("blobs").join(hash);
            self.download(remote, &blob).map_err(|error| error.context(format!("`{name}`")))?;
            link(&blob, &file, name).map_err(cannot("create", &file))?;
        }
        Ok(Some(file))
    }

    /// Notes the commit of `revision` in the cache, and returns its folder.
    fn finish(self, revision: &str) -> Result<PathBuf> {
        let note = self.root.join("refs").join(revision);
        if !is_commit(revision)
            && fs::read_to_string(&note).ok().as_ref() != Some(&self.listing.commit)
        {
            note.parent().map_or(Ok(()), create_dir)?;
            write_text(&note, &self.listing.commit)?;
        }
        Ok(self.snapshot())
    }

    fn snapshot(&self) -> PathBuf {
        self.root.join("snapshots").join(&self.listing.commit)
    }

    /// Downloads `remote` to `blob`, which is there whole and checked or not at all.
    fn download(&self, remote: &Remote, blob: &Path) -> Result<()> {
        if blob.is_file() {
            return Ok(());
        }
        let name = &remote.rfilename;
        blob.parent().map_or(Ok(()), create_dir)?;
        let open = |end: &str| {
            let path = blob.with_file_name(format!("{}{end}", remote.hash()));
            let file = File::options().append(true).create(true).open(&path);
            file.map_err(cannot("create", &path)).map(|file| (file, path))
        };
        let (mut file, mut partial) = open(".incomplete")?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                info!(file = name, "another process downloads it, waiting");
                file.lock().map_err(cannot("lock", &partial))?;
            }
            Err(TryLockError::Error(error)) if lacks_locks(&error) => {
                // Without locks every process writes another file.
                (file, partial) = open(&format!(".{}.incomplete", std::process::id()))?;
            }
            Err(TryLockError::Error(error)) => return Err(cannot("lock", &partial)(error)),
        }
        // The other process may have finished it meanwhile.
        if blob.is_file() {
            return Ok(());
        }
        self.complete(&mut file, &partial, remote)?;
        file.sync_all().map_err(cannot("write", &partial))?;
        let (what, stated, found) = match &remote.lfs {
            Some(Large { sha256 }) => ("SHA-256", sha256, sha256_file(&partial)?),
            None => ("SHA-1 by git", &remote.blob_id, git_sha1(&partial)?),
        };
        if !found.eq_ignore_ascii_case(stated) {
            fs::remove_file(&partial).map_err(cannot("remove", &partial))?;
            return Err(unavailable(format!(
                "the {what} of the download is {found}, the hub states {stated}; the download was deleted"
            )));
        }
        fs::rename(&partial, blob).map_err(cannot("rename", &partial))
    }

    fn complete(&self, file: &mut File, partial: &Path, remote: &Remote) -> Result<()> {
        let length_of =
            |file: &File| Ok::<_, Error>(file.metadata().map_err(cannot("read", partial))?.len());
        let size = remote.size;
        let mut length = length_of(file)?;
        if length >= size {
            if length == size && length > 0 {
                return Ok(());
            }
            length = 0;
        }
        let Repository { kind, id, .. } = self.repository;
        let below = if *kind == RepositoryKind::DataSet { "datasets/" } else { "" };
        let url = format!("{below}{id}/resolve/{}/{}", self.listing.commit, remote.rfilename);
        let time = self.hub.patience + Duration::from_secs(size / SLOWEST);
        let mut answer = self.hub.get(&url, length, time)?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            length = 0;
            answer = self.hub.get(&url, 0, time)?;
        }
        let part = answer.headers().get("content-range").and_then(|value| value.to_str().ok());
        let resumed = part.is_some_and(|part| part.starts_with(&format!("bytes {length}-")));
        match answer.status() {
            StatusCode::PARTIAL_CONTENT if resumed => debug!(length, "resumed"),
            StatusCode::OK => length = 0,
            status => {
                return Err(unavailable(format!("the server answered {status} to a download")));
            }
        }
        file.set_len(length).map_err(cannot("write", partial))?;
        // A byte more than there should be shows that there are more.
        let mut body = answer.into_body().into_reader().take(size - length + 1);
        let copied = io::copy(&mut body, file);
        length = length_of(file)?;
        let stopped = |why: &str| {
            Err(unavailable(format!(
                "the download stopped after {length} of {size} bytes{why}; the next run resumes it"
            )))
        };
        match copied {
            Err(error) => stopped(&format!(": {error}")),
            Ok(_) if length < size => stopped(""),
            Ok(_) if length > size => {
                file.set_len(0).map_err(cannot("write", partial))?;
                Err(unavailable(format!(
                    "the server sends more than the {size} bytes that this file may have"
                )))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// Git's name of a file's content in lower-case hex: SHA-1 of `blob SIZE`, a zero byte and the content.
fn git_sha1(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(cannot("read", path))?;
    let size = file.metadata().map_err(cannot("read", path))?.len();
    let mut hasher = Sha1::new_with_prefix(format!("blob {size}\0"));
    io::copy(&mut file, &mut hasher).map_err(cannot("read", path))?;
    Ok(hex(&hasher.finalize()))
}

/// Makes `file`, which a snapshot calls `name`, a link to `blob`, relative as Python's library makes it.
fn link(blob: &Path, file: &Path, name: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // A link whose blob was removed.
    if file.is_symlink() {
        fs::remove_file(file)?;
    }
    #[cfg(unix)]
    let made = {
        let root = "../".repeat(name.split('/').count() + 1);
        let hash = blob.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(Path::new(&root).join("blobs").join(hash), file)
    };
    #[cfg(not(unix))]
    let made = fs::copy(blob, file).map(drop);
    // Another process may have made it meanwhile.
    made.or_else(|error| if file.is_file() { Ok(()) } else { Err(error) })
}
