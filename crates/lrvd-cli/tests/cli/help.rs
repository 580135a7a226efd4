//! Every command explains itself.

use crate::support::{done, run};

const COMMANDS: [&[&str]; 16] = [
    &["train"],
    &["data", "check"],
    &["eval"],
    &["predict"],
    &["generate"],
    &["serve"],
    &["abstain", "fit"],
    &["config", "init"],
    &["config", "show"],
    &["config", "check"],
    &["config", "schema"],
    &["inspect"],
    &["export"],
    &["bench", "glue"],
    &["bench", "reasoning"],
    &["completions"],
];

#[test]
fn every_command_has_help_with_examples() {
    let top = done(&["--help"]).stdout;
    for command in COMMANDS {
        assert!(top.contains(command[0]), "{command:?}");
        let help = done(&[command, &["--help"]].concat()).stdout;
        assert!(help.contains("Usage: lrvd"), "{command:?}");
        let name = format!("lrvd {}", command.join(" "));
        let taught = command[0] == "completions"
            || (help.contains("Examples:") && help.matches(&name).count() >= 3);
        assert!(taught, "{command:?}: {help}");
    }
    assert!(done(&["--version"]).stdout.starts_with("lrvd "));
}

#[test]
fn bad_arguments_exit_with_2_and_nothing_on_standard_output() {
    let bad: [&[&str]; 10] = [
        &[],
        &["tune"],
        &["train", "--model", "m"],
        &["train", "--model", "m", "--train", "t.tsv", "--validation-split", "1"],
        &["train", "--model", "m", "--train", "t.tsv", "--epochs", "1", "--steps", "2"],
        &["train", "--model", "m", "--task", "sst2"],
        &["inspect"],
        &["inspect", "--precision", "f16", "."],
        &["export", "x", "--out", "y"],
        &["predict"],
    ];
    for arguments in bad {
        let output = run(arguments);
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = done(&["completions", shell]).stdout;
        for command in COMMANDS {
            assert!(script.contains(command[0]), "{shell} {command:?}");
        }
    }
}
