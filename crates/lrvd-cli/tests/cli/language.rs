//! Language modelling on generated texts, with the shipped Llama.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};

use serde_json::{Value, json};

use crate::support::{Output, Sandbox, done, golden, llama, with};

const TEMPLATE: &str = "{% for m in messages %}{{ bos_token if loop.first }}{{ m['role'] }}: {{ m['content'].strip() }}{% if \
                        m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}{% if \
                        add_generation_prompt %}assistant:{% endif %}";

/// A tiny Llama as a GGUF file, alone in a folder, with the template for conversations in it.
fn write_chat_gguf(dir: &Sandbox) {
    let mut bytes = std::fs::read(golden("gguf/byte_level.gguf")).unwrap();
    let key = "tokenizer.chat_template";
    // Tensors stay aligned if what is put in front of them is a multiple of 32 bytes.
    let length = 8 + key.len() + 4 + 8 + TEMPLATE.len() + "{##}".len();
    let padding = " ".repeat(length.next_multiple_of(32) - length);
    let template = format!("{TEMPLATE}{{#{padding}#}}");
    let setting = [
        &(key.len() as u64).to_le_bytes()[..],
        key.as_bytes(),
        &8_u32.to_le_bytes(),
        &(template.len() as u64).to_le_bytes(),
        template.as_bytes(),
    ]
    .concat();
    // Behind magic number, version and number of tensors comes the number of settings.
    let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 1;
    bytes.splice(16..24, [&count.to_le_bytes()[..], &setting].concat());
    dir.write("gguf/tiny.gguf", bytes);
}

/// The shipped Llama with a template for conversations.
fn write_chat_llama(dir: &Sandbox, name: &str, template: &str) {
    dir.copy(&llama(), name);
    dir.write(&format!("{name}/chat_template.jinja"), template);
}

/// What Tim does follows from the colour of what he saw.
fn row(i: usize) -> (String, &'static str) {
    let things = ["ball", "car", "box", "tree", "bed"];
    let (colour, follows) =
        if i.is_multiple_of(2) { ("red", " He was happy.") } else { ("blue", " He was sad.") };
    (format!("Tim saw a {colour} {}.", things[i % 5]), follows)
}

/// A folder with `texts.jsonl`, `texts.csv` and `chats.jsonl`.
fn texts() -> Sandbox {
    let (mut train, mut dev, mut chats) =
        (String::new(), "completion,prompt\n".to_owned(), String::new());
    for i in 0..50 {
        let (prompt, completion) = row(i);
        if i < 24 {
            let messages = json!([
                { "role": "system", "content": "Tell a story." },
                { "role": "user", "content": prompt },
                { "role": "assistant", "content": completion },
            ]);
            writeln!(chats, "{}", json!({ "messages": messages })).unwrap();
        }
        if i < 40 {
            writeln!(train, "{}", json!({ "prompt": prompt, "completion": completion })).unwrap();
        } else {
            writeln!(dev, "{completion},{prompt}").unwrap();
        }
    }
    let dir = Sandbox::new();
    for (name, text) in [("texts.jsonl", train), ("texts.csv", dev), ("chats.jsonl", chats)] {
        dir.write(name, text);
    }
    dir
}

/// A training command; options in `more` take the place of those here.
fn training(data: &str, out: &str, steps: usize, more: &str) -> String {
    let usual = format!(
        "train --quiet --model @llama --train {data} --out {out} --steps {steps} --batch-size 4 --rank 3 \
         --learning-rate 1e-2 --seed 5 --max-length 64 --method bayeslora --set draws=[3]"
    );
    with(&usual, more)
}

fn nll(metrics: &Value, draws: &str) -> f64 {
    metrics[draws]["nll"].as_f64().unwrap()
}

/// The negative log-likelihood before and after a training that printed its record.
fn before_and_after(trained: &Output) -> (f64, f64) {
    let record = &trained.json()["record"];
    let before = record["history"][0]["nll_val"].as_f64().unwrap();
    (before, nll(&record["checkpoints"]["last"]["metrics"], "0"))
}

#[test]
fn completions_are_learnt_saved_measured_and_generated() {
    let dir = texts();
    // This model has never seen the token that ends a text: without its head it cannot learn to say it.
    let more = "--validation texts.csv --format json \
                --set 'target_modules=[\"q_proj\", \"v_proj\", \"down_proj\", \"lm_head\"]'";
    let trained = dir.done(&training("texts.jsonl", "out", 60, more));
    let record = &trained.json()["record"];
    // Nearly two nats a token before, and a rule without exceptions.
    let (before, after) = before_and_after(&trained);
    assert!(before > 1.0 && after < 0.25 * before, "{before} {after}");
    let last = &record["checkpoints"]["last"]["metrics"];
    let perplexity = last["3"]["standard"]["perplexity"].as_f64().unwrap();
    assert!((perplexity.ln() - nll(last, "3")).abs() < 1e-9);
    assert!(last["3"]["ece"].as_f64().unwrap() < 1.0);
    assert!(last["3"]["mutual_information"].as_f64() >= Some(0.0));
    // Few held-out rows show nothing: every rank was kept, and refined.
    assert_eq!(record["choice"]["points"].as_array().unwrap().len(), 1, "{record}");
    assert_eq!((&record["steps"], &record["choice"]["step"]), (&json!(66), &json!(60)));

    let columns = json!({ "texts": { "prompt": "prompt", "completion": "completion" } });
    assert_eq!(dir.json("out/adapter/lrvd_language.json")["columns"], columns);
    assert_eq!(dir.json("out/adapter/adapter_config.json")["task_type"], "CAUSAL_LM");
    assert_eq!(dir.json("out/settings.json")["task"], "language");
    // Three projections of five layers, and the head.
    let report = dir.done("inspect out --format json").json();
    assert_eq!(report["modules"].as_array().unwrap().len(), 16);

    // The same numbers from the files, and from an export.
    let eval = "eval out --data texts.csv --out again.jsonl --force --format json";
    let measured = &dir.done(eval).json()["metrics"];
    for draws in ["0", "3"] {
        assert!((nll(measured, draws) - nll(last, draws)).abs() < 1e-6);
    }
    for (a, b) in dir.lines("out/predictions-last.jsonl").iter().zip(dir.lines("again.jsonl")) {
        assert_eq!((&a["id"], &a["tokens"]), (&b["id"], &b["tokens"]));
        assert!((a["nll"]["3"].as_f64().unwrap() - b["nll"]["3"].as_f64().unwrap()).abs() < 1e-6);
    }
    dir.done("export --to peft out --out exported");
    let table = dir.done("eval exported --model @llama --data texts.csv --draws 0").stdout;
    assert!(table.contains("perplexity") && table.contains(&format!("{after:.4}")), "{table}");

    generates(&dir);
    dir.rejects(include_str!("rejected/language.txt"), str::to_owned);
    dir.run(&format!("generate out '{}'", "word ".repeat(600))).rejected("texts of up to 512");
    #[cfg(all(unix, feature = "serve"))]
    served::answers_as_generate_does_and_stops_for_nobody(&dir);
    is_merged(&dir);
}

/// The merged model says the same without an adapter.
fn is_merged(dir: &Sandbox) {
    let report = dir.done("export --to merged out --verify --out merged --format json").json();
    // Logits of the next token of six texts, over a vocabulary of 512.
    assert_eq!(report["logits"], 6 * 512);
    let difference = report["difference"].as_f64().unwrap();
    assert!(difference > 0.0 && difference < 1e-3, "{report}");
    let alone = dir.done("generate --model merged 'Tim saw a blue car.' --max-tokens 20");
    assert_eq!(alone.stdout, " He was sad.\n");
    for (more, code, expected) in [
        ("--to merged --verify --tolerance 1e-30", 1, "a logit of the merged"),
        ("--to gguf", 2, "llama.cpp would adapt both"),
    ] {
        let rejected = dir.run(&format!("export out --out verified {more}"));
        assert_eq!(rejected.code, code);
        assert!(rejected.stderr.contains(expected), "{}", rejected.stderr);
        assert!(!dir.exists("verified"));
    }
}

/// The rule is said, alone and in company, and draws are repeatable.
fn generates(dir: &Sandbox) {
    let generate = |more: &str| dir.done(&format!("generate out {more}"));
    let found = generate("'Tim saw a red car.' 'Tim saw a blue car.' --max-tokens 20").lines();
    let texts = (&found[0]["text"], &found[1]["text"]);
    assert_eq!(texts, (&json!(" He was happy."), &json!(" He was sad.")));
    let prompt = &found[0]["prompt"]["prompt"];
    assert_eq!((&found[0]["stopped"], prompt), (&json!(true), &json!("Tim saw a red car.")));
    let red = |more: &str| generate(&format!("'Tim saw a red car.' {more}"));
    assert_eq!(red("--max-tokens 20").stdout, " He was happy.\n");
    let drawn = || red("--draws 4 --seed 2 --format json").json();
    let token = &drawn()["texts"][0]["tokens"][0];
    assert!(token["probability"].as_f64() > Some(0.3), "{token}");
    assert!(token["mutual_information"].as_f64() >= Some(0.0), "{token}");
    assert!(token["entropy"].as_f64() > Some(0.0), "{token}");
    assert_eq!(drawn(), drawn());
    let sampled = |seed: usize| {
        red(&format!("--temperature 3 --top-p 0.9 --max-tokens 12 --seed {seed}")).stdout
    };
    assert!(sampled(1) == sampled(1) && sampled(1) != sampled(2));
    let noted = red("--max-tokens 4 --unsure 0.9999999").stderr;
    assert!(noted.contains("unsure of token 1 "), "{noted}");
    let piped = dir.run_with("generate out --max-tokens 20", "Tim saw a red car.\n\n");
    assert_eq!(piped.stdout, " He was happy.\n");
    assert_eq!(generate("--input texts.csv --max-tokens 20").lines().len(), 10);
    // The base model alone knows nothing of the rule.
    assert_eq!(done("generate --model @llama 'Once upon a' --max-tokens 1").stdout, " time\n");
}

/// Prompts from standard input are answered as they come; an endless input has a first answer.
#[test]
fn prompts_are_answered_while_the_input_is_open() {
    let mut child = Sandbox::new().start("generate --max-tokens 2 --model @llama");
    let mut input = child.stdin.take().unwrap();
    for i in 0..8 {
        writeln!(input, "Once {i}\n").unwrap();
    }
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut prompt = || -> Value {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        answer["prompt"]["prompt"].clone()
    };
    for i in 0..8 {
        assert_eq!(prompt(), format!("Once {i}"));
    }
    writeln!(input, "Once more").unwrap();
    drop(input);
    assert_eq!(prompt(), "Once more");
    assert!(answers.next().is_none() && child.wait().unwrap().success());
}

/// `lrvd serve`.
#[cfg(all(unix, feature = "serve"))]
mod served {
    use std::io::Write as _;

    use serde_json::{Value, json};

    use crate::serve::{Server, wait_until};
    use crate::support::{Sandbox, lines};

    /// The texts that `lrvd generate` has for one prompt, and their settings, in the words of the server.
    fn generated(dir: &Sandbox, words: &str) -> Value {
        let mut document = dir.done(&format!("generate {words} --format json")).json();
        let object = document.as_object_mut().unwrap();
        object.retain(|name, _| !["base_model", "command", "folder"].contains(&name.as_str()));
        object["texts"][0].as_object_mut().unwrap().remove("prompt").unwrap();
        document
    }

    fn ask(server: &Server, body: &Value) -> Value {
        let reply = server.post("/v1/generate", &body.to_string());
        assert_eq!(reply.status, 200, "{body}: {}", reply.text);
        reply.json()
    }

    pub(super) fn answers_as_generate_does_and_stops_for_nobody(dir: &Sandbox) {
        let folder = dir.name("out");
        let server = Server::start(dir, &format!("{folder} --max-draws 64 --max-tokens 500"));
        let card = server.get("/v1/model").json();
        assert_eq!(
            (&card["kind"], &card["name"], &card["context"], &card["messages"]),
            (&json!("texts"), &json!("stories260K"), &json!(512), &json!(false))
        );
        let prompt = "Tim saw a red car.";
        for (options, mut body) in [
            ("", json!({})),
            (
                "--draws 4 --seed 2 --max-tokens 20",
                json!({ "draws": 4, "seed": 2, "max_tokens": 20 }),
            ),
            ("--draws 1 --max-tokens 3", json!({ "draws": 1, "max_tokens": 3 })),
            (
                "--temperature 3 --top-p 0.9 --max-tokens 12 --draws 2",
                json!({ "temperature": 3, "top_p": 0.9, "max_tokens": 12, "draws": 2 }),
            ),
        ] {
            body["prompt"] = json!(prompt);
            // The same bits: JSON here has every digit of a number.
            let expected = generated(dir, &format!("out '{prompt}' {options}"));
            assert_eq!(ask(&server, &body), expected, "{options:?}");
        }
        let last = ask(&server, &json!({ "prompt": prompt }));
        assert_eq!(last["texts"][0]["text"], " He was happy.");

        // The model's own faults; the others are those of the unit tests.
        let said = json!([{ "role": "user", "content": "Hi" }]);
        for (body, field) in [
            (json!({ "prompt": "word ".repeat(600) }), "prompt"),
            (json!({ "messages": said }), "messages"),
        ] {
            let error = server.rejected("/v1/generate", &body, 422, "unreadable_text");
            assert_eq!(error["field"], field);
            assert!(!error.to_string().contains(&folder), "a path of the server: {error}");
        }
        server.rejected("/v1/classify", &json!({ "text": "a" }), 404, "other_kind");

        // So hot that nearly any token is said, and this seed ends no text: it is long.
        let hot = |draws: usize| json!({ "prompt": "Once", "max_tokens": 500, "temperature": 1000, "seed": 5, "draws": draws });
        let whole = ask(&server, &hot(0));
        assert_eq!(whole["texts"][0]["tokens"].as_array().unwrap().len(), 500);
        // A client that disconnects ends it at once, and the next one is answered.
        let tokens = || server.count("lrvd_tokens_total");
        let before = tokens();
        let body = hot(64).to_string();
        let mut gone = server.connect();
        let head = "POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:";
        write!(gone, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        wait_until(|| tokens() != before);
        drop(gone);
        ask(&server, &json!({ "prompt": prompt, "max_tokens": 1 }));
        let spent = tokens() - before;
        assert!((2.0..400.0).contains(&spent), "{spent}");
        assert!(server.count("lrvd_batch_seconds_total") > 0.0);
        let log = server.stop();
        let is_ours = |line: &Value| line["path"] == "/v1/generate" && line["draws"] == 4;
        assert!(lines(&log).iter().any(is_ours), "{log}");
        assert!(!log.contains("Tim"), "prompts are nobody's business: {log}");

        for (options, expected) in [
            ("--abstain-above 1", "`--abstain-above` is for classifiers, and `out` is a language"),
            ("--batch-size 2", "`--batch-size` is for classifiers"),
            ("--max-texts 2", "`--max-texts` is for classifiers"),
            ("--cascade 0.5", "`--antithetic` are for classifiers only"),
        ] {
            dir.run(&format!("serve out --address 127.0.0.1:0 {options}")).rejected(expected);
        }
    }

    pub(super) fn answers_conversations(dir: &Sandbox, adapter: &str) {
        let server = Server::start(dir, &format!("{adapter} --quiet"));
        assert_eq!(server.get("/v1/model").json()["messages"], true);
        let messages = json!([{ "role": "user", "content": "Tim saw a red box." }]);
        let found = ask(&server, &json!({ "messages": messages, "max_tokens": 4 }));
        assert!(found["texts"][0]["text"].is_string(), "{found}");
        server.stop();
    }

    pub(super) fn continues_conversations(dir: &Sandbox) {
        let server = Server::start(dir, "lora --quiet");
        let card = server.get("/v1/model").json();
        assert_eq!(
            (&card["chat"], &card["messages"], &card["max_draws"]),
            (&json!(true), &json!(true), &json!(0))
        );
        let prompt = "Tim saw a red box.";
        let said = [("system", "Tell a story."), ("user", prompt)];
        let said = said.map(|(role, content)| json!({ "role": role, "content": content }));
        let generated =
            |more: &str| generated(dir, &format!("lora '{prompt}' --max-tokens 12 {more}"));
        let found = ask(&server, &json!({ "messages": said, "max_tokens": 12 }));
        assert_eq!(found, generated("--system 'Tell a story.'"));
        let plain = ask(&server, &json!({ "prompt": prompt, "max_tokens": 12 }));
        assert_eq!(plain, generated("--plain"));
        let drawn = server.post("/v1/generate", r#"{"prompt": "a", "draws": 1}"#);
        assert!(drawn.status == 400 && drawn.text.contains("has no posterior"), "{}", drawn.text);
        server.stop();
        dir.run("serve lora --address 127.0.0.1:0 --draws 3").rejected("3 draws need a posterior");
    }
}

#[test]
fn conversations_are_learnt_by_the_models_template() {
    let dir = texts();
    write_chat_llama(&dir, "chat", TEMPLATE);
    let checked = dir.done("data check --train chats.jsonl --model chat --max-length 60").stdout;
    let marked =
        "<s> system: Tell a story.\nuser: Tim saw a red ball.\nassistant:« He was happy.</s>» \n";
    assert!(checked.contains(marked), "{checked}");
    let plain = dir.done("data check --train chats.jsonl --format json").json();
    assert_eq!(plain["columns"], json!({ "chat": { "messages": "messages" } }));
    assert_eq!((&plain["splits"][0]["rows"], &plain["splits"][1]["rows"]), (&json!(22), &json!(2)));

    for (method, more) in [
        ("lora", ""),
        ("adalora", "--target-rank 2"),
        (
            "lrvd-a-only",
            "--preset constant-weight --set 'target_modules=[\"v_proj\", \"lm_head\"]'",
        ),
    ] {
        let more = format!("--model chat --method {method} --format json {more}");
        let (before, after) =
            before_and_after(&dir.done(&training("chats.jsonl", method, 30, &more)));
        assert!(after < 0.7 * before, "{method}: {before} {after}");
        let more = "--system 'Tell a story.' --max-tokens 12";
        let said = dir.done(&format!("generate {method} 'Tim saw a red box.' {more}")).stdout;
        assert!(said.starts_with(" He was"), "{method}: {said}");
    }
    dir.run("generate lora Tim --draws 3").rejected("3 draws need a posterior");
    #[cfg(all(unix, feature = "serve"))]
    served::continues_conversations(&dir);
    let rows = dir.done("generate lora --input chats.jsonl --max-tokens 2").lines();
    assert_eq!(rows[0]["prompt"][1]["role"], "user");
}

#[test]
fn a_gguf_file_is_used_with_its_tokenizer_and_template() {
    let dir = texts();
    write_chat_gguf(&dir);
    for model in ["gguf/tiny.gguf", "gguf"] {
        let check = format!("data check --train chats.jsonl --model {model} --max-length 100");
        let checked = dir.done(&check).stdout;
        let marked = "user: Tim saw a red ball.\nassistant:« He was happy.</s>»\n";
        assert!(checked.contains(marked), "{checked}");
        for data in ["chats", "texts"] {
            let out = format!("{model}-{data}");
            let more = format!("--model {model} --method lora --format json --max-length 100");
            let trained = dir.done(&training(&format!("{data}.jsonl"), &out, 30, &more));
            let (before, after) = before_and_after(&trained);
            assert!(after < 0.9 * before, "{data}: {before} {after}");
            dir.done(&format!("generate {out} 'Tim saw a red box.' --max-tokens 4"));
            #[cfg(all(unix, feature = "serve"))]
            served::answers_conversations(&dir, &out);
        }
        for more in ["", "--chat"] {
            dir.done(&format!("generate --model {model} 'Tim saw' --max-tokens 4 {more}"));
        }
    }
}

#[test]
fn texts_that_cannot_be_learnt_are_named_and_nothing_is_written() {
    let dir = texts();
    write_chat_llama(&dir, "chat", TEMPLATE);
    write_chat_llama(&dir, "strict", "{{ raise_exception('roles must alternate') }}");
    let forgetful = "{% for m in messages %}{{ m.content if loop.last else '...' }}{% endfor %}";
    write_chat_llama(&dir, "forgetful", forgetful);
    let pair = |completion: &str| json!({ "prompt": "a", "completion": completion }).to_string();
    let message = |role: &str, content: &str| {
        json!({ "messages": [{ "role": role, "content": content }] }).to_string() + "\n"
    };
    dir.write("blank.jsonl", [pair("b"), pair(" ")].join("\n"));
    dir.write("role.jsonl", message("narrator", "x"));
    dir.write("user.jsonl", message("user", "x").repeat(2));
    dir.write("empty.jsonl", message("user", ""));
    dir.write("text.csv", "messages\nhello\n");
    let usual = |more: &str| training("texts.jsonl", "out", 40, more);
    dir.rejects(include_str!("rejected/texts.txt"), usual);
}

#[test]
fn rows_that_lose_their_completion_are_counted() {
    let dir = texts();
    // Columns of a classifier stay those of a classifier, whatever else is there.
    let both = "prompt,completion,text,label\na,b,c,0\na,b,d,1\na,b,e,0\na,b,f,1\n";
    dir.write("both.csv", both);
    let check = dir.done("data check --train both.csv --validation both.csv").stdout;
    assert!(check.contains("class `0`"), "{check}");
    // Rows that lose their completion are counted, the others are learnt.
    let long = format!("{{\"prompt\": \"{}\", \"completion\": \"b\"}}\n", "word ".repeat(30));
    dir.write("mixed.jsonl", long + &dir.text("texts.jsonl"));
    let more =
        "--validation texts.csv --preset constant-weight --set holdout=0 --set validation_rows=3";
    let command = training("mixed.jsonl", "out", 2, more).replace("--quiet ", "");
    let noted = dir.done(&command).stderr;
    for expected in [
        "train: 40 rows, ",
        "1 of 41 rows lost what is beyond 64 tokens; 1 of them had nothing left",
        "evaluated on the first 3 of 10 validation rows",
    ] {
        assert!(noted.contains(expected), "{noted}");
    }
    assert_eq!(dir.lines("out/predictions-last.jsonl").len(), 3);
    // A finished run is not made again, and one with other settings is another run.
    dir.done(&format!("{command} --resume"));
    dir.run(&format!("{command} --resume --set lora_alpha=3")).rejected("lora_alpha");
}
