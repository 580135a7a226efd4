//! Files of a run: `results.json`, written whole and read strictly, `ranks.jsonl` and the predictions.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};

use super::results::{Results, SCHEMA_VERSION};
use super::{RankCause, real};
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
            "`{path}` is not a results file of schema version {expected}: {error}",
            path = path.display(),
            expected = SCHEMA_VERSION
        )
    };
    let probe: Probe = serde_json::from_str(&text).map_err(parse)?;
    if probe.schema_version != u64::from(SCHEMA_VERSION) {
        bail!(
            "`{path}` has schema version {found}, this program reads version {expected}",
            path = path.display(),
            found = probe.schema_version,
            expected = SCHEMA_VERSION
        );
    }
    serde_json::from_str(&text).map_err(parse)
}

/// One line of `ranks.jsonl`: the ranks of one run at one prune or evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankLine {
    pub task: String,
    pub method: String,
    pub seed: u64,
    pub step: u64,
    pub cause: RankCause,
    /// Rank by module path; modules of rank 0 are listed.
    pub ranks: BTreeMap<String, u32>,
    pub total_rank: u64,
}

/// One line of a predictions file: one validation example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictionLine {
    /// The example: its id in the data, or its row counted from 0.
    pub id: String,
    /// The right answer: class index, or score for regression.
    #[serde(with = "real")]
    pub label: f64,
    /// By number of posterior draws: class probabilities in label order, or the one predicted score.
    #[serde(with = "real")]
    pub probs: BTreeMap<u32, Vec<f64>>,
    /// By number of posterior draws: entropy of the prediction, nats; empty for regression.
    #[serde(with = "real")]
    pub entropy: BTreeMap<u32, f64>,
    /// By number of posterior draws: mutual information between prediction and weights, nats. A number at which a
    /// single model answers has none; an ensemble has one without draws.
    #[serde(with = "real")]
    pub mutual_information: BTreeMap<u32, f64>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::sample::sample_results;
    use super::*;
    use crate::io::write_json_lines;

    #[test]
    fn results_come_back_as_they_went() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let mut results = sample_results();
        write_results(&path, &results).unwrap();
        assert_eq!(read_results(&path).unwrap(), results);
        // Numbers that JSON cannot carry, and none.
        let point = &mut results.runs[0].history[0];
        (point.loss, point.kl, point.nll) = (Some(f64::NAN), Some(f64::NEG_INFINITY), None);
        results.runs[0].checkpoints.last.as_mut().unwrap().average_rank = f64::INFINITY;
        write_results(&path, &results).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"average_rank\": \"inf\""));
        let back = read_results(&path).unwrap();
        let point = &back.runs[0].history[0];
        assert!(point.loss.unwrap().is_nan() && point.kl == Some(f64::NEG_INFINITY));
        write_results(&path, &back).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "the same bytes");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file is left");
    }

    #[test]
    fn other_versions_and_unknown_fields_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        write_results(&path, &sample_results()).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();

        let other = SCHEMA_VERSION + 1;
        let version = |n: u32| format!("\"schema_version\": {n}");
        for (from, to, expected) in [
            (version(SCHEMA_VERSION).as_str(), version(other).as_str(), "has schema version 5,"),
            ("\"preset\"", "\"presett\"", "unknown field `presett`"),
            ("\"step\": 0,", "", "missing field `step` at line"),
        ] {
            std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let error = read_results(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn rank_lines_are_written_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.jsonl");
        let line = |step| RankLine {
            task: "cola".into(),
            method: "BayesLoRA".into(),
            seed: 2,
            step,
            cause: RankCause::Prune,
            ranks: BTreeMap::from([("b.query".into(), 3), ("a.key".into(), 0)]),
            total_rank: 3,
        };
        write_json_lines(&path, [line(100), line(200)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let first = r#"{"task":"cola","method":"BayesLoRA","seed":2,"step":100,"cause":"prune","ranks":{"a.key":0,"b.query":3},"total_rank":3}"#;
        assert_eq!(text.lines().next().unwrap(), first);
        let back: Vec<RankLine> = text.lines().map(|x| serde_json::from_str(x).unwrap()).collect();
        assert_eq!(back, [line(100), line(200)]);
    }

    #[test]
    fn predictions_keep_probabilities_by_draws() {
        let line = PredictionLine {
            id: "17".into(),
            label: 1.0,
            probs: BTreeMap::from([(0, vec![0.25, 0.75]), (10, vec![0.375, 0.625])]),
            entropy: BTreeMap::from([(0, 0.5), (10, 0.625)]),
            mutual_information: BTreeMap::from([(10, f64::NAN)]),
        };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            r#"{"id":"17","label":1.0,"probs":{"0":[0.25,0.75],"10":[0.375,0.625]},"entropy":{"0":0.5,"10":0.625},"mutual_information":{"10":"NaN"}}"#
        );
        let back: PredictionLine = serde_json::from_str(&text).unwrap();
        assert_eq!((&back.probs, &back.entropy), (&line.probs, &line.entropy));
        assert!(back.mutual_information[&10].is_nan());
        let score = PredictionLine {
            probs: BTreeMap::from([(0, vec![2.5])]),
            entropy: BTreeMap::new(),
            mutual_information: BTreeMap::new(),
            ..line
        };
        let text = serde_json::to_string(&score).unwrap();
        assert!(text.ends_with(r#""entropy":{},"mutual_information":{}}"#), "{text}");
        assert_eq!(serde_json::from_str::<PredictionLine>(&text).unwrap(), score);
    }
}
