//! The calls of an upload, in order.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::{Client, JSON};
use super::error::PushError;
use super::folder::{LocalFile, files};
use crate::io::{IoError, sha256_file};

/// Kind of a call for large files.
const LFS: &str = "application/vnd.git-lfs+json";
/// Kind of a commit: one JSON object a line.
const LINES: &str = "application/x-ndjson";
/// Bytes of a file that the hub looks at to tell text from data.
const SAMPLE: usize = 512;
/// Largest file in one piece.
const LARGEST: u64 = 5_000_000_000;
/// The branch that is written.
const BRANCH: &str = "main";

/// Where to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOptions {
    /// Address of the hub.
    pub endpoint: String,
    /// The right to write.
    pub token: String,
    /// Repository, `owner/name`; it is made if it is not there.
    pub repo: String,
    /// Whether a new repository is for its owner only.
    pub private: bool,
    /// Title of the commit.
    pub message: String,
}

/// A file on the hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushedFile {
    /// Path in the repository.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Whether it is kept as a large file.
    pub large: bool,
}

/// What is on the hub now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushReport {
    /// Page of the repository.
    pub url: String,
    /// The commit, as far as the hub names it.
    pub commit: Option<String>,
    /// Files by path.
    pub files: Vec<PushedFile>,
}

/// What the hub says of a file before it is sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    path: String,
    #[serde(rename = "uploadMode")]
    kind: String,
    #[serde(default)]
    should_ignore: bool,
}

/// Where a large file goes.
#[derive(Deserialize)]
struct Object {
    oid: String,
    #[serde(default)]
    actions: BTreeMap<String, Action>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, String>,
}

/// Uploads the files of `dir` in one commit; hidden files stay.
///
/// # Errors
///
/// [`PushError`] if the folder is no export, or the hub cannot be reached or says no. Nothing is visible then but,
/// perhaps, an empty repository.
pub fn push(dir: &Path, options: &PushOptions) -> Result<PushReport, PushError> {
    let (owner, name) = repository(&options.repo)?;
    let files = files(dir)?;
    if let Some(file) = files.iter().find(|file| file.size > LARGEST) {
        let (file, size) = (file.path.clone(), file.size);
        return Err(PushError::TooLarge { file, size, most: LARGEST });
    }
    let root = options.endpoint.trim_end_matches('/');
    let client = Client::new(root, &options.token);
    create(&client, root, owner, name, options.private)?;
    let modes = modes(&client, root, options, &files)?;
    let mut pushed = Vec::new();
    let mut lines = vec![json!({
        "key": "header", "value": {"summary": options.message, "description": ""}
    })];
    let mut large = Vec::new();
    for file in &files {
        let mode = modes.iter().find(|mode| mode.path == file.path).ok_or_else(|| {
            let reason = format!("it says nothing of `{}`", file.path);
            PushError::Answer { action: PREUPLOAD, reason }
        })?;
        if mode.should_ignore {
            continue;
        }
        let is_large = mode.kind == "lfs";
        pushed.push(PushedFile { path: file.path.clone(), size: file.size, large: is_large });
        if is_large {
            let oid = sha256_file(&file.place)?;
            lines.push(json!({"key": "lfsFile", "value": {
                "path": file.path, "algo": "sha256", "oid": oid, "size": file.size,
            }}));
            large.push((file, oid));
        } else {
            let bytes = std::fs::read(&file.place).map_err(IoError::at("read", &file.place))?;
            lines.push(json!({"key": "file", "value": {
                "path": file.path, "encoding": "base64", "content": BASE64_STANDARD.encode(bytes),
            }}));
        }
    }
    if !large.is_empty() {
        store(&client, root, &options.repo, &large)?;
    }
    let mut body = String::new();
    for line in lines {
        body.push_str(&line.to_string());
        body.push('\n');
    }
    let url = format!("{root}/api/models/{}/commit/{BRANCH}", options.repo);
    let commit = client.post("commit the files", &url, LINES, body.as_bytes())?.done()?;
    let commit: Value = commit.json()?;
    Ok(PushReport {
        url: format!("{root}/{}", options.repo),
        commit: commit["commitOid"].as_str().map(str::to_owned),
        files: pushed,
    })
}

fn repository(repo: &str) -> Result<(&str, &str), PushError> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    repo.split_once('/')
        .filter(|(owner, name)| plain(owner) && plain(name))
        .ok_or_else(|| PushError::Repo { repo: repo.to_owned() })
}

/// Makes the repository, unless it is there.
fn create(
    client: &Client,
    root: &str,
    owner: &str,
    name: &str,
    private: bool,
) -> Result<(), PushError> {
    let body = json!({"type": "model", "organization": owner, "name": name, "private": private});
    let url = format!("{root}/api/repos/create");
    let answer = client.post("make the repository", &url, JSON, body.to_string().as_bytes())?;
    // 409: it is there already.
    if answer.status != 409 {
        answer.done()?;
    }
    Ok(())
}

const PREUPLOAD: &str = "say which files are large";

fn modes(
    client: &Client,
    root: &str,
    options: &PushOptions,
    files: &[LocalFile],
) -> Result<Vec<Mode>, PushError> {
    #[derive(Deserialize)]
    struct Modes {
        files: Vec<Mode>,
    }
    let mut asked = Vec::new();
    for file in files {
        let sample = BASE64_STANDARD.encode(sample(&file.place)?);
        asked.push(json!({"path": file.path, "size": file.size, "sample": sample}));
    }
    let url = format!("{root}/api/models/{}/preupload/{BRANCH}", options.repo);
    let body = json!({"files": asked}).to_string();
    let modes: Modes = client.post(PREUPLOAD, &url, JSON, body.as_bytes())?.done()?.json()?;
    Ok(modes.files)
}

fn sample(file: &Path) -> Result<Vec<u8>, PushError> {
    use std::io::Read as _;
    let mut bytes = Vec::with_capacity(SAMPLE);
    std::fs::File::open(file)
        .and_then(|open| open.take(SAMPLE as u64).read_to_end(&mut bytes))
        .map_err(IoError::at("read", file))?;
    Ok(bytes)
}

/// Stores large files; those that the hub has already are not sent.
fn store(
    client: &Client,
    root: &str,
    repo: &str,
    files: &[(&LocalFile, String)],
) -> Result<(), PushError> {
    #[derive(Deserialize)]
    struct Batch {
        objects: Vec<Object>,
    }
    const BATCH: &str = "say where large files go";
    let objects: Vec<Value> =
        files.iter().map(|(file, oid)| json!({"oid": oid, "size": file.size})).collect();
    let body = json!({
        "operation": "upload", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects,
        "ref": {"name": format!("refs/heads/{BRANCH}")},
    });
    let url = format!("{root}/{repo}.git/info/lfs/objects/batch");
    let body = body.to_string();
    let batch: Batch = client.post(BATCH, &url, LFS, body.as_bytes())?.done()?.json()?;
    for (file, oid) in files {
        let answer = |reason: String| PushError::Answer { action: BATCH, reason };
        let object = batch.objects.iter().find(|object| object.oid == *oid);
        let object = object.ok_or_else(|| answer(format!("it says nothing of `{}`", file.path)))?;
        if let Some(error) = &object.error {
            return Err(answer(format!("`{}`: {error}", file.path)));
        }
        let Some(upload) = object.actions.get("upload") else { continue };
        let headers: Vec<(String, String)> =
            upload.header.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        if headers.iter().any(|(name, _)| name == "chunk_size") {
            return Err(answer(format!(
                "`{}` is wanted in pieces, which was not offered",
                file.path
            )));
        }
        client.put("store a large file", &upload.href, &headers, &file.place, file.size)?.done()?;
        if let Some(verify) = object.actions.get("verify") {
            let body = json!({"oid": oid, "size": file.size}).to_string();
            client.post("confirm a large file", &verify.href, LFS, body.as_bytes())?.done()?;
        }
    }
    Ok(())
}
