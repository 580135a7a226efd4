//! Settings files from their first line to a run.

use crate::support::{Sandbox, training};

#[test]
fn a_file_that_is_there_stays() {
    let dir = Sandbox::new();
    dir.write("run.toml", "steps = 7\n");
    for (words, expected) in [
        ("run.toml", "already exists; `--force` replaces it"),
        ("run.toml --force --preset x", "invalid value 'x' for '--preset"),
        ("run.toml --force --task x", "invalid value 'x' for '--task"),
        ("no/run.toml", "cannot create `"),
    ] {
        let rejected = dir.run(&format!("config init {words}"));
        rejected.rejected(expected);
        assert_eq!(rejected.stdout, "");
        assert_eq!(dir.text("run.toml"), "steps = 7\n", "{words}");
    }
}

#[test]
fn a_file_to_start_from_changes_nothing() {
    let dir = Sandbox::new();
    for options in ["", "--preset author-glue", "--task language"] {
        dir.done(&format!("config init --force run.toml {options}"));
        let checked = dir.done("config check run.toml --format json").json();
        assert_eq!(checked["changes"].as_array().map(Vec::len), Some(0), "{checked}");
    }
    assert!(dir.text("run.toml").contains("\nmax_length = 1024\n"));
}

#[test]
fn a_file_of_another_task_is_rejected() {
    let dir = Sandbox::new();
    dir.done("config init run.toml --task language");
    let train = training("out", 4, "--config run.toml");
    for command in ["config check run.toml --task classifier", &train] {
        let expected = "the settings file is for the task `language`, and this is `classifier`";
        dir.rejected(command, expected, "out");
    }
}

#[test]
fn a_schema_and_the_parser_reject_the_same_key() {
    let dir = Sandbox::new();
    let schema = dir.done("config schema").json();
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"].get("stepz").is_none());
    assert!(schema["properties"]["steps"]["description"].is_string());
    dir.write("run.toml", "stepz = 7\n");
    dir.run("config check run.toml").rejected("unknown setting `stepz`");
}
