//! Model files from the Hugging Face Hub or its local cache.
//!
//! The cache has the layout of Hugging Face's Python library and is shared with it: `models--OWNER--NAME` holds `blobs/HASH`
//! with the bytes, `snapshots/COMMIT/FILE` with links to them, and `refs/main` with the commit. An unfinished download is
//! `blobs/HASH.incomplete` and is resumed. Environment variables: `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT`,
//! `HF_HUB_OFFLINE` and `HF_HUB_DOWNLOAD_TIMEOUT`. Offline, only the cache is read.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use lrvd_models::deberta::Pooling;
use serde::Deserialize;
use tracing::{debug, info, warn};
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::error::{Error, Result};
use crate::io::{create_dir, read_json, sha256_file, write_text};
use crate::text::{head, quoted};

const CONFIG: &str = "config.json";
/// Weights and the index of their shards, in the order of preference.
const WEIGHTS: [(&str, &str); 2] = [
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];
const TOKENIZERS: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "spm.model", "vocab.txt", BYTE_PAIRS];
/// A vocabulary that needs its merges.
const BYTE_PAIRS: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const OPTIONAL: [&str; 4] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja", Pooling::FILE];

const ENDPOINT: &str = "https://huggingface.co";
/// Seconds to wait for a connection, an answer or the next bytes, unless `HF_HUB_DOWNLOAD_TIMEOUT` is set.
const TIMEOUT: u64 = 30;
const REDIRECTS: u32 = 5;
const SHOWN: usize = 200;
/// Bytes a second that a download has at least: a file that drips would never end.
const SLOWEST: u64 = 16 << 10;
const LONGEST: usize = 200;

/// The folder that holds the files of repository `id`, downloading what is missing.
pub(super) fn snapshot(id: &str) -> Result<PathBuf> {
    // Weights last: a folder that has them has everything else that the repository offers.
    folder_of(id, is_complete, |repository| {
        for name in OPTIONAL {
            repository.fetch(name)?;
        }
        if repository.fetch_first(&TOKENIZERS)?.ends_with(BYTE_PAIRS) {
            repository.fetch_first(&[MERGES])?;
        }
        if weights(|name| repository.fetch(name))? {
            return Ok(());
        }
        let names = WEIGHTS.iter().flat_map(|&(single, index)| [single, index]);
        Err(format!("the hub has none of {} of this repository", quoted(names)))
    })
}

/// The folder that holds `config.json` of repository `id`, downloading no more than that.
pub(super) fn config(id: &str) -> Result<PathBuf> {
    folder_of(id, |_| true, |_| Ok(()))
}

/// The cached folder of repository `id` if it `is_enough`, else after `config.json` and `fetch`.
fn folder_of(
    id: &str,
    is_enough: impl Fn(&Path) -> bool,
    fetch: impl Fn(&Repository<'_>) -> Result<(), String>,
) -> Result<PathBuf> {
    let cache = variable("HF_HUB_CACHE").map_or_else(|| home().join("hub"), PathBuf::from);
    let failed = |why: String| missing(id, &cache, &why);
    if !id.split('/').all(is_plain) {
        return Err(failed("a repository's name has letters, digits, `.`, `-` and `_`".to_owned()));
    }
    let root = cache.join(format!("models--{}", id.replace('/', "--")));
    let commit = fs::read_to_string(root.join("refs/main")).unwrap_or_default();
    let folder = root.join("snapshots").join(commit.trim());
    if is_plain(commit.trim()) && folder.join(CONFIG).is_file() && is_enough(&folder) {
        debug!(repository = id, folder = %folder.display(), "in the cache");
        return Ok(folder);
    }
    debug!(repository = id, cache = %cache.display(), "not in the cache");
    if offline() {
        return Err(failed("HF_HUB_OFFLINE is set and the cache does not hold it".to_owned()));
    }
    let fetched = || {
        let repository = Repository::open(id, root)?;
        repository.fetch_first(&[CONFIG])?;
        fetch(&repository)?;
        repository.finish()
    };
    let folder = fetched().map_err(failed)?;
    debug!(repository = id, "fetched");
    Ok(folder)
}

/// Whether `get` finds weights, in one file or in the shards of an index. A missing shard is an error.
fn weights(get: impl Fn(&str) -> Result<Option<PathBuf>, String>) -> Result<bool, String> {
    for (single, index) in WEIGHTS {
        if get(single)?.is_some() {
            return Ok(true);
        }
        let Some(index) = get(index)? else { continue };
        for shard in shards(&index).map_err(|error| error.to_string())? {
            if get(&shard)?.is_none() {
                return Err(format!("the hub does not have `{shard}` of this repository"));
            }
        }
        return Ok(true);
    }
    Ok(false)
}

fn is_complete(folder: &Path) -> bool {
    let get = |name: &str| Some(folder.join(name)).filter(|file| file.is_file());
    weights(|name| Ok(get(name))) == Ok(true) && TOKENIZERS.iter().any(|name| get(name).is_some())
}

fn shards(index: &Path) -> Result<Vec<String>> {
    let value: serde_json::Value = read_json(index)?;
    let map = value.get("weight_map").and_then(serde_json::Value::as_object);
    let names = map.into_iter().flat_map(|map| map.values().filter_map(|name| name.as_str()));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn home() -> PathBuf {
    let usual = || std::env::home_dir().unwrap_or_default().join(".cache/huggingface");
    variable("HF_HOME").map_or_else(usual, PathBuf::from)
}

fn offline() -> bool {
    variable("HF_HUB_OFFLINE").is_some_and(|value| {
        matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
    })
}

#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn missing(id: &str, cache: &Path, why: &str) -> Error {
    let folder = id.rsplit('/').next().unwrap_or(id);
    let [(weights, index), (pytorch, _)] = WEIGHTS;
    anyhow!(
        "model `{id}`: {why} (cache: `{}`). Put these files into one folder and pass `--model FOLDER`, e.g. \
         `models/{folder}`: `{CONFIG}`; `{weights}` (or its shards with `{index}`) or `{pytorch}`; \
         `tokenizer.json`, `tokenizer.model`, `spm.model`, `vocab.txt`, or `{BYTE_PAIRS}` and `{MERGES}`; if they exist, {}",
        cache.display(),
        quoted(OPTIONAL)
    )
}

/// Whether `name` is a file's name and no path, hidden file or anything else.
fn is_plain(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.chars().all(usual)
}

#[derive(Deserialize)]
struct Listing {
    #[serde(rename = "sha")]
    commit: String,
    siblings: Vec<Remote>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remote {
    rfilename: String,
    /// Git's hash.
    blob_id: String,
    size: u64,
    /// Of a file in the store of large files.
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    sha256: String,
}

impl Remote {
    /// Names the content.
    fn hash(&self) -> &str {
        self.lfs.as_ref().map_or(&self.blob_id, |large| &large.sha256)
    }
}

struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    /// Deadline for a connection, for an answer, and for the next bytes of a file, which must also come at [`SLOWEST`].
    patience: Duration,
}

impl Hub {
    fn of_environment() -> Result<Self, String> {
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let stored = || fs::read_to_string(home().join("token")).ok();
        let token = variable("HF_TOKEN").or_else(stored).map(|token| token.trim().to_owned());
        let seconds = match variable("HF_HUB_DOWNLOAD_TIMEOUT") {
            None => TIMEOUT,
            Some(text) => text.parse().ok().filter(|&seconds| seconds > 0).ok_or_else(|| {
                format!(
                    "HF_HUB_DOWNLOAD_TIMEOUT is `{text}`, expected a whole number of seconds above 0"
                )
            })?,
        };
        let patience = Duration::from_secs(seconds);
        let each = Some(patience);
        let config = Agent::config_builder()
            .user_agent(concat!("lrvd/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(REDIRECTS)
            // The token is for the hub, and not for the store that it redirects to.
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .timeout_resolve(each)
            .timeout_connect(each)
            .timeout_send_request(each)
            .timeout_recv_response(each)
            .timeout_per_read(each);
        Ok(Self {
            agent: config.build().into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
            patience,
        })
    }

    /// The bytes at `path` from byte `start` on, or all (status 200) where the server sends no part, within `time`.
    fn get(&self, path: &str, start: u64, time: Duration) -> Result<Response<Body>, String> {
        let url = format!("{}/{path}", self.endpoint);
        let shown = head(url.split('?').next().unwrap_or(&url), SHOWN);
        let request = self.agent.get(&url).config().timeout_recv_body(Some(time)).build();
        let mut request = request.header("Accept-Encoding", "identity");
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer =
            request.call().map_err(|error| format!("`{shown}` did not answer: {error}"))?;
        let status = answer.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(answer);
        }
        let words = answer.headers().get("x-error-message").and_then(|words| words.to_str().ok());
        let words = words.map_or_else(String::new, |words| format!(": {}", head(words, SHOWN)));
        Err(format!("`{shown}` answered {status}{words}"))
    }
}

/// A repository of which files are fetched, all of one commit.
struct Repository<'a> {
    hub: Hub,
    id: &'a str,
    root: PathBuf,
    listing: Listing,
}

impl<'a> Repository<'a> {
    fn open(id: &'a str, root: PathBuf) -> Result<Self, String> {
        let hub = Hub::of_environment()?;
        let path = format!("api/models/{id}/revision/main?blobs=true");
        let listing = hub.get(&path, 0, hub.patience)?;
        let listing: Listing = listing
            .into_body()
            .read_json()
            .map_err(|error| format!("the hub's list of files cannot be read: {error}"))?;
        if !is_plain(&listing.commit) {
            let commit = listing.commit.escape_default();
            return Err(format!("the hub's commit `{commit}` is not a plain name"));
        }
        Ok(Self { hub, id, root, listing })
    }

    fn fetch_first(&self, names: &[&str]) -> Result<PathBuf, String> {
        for name in names {
            if let Some(file) = self.fetch(name)? {
                return Ok(file);
            }
        }
        Err(format!("the hub does not have {} of this repository", quoted(names)))
    }

    /// The file `name`, downloaded if the cache does not have it; `None` if the repository does not have it.
    fn fetch(&self, name: &str) -> Result<Option<PathBuf>, String> {
        if name != Pooling::FILE && !is_plain(name) {
            return Err(format!("`{}` is not a plain file name", name.escape_default()));
        }
        let mut files = self.listing.siblings.iter();
        let Some(remote) = files.find(|remote| remote.rfilename == name) else { return Ok(None) };
        let hash = remote.hash();
        if !is_plain(hash) {
            let hash = hash.escape_default();
            return Err(format!("`{name}`: the hub's hash `{hash}` is not a plain name"));
        }
        let file = self.snapshot().join(name);
        if !file.is_file() {
            let blob = self.root.join("blobs").join(hash);
            self.download(remote, &blob).map_err(|why| format!("`{name}`: {why}"))?;
            link(&blob, &file, name).map_err(|error| format!("`{}`: {error}", file.display()))?;
        }
        Ok(Some(file))
    }

    /// Notes the commit in the cache, and returns its folder.
    fn finish(self) -> Result<PathBuf, String> {
        let refs = self.root.join("refs");
        let note = || write_text(&refs.join("main"), &self.listing.commit);
        create_dir(&refs).and_then(|()| note()).map_err(|error| error.to_string())?;
        Ok(self.snapshot())
    }

    fn snapshot(&self) -> PathBuf {
        self.root.join("snapshots").join(&self.listing.commit)
    }

    /// Downloads `remote` to `blob`, which is there whole and checked or not at all.
    fn download(&self, remote: &Remote, blob: &Path) -> Result<(), String> {
        if blob.is_file() {
            return Ok(());
        }
        let name = &remote.rfilename;
        if let Some(folder) = blob.parent() {
            fs::create_dir_all(folder).map_err(words)?;
        }
        let partial = blob.with_file_name(format!("{}.incomplete", remote.hash()));
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
        if blob.is_file() {
            return Ok(());
        }
        self.complete(&mut file, remote)?;
        file.sync_all().map_err(words)?;
        if let Some(Large { sha256 }) = &remote.lfs {
            let found = sha256_file(&partial).map_err(|error| error.to_string())?;
            if !found.eq_ignore_ascii_case(sha256) {
                fs::remove_file(&partial).map_err(words)?;
                return Err(format!(
                    "the SHA-256 of the download is {found}, the hub states {sha256}; the download was deleted"
                ));
            }
        } else if [".safetensors", ".bin"].iter().any(|ending| name.ends_with(ending)) {
            warn!(file = name, "the hub states no SHA-256 of these weights: not checked");
        }
        fs::rename(&partial, blob).map_err(words)
    }

    fn complete(&self, file: &mut File, remote: &Remote) -> Result<(), String> {
        let (size, mut length) = (remote.size, file.metadata().map_err(words)?.len());
        if length >= size {
            if length == size && length > 0 {
                return Ok(());
            }
            length = 0;
        }
        let url = format!("{}/resolve/{}/{}", self.id, self.listing.commit, remote.rfilename);
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
            status => return Err(format!("the server answered {status} to a download")),
        }
        file.set_len(length).map_err(words)?;
        // A byte more than there should be shows that there are more.
        let mut body = answer.into_body().into_reader().take(size - length + 1);
        let copied = io::copy(&mut body, file);
        length = file.metadata().map_err(words)?.len();
        let stopped = |why: &str| {
            Err(format!(
                "the download stopped after {length} of {size} bytes{why}; the next run resumes it"
            ))
        };
        match copied {
            Err(error) => stopped(&format!(": {error}")),
            Ok(_) if length < size => stopped(""),
            Ok(_) if length > size => {
                file.set_len(0).map_err(words)?;
                Err(format!("the server sends more than the {size} bytes that this file may have"))
            }
            Ok(_) => Ok(()),
        }
    }
}

fn words(error: io::Error) -> String {
    error.to_string()
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
