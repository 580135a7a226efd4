//! Settings files from their first line to a run.

use serde_json::json;

use crate::support::{borrowed, done, run, train, write_data};

#[test]
fn a_file_to_begin_with_passes_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let path = file.display().to_string();
    for task in ["classifier", "language"] {
        for preset in ["default", "constant-weight", "paper-glue", "author-glue"] {
            done(&["config", "init", &path, "--preset", preset, "--task", task, "--force"]);
            let checked = done(&["config", "check", &path, "--format", "json"]).json();
            let expected =
                json!({ "schema_version": 1, "task": task, "preset": preset, "changes": [] });
            assert_eq!(checked, expected);
            let shown = done(&["config", "show", "--config", &path]).stdout;
            assert_eq!(shown, done(&["config", "show", "--task", task, "--preset", preset]).stdout);
        }
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("#:schema ./lrvd.schema.json\n"), "{text}");
    assert!(text.contains("\n# Longest encoded input.\nmax_length = 1024\n"), "{text}");
}

#[test]
fn a_file_that_is_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    std::fs::write(&file, "steps = 7\n").unwrap();
    let path = file.display().to_string();
    let rejected = run(&["config", "init", &path]);
    assert_eq!((rejected.code, rejected.stdout.as_str()), (2, ""));
    assert!(
        rejected.stderr.contains("already exists; `--force` replaces it"),
        "{}",
        rejected.stderr
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "steps = 7\n");
    for (option, expected) in [("--preset", "unknown preset `x`"), ("--task", "unknown task `x`")] {
        let rejected = run(&["config", "init", &path, "--force", option, "x"]);
        assert!(rejected.code == 2 && rejected.stderr.contains(expected), "{}", rejected.stderr);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "steps = 7\n");
    let nowhere = dir.path().join("no/run.toml").display().to_string();
    let rejected = run(&["config", "init", &nowhere]);
    assert!(rejected.stderr.contains("cannot create `"), "{}", rejected.stderr);
}

#[test]
fn a_file_of_another_task_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml").display().to_string();
    done(&["config", "init", &file, "--task", "language"]);
    let expected = "the settings file is for the task `language`, and this is `classifier`";
    let checked = run(&["config", "check", &file, "--task", "classifier"]);
    assert!(checked.code == 2 && checked.stderr.contains(expected), "{}", checked.stderr);
    let out = dir.path().join("out");
    let trained = run(&borrowed(&train(&write_data(dir.path()), &out, 4, &["--config", &file])));
    assert!(trained.code == 2 && trained.stderr.contains(expected), "{}", trained.stderr);
    assert!(!out.exists());
}

#[test]
fn a_schema_and_the_parser_reject_the_same_key() {
    let schema = done(&["config", "schema"]).json();
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"].get("stepz").is_none());
    assert!(schema["properties"]["steps"]["description"].is_string());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    std::fs::write(&file, "stepz = 7\n").unwrap();
    let rejected = run(&["config", "check", &file.display().to_string()]);
    assert!(rejected.code == 2 && rejected.stderr.contains("unknown setting `stepz`"));
}
