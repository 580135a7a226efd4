//! Models by the name of a repository, from a stand-in for the hub on this machine.
#![allow(clippy::disallowed_types)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support::{Output, Sandbox, ended, model};

const COMMIT: &str = "1f0c3d5e7a9b2c4d6e8f0a1b3c5d7e9f1a2b3c4d";
/// What stands for weights, and its SHA-256 by coreutils' sha256sum.
const WEIGHTS: &[u8] = b"weights";
const SHA256: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
const NAME: &str = "model.safetensors";

/// One request.
#[derive(Clone)]
struct Call {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
}

impl Call {
    fn file(&self) -> &str {
        self.path.split('?').next().unwrap().rsplit('/').next().unwrap()
    }

    fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The first byte that is asked for.
    fn start(&self) -> usize {
        let range = self.headers.get("range").map_or("bytes=0-", String::as_str);
        range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
    }
}

/// What is sent, and whether the connection is then left open.
struct Answer {
    bytes: Vec<u8>,
    open: bool,
}

/// An answer with this status and these headers, with ` | ` between them.
fn answer(call: &Call, head: &str, body: &[u8]) -> Answer {
    let mut text = format!("HTTP/1.1 {}\r\nConnection: close\r\n", head.replace(" | ", "\r\n"));
    if !head.contains("Content-Length") {
        write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    let mut bytes = format!("{text}\r\n").into_bytes();
    if !call.is_head() {
        bytes.extend_from_slice(body);
    }
    Answer { bytes, open: false }
}

/// The head of a file of the commit.
fn found(etag: &str) -> String {
    format!("200 OK | X-Repo-Commit: {COMMIT} | ETag: {etag}")
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// A server that answers by `reply`, and the requests that it got.
fn server(reply: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}", listener.local_addr().unwrap());
    let (calls, reply) = (Calls::default(), Arc::new(reply));
    let seen = Arc::clone(&calls);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, reply, stream) = (Arc::clone(&seen), Arc::clone(&reply), stream.unwrap());
            std::thread::spawn(move || {
                let Some(call) = read(&stream) else { return };
                seen.lock().unwrap().push(call.clone());
                let Answer { bytes, open } = reply(&call);
                // A client may leave before it has read everything.
                let _ = (&stream).write_all(&bytes);
                if open {
                    loop {
                        std::thread::park();
                    }
                }
            });
        }
    });
    (root, calls)
}

fn read(stream: &TcpStream) -> Option<Call> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_lowercase(), value.to_owned()))
    });
    Some(Call { method, path, headers: headers.collect() })
}

/// Configuration and tokenizer as the hub sends small files; nothing else is there.
fn small(call: &Call) -> Answer {
    let file = model().join(call.file());
    let is_small = ["config.json", "tokenizer.json", "tokenizer_config.json"];
    match is_small.iter().position(|name| *name == call.file()) {
        Some(i) => answer(call, &found(&format!("\"{i:040}\"")), &std::fs::read(file).unwrap()),
        None => answer(call, "404 Not Found | X-Error-Code: EntryNotFound", b""),
    }
}

/// The bytes of the weights from the one on that is asked for.
fn part(call: &Call) -> Answer {
    let (start, size) = (call.start(), WEIGHTS.len());
    if start == 0 {
        return answer(call, "200 OK", WEIGHTS);
    }
    let head = format!("206 Partial Content | Content-Range: bytes {start}-{}/{size}", size - 1);
    answer(call, &head, &WEIGHTS[start..])
}

/// A hub whose weights are in a store on another address that answers by `reply`; both with their requests.
fn hub_with_store(
    reply: impl Fn(&Call) -> Answer + Send + Sync + 'static,
) -> (String, Calls, Calls) {
    let (store, stored) = server(reply);
    let (hub, asked) = server(move |call| match call.file() {
        NAME => {
            let head = format!(
                "302 Found | X-Repo-Commit: {COMMIT} | X-Linked-ETag: \"{SHA256}\" | X-Linked-Size: 7 | \
                 ETag: \"of-the-redirect\" | Location: {store}/blob?signature=secret"
            );
            answer(call, &head, b"")
        }
        _ => small(call),
    });
    (hub, asked, stored)
}

/// A user's home with rows, and beside them the cache.
struct Home(Sandbox);

impl Home {
    fn new() -> Self {
        let home = Sandbox::new();
        home.write("rows.csv", format!("text,label\n{}", "a,x\nb,y\n".repeat(20)));
        Self(home)
    }

    /// Checks the rows against the model `owner/name` of a hub.
    fn check(&self, hub: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = self.0.command("data check --model owner/name --train rows.csv");
        for name in
            ["HF_HUB_OFFLINE", "HF_HUB_CACHE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        {
            command.env_remove(name);
        }
        command
            .env("HF_HOME", self.0.path(""))
            .env("HF_ENDPOINT", hub)
            .env("HF_TOKEN", "hf_secret");
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "20").envs(environment.iter().copied());
        ended(command, "")
    }

    /// Expects that the model is had.
    #[track_caller]
    fn fetched(&self, hub: &str) {
        let output = self.check(hub, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
    }

    fn repository(&self) -> PathBuf {
        self.0.path("hub/models--owner--name")
    }

    fn weights(&self) -> PathBuf {
        self.repository().join("blobs").join(SHA256)
    }

    fn unfinished(&self) -> PathBuf {
        self.weights().with_extension("incomplete")
    }
}

fn with_token(calls: &Calls) -> BTreeSet<bool> {
    let calls = calls.lock().unwrap();
    let token = "Bearer hf_secret";
    calls.iter().map(|call| call.headers.get("authorization").is_some_and(|t| t == token)).collect()
}

#[test]
fn a_model_is_fetched_into_the_cache_of_pythons_library() {
    let home = Home::new();
    let (hub, asked, stored) = hub_with_store(part);
    home.fetched(&format!("{hub}/"));
    // The token goes to the hub alone, and messages do not show a signature of the store.
    assert_eq!(with_token(&asked), [true].into());
    assert_eq!(with_token(&stored), [false].into());
    assert_eq!(stored.lock().unwrap()[0].path, "/blob?signature=secret");
    // Everything after the first answer is asked of the commit that it named.
    for (i, call) in asked.lock().unwrap().iter().filter(|call| call.is_head()).enumerate() {
        let revision = if i == 0 { "main" } else { COMMIT };
        assert_eq!(call.path, format!("/owner/name/resolve/{revision}/{}", call.file()));
    }
    let repository = home.repository();
    assert_eq!(std::fs::read_to_string(repository.join("refs/main")).unwrap(), COMMIT);
    let snapshot = repository.join("snapshots").join(COMMIT);
    let link = |name: &str| std::fs::read_link(snapshot.join(name)).unwrap();
    assert_eq!(link(NAME), Path::new("../../blobs").join(SHA256));
    assert_eq!(link("config.json"), Path::new("../../blobs").join(format!("{:040}", 0)));
    assert_eq!(std::fs::read(snapshot.join(NAME)).unwrap(), WEIGHTS);
    assert!(!home.unfinished().exists());

    // What is in the cache is not asked for again, and works without a network.
    let count = asked.lock().unwrap().len();
    home.fetched(&hub);
    assert_eq!(asked.lock().unwrap().len(), count);
    assert_eq!(home.check("http://127.0.0.1:1", &[("HF_HUB_OFFLINE", "1")]).code, 0);
    std::fs::remove_file(home.weights()).unwrap();
    home.check(&hub, &[("HF_HUB_OFFLINE", "1")]).rejected("HF_HUB_OFFLINE is set");
    // A link whose blob was removed is made anew.
    home.fetched(&hub);
    assert_eq!(std::fs::read(snapshot.join(NAME)).unwrap(), WEIGHTS);
}

#[test]
fn a_redirect_within_the_hub_is_followed_with_the_token() {
    let home = Home::new();
    let (hub, asked) = server(|call| match call.path.strip_prefix("/owner/name") {
        Some(rest) => {
            answer(call, &format!("307 Temporary Redirect | Location: /new/name{rest}"), b"")
        }
        // Weights in one piece from the hub itself, by their name.
        None if call.file() == NAME => answer(call, &found(SHA256), WEIGHTS),
        None => small(call),
    });
    home.fetched(&hub);
    assert_eq!(with_token(&asked), [true].into());
    assert_eq!(std::fs::read(home.weights()).unwrap(), WEIGHTS);
}

#[test]
fn an_interrupted_download_is_resumed() {
    let whole = |call: &Call| answer(call, "200 OK", WEIGHTS);
    let satisfied = |call: &Call| match call.start() {
        0 => answer(call, "200 OK", WEIGHTS),
        _ => answer(call, "416 Range Not Satisfiable | Content-Range: bytes */7", b""),
    };
    let stores: [fn(&Call) -> Answer; 3] = [part, whole, satisfied];
    for store in stores {
        let home = Home::new();
        let (hub, ..) =
            hub_with_store(|call| answer(call, "200 OK | Content-Length: 7", &WEIGHTS[..3]));
        home.check(&hub, &[]).rejected("stopped after 3");
        assert_eq!(std::fs::read(home.unfinished()).unwrap(), &WEIGHTS[..3]);
        assert!(!home.weights().exists());
        let (hub, _, stored) = hub_with_store(store);
        home.fetched(&hub);
        assert_eq!(stored.lock().unwrap()[0].headers["range"], "bytes=3-");
        assert_eq!(std::fs::read(home.weights()).unwrap(), WEIGHTS);
        assert!(!home.unfinished().exists());
    }
}

/// What is said of a hub by which no model can be had, and how it answers.
type Bad = (&'static str, Box<dyn Fn(&Call) -> Answer + Send + Sync>);

fn bad(said: &'static str, reply: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Bad {
    (said, Box::new(reply))
}

/// Answers everything with this head and a document.
fn head(said: &'static str, head: impl Into<String>) -> Bad {
    let head = head.into();
    bad(said, move |call| answer(call, &head, b"{}"))
}

/// Sends these bytes and nothing else.
fn raw(said: &'static str, bytes: &'static [u8], open: bool) -> Bad {
    bad(said, move |_| Answer { bytes: bytes.to_vec(), open })
}

/// Sends what is right, but the weights with this status and body.
fn weights(said: &'static str, status: &'static str, body: &'static [u8]) -> Bad {
    bad(said, move |call| match call.file() {
        NAME if call.is_head() => answer(call, &found(SHA256), WEIGHTS),
        NAME => answer(call, &found(SHA256).replace("200 OK", status), body),
        _ => small(call),
    })
}

/// Names `shard` in the index of the weights, and has a file for every name.
fn shard(shard: &'static str) -> Bad {
    bad("is not a plain file name", move |call| {
        let index = serde_json::json!({"weight_map": {"x": shard}}).to_string();
        match call.file() {
            NAME => answer(call, "404 Not Found", b""),
            "model.safetensors.index.json" => answer(call, &found("1234"), index.as_bytes()),
            "config.json" | "tokenizer.json" => small(call),
            _ => answer(call, &found("5678"), b"hostile"),
        }
    })
}

/// Every file below `folder`.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, found): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.partition(|path| path.is_dir() && !path.is_symlink());
    folders.iter().flat_map(|folder| files(folder)).chain(found).collect()
}

/// Each ends in an error in words, in time, with no file outside the cache and none in it that has the name of a blob.
fn end_in_errors<const N: usize>(seconds: &str, all: [Bad; N]) {
    for (said, reply) in all {
        let home = Home::new();
        let (hub, calls) = server(reply);
        let output = home.check(&hub, &[("HF_HUB_DOWNLOAD_TIMEOUT", seconds)]);
        let text = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.code == 2 && text.contains(said), "{said}: {text}");
        assert!(text.contains("model `owner/name`") && !text.contains("secret"), "{text}");
        assert!(calls.lock().unwrap().len() < 30, "{said}");
        let cache = home.repository();
        let own = ["rows.csv", "train.tsv", "dev.csv"].map(|name| home.0.path(name));
        for file in files(&home.0.path("")) {
            let is_ours = own.contains(&file) || file.starts_with(&cache);
            assert!(is_ours, "{said}: {}", file.display());
        }
        assert!(!home.weights().exists() && !cache.join("refs/main").exists(), "{said}");
    }
}

#[test]
fn names_that_lead_out_of_the_cache_are_errors() {
    let names = [
        "../../../../../outside",
        concat!("/tm", "p/lrvd-outside"),
        "../config.json",
        "folder/model.safetensors",
        "..",
        "",
        ".hidden",
        "a\\b",
    ];
    end_in_errors("20", names.map(shard));
    let other = |call: &Call| match call.file() {
        "config.json" => small(call),
        _ => answer(call, "200 OK | X-Repo-Commit: 2 | ETag: 1", b"{}"),
    };
    end_in_errors(
        "20",
        [
            head("hub's etag `../../../../outside`", found("\"../../../../outside\"")),
            head("hub's etag `` is", found("\"\"")),
            head("hub's commit `../../..`", "200 OK | X-Repo-Commit: ../../.. | ETag: 1"),
            head("hub's commit `/tmp`", "200 OK | X-Repo-Commit: /tmp | ETag: 1"),
            head("has no `etag`", format!("200 OK | X-Repo-Commit: {COMMIT}")),
            head("has no `x-repo-commit`", "200 OK | ETag: 1"),
            head("the size is `-1`", found("1 | X-Linked-Size: -1")),
            bad("another commit", other),
        ],
    );
}

#[test]
fn downloads_that_are_not_what_the_hub_states_are_errors() {
    let absent = |call: &Call| match call.file() {
        NAME => answer(call, "404 Not Found", b""),
        _ => small(call),
    };
    end_in_errors(
        "20",
        [
            weights("the SHA-256 of the download is", "200 OK", b"Weights"),
            weights("sends more than the 7 bytes", "200 OK", b"weights and more"),
            weights("stopped after 3 of 7 bytes", "200 OK", &WEIGHTS[..3]),
            // A part of a file that was asked for from its first byte.
            weights(
                "answered 206 Partial Content",
                "206 Partial Content | Content-Range: bytes 3-6/7",
                WEIGHTS,
            ),
            weights("answered 404 Not Found", "404 Not Found", WEIGHTS),
            bad("has none of `model.safetensors`", absent),
        ],
    );
}

#[test]
fn answers_that_lead_nowhere_are_errors() {
    end_in_errors(
        "20",
        [
            head("302 Found without a location", "302 Found"),
            head("which is not an address", "302 Found | Location: ftp://elsewhere/"),
            head("which is not an address", "302 Found | Location: http://"),
            head("which is not an address", "302 Found | Location: http://[::/"),
            head("more than 5 redirects", "302 Found | Location: /owner/name/again"),
            head("more than 5 redirects", "307 Temporary Redirect | Location: again"),
            weights("more than 5 redirects", "302 Found | Location: model.safetensors", b""),
            head("hub does not have `config.json`", "404 Not Found"),
            head(
                "answered 401 Unauthorized: Access to it is restricted.",
                "401 Unauthorized | X-Error-Message: Access to it is restricted.",
            ),
            head("answered 500 Internal Server Error", "500 Internal Server Error"),
            head("answered 304", "304 Not Modified"),
            raw("did not answer", b"", false),
            raw("did not answer", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", false),
            raw("did not answer", b"HTTP/1.1 200 OK\r\nETag: \x00\r\n\r\n", false),
            head("did not answer", "200 OK | Content-Length: 99999999999999999999"),
        ],
    );
    let home = Home::new();
    for (endpoint, said) in [
        ("http://127.0.0.1:1", "did not answer"),
        ("nowhere", "`nowhere`, which is not an address"),
        (concat!("file:/", "//etc"), "which is not an address"),
    ] {
        home.check(endpoint, &[]).rejected(said);
    }
    let output = home.check("http://127.0.0.1:1", &[("HF_HUB_DOWNLOAD_TIMEOUT", "soon")]);
    assert!(output.stderr.contains("is `soon`, expected a whole number"), "{}", output.stderr);
}

#[test]
fn a_hub_that_is_silent_is_an_error() {
    let stops = |call: &Call| match call.file() {
        NAME => {
            let head = format!("{} | Content-Length: 7", found(SHA256));
            Answer { open: !call.is_head(), ..answer(call, &head, &WEIGHTS[..3]) }
        }
        _ => small(call),
    };
    end_in_errors(
        "1",
        [
            raw("did not answer: timeout", b"", true),
            raw("did not answer: timeout", b"HTTP/1.1 200 OK\r\nX-Repo-Commit", true),
            bad("stopped after 3 bytes: timeout", stops),
        ],
    );
}
