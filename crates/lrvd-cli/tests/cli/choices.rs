//! Multiple choice on a user's own data, with both kinds of model.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::{Sandbox, assert_same_answers, training, with};

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

fn write(dir: &Sandbox, name: &str, rows: &[Value]) {
    dir.write(name, rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
}

/// A folder with `quiz.jsonl` and `dev.jsonl`.
fn quiz() -> Sandbox {
    let dir = Sandbox::new();
    write(&dir, "quiz.jsonl", &rows(0..24));
    write(&dir, "dev.jsonl", &rows(24..36));
    dir
}

/// A training command for questions.
fn questions(more: &str) -> String {
    let usual = "--train quiz.jsonl --validation dev.jsonl --max-length 200";
    training("out", 6, &with(usual, more))
}

/// Trains, evaluates and predicts.
fn round_trip(is_llama: bool, more: &str) {
    let dir = quiz();
    dir.done(&questions(more));
    let info = dir.json("out/adapter/lrvd_classifier.json");
    let letters = json!(["A", "B", "C"]);
    assert_eq!(info["goal"]["classes"], letters);
    assert_eq!(info["columns"]["choices"], json!(["choices"]));
    let answers = &info["wording"]["answers"];
    assert_eq!(answers, if is_llama { &letters } else { &Value::Null });
    let before = dir.lines("out/predictions-last.jsonl");
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
    let mut csv = "p,q,r,answer,question,about\n".to_owned();
    for row in rows(24..36) {
        let choice = |k: usize| row["choices"][k].as_str().unwrap_or_default().to_owned();
        let answer = row["answer"].as_str().map_or(row["answer"].to_string(), str::to_owned);
        let (question, about) = (row["question"].as_str().unwrap(), row["about"].as_str().unwrap());
        let [p, q, r] = [0, 1, 2].map(choice);
        writeln!(csv, "{p},{q},{r},{answer},{question},{about}").unwrap();
    }
    dir.write("table.csv", csv);
    let columns = "--choice-columns p,q,r";
    let eval =
        format!("eval out --data table.csv --out again.jsonl --force {columns} --format json");
    let report = dir.done(&eval).json();
    assert_eq!(report["metrics"]["0"]["standard"], json!({}), "{report}");
    let after = dir.lines("again.jsonl");
    assert_eq!(labels(&after), expected);
    assert_same_answers(&before, &after);

    // Answers are not read, and need not be there.
    let mut unanswered = rows(24..36);
    for row in &mut unanswered {
        row.as_object_mut().unwrap().remove("answer");
    }
    write(&dir, "new.jsonl", &unanswered);
    let predict = |more: &str| dir.done(&format!("predict out {more}"));
    let answers = predict("--input new.jsonl");
    for (answer, row) in answers.lines().iter().zip(&unanswered) {
        let letter = ["A", "B", "C"].iter().position(|l| *l == answer["predicted"]).unwrap();
        assert_eq!(answer["choice"], row["choices"][letter], "{answer}");
    }
    let piped = dir.run_with("predict out --jsonl", &dir.text("new.jsonl"));
    assert_eq!(piped.stdout, answers.stdout);
    assert_eq!(predict(&format!("--input table.csv {columns}")).stdout, answers.stdout);
    let withheld = &predict("--input new.jsonl --abstain-above 0").lines()[0];
    assert_eq!((&withheld["predicted"], &withheld["choice"]), (&Value::Null, &Value::Null));

    #[cfg(all(unix, feature = "serve"))]
    served(&dir, &unanswered, &answers.lines(), is_llama);
    let wide = json!({ "question": "Which?", "choices": ["a", "b", "c", "d"], "answer": "a", "about": "x" });
    write(&dir, "wide.jsonl", &[wide]);
    for (command, expected) in [
        ("predict out Which?", "answers questions with choices, and a text has none"),
        (
            "predict out --input wide.jsonl",
            "input 1 has 4 choices, the classifier was trained on questions with 2 to 3",
        ),
        ("eval out --data wide.jsonl", "line 1, column `choices`: 4 choices where 2 to 3"),
    ] {
        dir.run(command).rejected(expected);
    }
}

/// A server answers `rows` with the numbers of `predicted`, and names the choices that a question should not have.
#[cfg(all(unix, feature = "serve"))]
fn served(dir: &Sandbox, rows: &[Value], predicted: &[Value], has_passages: bool) {
    let server = crate::serve::Server::start(dir, "out");
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
    let reply = reply.json();
    for ((answer, expected), row) in
        reply["answers"].as_array().unwrap().iter().zip(predicted).zip(rows)
    {
        for name in ["predicted", "choice", "entropy", "mutual_information", "draws"] {
            assert_eq!(answer[name], expected[name], "{name}: {answer} {expected}");
        }
        let given = answer["probabilities"].as_object().unwrap();
        assert_eq!(given.len(), row["choices"].as_array().unwrap().len(), "{answer}");
        for (letter, p) in ["A", "B", "C"].iter().zip(expected["probs"].as_array().unwrap()) {
            assert_eq!(given.get(*letter).unwrap_or(&json!(0.0)), p, "{answer} {expected}");
        }
    }
    let mut wide = item(&rows[0]);
    wide["choices"] = json!(["a", "b", "c", "d"]);
    let error = server.rejected("/v1/classify", &wide, 400, "choices_out_of_range");
    let found = (&error["message"], &error["field"]);
    assert_eq!(found, (&json!("4 choices, expected 2 to 3"), &json!("choices")));
    server.stop();
}

#[test]
fn an_encoder_answers_questions_of_few_and_many_choices() {
    round_trip(false, "--method bayeslora+ts");
}

#[test]
fn a_language_model_answers_questions_about_a_passage() {
    round_trip(true, "--model @llama --pair-column about --choice-columns choices");
}

#[test]
fn questions_are_shown_before_training() {
    let dir = quiz();
    let check = |more: &str| {
        let fixed = "data check --train quiz.jsonl --validation dev.jsonl --format json";
        dir.done(&format!("{fixed} {more}")).json()
    };
    let plain = check("");
    assert_eq!(plain["splits"][0]["classes"][2][0], "C");
    let first = "Return the label of the correct answer for the question below.\n\nQuestion: Which is kind (0)?\n\
                 Choices:\nA) a warm day\nB) a dull day\nAnswer:";
    assert_eq!(plain["examples"][0], json!({ "input": first, "label": "A" }));
    let read = check("--model @llama --max-length 200");
    let input = read["examples"][0]["input"].as_str().unwrap();
    assert!(input.ends_with("B) a dull day\nAnswer:"), "{read}");
    assert!(read["wording"].as_str().unwrap().contains(r"Choices:\nA) …\nB) …\nC) …"), "{read}");
    assert_eq!(read["splits"][0]["truncated"], 0);
}

#[test]
fn what_makes_no_question_is_named() {
    let dir = quiz();
    let mut bad = rows(0..4);
    bad[2]["choices"] = json!(["2", "x", "y"]);
    bad[2]["answer"] = json!(2);
    write(&dir, "bad.jsonl", &bad);
    let usual = |more: &str| questions(&format!("--model @llama {more}"));
    dir.rejects(include_str!("rejected/questions.txt"), usual);

    // A classifier of texts has no letters.
    dir.train("out", 1, "--method lora");
    let columns = "dev.jsonl --text-column question --choice-columns choices";
    for (command, expected) in [
        ("predict out --input", "trained on texts without choices"),
        ("eval out --data", "trained on questions with choices"),
    ] {
        dir.run(&format!("{command} {columns}")).rejected(expected);
    }
}
