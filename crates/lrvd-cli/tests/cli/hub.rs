//! Models and data sets by the name of a repository, from a stand-in for the hub on this machine.
#![allow(clippy::disallowed_types)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Output, Sandbox, ended, files_below, placed};

const COMMIT: &str = "1f0c3d5e7a9b2c4d6e8f0a1b3c5d7e9f1a2b3c4d";
/// Bytes in place of weights, and their SHA-256 by coreutils' sha256sum.
const WEIGHTS: &[u8] = b"weights";
const SHA256: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";
const NAME: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// One request.
#[derive(Clone)]
struct Call {
    path: String,
    headers: BTreeMap<String, String>,
}

impl Call {
    fn file(&self) -> &str {
        self.path.split('?').next().unwrap().rsplit('/').next().unwrap()
    }

    /// The first byte that is asked for.
    fn start(&self) -> usize {
        let range = self.headers.get("range").map_or("bytes=0-", String::as_str);
        range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
    }
}

/// A reply; its connection may then be left open.
struct HubReply {
    bytes: Vec<u8>,
    open: bool,
}

/// An answer with this status and these headers, with ` | ` between them.
fn answer(head: &str, body: &[u8]) -> HubReply {
    let mut text = format!("HTTP/1.1 {}\r\nConnection: close\r\n", head.replace(" | ", "\r\n"));
    if !head.contains("Content-Length") {
        write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    HubReply { bytes: [format!("{text}\r\n").as_bytes(), body].concat(), open: false }
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// A server that answers by `reply`, and the requests that it got.
fn server(reply: impl Fn(&Call) -> HubReply + Send + Sync + 'static) -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}", listener.local_addr().unwrap());
    let calls = Calls::default();
    let reply = Arc::new(reply);
    let seen = Arc::clone(&calls);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let seen = Arc::clone(&seen);
            let reply = Arc::clone(&reply);
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                let Some(call) = read(&stream) else { return };
                seen.lock().unwrap().push(call.clone());
                let HubReply { bytes, open } = reply(&call);
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
    let path = first.split(' ').nth(1)?.to_owned();
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_lowercase(), value.to_owned()))
    });
    Some(Call { path, headers: headers.collect() })
}

/// Small files of the repository, and their hashes by `git hash-object`.
const SMALL: [(&str, &str); 3] = [
    ("config.json", "9d3551cc6b2fc764af7b240107e5be78d7e5e5b9"),
    ("tokenizer.json", "9926f9282777b35a2d9ffd42a3caeb21e01dc434"),
    ("tokenizer_config.json", "42d35e3e8e0d957aff645be62fb80d44a5a577de"),
];

/// Beside them, in a folder.
const POOLING: &str = "1_Pooling/config.json";

/// The hub's list of the small files and of `others`, without `others` with the weights.
fn list(others: &[Value]) -> HubReply {
    let weights =
        json!({ "rfilename": NAME, "blobId": "3", "size": 7, "lfs": { "sha256": SHA256 } });
    let entry = |name: &str, (of, hash): (&str, &str)| {
        let size = std::fs::metadata(placed("@nano/") + of).unwrap().len();
        json!({ "rfilename": name, "blobId": hash, "size": size })
    };
    let small = SMALL.iter().map(|&file| entry(file.0, file));
    // Its bytes are those of the other `config.json`.
    let pooling = entry(POOLING, SMALL[0]);
    let others = if others.is_empty() { &[weights][..] } else { others };
    let files: Vec<Value> = small.chain([pooling]).chain(others.iter().cloned()).collect();
    answer("200 OK", json!({ "sha": COMMIT, "siblings": files }).to_string().as_bytes())
}

/// Configuration and tokenizer, and the list with the weights.
fn small(call: &Call) -> HubReply {
    match call.file() {
        "main" | COMMIT => list(&[]),
        file if SMALL.iter().any(|(name, _)| *name == file) => {
            answer("200 OK", &std::fs::read(placed("@nano/") + file).unwrap())
        }
        _ => answer("404 Not Found", b""),
    }
}

/// The bytes of the weights from the one on that is asked for.
fn part(call: &Call) -> HubReply {
    let start = call.start();
    let size = WEIGHTS.len();
    if start == 0 {
        return answer("200 OK", WEIGHTS);
    }
    let head = format!("206 Partial Content | Content-Range: bytes {start}-{}/{size}", size - 1);
    answer(&head, &WEIGHTS[start..])
}

/// A hub whose weights are in a store on another host that answers by `reply`; both with their requests.
fn hub_with_store(
    reply: impl Fn(&Call) -> HubReply + Send + Sync + 'static,
) -> (String, Calls, Calls) {
    let (store, stored) = server(reply);
    let store = store.replace("127.0.0.1", "localhost");
    let (hub, asked) = server(move |call| match call.file() {
        NAME => answer(&format!("302 Found | Location: {store}/blob?signature=secret"), b""),
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
        self.check_model("owner/name", hub, environment)
    }

    fn check_model(&self, model: &str, hub: &str, environment: &[(&str, &str)]) -> Output {
        self.run(&format!("data check --train rows.csv --model {model}"), hub, environment)
    }

    fn run(&self, arguments: &str, hub: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = self.0.command(arguments);
        for hub in
            ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
        {
            command.env_remove(hub);
        }
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
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
    // Files are those of the commit that the list names.
    let paths: Vec<String> = asked.lock().unwrap().iter().map(|call| call.path.clone()).collect();
    assert_eq!(paths[0], "/api/models/owner/name/revision/main?blobs=true");
    let of_commit = format!("/owner/name/resolve/{COMMIT}/");
    assert!(paths[1..].iter().all(|path| path.starts_with(&of_commit)), "{paths:?}");
    let repository = home.repository();
    assert_eq!(std::fs::read_to_string(repository.join("refs/main")).unwrap(), COMMIT);
    let snapshot = repository.join("snapshots").join(COMMIT);
    let link = |name: &str| std::fs::read_link(snapshot.join(name)).unwrap();
    assert_eq!(link(NAME), Path::new("../../blobs").join(SHA256));
    assert_eq!(link("config.json"), Path::new("../../blobs").join(SMALL[0].1));
    assert_eq!(link(POOLING), Path::new("../../../blobs").join(SMALL[0].1));
    assert!(snapshot.join(POOLING).is_file());
    assert_eq!(std::fs::read(snapshot.join(NAME)).unwrap(), WEIGHTS);
    assert!(!home.unfinished().exists());

    // What is in the cache is not asked for again, and works without a network.
    let count = asked.lock().unwrap().len();
    home.fetched(&hub);
    assert_eq!(asked.lock().unwrap().len(), count);
    assert_eq!(home.check("http://127.0.0.1:1", &[("HF_HUB_OFFLINE", "1")]).code, 0);
    let root = home.0.root().display().to_string();
    let elsewhere = [("HOME", &*root), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "$HOME/.")];
    assert_eq!(home.check("http://127.0.0.1:1", &elsewhere).code, 0);
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt as _;
        let mut odd = home.0.command("data check --train rows.csv --model owner/name");
        odd.env("HF_HUB_CACHE", std::ffi::OsStr::from_bytes(b"a\xff"));
        ended(odd, "").rejected("the environment variable `HF_HUB_CACHE` is not UTF-8");
    }
    std::fs::remove_file(home.weights()).unwrap();
    home.check(&hub, &[("HF_HUB_OFFLINE", "1")]).rejected("HF_HUB_OFFLINE is set");
    // A link whose blob was removed is made anew.
    home.fetched(&hub);
    assert_eq!(std::fs::read(snapshot.join(NAME)).unwrap(), WEIGHTS);
}

/// A cache as Python's library leaves it after `AutoModel.from_pretrained`: what sentence-transformers adds is not in it.
#[test]
fn a_model_has_the_same_files_whatever_filled_the_cache() {
    let home = Home::new();
    let (hub, ..) = hub_with_store(part);
    home.fetched(&hub);
    let snapshot = home.repository().join("snapshots").join(COMMIT);
    let absent = home.repository().join(".no_exist").join(COMMIT);
    let marked = |name: &str| absent.join(name).is_file();
    assert!(marked("chat_template.jinja") && marked("generation_config.json") && !marked(NAME));
    // Files of a snapshot, and markers of what is known not to be there.
    std::fs::remove_dir_all(snapshot.join("1_Pooling")).unwrap();
    std::fs::remove_dir_all(&absent).unwrap();
    let offline = home.check(&hub, &[("HF_HUB_OFFLINE", "1")]);
    let note = "the cache has no `generation_config.json`, `chat_template.jinja`, `1_Pooling/config.json`, and it is not \
                known if the repository has (HF_HUB_OFFLINE is set";
    assert!(offline.code == 0 && offline.stderr.contains(note), "{}", offline.stderr);
    let output = home.check("http://127.0.0.1:1", &[]);
    assert!(output.code == 0 && output.stderr.contains("did not answer"), "{}", output.stderr);
    let (hub, asked, stored) = hub_with_store(part);
    let output = home.check(&hub, &[]);
    assert!(output.code == 0 && !output.stderr.contains("the cache has no"), "{}", output.stderr);
    assert!(snapshot.join(POOLING).is_file() && marked("chat_template.jinja"));
    // Of the commit that is there, and nothing that the cache has is fetched again.
    let paths: Vec<String> = asked.lock().unwrap().iter().map(|call| call.path.clone()).collect();
    let list = format!("/api/models/owner/name/revision/{COMMIT}?blobs=true");
    assert_eq!(paths, [list], "the bytes of the pooling file are those of another");
    assert_eq!(stored.lock().unwrap().len(), 0);
    home.fetched("http://127.0.0.1:1");
}

#[test]
fn a_repository_may_have_no_owner_and_any_revision() {
    let home = Home::new();
    let (hub, asked) = server(|call| match call.file() {
        NAME => answer("200 OK", WEIGHTS),
        "v1.0" | "refs%2Fpr%2F1" => list(&[]),
        _ => small(call),
    });
    let listed = |model: &str, revision: &str, folder: &str| {
        let output = home.check_model(model, &hub, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let first = asked.lock().unwrap().drain(..).next().unwrap().path;
        let id = model.split(['@', ' ']).next().unwrap();
        assert_eq!(first, format!("/api/models/{id}/revision/{revision}?blobs=true"));
        assert!(home.0.path(&format!("hub/{folder}")).exists(), "{folder}");
    };
    listed("nano", "main", "models--nano/refs/main");
    listed("owner/name --revision v1.0", "v1.0", "models--owner--name/refs/v1.0");
    assert!(!home.repository().join("refs/main").exists());
    listed("other/name@refs/pr/1", "refs%2Fpr%2F1", "models--other--name/refs/refs/pr/1");
    let commit = format!("last/name@{COMMIT}");
    listed(&commit, COMMIT, &format!("models--last--name/snapshots/{COMMIT}"));
    assert!(!home.0.path("hub/models--last--name/refs").exists());
    let output = home.check_model("nanoo", &server(|_| answer("404 Not Found", b"")).0, &[]);
    output.rejected("model `nanoo`: no such folder or `.gguf` file here, and ");
    home.check_model("rows.csv --revision v1", &hub, &[])
        .rejected("`rows.csv` is a file or folder");
}

/// A file of a data set, and its bytes.
type Stored<'a> = (&'a str, &'a [u8]);

/// A hub whose data sets have, at the revisions that are named, these files.
fn hub_with_data(sets: &[(&str, &[Stored<'_>])]) -> (String, Calls) {
    let lists: BTreeMap<String, String> = sets
        .iter()
        .flat_map(|(at, files)| {
            let file = |(name, bytes): &Stored<'_>| {
                let lfs = json!({ "sha256": hash(bytes) });
                json!({ "rfilename": name, "blobId": "3", "size": bytes.len(), "lfs": lfs })
            };
            let files: Vec<Value> = files.iter().map(file).collect();
            let list = json!({ "sha": COMMIT, "siblings": files }).to_string();
            let (id, revision) = at.split_once(' ').unwrap();
            // By its name and by the commit: the last of a data set has it.
            [revision, COMMIT].map(|name| {
                (format!("/api/datasets/{id}/revision/{name}?blobs=true"), list.clone())
            })
        })
        .collect();
    let files: BTreeMap<String, Vec<u8>> = sets
        .iter()
        .flat_map(|(at, files)| {
            let id = at.split(' ').next().unwrap();
            let path = move |name: &str| format!("/datasets/{id}/resolve/{COMMIT}/{name}");
            files.iter().map(move |(name, bytes)| (path(name), bytes.to_vec()))
        })
        .collect();
    server(move |call| match (lists.get(&call.path), files.get(&call.path)) {
        (Some(list), _) => answer("200 OK", list.as_bytes()),
        (_, Some(bytes)) => answer("200 OK", bytes),
        _ => answer("404 Not Found", b""),
    })
}

const ROWS: &str =
    "text,label\na fine film,good\na dull film,bad\na bright day,good\na dark day,bad\n";

#[test]
fn rows_of_a_data_set_are_read_from_the_cache_of_pythons_library() {
    let home = Home::new();
    let rows = ROWS.as_bytes();
    let files: [Stored<'_>; 4] = [
        ("README.md", b"#"),
        ("data/train.csv", rows),
        ("data/dev.csv", rows),
        ("data/test.csv", b"text,label\na fine film,bad\n"),
    ];
    let (hub, asked) = hub_with_data(&[("owner/rows main", &files), ("owner/rows v1", &files)]);
    let train = crate::support::training("run", 2, "--train owner/rows --model @nano");
    let train = train.replace("--validation dev.csv ", "").replace("--quiet ", "");
    let output = home.run(&train, &hub, &[]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let of = |name: &str| format!("hf://datasets/owner/rows@{COMMIT}/data/{name}");
    for note in [
        format!("training rows: `{}`", of("train.csv")),
        format!("validation rows: `{}`", of("dev.csv")),
    ] {
        assert!(output.stderr.contains(&note), "{note}: {}", output.stderr);
    }
    // The record names the commit and the hash of each file.
    let files = &home.0.json("run/settings.json")["data"];
    assert_eq!(files["train"][of("train.csv")], hash(rows), "{files}");
    assert_eq!(files["validation"][of("dev.csv")], hash(rows), "{files}");
    assert_eq!(with_token(&asked), [true].into());
    let first = &asked.lock().unwrap()[0].path.clone();
    assert_eq!(first, "/api/datasets/owner/rows/revision/main?blobs=true");

    let repository = home.0.path("hub/datasets--owner--rows");
    let link = repository.join("snapshots").join(COMMIT).join("data/train.csv");
    assert_eq!(std::fs::read_link(link).unwrap(), Path::new("../../../blobs").join(hash(rows)));

    // An answer is measured on the test rows, and what is in the cache needs no network.
    let report = home.run("eval run --data owner/rows --format json", &hub, &[]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    assert!(report.stdout.contains(&of("test.csv")), "{}", report.stdout);
    let nowhere = "http://127.0.0.1:1";
    let offline = [("HF_HUB_OFFLINE", "1")];
    let predict = format!("predict run --input {} --format json", of("test.csv"));
    assert_eq!(home.run(&predict, nowhere, &offline).code, 0);
    let at = "hf://datasets/owner/rows@v1/data/train.csv";
    let check = format!("data check --train {at} --validation {at} --format json");
    assert_eq!(home.run(&check, &hub, &[]).code, 0);
    assert_eq!(std::fs::read_to_string(repository.join("refs/v1")).unwrap(), COMMIT);
    assert_eq!(home.run(&check, nowhere, &offline).code, 0);
    for (train, expected) in [
        ("owner/rows", "data set `owner/rows`: no such file here, and HF_HUB_OFFLINE is set"),
        (
            "hf://datasets/owner/rows@v2/x.csv",
            "`hf://datasets/owner/rows@v2/x.csv`: HF_HUB_OFFLINE",
        ),
        ("hf://owner/rows/x.csv", "expected `hf://datasets/OWNER/NAME/PATH`"),
        ("owner/rows.csv", "cannot read `owner/rows.csv`"),
    ] {
        home.run(&format!("data check --train {train}"), nowhere, &offline).rejected(expected);
    }
    let absent = "data check --train hf://datasets/owner/rows/x.csv";
    home.run(absent, &hub, &[]).rejected("the hub does not have `x.csv` of this repository");
    // What is here comes first.
    std::fs::create_dir_all(home.0.path("owner/rows")).unwrap();
    home.run("data check --train owner/rows", &hub, &[]).rejected("is in no known format");
}

#[test]
fn a_data_set_without_tables_is_read_as_the_hub_converts_it() {
    let home = Home::new();
    let classes = home.0.bytes("@bench/src/data/cases/classlabel.parquet");
    let converted: [Stored<'_>; 2] =
        [("default/train/0000.parquet", &classes), ("default/validation/0000.parquet", &classes)];
    let several: [Stored<'_>; 2] = [("a/train.csv", b"1"), ("b/train.csv", b"1")];
    let (hub, asked) = hub_with_data(&[
        ("owner/script main", &[("script.py", b"1"), ("dataset_infos.json", b"{}")]),
        ("owner/script refs%2Fconvert%2Fparquet", &converted),
        ("owner/several main", &several),
        ("owner/none main", &[("script.py", b"1")]),
    ]);
    let check = "data check --train owner/script --on-error skip --format json";
    let output = home.run(check, &hub, &[]);
    // One row has no label; the names of the classes are those of the file.
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stdout.contains("spam") && output.stdout.contains("ham"), "{}", output.stdout);
    let paths: Vec<String> = asked.lock().unwrap().drain(..).map(|call| call.path).collect();
    assert_eq!(paths[1], "/api/datasets/owner/script/revision/refs%2Fconvert%2Fparquet?blobs=true");
    for (set, expected) in [
        (
            "owner/several",
            "data set `owner/several` has 2 tables of the training part (`a/train.csv`, `b/train.csv`): name one, as in \
             `hf://datasets/owner/several/a/train.csv`",
        ),
        ("owner/none", "data set `owner/none` has no table on its main branch"),
    ] {
        let output = home.run(&format!("data check --train {set}"), &hub, &[]);
        let text = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.code == 2 && text.contains(expected), "{text}");
    }
}

#[test]
fn a_redirect_within_the_hub_is_followed_with_the_token() {
    let home = Home::new();
    let (hub, asked) = server(|call| match call.path.split_once("owner/name") {
        Some((start, rest)) => {
            answer(&format!("307 Temporary Redirect | Location: {start}new/name{rest}"), b"")
        }
        // Weights from the hub itself.
        None if call.file() == NAME => answer("200 OK", WEIGHTS),
        None => small(call),
    });
    home.fetched(&hub);
    assert_eq!(with_token(&asked), [true].into());
    assert_eq!(std::fs::read(home.weights()).unwrap(), WEIGHTS);
}

#[test]
fn an_interrupted_download_is_resumed() {
    let whole = |_: &Call| answer("200 OK", WEIGHTS);
    let satisfied = |call: &Call| match call.start() {
        0 => answer("200 OK", WEIGHTS),
        _ => answer("416 Range Not Satisfiable | Content-Range: bytes */7", b""),
    };
    let stores: [fn(&Call) -> HubReply; 3] = [part, whole, satisfied];
    for store in stores {
        let home = Home::new();
        let (hub, ..) = hub_with_store(|_| answer("200 OK | Content-Length: 7", &WEIGHTS[..3]));
        let output = home.check(&hub, &[]);
        assert!(output.code == 3 && output.stderr.contains("stopped after 3"), "{}", output.stderr);
        assert_eq!(std::fs::read(home.unfinished()).unwrap(), &WEIGHTS[..3]);
        assert!(!home.weights().exists());
        let (hub, _, stored) = hub_with_store(store);
        home.fetched(&hub);
        assert_eq!(stored.lock().unwrap()[0].headers["range"], "bytes=3-");
        assert_eq!(std::fs::read(home.weights()).unwrap(), WEIGHTS);
        assert!(!home.unfinished().exists());
    }
}

fn hash(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// Replies of the hub in a case of `hub.txt`. `head`: everything with this head. `raw` and `silent`: these bytes, after which
/// the connection is closed or stays open. `list`: this list of files. `weights`: a download with this head and, behind ` || `,
/// body. `stops`: a download without its end. `absent`: no weights. `shard`: an index that names this file. `config`: a
/// `config.json` with another word of equal length.
fn bad(case: &str) -> impl Fn(&Call) -> HubReply + Send + Sync + use<> {
    let (kind, rest) = case.split_once(' ').unwrap_or((case, ""));
    let kind = kind.to_owned();
    let rest = rest.replace("COMMIT", COMMIT);
    move |call| {
        let (head, body) = rest.split_once(" || ").unwrap_or((&rest, "{}"));
        let index = json!({ "weight_map": { "x": rest } }).to_string();
        match (&*kind, call.file()) {
            ("raw" | "silent", _) => {
                let bytes = rest.replace("\\r\\n", "\r\n").replace("\\0", "\0").into_bytes();
                HubReply { bytes, open: kind == "silent" }
            }
            ("head", _) | ("weights", NAME) => answer(head, body.as_bytes()),
            ("list", _) => answer("200 OK", rest.as_bytes()),
            ("stops", NAME) => {
                HubReply { open: true, ..answer("200 OK | Content-Length: 7", &WEIGHTS[..3]) }
            }
            ("absent" | "shard", "main") => {
                let name = if kind == "shard" { INDEX } else { "other.json" };
                let lfs = json!({ "sha256": hash(&index) });
                list(&[
                    json!({ "rfilename": name, "blobId": "3", "size": index.len(), "lfs": lfs }),
                ])
            }
            ("shard", INDEX) => answer("200 OK", index.as_bytes()),
            // Another digit, and the length that the list states.
            ("config", "config.json") => {
                let config = std::fs::read_to_string(placed("@nano/config.json")).unwrap();
                let (from, to) = rest.split_once(' ').unwrap();
                assert!(config.contains(from) && from.len() == to.len(), "{config}");
                answer("200 OK", config.replacen(from, to, 1).as_bytes())
            }
            _ => small(call),
        }
    }
}

/// Each is an error in words, in time, with no file outside the cache and none in it that has the name of a blob. The exit code
/// is 3 where a later start may succeed, else 2.
#[test]
fn a_hub_with_wrong_answers_is_an_error() {
    let lines: Vec<&str> = include_str!("hub.txt").lines().collect();
    for pair in lines.chunks(2) {
        let case = pair[0];
        let expected = pair[1].trim_start();
        let home = Home::new();
        let (hub, calls) = server(bad(case));
        let is_silent = ["silent", "stops"].iter().any(|kind| case.starts_with(kind));
        let seconds = if is_silent { "1" } else { "20" };
        let output = home.check(&hub, &[("HF_HUB_DOWNLOAD_TIMEOUT", seconds)]);
        let text = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let (code, expected) = expected.split_once(' ').unwrap();
        let code: i32 = code.parse().unwrap();
        assert!(output.code == code && text.contains(expected), "{case}: {} {text}", output.code);
        assert!(text.contains("model `owner/name`") && !text.contains("secret"), "{text}");
        assert!(text.contains("pass `--model FOLDER`, e.g. `models/name`"), "{text}");
        assert!(calls.lock().unwrap().len() < 30, "{case}");
        let cache = home.repository();
        let own = ["rows.csv", "train.tsv", "dev.csv"].map(|name| home.0.path(name));
        for file in files_below(&home.0.path("")) {
            let is_ours = own.contains(&file) || file.starts_with(&cache);
            assert!(is_ours, "{case}: {}", file.display());
        }
        assert!(!home.weights().exists() && !cache.join("refs/main").exists(), "{case}");
    }
}

#[test]
fn an_invalid_address_or_timeout_is_an_error() {
    let home = Home::new();
    for (endpoint, seconds, code, expected) in [
        ("http://127.0.0.1:1", "20", 3, "did not answer"),
        ("nowhere", "20", 2, "HF_ENDPOINT is `nowhere`, expected"),
        (concat!("file:/", "//etc"), "20", 2, "HF_ENDPOINT is `"),
        ("http://127.0.0.1:1", "soon", 2, "is `soon`, expected a whole number"),
    ] {
        let output = home.check(endpoint, &[("HF_HUB_DOWNLOAD_TIMEOUT", seconds)]);
        let Output { code: found, stderr, .. } = output;
        assert!(found == code && stderr.contains(expected), "{endpoint}: {found} {stderr}");
    }
}
