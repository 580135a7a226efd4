//! Exit codes of `lrvd verify`.

use std::path::Path;

use crate::support::{done, model, run};

/// A folder that says what it is, and nothing else.
fn write_fixture(dir: &Path, kind: &str) {
    let text = format!("{{\"kind\": \"{kind}\", \"case\": \"own\"}}");
    std::fs::write(dir.join("expected.json"), text).unwrap();
}

#[test]
fn a_checkpoint_of_ones_own_holds() {
    let path = model().display().to_string();
    let output = done(&["verify", &path]);
    assert!(output.stdout.contains("hold"), "{}", output.stdout);
    let document = done(&["verify", &path, "--format", "json"]).json();
    assert_eq!((&document["schema_version"], &document["holds"]), (&1.into(), &true.into()));
    assert!(!document["checks"].as_array().unwrap().is_empty());
}

#[test]
fn what_is_not_supported_says_so() {
    let dir = tempfile::tempdir().unwrap();
    write_fixture(dir.path(), "astrology");
    let path = dir.path().display().to_string();
    let output = run(&["verify", &path]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stdout.starts_with("unsupported: "), "{}", output.stdout);
    let document = run(&["verify", &path, "--format", "json"]);
    assert_eq!(document.code, 1);
    assert!(document.json()["unsupported"].as_str().unwrap().contains("astrology"));
}

#[test]
fn broken_folders_exit_with_1_and_bad_arguments_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    for contents in [None, Some("{"), Some("{\"case\": \"x\"}")] {
        if let Some(contents) = contents {
            std::fs::write(dir.path().join("expected.json"), contents).unwrap();
        }
        let output = run(&["verify", &path]);
        assert_eq!(output.code, 1, "{contents:?}: {}", output.stderr);
        assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
    write_fixture(dir.path(), "deberta_sequence_classification");
    let output = run(&["verify", &path]);
    assert!(output.code == 1 && output.stderr.starts_with("error: "), "{}", output.stderr);
    assert_eq!(run(&["verify", &format!("{path}/none")]).code, 2);
    assert_eq!(run(&["verify", &path, "--device", "tpu"]).code, 2);
}
