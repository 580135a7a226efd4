//! Numbered output folders: `runs/train`, `runs/train-2`, `runs/train-3`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::io::cannot;

/// The folder behind the last one that holds something: `base` if none does.
pub fn next_folder(base: &Path) -> Result<PathBuf> {
    Ok(numbered(base, last(base)?.map_or(1, |last| last + 1)))
}

/// The last folder that holds something; `base` if none does.
pub fn last_folder(base: &Path) -> Result<PathBuf> {
    Ok(numbered(base, last(base)?.unwrap_or(1)))
}

fn numbered(base: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return base.to_owned();
    }
    let mut name = base.as_os_str().to_owned();
    name.push(format!("-{number}"));
    name.into()
}

/// The largest number of a folder of `base` that is not empty, or of a file in its place.
fn last(base: &Path) -> Result<Option<usize>> {
    let Some(name) = base.file_name() else { return Ok(None) };
    let parent = match base.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.exists() {
        return Ok(None);
    }
    let number = |found: &str| match found.strip_prefix(&*name.to_string_lossy())? {
        "" => Some(1),
        rest => rest.strip_prefix('-')?.parse().ok().filter(|number| *number > 1),
    };
    let mut last = None;
    for entry in fs::read_dir(parent).map_err(cannot("list", parent))? {
        let path = entry.map_err(cannot("list", parent))?.path();
        let found = path.file_name().and_then(|found| number(&found.to_string_lossy()));
        let is_empty = || fs::read_dir(&path).is_ok_and(|mut all| all.next().is_none());
        if found > last && !is_empty() {
            last = found;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_numbered_behind_the_last_one_that_holds_something() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("runs/train");
        let names = || {
            let name = |folder: Result<PathBuf>| {
                folder.unwrap().file_name().unwrap().to_string_lossy().into_owned()
            };
            [name(last_folder(&base)), name(next_folder(&base))]
        };
        assert_eq!(names(), ["train", "train"]);
        let folder =
            |name: &str| fs::create_dir_all(parent.path().join("runs").join(name)).unwrap();
        let file = |name: &str| fs::write(parent.path().join("runs").join(name), "x").unwrap();
        folder("train");
        assert_eq!(names(), ["train", "train"]);
        file("train/settings.json");
        assert_eq!(names(), ["train", "train-2"]);
        // A gap is not filled: the last number is that of the last run.
        folder("train-9");
        file("train-9/settings.json");
        for other in ["train-10", "train-x", "trainer-20", "train-011x", "train--12"] {
            folder(other);
        }
        assert_eq!(names(), ["train-9", "train-10"]);
        file("train-12");
        assert_eq!(names(), ["train-12", "train-13"]);
    }
}
