//! Model files from the Hugging Face Hub or its local cache.
//!
//! The cache has the layout of Hugging Face's Python library and is shared with it: `models--OWNER--NAME` holds `blobs/HASH`
//! with the bytes, `snapshots/COMMIT/FILE` with links to them, `.no_exist/COMMIT/FILE` for a file that the repository does not
//! have, and `refs/REVISION` with the commit. An unfinished download is `blobs/HASH.incomplete` and is resumed.
//!
//! A snapshot of Python's library may lack files that only this program reads. Each file that is looked for is in the snapshot
//! or known not to exist, else the hub is asked for it: a model has the same files, whatever program filled the cache. Where the hub
//! cannot be asked, the snapshot is used and a note names the files.
//!
//! Environment variables are those of Python's library (`huggingface_hub/constants.py`): the cache is at `HF_HUB_CACHE`, else
//! `HUGGINGFACE_HUB_CACHE`, else `hub` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache`; the token is
//! `HF_TOKEN`, else `HUGGING_FACE_HUB_TOKEN`, else that of the file `HF_TOKEN_PATH`, else of `token` in the same home. An empty
//! one is as if it were not set. Offline (`HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`) only the cache is read.

use std::cell::RefCell;
use std::env::VarError;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use lrvd_burn::files::{is_file, lacks_locks};
use lrvd_models::deberta::Pooling;
use serde::Deserialize;
use sha1::{Digest as _, Sha1};
use tracing::{debug, info};
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::error::{Error, Kind, Result, kind_of};
use crate::io::{cannot, create_dir, hex, read_json, sha256_file, write_text};
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

/// Variable of the user's home.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
const ENDPOINT: &str = "https://huggingface.co";
/// Seconds to wait for a connection, an answer or the next bytes, unless `HF_HUB_DOWNLOAD_TIMEOUT` is set.
const TIMEOUT: u64 = 30;
const REDIRECTS: u32 = 5;
const SHOWN: usize = 200;
/// Bytes a second that a download has at least: a file that drips would never end.
const SLOWEST: u64 = 16 << 10;
const LONGEST: usize = 200;

/// The folder of a repository's files, and what is to be known of them.
pub(super) type Snapshot = (PathBuf, Option<String>);

/// Looks a file of a repository up by its name; `None` if there is none.
type Get<'a> = &'a dyn Fn(&str) -> Result<Option<PathBuf>>;

/// The files of repository `id` at a branch, tag or commit; what the cache lacks is downloaded.
pub(super) fn snapshot(id: &str, revision: &str) -> Result<Snapshot> {
    // Weights last: they take longest.
    folder_of(id, revision, |get| {
        for name in OPTIONAL {
            get(name)?;
        }
        if first(&TOKENIZERS, get)?.ends_with(BYTE_PAIRS) {
            first(&[MERGES], get)?;
        }
        let names = WEIGHTS.iter().flat_map(|&(single, index)| [single, index]);
        ensure!(weights(get)?, "the hub has none of {} of this repository", quoted(names));
        Ok(())
    })
}

/// The folder with `config.json` of repository `id`; nothing else is downloaded.
pub(super) fn config(id: &str, revision: &str) -> Result<Snapshot> {
    folder_of(id, revision, |_| Ok(()))
}

/// The folder with `config.json` and all files that `look_up` looks up.
fn folder_of(
    id: &str,
    revision: &str,
    look_up: impl Fn(Get<'_>) -> Result<()>,
) -> Result<Snapshot> {
    let cache =
        cache(&variable).with_context(|| format!("model `{id}`: there is no place for it"))?;
    let failed = |error: Error| missing(id, &cache, &error);
    for (what, name) in [("repository's name", id), ("revision", revision)] {
        if !name.split('/').all(is_plain) {
            return Err(failed(anyhow!("a {what} has letters, digits, `.`, `-` and `_`")));
        }
    }
    let root = cache.join(format!("models--{}", id.replace('/', "--")));
    let noted = if is_commit(revision) {
        revision.to_owned()
    } else {
        text(&root.join("refs").join(revision)).map_err(failed)?.unwrap_or_default()
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
    let is_there = is_plain(&commit) && held(CONFIG).map_err(failed)?.is_some();
    let is_usable = is_there && look_up(&held).is_ok();
    let unknown = unknown.into_inner();
    if is_usable && unknown.is_empty() {
        debug!(repository = id, folder = %folder.display(), "in the cache");
        return Ok((folder, None));
    }
    debug!(repository = id, cache = %cache.display(), "not all in the cache");
    let fetched = || {
        if offline()? {
            bail!("HF_HUB_OFFLINE is set and the cache does not hold it");
        }
        // A model that is there keeps its commit.
        let asked = if is_usable { &commit } else { revision };
        let repository = Repository::open(id, root.clone(), asked)?;
        first(&[CONFIG], &|name| repository.fetch(name))?;
        look_up(&|name| repository.fetch(name))?;
        repository.finish(revision)
    };
    match fetched() {
        Ok(folder) => {
            debug!(repository = id, "fetched");
            Ok((folder, None))
        }
        Err(error) if is_usable => {
            let note = format!(
                "model `{id}`: the cache has no {}, and it is not known if the repository has ({error:#}); the files of the \
                 cache are used",
                quoted(unknown)
            );
            Ok((folder, Some(note)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Folder of the empty files that mark what a repository does not have at a commit.
fn absent(root: &Path, commit: &str) -> PathBuf {
    root.join(".no_exist").join(commit)
}

/// The first of `names` that there is.
fn first(names: &[&str], get: Get<'_>) -> Result<PathBuf> {
    for name in names {
        if let Some(file) = get(name)? {
            return Ok(file);
        }
    }
    bail!("the hub does not have {} of this repository", quoted(names))
}

/// `true` if `get` finds weights, in one file or in the shards of an index. A missing shard is an error.
fn weights(get: Get<'_>) -> Result<bool> {
    for (single, index) in WEIGHTS {
        if get(single)?.is_some() {
            return Ok(true);
        }
        let Some(index) = get(index)? else { continue };
        for shard in shards(&index)? {
            ensure!(get(&shard)?.is_some(), "the hub does not have `{shard}` of this repository");
        }
        return Ok(true);
    }
    Ok(false)
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

/// Looks a variable of the environment up.
type Variables<'a> = &'a dyn Fn(&str) -> Result<Option<String>>;

/// The first of the variables that is set.
fn first_set(names: [&str; 2], variables: Variables<'_>) -> Result<Option<String>> {
    Ok(variables(names[0])?.or(variables(names[1])?))
}

/// Folder of the repositories.
fn cache(variables: Variables<'_>) -> Result<PathBuf> {
    let found = match first_set(["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"], variables)? {
        Some(folder) => expanded(&folder, variables)?,
        None => hub_home(variables)?.map(|home| home.join("hub")),
    };
    found.ok_or_else(|| {
        anyhow!(
            "this user has no home (`{HOME}` is not set): set `HF_HOME` to a folder for the cache, or pass `--model FOLDER`"
        )
    })
}

/// File of the token that `hf auth login` stores; `None` of a user without a home.
fn token_file(variables: Variables<'_>) -> Result<Option<PathBuf>> {
    match variables("HF_TOKEN_PATH")? {
        Some(file) => expanded(&file, variables),
        None => Ok(hub_home(variables)?.map(|home| home.join("token"))),
    }
}

/// Folder of the cache and of the token; `None` of a user without a home.
fn hub_home(variables: Variables<'_>) -> Result<Option<PathBuf>> {
    if let Some(folder) = variables("HF_HOME")? {
        return expanded(&folder, variables);
    }
    let shared = variables("XDG_CACHE_HOME")?.unwrap_or_else(|| "~/.cache".to_owned());
    Ok(expanded(&shared, variables)?.map(|shared| shared.join("huggingface")))
}

/// `path` with a leading `~`, `$NAME` and `${NAME}` replaced, as Python's `expandvars(expanduser(path))` does: a variable that is
/// not set stays as it is. `None` if it starts with `~` and the user has no home.
fn expanded(path: &str, variables: Variables<'_>) -> Result<Option<PathBuf>> {
    let is_separator = |c: char| c == '/' || (cfg!(windows) && c == '\\');
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with(is_separator) => {
            let Some(home) = home(variables)? else { return Ok(None) };
            home + rest
        }
        Some(_) => bail!("the home of another user in `{path}` is not looked up: write it out"),
        None => path.to_owned(),
    };
    let mut made = String::new();
    let mut rest = path.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        made.push_str(before);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, behind) = match after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            Some(found) => found,
            None => after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len())),
        };
        let value = if name.is_empty() { None } else { variables(name)? };
        match value {
            Some(value) => made.push_str(&value),
            None => made.push_str(&rest[before.len()..rest.len() - behind.len()]),
        }
        rest = behind;
    }
    Ok(Some((made + rest).into()))
}

/// The user's home: of the environment, else of the system's list of users.
fn home(variables: Variables<'_>) -> Result<Option<String>> {
    let listed = || std::env::home_dir()?.into_os_string().into_string().ok();
    Ok(variables(HOME)?.or_else(listed).filter(|home| !home.is_empty()))
}

fn offline() -> Result<bool> {
    let set = first_set(["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"], &variable)?;
    Ok(set.is_some_and(|value| {
        matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
    }))
}

/// A variable of the environment that is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        // It may be a secret.
        Err(VarError::NotUnicode(_)) => bail!("the environment variable `{name}` is not UTF-8"),
    }
}

/// The text of a file; `None` if there is none.
fn text(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).map_err(cannot("read", file)),
    }
}

fn missing(id: &str, cache: &Path, error: &Error) -> Error {
    let folder = id.rsplit('/').next().unwrap_or(id);
    let [(weights, index), (pytorch, _)] = WEIGHTS;
    let nowhere = if folder == id { "no such folder or `.gguf` file here, and " } else { "" };
    let message = anyhow!(
        "model `{id}`: {nowhere}{error:#} (cache: `{}`). Put these files into one folder and pass `--model FOLDER`, e.g. \
         `models/{folder}`: `{CONFIG}`; `{weights}` (or its shards with `{index}`) or `{pytorch}`; \
         `tokenizer.json`, `tokenizer.model`, `spm.model`, `vocab.txt`, or `{BYTE_PAIRS}` and `{MERGES}`; if they exist, {}",
        cache.display(),
        quoted(OPTIONAL)
    );
    match kind_of(error) {
        Some(kind) => kind.mark(message),
        None => message,
    }
}

/// An error that a later start may not meet.
fn unavailable(what: String) -> Error {
    Kind::Unavailable.mark(anyhow!(what))
}

/// `true` for the hash of a commit, as opposed to the name of a branch or tag.
fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// `true` if `name` is a file's name and no path, hidden file or anything else.
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
    /// Git's hash of the content, or of the pointer to a large file.
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
    fn of_environment() -> Result<Self> {
        let endpoint = variable("HF_ENDPOINT")?.unwrap_or_else(|| ENDPOINT.to_owned());
        let is_address = endpoint.parse().is_ok_and(|uri: Uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
        ensure!(
            is_address,
            "HF_ENDPOINT is `{endpoint}`, expected an address that starts with `https://` or `http://`"
        );
        let token = match first_set(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"], &variable)? {
            Some(token) => Some(token),
            None => token_file(&variable)?.map(|file| text(&file)).transpose()?.flatten(),
        };
        let token = token.map(|token| token.trim().to_owned());
        let seconds = match variable("HF_HUB_DOWNLOAD_TIMEOUT")? {
            None => TIMEOUT,
            Some(text) => text.parse().ok().filter(|&seconds| seconds > 0).ok_or_else(|| {
                anyhow!(
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
    fn get(&self, path: &str, start: u64, time: Duration) -> Result<Response<Body>> {
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
        let answer = request
            .call()
            .map_err(|error| unavailable(format!("`{shown}` did not answer: {error}")))?;
        let status = answer.status();
        if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(answer);
        }
        let words = answer.headers().get("x-error-message").and_then(|words| words.to_str().ok());
        let words = words.map_or_else(String::new, |words| format!(": {}", head(words, SHOWN)));
        let token = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; a private or gated repository needs a token with access to it (`HF_TOKEN`, or `hf auth login`)"
            }
            _ => "",
        };
        let what = format!("`{shown}` answered {status}{words}{token}");
        let passes = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        let is_busy = status.is_server_error() || passes.contains(&status);
        Err(if is_busy { unavailable(what) } else { anyhow!(what) })
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
    fn open(id: &'a str, root: PathBuf, revision: &str) -> Result<Self> {
        let hub = Hub::of_environment()?;
        let revision = revision.replace('/', "%2F");
        let path = format!("api/models/{id}/revision/{revision}?blobs=true");
        let listing = hub.get(&path, 0, hub.patience)?;
        let listing: Listing = listing.into_body().read_json().map_err(|error| {
            unavailable(format!("the hub's list of files cannot be read: {error}"))
        })?;
        if !is_plain(&listing.commit) {
            bail!("the hub's commit `{}` is not a plain name", listing.commit.escape_default());
        }
        Ok(Self { hub, id, root, listing })
    }

    /// The file `name`, downloaded if the cache does not have it; `None` if the repository does not have it, which is noted.
    fn fetch(&self, name: &str) -> Result<Option<PathBuf>> {
        if name != Pooling::FILE && !is_plain(name) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of `constants.py` of version 2.4.0.
    #[cfg(unix)]
    #[test]
    fn the_cache_and_the_token_are_where_pythons_library_has_them() {
        let found = |set: &str| {
            let variables = |name: &str| {
                let mut set = set.split(' ').filter_map(|pair| pair.split_once('='));
                Ok(set.find(|(own, _)| *own == name).map(|(_, value)| value.to_owned()))
            };
            let token = token_file(&variables).unwrap();
            (cache(&variables), token.map(|file| file.display().to_string()))
        };
        for (set, expected_cache, expected_token) in [
            ("HOME=/u", "/u/.cache/huggingface/hub", "/u/.cache/huggingface/token"),
            ("HOME=/u XDG_CACHE_HOME=/c", "/c/huggingface/hub", "/c/huggingface/token"),
            ("HOME=/u XDG_CACHE_HOME=/c HF_HOME=~/x", "/u/x/hub", "/u/x/token"),
            ("HOME=/u HF_HOME=$HOME/x", "/u/x/hub", "/u/x/token"),
            ("HOME=/u HF_HOME=/a${HOME}/$X_1$", "/a/u/$X_1$/hub", "/a/u/$X_1$/token"),
            ("HOME=/u HF_HOME=${X", "${X/hub", "${X/token"),
            ("HOME=/u HF_HOME=/h HUGGINGFACE_HUB_CACHE=~/old", "/u/old", "/h/token"),
            (
                "HOME=/u HUGGINGFACE_HUB_CACHE=/old HF_HUB_CACHE=~",
                "/u",
                "/u/.cache/huggingface/token",
            ),
            ("HOME=/u HF_HOME=/h HF_TOKEN_PATH=~/t", "/h/hub", "/u/t"),
        ] {
            let (cache, token) = found(set);
            assert_eq!(cache.unwrap(), Path::new(expected_cache), "{set}");
            assert_eq!(token.as_deref(), Some(expected_token), "{set}");
        }
        let (cache, token) = found("HOME=");
        assert_eq!(token, None);
        assert!(cache.unwrap_err().to_string().contains("set `HF_HOME`"));
        assert_eq!(found("HOME= HF_HUB_CACHE=/c").0.unwrap(), Path::new("/c"));
        let error = found("HF_HUB_CACHE=~eve/c").0.unwrap_err().to_string();
        assert!(error.contains("`~eve/c` is not looked up"), "{error}");
    }
}
