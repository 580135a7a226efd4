//! Existence of files, and small files read whole with a limit.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Most bytes of a configuration, a template or another file of settings, 16 MiB.
pub const SETTINGS_LIMIT: u64 = 16 << 20;
/// Most bytes of a vocabulary, a tokenizer or an index of shards, 256 MiB.
pub const VOCABULARY_LIMIT: u64 = 256 << 20;

/// Start of the small text that Git LFS puts in place of a file.
const POINTER: &str = "version https://git-lfs.github.com/spec/";

/// Metadata of the file or folder at `path`, links followed; `None` if there is none. A folder that may not be searched is an
/// error: its files are not absent.
fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    use ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(
                error.kind(),
                NotFound | NotADirectory | InvalidFilename | InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(Error::io("look at", path, source)),
    }
}

/// `true` if something is at `path`.
pub fn is_there(path: &Path) -> Result<bool, Error> {
    Ok(look(path)?.is_some())
}

/// `true` if a file is at `path`.
pub fn is_file(path: &Path) -> Result<bool, Error> {
    Ok(look(path)?.is_some_and(|found| found.is_file()))
}

/// `true` if a folder is at `path`.
pub fn is_dir(path: &Path) -> Result<bool, Error> {
    Ok(look(path)?.is_some_and(|found| found.is_dir()))
}

/// The first of the files that is there.
pub fn first_file(files: impl IntoIterator<Item = PathBuf>) -> Result<Option<PathBuf>, Error> {
    let there = |file: PathBuf| is_file(&file).map(|is| is.then_some(file)).transpose();
    files.into_iter().find_map(there).transpose()
}

/// Rejects the `start` of a pointer that Git LFS has put in place of a file.
pub fn reject_pointer(start: &[u8]) -> io::Result<()> {
    if start.starts_with(POINTER.as_bytes()) {
        let what = "it is a Git LFS pointer, and not the file itself: run `git lfs pull`";
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(())
}

/// Opens a file in which one can go back, by [`reject_pointer`].
pub fn open_file(path: &Path) -> io::Result<File> {
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    (&mut file).take(POINTER.len() as u64).read_to_end(&mut start)?;
    reject_pointer(&start)?;
    file.rewind()?;
    Ok(file)
}

/// The bytes of a file, of which there may be at most `limit`: an endless file must not fill the memory.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let found = File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if found as u64 > limit {
        let what = format!("it is larger than {} MiB, the limit for such a file", limit >> 20);
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    reject_pointer(&bytes)?;
    Ok(bytes)
}

/// The text of a file as [`read_limited`] reads it.
pub fn read_text_limited(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_limited(path, limit)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, "abcd").unwrap();
        assert_eq!(read_text_limited(&file, 4).unwrap(), "abcd");
        assert_eq!(read_limited(&file, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
        #[cfg(unix)]
        {
            let error = read_limited(Path::new("/dev/zero"), SETTINGS_LIMIT).unwrap_err();
            assert!(error.to_string().contains("larger than 16 MiB"), "{error}");
        }
        fs::write(&file, [0xff]).unwrap();
        let error = read_text_limited(&file, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_pointer_of_git_lfs_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.safetensors");
        // As `git lfs pointer --file` writes it.
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:9a12\nsize 7\n";
        fs::write(&file, pointer).unwrap();
        for error in [open_file(&file).unwrap_err(), read_limited(&file, 999).unwrap_err()] {
            assert!(error.to_string().contains("run `git lfs pull`"), "{error}");
        }
        fs::write(&file, "version").unwrap();
        assert_eq!(io::read_to_string(open_file(&file).unwrap()).unwrap(), "version");
    }

    /// A loop of links in place of a folder that may not be searched: tests may run as a user who may search all.
    #[cfg(unix)]
    #[test]
    fn what_cannot_be_seen_is_not_absent() {
        let dir = tempfile::tempdir().unwrap();
        let (looped, file) = (dir.path().join("loop"), dir.path().join("file"));
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        fs::write(&file, "").unwrap();
        let long = dir.path().join("a".repeat(300));
        for absent in [&dir.path().join("absent"), &file.join("below"), &long] {
            assert!(!is_there(absent).unwrap(), "{}", absent.display());
        }
        assert!(is_file(&file).unwrap() && is_dir(dir.path()).unwrap() && !is_dir(&file).unwrap());
        let error = is_file(&looped.join("below")).unwrap_err().to_string();
        assert!(error.starts_with("cannot look at `"), "{error}");
    }
}
