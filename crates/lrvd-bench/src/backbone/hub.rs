//! Files of a model's repository.

use std::path::Path;

use anyhow::{anyhow, ensure};
use lrvd_models::deberta::Pooling;

use crate::error::{Error, Result, kind_of};
use crate::hub::{Get, Repository, RepositoryKind, Snapshot, first, is_plain};
use crate::io::read_json;
use crate::text::quoted;

const CONFIG: &str = "config.json";
/// Weights and the index of their shards, in the order of preference.
const WEIGHTS: [(&str, &str); 2] = [
    ("model.safetensors", "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];
const TOKENIZERS: [&str; 5] =
    ["tokenizer.json", "tokenizer.model", "spm.model", "vocab.txt", BYTE_PAIRS];
/// A vocabulary that needs its merges.
const BYTE_PAIRS: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const OPTIONAL: [&str; 4] =
    ["tokenizer_config.json", "generation_config.json", "chat_template.jinja", Pooling::FILE];

/// The files of repository `id` at a branch, tag or commit; what the cache lacks is downloaded.
pub(super) fn snapshot(id: &str, revision: &str) -> Result<Snapshot> {
    // Weights last: they take longest.
    folder_of(id, revision, |get| {
        for name in OPTIONAL {
            get(name)?;
        }
        if first(&TOKENIZERS, get)?.ends_with(BYTE_PAIRS) {
            first(&[MERGES], get)?;
        }
        let names = WEIGHTS.iter().flat_map(|&(single, index)| [single, index]);
        ensure!(weights(get)?, "the hub has none of {} of this repository", quoted(names));
        Ok(())
    })
}

/// The folder with `config.json` of repository `id`; nothing else is downloaded.
pub(super) fn config(id: &str, revision: &str) -> Result<Snapshot> {
    folder_of(id, revision, |_| Ok(()))
}

/// The folder with `config.json` of repository `id` and all files that `look_up` looks up.
fn folder_of(
    id: &str,
    revision: &str,
    look_up: impl Fn(Get<'_>) -> Result<()>,
) -> Result<Snapshot> {
    let repository = Repository::new(RepositoryKind::Model, id, revision)?;
    let found = repository.folder(|get| first(&[CONFIG], get).and_then(|_| look_up(get)));
    found.map_err(|error| missing(id, repository.cache(), &error))
}

/// `true` if `get` finds weights, in one file or in the shards of an index. A missing shard is an error.
fn weights(get: Get<'_>) -> Result<bool> {
    for (single, index) in WEIGHTS {
        if get(single)?.is_some() {
            return Ok(true);
        }
        let Some(index) = get(index)? else { continue };
        for shard in shards(&index)? {
            ensure!(is_plain(&shard), "`{}` is not a plain file name", shard.escape_default());
            ensure!(get(&shard)?.is_some(), "the hub does not have `{shard}` of this repository");
        }
        return Ok(true);
    }
    Ok(false)
}

fn shards(index: &Path) -> Result<Vec<String>> {
    let value: serde_json::Value = read_json(index)?;
    let map = value.get("weight_map").and_then(serde_json::Value::as_object);
    let names = map.into_iter().flat_map(|map| map.values().filter_map(|name| name.as_str()));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn missing(id: &str, cache: &Path, error: &Error) -> Error {
    let folder = id.rsplit('/').next().unwrap_or(id);
    let [(weights, index), (pytorch, _)] = WEIGHTS;
    let nowhere = if folder == id { "no such folder or `.gguf` file here, and " } else { "" };
    let message = anyhow!(
        "model `{id}`: {nowhere}{error:#} (cache: `{}`). Put these files into one folder and pass `--model FOLDER`, e.g. \
         `models/{folder}`: `{CONFIG}`; `{weights}` (or its shards with `{index}`) or `{pytorch}`; \
         `tokenizer.json`, `tokenizer.model`, `spm.model`, `vocab.txt`, or `{BYTE_PAIRS}` and `{MERGES}`; if they exist, {}",
        cache.display(),
        quoted(OPTIONAL)
    );
    match kind_of(error) {
        Some(kind) => kind.mark(message),
        None => message,
    }
}
