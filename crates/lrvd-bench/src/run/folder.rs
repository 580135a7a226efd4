//! The output folder of a run or a suite: ownership marker, lock file, settings.
//!
//! A folder is ours if it holds a [`MARKER`] with [`MARKER_TEXT`], which is only ever put into a folder that was absent or empty,
//! or if its settings are those of this run; any other folder is an error and stays as it is. Files count by their content,
//! wherever they are. The marker is locked for as long as an [`OutputFolder`] lives, so that two processes never write into one
//! folder.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, DirEntry, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lrvd_burn::files::{FileLock, check_link, flushes};
use lrvd_burn::train::latest_checkpoint;
use serde::Serialize;
use serde_json::Value;

use super::numbered::next_folder;
use crate::error::{Error, Kind, Result};
use crate::io::{JsonLayout, cannot, create_dir, read_json, write_json};
use crate::record::RunRecord;

pub(crate) const SETTINGS_FILE: &str = "settings.json";
pub(crate) const RECORD_FILE: &str = "record.json";
pub(crate) const LABELS_FILE: &str = "labels.json";
pub(crate) const ADAPTER_DIR: &str = "adapter";
pub const CHECKPOINT_DIR: &str = "checkpoints";
/// Name of the file that says the folder is ours, and is locked.
const MARKER: &str = ".lrvd";
/// Replacement of its lock on a file system without locks.
const MARKER_LOCK: &str = ".lrvd.held";
const MARKER_TEXT: &str = "This folder is written by lrvd, which locks this file meanwhile.\n";
pub(crate) const DATA_DIR: &str = "data";
pub(crate) const CLAIMS_DIR: &str = "claims";
/// Entries of settings with hashes of files: those of a run by split, of a suite by task, and of the base model's weights.
const DATA: &str = "data";
const WEIGHTS: &str = "weights";
/// Entry with the hashes of the data files by task; tasks may be added.
const DATA_FILES: &str = "data_files";

/// Entry with the hashes of the base model's configuration and tokenizer.
const BASE_FILES: &str = "base_files";

const DIFFERENCES: usize = 40;

#[derive(Debug)]
pub(crate) struct OutputFolder {
    path: PathBuf,
    resume: bool,
    lock: Option<FileLock>,
    /// Folders that this process made, innermost first, and removes if it does not [`begin`](Self::begin).
    made: Option<Vec<PathBuf>>,
}

impl OutputFolder {
    /// Looks at `path` and locks it if it is ours; writes nothing.
    pub(crate) fn look(path: &Path, resume: bool) -> Result<Self> {
        check_link(path)?;
        let mut folder = Self { path: path.to_owned(), resume, lock: None, made: None };
        match fs::read(folder.file(MARKER)) {
            Ok(text) if text == MARKER_TEXT.as_bytes() => {
                folder.hold()?;
            }
            // A process that is just starting has created the marker and not written it yet.
            Ok(text) if text.is_empty() => folder.reject_foreign()?,
            Ok(_) => return Err(folder.foreign(MARKER)),
            Err(_) => folder.reject_foreign()?,
        }
        Ok(folder)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.file(DATA_DIR)
    }

    /// An error for a folder with a run that is not to be continued; writes nothing.
    pub(crate) fn check_results(&self) -> Result<()> {
        if !self.resume && self.file(SETTINGS_FILE).is_file() {
            bail!(
                "`{}` already holds results; pass `--resume` to continue, or name another folder, such as `{}`",
                self.path.display(),
                next_folder(&self.path)?.display()
            );
        }
        Ok(())
    }

    /// The settings that the folder was started with, if they are `settings`; `None` if nothing was computed with others. Writes
    /// nothing.
    pub(crate) fn check(&self, settings: &Value) -> Result<Option<Value>> {
        let file = self.file(SETTINGS_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        self.check_results()?;
        let path = self.path.clone();
        let old: Value = read_json(&file)?;
        let fields = differences(&old, settings);
        if fields.is_empty() {
            Ok(Some(old))
        } else if self.lock.is_some() && !is_begun(&self.path)? {
            Ok(None)
        } else {
            Err(anyhow!(
                "`{path}` was started with other settings ({fields}); resume with the same ones or name another \
                 folder",
                path = path.display()
            ))
        }
    }

    /// `settings` as the folder keeps them, and the record of a run with them if it is finished; writes nothing.
    pub(crate) fn finished(&self, settings: &impl Serialize) -> Result<(Value, Option<RunRecord>)> {
        let settings = serde_json::to_value(settings)
            .map_err(|source| anyhow!("`{}`: {source}", self.file(SETTINGS_FILE).display()))?;
        let record = self.file(RECORD_FILE);
        let is_finished = self.check(&settings)?.is_some() && record.is_file();
        Ok((settings, if is_finished { Some(read_json(&record)?) } else { None }))
    }

    /// Makes the folder ours. Until [`begin`](Self::begin) only [`data`](Self::data) may be written.
    pub(crate) fn claim(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        self.reject_foreign()?;
        let absent = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made = self.path.ancestors().take_while(absent).map(Path::to_owned).collect();
        create_dir(&self.path)?;
        // Another process may have come first and be done: then nothing here is ours to take away.
        self.made = self.hold()?.then_some(made);
        Ok(())
    }

    /// Writes the settings: from now on the folder holds a run.
    pub(crate) fn begin(&mut self, settings: &Value) -> Result<()> {
        self.claim()?;
        let mut settings = settings.clone();
        if let Some(old) = self.check(&settings)? {
            keep_files(&old, &mut settings);
        }
        self.made = None;
        remove_parts(&self.path)?;
        write_json(&self.file(SETTINGS_FILE), &settings, JsonLayout::Pretty)
    }

    pub(crate) fn still_there(&self) -> Result<()> {
        still_there(&self.path)
    }

    /// One sentence for each thing that the folder's file system lacks.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let keeps = !cfg!(unix) || flushes(&self.path).unwrap_or(true);
        let unflushed = (!keeps).then(|| {
            format!(
                "the file system of `{}` does not flush folders: a power failure may take the newest checkpoint away",
                self.path.display()
            )
        });
        self.lock.iter().filter_map(FileLock::warning).chain(unflushed).collect()
    }

    fn hold(&mut self) -> Result<bool> {
        let marker = self.file(MARKER);
        let opened = File::options().create(true).append(true).open(&marker);
        let file = opened.map_err(cannot("create", &marker))?;
        let lock = FileLock::take(file, &marker).map_err(|error| match error {
            lrvd_burn::Error::InUse { .. } => Error::new(error).context(self.in_use()),
            error => error.into(),
        })?;
        let mut file = lock.file();
        let is_new = file.metadata().is_ok_and(|data| data.len() == 0);
        if is_new {
            let written = file.write_all(MARKER_TEXT.as_bytes());
            written.map_err(cannot("write", &marker))?;
        }
        self.lock = Some(lock);
        Ok(is_new)
    }

    fn in_use(&self) -> Error {
        Kind::InUse.mark(anyhow!("another `lrvd` is writing into `{}`", self.path.display()))
    }

    fn foreign(&self, found: &str) -> Error {
        anyhow!(
            "`{}` holds `{found}` and was not made by `lrvd`; name another folder",
            self.path.display()
        )
    }

    /// An error for a folder with anything in it but a marker, unless there are settings, which must then be ours.
    fn reject_foreign(&self) -> Result<()> {
        if self.file(SETTINGS_FILE).is_file() {
            return Ok(());
        }
        let names = entries(&self.path)?.into_iter().map(|entry| entry.file_name());
        let mut others = names.filter(|name| name != MARKER && name != MARKER_LOCK);
        match others.next() {
            // Another process may have made the folder its own since the marker was looked for.
            Some(_)
                if fs::read(self.file(MARKER)).is_ok_and(|text| text == MARKER_TEXT.as_bytes()) =>
            {
                Err(self.in_use())
            }
            Some(name) => Err(self.foreign(&name.display().to_string())),
            None => Ok(()),
        }
    }
}

impl Drop for OutputFolder {
    /// A failed start leaves no files; if they cannot be removed, the marker lets the next start in.
    fn drop(&mut self) {
        if let Some(made) = self.made.take() {
            let _ = fs::remove_dir_all(self.data());
            let _ = fs::remove_file(self.file(MARKER));
            self.lock = None;
            for folder in made {
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

/// Checks that the output folder `out` is still there, with its marker in it.
pub(crate) fn still_there(out: &Path) -> Result<()> {
    if out.join(MARKER).is_file() {
        return Ok(());
    }
    Err(anyhow!(
        "`{}` was removed or moved while the run wrote into it, so that parts of its output are missing",
        out.display()
    ))
}

/// Removes the checkpoints of the finished run in `folder`, and what a kill left there.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    remove_parts(folder)?;
    let checkpoints = folder.join(CHECKPOINT_DIR);
    match fs::remove_dir_all(&checkpoints) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(cannot("remove", &checkpoints)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the files directly in `folder` that a kill left half written: `.NAME*.part`.
pub(crate) fn remove_parts(folder: &Path) -> Result<()> {
    for entry in entries(folder)? {
        let path = entry.path();
        let name = entry.file_name();
        let is_part = name.to_string_lossy().starts_with('.')
            && path.extension().is_some_and(|extension| extension == "part");
        if is_part && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            fs::remove_file(&path).map_err(cannot("remove", &path))?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<DirEntry>> {
    match fs::read_dir(folder).and_then(Iterator::collect) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries.map_err(cannot("list", folder)),
    }
}

/// `true` if something was computed in `folder` or below it, or a worker may be about to: a checkpoint, a record or a claim.
fn is_begun(folder: &Path) -> Result<bool> {
    let all = entries(folder)?;
    let is_claimed = folder.ends_with(CLAIMS_DIR) && !all.is_empty();
    if is_claimed || folder.join(RECORD_FILE).is_file() || latest_checkpoint(folder)?.is_some() {
        return Ok(true);
    }
    let mut folders = all.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.try_fold(false, |begun, entry| Ok(begun || is_begun(&entry.path())?))
}

/// The hashes of files by path, in ascending order.
pub(crate) fn file_hashes(files: &Value) -> Vec<&str> {
    let files = files.as_object().into_iter().flat_map(serde_json::Map::values);
    let mut hashes: Vec<&str> = files.filter_map(Value::as_str).collect();
    hashes.sort_unstable();
    hashes
}

/// Adds the data files of `old` tasks that `new` does not name.
fn keep_files(old: &Value, new: &mut Value) {
    let old = old.get(DATA_FILES).and_then(Value::as_object);
    let new = new.get_mut(DATA_FILES).and_then(Value::as_object_mut);
    if let (Some(old), Some(new)) = (old, new) {
        for (task, files) in old {
            new.entry(task.clone()).or_insert_with(|| files.clone());
        }
    }
}

/// The settings that differ, apart from the lists that may grow and the places of files; of many the first.
fn differences(old: &Value, new: &Value) -> String {
    let may_differ = ["tasks", "methods", "seeds", "model", "data_dir"];
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return "the whole file".to_owned();
    };
    let changed = |key: &str, old: Option<&Value>, new: &Value| {
        format!("{key}: {} then, {new} now", old.unwrap_or(&Value::Null))
    };
    let is_same = |old: &Value, new: &Value| file_hashes(old) == file_hashes(new);
    let mut found = Vec::new();
    for (key, value) in new {
        if may_differ.contains(&key.as_str()) || old.get(key) == Some(value) {
            continue;
        }
        match (key.as_str(), old.get(key).and_then(Value::as_object), value.as_object()) {
            ("experiment" | "goal", Some(old), Some(value)) => {
                // A task of a user's own is named after its file.
                let differs = |k: &str, v: &Value| k != "name" && old.get(k) != Some(v);
                let others = value.iter().filter(|(k, v)| differs(k, v));
                found.extend(others.map(|(k, v)| changed(k, old.get(k), v)));
            }
            (WEIGHTS, Some(_), Some(_)) if old.get(key).is_some_and(|old| is_same(old, value)) => {}
            (DATA, Some(old), Some(value)) => {
                let others =
                    value.iter().filter(|(k, v)| !old.get(*k).is_some_and(|o| is_same(o, v)));
                found.extend(others.map(|(k, v)| changed(&format!("{key}.{k}"), old.get(k), v)));
            }
            (DATA_FILES, Some(old), Some(value)) => {
                let changed =
                    value.iter().filter(|(k, v)| old.get(*k).is_some_and(|o| !is_same(o, v)));
                found.extend(changed.map(|(task, _)| format!("the data files of {task}")));
            }
            (BASE_FILES, Some(old), Some(value)) => {
                let files: BTreeSet<&String> = old.keys().chain(value.keys()).collect();
                let changed = files.into_iter().filter(|file| old.get(*file) != value.get(*file));
                found.extend(changed.map(|file| format!("`{file}` of the base model")));
            }
            _ => found.push(changed(key, old.get(key), value)),
        }
    }
    let more = found.len().saturating_sub(DIFFERENCES);
    found.truncate(DIFFERENCES);
    let mut text = found.join("; ");
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A folder, and the output folder that is not yet in it.
    fn out() -> (TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("a/out");
        (parent, out)
    }

    fn begin(out: &Path, resume: bool) -> Result<OutputFolder, String> {
        let begun = || {
            let mut folder = OutputFolder::look(out, resume)?;
            folder.begin(&json!({ "seed": 1 }))?;
            Ok(folder)
        };
        begun().map_err(|error: Error| error.to_string())
    }

    #[test]
    fn what_is_not_ours_is_rejected_untouched() {
        let (_parent, out) = out();
        let write = |name: &str, text: &str| fs::write(out.join(name), text).unwrap();
        fs::create_dir_all(&out).unwrap();
        write("labels.json", "mine");
        assert!(begin(&out.join("labels.json"), false).unwrap_err().starts_with("cannot list `"));
        // A settings file of another program is not accepted, with or without `--resume`.
        write(SETTINGS_FILE, "{\"theme\": \"dark\"}");
        for resume in [false, true] {
            let folder = OutputFolder::look(&out, resume).unwrap();
            assert!(folder.check(&json!({ "seed": 1 })).is_err());
        }
        assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
        // A marker counts by its content.
        fs::remove_file(out.join("labels.json")).unwrap();
        fs::remove_file(out.join(SETTINGS_FILE)).unwrap();
        write(MARKER, "another program's");
        let rejected = begin(&out, true).unwrap_err();
        assert!(rejected.contains(&format!("holds `{MARKER}` and was not made by")), "{rejected}");
        assert_eq!(fs::read_to_string(out.join(MARKER)).unwrap(), "another program's");
        // Another process made the folder its own between two looks at it: its files are not foreign.
        let late = OutputFolder { path: out.clone(), resume: false, lock: None, made: None };
        write(MARKER, MARKER_TEXT);
        write(".settings.json0IMbJs.part", "{");
        let error = late.reject_foreign().unwrap_err().to_string();
        assert!(error.starts_with("another `lrvd` is writing into `"), "{error}");
        fs::remove_file(out.join(".settings.json0IMbJs.part")).unwrap();
        // Empty, as a process leaves it that was killed before it wrote.
        write(MARKER, "");
        begin(&out, false).unwrap();
        assert_eq!(fs::read_to_string(out.join(MARKER)).unwrap(), MARKER_TEXT);
    }

    #[test]
    fn files_count_by_their_content_and_settings_once_something_is_computed() {
        let (_parent, out) = out();
        let settings = |place: &str, rows: &str, other: &str, seed: u64| {
            let [train, validation] = ["train", "dev"].map(|name| format!("{place}/{name}.csv"));
            let data = json!({"train": {train: rows}, "validation": {validation: other}});
            let weights = json!({"model.safetensors": "3"});
            let goal = json!({"name": place, "classes": ["a", "b"]});
            json!({"model": format!("{place}/base"), "weights": weights, "data": data, "data_dir": place, "goal": goal, "seed": seed})
        };
        let start = |settings: &Value| {
            let mut folder = OutputFolder::look(&out, true)?;
            folder.begin(settings)?;
            read_json::<Value>(&folder.file(SETTINGS_FILE))
        };
        let first = settings("/scratch/17", "1", "2", 1);
        assert_eq!(start(&first).unwrap(), first);
        // No step was taken, a run folder without a checkpoint notwithstanding.
        fs::create_dir_all(out.join("runs/a/checkpoints")).unwrap();
        let second = settings("/scratch/17", "1", "2", 5);
        assert_eq!(start(&second).unwrap(), second);
        fs::create_dir_all(out.join("runs/a/checkpoints/step-00000001")).unwrap();
        let moved = settings("../18", "1", "2", 5);
        assert_eq!(start(&moved).unwrap(), moved);
        let error = start(&settings("../18", "2", "1", 4)).unwrap_err().to_string();
        for part in [
            "data.train: {\"../18/train.csv\":\"1\"} then",
            "data.validation: ",
            "seed: 5 then, 4 now",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains("model") && !error.contains("goal"), "{error}");
        fs::remove_dir_all(out.join("runs")).unwrap();
        fs::create_dir_all(out.join("plan/claims")).unwrap();
        fs::write(out.join("plan/claims/17.0"), "").unwrap();
        assert!(start(&first).is_err(), "a worker may be about to write");
    }

    #[test]
    fn only_checkpoints_and_files_that_a_kill_left_half_written_are_removed() {
        let (_parent, out) = out();
        begin(&out, false).unwrap();
        for folder in ["adapter", ".folder.part", "checkpoints/step-00000003"] {
            fs::create_dir_all(out.join(folder)).unwrap();
        }
        // Names as `replace_with` makes them, and others.
        let half = [".record.jsonxY3z9Q.part", ".metrics.jsonl0a1B2c.part"];
        let kept = [".hidden", "model.part", "adapter/.adapter_config.jsonAAAAAA.part"];
        half.iter().chain(&kept).for_each(|name| fs::write(out.join(name), "half").unwrap());
        let has = |name: &&str| out.join(name).is_file();
        assert!(begin(&out, false).is_err());
        assert!(half.iter().all(has), "only `--resume` removes them");
        drop(begin(&out, true).unwrap());
        assert!(!half.iter().any(has) && kept.iter().all(has));
        clear(&out).unwrap();
        assert!(out.join(".folder.part").is_dir() && !out.join("checkpoints").exists());
    }

    #[test]
    fn differences_are_named_and_many_are_counted() {
        let all = |n: i32| (0..1000).map(|i| (format!("key{i:03}"), json!(n))).collect::<Value>();
        let text = differences(&all(1), &all(2));
        assert!(text.starts_with("key000: 1 then, 2 now; "), "{text}");
        assert!(text.ends_with("; key039: 1 then, 2 now; and 960 more"), "{text}");

        let base = |files: Value| json!({ BASE_FILES: files });
        let new = base(json!({"config.json": "1", "generation_config.json": "2"}));
        for (old, named) in [
            (json!({"config.json": "1", "generation_config.json": "2"}), ""),
            (json!({"config.json": "1"}), "generation_config.json"),
            (json!({"generation_config.json": "2"}), "config.json"),
            (
                json!({"config.json": "0", "generation_config.json": "3", "spm.model": "4"}),
                "config.json generation_config.json spm.model",
            ),
        ] {
            let named = named.split_whitespace().map(|file| format!("`{file}` of the base model"));
            assert_eq!(differences(&base(old), &new), named.collect::<Vec<_>>().join("; "));
        }
    }
}
