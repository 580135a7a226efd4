//! Model files from the Hugging Face Hub or its local cache.
//!
//! The cache has the layout of Hugging Face's Python library and is shared with it. Environment variables: `HF_HOME`,
//! `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_HUB_DOWNLOAD_TIMEOUT`. Offline, only the cache is
//! read.

mod client;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use tracing::debug;

use self::client::Client;
use crate::error::{Error, Result};
use crate::io::read_json;
use crate::text::quoted;
use client::{Repository, is_plain};

/// Needed beside the weights and one tokenizer file.
const CONFIG: &str = "config.json";
/// Weights and the index of their shards, in the order of preference.
const WEIGHTS: [(&str, &str); 2] = [
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];
const TOKENIZERS: [&str; 3] = ["tokenizer.json", "tokenizer.model", "spm.model"];
/// Many repositories do not have these.
const OPTIONAL: [&str; 3] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// The hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";
/// Seconds to wait for a connection, an answer or the next bytes, unless `HF_HUB_DOWNLOAD_TIMEOUT` is set.
const TIMEOUT: u64 = 30;

/// The folder that holds the files of repository `id`, downloading what is missing.
pub(super) fn snapshot(id: &str) -> Result<PathBuf> {
    // Weights last: a folder that has them has everything else that the repository offers.
    folder_of(id, is_complete, |repository| {
        for name in OPTIONAL {
            repository.fetch(name)?;
        }
        repository.fetch_first(&TOKENIZERS)?;
        weights(repository)
    })
}

/// The folder that holds `config.json` of repository `id`, downloading no more than that.
pub(super) fn config(id: &str) -> Result<PathBuf> {
    folder_of(id, |_| true, |_| Ok(()))
}

/// The cached folder of repository `id` if it `is_enough`, else after `config.json` and `fetch`.
fn folder_of(
    id: &str,
    is_enough: impl Fn(&Path) -> bool,
    fetch: impl Fn(&mut Repository) -> Result<(), String>,
) -> Result<PathBuf> {
    let cache = home().join("hub");
    let cache = variable("HF_HUB_CACHE").map_or(cache, PathBuf::from);
    let failed = |why: String| missing(id, &cache, &why);
    if !id.split('/').all(is_plain) {
        return Err(failed("a repository's name has letters, digits, `.`, `-` and `_`".to_owned()));
    }
    if let Some(folder) = client::folder(&cache, id)
        && folder.join(CONFIG).is_file()
        && is_enough(&folder)
    {
        debug!(repository = id, folder = %folder.display(), "in the cache");
        return Ok(folder);
    }
    debug!(repository = id, cache = %cache.display(), "not in the cache");
    if offline() {
        return Err(failed("HF_HUB_OFFLINE is set and the cache does not hold it".to_owned()));
    }
    let mut repository = Repository::new(client().map_err(failed)?, &cache, id);
    repository.fetch_first(&[CONFIG]).map_err(failed)?;
    fetch(&mut repository).map_err(failed)?;
    let folder = repository.finish().map_err(failed)?;
    debug!(repository = id, "fetched");
    Ok(folder)
}

fn weights(repository: &mut Repository) -> Result<(), String> {
    for (single, index) in WEIGHTS {
        if repository.fetch(single)?.is_some() {
            return Ok(());
        }
        if let Some(index) = repository.fetch(index)? {
            let shards = shards(&index).map_err(|error| error.to_string())?;
            return shards.iter().try_for_each(|s| repository.fetch_first(&[s]).map(drop));
        }
    }
    let names = WEIGHTS.iter().flat_map(|&(single, index)| [single, index]);
    Err(format!("the hub has none of {} of this repository", quoted(names)))
}

fn is_complete(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let weights = WEIGHTS.iter().any(|&(single, index)| {
        let all = |list: Vec<String>| list.iter().all(|shard| has(shard));
        has(single) || (has(index) && shards(&folder.join(index)).is_ok_and(all))
    });
    weights && TOKENIZERS.iter().any(|t| has(t))
}

fn shards(index: &Path) -> Result<Vec<String>> {
    let value: serde_json::Value = read_json(index)?;
    let map = value.get("weight_map").and_then(serde_json::Value::as_object);
    let mut names: Vec<String> = map
        .into_iter()
        .flat_map(|m| m.values().filter_map(|v| v.as_str().map(str::to_owned)))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn client() -> Result<Client, String> {
    let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
    let stored = || std::fs::read_to_string(home().join("token")).ok();
    let token = variable("HF_TOKEN").or_else(stored).map(|token| token.trim().to_owned());
    let seconds = match variable("HF_HUB_DOWNLOAD_TIMEOUT") {
        None => TIMEOUT,
        Some(text) => text.parse().ok().filter(|&seconds| seconds > 0).ok_or_else(|| {
            format!(
                "HF_HUB_DOWNLOAD_TIMEOUT is `{text}`, expected a whole number of seconds above 0"
            )
        })?,
    };
    let token = token.filter(|token| !token.is_empty());
    Client::new(&endpoint, token, Duration::from_secs(seconds))
}

fn home() -> PathBuf {
    let usual = || std::env::home_dir().unwrap_or_default().join(".cache/huggingface");
    variable("HF_HOME").map_or_else(usual, PathBuf::from)
}

fn offline() -> bool {
    variable("HF_HUB_OFFLINE").is_some_and(|value| {
        matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
    })
}

#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn missing(id: &str, cache: &Path, why: &str) -> Error {
    let folder = id.rsplit('/').next().unwrap_or(id);
    let [(weights, index), (pytorch, _)] = WEIGHTS;
    anyhow!(
        "model `{id}`: {why} (cache: `{}`). Put these files into one folder and pass `--model FOLDER`, e.g. \
         `models/{folder}`: `{CONFIG}`; `{weights}` (or its shards with `{index}`) or `{pytorch}`; \
         `tokenizer.json`, `tokenizer.model` or `spm.model`; if they exist, {}",
        cache.display(),
        quoted(OPTIONAL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_every_file_and_a_place() {
        let text = missing("owner/model", Path::new("/cache"), "offline").to_string();
        for part in ["config.json", "model.safetensors", "spm.model", "models/model", "/cache"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
