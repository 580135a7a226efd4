//! Writing whole files or none, reading them strictly, and hashing what a run read.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::ReportError;
use super::record::{Results, SCHEMA_VERSION};

/// Bytes read at a time when hashing.
const HASH_BLOCK: usize = 1 << 16;

fn file_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> ReportError + 'a {
    move |source| ReportError::File { action, path: path.to_path_buf(), source }
}

/// Writes a text file so that it is whole or absent: a sibling `*.partial` is written, synced and renamed.
///
/// # Errors
///
/// [`ReportError::File`] with the step that failed.
pub fn write_text(path: &Path, text: &str) -> Result<(), ReportError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    let partial: PathBuf = path.with_file_name(name);
    let mut file = File::create(&partial).map_err(file_error("create", &partial))?;
    file.write_all(text.as_bytes()).map_err(file_error("write", &partial))?;
    file.sync_all().map_err(file_error("write", &partial))?;
    drop(file);
    std::fs::rename(&partial, path).map_err(file_error("rename", &partial))
}

/// Writes `results.json`, indented by two spaces, with a final newline.
///
/// # Errors
///
/// [`ReportError::Serialise`] or [`ReportError::File`].
pub fn write_results(path: &Path, results: &Results) -> Result<(), ReportError> {
    let mut text = serde_json::to_string_pretty(results).map_err(|error| {
        ReportError::Serialise { path: path.to_path_buf(), message: error.to_string() }
    })?;
    text.push('\n');
    write_text(path, &text)
}

/// Reads `results.json`; the version is looked at before the shape.
///
/// # Errors
///
/// [`ReportError::File`], [`ReportError::Version`], or [`ReportError::Parse`] with field, line and column.
pub fn read_results(path: &Path) -> Result<Results, ReportError> {
    /// The one field that every version has.
    #[derive(serde::Deserialize)]
    struct Probe {
        schema_version: u64,
    }
    let text = std::fs::read_to_string(path).map_err(file_error("read", path))?;
    let parse = |error: serde_json::Error| ReportError::Parse {
        path: path.to_path_buf(),
        wanted: SCHEMA_VERSION,
        message: error.to_string(),
    };
    let probe: Probe = serde_json::from_str(&text).map_err(parse)?;
    if probe.schema_version != u64::from(SCHEMA_VERSION) {
        return Err(ReportError::Version {
            path: path.to_path_buf(),
            wanted: SCHEMA_VERSION,
            found: probe.schema_version,
        });
    }
    serde_json::from_str(&text).map_err(parse)
}

/// SHA-256 of a file in lower-case hex.
///
/// # Errors
///
/// [`ReportError::File`] if it cannot be read.
pub fn sha256_file(path: &Path) -> Result<String, ReportError> {
    let mut file = File::open(path).map_err(file_error("read", path))?;
    let mut hasher = Sha256::new();
    let mut block = vec![0_u8; HASH_BLOCK];
    loop {
        let n = file.read(&mut block).map_err(file_error("read", path))?;
        if n == 0 {
            break;
        }
        hasher.update(&block[..n]);
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::sample::sample_results;
    use super::*;

    #[test]
    fn results_come_back_as_they_went() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let results = sample_results();
        write_results(&path, &results).unwrap();
        assert_eq!(read_results(&path).unwrap(), results);
        let first = std::fs::read(&path).unwrap();
        write_results(&path, &read_results(&path).unwrap()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn non_finite_numbers_survive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let mut results = sample_results();
        results.runs[0].history[0].loss = Some(f64::NAN);
        results.runs[0].history[0].kl = Some(f64::NEG_INFINITY);
        results.runs[0].history[0].nll = None;
        let record = results.runs[0].checkpoints.last.as_mut().unwrap();
        record.average_rank = f64::INFINITY;
        write_results(&path, &results).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"average_rank\": \"inf\""));
        let back = read_results(&path).unwrap();
        assert!(back.runs[0].history[0].loss.unwrap().is_nan());
        assert_eq!(back.runs[0].history[0].kl, Some(f64::NEG_INFINITY));
        assert_eq!(back.runs[0].history[0].nll, None);
        assert_eq!(back.runs[0].checkpoints.last.as_ref().unwrap().average_rank, f64::INFINITY);
    }

    #[test]
    fn other_versions_and_unknown_fields_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        write_results(&path, &sample_results()).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();

        let version = |n: u64| format!("\"schema_version\": {n}");
        let other = u64::from(SCHEMA_VERSION) + 1;
        let text = good.replacen(&version(SCHEMA_VERSION.into()), &version(other), 1);
        std::fs::write(&path, text).unwrap();
        let Err(ReportError::Version { found, .. }) = read_results(&path) else {
            panic!("another version must be refused");
        };
        assert_eq!(found, other);

        std::fs::write(&path, good.replacen("\"preset\"", "\"presett\"", 1)).unwrap();
        let Err(ReportError::Parse { message, .. }) = read_results(&path) else {
            panic!("an unknown field must be refused");
        };
        assert!(message.contains("presett") && message.contains("line"), "{message}");

        std::fs::write(&path, good.replacen("\"step\": 0,", "", 1)).unwrap();
        let Err(ReportError::Parse { message, .. }) = read_results(&path) else {
            panic!("a missing field must be refused");
        };
        assert!(message.contains("`step`"), "{message}");
    }

    #[test]
    fn hash_of_a_known_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        // FIPS 180-4 example.
        assert_eq!(
            sha256_file(&path).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let missing = folder.path().join("none");
        let error = sha256_file(&missing).unwrap_err().to_string();
        assert!(error.starts_with("cannot read `") && error.ends_with("none`"), "{error}");
    }
}
