//! Models by the name of a repository, from a stand-in for the hub on this machine.
#![allow(clippy::disallowed_types)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::support::{Output, Sandbox, ended, files_below, placed};

const COMMIT: &str = "1f0c3d5e7a9b2c4d6e8f0a1b3c5d7e9f1a2b3c4d";
/// What stands for weights, and its SHA-256 by coreutils' sha256sum.
const WEIGHTS: &[u8] = b"weights";
const SHA256: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
const NAME: &str = "model.safetensors";
const TIMEOUT: (&str, &str) = ("HF_HUB_DOWNLOAD_TIMEOUT", "20");
const REPOSITORY: &str = "hub/models--owner--name";
const BLOB: &str = "hub/models--owner--name/blobs/9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
const UNFINISHED: &str = "hub/models--owner--name/blobs/9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c.incomplete";

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
    let file = placed("@nano/") + call.file();
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
fn home() -> Sandbox {
    let home = Sandbox::new();
    home.write("rows.csv", format!("text,label\n{}", "a,x\nb,y\n".repeat(20)));
    home
}

/// Checks the rows against the model `owner/name` of a hub, with a variable of the environment.
fn check(home: &Sandbox, hub: &str, variable: (&str, &str)) -> Output {
    let mut command = home.command("data check --model owner/name --train rows.csv");
    for name in "HF_HUB_OFFLINE HF_HUB_CACHE http_proxy HTTP_PROXY all_proxy ALL_PROXY".split(' ') {
        command.env_remove(name);
    }
    let endpoint = [("HF_ENDPOINT", hub), ("HF_TOKEN", "hf_secret"), TIMEOUT, variable];
    command.env("HF_HOME", home.root()).envs(endpoint);
    ended(command, "")
}

#[track_caller]
fn fetched(home: &Sandbox, hub: &str) {
    let output = check(home, hub, TIMEOUT);
    assert_eq!(output.code, 0, "{}", output.stderr);
}

fn with_token(calls: &Calls) -> BTreeSet<bool> {
    let calls = calls.lock().unwrap();
    let token = "Bearer hf_secret";
    calls.iter().map(|call| call.headers.get("authorization").is_some_and(|t| t == token)).collect()
}

#[test]
fn a_model_is_fetched_into_the_cache_of_pythons_library() {
    let home = home();
    let (hub, asked, stored) = hub_with_store(part);
    fetched(&home, &format!("{hub}/"));
    // The token goes to the hub alone, and messages do not show a signature of the store.
    assert_eq!((with_token(&asked), with_token(&stored)), ([true].into(), [false].into()));
    assert_eq!(stored.lock().unwrap()[0].path, "/blob?signature=secret");
    // Everything after the first answer is asked of the commit that it named.
    for (i, call) in asked.lock().unwrap().iter().filter(|call| call.is_head()).enumerate() {
        let revision = if i == 0 { "main" } else { COMMIT };
        assert_eq!(call.path, format!("/owner/name/resolve/{revision}/{}", call.file()));
    }
    assert_eq!(home.text(&format!("{REPOSITORY}/refs/main")), COMMIT);
    let snapshot = |name: &str| format!("{REPOSITORY}/snapshots/{COMMIT}/{name}");
    for (name, blob) in [(NAME, SHA256.to_owned()), ("config.json", format!("{:040}", 0))] {
        let link = std::fs::read_link(home.path(&snapshot(name))).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(blob));
    }
    assert_eq!(home.bytes(&snapshot(NAME)), WEIGHTS);
    assert!(!home.exists(UNFINISHED));

    // What is in the cache is not asked for again, and works without a network.
    let count = asked.lock().unwrap().len();
    fetched(&home, &hub);
    assert_eq!(asked.lock().unwrap().len(), count);
    let offline = ("HF_HUB_OFFLINE", "1");
    assert_eq!(check(&home, "http://127.0.0.1:1", offline).code, 0);
    std::fs::remove_file(home.path(BLOB)).unwrap();
    check(&home, &hub, offline).rejected("HF_HUB_OFFLINE is set");
    // A link whose blob was removed is made anew.
    fetched(&home, &hub);
    assert_eq!(home.bytes(&snapshot(NAME)), WEIGHTS);
}

#[test]
fn a_redirect_within_the_hub_is_followed_with_the_token() {
    let home = home();
    let (hub, asked) = server(|call| match call.path.strip_prefix("/owner/name") {
        Some(rest) => {
            answer(call, &format!("307 Temporary Redirect | Location: /new/name{rest}"), b"")
        }
        // Weights in one piece from the hub itself, by their name.
        None if call.file() == NAME => answer(call, &found(SHA256), WEIGHTS),
        None => small(call),
    });
    fetched(&home, &hub);
    assert_eq!((with_token(&asked), home.bytes(BLOB)), ([true].into(), WEIGHTS.to_owned()));
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
        let home = home();
        let half = |call: &Call| answer(call, "200 OK | Content-Length: 7", &WEIGHTS[..3]);
        let (hub, ..) = hub_with_store(half);
        check(&home, &hub, TIMEOUT).rejected("stopped after 3");
        assert_eq!(home.bytes(UNFINISHED), &WEIGHTS[..3]);
        assert!(!home.exists(BLOB));
        let (hub, _, stored) = hub_with_store(store);
        fetched(&home, &hub);
        assert_eq!(stored.lock().unwrap()[0].headers["range"], "bytes=3-");
        assert_eq!(home.bytes(BLOB), WEIGHTS);
        assert!(!home.exists(UNFINISHED));
    }
}

/// How the hub of a case of `hub.txt` answers. `head`: everything with this head. `raw` and `silent`: these bytes, after which
/// the connection is closed or stays open. `other`: what comes after the configuration with this head. `weights`: a download with
/// this head and, behind ` || `, body. `stops`: a download without its end. `absent`: no weights. `shard`: an index that names this
/// file, and a file for every name.
fn bad(case: &str) -> impl Fn(&Call) -> Answer + Send + Sync + use<> {
    let (kind, rest) = case.split_once(' ').unwrap_or((case, ""));
    let (kind, rest) = (kind.to_owned(), rest.replace("COMMIT", COMMIT));
    move |call| {
        let (head, body) = rest.split_once(" || ").unwrap_or((&rest, "{}"));
        match (&*kind, call.file()) {
            ("raw" | "silent", _) => {
                let bytes = rest.replace("\\r\\n", "\r\n").replace("\\0", "\0").into_bytes();
                Answer { bytes, open: kind == "silent" }
            }
            ("other", file) if file != "config.json" => answer(call, head, b"{}"),
            ("weights" | "stops", NAME) if call.is_head() => answer(call, &found(SHA256), WEIGHTS),
            ("head", _) | ("weights", NAME) => answer(call, head, body.as_bytes()),
            ("stops", NAME) => {
                let head = format!("{} | Content-Length: 7", found(SHA256));
                Answer { open: true, ..answer(call, &head, &WEIGHTS[..3]) }
            }
            ("absent" | "shard", NAME) => answer(call, "404 Not Found", b""),
            ("shard", "model.safetensors.index.json") => {
                let index = serde_json::json!({ "weight_map": { "x": rest } }).to_string();
                answer(call, &found("1234"), index.as_bytes())
            }
            ("shard", file) if !["config.json", "tokenizer.json"].contains(&file) => {
                answer(call, &found("5678"), b"hostile")
            }
            _ => small(call),
        }
    }
}

/// Each is an error in words, in time, with no file outside the cache and none in it that has the name of a blob.
#[test]
fn a_hub_with_wrong_answers_is_an_error() {
    let lines: Vec<&str> = include_str!("hub.txt").lines().collect();
    for case in lines.chunks(2) {
        let (case, expected) = (case[0], case[1].trim_start());
        let home = home();
        let (hub, calls) = server(bad(case));
        let is_silent = case.starts_with("silent") || case.starts_with("stops");
        let seconds = if is_silent { "1" } else { "20" };
        let output = check(&home, &hub, (TIMEOUT.0, seconds));
        let text = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.code == 2 && text.contains(expected), "{case}: {text}");
        assert!(text.contains("model `owner/name`") && !text.contains("secret"), "{text}");
        assert!(calls.lock().unwrap().len() < 30, "{case}");
        let own = ["rows.csv", "train.tsv", "dev.csv", REPOSITORY].map(|name| home.path(name));
        for file in files_below(home.root()) {
            let is_ours = own.iter().any(|own| file.starts_with(own));
            assert!(is_ours, "{case}: {}", file.display());
        }
        let refs = format!("{REPOSITORY}/refs/main");
        assert!(!home.exists(BLOB) && !home.exists(&refs), "{case}");
    }
}

#[test]
fn an_invalid_address_or_timeout_is_an_error() {
    let home = home();
    for (endpoint, seconds, expected) in [
        ("http://127.0.0.1:1", "20", "did not answer"),
        ("nowhere", "20", "`nowhere`, which is not an address"),
        (concat!("file:/", "//etc"), "20", "which is not an address"),
        ("http://127.0.0.1:1", "soon", "is `soon`, expected a whole number"),
    ] {
        check(&home, endpoint, (TIMEOUT.0, seconds)).rejected(expected);
    }
}
