//! Files of other tools, as they are.

use serde_json::json;

use crate::support::{Sandbox, training};

#[test]
fn a_column_of_another_usual_name_is_taken_and_said() {
    let dir = Sandbox::new();
    let row =
        |i: usize| format!("\"card number {i}, please\",{}\n", ["lost", "late", "fees"][i % 3]);
    let rows: String = (0..12).map(row).collect();
    dir.write("banking.csv", format!("text,category\n{rows}"));
    let taken =
        "banking.csv`: column `category` is read as the label (`--label-column` names another)";
    let checked = dir.done("data check --train banking.csv --format json");
    assert!(checked.stderr.contains(taken), "{}", checked.stderr);
    let classes = &checked.json()["splits"][0]["classes"];
    assert_eq!(classes.as_array().unwrap().len(), 3, "{classes}");

    let more = "--train banking.csv --validation banking.csv --batch-size 2";
    let trained = dir.done(&training("out", 2, more).replace("--quiet ", ""));
    assert!(trained.stderr.contains(taken), "{}", trained.stderr);
    let settings = dir.json("out/settings.json");
    assert_eq!(settings["columns"], json!({ "text": "text", "pair": null, "label": "category" }));
    assert_eq!(settings["goal"]["classes"], json!(["fees", "late", "lost"]));
    // The saved classifier knows its columns, and a file without them is an error that names the option.
    dir.done("eval out --data banking.csv");
    for (name, text) in [
        ("new.csv", "review\nfine\n"),
        ("other.csv", "text,mood\na,b\nc,d\n"),
        ("both.csv", "text,intent,class\na,b,c\n"),
    ] {
        dir.write(name, text);
    }
    let text =
        "new.csv` has no column `text`; its columns are `review`: name another by `--text-column`";
    let label = "other.csv` has no column `label`; its columns are `text`, `mood`: name another by `--label-column`";
    let both = "`intent` and `class` may be the label: name it by `--label-column`";
    for (command, expected) in [
        ("eval out --data new.csv", text),
        ("predict out --input new.csv", text),
        (&training("none", 2, "--train other.csv"), label),
        ("data check --train both.csv", both),
    ] {
        dir.rejected(command, expected, "none");
    }
}

#[test]
fn separators_and_arrays_are_found() {
    let dir = Sandbox::new();
    let row = |i: usize| [format!("a, b {i}"), ["yes", "no"][i % 2].to_owned()];
    let table = |separator: &str| {
        let rows: Vec<String> = (0..20).map(|i| row(i).join(separator)).collect();
        format!("text{separator}label\n{}\n", rows.join("\n"))
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
        dir.write(name, text);
        let report = dir.done(&format!("data check --train {name} --format json")).json();
        let splits = &report["splits"];
        assert_eq!((&splits[0]["rows"], &splits[1]["rows"]), (&json!(18), &json!(2)), "{name}");
        assert!(report["examples"][0]["input"].as_str().unwrap().starts_with("a, b"), "{name}");
    }
}

#[test]
fn conversations_of_other_tools_are_texts_for_a_language_model() {
    let dir = Sandbox::new();
    let share = |i: usize| {
        json!({ "id": i, "conversations": [
            { "from": "human", "value": format!("Hi {i}") }, { "from": "gpt", "value": "Yes?" },
        ] })
    };
    let alpaca =
        |i: usize| json!({ "instruction": format!("Add {i}."), "input": "1 2", "output": "3" });
    for (rows, note, columns, first) in [
        (
            json!((0..10).map(share).collect::<Vec<_>>()),
            "column `conversations` is read as conversations",
            json!({ "chat": { "messages": "conversations" } }),
            json!([["user: Hi 0\n", false], ["assistant: Yes?\n", true]]),
        ),
        (
            json!((0..10).map(alpaca).collect::<Vec<_>>()),
            "columns `instruction`, `input` and `output` are read as conversations",
            json!("instructions"),
            json!([["user: Add 0.\n\n1 2\n", false], ["assistant: 3\n", true]]),
        ),
    ] {
        dir.write("t.json", rows.to_string());
        let checked = dir.done("data check --train t.json --validation t.json --format json");
        assert!(checked.stderr.contains(note), "{}", checked.stderr);
        let report = checked.json();
        assert_eq!((&report["columns"], &report["examples"][0]), (&columns, &first));
    }
}
