//! Files of other tools, as they are.

use std::path::Path;

use serde_json::json;

use crate::support::{borrowed, done, rejected, replaced, run, train, write_data};

fn write(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn a_column_of_another_usual_name_is_taken_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_data(dir.path());
    let rows: Vec<String> = (0..12)
        .map(|i| format!("card number {i}, please,{}\n", ["lost", "late", "fees"][i % 3]))
        .map(|row| row.replacen("card", "\"card", 1).replacen(", please", ", please\"", 1))
        .collect();
    let file = write(dir.path(), "banking.csv", &format!("text,category\n{}", rows.concat()));
    let taken =
        "banking.csv`: column `category` is read as the label (`--label-column` names another)";
    let checked = done(&["data", "check", "--train", &file, "--format", "json"]);
    assert!(checked.stderr.contains(taken), "{}", checked.stderr);
    let classes = &checked.json()["splits"][0]["classes"];
    assert_eq!(classes.as_array().unwrap().len(), 3, "{classes}");

    let out = dir.path().join("out");
    let command =
        replaced(&train(&[file.clone(), file.clone()], &out, 2, &[]), "--batch-size", "2");
    let loud: Vec<&str> =
        borrowed(&command).into_iter().filter(|word| *word != "--quiet").collect();
    let trained = done(&loud);
    assert!(trained.stderr.contains(taken), "{}", trained.stderr);
    let settings = std::fs::read_to_string(out.join("settings.json")).unwrap();
    let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
    assert_eq!(settings["columns"], json!({ "text": "text", "pair": null, "label": "category" }));
    assert_eq!(settings["goal"]["classes"], json!(["fees", "late", "lost"]));
    // The saved classifier knows its columns, and a file without them is an error that names the option.
    let adapter = out.display().to_string();
    done(&["eval", &adapter, "--data", &file]);
    let new = write(dir.path(), "new.csv", "review\nfine\n");
    for (command, option) in [("eval", "--data"), ("predict", "--input")] {
        run(&[command, &adapter, option, &new]).rejected(
            "new.csv` has no column `text`; its columns are `review`: name another by `--text-column`",
        );
    }

    let other = write(dir.path(), "other.csv", "text,mood\na,b\nc,d\n");
    let none = dir.path().join("none");
    rejected(
        &train(&[other, data[1].clone()], &none, 2, &[]),
        "other.csv` has no column `label`; its columns are `text`, `mood`: name another by `--label-column`",
        &none,
    );
    let both = write(dir.path(), "both.csv", "text,intent,class\na,b,c\n");
    run(&["data", "check", "--train", &both])
        .rejected("`intent` and `class` may be the label: name it by `--label-column`");
}

#[test]
fn separators_and_arrays_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let header = ["text", "label"];
    let row = |i: usize| [format!("a, b {i}"), ["yes", "no"][i % 2].to_owned()];
    let table = |separator: &str| {
        let rows: Vec<String> = (0..20).map(|i| row(i).join(separator)).collect();
        format!("{}\n{}\n", header.join(separator), rows.join("\n"))
    };
    let objects: Vec<_> =
        (0..20).map(|i| json!({ "text": row(i)[0], "label": row(i)[1] })).collect();
    let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
    for (name, text) in [
        ("a.csv", table(";")),
        ("b.csv", table("|")),
        ("c.json", json!(objects).to_string()),
        ("d.json", lines.join("\n")),
    ] {
        let file = write(dir.path(), name, &text);
        let report = done(&["data", "check", "--train", &file, "--format", "json"]).json();
        let splits = &report["splits"];
        assert_eq!((&splits[0]["rows"], &splits[1]["rows"]), (&json!(18), &json!(2)), "{name}");
        assert!(report["examples"][0]["input"].as_str().unwrap().starts_with("a, b"), "{name}");
    }
}

#[test]
fn conversations_of_other_tools_are_texts_for_a_language_model() {
    let dir = tempfile::tempdir().unwrap();
    let share = |i: usize| {
        json!({ "id": i, "conversations": [
            { "from": "human", "value": format!("Hi {i}") }, { "from": "gpt", "value": "Yes?" },
        ] })
    };
    let alpaca =
        |i: usize| json!({ "instruction": format!("Add {i}."), "input": "1 2", "output": "3" });
    let shared = json!((0..10).map(share).collect::<Vec<_>>()).to_string();
    let instructions = json!((0..10).map(alpaca).collect::<Vec<_>>()).to_string();
    for (name, text, note, columns, first) in [
        (
            "share.json",
            shared,
            "column `conversations` is read as conversations",
            json!({ "chat": { "messages": "conversations" } }),
            json!([["user: Hi 0\n", false], ["assistant: Yes?\n", true]]),
        ),
        (
            "alpaca.json",
            instructions,
            "columns `instruction`, `input` and `output` are read as conversations",
            json!("instructions"),
            json!([["user: Add 0.\n\n1 2\n", false], ["assistant: 3\n", true]]),
        ),
    ] {
        let file = write(dir.path(), name, &text);
        let checked =
            done(&["data", "check", "--train", &file, "--validation", &file, "--format", "json"]);
        assert!(checked.stderr.contains(note), "{}", checked.stderr);
        let report = checked.json();
        assert_eq!((&report["columns"], &report["examples"][0]), (&columns, &first));
    }
}
