//! Requests to the hub, and downloads into its cache.
//!
//! Redirects are followed here and not by the HTTP library, because the answer that redirects to a store of large files
//! is the one that states the file's hash, and because the token is for the hub's own host.

use std::fs::{File, TryLockError};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};
use ureq::http::{Method, Request, Response, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::io::{create_dir, sha256_file, write_text};
use crate::text::{head, quoted};

/// Redirects in a row.
const REDIRECTS: usize = 5;
/// Characters of a server's message that are shown.
const SHOWN: usize = 200;

pub(super) struct Client {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    token: Option<String>,
    patience: Duration,
}

type Origin = (String, String, u16);

pub(super) struct Remote {
    /// Where its bytes are.
    pub(super) url: String,
    pub(super) commit: String,
    /// Names the content: SHA-256 in hex for files in the store of large files.
    pub(super) etag: String,
    pub(super) size: Option<u64>,
}

impl Client {
    /// Requests to the hub at `endpoint`. The deadline `patience` is for a connection, for an answer, and for the next
    /// bytes of a file, which must also come at [`SLOWEST`] beside it.
    pub(super) fn new(
        endpoint: &str,
        token: Option<String>,
        patience: Duration,
    ) -> Result<Self, String> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let each = Some(patience);
        let config = Agent::config_builder()
            .user_agent(concat!("lrvd/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(each)
            .timeout_connect(each)
            .timeout_send_request(each)
            .timeout_recv_response(each)
            .timeout_per_read(each);
        let origin = origin(&endpoint)?;
        Ok(Self { agent: config.build().into(), endpoint, origin, token, patience })
    }

    /// What the hub states of `path`; `None` if it has no such file.
    pub(super) fn ask(&self, path: &str) -> Result<Option<Remote>, String> {
        let mut url = format!("{}/{path}", self.endpoint);
        let (mut commit, mut linked, mut linked_size) = (None, None, None);
        for _ in 0..=REDIRECTS {
            let answer = self.send(Method::HEAD, &url, 0)?;
            if answer.status() == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            // A redirect within the hub may state these or leave them to the answer that it leads to.
            commit = commit.or_else(|| text(&answer, "x-repo-commit"));
            linked = linked.or_else(|| text(&answer, "x-linked-etag"));
            linked_size = linked_size.or_else(|| text(&answer, "x-linked-size"));
            let target = redirect(&answer, &url)?;
            if let Some(target) = &target
                && origin(target)? == self.origin
            {
                url.clone_from(target);
                continue;
            }
            let size = match &target {
                None => linked_size.or_else(|| text(&answer, "content-length")),
                Some(_) => linked_size,
            };
            let size = size.map(|size| {
                let wrong = |_| format!("`{}`: the size is `{size}`", shown(&url));
                size.parse().map_err(wrong)
            });
            let needed = |value: Option<String>, header: &str| {
                value.ok_or_else(|| format!("`{}`: the answer has no `{header}`", shown(&url)))
            };
            let etag = needed(linked.or_else(|| text(&answer, "etag")), "etag")?;
            return Ok(Some(Remote {
                commit: needed(commit, "x-repo-commit")?,
                etag: etag.trim_start_matches("W/").trim_matches('"').to_owned(),
                size: size.transpose()?,
                url: target.unwrap_or(url),
            }));
        }
        Err(endless(&url))
    }

    /// The bytes at `url` from byte `start` on, or all of them where the server sends no part: then the status is 200.
    pub(super) fn read(&self, url: &str, start: u64) -> Result<Response<Body>, String> {
        let mut url = url.to_owned();
        for _ in 0..=REDIRECTS {
            let answer = self.send(Method::GET, &url, start)?;
            match redirect(&answer, &url)? {
                None => return Ok(answer),
                Some(target) => url = target,
            }
        }
        Err(endless(&url))
    }

    fn send(&self, method: Method, url: &str, start: u64) -> Result<Response<Body>, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("`{}` did not answer: {error}", shown(url));
        let mut request = Request::builder().method(method).uri(url);
        request = request.header("Accept-Encoding", "identity");
        if start > 0 {
            request = request.header("Range", format!("bytes={start}-"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| origin(url) == Ok(self.origin.clone()))
        {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|error| failed(&error))?;
        let answer = self.agent.run(request).map_err(|error| failed(&error))?;
        let status = answer.status();
        let understood = status.is_success()
            || redirects(status)
            || [StatusCode::NOT_FOUND, StatusCode::RANGE_NOT_SATISFIABLE].contains(&status);
        if understood {
            return Ok(answer);
        }
        let words = text(&answer, "x-error-message").unwrap_or_default();
        let words = if words.is_empty() { words } else { format!(": {}", head(&words, SHOWN)) };
        Err(format!("`{}` answered {status}{words}", shown(url)))
    }
}

fn redirects(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn text(answer: &Response<Body>, header: &str) -> Option<String> {
    answer.headers().get(header)?.to_str().ok().map(str::to_owned)
}

/// Where an answer redirects to, if it does.
fn redirect(answer: &Response<Body>, url: &str) -> Result<Option<String>, String> {
    if !redirects(answer.status()) {
        return Ok(None);
    }
    let wrong = |what: &str| format!("`{}` answered {} {what}", shown(url), answer.status());
    let location = text(answer, "location").ok_or_else(|| wrong("without a location"))?;
    let base: Uri = url.parse().map_err(|_| wrong("to what is not a URL"))?;
    let (scheme, host) = match (base.scheme_str(), base.authority()) {
        (Some(scheme), Some(host)) => (scheme, host.as_str()),
        _ => return Err(wrong("to what is not a URL")),
    };
    let target = if location.contains("://") {
        location
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{host}{location}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{host}{folder}/{location}")
    };
    origin(&target).map_err(|why| wrong(&format!("to {why}")))?;
    Ok(Some(target))
}

fn origin(url: &str) -> Result<Origin, String> {
    let wrong = || format!("`{}`, which is not an address of the web", shown(url));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = uri.scheme_str().unwrap_or_default().to_owned();
    let usual = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(wrong()),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    Ok((scheme, host.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
}

/// A URL as messages show it: behind a question mark may be a signature.
fn shown(url: &str) -> &str {
    head(url.split('?').next().unwrap_or(url), SHOWN)
}

fn endless(url: &str) -> String {
    format!("`{}`: more than {REDIRECTS} redirects", shown(url))
}

// The layout is that of Hugging Face's Python library: `models--OWNER--NAME` holds `blobs/ETAG` with the bytes,
// `snapshots/COMMIT/FILE` with links to them, and `refs/main` with the commit. An unfinished download is
// `blobs/ETAG.incomplete` and is resumed.

/// Bytes written at a time.
const BLOCK: usize = 1 << 16;
/// Bytes a second that a download has at least: a file that drips would never end.
const SLOWEST: u64 = 16 << 10;
/// Most bytes of a file whose size the hub does not state.
const UNSTATED: u64 = 256 << 20;
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
            match check(&partial, remote) {
                Ok(false) if is_weights(name) => {
                    warn!(file = name, "the hub states no SHA-256 of these weights: not checked");
                }
                Ok(_) => {}
                Err(why) => {
                    std::fs::remove_file(&partial).map_err(words)?;
                    return Err(format!("{why}; the download was deleted"));
                }
            }
            std::fs::rename(&partial, blob).map_err(words)?;
        }
        Ok(())
    }

    fn complete(&self, file: &mut File, remote: &Remote) -> Result<(), String> {
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
        let most = remote.size.unwrap_or(UNSTATED);
        let time = Duration::from_secs(most.saturating_sub(length) / SLOWEST);
        let body = answer.into_body().into_reader();
        length = append(file, length, body, most, self.client.patience + time)?;
        match remote.size {
            Some(size) if length < size => {
                Err(format!("the download stopped after {length} of {size} bytes; {RESUMED}"))
            }
            _ => Ok(()),
        }
    }
}

/// Writes `body` behind the `length` bytes of `file`, and returns how many it then has: `most` of them, written within `time`.
fn append(
    file: &mut File,
    mut length: u64,
    mut body: impl Read,
    most: u64,
    time: Duration,
) -> Result<u64, String> {
    let stopped = |length: u64, why: &str| {
        format!("the download stopped after {length} bytes: {why}; {RESUMED}")
    };
    let (begun, mut block) = (Instant::now(), vec![0; BLOCK]);
    loop {
        let n = body.read(&mut block).map_err(|error| stopped(length, &error.to_string()))?;
        if n == 0 {
            return Ok(length);
        }
        length += n as u64;
        if length > most {
            file.set_len(0).map_err(words)?;
            return Err(format!(
                "the server sends more than the {most} bytes that this file may have"
            ));
        }
        file.write_all(&block[..n]).map_err(words)?;
        if begun.elapsed() > time {
            return Err(stopped(length, &format!("slower than {} KiB a second", SLOWEST >> 10)));
        }
    }
}

fn words(error: std::io::Error) -> String {
    error.to_string()
}

fn is_weights(name: &str) -> bool {
    [".safetensors", ".bin"].iter().any(|ending| name.ends_with(ending))
}

/// Checks the SHA-256 of a download, and returns whether the hub states it.
fn check(file: &Path, remote: &Remote) -> Result<bool, String> {
    // Small files have Git's own hash, of 40 digits.
    let is_sha256 = remote.etag.len() == 64 && remote.etag.chars().all(|c| c.is_ascii_hexdigit());
    if is_sha256 {
        let found = sha256_file(file).map_err(|error| error.to_string())?;
        if !found.eq_ignore_ascii_case(&remote.etag) {
            let stated = &remote.etag;
            return Err(format!("the SHA-256 of the download is {found}, the hub states {stated}"));
        }
    }
    Ok(is_sha256)
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

    /// One byte at a time without an end, each after a while.
    struct Drip;

    impl Read for Drip {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            std::thread::sleep(Duration::from_millis(10));
            buffer[0] = b'a';
            Ok(1)
        }
    }

    #[test]
    fn a_download_without_an_end_ends() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("blob");
        let mut file = File::create(&path).unwrap();
        let patience = Duration::from_millis(50);
        let error = append(&mut file, 0, Drip, u64::MAX, patience).unwrap_err();
        assert!(error.ends_with("slower than 16 KiB a second; the next run resumes it"), "{error}");
        // What has come stays, so that the next run has less to read.
        assert_ne!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let own = origin("https://Hub.example/sub").unwrap();
        for (url, same) in [
            ("https://hub.example:443/x", true),
            ("https://user:word@hub.example/x?y=http://a", true),
            ("http://hub.example/", false),
            ("https://hub.example:444/", false),
            ("https://hub.example.evil/", false),
            ("https://hub.example@evil.example/", false),
            ("https://evil.example/hub.example", false),
        ] {
            assert_eq!(origin(url).unwrap() == own, same, "{url}");
        }
        for bad in ["", "hub", "ftp://hub/", "https://", "/x", "https://[::", "https://a b/"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
