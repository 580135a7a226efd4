//! Hashes of what an adapter's answers depend on: its files, and those of its base model.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};
use lrvd_burn::files::is_file;
use lrvd_burn::peft::{POSTERIOR_FILE, WEIGHTS_FILE};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{HEAD_FILE, PEFT_CONFIG};
use crate::error::Result;
use crate::io::{parse_json, read_json, sha256_file, sha256_text};

const ADAPTER_FILES: [&str; 4] = [PEFT_CONFIG, WEIGHTS_FILE, POSTERIOR_FILE, HEAD_FILE];
/// Keys of its JSON files that are not hashed: the base model may be moved, and a hash cannot cover itself.
const UNHASHED: [&str; 3] = ["base_model", "base_model_name_or_path", "hashes"];
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
    pub(crate) fn check(&self, dir: &Path, description: &str, allow: bool) -> Result<Vec<String>> {
        if self.adapter.is_empty() {
            return Ok(Vec::new());
        }
        let [config, weights, posterior, head] = ADAPTER_FILES;
        let names = [config, weights, posterior, head, description];
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
    let mut found = BTreeMap::new();
    for &name in names {
        let file = dir.join(name);
        if is_file(&file)? {
            let is_json = file.extension().is_some_and(|extension| extension == "json");
            let hash = if is_json { digest(read_json(&file)?) } else { sha256_file(&file)? };
            found.insert(name.to_owned(), hash);
        }
    }
    Ok(found)
}

fn digest(mut value: Value) -> String {
    if let Some(entries) = value.as_object_mut() {
        entries.retain(|key, _| !UNHASHED.contains(&key.as_str()));
    }
    sha256_text(&value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Changed files of an adapter and its base are tested with the commands that open them.
    #[test]
    fn layouts_and_places_may_change_and_missing_and_new_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        let [config, weights, posterior, _] = ADAPTER_FILES;
        write(config, r#"{"r": 4, "base_model_name_or_path": "/a"}"#);
        write(weights, "abc");
        let mut hashes = FileHashes::default();
        hashes.take(dir).unwrap();
        let mut written = json!({ "base_model": "/a", "temperature": 1.234_567_890_123_456_7 });
        hashes.seal(&dir.join("d.json"), &written).unwrap();
        written["hashes"] = serde_json::to_value(&hashes).unwrap();
        // The base may be moved, and JSON be laid out in another way.
        written["base_model"] = "/b".into();
        write("d.json", &serde_json::to_string_pretty(&written).unwrap());
        write(config, r#"{"base_model_name_or_path": "/b",   "r": 4}"#);
        assert_eq!(hashes.check(dir, "d.json", false).unwrap(), [""; 0]);

        write(posterior, "new");
        std::fs::remove_file(dir.join(config)).unwrap();
        let [missing, new] = &hashes.check(dir, "d.json", true).unwrap()[..] else { panic!() };
        assert!(missing.contains(config) && missing.contains("SHA-256 no file, expected"));
        assert!(new.contains(posterior) && new.ends_with("expected no file"), "{new}");

        // Of the base, files that were not there are passed over.
        let file = |name: &str, hash: &str| (name.to_owned(), hash.to_owned());
        hashes.base = [file("config.json", "1")].into();
        let found = [file("config.json", "1"), file("spm.model", "2")].into();
        assert_eq!(hashes.check_base(&found, dir, false).unwrap(), [""; 0]);
    }
}
