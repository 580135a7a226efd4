//! What `RUST_LOG` shows.

use crate::support::{Output, Sandbox, ended, lrvd, training};

#[test]
fn events_are_written_to_standard_error_alone() {
    let dir = Sandbox::new();
    let train = |out: &str, filter: &str| -> Output {
        let more = "--set evaluate_every=2 --method lora --format json";
        let mut command = dir.command(&training(out, 4, more));
        command.env("RUST_LOG", filter);
        let output = ended(command, "");
        assert_eq!(output.code, 0, "{}", output.stderr);
        output
    };
    // The arguments are quiet, and an empty filter is none.
    let plain = train("plain", "");
    assert_eq!(plain.stderr, "");
    let logged = train("logged", "lrvd=debug");
    let events = &logged.stderr;
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
    let keys = |output: &Output| -> Vec<String> {
        output.json().as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&logged), keys(&plain));
    let steps = train("steps", "off,lrvd_burn::train=trace").stderr;
    assert_eq!(steps.matches("TRACE lrvd_burn::train::fit: step done=").count(), 4, "{steps}");
    assert!(!steps.contains("lrvd_bench"), "{steps}");
}

#[test]
fn a_bad_filter_is_an_error_that_names_the_variable() {
    let mut command = lrvd("config show");
    command.env("RUST_LOG", "lrvd=loud");
    let output = ended(command, "");
    output.rejected("error: RUST_LOG is `lrvd=loud`: ");
    assert_eq!(output.stdout, "");
}
