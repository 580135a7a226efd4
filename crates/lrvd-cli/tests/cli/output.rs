//! Output folders, standard output and signals: files of other programs are not touched, and nothing is lost.

use crate::support::{Sandbox, training};

#[test]
fn a_folder_of_somebody_elses_is_rejected_untouched() {
    let dir = Sandbox::new();
    dir.write("out/adapter/mine.txt", "mine");
    for command in [&training("out", 2, "--resume"), "bench glue --steps 1 --out out"] {
        dir.run(command).rejected("holds `adapter` and was not made by `lrvd`");
        for (folder, name) in [("out", "adapter"), ("out/adapter", "mine.txt")] {
            let entries = std::fs::read_dir(dir.path(folder)).unwrap();
            assert!(entries.map(|entry| entry.unwrap().file_name()).eq([name]), "{command}");
        }
    }
    assert_eq!(dir.run(&training("train.tsv", 2, "")).code, 2);
}

#[test]
fn a_rejected_start_leaves_nothing_and_the_corrected_one_starts() {
    let dir = Sandbox::new();
    let out = "out/new";
    dir.rejects(include_str!("rejected/starts.txt"), |more| training("out", 2, more));
    // A suite has written its generated data by then.
    let suite = "bench glue --tasks rte --methods mcd --steps 1 --set methods.mcd.dropout=2";
    dir.rejected(&format!("{suite} --out {out}"), "mcd.dropout", "out");
    dir.train(out, 2, "");
}

#[test]
fn a_file_of_predictions_replaces_another_only_if_it_is_asked_to() {
    let dir = Sandbox::new();
    dir.train("out", 1, "--method lora");
    dir.write("answers.jsonl", "mine");
    let eval = |to: &str| format!("eval out --data dev.csv --out {to}");
    for there in ["answers.jsonl", "dev.csv"] {
        let before = dir.bytes(there);
        dir.run(&eval(there)).rejected("exists: `--force` replaces it");
        assert_eq!(dir.bytes(there), before, "{there}");
    }
    // The rows are read before their file is replaced.
    for there in ["answers.jsonl", "dev.csv"] {
        dir.done(&format!("{} --force", eval(there)));
        assert_eq!(dir.lines(there).len(), 12);
    }
    assert_eq!(dir.bytes("answers.jsonl"), dir.bytes("dev.csv"));
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_predictions_is_replaced_and_not_followed() {
    let dir = Sandbox::new();
    let file = "out/predictions-last.jsonl";
    dir.train("out", 1, "--method lora");
    dir.write("precious.txt", "mine");
    let resume = training("out", 1, "--method lora --resume");
    let eval = format!("eval out --data dev.csv --out {file} --force");
    for command in [&resume, &eval] {
        std::fs::remove_file(dir.path(file)).unwrap();
        std::os::unix::fs::symlink(dir.path("precious.txt"), dir.path(file)).unwrap();
        if command == &resume {
            // Not finished, so that the run is made again.
            std::fs::remove_file(dir.path("out/record.json")).unwrap();
        }
        dir.done(command);
        assert_eq!(dir.text("precious.txt"), "mine");
        assert!(!dir.path(file).is_symlink());
        assert_eq!(dir.lines(file).len(), 12);
    }
}

#[test]
fn many_classes_are_summed_up() {
    let dir = Sandbox::new();
    let check = |classes: usize| {
        // One row of the first class, two of the second and so on.
        let rows = (0..classes).flat_map(|class| (0..=class).map(move |row| (class, row)));
        let rows: Vec<String> = rows.map(|(c, r)| format!("text {c} {r},class {c:02}")).collect();
        dir.write("t.csv", format!("text,label\n{}\n", rows.join("\n")));
        dir.done("data check --train t.csv").stdout
    };
    let (few, many) = (check(20), check(21));
    assert_eq!(few.matches("class `class").count(), 20, "{few}");
    assert_eq!(many.matches("class `class").count(), 6, "{many}");
    let rows = "rows of a class: least, median, 95 %, most";
    for expected in ["classes", rows, "`class 20`", "`class 00`"] {
        assert!(many.contains(expected), "{expected}: {many}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let dir = Sandbox::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = dir.command("inspect @nano").stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: cannot write to standard output: "), "{stderr}");
    let mut closed = dir.start("inspect @nano");
    drop(closed.stdout.take());
    assert_eq!(closed.wait().unwrap().code(), Some(0));
}
