//! Model files from the Hugging Face Hub or its local cache.
//!
//! Honours `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_ENDPOINT` and `HF_HUB_OFFLINE`. The client
//! library knows no offline switch, so it is enforced here: offline, nothing but the cache is read.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{ApiBuilder, ApiRepo};
use hf_hub::{Cache, Repo};
use tracing::debug;

use super::BackboneError;
use crate::io::read_json;

/// Needed beside the weights and one tokenizer file.
const CONFIG: &str = "config.json";
/// Weights and the index of their shards, in the order of preference.
const WEIGHTS: [(&str, &str); 2] = [
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];
const TOKENIZERS: [&str; 3] = ["tokenizer.json", "tokenizer.model", "spm.model"];
/// Absent from many repositories; what they would say is then the default.
const OPTIONAL: [&str; 3] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"];

/// The folder that holds the files of repository `id`, downloading what is missing.
pub(super) fn snapshot(id: &str) -> Result<PathBuf, BackboneError> {
    folder_of(id, is_complete, |repo, failed| {
        weights(repo, failed)?;
        tokenizer(repo).map_err(|e| failed("the tokenizer", &e))?;
        for name in OPTIONAL {
            let _ = repo.get(name);
        }
        Ok(())
    })
}

/// The folder that holds `config.json` of repository `id`, downloading no more than that.
pub(super) fn config(id: &str) -> Result<PathBuf, BackboneError> {
    folder_of(id, |_| true, |_, _| Ok(()))
}

/// Turns what failed and why into the error that says where files may be put.
type Failed<'a> = &'a dyn Fn(&str, &dyn std::fmt::Display) -> BackboneError;

/// The cached folder of repository `id` if it `is_enough`, else after `config.json` and `fetch`.
fn folder_of(
    id: &str,
    is_enough: impl Fn(&Path) -> bool,
    fetch: impl Fn(&ApiRepo, Failed<'_>) -> Result<(), BackboneError>,
) -> Result<PathBuf, BackboneError> {
    let cache = cache();
    let cached = cache.repo(Repo::model(id.to_owned()));
    if let Some(config) = cached.get(CONFIG)
        && let Some(folder) = config.parent()
        && is_enough(folder)
    {
        debug!(repository = id, folder = %folder.display(), "in the cache");
        return Ok(folder.to_owned());
    }
    debug!(repository = id, cache = %cache.path().display(), "not in the cache");
    if offline() {
        return Err(missing(id, &cache, "HF_HUB_OFFLINE is set and the cache does not hold it"));
    }
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        missing(id, &cache, &format!("{what} could not be fetched: {error}"))
    };
    #[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
    let token = std::env::var("HF_TOKEN").ok().filter(|t| !t.is_empty());
    let mut builder =
        ApiBuilder::from_env().with_cache_dir(cache.path().clone()).with_progress(false);
    if token.is_some() {
        builder = builder.with_token(token);
    }
    let api = builder.build().map_err(|e| failed("the Hub client", &e))?;
    let repo = api.model(id.to_owned());
    let config = repo.get(CONFIG).map_err(|e| failed(CONFIG, &e))?;
    fetch(&repo, &failed)?;
    debug!(repository = id, "fetched");
    config.parent().map(Path::to_owned).ok_or_else(|| missing(id, &cache, "the cache is broken"))
}

/// Fetches the first form of the weights that the repository has.
fn weights(repo: &ApiRepo, failed: Failed<'_>) -> Result<(), BackboneError> {
    let mut first = None;
    for (single, index) in WEIGHTS {
        let Err(error) = repo.get(single) else { return Ok(()) };
        first.get_or_insert_with(|| failed(single, &error));
        if let Ok(index) = repo.get(index) {
            for shard in shards(&index)? {
                repo.get(&shard).map_err(|e| failed(&shard, &e))?;
            }
            return Ok(());
        }
    }
    first.map_or(Ok(()), Err)
}

fn tokenizer(repo: &ApiRepo) -> Result<PathBuf, hf_hub::api::sync::ApiError> {
    let [json, llama, spm] = TOKENIZERS;
    repo.get(json).or_else(|_| repo.get(llama)).or_else(|_| repo.get(spm))
}

fn is_complete(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let weights = WEIGHTS.iter().any(|&(single, index)| {
        let all = |list: Vec<String>| list.iter().all(|shard| has(shard));
        has(single) || (has(index) && shards(&folder.join(index)).is_ok_and(all))
    });
    weights && TOKENIZERS.iter().any(|t| has(t))
}

/// File names in a shard index.
fn shards(index: &Path) -> Result<Vec<String>, BackboneError> {
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

#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn cache() -> Cache {
    match std::env::var_os("HF_HUB_CACHE").filter(|v| !v.is_empty()) {
        Some(path) => Cache::new(path.into()),
        None => Cache::from_env(),
    }
}

#[expect(clippy::disallowed_methods, reason = "the hub's own variables")]
fn offline() -> bool {
    std::env::var("HF_HUB_OFFLINE")
        .is_ok_and(|v| matches!(v.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}

fn missing(id: &str, cache: &Cache, why: &str) -> BackboneError {
    let folder = id.rsplit('/').next().unwrap_or(id);
    let [(weights, index), (pytorch, _)] = WEIGHTS;
    let optional = OPTIONAL.map(|name| format!("`{name}`")).join(", ");
    BackboneError::Model {
        model: id.to_owned(),
        reason: format!(
            "{why} (cache: `{}`). Put these files into one folder and pass `--model FOLDER`, e.g. \
             `models/{folder}`: `{CONFIG}`; `{weights}` (or its shards with `{index}`) or \
             `{pytorch}`; \
             `tokenizer.json`, `tokenizer.model` or `spm.model`; if they are there, {optional}",
            cache.path().display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_every_file_and_a_place() {
        let text = missing("owner/model", &Cache::new("/cache".into()), "offline").to_string();
        for part in ["config.json", "model.safetensors", "spm.model", "models/model", "/cache"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
