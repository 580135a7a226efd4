//! Exclusive use of a file by one process, also on file systems without locks.

use std::fmt::Write as _;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::atomic::{parent_of, with_suffix};
use crate::error::Error;

/// Ending of the file that replaces a lock.
const HELD: &str = ".held";
/// Time without a heartbeat after which the process in a lock file counts as dead.
const DEAD_AFTER: Duration = Duration::from_mins(5);
const BEAT_EVERY: Duration = Duration::from_secs(15);

/// A file that one process uses at a time, as long as the value lives.
///
/// The lock is the system's: it ends with the process, whatever ends the process. Where the file system has no locks, a
/// file `NAME.held` in the same folder replaces the lock. It names host, process and time and is rewritten every 15 s; a process
/// that has not done so for 5 minutes counts as dead.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    held: Option<Held>,
}

impl FileLock {
    /// Locks `file`, which is the one at `path`.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it.
    pub fn take(file: File, path: &Path) -> Result<Self, Error> {
        let tried = file.try_lock();
        Self::after(tried, file, path)
    }

    pub(super) fn after(
        tried: Result<(), TryLockError>,
        file: File,
        path: &Path,
    ) -> Result<Self, Error> {
        match tried {
            Ok(()) => Ok(Self { file, held: None }),
            Err(TryLockError::WouldBlock) => Err(Error::in_use(path)),
            Err(TryLockError::Error(error)) if lacks_locks(&error) => {
                Ok(Self { file, held: Some(Held::take(path)?) })
            }
            Err(TryLockError::Error(source)) => Err(Error::io("lock", path, source)),
        }
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Warning if a lock file replaces the lock.
    pub fn warning(&self) -> Option<String> {
        let Held { path, .. } = self.held.as_ref()?;
        Some(format!(
            "the file system has no locks: `{}` stands for one, and after a kill the folder counts as in use for {} s",
            path.display(),
            DEAD_AFTER.as_secs()
        ))
    }

    /// `false` once another process has taken the file of this one, which was silent, for that of a dead process.
    pub fn is_held(&self) -> bool {
        self.held.as_ref().is_none_or(|Held { path, name, .. }| {
            fs::read_to_string(path).map_or(true, |found| found == *name)
        })
    }
}

/// `true` for the error of a file system without locks.
pub fn lacks_locks(error: &io::Error) -> bool {
    // ENOLCK has no kind.
    let no_locks = if cfg!(target_os = "linux") { 37 } else { 77 };
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(no_locks)
}

/// Name of this host by the kernel; `None` elsewhere than on Linux.
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

/// Time since the file at `path` was written, by the clock of its file system.
///
/// A date in the future, which a wrong clock has left, becomes the present: from then on the file ages as others do.
pub fn silence(path: &Path) -> io::Result<Duration> {
    let written = fs::metadata(path)?.modified()?;
    let mut clock =
        tempfile::Builder::new().prefix(".clock-").suffix(".part").tempfile_in(parent_of(path))?;
    clock.write_all(b"now")?;
    clock.as_file().sync_all()?;
    let now = fs::metadata(clock.path())?.modified()?;
    Ok(now.duration_since(written).unwrap_or_else(|_| {
        // Another user's stays as it is.
        let _ = File::options().write(true).open(path).and_then(|file| file.set_modified(now));
        Duration::ZERO
    }))
}

/// A lock file of this process, with its heartbeat.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    /// Its content, which no other process writes.
    name: String,
    /// Ends the heartbeat when it is dropped.
    _beats: Sender<()>,
}

impl Held {
    fn take(locked: &Path) -> Result<Self, Error> {
        let path = with_suffix(locked, HELD)?;
        let host = host_name().unwrap_or_else(|| "this host".to_owned());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let process = std::process::id();
        let name =
            format!("process {process} on {host}, since {} s of Unix time", now.as_secs_f64());
        let held = path.as_path();
        let io = |action| move |source| Error::io(action, held, source);
        let mut file = loop {
            match File::create_new(&path) {
                Ok(file) => break file,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io("create", &path, error)),
            }
            let (found, silent) = match (fs::read_to_string(&path), silence(&path)) {
                (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::NotFound => {
                    continue;
                }
                (found, silent) => (found.map_err(io("read"))?, silent.map_err(io("date"))?),
            };
            // Of those that find it silent one moves it away, and none the file of another one.
            let aside = with_suffix(&path, &format!(".{process}"))?;
            let is_dead = silent > DEAD_AFTER && fs::rename(&path, &aside).is_ok();
            if is_dead && fs::read_to_string(&aside).is_ok_and(|moved| moved == found) {
                fs::remove_file(&aside).map_err(io("remove"))?;
                continue;
            }
            if is_dead {
                fs::rename(&aside, &path).map_err(io("restore"))?;
            }
            let mut by = if found.is_empty() { "another process".to_owned() } else { found };
            // Writing to a string cannot fail.
            let silent = silent.as_secs();
            let most = DEAD_AFTER.as_secs();
            let _ = write!(
                by,
                ", which gave a sign of life {silent} s ago and counts as dead after {most} s without one"
            );
            return Err(Error::InUse { path: locked.to_path_buf(), by });
        };
        file.write_all(name.as_bytes()).and_then(|()| file.sync_all()).map_err(io("write"))?;
        let (beats, waits) = channel();
        let lock_file = path.clone();
        let own_name = name.clone();
        let beat = move || {
            while waits.recv_timeout(BEAT_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A write that fails may succeed the next time.
                let _ = rewrite(&lock_file, &own_name);
            }
        };
        let thread = Builder::new().name("lock".to_owned()).spawn(beat);
        thread.map_err(io("start a thread for"))?;
        Ok(Self { path, name, _beats: beats })
    }
}

/// Rewrites a lock file that is still that of `name`.
fn rewrite(path: &Path, name: &str) -> io::Result<()> {
    if fs::read_to_string(path)? == name {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(name.as_bytes())?;
        file.sync_all()?;
    }
    Ok(())
}

impl Drop for Held {
    /// A file that another process has taken over stays.
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|found| found == self.name) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Locks a new file in `folder` on a file system without locks.
    fn take(folder: &Path, code: i32) -> Result<FileLock, Error> {
        let path = folder.join("lock");
        let tried = Err(TryLockError::Error(io::Error::from_raw_os_error(code)));
        FileLock::after(tried, File::create(&path).unwrap(), &path)
    }

    fn date(path: &Path, time: SystemTime) {
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_stands_for_a_lock_where_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let held = folder.path().join("lock.held");
        // ENOSYS, EOPNOTSUPP and ENOLCK.
        for code in [38, 95, 37] {
            let first = take(folder.path(), code).unwrap();
            assert!(first.warning().unwrap().contains("lock.held` stands for one"));
            let own = format!("process {} on ", std::process::id());
            assert!(fs::read_to_string(&held).unwrap().starts_with(&own));
            let error = take(folder.path(), code).unwrap_err();
            assert!(matches!(&error, Error::InUse { by, .. } if by.starts_with(&own)), "{error}");
            drop(first);
            assert!(!held.exists());
        }
        // EBADF is no answer of a file system without locks.
        assert!(matches!(take(folder.path(), 9).unwrap_err(), Error::Io { action: "lock", .. }));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_silent_process_loses_its_lock_file_and_one_from_the_future_ages() {
        let folder = tempfile::tempdir().unwrap();
        let held = folder.path().join("lock.held");
        let first = take(folder.path(), 38).unwrap();
        date(&held, SystemTime::now() + Duration::from_hours(1));
        assert!(matches!(take(folder.path(), 38).unwrap_err(), Error::InUse { .. }));
        assert!(fs::metadata(&held).unwrap().modified().unwrap() <= SystemTime::now());
        let beaten = SystemTime::now() - Duration::from_hours(1);
        date(&held, beaten);
        rewrite(&held, &first.held.as_ref().unwrap().name).unwrap();
        assert!(take(folder.path(), 38).is_err(), "a heartbeat is a sign of life");
        date(&held, beaten);
        let second = take(folder.path(), 38).unwrap();
        assert!(!first.is_held() && second.is_held());
        drop(first);
        assert!(held.exists(), "it is the second one's");
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "nothing is left of the first");
    }
}
