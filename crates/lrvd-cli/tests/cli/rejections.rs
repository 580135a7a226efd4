//! What cannot be used is named, and exits with 2.

use crate::support::{Sandbox, training};

/// Expects an error on standard error alone, with these words, and no `out`.
#[track_caller]
fn rejected(dir: &Sandbox, words: &str, expected: &str) {
    let output = dir.run(words);
    output.rejected(expected);
    let starts = output.stderr.starts_with("error: ");
    assert!(starts && output.stdout.is_empty(), "{words}: {}{}", output.stderr, output.stdout);
    assert!(!dir.exists("out"), "{words} left an output folder");
}

#[test]
fn settings_and_names_that_do_not_exist() {
    let dir = Sandbox::new();
    dir.write("c.toml", "[prune]\nthreshold = 4.0\n");
    dir.rejects(include_str!("rejected/settings.txt"), |more| training("out", 4, more));
    let endless = training("out", 4, "--epochs 1e300").replace("--steps 4 ", "");
    let limit = "`--epochs 1e300` is 8.000e300 steps of 4 rows, the limit is 1e9";
    rejected(&dir, &endless, limit);
    rejected(&dir, "config check c.toml", "unknown setting `prune.threshold`");
    rejected(&dir, "config show --preset best", "invalid value 'best' for '--preset");
    let shown = dir.done("config show --set gradient_clip=none --set steps=60");
    dir.write("own.toml", shown.stdout);
    let checked = dir.done("config check own.toml --format json").json();
    let changes = checked["changes"].as_array().unwrap().iter();
    let keys: Vec<&str> = changes.filter_map(|change| change["key"].as_str()).collect();
    assert_eq!(keys, ["evaluate_every", "gradient_clip", "steps"]);
}

#[test]
fn arguments_that_make_no_sense() {
    Sandbox::new().rejects(include_str!("rejected/arguments.txt"), str::to_owned);
}

#[test]
fn arms_that_cannot_run() {
    let dir = Sandbox::new();
    let arms = "bench glue --dry-run --arms arms.toml";
    rejected(&dir, arms, "arms.toml");
    let head = "[[arm]]\nname = \"warm\"\nmethod = ";
    for (text, expected) in [
        ("arm = []".to_owned(), "expected at least one arm"),
        (format!("{head}\"lorra\""), "did you mean `lora`?"),
        (format!("{head}\"lora\"\nsteps = 3"), "unknown field `steps`"),
        (format!("{head}\"lora\"\nsettings = {{ kl_wait = 1 }}"), "arm `warm`"),
        (format!("{head}\"lora\"\n{head}\"lora\""), "arm `warm` is given twice"),
        (format!("{head}\"lora\"\n[[compare]]\narms = [\"warm\", \"cold\"]"), "unknown arm `cold`"),
        (format!("tasks = [\"obqa\"]\n{head}\"lora\""), "unknown task `obqa`"),
    ] {
        dir.write("arms.toml", text);
        rejected(&dir, arms, expected);
    }
}

#[test]
fn folders_that_hold_nothing() {
    let dir = Sandbox::new();
    std::fs::create_dir(dir.path("empty")).unwrap();
    dir.rejects(include_str!("rejected/folders.txt"), str::to_owned);
}
