//! `lrvd serve` on loopback: the answers of `lrvd predict`, rejections, overload, and a clean end.
#![cfg(all(unix, feature = "serve"))]
// Connections that no client library would make.
#![allow(clippy::disallowed_types)]
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use crate::support::{done, lines, run, train, write_data};

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub address: String,
    agent: Agent,
}

/// What came back.
pub(crate) struct Reply {
    pub status: u16,
    retry_after: Option<String>,
    pub text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

fn reply(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Reply {
    let mut response = response.unwrap();
    let header = response.headers().get("retry-after");
    let retry_after = header.map(|value| value.to_str().unwrap().to_owned());
    let text = response.body_mut().read_to_string().unwrap();
    Reply { status: response.status().as_u16(), retry_after, text }
}

impl Server {
    pub(crate) fn start(folder: &str, more: &[&str]) -> Self {
        Self::start_with(folder, more, None)
    }

    /// With an API key in the environment variable `LRVD_TEST_KEY`.
    fn start_with(folder: &str, more: &[&str], key: Option<&str>) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
            .envs(key.map(|key| ("LRVD_TEST_KEY", key)))
            .args(["serve", folder, "--format", "json"])
            .args(if more.contains(&"--address") { &[][..] } else { &["--address", "127.0.0.1:0"] })
            .args(more)
            .env("HF_HUB_OFFLINE", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty(), "{}", rest(&mut child));
        let first: Value = serde_json::from_str(&first).unwrap();
        let address = first["address"].as_str().unwrap().to_owned();
        let agent = Agent::config_builder().http_status_as_error(false).build().into();
        Self { child, address, agent }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        reply(self.agent.get(format!("{}{path}", self.address)).call())
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        let request = self.agent.post(format!("{}{path}", self.address));
        reply(request.header("content-type", "application/json").send(body))
    }

    /// A connection that fails, rather than hangs, where the server does nothing for a minute.
    fn connect(&self) -> TcpStream {
        let port = self.address.rsplit_once(':').unwrap().1;
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(Duration::from_mins(1))).unwrap();
        }
        stream
    }

    /// Status and text of the answer to a request with these lines of a head.
    fn raw(&self, lines: &[&str]) -> (u16, String) {
        let mut stream = self.connect();
        let head = [lines, &["Connection: close", "", ""]].concat().join("\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        (text["HTTP/1.1 ".len()..][..3].parse().unwrap(), text)
    }

    fn ask(&self, body: &Value) -> Value {
        let reply = self.post("/v1/classify", &body.to_string());
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Stops it, and returns what it wrote to standard error.
    pub(crate) fn stop(mut self) -> String {
        self.signal("-TERM");
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

/// A classifier in `dir`.
fn trained(dir: &Path, more: &[&str]) -> String {
    let data = write_data(dir);
    let out = dir.join("out");
    done(&train(&data, &out, 4, more));
    out.display().to_string()
}

/// The same answer in the words of `lrvd predict`, which has a list where the server has names.
fn as_predicted(answer: &Value, labels: &[&str]) -> Value {
    let mut answer = answer.clone();
    let object = answer.as_object_mut().unwrap();
    let by_name = object.remove("probabilities").unwrap();
    object.insert("probs".to_owned(), labels.iter().map(|label| by_name[label].clone()).collect());
    if object["abstained"].is_null() {
        object.remove("abstained");
    }
    answer
}

/// What `lrvd predict` says of each text by itself, without the texts.
fn predicted(folder: &str, texts: &[&str], more: &[&str]) -> Vec<Value> {
    let one = |text: &&str| {
        let mut answer =
            lines(&done(&[&["predict", folder, text], more].concat()).stdout).remove(0);
        for name in ["text", "schema_version"] {
            answer.as_object_mut().unwrap().remove(name).unwrap();
        }
        answer
    };
    texts.iter().map(one).collect()
}

#[test]
fn it_answers_as_predict_does_whoever_shares_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let server = Server::start(&folder, &["--abstain-above", "0.69", "--batch-size", "8"]);
    let texts =
        ["a fine film", "a grim book, number 3", "a song", "cold and awful, they all say it"];
    let more = ["--abstain-above", "0.69"];
    let labels = ["bad", "good"];
    let model = server.get("/v1/model").json();
    assert_eq!((&model["labels"], &model["draws"]), (&json!(labels), &json!(0)));

    for (draws, seed) in [(3, 5), (0, 5), (2, 77)] {
        let [k, s] = [draws.to_string(), seed.to_string()];
        let expected =
            predicted(&folder, &texts, &[&more[..], &["--draws", &k, "--seed", &s]].concat());
        let body = |inputs: Value| json!({ "inputs": inputs, "draws": draws, "seed": seed });
        for (text, expected) in texts.iter().zip(&expected) {
            let alone = server.ask(&body(json!([{ "text": text }])));
            assert_eq!(as_predicted(&alone["answers"][0], &labels), *expected, "{text} {draws}");
        }
        // The same in one request, and in many that are asked at once.
        let all: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
        let together = server.ask(&body(json!(all)));
        for (found, expected) in together["answers"].as_array().unwrap().iter().zip(&expected) {
            assert_eq!(as_predicted(found, &labels), *expected, "{draws}");
        }
        std::thread::scope(|scope| {
            for i in 0..12 {
                let (server, text, expected) = (&server, texts[i % 4], &expected[i % 4]);
                let body = body(json!([{ "text": text }]));
                scope.spawn(move || {
                    let found = server.ask(&body);
                    assert_eq!(as_predicted(&found["answers"][0], &labels), *expected, "{text}");
                });
            }
        });
    }
    // Without draws and seed: the mean, and the seed of the training.
    let plain = server.ask(&json!({ "text": "a song" }));
    assert_eq!(plain["seed"], 5);
    let expected = predicted(&folder, &["a song"], &more);
    assert_eq!(as_predicted(&plain["answers"][0], &labels), expected[0]);

    let page = server.get("/");
    assert!(page.status == 200 && page.text.contains("<textarea"), "{}", page.text);
    assert!(!page.text.contains("http:") && !page.text.contains("https:"), "it asks nobody else");
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.get("/readyz").status, 200);
    assert!(server.get("/metrics").text.contains("lrvd_texts_total 61\n"));
    let log = server.stop();
    let logged = lines(&log);
    assert!(
        logged.iter().any(|line| line["path"] == "/v1/classify" && line["texts"] == 4),
        "{log}"
    );
    assert!(!log.contains("grim"), "texts are nobody's business: {log}");
}

#[test]
fn where_draws_belong_to_places_in_a_batch_each_text_is_answered_alone() {
    let texts = ["a fine film", "a grim book, number 3", "a song"];
    let all: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
    for more in [
        &["--method", "mcd"][..],
        &["--method", "bayeslora", "--set", "prediction_draws=activation"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let folder = trained(dir.path(), more);
        let server = Server::start(&folder, &["--draws", "3"]);
        let together = server.ask(&json!({ "inputs": all }));
        let expected = predicted(&folder, &texts, &["--draws", "3"]);
        for (found, expected) in together["answers"].as_array().unwrap().iter().zip(&expected) {
            assert_eq!(found["draws"], 3);
            assert_eq!(as_predicted(found, &["bad", "good"]), *expected, "{more:?}");
        }
        server.stop();
    }
}

#[test]
fn what_cannot_be_answered_is_named_and_the_next_request_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let limits = ["--max-texts", "2", "--max-bytes", "300", "--max-draws", "4", "--quiet"];
    let server = Server::start(&folder, &limits);
    let long = json!({ "text": "a".repeat(300) }).to_string();
    let many = json!({ "inputs": [{ "text": "a" }, { "text": "b" }, { "text": "c" }] }).to_string();
    for (body, status, code, field) in [
        ("{\"text\": ", 400, "malformed_json", None),
        ("\u{1}", 400, "malformed_json", None),
        (r#"{"text": "a", "temperature": 2}"#, 400, "invalid_field", Some("temperature")),
        (r#"{"text": ["a"]}"#, 400, "invalid_field", Some("text")),
        (
            r#"{"inputs": [{"text": "a", "pairs": "b"}]}"#,
            400,
            "invalid_field",
            Some("inputs[0].pairs"),
        ),
        (&many, 400, "too_many_texts", Some("inputs")),
        (&long, 413, "body_too_large", None),
        (r#"{"text": "a", "pair": "b"}"#, 400, "pair_unwanted", Some("pair")),
        (r#"{"text": "a", "draws": 5}"#, 400, "draws_out_of_range", Some("draws")),
        (r#"{"text": "a", "draws": "5"}"#, 400, "invalid_field", Some("draws")),
        (r#"{"text": "a", "seed": -1}"#, 400, "invalid_field", Some("seed")),
        (r#"{"text": " \t"}"#, 400, "empty_text", Some("text")),
        ("{}", 400, "no_text", Some("text")),
    ] {
        let reply = server.post("/v1/classify", body);
        let error = reply.json()["error"].take();
        let found = (reply.status, error["code"].as_str().unwrap(), error["field"].as_str());
        assert_eq!(found, (status, code, field), "{body}: {error}");
    }
    for (reply, status, code) in [
        (server.post("/v1/classification", "{}"), 404, "not_found"),
        (server.get("/v1/classify"), 405, "method_not_allowed"),
        (server.post("/v1/generate", r#"{"prompt": "a"}"#), 404, "other_kind"),
    ] {
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(code)));
    }
    server.ask(&json!({ "text": "a fine film", "draws": 4 }));
    assert_eq!(server.stop(), "", "it was told to be quiet");

    let rejected = |more: &[&str], expected: &str| {
        let found = run(&[&["serve", &folder, "--address", "127.0.0.1:0"], more].concat());
        found.rejected(expected);
        assert_eq!(found.stdout, "");
    };
    rejected(&["--queue", "8", "--max-texts", "9"], "raise `--queue` or lower `--max-texts`");
    rejected(&["--draws", "5", "--max-draws", "4"], "raise `--max-draws`");
    rejected(&["--cascade", "2"], "cascade");
    rejected(&["--max-tokens", "9"], "`--max-tokens` is for language models, and `");
    let taken = Server::start(&folder, &[]);
    let same = taken.address.trim_start_matches("http://").to_owned();
    let again = run(&["serve", &folder, "--address", &same]);
    let expected = format!("cannot listen at `{same}`");
    again.rejected(&expected);
    let absent = run(&["serve", "absent", "--address", "127.0.0.1:0"]);
    absent.rejected("there is no folder `absent`");
}

#[test]
fn under_overload_every_request_gets_an_answer_or_a_rejection_also_when_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let more = ["--queue", "2", "--max-texts", "1", "--batch-size", "1"];
    let server = Server::start(&folder, &more);
    // Long enough for the others to come: they meet a full queue.
    let body = json!({ "text": "a fine film", "draws": 100, "seed": 1 }).to_string();
    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let ask = || server.post("/v1/classify", &body);
        let asked: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let answered: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 200).collect();
    let rejected: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 503).collect();
    assert_eq!(answered.len() + rejected.len(), 24);
    assert!(!answered.is_empty() && !rejected.is_empty(), "{} answered", answered.len());
    assert!(answered.iter().all(|reply| reply.text == answered[0].text));
    for reply in rejected {
        assert_eq!(reply.json()["error"]["code"], "queue_full");
        assert_eq!(reply.retry_after.as_deref(), Some("1"));
    }

    // What was accepted is answered, although the signal comes before: one is with the model, and two wait.
    let slow = json!({ "text": "a fine film", "draws": 100, "seed": 2 }).to_string();
    std::thread::scope(|scope| {
        let ask = || server.post("/v1/classify", &slow);
        let passes = || {
            let page = server.get("/metrics").text;
            let line = page.lines().find(|line| line.starts_with("lrvd_batches_total")).unwrap();
            line.to_owned()
        };
        let before = passes();
        let first = scope.spawn(ask);
        wait_until(|| passes() != before);
        let mut asked: Vec<_> = (0..2).map(|_| scope.spawn(ask)).collect();
        let is_over = || asked.iter().any(std::thread::ScopedJoinHandle::is_finished);
        wait_until(|| server.get("/metrics").text.contains("lrvd_queue_texts 2\n") || is_over());
        asked.push(first);
        server.signal("-TERM");
        for reply in asked.into_iter().map(|thread| thread.join().unwrap()) {
            assert_eq!(reply.status, 200, "{}", reply.text);
        }
    });
    server.stop();
}

#[test]
fn a_connection_that_sends_or_reads_nothing_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let server = Server::start(&folder, &["--timeout", "1", "--quiet"]);
    let get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // One that sends nothing, one that stops in a head, one that stays after its answer.
    for sent in [&b""[..], &get[..20], get] {
        let mut stream = server.connect();
        stream.write_all(sent).unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap_or_else(|error| panic!("{sent:?}: {error}"));
        assert_eq!(read.starts_with(b"HTTP/1.1 200"), sent.len() == get.len());
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
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let server = Server::start(&folder, &["--max-connections", "2", "--quiet"]);
    let get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = [server.connect(), server.connect()];
    let mut answer = [0; 12];
    for stream in &mut first {
        stream.write_all(get).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    let mut third = server.connect();
    third.write_all(get).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let waits = third.read_exact(&mut answer).unwrap_err();
    assert!(matches!(waits.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits}");
    drop(first);
    third.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    third.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(third);
    server.stop();
}

#[test]
fn requests_that_name_another_server_get_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let server = Server::start(&folder, &["--host-name", "models.example", "--quiet"]);
    let get = "GET /v1/model HTTP/1.1";
    for (hosts, status, code) in [
        (&["Host: localhost"][..], 200, ""),
        (&["Host: 127.0.0.1:9"], 200, ""),
        (&["Host: [::1]"], 200, ""),
        (&["Host: Models.Example:80"], 200, ""),
        (&["Host: evil.example"], 421, "wrong_host"),
        (&["Host: 192.168.0.1"], 421, "wrong_host"),
        (&[], 400, "host_header"),
        (&["Host: localhost", "Host: localhost"], 400, "host_header"),
        (&["Host: localhost", "Host: evil.example"], 400, "host_header"),
    ] {
        let (found, text) = server.raw(&[&[get], hosts].concat());
        assert_eq!(found, status, "{hosts:?}: {text}");
        assert!(text.contains(code), "{hosts:?}: {text}");
    }
    server.stop();
}

#[test]
fn a_key_is_required_where_one_is_set() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let key = ["--api-key-env", "LRVD_TEST_KEY", "--quiet"];
    let server = Server::start_with(&folder, &key, Some("s3cret"));
    let text = r#"{"text": "a fine film"}"#;
    for path in ["/", "/healthz", "/readyz"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/v1/model", "/openapi.json", "/metrics", "/v1/other"] {
        let reply = server.get(path);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (401, &json!("unauthorized")));
    }
    assert_eq!(server.post("/v1/classify", text).status, 401);
    let head = ["GET /v1/model HTTP/1.1", "Host: localhost"];
    let (status, answer) = server.raw(&[&head[..], &["Authorization: Bearer s3cre"]].concat());
    assert!(status == 401 && answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
    let (status, answer) = server.raw(&[&head[..], &["Authorization: Bearer s3cret"]].concat());
    assert!(status == 200 && answer.contains("\"labels\""), "{answer}");
    assert_eq!(server.stop(), "", "a key, and loopback: nothing to warn of");

    // Beyond loopback without a key there is a warning, also with `--quiet`.
    let public = ["--address", "0.0.0.0:0"];
    let warned = Server::start(&folder, &[&public[..], &["--quiet"]].concat()).stop();
    assert!(warned.starts_with("warning: other machines can reach `0.0.0.0:"), "{warned}");
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let keyed = Server::start_with(&folder, &[&public[..], &key].concat(), Some("s3cret")).stop();
    assert_eq!(keyed, "");

    run(&["serve", &folder, "--api-key-env", "LRVD_ABSENT"])
        .rejected("`--api-key-env LRVD_ABSENT`");
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_gives_memory_back_and_a_training_run_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = trained(dir.path(), &[]);
    let keeps = |child: &Child| {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap();
        environment.split(|byte| *byte == 0).any(|entry| entry == b"MIMALLOC_PURGE_DELAY=-1")
    };
    let server = Server::start(&folder, &["--quiet"]);
    assert!(!keeps(&server.child));
    server.stop();
    let mut other = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(["predict", &folder])
        .env("HF_HUB_OFFLINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It has started anew once it answers.
    let mut input = other.stdin.take().unwrap();
    let texts = "a fine film\n".repeat(64);
    input.write_all(texts.as_bytes()).unwrap();
    let mut first = String::new();
    BufReader::new(other.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(keeps(&other), "{first}");
    drop(input);
    other.kill().unwrap();
    other.wait().unwrap();
}
