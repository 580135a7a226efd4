//! `lrvd serve` on loopback: the answers of `lrvd predict`, rejections, overload, and a clean end.
#![cfg(all(unix, feature = "serve"))]
// Connections that no client library would make.
#![allow(clippy::disallowed_types)]
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Sandbox, signal};

pub(crate) struct Server {
    child: Child,
    address: String,
}

pub(crate) struct Reply {
    pub status: u16,
    /// Status line and headers.
    head: String,
    pub text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Server {
    /// `lrvd serve`; at a free port unless `words` name an address. An API key is in the environment variable `LRVD_TEST_KEY`.
    pub(crate) fn start(dir: &Sandbox, words: &str) -> Self {
        let port = if words.contains("--address") { "" } else { "--address 127.0.0.1:0" };
        let mut command = dir.command(&format!("serve {words} {port} --format json"));
        command.env("LRVD_TEST_KEY", "s3cret");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty(), "{}", rest(&mut child));
        let first: Value = serde_json::from_str(&first).unwrap();
        let address = first["address"].as_str().unwrap().to_owned();
        Self { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask(&[&format!("GET {path} HTTP/1.1"), "Host: localhost"], "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        let start = format!("POST {path} HTTP/1.1");
        self.ask(&[&start, "Host: localhost", "Content-Type: application/json"], body)
    }

    /// A counter or gauge of `/metrics`.
    pub(crate) fn count(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap().parse().unwrap()
    }

    /// A connection that fails, rather than hangs, where the server does nothing for a minute.
    pub(crate) fn connect(&self) -> TcpStream {
        let port = self.address.rsplit_once(':').unwrap().1;
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(Duration::from_mins(1))).unwrap();
        }
        stream
    }

    /// The answer to a request with these lines of a head, and this body.
    fn ask(&self, lines: &[&str], body: &str) -> Reply {
        let mut stream = self.connect();
        let length = format!("Content-Length: {}", body.len());
        let head = [lines, &[&length, "Connection: close", "", body]].concat().join("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, text) = text.split_once("\r\n\r\n").unwrap();
        let status = head["HTTP/1.1 ".len()..][..3].parse().unwrap();
        Reply { status, head: head.to_owned(), text: text.to_owned() }
    }

    /// Sends requests that are rejected. The columns of each line are status, code and field of the error, then method with
    /// content type, path, body.
    pub(crate) fn rejects(&self, lines: &[&str]) {
        for line in lines {
            let mut body = *line;
            let mut column = || {
                let (word, rest) = body.split_once(' ').unwrap_or((body, ""));
                body = rest.trim_start();
                word
            };
            let expected = [column(), column(), column()];
            let (method, path) = (column(), column());
            let (method, kind) = method.split_once(';').unwrap_or((method, "application/json"));
            let [start, kind] =
                [format!("{method} {path} HTTP/1.1"), format!("Content-Type: {kind}")];
            let reply = self.ask(&[&start, "Host: localhost", &kind], body);
            let (Reply { status, head, .. }, error) = (&reply, reply.json()["error"].take());
            let [code, field] = ["code", "field"].map(|key| error[key].as_str().unwrap_or("-"));
            assert_eq!([&*status.to_string(), code, field], expected, "{line}: {error}");
            assert!(!error["message"].as_str().unwrap().is_empty());
            assert_eq!(head.contains("\r\nallow: "), *status == 405, "{line}: {head}");
        }
    }

    /// Stops it, and returns what it wrote to standard error.
    pub(crate) fn stop(mut self) -> String {
        signal(&self.child, "-TERM");
        let log = rest(&mut self.child);
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{log}");
        log
    }
}

impl Drop for Server {
    /// A test that fails leaves nothing behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the server until `is_so`, with pauses: each request is a line of its log, whose pipe is read at the end only and must not
/// fill up.
pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn rest(child: &mut Child) -> String {
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    log
}

const GET: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A folder with a classifier with draws in `out`, and its base beside it.
fn classifier() -> Sandbox {
    let dir = Sandbox::new();
    dir.copy(&dir.path("@tests/pins/adapters/encoder"), "out");
    dir.copy(&dir.path("@nano"), "deberta-v3-nano");
    dir
}

#[test]
fn a_text_has_the_same_answer_alone_in_a_list_and_beside_other_requests() {
    let dir = classifier();
    let server = Server::start(&dir, "out --abstain-above 0.69 --batch-size 8 --quiet");
    let texts =
        ["a fine film", "a grim book, number 3", "a song", "cold and awful, they all say it"];
    for (draws, seed) in [(3, 5), (0, 5), (2, 77)] {
        let answers = |texts: &[&str]| -> Vec<Value> {
            let inputs: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
            let body = json!({ "inputs": inputs, "draws": draws, "seed": seed }).to_string();
            let reply = server.post("/v1/classify", &body);
            assert_eq!(reply.status, 200, "{body}: {}", reply.text);
            reply.json()["answers"].as_array().unwrap().clone()
        };
        let expected: Vec<Value> = texts.iter().flat_map(|text| answers(&[text])).collect();
        assert_eq!(answers(&texts), expected, "{draws}");
        std::thread::scope(|scope| {
            for i in 0..12 {
                let (text, expected) = (texts[i % 4], &expected[i % 4]);
                scope.spawn(move || assert_eq!(answers(&[text])[0], *expected, "{text}"));
            }
        });
    }
    server.stop();
}

#[test]
fn under_overload_every_request_gets_an_answer_or_a_rejection_also_when_it_is_stopped() {
    let dir = classifier();
    let server = Server::start(&dir, "out --queue 2 --max-texts 1 --batch-size 1");
    // Long enough for the others to come: they meet a full queue.
    let body = json!({ "text": "a fine film", "draws": 100, "seed": 1 }).to_string();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let ask = || server.post("/v1/classify", &body);
        let asked: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (answered, rejected): (Vec<&Reply>, Vec<&Reply>) =
        replies.iter().partition(|reply| reply.status == 200);
    assert!(!answered.is_empty() && !rejected.is_empty(), "{} answered", answered.len());
    assert!(answered.iter().all(|reply| reply.text == answered[0].text));
    for reply in rejected {
        let code = reply.json()["error"]["code"].take();
        assert_eq!((reply.status, code), (503, json!("queue_full")));
        assert!(reply.head.contains("\r\nretry-after: 1\r\n"), "{}", reply.head);
    }

    // What was accepted is answered, although the signal comes before: one is with the model, and two wait.
    let slow = json!({ "text": "a fine film", "draws": 100, "seed": 2 }).to_string();
    std::thread::scope(|scope| {
        let ask = || server.post("/v1/classify", &slow);
        let passes = || server.count("lrvd_batches_total");
        let before = passes();
        let first = scope.spawn(ask);
        wait_until(|| passes() != before);
        let mut asked: Vec<_> = (0..2).map(|_| scope.spawn(ask)).collect();
        let is_over = || asked.iter().any(std::thread::ScopedJoinHandle::is_finished);
        wait_until(|| server.count("lrvd_queue_texts") == 2.0 || is_over());
        asked.push(first);
        signal(&server.child, "-TERM");
        for reply in asked.into_iter().map(|thread| thread.join().unwrap()) {
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
    });
    server.stop();
}

#[test]
fn a_connection_that_sends_or_reads_nothing_is_closed() {
    let dir = classifier();
    let server = Server::start(&dir, "out --timeout 1 --quiet");
    // One that sends nothing, one that stops in a head, one that stays after its answer.
    for sent in [&b""[..], &GET[..20], GET] {
        let mut stream = server.connect();
        stream.write_all(sent).unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap_or_else(|error| panic!("{sent:?}: {error}"));
        assert_eq!(read.starts_with(b"HTTP/1.1 200"), sent.len() == GET.len());
    }
    // One that asks for more than the system's buffers hold and reads none of it.
    let mut stream = server.connect();
    let page = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let error = std::iter::repeat_with(|| stream.write_all(&page)).find_map(Result::err).unwrap();
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&error.kind()), "{error}");
    assert_eq!(server.get("/healthz").status, 200);
    server.stop();
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let dir = classifier();
    let server = Server::start(&dir, "out --max-connections 2 --quiet");
    let mut first = [server.connect(), server.connect()];
    let mut answer = [0; 12];
    for stream in &mut first {
        stream.write_all(GET).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    let mut third = server.connect();
    third.write_all(GET).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let waits = third.read_exact(&mut answer).unwrap_err();
    assert!(matches!(waits.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits}");
    drop(first);
    third.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    third.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(third);
    // The address is taken.
    let address = server.address.trim_start_matches("http://").to_owned();
    let again = dir.run(&format!("serve out --address {address}"));
    again.rejected(&format!("cannot listen at `{address}`"));
    server.stop();
}

#[test]
fn a_key_and_a_name_of_the_server_are_required() {
    let dir = classifier();
    let key = "out --api-key-env LRVD_TEST_KEY --host-name models.example --quiet";
    let server = Server::start(&dir, key);
    assert_eq!(server.get("/").status, 200);
    server.rejects(&[
        "401 unauthorized - GET /metrics",
        "401 unauthorized - GET /v1/other",
        "401 unauthorized - POST /v1/classify {}",
    ]);
    let with = |host: &str, key: &str| {
        let [host, key] = [format!("Host: {host}"), format!("Authorization: Bearer {key}")];
        server.ask(&["GET /v1/model HTTP/1.1", &host, &key], "")
    };
    for (host, key, status, part) in [
        ("localhost", "s3cre", 401, "www-authenticate: Bearer"),
        ("Models.Example:80", "s3cret", 200, "\"labels\""),
        ("evil.example", "s3cret", 421, "wrong_host"),
    ] {
        let Reply { status: found, head, text } = with(host, key);
        let is_so = head.contains(part) || text.contains(part);
        assert!(found == status && is_so, "{host} {key}: {head} {text}");
    }
    assert_eq!(server.stop(), "", "a key, and loopback: nothing to warn of");

    // Beyond loopback without a key there is a warning, also with `--quiet`.
    let warned = Server::start(&dir, "out --address 0.0.0.0:0 --quiet").stop();
    assert!(warned.starts_with("warning: other machines can reach `0.0.0.0:"), "{warned}");
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let keyed = Server::start(&dir, &format!("{key} --address 0.0.0.0:0"));
    assert_eq!(keyed.stop(), "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_gives_memory_back_and_a_training_run_keeps_it() {
    let dir = classifier();
    let keeps = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap();
        environment.split(|byte| *byte == 0).any(|entry| entry == b"MIMALLOC_PURGE_DELAY=-1")
    };
    let server = Server::start(&dir, "out --quiet");
    assert!(!keeps(&server.child));
    server.stop();
    let mut other = dir.start("predict out");
    // It has started anew once it answers.
    let mut input = other.stdin.take().unwrap();
    input.write_all("a fine film\n".repeat(128).as_bytes()).unwrap();
    let mut first = String::new();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(keeps(&other), "{first}");
    drop(input);
    assert!(other.wait().unwrap().success());
}

/// A client that disconnects ends its generation, and the next one is answered.
#[test]
fn a_generation_ends_with_its_client() {
    let dir = Sandbox::new();
    let server = Server::start(
        &dir,
        "@tests/pins/adapters/language --model @llama --max-draws 64 --max-tokens 500 --quiet",
    );
    let tokens = || server.count("lrvd_tokens_total");
    // So hot that nearly any token is said: it is long.
    let body =
        json!({ "prompt": "Once", "max_tokens": 500, "temperature": 1000, "seed": 5, "draws": 64 })
            .to_string();
    let mut gone = server.connect();
    let head = "POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:";
    write!(gone, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    wait_until(|| tokens() != 0.0);
    drop(gone);
    let next = server.post("/v1/generate", r#"{"prompt": "Once", "max_tokens": 1}"#);
    assert_eq!(next.status, 200, "{}", next.text);
    assert!((2.0..400.0).contains(&tokens()), "{}", tokens());
    assert!(server.count("lrvd_batch_seconds_total") > 0.0);
    server.stop();
}
