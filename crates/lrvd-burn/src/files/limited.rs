//! Small files, which are read whole.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most bytes of a configuration, a template or another file of settings, 16 MiB.
pub const SETTINGS_LIMIT: u64 = 16 << 20;
/// Most bytes of a vocabulary, a tokenizer or an index of shards, 256 MiB.
pub const VOCABULARY_LIMIT: u64 = 256 << 20;

/// The bytes of a file, of which there may be at most `limit`: an endless file must not fill the memory.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let found = File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if found as u64 > limit {
        let what = format!("it is larger than {} MiB, the limit for such a file", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The text of a file as [`read_limited`] reads it.
pub fn read_text_limited(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_limited(path, limit)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "abcd").unwrap();
        assert_eq!(read_text_limited(&file, 4).unwrap(), "abcd");
        assert_eq!(read_limited(&file, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        #[cfg(unix)]
        {
            let error = read_limited(Path::new("/dev/zero"), SETTINGS_LIMIT).unwrap_err();
            assert!(error.to_string().contains("larger than 16 MiB"), "{error}");
        }
        std::fs::write(&file, [0xff]).unwrap();
        let error = read_text_limited(&file, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
