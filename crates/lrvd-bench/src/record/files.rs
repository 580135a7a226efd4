//! `results.json`, written whole and read strictly.

use std::path::Path;

use anyhow::{anyhow, bail};

use super::results::{Results, SCHEMA_VERSION};
use crate::error::Result;
use crate::io::{read_text, write_text};

/// Writes `results.json`, indented by two spaces, with a final newline.
pub fn write_results(path: &Path, results: &Results) -> Result<()> {
    let mut text = serde_json::to_string_pretty(results)
        .map_err(|source| anyhow!("`{}`: {source}", path.display()))?;
    text.push('\n');
    write_text(path, &text)
}

/// Reads `results.json`; the version is looked at before the shape.
pub fn read_results(path: &Path) -> Result<Results> {
    #[derive(serde::Deserialize)]
    struct Probe {
        schema_version: u64,
    }
    let text = read_text(path)?;
    let parse = |error: serde_json::Error| {
        anyhow!(
            "`{path}` is not a results file of schema version {wanted}: {error}",
            path = path.display(),
            wanted = SCHEMA_VERSION
        )
    };
    let probe: Probe = serde_json::from_str(&text).map_err(parse)?;
    if probe.schema_version != u64::from(SCHEMA_VERSION) {
        bail!(
            "`{path}` has schema version {found}, this program reads version {wanted}",
            path = path.display(),
            found = probe.schema_version,
            wanted = SCHEMA_VERSION
        );
    }
    serde_json::from_str(&text).map_err(parse)
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
        let error = read_results(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("has schema version {other},")), "{error}");

        std::fs::write(&path, good.replacen("\"preset\"", "\"presett\"", 1)).unwrap();
        let error = read_results(&path).unwrap_err().to_string();
        assert!(error.contains("presett") && error.contains("line"), "{error}");

        std::fs::write(&path, good.replacen("\"step\": 0,", "", 1)).unwrap();
        let error = read_results(&path).unwrap_err().to_string();
        assert!(error.contains("`step`"), "{error}");
    }
}
