//! Output folders, standard output and signals: files of other programs are not touched, and nothing is lost.

use std::path::Path;

use crate::support::{borrowed, done, lines, model, replaced, run, train, write_data};

/// Names in a folder.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_of_somebody_elses_is_rejected_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    std::fs::create_dir_all(out.join("adapter")).unwrap();
    std::fs::write(out.join("adapter/mine.txt"), "mine").unwrap();
    let arguments = train(&data, &out, 2, &[]);
    let suite = [
        "bench",
        "glue",
        "--steps",
        "1",
        "--preset",
        "constant-weight",
        "--out",
        &out.display().to_string(),
    ];
    for name in ["adapter", "data"] {
        for command in [&borrowed(&arguments)[..], &suite] {
            for more in [&[][..], &["--resume"]] {
                let rejected = run(&[command, more].concat());
                assert_eq!(rejected.code, 2, "{}", rejected.stderr);
                let expected = format!("holds `{name}` and was not made by `lrvd`");
                assert!(rejected.stderr.contains(&expected), "{}", rejected.stderr);
                assert_eq!((names(&out), names(&out.join(name)).len()), (vec![name.to_owned()], 1));
            }
        }
        // Generated data are not mistaken either.
        if name == "adapter" {
            std::fs::rename(out.join("adapter"), out.join("data")).unwrap();
        }
    }
    let file = replaced(&arguments, "--out", &data[0]);
    assert_eq!(run(&file).code, 2);
}

#[test]
fn a_rejected_start_leaves_nothing_and_the_corrected_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("new/out");
    let llama = model().with_file_name("stories260K").display().to_string();
    let rejected = |arguments: &[String], expected: &str| {
        let found = run(arguments);
        found.rejected(expected);
        assert!(!dir.path().join("new").exists(), "{expected} left {:?}", names(&out));
    };
    for (more, expected) in [
        (&["--set", "target_modules=[\"nothing\"]"][..], "nothing"),
        (&["--set", "base_precision=f16"], "single precision"),
        (&["--method", "mcd", "--set", "methods.mcd.dropout=2"], "mcd.dropout"),
        (&["--method", "map", "--set", "methods.map.xyz=1"], "xyz"),
        (&["--method", "adalora", "--target-rank", "0"], "target"),
        (&["--method", "adalora", "--set", "adalora.initial=0.9"], ""),
        (&["--method", "lrvd-nts", "--set", "methods.lrvd-nts.learning_rate=-1"], "lrvd-nts"),
        (&["--method", "lrvd-ard", "--set", "methods.lrvd-ard.scales=one"], "lrvd-ard"),
        (&["--set", "lora_alpha=-1"], "lora_alpha"),
        (&["--set", "adapter_dropout=2"], "dropout"),
        (&["--set", "log_variance.initial=99"], "initial"),
        (&["--set", "bucketing={length_bucketed={window=0}}"], "window"),
    ] {
        rejected(&train(&data, &out, 2, more), expected);
    }
    let worded = replaced(&train(&data, &out, 2, &[]), "--model", &llama);
    rejected(&worded, "task `train`: the answer `bad` is 2 tokens after the prompt");
    let whole_batches = train(&data, &out, 2, &["--set", "last_batch=drop"]);
    rejected(&replaced(&whole_batches, "--batch-size", "64"), "at least 64");

    // A suite has written its generated data by then.
    let name = out.display().to_string();
    let suite =
        ["bench", "glue", "--tasks", "rte", "--methods", "mcd", "--steps", "1", "--out", &name];
    let wrong = ["--set", "methods.mcd.dropout=2"].map(str::to_owned);
    let all: Vec<String> = suite.map(str::to_owned).into_iter().chain(wrong).collect();
    rejected(&all, "mcd.dropout");
    done(&train(&data, &out, 2, &[]));
}

#[test]
fn a_file_of_predictions_replaces_another_only_if_it_is_asked_to() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let out = dir.path().join("out");
    done(&train(&data, &out, 1, &["--method", "lora"]));
    let name = out.display().to_string();
    let file = dir.path().join("answers.jsonl");
    std::fs::write(&file, "mine").unwrap();
    let answers = file.display().to_string();
    let eval = |to: &str, more: &[&str]| {
        run(&[&["eval", &name, "--data", &data[1], "--out", to], more].concat())
    };
    for there in [&answers, &data[1]] {
        let before = std::fs::read(there).unwrap();
        eval(there, &[]).rejected("exists: `--force` replaces it");
        assert_eq!(std::fs::read(there).unwrap(), before, "{there}");
    }
    assert_eq!(eval(&answers, &["--force"]).code, 0);
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines(&written).len(), 12);
    // The rows are read before their file is replaced.
    assert_eq!(eval(&data[1], &["--force"]).code, 0);
    assert_eq!(std::fs::read_to_string(&data[1]).unwrap(), written);
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_predictions_is_replaced_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let (out, precious) = (dir.path().join("out"), dir.path().join("precious.txt"));
    let arguments = train(&data, &out, 1, &["--method", "lora"]);
    done(&arguments);
    std::fs::write(&precious, "mine").unwrap();
    let file = out.join("predictions-last.jsonl");
    let linked = |make: &dyn Fn() -> Vec<String>| {
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&precious, &file).unwrap();
        done(&make());
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        assert!(!file.is_symlink());
        assert_eq!(lines(&std::fs::read_to_string(&file).unwrap()).len(), 12);
    };
    linked(&|| {
        // Not finished, so that the run is made again.
        std::fs::remove_file(out.join("record.json")).unwrap();
        [&arguments[..], &["--resume".to_owned()]].concat()
    });
    let [name, to] = [&out, &file].map(|path| path.display().to_string());
    let eval = ["eval", &name, "--data", &data[1], "--out", &to, "--force"];
    linked(&|| eval.map(str::to_owned).to_vec());
}

#[test]
fn many_classes_are_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let check = |classes: usize| {
        let file = dir.path().join("t.csv");
        // One row of the first class, two of the second and so on.
        let rows = (0..classes).flat_map(|class| (0..=class).map(move |row| (class, row)));
        let rows: Vec<String> = rows.map(|(c, r)| format!("text {c} {r},class {c:02}")).collect();
        std::fs::write(&file, format!("text,label\n{}\n", rows.join("\n"))).unwrap();
        done(&["data", "check", "--train", &file.display().to_string()]).stdout
    };
    let (few, many) = (check(20), check(21));
    assert_eq!(few.matches("class `class").count(), 20, "{few}");
    assert_eq!(many.matches("class `class").count(), 6, "{many}");
    for expected in
        ["classes", "rows of a class: least, median, 95 %, most", "`class 20`", "`class 00`"]
    {
        assert!(many.contains(expected), "{expected}: {many}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    use std::process::{Command, Stdio};
    let lrvd = |stdout: Stdio| {
        let folder = model().display().to_string();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("lrvd"));
        command.args(["inspect", &folder]).stdout(stdout).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = lrvd(full.into()).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write to standard output: "), "{stderr}");
    let mut closed = lrvd(Stdio::piped());
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(0));
}
