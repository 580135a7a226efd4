//! A list of SHA-256 beside the files of a folder, as `sha256sum` writes it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::files::write_atomic;

const SUMS: &str = "SHA256SUMS";
/// Bytes read at a time.
const BLOCK: usize = 1 << 16;

/// Notes the hashes of the files called `names` in `folder`.
pub(super) fn write_sums(folder: &Path, names: &[&str]) -> Result<(), Error> {
    let line = |name: &&str| Ok(format!("{}  {name}\n", sha256(&folder.join(name))?));
    let text = names.iter().map(line).collect::<Result<String, Error>>()?;
    write_atomic(folder.join(SUMS), text.as_bytes())
}

/// Compares the files called `names` in `folder` with the hashes noted there.
pub(super) fn check_sums(folder: &Path, names: &[&str]) -> Result<(), Error> {
    let list = folder.join(SUMS);
    let text = fs::read_to_string(&list).map_err(|source| Error::io("read", &list, source))?;
    for name in names {
        let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix("  "));
        let expected = line.unwrap_or("none").to_owned();
        let file = folder.join(name);
        let found = sha256(&file)?;
        if found != expected {
            let what = format!(
                "has changed since it was written: its SHA-256 should be {expected}, found {found}"
            );
            return Err(Error::file(file, what));
        }
    }
    Ok(())
}

fn sha256(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::io("read", path, source);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut block) = (Sha256::new(), vec![0_u8; BLOCK]);
    loop {
        match file.read(&mut block).map_err(failed)? {
            0 => break,
            n => hasher.update(&block[..n]),
        }
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}
