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
    dir.write("new.csv", "review\nfine\n");
    for command in ["eval out --data new.csv", "predict out --input new.csv"] {
        let expected = "new.csv` has no column `text`; its columns are `review`: name another by `--text-column`";
        dir.run(command).rejected(expected);
    }
}
