//! `lrvd serve` on loopback: the answers of `lrvd predict`, rejections, overload, and a clean end.
#![cfg(all(unix, feature = "serve"))]
// Connections that no client library would make.
#![allow(clippy::disallowed_types)]
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use lrvd_models::tokenizer::TextTokenizer;
use serde_json::{Value, json};

use crate::support::{Sandbox, placed, signal, training};

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
        Self::start_with(dir, words, Some(("LRVD_TEST_KEY", "s3cret")))
    }

    /// As [`Self::start`], with another variable in the environment.
    pub(crate) fn start_with(dir: &Sandbox, words: &str, variable: Option<(&str, &str)>) -> Self {
        let port = if words.contains("--address") { "" } else { "--address 127.0.0.1:0" };
        let mut command = dir.command(&format!("serve {words} {port} --format json"));
        command.envs(variable);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty(), "{}", rest(&mut child));
        let first: Value = serde_json::from_str(&first).unwrap();
        let address = first["address"].as_str().unwrap().to_owned();
        Self { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request(false, "GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.request(false, "POST", path, body)
    }

    /// The answer to a request, with the key of `LRVD_TEST_KEY` if it `is_keyed`.
    pub(crate) fn request(&self, is_keyed: bool, method: &str, path: &str, body: &str) -> Reply {
        let start = format!("{method} {path} HTTP/1.1");
        let mut lines = vec![&*start, "Host: localhost", "Content-Type: application/json"];
        lines.extend(is_keyed.then_some("Authorization: Bearer s3cret"));
        self.ask(&lines, body)
    }

    /// The body of an answer.
    fn posted(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, &body.to_string());
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()
    }

    /// A connection on which a request with these further lines of its head, a length and the start of its body was sent.
    fn sent(&self, path: &str, lines: &str, length: usize, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json");
        write!(stream, "{head}\r\n{lines}Content-Length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    /// As [`Self::post`], with the key.
    fn post_keyed(&self, path: &str, body: &Value) -> Reply {
        self.request(true, "POST", path, &body.to_string())
    }

    /// A counter or gauge of `/metrics`.
    pub(crate) fn count(&self, name: &str) -> f64 {
        let page = self.request(true, "GET", "/metrics", "").text;
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
    pub(crate) fn ask(&self, lines: &[&str], body: &str) -> Reply {
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
    /// content type, path, body. Code and field are those of the path's API: `type` or `error_type` and `loc` behind `body`, its
    /// keys joined by `/`, of `/v1/systemone`; `code` and `param` of the routes in the form of `OpenAI`.
    pub(crate) fn rejects(&self, lines: &[&str]) {
        for line in lines {
            let mut body = *line;
            let mut column = || {
                let (word, rest) = body.split_once(' ').unwrap_or((body, ""));
                body = rest.trim_start();
                word
            };
            let expected = [column(), column(), column()];
            let method = column();
            let path = column();
            let (method, kind) = method.split_once(';').unwrap_or((method, "application/json"));
            let [start, kind] =
                [format!("{method} {path} HTTP/1.1"), format!("Content-Type: {kind}")];
            let reply = self.ask(&[&start, "Host: localhost", &kind], body);
            let Reply { status, head, .. } = &reply;
            assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{line}: {head}");
            let (code, field, message) = fault(path, &reply.json());
            assert_eq!([&*status.to_string(), &code, &field], expected, "{line}: {message}");
            assert!(!message.is_empty());
            assert!(*status < 500 || matches!(status, 503 | 504), "{line}");
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

/// Code, field and message of an error, whose body has exactly the keys of the API of `path`.
fn fault(path: &str, body: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    match path {
        "/v1/systemone" | "/v1/models" => {
            assert_eq!(keys(body), ["detail"], "{body}");
            let detail = &body["detail"];
            let Some(list) = detail.as_array() else {
                assert_eq!(keys(detail), ["error_type", "message"], "{body}");
                return (text(&detail["error_type"]), "-".to_owned(), text(&detail["message"]));
            };
            let [one] = &list[..] else { panic!("{body}") };
            assert_eq!(keys(one), ["loc", "msg", "type"], "{body}");
            let place: Vec<String> = one["loc"].as_array().unwrap().iter().map(text).collect();
            let (first, rest) = place.split_first().unwrap();
            assert_eq!(first, "body");
            let field = if rest.is_empty() { "-".to_owned() } else { rest.join("/") };
            (text(&one["type"]), field, text(&one["msg"]))
        }
        _ => {
            assert_eq!(keys(body), ["error"], "{body}");
            let error = &body["error"];
            let is_openai =
                ["/v1/decisions", "/v1/completions", "/v1/chat/completions"].contains(&path);
            let field = if is_openai { "param" } else { "field" };
            let mut expected = vec!["code", "message", field];
            expected.extend(is_openai.then_some("type"));
            expected.sort_unstable();
            assert_eq!(keys(error), expected, "{body}");
            (text(&error["code"]), text(&error[field]), text(&error["message"]))
        }
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
            let body = json!({ "inputs": inputs, "draws": draws, "seed": seed });
            server.posted("/v1/classify", &body)["answers"].as_array().unwrap().clone()
        };
        let expected: Vec<Value> = texts.iter().flat_map(|text| answers(&[text])).collect();
        assert_eq!(answers(&texts), expected, "{draws}");
        std::thread::scope(|scope| {
            for i in 0..12 {
                let text = texts[i % 4];
                let expected = &expected[i % 4];
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
        assert_eq!((reply.status, code), (503, json!("unavailable")));
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

/// As rotators of logs and closed terminals send them.
#[test]
fn signals_that_are_not_for_its_end_are_logged() {
    let dir = classifier();
    let server = Server::start(&dir, "out");
    let names = ["HUP", "USR1", "USR2"];
    for name in names {
        signal(&server.child, &format!("-{name}"));
        assert_eq!(server.get("/readyz").status, 200, "{name}");
    }
    let log = server.stop();
    for name in names {
        let line = format!(r#""ends_server":false,"signal":"SIG{name}""#);
        assert_eq!(log.matches(&line).count(), 1, "{name}: {log}");
    }
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
        let host = format!("Host: {host}");
        let key = format!("Authorization: Bearer {key}");
        server.ask(&["GET /v1/model HTTP/1.1", &host, &key], "")
    };
    for (host, key, status, part) in [
        ("localhost", "s3cre", 401, "www-authenticate: Bearer"),
        ("Models.Example:80", "s3cret", 200, "\"labels\""),
        ("lrvd.default.svc", "s3cret", 200, "\"labels\""),
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

    // Without a key the name of the server is checked, but not for probes, of which some name none.
    let open = Server::start(&dir, "out --quiet");
    let named = "Host: lrvd.default.svc";
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(open.ask(&[&format!("GET {path} HTTP/1.1"), named], "").status, 200, "{path}");
        let old = open.ask(&[&format!("GET {path} HTTP/1.0")], "");
        assert!(old.head.starts_with("HTTP/1.0 200"), "{path}: {}", old.head);
    }
    assert_eq!(open.ask(&["GET /v1/model HTTP/1.1", named], "").status, 421);
    open.stop();
    let keyed = Server::start(&dir, &format!("{key} --address 0.0.0.0:0"));
    assert_eq!(keyed.stop(), "");
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
    let gone = server.sent("/v1/generate", "", body.len(), &body);
    wait_until(|| tokens() != 0.0);
    drop(gone);
    server.posted("/v1/generate", &json!({ "prompt": "Once", "max_tokens": 1 }));
    assert!((2.0..400.0).contains(&tokens()), "{}", tokens());
    assert!(server.count("lrvd_batch_seconds_total") > 0.0);
    server.stop();
}

/// The untrained language model, which answers typed questions all the same.
fn decider(words: &str) -> (Sandbox, Server) {
    let dir = Sandbox::new();
    let server = Server::start(&dir, &format!("@llama --decisions --quiet {words}"));
    (dir, server)
}

fn choice(options: usize, words: usize) -> Value {
    let option = |i| (format!("option {i}"), json!("word ".repeat(words)));
    let criteria: serde_json::Map<_, _> = (0..options).map(option).collect();
    json!({ "type": "choice", "instructions": "Which one?", "criteria": criteria })
}

fn systemone(state: &Value, questions: &Value) -> Value {
    json!({ "model": "jev-latest", "state": state, "questions": questions })
}

/// Names, company and order of questions change no bit of an answer, and both routes give the same.
#[test]
fn a_question_has_the_same_answer_whatever_else_is_asked_and_at_both_routes() {
    let (_dir, server) = decider("");
    let state = json!({ "message": "charged twice", "tags": ["money", 3] });
    let team = json!({ "type": "choice", "instructions": "Which team?",
        "criteria": { "환불 🙂": "money back", "billing": null, "technical": "it is broken" } });
    let urgency =
        json!({ "type": "score", "instructions": "How urgent?", "criteria": ["can wait", "now"] });
    let refund = json!({ "type": "noul", "instructions": "Money back?" });
    let ask = |questions: Value| {
        server.posted("/v1/systemone", &systemone(&state, &questions))["answers"].take()
    };
    let all = ask(json!({ "team": team, "urgency": urgency, "refund": refund }));
    for (id, question) in [("team", &team), ("urgency", &urgency), ("refund", &refund)] {
        assert_eq!(ask(json!({ "🎯": question }))["🎯"], all[id], "{id}");
    }
    let swapped = ask(json!({ "a": refund, "b": team, "c": urgency }));
    assert_eq!(
        [&swapped["a"], &swapped["b"], &swapped["c"]],
        [&all["refund"], &all["team"], &all["urgency"]]
    );
    let names: Vec<_> = all["team"]["probabilities"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["billing", "technical", "환불 🙂"]);

    // The state as the text that it is read as; options in another order.
    let body = json!({ "model": "jev-latest",
        "input": [{ "role": "user", "content": [{ "type": "input_json", "data": state }] }],
        "questions": [
            { "type": "predicate", "instructions": "Money back?" },
            { "type": "choice", "name": "team", "instructions": [{ "type": "input_text", "text": "Which team?" }],
              "choices": [{ "value": "technical", "description": "it is broken" }, { "value": "billing" },
                          { "value": "환불 🙂", "description": "money back" }] },
            { "type": "score", "name": null, "instructions": "How urgent?",
              "levels": [{ "label": "can wait" }, { "label": "now" }] } ] });
    let answers = server.posted("/v1/decisions", &body)["answers"].take();
    assert_eq!(answers[0]["probability"], all["refund"]["noul"]);
    assert_eq!([&answers[0]["name"], &answers[1]["name"]], [&Value::Null, &json!("team")]);
    for probability in answers[1]["probabilities"].as_array().unwrap() {
        let name = probability["value"].as_str().unwrap();
        assert_eq!(probability["probability"], all["team"]["probabilities"][name], "{name}");
    }
    assert_eq!(answers[1]["probabilities"][0]["value"], "technical");
    for key in ["choice", "confidence", "x_entropy"] {
        assert_eq!(answers[1][key], all["team"][key], "{key}");
    }
    for key in ["score", "confidence"] {
        assert_eq!(answers[2][key], all["urgency"][key], "{key}");
    }
    assert_eq!(answers[2]["probabilities"][1]["label"], "now");
    assert_eq!(all["team"]["x_calibrated"], false);
    server.stop();
}

/// A client that disconnects ends its questions, and the next one is answered.
#[test]
fn questions_end_with_their_client() {
    let (_dir, server) = decider("");
    // Longer than the timeout, and within the other limits.
    let long = |i| (format!("q{i}"), choice(255, 12));
    let questions: serde_json::Map<_, _> = (0..32).map(long).collect();
    let body = systemone(&json!("a day"), &questions.into()).to_string();
    let asked = || server.count("lrvd_batches_total");
    let before = asked();
    let gone = server.sent("/v1/systemone", "", body.len(), &body);
    wait_until(|| asked() != before);
    drop(gone);
    let noul = json!({ "q": { "type": "noul", "instructions": "So?" } });
    server.posted("/v1/systemone", &systemone(&json!("a day"), &noul));
    server.stop();
}

/// Questions that take longer than the time that a request has end with it, also when the server is stopped meanwhile.
#[test]
fn questions_beyond_their_time_do_not_keep_a_server_from_stopping() {
    let (_dir, server) = decider("--timeout 1 --max-options 20000 --max-bytes 4000000");
    // What questions share is computed once: these share nothing.
    let long = |i| {
        let mut question = choice(255, 0);
        question["instructions"] = json!(format!("Which one, {i}?"));
        let options = question["criteria"].as_object_mut().unwrap();
        options.values_mut().for_each(|text| *text = json!(format!("word {i} ").repeat(12)));
        (format!("q{i}"), question)
    };
    let questions: serde_json::Map<_, _> = (0..60).map(long).collect();
    let body = systemone(&json!("a day"), &questions.into()).to_string();
    let asked = || server.count("lrvd_batches_total");
    let before = asked();
    let reply = std::thread::scope(|scope| {
        let reply = scope.spawn(|| server.post("/v1/systemone", &body));
        wait_until(|| asked() != before);
        signal(&server.child, "-TERM");
        reply.join().unwrap()
    });
    assert_eq!(reply.status, 504, "{}", reply.text);
    server.stop();
}

/// Bodies that are small and could cost much: bounded, and the next request is answered.
#[test]
fn deep_wide_and_cut_bodies_are_rejected_or_answered_in_bounded_time() {
    let (_dir, server) = decider("--max-texts 4");
    let begun = std::time::Instant::now();
    let noul = json!({ "q": { "type": "noul", "instructions": "So?" } });
    let deep =
        |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    let posted = |state: &str| {
        let body = systemone(&json!("STATE"), &noul).to_string().replace("\"STATE\"", state);
        server.post("/v1/systemone", &body).status
    };
    // Beyond the parser's depth; a deep list of many, which as text is a hundred times as long.
    assert_eq!(posted(&deep(200_000, "1")), 422);
    assert_eq!(posted(&deep(100, &vec!["1"; 100_000].join(","))), 413);
    assert_eq!(posted(&deep(100, "1")), 200);
    let wide = systemone(&json!("a"), &json!({ "q": choice(255, 400) })).to_string();
    assert!(wide.len() > 500_000);
    assert!([200, 422].contains(&server.post("/v1/systemone", &wide).status));
    let many: serde_json::Map<_, _> =
        (0..20_000).map(|i| (i.to_string(), json!({ "type": "noul" }))).collect();
    let many = systemone(&json!("a"), &many.into());
    assert_eq!(server.post("/v1/systemone", &many.to_string()).status, 422);

    // Two bodies that end early: closed by the client, and kept open.
    for path in ["/v1/systemone", "/v1/decisions"] {
        let mut cut = server.sent(path, "", 900, "{\"mo");
        cut.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        let _ = cut.read_to_string(&mut text);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    }
    let kept = server.sent("/v1/systemone", "", 900, "{");
    server.posted("/v1/systemone", &systemone(&json!("a"), &noul));
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    drop(kept);
    server.stop();
}

#[test]
fn errors_around_a_request_have_the_form_of_its_api_and_only_named_origins_may_read_them() {
    let words = "--api-key-env LRVD_TEST_KEY --allow-origin https://app.example";
    let (_dir, server) = decider(words);
    server.rejects(&[
        "401 authentication_error - POST /v1/systemone {}",
        "401 authentication_error - GET /v1/models",
        "401 unauthorized - POST /v1/decisions {}",
        "401 unauthorized - GET /v1/model",
    ]);
    let ask = |lines: &[&str]| server.ask(&[lines, &["Host: localhost"]].concat(), "");
    let app = "Origin: https://app.example";
    let other = "Origin: https://other.example";
    let allowed = "\r\naccess-control-allow-origin: https://app.example\r\n";
    let options = "OPTIONS /v1/systemone HTTP/1.1";
    let method = "Access-Control-Request-Method: POST";
    let before = ask(&[options, app, method]);
    assert_eq!(before.status, 200);
    let headers = "\r\naccess-control-allow-headers: authorization,content-type\r\n";
    assert!(before.head.contains(allowed) && before.head.contains(headers), "{}", before.head);
    let refused = ask(&[options, other, method]);
    assert!(!refused.head.contains("access-control-allow-origin"), "{}", refused.head);
    let keyed = ["GET /v1/models HTTP/1.1", "Authorization: Bearer s3cret"];
    let models = ask(&[&keyed[..], &[app]].concat());
    assert_eq!(
        (models.status, models.json()["models"][0]["name"].take()),
        (200, json!("decisions"))
    );
    assert!(
        models.head.contains(allowed) && models.head.contains("\r\nvary: origin"),
        "{}",
        models.head
    );
    assert!(ask(&["GET /v1/models HTTP/1.1", app]).head.contains(allowed), "errors are read too");
    let foreign = ask(&[&keyed[..], &[other]].concat());
    assert!(!foreign.head.contains("access-control-allow-origin"), "{}", foreign.head);
    server.stop();

    // Without a key a header with one is accepted; without `--allow-origin` no page is.
    let (_dir, server) = decider("");
    let models = server.ask(&[&keyed[..], &["Host: localhost", app]].concat(), "");
    assert_eq!(models.status, 200);
    assert!(
        !models.head.contains("access-control") && !models.head.contains("vary"),
        "{}",
        models.head
    );
    assert_eq!(server.ask(&[options, "Host: localhost", app, method], "").status, 405);
    server.stop();
}

/// The events of a stream are the tokens of the whole answer; what has no first token is an error with a status.
#[test]
fn a_text_that_is_streamed_is_the_text_that_is_not() {
    let dir = Sandbox::new();
    let server = Server::start(
        &dir,
        "@tests/pins/adapters/language --model @llama --max-draws 64 --max-tokens 500",
    );
    let post = |mut body: Value, stream: bool| {
        body["stream"] = stream.into();
        server.post("/v1/generate", &body.to_string())
    };
    let events = |reply: &Reply| -> Vec<(String, Value)> {
        assert!(reply.head.contains("\r\ncontent-type: text/event-stream\r\n"), "{}", reply.head);
        // Chunks of HTTP stand between the events.
        let lines: Vec<&str> = reply.text.lines().filter(|line| line.contains(": ")).collect();
        let pairs = lines.chunks(2).map(|pair| {
            let name = pair[0].strip_prefix("event: ").unwrap().to_owned();
            (name, serde_json::from_str(pair[1].strip_prefix("data: ").unwrap()).unwrap())
        });
        pairs.collect()
    };
    for body in [
        json!({ "prompt": "Tim saw a red car.", "max_tokens": 12, "draws": 4, "seed": 2 }),
        json!({ "prompt": "Tim", "max_tokens": 9, "temperature": 3, "top_p": 0.9 }),
    ] {
        let whole = post(body.clone(), false).json();
        let mut events = events(&post(body, true));
        let (name, last) = events.pop().unwrap();
        assert_eq!(name, "answer");
        let text = &whole["texts"][0];
        let tokens: Vec<&Value> = events.iter().map(|(_, token)| token).collect();
        assert!(events.iter().all(|(name, _)| name == "token") && tokens.len() > 3);
        assert_eq!(json!(tokens), text["tokens"]);
        assert_eq!(last["tokens"], tokens.len());
        for key in ["text", "prompt_tokens", "stopped", "mean_log_probability"] {
            assert_eq!(last[key], text[key], "{key}");
        }
        for key in ["schema_version", "draws", "seed", "temperature", "top_p"] {
            assert_eq!(last[key], whole[key], "{key}");
        }
    }
    let unread = post(json!({ "messages": [{ "role": "user", "content": "Hi" }] }), true);
    assert_eq!(
        (unread.status, unread.json()["error"]["code"].take()),
        (422, json!("unprocessable"))
    );
    assert_eq!(server.count("lrvd_texts_total"), 4.0);
    // Each has one line, also the streams, at their end.
    let log = server.stop();
    assert_eq!(log.matches(r#""path":"/v1/generate","status":200"#).count(), 4, "{log}");
}

/// Completions have the tokens and the numbers of `/v1/generate`, and the tokens of a prompt those that they have as a continuation.
#[test]
fn completions_have_the_texts_and_the_numbers_of_generate() {
    let dir = Sandbox::new();
    let words = "@tests/pins/adapters/language --model @llama --max-draws 8 --quiet";
    let server = Server::start(&dir, words);
    let prompt = "Tim saw a red car.";
    let complete = |body: Value| server.posted("/v1/completions", &body);
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    };
    let close = |found: &[f64], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-3;
        assert!(found.iter().zip(expected).all(near), "{found:?}, expected {expected:?}");
    };
    let ids = |text: &str| {
        let tokenizer = TextTokenizer::from_dir(&dir.path("@llama")).unwrap();
        tokenizer.encode(text, None, None).unwrap().get_ids().to_vec()
    };
    for draws in [0, 3] {
        let body = json!({ "prompt": prompt, "max_tokens": 8, "draws": draws });
        let text = server.posted("/v1/generate", &body)["texts"][0].take();
        let tokens = text["tokens"].as_array().unwrap();
        let expected: Vec<f64> =
            tokens.iter().map(|token| token["probability"].as_f64().unwrap().ln()).collect();
        let greedy = json!({ "prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 2, "x_draws": draws });
        let found = complete(greedy);
        assert_eq!(
            (&found["object"], &found["model"]),
            (&json!("text_completion"), &json!("language"))
        );
        let choice = &found["choices"][0];
        let n = tokens.len();
        let is_stopped = text["stopped"] == true;
        let reason = if is_stopped { "stop" } else { "length" };
        assert_eq!((&choice["text"], &choice["finish_reason"]), (&text["text"], &json!(reason)));
        let usage = json!({ "prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n });
        assert_eq!(found["usage"], usage);
        let logprobs = &choice["logprobs"];
        let own = numbers(&logprobs["token_logprobs"]);
        close(&own[..n], &expected);
        // With the token that ended the text.
        assert_eq!(own.len(), n + usize::from(is_stopped));
        // Greedy: the token is the first of its alternatives.
        for (token, top) in own.iter().zip(logprobs["top_logprobs"].as_array().unwrap()) {
            let top: Vec<f64> =
                top.as_object().unwrap().values().filter_map(Value::as_f64).collect();
            assert!(top.len() == 2 && top.iter().all(|other| other <= token), "{top:?} {token}");
        }
        assert_eq!(logprobs["text_offset"][1], tokens[0]["text"].as_str().unwrap().len());

        // What was generated, as a prompt, of tokens or as a part of them.
        let mut all = ids(prompt);
        all.extend(tokens.iter().map(|token| token["id"].as_u64().unwrap() as u32));
        let scored = json!({ "prompt": all, "max_tokens": 0, "echo": true, "logprobs": 1, "x_draws": draws });
        let choice = complete(scored)["choices"][0].take();
        let logprobs = &choice["logprobs"]["token_logprobs"];
        assert_eq!((logprobs.as_array().unwrap().len(), &logprobs[0]), (9 + n, &Value::Null));
        close(&numbers(&json!(logprobs.as_array().unwrap()[9..])), &expected);
        assert_eq!(choice["text"], format!("{prompt}{}", text["text"].as_str().unwrap()));
        let one = json!({ "prompt": [all, [1, 346]], "max_tokens": 1, "echo": true, "logprobs": 1, "temperature": 0 });
        let both = complete(one);
        let count = |index: usize| {
            assert_eq!(both["choices"][index]["index"], index);
            both["choices"][index]["logprobs"]["tokens"].as_array().unwrap().len()
        };
        assert_eq!([count(0), count(1)], [9 + n + 1, 3]);
    }
    let cut = |stop: Value| {
        let body = json!({ "prompt": prompt, "max_tokens": 8, "temperature": 0, "stop": stop });
        let choice = complete(body)["choices"][0].take();
        (choice["text"].as_str().unwrap().to_owned(), choice["finish_reason"].clone())
    };
    // The pinned text is ` He was sad.g. He`.
    assert_eq!(cut(json!("sad.")), (" He was ".to_owned(), json!("stop")));
    assert_eq!(cut(json!(["was", " H"])), (String::new(), json!("stop")));
    assert_eq!(cut(json!("absent")).1, "length");
    let echoed =
        json!({ "prompt": ["Tim", prompt], "max_tokens": 2, "echo": true, "temperature": 0 });
    let choices = complete(echoed)["choices"].take();
    for (index, prompt) in ["Tim", prompt].iter().enumerate() {
        let text = choices[index]["text"].as_str().unwrap();
        assert!(text.starts_with(prompt) && text.len() > prompt.len(), "{text}");
        assert_eq!(choices[index]["logprobs"], Value::Null);
    }
    // Drawn by default, by the seed.
    let drawn = |seed: usize| {
        let body = json!({ "prompt": prompt, "max_tokens": 12, "temperature": 3, "seed": seed });
        complete(body)["choices"][0]["text"].take()
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
    server.stop();
}

/// The events of a stream in the form of `OpenAI` are the parts of the whole text, of a prompt and of a conversation.
#[test]
fn completions_that_are_streamed_are_those_that_are_not() {
    let dir = Sandbox::new();
    dir.copy(&dir.path("@llama"), "base");
    dir.write(
        "base/chat_template.jinja",
        "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}",
    );
    let server = Server::start(&dir, "@tests/pins/adapters/language --model base --quiet");
    let events = |path: &str, mut body: Value| -> Vec<Value> {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
        let reply = server.post(path, &body.to_string());
        assert!(reply.head.contains("\r\ncontent-type: text/event-stream\r\n"), "{}", reply.head);
        let lines = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut lines: Vec<&str> = lines.collect();
        assert_eq!(lines.pop(), Some("[DONE]"));
        lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let messages = json!([{ "role": "developer", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "Tim saw a red car." }] }]);
    let prompt = json!({ "prompt": "Tim saw a red car.", "stop": "sad." });
    let chat = json!({ "messages": messages });
    for (path, mut body, part, whole_text) in [
        ("/v1/completions", prompt, "/text", "/text"),
        ("/v1/chat/completions", chat, "/delta/content", "/message/content"),
    ] {
        body["max_tokens"] = 8.into();
        body["temperature"] = 0.into();
        let whole = server.posted(path, &body);
        let mut events = events(path, body.clone());
        let usage = events.pop().unwrap();
        assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &whole["usage"]));
        let parts = events.iter().filter_map(|event| event["choices"][0].pointer(part)?.as_str());
        let text: String = parts.collect();
        assert_eq!(Some(&*text), whole["choices"][0].pointer(whole_text).unwrap().as_str());
        let reasons: Vec<&Value> =
            events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
        let (last, before) = reasons.split_last().unwrap();
        assert_eq!(*last, &whole["choices"][0]["finish_reason"]);
        assert!(before.iter().all(|reason| reason.is_null()) && before.len() > 1);
        assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    }
    // The conversation is that of `/v1/generate`.
    let own = json!({ "messages": [{ "role": "user", "content": "Tim saw" }], "max_tokens": 5 });
    let own = server.posted("/v1/generate", &own);
    let chat = json!({ "messages": [{ "role": "user", "content": "Tim saw" }], "max_completion_tokens": 5,
        "temperature": 0, "logprobs": true, "top_logprobs": 2 });
    let chat = server.posted("/v1/chat/completions", &chat);
    assert_eq!(chat["object"], "chat.completion");
    let choice = &chat["choices"][0];
    let message = json!({ "role": "assistant", "content": own["texts"][0]["text"] });
    assert_eq!(choice["message"], message);
    let tokens = own["texts"][0]["tokens"].as_array().unwrap();
    let found = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(found.len(), tokens.len());
    for (found, token) in found.iter().zip(tokens) {
        let expected = token["probability"].as_f64().unwrap().ln();
        assert!((found["logprob"].as_f64().unwrap() - expected).abs() < 1e-9, "{found}");
        assert_eq!(found["top_logprobs"][0]["logprob"], found["logprob"]);
        assert_eq!(found["top_logprobs"].as_array().unwrap().len(), 2);
    }
    let list = server.get("/v1/models").json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("language")));
    server.stop();
}

/// A text that takes long is generated beside the requests to a classifier on the same base.
#[test]
fn a_generation_does_not_keep_texts_waiting() {
    let dir = Sandbox::new();
    let [chat, words] =
        ["language", "worded"].map(|name| placed(&format!("@tests/pins/adapters/{name}")));
    let words = format!("--base @llama --adapter chat={chat} --adapter words={words}");
    let server = Server::start(&dir, &format!("{words} --max-draws 64 --max-tokens 500 --quiet"));
    let tokens = || server.count("lrvd_tokens_total");
    let body =
        json!({ "prompt": "Once", "max_tokens": 500, "temperature": 1000, "seed": 5, "draws": 64, "stream": true })
            .to_string();
    let stream = server.sent("/v1/generate", "", body.len(), &body);
    wait_until(|| tokens() != 0.0);
    server.posted("/v1/classify", &json!({ "model": "words", "text": "a fine film" }));
    assert!(tokens() < 400.0, "{}", tokens());
    drop(stream);
    server.stop();
}

/// Before a body is read: one that says itself that it is too long, or is in another transfer coding.
#[test]
fn a_body_that_will_not_be_read_is_rejected_at_its_head() {
    let dir = classifier();
    let server = Server::start(&dir, "out --max-bytes 100 --quiet");
    for (line, status, code) in [
        ("Content-Length: 101", 413, "body_too_large"),
        ("Content-Length: 9223372036854775807", 413, "body_too_large"),
        ("Transfer-Encoding: gzip, chunked", 400, "unreadable_request"),
        ("Transfer-Encoding: chunked, chunked", 400, "unreadable_request"),
    ] {
        let mut stream = server.connect();
        let head =
            "POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        // In one piece, which the server has read before it closes the connection.
        let request = format!("{head}\r\nConnection: close\r\n{line}\r\n\r\n{{");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")) && text.contains(code),
            "{line}: {text}"
        );
    }
    server.stop();
}

/// A folder with a base and two classifiers on it, `out` and `second`.
fn two_adapters() -> Sandbox {
    let dir = classifier();
    let trained = dir.run(&training("second", 2, "--model deberta-v3-nano --seed 6"));
    assert_eq!(trained.code, 0, "{}", trained.stderr);
    dir
}

/// The answers of a classifier at the mean and by draws, of the model of that name or of the one of requests without one.
fn answers(server: &Server, model: Option<&str>) -> Vec<Value> {
    let ask = |draws: usize| {
        let texts = ["a fine film", "a grim book, number 3"].map(|text| json!({ "text": text }));
        let body = json!({ "model": model, "inputs": texts, "draws": draws, "seed": 7 });
        let reply = server.post_keyed("/v1/classify", &body);
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()["answers"].take()
    };
    vec![ask(0), ask(3)]
}

/// Requests that came before a new adapter of their model are answered by the old one, later ones by the new one.
#[test]
fn an_adapter_is_added_replaced_and_removed_while_requests_are_in_flight() {
    let dir = two_adapters();
    let server = Server::start(&dir, "out --api-key-env LRVD_TEST_KEY --quiet");
    let name = "out";
    let old = answers(&server, Some(name));
    let put = |name: &str, folder: &str| {
        server.post_keyed("/v1/adapters", &json!({ "name": name, "folder": folder }))
    };
    let added = put("org/spam", "second");
    assert_eq!((added.status, &added.json()["name"]), (201, &json!("org/spam")), "{}", added.text);
    let new = answers(&server, Some("org/spam"));
    assert_ne!(new, old);

    let slow = json!({ "text": "a fine film", "draws": 100, "seed": 1 });
    std::thread::scope(|scope| {
        let before = server.count("lrvd_batches_total");
        let with_the_model = scope.spawn(|| server.post_keyed("/v1/classify", &slow).status);
        wait_until(|| server.count("lrvd_batches_total") != before);
        let waits = scope.spawn(|| answers(&server, Some(name)));
        wait_until(|| server.count("lrvd_queue_texts") > 0.0 || waits.is_finished());
        let replaced = put(name, "second");
        assert_eq!((replaced.status, &replaced.json()["name"]), (200, &json!(name)));
        assert_eq!(with_the_model.join().unwrap(), 200);
        // The first request of it came before, the second one may have come later.
        let waited = waits.join().unwrap();
        assert_eq!(waited[0], old[0]);
        assert!([&old[1], &new[1]].contains(&&waited[1]));
    });
    assert_eq!(answers(&server, Some(name)), new);
    assert_eq!(answers(&server, None), new);
    // A removed one answers the requests that came before.
    let remove = |name: &str| server.request(true, "DELETE", &format!("/v1/adapters/{name}"), "");
    let slow = json!({ "model": "org/spam", "text": "a fine film", "draws": 100, "seed": 1 });
    std::thread::scope(|scope| {
        let before = server.count("lrvd_batches_total");
        let with_the_model = scope.spawn(|| server.post_keyed("/v1/classify", &slow).status);
        wait_until(|| server.count("lrvd_batches_total") != before);
        assert_eq!(remove("org/spam").status, 204);
        assert_eq!(server.post_keyed("/v1/classify", &slow).status, 404);
        assert_eq!(with_the_model.join().unwrap(), 200);
    });
    for (name, code) in [("org/spam", "not_found"), (name, "conflict"), ("%ff", "not_found")] {
        assert_eq!(remove(name).json()["error"]["code"], code, "{name}");
    }
    // A client that does not wait for its adapter: it is there all the same.
    let body = json!({ "name": "late", "folder": "second" }).to_string();
    let late = json!({ "model": "late", "text": "a" });
    wait_until(|| {
        let key = "Authorization: Bearer s3cret\r\n";
        drop(server.sent("/v1/adapters", key, body.len(), &body));
        server.post_keyed("/v1/classify", &late).status == 200
    });
    let names = server.request(true, "GET", "/v1/models", "");
    assert_eq!(names.json()["models"].as_array().unwrap().len(), 2);
    server.stop();
}
