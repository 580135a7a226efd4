//! What `RUST_LOG` shows.

use crate::support::{lrvd, train, write_data};

#[test]
fn events_are_written_to_standard_error_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let run = |out: &str, filter: Option<&str>| {
        let more = ["--set", "evaluate_every=2", "--method", "lora", "--format", "json"];
        let mut command = lrvd();
        command.args(train(&data, &dir.path().join(out), 4, &more));
        filter.map(|filter| command.env("RUST_LOG", filter));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{}", text(output.stderr));
        (text(output.stdout), text(output.stderr))
    };
    let (plain, silent) = run("plain", None);
    // The arguments are quiet.
    assert_eq!(silent, "");
    let (logged, events) = run("logged", Some("lrvd=debug"));
    for expected in [
        ["DEBUG lrvd_burn::files::tensor_file: opened file=", "model.safetensors bytes="],
        ["DEBUG lrvd_bench::data::table: opened file=", "train.tsv bytes="],
        ["DEBUG lrvd_burn::model: attached adapters layers=", "query_proj"],
        ["DEBUG lrvd_burn::train::fit: first batches step=0 rows=[4] tokens=[", "]"],
        ["DEBUG lrvd_burn::train::checkpoint: wrote a checkpoint folder=", "step-00000004"],
    ] {
        let found = |line: &str| expected.iter().all(|part| line.contains(part));
        assert!(events.lines().any(found), "{expected:?}: {events}");
    }
    assert!(!events.contains("TRACE") && !events.contains('\u{1b}'), "{events}");
    let keys = |text: &str| -> Vec<String> {
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        json.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&logged), keys(&plain));
    let (_, steps) = run("steps", Some("off,lrvd_burn::train=trace"));
    assert_eq!(steps.matches("TRACE lrvd_burn::train::fit: step done=").count(), 4, "{steps}");
    assert!(!steps.contains("lrvd_bench"), "{steps}");
}

#[test]
fn a_bad_filter_is_an_error_that_names_the_variable() {
    let output = lrvd().env("RUST_LOG", "lrvd=loud").args(["config", "show"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(error.starts_with("error: RUST_LOG is `lrvd=loud`: "), "{error}");
    let empty = lrvd().env("RUST_LOG", "").args(["config", "show"]).output().unwrap();
    assert!(empty.status.success() && empty.stderr.is_empty());
}
