//! What cannot be used is named, and exits with 2.

use std::path::Path;

use crate::support::{done, replaced, run, train, write_data};

fn rejected<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(arguments: &[S], expected: &str) {
    let output = run(arguments);
    assert_eq!(output.code, 2, "{arguments:?}: {}", output.stderr);
    let first = output.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("error: ") && output.stderr.contains(expected), "{}", output.stderr);
    assert_eq!(output.stdout, "", "{arguments:?}");
}

#[test]
fn settings_and_names_that_do_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    let rejected_with = |more: &[&str], expected: &str| {
        rejected(&train(&data, &out, 4, more), expected);
        assert!(!out.exists(), "{more:?} left an output folder");
    };
    rejected_with(
        &["--set", "kl_wait=1"],
        "unknown setting `kl_wait`; expected one of `accumulation`",
    );
    rejected_with(&["--set", "prune.every=often"], "setting `prune.every` cannot be `often`");
    rejected_with(&["--set", "prune.every=2"], "prune.every");
    rejected_with(
        &["--set", "draws=[1000000000]"],
        "setting `draws` is 1000000000, expected 1 to 10000",
    );
    let wide = replaced(&train(&data, &out, 4, &[]), "--rank", "193");
    rejected(&wide, "rank 193 is above 192, the smaller width of layer `");
    let endless = train(&data, &out, 4, &["--epochs", "1e300"]);
    let at = endless.iter().position(|word| word == "--steps").unwrap();
    let endless = [&endless[..at], &endless[at + 2..]].concat();
    rejected(&endless, "`--epochs 1e300` is 8.000e300 steps of 4 rows, the limit is 1e9");
    rejected_with(&["--method", "bora"], "unknown method `bora`; expected one of `LoRA`");
    let best = replaced(&train(&data, &out, 4, &[]), "--preset", "best");
    rejected(&best, "unknown preset `best`");
    rejected_with(&["--device", "tpu"], "tpu");
    rejected_with(&["--target-rank", "2"], "adalora");
    rejected_with(&["--text-column", "body"], "no column `body`; its columns are `text`, `label`");
    rejected_with(
        &["--labels", "good,evil"],
        "unknown label `bad`, expected one of `good`, `evil`",
    );
    let config = dir.path().join("c.toml");
    std::fs::write(&config, "[prune]\nthreshold = 4.0\n").unwrap();
    let config = config.display().to_string();
    rejected_with(&["--config", &config], "unknown setting `prune.threshold`");
    rejected(&["config", "check", &config], "unknown setting `prune.threshold`");
    rejected(&["config", "show", "--preset", "best"], "unknown preset `best`");
    let shown = done(&["config", "show", "--set", "gradient_clip=none", "--set", "steps=60"]);
    let own = dir.path().join("own.toml");
    std::fs::write(&own, shown.stdout).unwrap();
    let checked = done(&["config", "check", &own.display().to_string(), "--format", "json"]).json();
    let keys: Vec<&str> =
        checked["changes"].as_array().unwrap().iter().filter_map(|c| c["key"].as_str()).collect();
    assert_eq!(keys, ["evaluate_every", "gradient_clip", "steps"]);
    for (model, expected) in
        [("no/such-model", "HF_HUB_OFFLINE is set"), ("nowhere", "model `nowhere`: no such folder")]
    {
        let arguments = replaced(&train(&data, &out, 4, &[]), "--model", model);
        rejected(&arguments, expected);
        assert!(!out.exists(), "{model}");
    }
}

#[test]
fn arms_that_cannot_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("arms.toml");
    let path = file.display().to_string();
    let arms = ["bench", "glue", "--dry-run", "--arms", &path];
    rejected(&arms, "arms.toml");
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
        std::fs::write(&file, text).unwrap();
        rejected(&arms, expected);
    }
}

#[test]
fn folders_that_hold_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    rejected(&["eval", &path, "--data", "x.tsv"], "holds no adapter; looked for");
    rejected(&["predict", &path, "text"], "holds no adapter");
    rejected(&["inspect", &path], "holds no adapter or checkpoint");
    let absent = format!("{path}/absent");
    for command in [
        &["eval", &absent, "--data", "x.tsv"][..],
        &["predict", &absent, "text"],
        &["inspect", &absent],
        &["inspect", &absent, "--check"],
    ] {
        rejected(command, "there is no folder `");
    }
    rejected(&["export", "--to", "peft", &path, "--out", &path], "already exists");
    let out = Path::new(&path).join("out").display().to_string();
    rejected(&["export", "--to", "peft", &path, "--out", &out], "holds no adapter");
    rejected(&["export", "--to", "peft", &absent, "--out", &out], "there is no folder `");
}
