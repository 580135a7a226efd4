//! Folders written atomically.
//!
//! A folder is built under its name plus `.lrvd-tmp`, everything in it is flushed to the disk, and one
//! rename gives it its name. A crash before the rename leaves a `.lrvd-tmp` folder, which no reader
//! looks at. To replace a folder the old one is first renamed to `.lrvd-old`; a crash between the two
//! renames is recovered by [`recover_dir`], which [`AtomicDir::create`] calls itself.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::NO_NAME;
use super::write::{sync_dir, sync_parent};
use crate::error::Error;

/// Ending of a folder under construction, which is reserved: what has it may be removed.
const BUILDING: &str = ".lrvd-tmp";
/// Ending of a folder that is being replaced.
const REPLACED: &str = ".lrvd-old";

/// A folder under construction.
#[derive(Debug)]
pub struct AtomicDir {
    target: PathBuf,
    building: PathBuf,
    committed: bool,
}

impl AtomicDir {
    /// Starts an empty folder that will become `target`; leftovers of a crash at this target are
    /// cleared first.
    pub fn create(target: impl AsRef<Path>) -> Result<Self, Error> {
        let target = target.as_ref().to_path_buf();
        recover_dir(&target)?;
        let building = with_suffix(&target, BUILDING)?;
        fs::create_dir_all(&building).map_err(|source| Error::io("create", &building, source))?;
        Ok(Self { target, building, committed: false })
    }

    /// Where to put the files until the commit.
    pub fn path(&self) -> &Path {
        &self.building
    }

    /// Gives the folder its name; there must be nothing of that name yet.
    pub fn commit(mut self) -> Result<PathBuf, Error> {
        if self.target.try_exists().map_err(|source| Error::io("look at", &self.target, source))? {
            return Err(Error::file(&self.target, "already exists"));
        }
        sync_tree(&self.building)?;
        self.rename_into_place()
    }

    /// Gives the folder its name, in place of the one that may be there.
    pub fn commit_replacing(mut self) -> Result<PathBuf, Error> {
        sync_tree(&self.building)?;
        let old = with_suffix(&self.target, REPLACED)?;
        match fs::rename(&self.target, &old) {
            Ok(()) => sync_parent(&self.target)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::io("move", &self.target, source)),
        }
        let target = self.rename_into_place()?;
        remove_tree(&old)?;
        Ok(target)
    }

    fn rename_into_place(&mut self) -> Result<PathBuf, Error> {
        fs::rename(&self.building, &self.target)
            .map_err(|source| Error::io("create", &self.target, source))?;
        self.committed = true;
        sync_parent(&self.target)?;
        Ok(self.target.clone())
    }
}

impl Drop for AtomicDir {
    /// An unfinished folder is removed; failing to is harmless, because nothing reads `.lrvd-tmp`
    /// folders.
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_dir_all(&self.building);
        }
    }
}

/// Clears what a crash left of the folder `target`: an unfinished `.lrvd-tmp` is removed; an `.lrvd-old` is
/// put back if the target is absent, and removed if it is there.
pub fn recover_dir(target: impl AsRef<Path>) -> Result<(), Error> {
    let target = target.as_ref();
    remove_tree(&with_suffix(target, BUILDING)?)?;
    let old = with_suffix(target, REPLACED)?;
    let there =
        |path: &Path| path.try_exists().map_err(|source| Error::io("look at", path, source));
    if there(&old)? {
        if there(target)? {
            return remove_tree(&old);
        }
        fs::rename(&old, target).map_err(|source| Error::io("restore", target, source))?;
        sync_parent(target)?;
    }
    Ok(())
}

fn with_suffix(target: &Path, suffix: &str) -> Result<PathBuf, Error> {
    let name = target.file_name().ok_or_else(|| Error::file(target, NO_NAME))?;
    let mut name = OsString::from(name);
    name.push(suffix);
    Ok(target.with_file_name(name))
}

fn remove_tree(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", dir, error))
        }
        _ => Ok(()),
    }
}

/// Flushes every file and folder below `dir`, and `dir` itself.
fn sync_tree(dir: &Path) -> Result<(), Error> {
    let io = |source| Error::io("flush", dir, source);
    for entry in fs::read_dir(dir).map_err(io)? {
        let entry = entry.map_err(io)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(io)?;
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::options()
                .write(true)
                .open(&path)
                .and_then(|file| file.sync_all())
                .map_err(|source| Error::io("flush", &path, source))?;
        }
    }
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn fill(dir: &AtomicDir, text: &str) {
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/state"), text).unwrap();
    }

    fn read(target: &Path) -> String {
        fs::read_to_string(target.join("sub/state")).unwrap()
    }

    fn names(parent: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(parent)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn absent_until_committed_and_then_whole() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("step-10");
        let dir = AtomicDir::create(&target).unwrap();
        fill(&dir, "a");
        assert!(!target.exists());
        assert_eq!(dir.commit().unwrap(), target);
        assert_eq!(read(&target), "a");
        assert_eq!(names(parent.path()), ["step-10"]);
    }

    #[test]
    fn a_crash_before_the_commit_leaves_nothing_and_the_next_start_is_empty() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("step-10");
        let dir = AtomicDir::create(&target).unwrap();
        fill(&dir, "half");
        // A killed process runs no destructor.
        std::mem::forget(dir);
        assert!(!target.exists());
        assert_eq!(names(parent.path()), ["step-10.lrvd-tmp"]);
        let dir = AtomicDir::create(&target).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fill(&dir, "b");
        dir.commit().unwrap();
        assert_eq!(read(&target), "b");
    }

    #[test]
    fn dropping_without_a_commit_removes_everything() {
        let parent = tempfile::tempdir().unwrap();
        let dir = AtomicDir::create(parent.path().join("x")).unwrap();
        fill(&dir, "a");
        drop(dir);
        assert!(names(parent.path()).is_empty());
    }

    #[test]
    fn commit_never_overwrites_but_replacing_does() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("best");
        for (text, replace) in [("first", true), ("second", false), ("third", true)] {
            let dir = AtomicDir::create(&target).unwrap();
            fill(&dir, text);
            if replace {
                dir.commit_replacing().unwrap();
                assert_eq!(read(&target), text);
            } else {
                assert!(dir.commit().unwrap_err().to_string().ends_with("already exists"));
                assert_eq!(read(&target), "first");
            }
            assert_eq!(names(parent.path()), ["best"]);
        }
    }

    #[test]
    fn a_crash_between_the_two_renames_of_a_replacement_is_recovered() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("best");
        let dir = AtomicDir::create(&target).unwrap();
        fill(&dir, "old");
        dir.commit().unwrap();
        let dir = AtomicDir::create(&target).unwrap();
        fill(&dir, "new");
        fs::rename(&target, parent.path().join("best.lrvd-old")).unwrap();
        std::mem::forget(dir);
        recover_dir(&target).unwrap();
        assert_eq!(read(&target), "old");
        assert_eq!(names(parent.path()), ["best"]);
        // And with the new one in place, the old one goes.
        fs::create_dir(parent.path().join("best.lrvd-old")).unwrap();
        recover_dir(&target).unwrap();
        assert_eq!((read(&target).as_str(), names(parent.path()).len()), ("old", 1));
    }
    #[test]
    fn other_folders_beside_the_target_stay() {
        let parent = tempfile::tempdir().unwrap();
        let others = ["best.tmp", "best.old"].map(|name| parent.path().join(name));
        for other in &others {
            fs::create_dir(other).unwrap();
        }
        let dir = AtomicDir::create(parent.path().join("best")).unwrap();
        fill(&dir, "a");
        dir.commit_replacing().unwrap();
        assert_eq!(names(parent.path()), ["best", "best.old", "best.tmp"]);
    }
}
