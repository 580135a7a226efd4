//! Where a trained adapter is, the base model that it belongs to, and their hashes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use lrvd_burn::peft::{POSTERIOR_FILE, PeftAdapter, PeftPosterior};
use lrvd_burn::train::{Method, Model, TrainState, latest_checkpoint, load_checkpoint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backbone::{Backbone, locate_model};
use crate::error::{Burn, Error, Result};
use crate::io::{
    JsonLayout, parse_json, read_json, read_versioned, sha256_file, sha256_text, write_json,
};
use crate::run::{ADAPTER_DIR, CHECKPOINT_DIR, SETTINGS_FILE};
use crate::settings::MAX_DRAWS;

/// Names of a file of an adapter and of one of a checkpoint.
pub(crate) const PEFT_CONFIG: &str = "adapter_config.json";
pub(crate) const CHECKPOINT_VALUES: &str = "state.json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Adapter(PathBuf),
    Run(PathBuf),
    Checkpoint {
        out: PathBuf,
        folder: PathBuf,
        /// Whether any newer one will do: the output folder was named, not this checkpoint.
        or_newer: bool,
    },
}

impl Place {
    /// What `dir` is, or what is in it: a PEFT folder, the output of a run, one of its checkpoints; `None` for none of them.
    pub(crate) fn find(dir: &Path) -> Result<Option<Self>> {
        if !dir.is_dir() {
            bail!("there is no folder `{}`", dir.display());
        }
        if dir.join(PEFT_CONFIG).is_file() {
            return Ok(Some(Self::Adapter(dir.to_owned())));
        }
        let inner = dir.join(ADAPTER_DIR);
        if inner.join(PEFT_CONFIG).is_file() {
            return Ok(Some(Self::Run(inner)));
        }
        if dir.join(CHECKPOINT_VALUES).is_file()
            && let Some(out) = dir.parent().and_then(Path::parent)
        {
            let (out, folder) = (out.to_owned(), dir.to_owned());
            return Ok(Some(Self::Checkpoint { out, folder, or_newer: false }));
        }
        if !dir.join(SETTINGS_FILE).is_file() {
            return Ok(None);
        }
        let newest = latest_checkpoint(&dir.join(CHECKPOINT_DIR))?;
        let or_newer = true;
        Ok(newest.map(|folder| Self::Checkpoint { out: dir.to_owned(), folder, or_newer }))
    }

    pub(crate) fn looked_for() -> String {
        format!(
            "`{PEFT_CONFIG}`, `{ADAPTER_DIR}/{PEFT_CONFIG}`, `{CHECKPOINT_VALUES}`, \
             `{CHECKPOINT_DIR}/step-*`"
        )
    }
}

/// Puts the checkpoint at `path` into `state`, and returns the path. With `or_newer` the newest one beside it takes its place
/// if it is gone: a run that is still training removes a checkpoint once it has written a newer one.
pub(crate) fn load_checkpoint_from<M: Model, T: Method<M> + ?Sized>(
    path: &Path,
    or_newer: bool,
    state: &mut TrainState<M>,
    method: &mut T,
) -> Burn<PathBuf> {
    let mut path = path.to_owned();
    loop {
        let Err(error) = load_checkpoint(&path, state, method) else { return Ok(path) };
        let newest = match path.parent() {
            Some(folder) if or_newer && !path.exists() => latest_checkpoint(folder)?,
            _ => None,
        };
        match newest.filter(|newest| *newest > path) {
            Some(newest) => path = newest,
            None => return Err(error),
        }
    }
}

/// What a reader must know of a model at a checkpoint of the run in `out`.
pub(crate) fn unfinished(out: &Path, (done, steps): (usize, usize), is_tempered: bool) -> String {
    let without = if is_tempered {
        ", without the temperature that the end of the training fits"
    } else {
        ""
    };
    format!(
        "warning: the run in `{}` is not finished: this is its checkpoint after {done} of {steps} steps{without}",
        out.display()
    )
}

/// The adapter in a PEFT folder, and its posterior if there is one.
pub(crate) fn read_adapter(folder: &Path) -> Burn<(PeftAdapter, Option<PeftPosterior>)> {
    let adapter = PeftAdapter::read(folder)?;
    let has_posterior = folder.join(POSTERIOR_FILE).is_file();
    let posterior = if has_posterior { Some(PeftPosterior::read(folder, &adapter)?) } else { None };
    Ok((adapter, posterior))
}

/// Draws are asked of the adapter in `dir`, which has no posterior.
pub(crate) fn no_posterior(draws: usize, dir: &Path) -> Error {
    anyhow!("{draws} draws need a posterior, and `{}` has no `{POSTERIOR_FILE}`", dir.display())
}

/// Checks a number of draws that is asked for.
pub(crate) fn check_draws(draws: usize) -> Result<()> {
    if draws > MAX_DRAWS {
        let (name, value, high) = ("draws", draws as f64, MAX_DRAWS as f64);
        return Err(lrvd_core::Error::OutOfRange { name, value, low: 0.0, high }.into());
    }
    Ok(())
}

/// Checks the numbers of the description of an adapter in `file`.
pub(crate) fn check_sizes(
    file: &Path,
    batch_size: usize,
    max_length: usize,
    draws: usize,
) -> Result<()> {
    for (key, size) in [("batch_size", batch_size), ("max_length", max_length)] {
        if size == 0 {
            bail!("`{}`: {key} is 0, expected at least 1", file.display());
        }
    }
    check_draws(draws).with_context(|| format!("`{}`", file.display()))
}

/// What the description of an adapter says of its base model.
pub(crate) struct DescribedBase<'a> {
    pub name: &'a str,
    /// SHA-256 of the weight files.
    pub weights: &'a BTreeMap<String, String>,
    /// Of its other files, if they are known.
    pub hashes: Option<&'a FileHashes>,
}

/// What may differ from what an adapter was trained on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// The base model; its other files are then other ones too, which is a warning.
    pub other_base: bool,
    /// Files of the adapter, and configuration and tokenizer of the base model: a warning.
    pub changed: bool,
}

/// The base model of `adapter` in `folder`, and warnings of its files: the one that is `asked` for, else the one that its
/// description names, else that of PEFT's file. Its files must be those that the description has, which the adapter was
/// trained on, unless others are `allowed`.
pub(crate) fn open_base_model(
    folder: &Path,
    adapter: &PeftAdapter,
    asked: Option<&str>,
    described: Option<DescribedBase<'_>>,
    allowed: Allowed,
) -> Result<(Backbone, Vec<String>)> {
    let name = asked.or(described.as_ref().map(|base| base.name));
    let name = name.or(adapter.config.base_model_name_or_path.as_deref());
    let name = name.ok_or_else(|| {
        anyhow!("`{}` does not name its base model; pass `--model DIR|HUB-ID`", folder.display())
    })?;
    // An exported adapter has the last part of a path only.
    if asked.is_none() && !name.contains(['/', '\\']) && !Path::new(name).exists() {
        bail!(
            "`{}` names its base model `{name}`, and there is no such folder here; pass `--model DIR|HUB-ID`",
            folder.display()
        );
    }
    let backbone = Backbone::open(locate_model(name)?)?;
    let Some(DescribedBase { weights, hashes, .. }) = described else {
        return Ok((backbone, Vec::new()));
    };
    if !allowed.other_base && *weights != backbone.hashes {
        bail!(
            "model `{}` has other weights than the adapter was trained on ({}); pass `--allow-other-base` if that is meant",
            backbone.location.name,
            backbone.other_files(weights)
        );
    }
    let allow = allowed.changed || allowed.other_base;
    let check =
        |hashes: &FileHashes| hashes.check_base(&backbone.files, &backbone.location.folder, allow);
    let warnings = hashes.map(check).transpose()?.unwrap_or_default();
    Ok((backbone, warnings))
}

/// Files of an adapter folder, beside its description.
const ADAPTER_FILES: [&str; 3] = [PEFT_CONFIG, "adapter_model.safetensors", POSTERIOR_FILE];
/// Keys of its JSON files that are not hashed: the base model may be moved, and a hash cannot cover itself.
const UNHASHED: [&str; 3] = ["base_model", "base_model_name_or_path", "hashes"];
/// Hexadecimal digits of a hash in a message.
const DIGITS: usize = 12;

/// SHA-256 by file name, as the description of an adapter keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileHashes {
    /// Files of the adapter folder. A JSON file is hashed in compact form with sorted keys, without the name of the base
    /// model and without these hashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub adapter: BTreeMap<String, String>,
    /// Configuration and tokenizer of the base model.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub base: BTreeMap<String, String>,
}

impl FileHashes {
    /// Hashes the adapter's files in `dir`, but for the description.
    pub(crate) fn take(&mut self, dir: &Path) -> Result<()> {
        self.adapter = present(dir, &ADAPTER_FILES)?;
        Ok(())
    }

    /// Takes the hash of `description`, which is about to be written to `file`, if the other files are hashed.
    pub(crate) fn seal(&mut self, file: &Path, description: &impl Serialize) -> Result<()> {
        if let (false, Some(name)) = (self.adapter.is_empty(), file.file_name()) {
            let text = serde_json::to_string(description)
                .map_err(|error| anyhow!("`{}`: {error}", file.display()))?;
            let hash = digest(parse_json(file, &text)?);
            self.adapter.insert(name.to_string_lossy().into_owned(), hash);
        }
        Ok(())
    }

    /// Compares the adapter's files in `dir`, of which `description` is one. With `allow` a changed file is a warning.
    /// Errors name the first file that is another one, is missing or is new.
    pub(crate) fn check(&self, dir: &Path, description: &str, allow: bool) -> Result<Vec<String>> {
        if self.adapter.is_empty() {
            return Ok(Vec::new());
        }
        let [config, weights, posterior] = ADAPTER_FILES;
        let names = [config, weights, posterior, description];
        compare(&self.adapter, &present(dir, &names)?, &names, dir, allow)
    }

    /// As [`check`](Self::check), for the files of the base model at `dir`, whose hashes are `found`. Those that were not
    /// there when the adapter was saved are passed over: a cache of the hub holds only some of them.
    pub(crate) fn check_base(
        &self,
        found: &BTreeMap<String, String>,
        dir: &Path,
        allow: bool,
    ) -> Result<Vec<String>> {
        let names: Vec<&str> = self.base.keys().map(String::as_str).collect();
        compare(&self.base, found, &names, dir, allow)
    }
}

/// As [`FileHashes::check`]; without `hashes` nothing is compared.
pub(crate) fn check_hashes(
    hashes: Option<&FileHashes>,
    dir: &Path,
    description: &str,
    allow: bool,
) -> Result<Vec<String>> {
    hashes.map_or_else(|| Ok(Vec::new()), |hashes| hashes.check(dir, description, allow))
}

/// Writes the description of an adapter into `dir` as `name`, with its own hash if it has hashes.
pub(crate) fn write_description<T: Clone + Serialize>(
    dir: &Path,
    name: &str,
    description: &T,
    hashes: impl FnOnce(&mut T) -> &mut Option<FileHashes>,
) -> Result<()> {
    let (file, mut sealed) = (dir.join(name), description.clone());
    if let Some(hashes) = hashes(&mut sealed) {
        hashes.seal(&file, description)?;
    }
    write_json(&file, &sealed, JsonLayout::Pretty)
}

/// Reads it; `None` if there is none.
pub(crate) fn read_description<T: DeserializeOwned>(
    dir: &Path,
    name: &str,
    schema: u32,
) -> Result<Option<T>> {
    let file = dir.join(name);
    if file.is_file() { read_versioned(&file, schema).map(Some) } else { Ok(None) }
}

fn compare(
    saved: &BTreeMap<String, String>,
    found: &BTreeMap<String, String>,
    names: &[&str],
    dir: &Path,
    allow: bool,
) -> Result<Vec<String>> {
    let start = |hash: Option<&String>| {
        hash.map_or_else(|| "no file".to_owned(), |hash| hash.chars().take(DIGITS).collect())
    };
    let mut warnings = Vec::new();
    for &name in names {
        let (saved, found) = (saved.get(name), found.get(name));
        if saved != found {
            let file = dir.join(name);
            let (found, expected) = (start(found), start(saved));
            if !allow {
                bail!(
                    "`{}` has changed since the adapter was saved: SHA-256 found {found}, expected {expected}; \
                     pass `--allow-changed` to use it all the same",
                    file.display()
                );
            }
            warnings.push(format!(
                "warning: `{}` has changed since the adapter was saved: SHA-256 {found}, expected {expected}",
                file.display()
            ));
        }
    }
    Ok(warnings)
}

fn present(dir: &Path, names: &[&str]) -> Result<BTreeMap<String, String>> {
    let files = names.iter().map(|name| (name, dir.join(name))).filter(|(_, file)| file.is_file());
    files
        .map(|(name, file)| {
            let is_json = file.extension().is_some_and(|extension| extension == "json");
            let hash = if is_json { digest(read_json(&file)?) } else { sha256_file(&file)? };
            Ok(((*name).to_owned(), hash))
        })
        .collect()
}

/// SHA-256 of a JSON value without [`UNHASHED`].
fn digest(mut value: Value) -> String {
    if let Some(entries) = value.as_object_mut() {
        entries.retain(|key, _| !UNHASHED.contains(&key.as_str()));
    }
    sha256_text(&value.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_missing_and_new_files_are_errors_or_warnings() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        let [config, weights, posterior] = ADAPTER_FILES;
        write(config, r#"{"r": 4, "base_model_name_or_path": "/a"}"#);
        write(weights, "abc");
        let mut hashes = FileHashes::default();
        assert_eq!(hashes.check(dir, "d.json", false).unwrap(), [""; 0], "nothing is known");
        hashes.take(dir).unwrap();
        let described = json!({ "base_model": "/a", "temperature": 1.234_567_890_123_456_7 });
        hashes.seal(&dir.join("d.json"), &described).unwrap();
        let mut written = described.clone();
        written["hashes"] = serde_json::to_value(&hashes).unwrap();
        write("d.json", &serde_json::to_string_pretty(&written).unwrap());
        assert_eq!(hashes.check(dir, "d.json", false).unwrap(), [""; 0]);
        // FIPS 180-4 example.
        assert!(hashes.adapter[weights].starts_with("ba7816bf8f01"));

        // The base may be moved, and JSON be laid out in another way.
        written["base_model"] = "/b".into();
        write("d.json", &written.to_string());
        write(config, r#"{"base_model_name_or_path": "/b",   "r": 4}"#);
        assert_eq!(hashes.check(dir, "d.json", false).unwrap(), [""; 0]);

        write(weights, "abd");
        let error = hashes.check(dir, "d.json", false).unwrap_err().to_string();
        let (file, found) = (dir.join(weights), &sha256_text("abd")[..DIGITS]);
        let start = format!("`{}` has changed since the adapter was saved: ", file.display());
        let end = format!("SHA-256 found {found}, expected ba7816bf8f01; pass `--allow-changed`");
        assert!(error.starts_with(&format!("{start}{end}")), "{error}");

        write(posterior, "new");
        written["temperature"] = 2.into();
        write("d.json", &written.to_string());
        std::fs::remove_file(dir.join(config)).unwrap();
        let warnings = hashes.check(dir, "d.json", true).unwrap();
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert!(warnings[0].contains(config) && warnings[0].contains("SHA-256 no file, expected"));
        assert!(warnings[2].contains(posterior) && warnings[2].ends_with("expected no file"));

        // Of the base, files that were not there are passed over.
        hashes.base = BTreeMap::from([("config.json".to_owned(), "1".to_owned())]);
        let mut base = hashes.base.clone();
        base.insert("spm.model".to_owned(), "2".to_owned());
        assert_eq!(hashes.check_base(&base, dir, false).unwrap(), [""; 0]);
        base.insert("config.json".to_owned(), "3".to_owned());
        let text = hashes.check_base(&base, dir, false).unwrap_err().to_string();
        assert!(text.contains("config.json") && text.contains("found 3, expected 1"), "{text}");
    }
}
