//! Files and folders written atomically: a reader sees the old state or the new one, also after a crash.
//!
//! A file is written under another name in the same folder, flushed to the disk, then renamed.
//!
//! A folder is built under its name plus `.lrvd-tmp`, everything in it is flushed to the disk, and one
//! rename gives it its name. A crash before the rename leaves a `.lrvd-tmp` folder, which no reader
//! looks at. To replace a folder the old one is first renamed to `.lrvd-old`; a crash between the two
//! renames is recovered by the next [`AtomicDir::create`]. The process that builds a folder holds a lock on it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::limited::is_there;
use crate::error::Error;

/// Fault of a path like `/`.
pub(super) const NO_NAME: &str = "does not end in the name of a file or folder";
/// Ending of a folder under construction, which is reserved: what has it may be removed.
const BUILDING: &str = ".lrvd-tmp";
/// Ending of a folder that is being replaced.
const REPLACED: &str = ".lrvd-old";

/// Writes the bytes so that a reader sees either the old file or the new one, also after a crash.
///
/// On an error the place is as it was before.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
    replace_with(path.as_ref(), |out| out.write_all(bytes))
}

/// Runs `fill` on a new sibling file and puts it in the place of `path`. A link at `path` is replaced, not followed.
pub fn replace_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), Error> {
    let name = path.file_name().ok_or_else(|| Error::file(path, NO_NAME))?;
    let failed = |action| move |source| Error::io(action, path, source);
    let mut prefix = OsString::from(".");
    prefix.push(name);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    // Permissions of an ordinary file, which other users may read.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // Removed again unless it comes to the last step.
    let sibling = builder.tempfile_in(parent_of(path)).map_err(failed("create"))?;
    let mut out = BufWriter::new(sibling.as_file());
    fill(&mut out)
        .and_then(|()| out.flush())
        .and_then(|()| out.get_ref().sync_all())
        .map_err(failed("write"))?;
    drop(out);
    sibling.persist(path).map_err(|error| failed("write")(error.error))?;
    flushes(parent_of(path)).map(drop)
}

pub(super) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Flushes a folder's list of names; `false` where that cannot be done, and a rename is all there is: outside Unix, and on
/// some network file systems.
pub fn flushes(dir: &Path) -> Result<bool, Error> {
    if !cfg!(unix) {
        return Ok(false);
    }
    let io = |source| Error::io("flush", dir, source);
    flushed(File::open(dir).map_err(io)?.sync_all()).map_err(io)
}

pub(super) fn flushed(tried: io::Result<()>) -> io::Result<bool> {
    let lacks = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported];
    match tried {
        Err(error) if lacks.contains(&error.kind()) => Ok(false),
        tried => tried.map(|()| true),
    }
}

/// An error for a path that leads through a link to nothing.
pub fn check_link(path: &Path) -> Result<(), Error> {
    for path in path.ancestors() {
        if let Ok(to) = fs::read_link(path)
            && !is_there(path)?
        {
            let what = format!("is a link to `{}`, where there is nothing", to.display());
            return Err(Error::file(path, what));
        }
    }
    Ok(())
}

/// A folder under construction.
#[derive(Debug)]
pub struct AtomicDir {
    target: PathBuf,
    building: PathBuf,
    /// `true` once it has its name: a folder under construction is another process's.
    built: bool,
    /// The folder, and what a crash left of one: both locked, so that of several that start at once one proceeds.
    _locks: [Option<File>; 2],
}

impl AtomicDir {
    /// Starts an empty folder that will become `target`; leftovers of a crash at this target are
    /// cleared first.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process builds it now.
    pub fn create(target: impl AsRef<Path>) -> Result<Self, Error> {
        let target = target.as_ref().to_path_buf();
        check_link(&target)?;
        let building = with_suffix(&target, BUILDING)?;
        let in_use = || {
            let by = "another process, which writes it".to_owned();
            Error::InUse { path: target.clone(), by }
        };
        let lock = || {
            // Not every system opens folders, and not every file system has locks.
            let Ok(folder) = File::open(&building) else { return Ok(None) };
            match folder.try_lock() {
                Err(TryLockError::WouldBlock) => Err(in_use()),
                _ => Ok(Some(folder)),
            }
        };
        let left = lock()?;
        recover_dir(&target)?;
        fs::create_dir_all(&building).map_err(|source| Error::io("create", &building, source))?;
        let locks = [left, lock()?];
        if cfg!(unix) && locks[1].is_none() {
            // The other process has taken the new folder for what a crash left.
            return Err(in_use());
        }
        Ok(Self { target, building, built: false, _locks: locks })
    }

    /// Folder for the files until the commit.
    pub fn path(&self) -> &Path {
        &self.building
    }

    /// Gives the folder its name; there must be nothing of that name yet.
    pub fn commit(mut self) -> Result<(), Error> {
        if is_there(&self.target)? {
            return Err(Error::file(&self.target, "already exists"));
        }
        sync_tree(&self.building)?;
        self.rename_into_place()
    }

    /// Gives the folder its name, in place of the one that may be there.
    pub fn commit_replacing(mut self) -> Result<(), Error> {
        sync_tree(&self.building)?;
        let old = with_suffix(&self.target, REPLACED)?;
        match fs::rename(&self.target, &old) {
            Ok(()) => drop(flushes(parent_of(&self.target))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::io("move", &self.target, source)),
        }
        self.rename_into_place()?;
        remove_tree(&old)
    }

    fn rename_into_place(&mut self) -> Result<(), Error> {
        fs::rename(&self.building, &self.target)
            .map_err(|source| Error::io("create", &self.target, source))?;
        self.built = true;
        flushes(parent_of(&self.target)).map(drop)
    }
}

impl Drop for AtomicDir {
    /// An unfinished folder is removed; failing to is harmless, because nothing reads `.lrvd-tmp` folders.
    fn drop(&mut self) {
        if !self.built {
            let _ = fs::remove_dir_all(&self.building);
        }
    }
}

/// Clears what a crash left of the folder `target`: an unfinished `.lrvd-tmp` is removed; an `.lrvd-old` is
/// put back if the target is absent, and removed if it is there.
fn recover_dir(target: &Path) -> Result<(), Error> {
    remove_tree(&with_suffix(target, BUILDING)?)?;
    let old = with_suffix(target, REPLACED)?;
    if is_there(&old)? {
        if is_there(target)? {
            return remove_tree(&old);
        }
        fs::rename(&old, target).map_err(|source| Error::io("restore", target, source))?;
        flushes(parent_of(target))?;
    }
    Ok(())
}

pub(super) fn with_suffix(target: &Path, suffix: &str) -> Result<PathBuf, Error> {
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
    flushes(dir).map(drop)
}
