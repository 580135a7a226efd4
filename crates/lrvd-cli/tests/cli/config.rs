//! Settings files from their first line to a run.

use crate::support::{done, run, train, write_data};

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
        rejected.rejected(expected);
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
    checked.rejected(expected);
    let out = dir.path().join("out");
    let trained = run(&train(&write_data(dir.path()), &out, 4, &["--config", &file]));
    trained.rejected(expected);
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
    rejected.rejected("unknown setting `stepz`");
}
