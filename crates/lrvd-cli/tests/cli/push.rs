//! Uploads to a stand-in for the hub on this machine.
#![allow(clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::{Output, lines, lrvd};

/// One call as it came in.
struct Call {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Call {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Answers `calls` calls by `answer`, each on its own connection, and returns them.
fn hub(
    calls: usize,
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + 'static,
) -> (String, JoinHandle<Vec<Call>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}", listener.local_addr().unwrap());
    let own = root.clone();
    let served = std::thread::spawn(move || {
        let mut seen = Vec::new();
        while seen.len() < calls {
            let (stream, _) = listener.accept().unwrap();
            let call = read(&stream);
            let (status, body) = answer(&call.line, &own);
            let text = if body.is_null() { String::new() } else { body.to_string() };
            let head = format!(
                "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            );
            (&stream).write_all(format!("{head}{text}").as_bytes()).unwrap();
            seen.push(call);
        }
        seen
    });
    (root, served)
}

fn read(stream: &TcpStream) -> Call {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers["content-length"].parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let line = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
    Call { line, headers, body }
}

fn push(dir: &Path, repo: &str, endpoint: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = lrvd();
    command.args(["push", dir.to_str().unwrap(), "--repo", repo, "--format", "json"]);
    command.env_remove("HF_HUB_OFFLINE").env("HF_TOKEN", "hf_secret").env("HF_ENDPOINT", endpoint);
    for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    Output {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// An export of three files and one that is hidden.
fn export(dir: &Path) {
    for (name, text) in [
        ("README.md", "# card\n"),
        ("adapter_config.json", "{}"),
        ("adapter_model.safetensors", "weights"),
        (".hidden", "mine"),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

/// SHA-256 of `weights`, by coreutils' sha256sum.
const OID: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";

fn well(line: &str, root: &str) -> (u16, Value) {
    let path = line.split(' ').nth(1).unwrap();
    match path {
        "/api/repos/create" => (409, json!({"error": "You already created this model repo"})),
        "/api/models/me/mine/preupload/main" => {
            let mode = |path: &str, mode: &str| json!({"path": path, "uploadMode": mode, "shouldIgnore": false});
            (
                200,
                json!({"files": [
                    mode("README.md", "regular"),
                    mode("adapter_config.json", "regular"),
                    mode("adapter_model.safetensors", "lfs"),
                ]}),
            )
        }
        "/me/mine.git/info/lfs/objects/batch" => (
            200,
            json!({"transfer": "basic", "objects": [{
                "oid": OID, "size": 7,
                "actions": {
                    "upload": {"href": format!("{root}/store?signature=s"), "header": {"X-Own": "1"}},
                    "verify": {"href": format!("{root}/confirm")},
                },
            }]}),
        ),
        "/api/models/me/mine/commit/main" => (200, json!({"commitOid": "c0ffee"})),
        _ => (200, Value::Null),
    }
}

#[test]
fn an_export_is_uploaded_in_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    export(dir.path());
    let (root, served) = hub(6, well);
    let output = push(dir.path(), "me/mine", &format!("{root}/"), &[]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let report = output.json();
    assert_eq!(
        (&report["url"], &report["commit"]),
        (&format!("{root}/me/mine").into(), &"c0ffee".into())
    );
    assert_eq!(
        report["files"][2],
        json!({"path": "adapter_model.safetensors", "size": 7, "large": true})
    );

    let calls = served.join().unwrap();
    let found: Vec<&str> = calls.iter().map(|call| call.line.as_str()).collect();
    assert_eq!(
        found,
        [
            "POST /api/repos/create",
            "POST /api/models/me/mine/preupload/main",
            "POST /me/mine.git/info/lfs/objects/batch",
            "PUT /store?signature=s",
            "POST /confirm",
            "POST /api/models/me/mine/commit/main",
        ]
    );
    for call in &calls {
        let token = call.headers.get("authorization").map(String::as_str);
        // What stores large files is another service, and its address is permission enough.
        let wanted = (!call.line.starts_with("PUT")).then_some("Bearer hf_secret");
        assert_eq!(token, wanted, "{}", call.line);
    }
    let repository =
        json!({"type": "model", "organization": "me", "name": "mine", "private": false});
    assert_eq!(calls[0].json(), repository);
    let asked = calls[1].json();
    assert_eq!(
        asked["files"][0],
        json!({"path": "README.md", "size": 7, "sample": "IyBjYXJkCg=="})
    );
    assert_eq!(asked["files"].as_array().unwrap().len(), 3);
    let batch = calls[2].json();
    assert_eq!(batch["objects"], json!([{"oid": OID, "size": 7}]));
    assert_eq!((&batch["operation"], &batch["transfers"]), (&"upload".into(), &json!(["basic"])));
    assert_eq!(
        (calls[3].body.as_slice(), calls[3].headers["x-own"].as_str()),
        (&b"weights"[..], "1")
    );
    assert_eq!(calls[4].json(), json!({"oid": OID, "size": 7}));
    assert_eq!(calls[5].headers["content-type"], "application/x-ndjson");
    let commit = lines(std::str::from_utf8(&calls[5].body).unwrap());
    assert_eq!(
        commit,
        [
            json!({"key": "header", "value": {"summary": "Upload with lrvd", "description": ""}}),
            json!({"key": "file", "value": {"path": "README.md", "encoding": "base64", "content": "IyBjYXJkCg=="}}),
            json!({"key": "file", "value": {"path": "adapter_config.json", "encoding": "base64", "content": "e30="}}),
            json!({"key": "lfsFile", "value": {"path": "adapter_model.safetensors", "algo": "sha256", "oid": OID, "size": 7}}),
        ]
    );
}

#[test]
fn what_the_hub_refuses_is_said_without_the_token() {
    let dir = tempfile::tempdir().unwrap();
    export(dir.path());
    let refused = |calls: usize, answer: fn(&str, &str) -> (u16, Value), wanted: &str| {
        let (root, served) = hub(calls, answer);
        let output = push(dir.path(), "me/mine", &root, &[]);
        assert_eq!(output.code, 2, "{}", output.stderr);
        assert!(output.stderr.contains(wanted), "{wanted}: {}", output.stderr);
        assert!(!output.stderr.contains("hf_secret") && !output.stderr.contains("signature"));
        served.join().unwrap();
    };
    refused(1, |_, _| (401, json!({"error": "Invalid token"})), "make the repository: status 401");
    refused(
        2,
        |line, root| {
            if line.contains("preupload") { (200, json!({"files": []})) } else { well(line, root) }
        },
        "it says nothing of `README.md`",
    );
    refused(
        4,
        |line, root| if line.starts_with("PUT") { (403, Value::Null) } else { well(line, root) },
        "store a large file: status 403",
    );
    refused(
        6,
        |line, root| {
            if line.contains("commit") {
                (400, json!({"error": "bad card"}))
            } else {
                well(line, root)
            }
        },
        "bad card",
    );
}

#[test]
fn what_cannot_be_uploaded_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:9";
    let refused = |dir: &Path, repo: &str, environment: &[(&str, &str)], wanted: &str| {
        let output = push(dir, repo, nowhere, environment);
        assert!(output.code == 2 && output.stderr.contains(wanted), "{wanted}: {}", output.stderr);
        assert_eq!(output.stdout, "");
    };
    // The output of a run is not an export.
    std::fs::write(dir.path().join("settings.json"), "{}").unwrap();
    refused(dir.path(), "me/mine", &[], "is no export");
    refused(&dir.path().join("absent"), "me/mine", &[], "is not there, or is no folder");
    export(dir.path());
    refused(dir.path(), "me/mine", &[("HF_HUB_OFFLINE", "1")], "HF_HUB_OFFLINE is set");
    refused(dir.path(), "me/mine", &[("HF_TOKEN", "")], "HF_TOKEN is not set");
    for repo in ["mine", "me/", "me/mi ne", "me/mine/x", "../x"] {
        refused(dir.path(), repo, &[], "wanted `owner/name`");
    }
    refused(dir.path(), "me/mine", &[], "cannot make the repository at `http://127.0.0.1:9/");
}
