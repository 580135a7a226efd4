//! Multiple choice on a user's own data, with both kinds of model.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    difference, done, json_of, lines, model, rejected, replaced, run, run_with, train, write_data,
};

/// Rows of which every third has two choices and the others three; answers in all three ways.
fn rows(range: std::ops::Range<usize>) -> Vec<Value> {
    let kind = ["warm", "fine"];
    let unkind = ["cold", "dull", "grim"];
    range
        .map(|i| {
            let width = if i % 3 == 0 { 2 } else { 3 };
            let right = i / 2 % width;
            let word = |k: usize| if k == right { kind[i % 2] } else { unkind[(i + k) % 3] };
            let choices: Vec<String> = (0..width).map(|k| format!("a {} day", word(k))).collect();
            let answer = match i % 3 {
                0 => json!(choices[right]),
                1 => json!(["A", "B", "C"][right]),
                _ => json!(right),
            };
            let passage = format!("It was day {i}.");
            json!({ "question": format!("Which is kind ({i})?"), "choices": choices, "answer": answer, "about": passage })
        })
        .collect()
}

fn write(path: &Path, rows: &[Value]) -> String {
    let text: Vec<String> = rows.iter().map(Value::to_string).collect();
    std::fs::write(path, text.join("\n")).unwrap();
    path.display().to_string()
}

/// `quiz.jsonl` and `dev.jsonl`.
fn quiz(dir: &Path) -> [String; 2] {
    [write(&dir.join("quiz.jsonl"), &rows(0..24)), write(&dir.join("dev.jsonl"), &rows(24..36))]
}

/// A training command for questions.
fn asked(data: &[String; 2], out: &Path, is_llama: bool, more: &[&str]) -> Vec<String> {
    let arguments = replaced(&train(data, out, 6, more), "--max-length", "200");
    let llama = model().with_file_name("stories260K").display().to_string();
    if is_llama { replaced(&arguments, "--model", &llama) } else { arguments }
}

/// Trains, evaluates and predicts.
fn round_trip(is_llama: bool, more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let data = quiz(dir.path());
    let out = dir.path().join("out");
    done(&asked(&data, &out, is_llama, more));
    let info = json_of(&out.join("adapter/lrvd_classifier.json"));
    assert_eq!(info["goal"]["classes"], json!(["A", "B", "C"]));
    assert_eq!(info["columns"]["choices"], json!(["choices"]));
    assert_eq!(
        info["wording"]["answers"],
        if is_llama { json!(["A", "B", "C"]) } else { Value::Null }
    );
    let text = |path: &Path| lines(&std::fs::read_to_string(path).unwrap());
    let before = text(&out.join("predictions-last.jsonl"));
    assert_eq!(before.len(), 12);
    let labels =
        |rows: &[Value]| rows.iter().filter_map(|row| row["label"].as_f64()).collect::<Vec<_>>();
    let right = |i: usize| (i / 2 % if i.is_multiple_of(3) { 2 } else { 3 }) as f64;
    let expected: Vec<f64> = (24..36).map(right).collect();
    assert_eq!(labels(&before), expected);
    for (i, row) in (24..36).zip(&before) {
        for draws in ["0", "3"] {
            let third = row["probs"][draws][2].as_f64().unwrap();
            assert_eq!(third == 0.0, i % 3 == 0, "the third of two choices is never given: {row}");
        }
    }

    // The same rows with a column for each choice.
    let folder = out.display().to_string();
    let mut csv = "p,q,r,answer,question,about\n".to_owned();
    for row in rows(24..36) {
        let choice = |k: usize| row["choices"][k].as_str().unwrap_or_default().to_owned();
        let answer = row["answer"].as_str().map_or(row["answer"].to_string(), str::to_owned);
        let (question, about) = (row["question"].as_str().unwrap(), row["about"].as_str().unwrap());
        let [p, q, r] = [0, 1, 2].map(choice);
        writeln!(csv, "{p},{q},{r},{answer},{question},{about}").unwrap();
    }
    let table = dir.path().join("dev.csv").display().to_string();
    std::fs::write(&table, csv).unwrap();
    let again = dir.path().join("again.jsonl");
    let columns = ["--choice-columns", "p,q,r"];
    let eval =
        ["eval", &folder, "--data", &table, "--out", &again.display().to_string(), "--force"];
    let report = done(&[&eval[..], &columns, &["--format", "json"]].concat()).json();
    assert_eq!(report["metrics"]["0"]["standard"], json!({}), "{report}");
    let after = text(&again);
    assert_eq!(labels(&after), expected);
    for (b, a) in before.iter().zip(&after) {
        for draws in ["0", "3"] {
            assert!(difference(&b["probs"][draws], &a["probs"][draws]) <= 1e-6, "{b} {a}");
        }
    }

    // Answers are not read, and need not be there.
    let mut unanswered = rows(24..36);
    for row in &mut unanswered {
        row.as_object_mut().unwrap().remove("answer");
    }
    let input = write(&dir.path().join("new.jsonl"), &unanswered);
    let answers = done(&["predict", &folder, "--input", &input]).stdout;
    for (answer, row) in lines(&answers).iter().zip(&unanswered) {
        let letter = ["A", "B", "C"].iter().position(|l| *l == answer["predicted"]).unwrap();
        assert_eq!(answer["choice"], row["choices"][letter], "{answer}");
    }
    let contents = std::fs::read_to_string(&input).unwrap();
    assert_eq!(run_with(&["predict", &folder, "--jsonl"], &contents).stdout, answers);
    assert_eq!(
        done(&[&["predict", &folder, "--input", &table], &columns[..]].concat()).stdout,
        answers
    );
    let withheld = done(&["predict", &folder, "--input", &input, "--abstain-above", "0"]).stdout;
    let first = &lines(&withheld)[0];
    assert_eq!((&first["predicted"], &first["choice"]), (&Value::Null, &Value::Null));

    #[cfg(all(unix, feature = "serve"))]
    served(&folder, &unanswered, &lines(&answers), is_llama);
    let rejected = |arguments: &[&str], expected: &str| run(arguments).rejected(expected);
    rejected(
        &["predict", &folder, "Which?"],
        "answers questions with choices, and a text has none",
    );
    let wide = json!({ "question": "Which?", "choices": ["a", "b", "c", "d"], "answer": "a", "about": "x" });
    let wide = write(&dir.path().join("wide.jsonl"), &[wide]);
    let trained = "the classifier was trained on questions with 2 to 3";
    rejected(&["predict", &folder, "--input", &wide], &format!("input 1 has 4 choices, {trained}"));
    rejected(
        &["eval", &folder, "--data", &wide],
        "line 1, column `choices`: 4 choices where 2 to 3",
    );
}

/// A server answers `rows` with the numbers of `predicted`, and names the choices that a question should not have.
#[cfg(all(unix, feature = "serve"))]
fn served(folder: &str, rows: &[Value], predicted: &[Value], has_passages: bool) {
    let server = crate::serve::Server::start(folder, &[]);
    let model = server.get("/v1/model").json();
    assert_eq!((&model["kind"], &model["labels"]), (&json!("choices"), &json!(["A", "B", "C"])));
    let item = |row: &Value| {
        let mut item = json!({ "text": row["question"], "choices": row["choices"] });
        if has_passages {
            item["pair"] = row["about"].clone();
        }
        item
    };
    let inputs: Vec<Value> = rows.iter().map(item).collect();
    let reply = server.post("/v1/classify", &json!({ "inputs": inputs }).to_string());
    assert_eq!(reply.status, 200, "{}", reply.text);
    for ((answer, expected), row) in
        reply.json()["answers"].as_array().unwrap().iter().zip(predicted).zip(rows)
    {
        for name in ["predicted", "choice", "entropy", "mutual_information", "draws"] {
            assert_eq!(answer[name], expected[name], "{name}: {answer} {expected}");
        }
        let given = answer["probabilities"].as_object().unwrap();
        assert_eq!(given.len(), row["choices"].as_array().unwrap().len(), "{answer}");
        for (letter, p) in ["A", "B", "C"].iter().zip(expected["probs"].as_array().unwrap()) {
            assert_eq!(
                given.get(*letter).unwrap_or(&json!(0.0)),
                p,
                "{letter}: {answer} {expected}"
            );
        }
    }
    let mut wide = item(&rows[0]);
    wide["choices"] = json!(["a", "b", "c", "d"]);
    let rejected = server.post("/v1/classify", &wide.to_string());
    assert_eq!(rejected.status, 400, "{}", rejected.text);
    let error = &rejected.json()["error"];
    assert_eq!(error["message"], "4 choices, expected 2 to 3");
    assert_eq!(
        (&error["code"], &error["field"]),
        (&json!("choices_out_of_range"), &json!("choices"))
    );
    server.stop();
}

#[test]
fn an_encoder_answers_questions_of_few_and_many_choices() {
    round_trip(false, &["--method", "bayeslora+ts"]);
}

#[test]
fn a_language_model_answers_questions_about_a_passage() {
    round_trip(true, &["--pair-column", "about", "--choice-columns", "choices"]);
}

#[test]
fn questions_are_shown_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let [train, validation] = quiz(dir.path());
    let llama = model().with_file_name("stories260K").display().to_string();
    let check =
        ["data", "check", "--train", &train, "--validation", &validation, "--format", "json"];
    let plain = done(&check).json();
    assert_eq!(plain["splits"][0]["classes"][2][0], "C");
    let first = "Return the label of the correct answer for the question below.\n\nQuestion: Which is kind (0)?\n\
                 Choices:\nA) a warm day\nB) a dull day\nAnswer:";
    assert_eq!(plain["examples"][0], json!({ "input": first, "label": "A" }));
    let read = done(&[&check[..], &["--model", &llama, "--max-length", "200"]].concat()).json();
    assert!(
        read["examples"][0]["input"].as_str().unwrap().ends_with("B) a dull day\nAnswer:"),
        "{read}"
    );
    assert!(read["wording"].as_str().unwrap().contains(r"Choices:\nA) …\nB) …\nC) …"), "{read}");
    assert_eq!(read["splits"][0]["truncated"], 0);
}

#[test]
fn what_makes_no_question_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = quiz(dir.path());
    let out = dir.path().join("out");
    let rejected = |arguments: &[String], expected: &str| rejected(arguments, expected, &out);
    for (more, expected) in [
        (
            &["--choice-columns", "answers"][..],
            "no column `answers`; its columns are `about`, `answer`, `choices`",
        ),
        (&["--choice-columns", "question"], "column `question`: a string where a list of choices"),
        (&["--choice-columns", "choices", "--labels", "A,B"], "cannot be used with"),
        (&["--regression"], "questions with choices are answered by letters"),
        (&["--labels", "A,B,C"], "questions with choices are answered by letters"),
        (&["--template", "{text}:"], "`wording.template` is the prompt of a question for a class"),
        (&["--set", "max_length=20"], "the prompt takes"),
        (
            &[
                "--label-column",
                "about",
                "--text-column",
                "question",
                "--choice-columns",
                "choices",
            ],
            "answer `It was day 0.` is none of the choices `a warm day`, `a dull day`",
        ),
    ] {
        let arguments = asked(&data, &out, true, more);
        let arguments =
            if more[0] == "--set" { replaced(&arguments, "--max-length", "20") } else { arguments };
        rejected(&arguments, expected);
    }
    let mut rows = rows(0..4);
    rows[2]["choices"] = json!(["2", "x", "y"]);
    rows[2]["answer"] = json!(2);
    let bad = write(&dir.path().join("bad.jsonl"), &rows);
    rejected(
        &asked(&[bad, data[1].clone()], &out, false, &[]),
        "bad.jsonl`, line 3, column `answer`: answer `2` may mean `A`, `C`",
    );

    // A classifier of texts has no letters.
    let texts = write_data(dir.path());
    done(&train(&texts, &out, 1, &["--method", "lora"]));
    let folder = out.display().to_string();
    for command in [["predict", &folder, "--input"], ["eval", &folder, "--data"]] {
        let more = [&data[1], "--text-column", "question", "--choice-columns", "choices"];
        let found = run(&[&command[..], &more].concat());
        let expected = ["trained on texts without choices", "trained on questions with choices"];
        let named = expected.iter().any(|expected| found.stderr.contains(expected));
        assert!(found.code == 2 && named, "{}", found.stderr);
    }
}
