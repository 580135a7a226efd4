//! Language modelling on generated texts, with the shipped Llama.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{done, json_of, lines, model, run, run_with};

fn llama() -> PathBuf {
    model().with_file_name("stories260K")
}

const TEMPLATE: &str = "{% for m in messages %}{{ bos_token if loop.first }}{{ m['role'] }}: {{ m['content'].strip() }}{% if \
                        m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}{% if \
                        add_generation_prompt %}assistant:{% endif %}";

/// A tiny Llama as a GGUF file, alone in a folder, with the template for conversations in it.
fn chat_gguf(dir: &Path) -> [String; 2] {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../lrvd-models/tests/golden/gguf/byte_level.gguf");
    let mut bytes = std::fs::read(fixture).unwrap();
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
    let folder = dir.join("chat-gguf");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("tiny.gguf");
    std::fs::write(&file, bytes).unwrap();
    [file, folder].map(|path| path.display().to_string())
}

/// The shipped Llama with a template for conversations.
fn chat_llama(dir: &Path) -> String {
    let folder = dir.join("chat-llama");
    std::fs::create_dir(&folder).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(llama().join(file), folder.join(file)).unwrap();
    }
    std::fs::write(folder.join("chat_template.jinja"), TEMPLATE).unwrap();
    folder.display().to_string()
}

/// What Tim does follows from the colour of what he saw.
fn row(i: usize) -> (String, &'static str) {
    let things = ["ball", "car", "box", "tree", "bed"];
    let (colour, follows) =
        if i.is_multiple_of(2) { ("red", " He was happy.") } else { ("blue", " He was sad.") };
    (format!("Tim saw a {colour} {}.", things[i % 5]), follows)
}

fn write_texts(dir: &Path) -> [String; 2] {
    let (mut train, mut dev) = (String::new(), "completion,prompt\n".to_owned());
    for i in 0..40 {
        let (prompt, completion) = row(i);
        writeln!(train, "{}", json!({ "prompt": prompt, "completion": completion })).unwrap();
    }
    for i in 40..50 {
        let (prompt, completion) = row(i);
        writeln!(dev, "{completion},{prompt}").unwrap();
    }
    let paths = [dir.join("train.jsonl"), dir.join("dev.csv")];
    std::fs::write(&paths[0], train).unwrap();
    std::fs::write(&paths[1], dev).unwrap();
    paths.map(|path| path.display().to_string())
}

fn write_chats(dir: &Path) -> String {
    let mut text = String::new();
    for i in 0..24 {
        let (prompt, completion) = row(i);
        let messages = json!([
            { "role": "system", "content": "Tell a story." },
            { "role": "user", "content": prompt },
            { "role": "assistant", "content": completion },
        ]);
        writeln!(text, "{}", json!({ "messages": messages })).unwrap();
    }
    let file = dir.join("chats.jsonl");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn train(model: &str, data: &[&str], out: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let (out, steps) = (out.display().to_string(), steps.to_string());
    let fixed = [
        "train", "--quiet", "--model", model, "--train", data[0], "--out", &out, "--steps", &steps,
    ];
    let small = [
        "--batch-size",
        "4",
        "--rank",
        "3",
        "--learning-rate",
        "1e-2",
        "--seed",
        "5",
        "--set",
        "draws=[3]",
    ];
    let method: &[&str] = if more.contains(&"--method") { &[] } else { &["--method", "bayeslora"] };
    let validation: &[&str] = if data.len() > 1 { &["--validation", data[1]] } else { &[] };
    let length: &[&str] =
        if more.contains(&"--max-length") { &[] } else { &["--max-length", "64"] };
    let all = fixed.iter().chain(&small).chain(length).chain(method).chain(validation).chain(more);
    all.map(ToString::to_string).collect()
}

fn nll(metrics: &Value, draws: &str) -> f64 {
    metrics[draws]["nll"].as_f64().unwrap()
}

#[test]
fn completions_are_learnt_saved_measured_and_generated() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_texts(dir.path());
    let out = dir.path().join("out");
    let base = llama().display().to_string();
    // This model has never seen the token that ends a text: without its head it cannot learn to say it.
    let targets = "target_modules=[\"q_proj\", \"v_proj\", \"down_proj\", \"lm_head\"]";
    let more = ["--format", "json", "--set", targets];
    let arguments = train(&base, &[&data[0], &data[1]], &out, 60, &more);
    let record = done(&arguments).json()["record"].clone();
    // Nearly two nats a token before, and a rule without exceptions.
    let (first, last) = (&record["history"][0], &record["checkpoints"]["last"]);
    let (before, after) = (first["nll_val"].as_f64().unwrap(), nll(&last["metrics"], "0"));
    assert!(before > 1.0 && after < 0.25 * before, "{before} {after}");
    let metrics = &last["metrics"]["3"];
    let perplexity = metrics["standard"]["perplexity"].as_f64().unwrap();
    assert!((perplexity.ln() - nll(&last["metrics"], "3")).abs() < 1e-9);
    assert!(
        metrics["ece"].as_f64().unwrap() < 1.0
            && metrics["mutual_information"].as_f64() >= Some(0.0)
    );
    // Few held-out rows show nothing: every rank was kept, and refined.
    assert_eq!(record["choice"]["points"].as_array().unwrap().len(), 1, "{record}");
    assert_eq!((&record["steps"], &record["choice"]["step"]), (&json!(66), &json!(60)));

    let info = json_of(&out.join("adapter/lrvd_language.json"));
    let columns = json!({ "texts": { "prompt": "prompt", "completion": "completion" } });
    assert_eq!(info["columns"], columns);
    assert_eq!(json_of(&out.join("adapter/adapter_config.json"))["task_type"], "CAUSAL_LM");
    assert_eq!(json_of(&out.join("settings.json"))["task"], "language");
    let name = out.display().to_string();
    // Three projections of five layers, and the head.
    let report = done(&["inspect", &name, "--format", "json"]).json();
    assert_eq!(report["modules"].as_array().unwrap().len(), 16);

    // The same numbers from the files, and from an export.
    let again = dir.path().join("again.jsonl").display().to_string();
    let measured =
        done(&["eval", &name, "--data", &data[1], "--out", &again, "--force", "--format", "json"])
            .json();
    for draws in ["0", "3"] {
        assert!((nll(&measured["metrics"], draws) - nll(&last["metrics"], draws)).abs() < 1e-6);
    }
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (one, two) = (text(&out.join("predictions-last.jsonl")), text(again.as_ref()));
    for (a, b) in lines(&one).iter().zip(&lines(&two)) {
        assert_eq!((&a["id"], &a["tokens"]), (&b["id"], &b["tokens"]));
        assert!((a["nll"]["3"].as_f64().unwrap() - b["nll"]["3"].as_f64().unwrap()).abs() < 1e-6);
    }
    let exported = dir.path().join("exported").display().to_string();
    done(&["export", "--to", "peft", &name, "--out", &exported]);
    let table =
        done(&["eval", &exported, "--model", &base, "--data", &data[1], "--draws", "0"]).stdout;
    assert!(table.contains("perplexity") && table.contains(&format!("{after:.4}")), "{table}");

    generates(&name, &data[1]);
    rejects(&name, &data[1]);
    #[cfg(all(unix, feature = "serve"))]
    served::answers_as_generate_does_and_stops_for_nobody(&name);
    goes_on(&name, dir.path());
}

/// The merged model says the same without an adapter.
fn goes_on(name: &str, dir: &Path) {
    let to = |form: &str| dir.join(form).display().to_string();
    let merge = ["export", "--to", "merged", name, "--verify", "--out"];
    let report = done(&[&merge[..], &[&to("merged"), "--format", "json"]].concat()).json();
    // Logits of the next token of six texts, over a vocabulary of 512.
    assert_eq!(report["logits"], 6 * 512);
    let difference = report["difference"].as_f64().unwrap();
    assert!(difference > 0.0 && difference < 1e-3, "{report}");
    let prompt = "Tim saw a blue car.";
    let alone = ["generate", "--model", &to("merged"), prompt, "--max-tokens", "20"];
    assert_eq!(done(&alone).stdout, " He was sad.\n");
    let verified = to("verified");
    for (more, code, expected) in [
        (&["--to", "merged", "--verify", "--tolerance", "1e-30"][..], 1, "a logit of the merged"),
        (&["--to", "gguf"], 2, "llama.cpp would adapt both"),
    ] {
        let rejected = run(&[&["export", name, "--out", &verified], more].concat());
        assert_eq!(rejected.code, code);
        assert!(rejected.stderr.contains(expected), "{}", rejected.stderr);
        assert!(!Path::new(&verified).exists());
    }
}

/// The rule is said, alone and in company, and draws are repeatable.
fn generates(name: &str, table: &str) {
    let prompts = ["Tim saw a red car.", "Tim saw a blue car."];
    let found = done(&["generate", name, prompts[0], prompts[1], "--max-tokens", "20"]).stdout;
    let found = lines(&found);
    assert_eq!(
        (&found[0]["text"], &found[1]["text"]),
        (&json!(" He was happy."), &json!(" He was sad."))
    );
    assert_eq!(
        (&found[0]["stopped"], &found[0]["prompt"]["prompt"]),
        (&json!(true), &json!(prompts[0]))
    );
    let alone = done(&["generate", name, prompts[0], "--max-tokens", "20"]).stdout;
    assert_eq!(alone, " He was happy.\n");
    let asked = ["generate", name, prompts[0], "--draws", "4", "--seed", "2", "--format", "json"];
    let drawn = done(&asked).json();
    let token = &drawn["texts"][0]["tokens"][0];
    assert!(token["probability"].as_f64() > Some(0.3), "{drawn}");
    assert!(
        token["mutual_information"].as_f64() >= Some(0.0) && token["entropy"].as_f64() > Some(0.0)
    );
    assert_eq!(done(&asked).json(), drawn);
    let sampled = |seed: &str| {
        let hot = ["--temperature", "3", "--top-p", "0.9", "--max-tokens", "12", "--seed", seed];
        done(&[&["generate", name, prompts[0]][..], &hot].concat()).stdout
    };
    assert!(sampled("1") == sampled("1") && sampled("1") != sampled("2"));
    let noted = done(&["generate", name, prompts[0], "--max-tokens", "4", "--unsure", "0.9999999"]);
    assert!(noted.stderr.contains("unsure of token 1 "), "{}", noted.stderr);
    let piped = run_with(&["generate", name, "--max-tokens", "20"], "Tim saw a red car.\n\n");
    assert_eq!(piped.stdout, " He was happy.\n");
    let table = done(&["generate", name, "--input", table, "--max-tokens", "20"]).stdout;
    assert_eq!(lines(&table).len(), 10);
    // The base model alone knows nothing of the rule.
    let base = llama().display().to_string();
    let plain = done(&["generate", "--model", &base, "Once upon a", "--max-tokens", "1"]).stdout;
    assert_eq!(plain, " time\n");
}

/// What a language model is not asked for.
fn rejects(name: &str, table: &str) {
    let base = llama().display().to_string();
    for (command, expected) in [
        (&["predict", name, "a text"][..], "which has no classes: `lrvd generate "),
        (&["abstain", "fit", name, "--data", table], "which has no classes"),
        (&["generate", name, "x", "--draws", "2", "--top-p", "1.5"], "top_p"),
        (&["generate", "no-such-folder", "x"], "there is no folder `no-such-folder`"),
        (&["generate", name, "x", "--chat"], "states no chat template"),
        (&["generate", name, &"word ".repeat(600)], "texts of up to 512"),
        (&["generate"], "name the folder of an adapter, or a base model by `--model`"),
        (&["generate", name, "x", "--input", table], "pass prompts or `--input`"),
        (&["generate", "--model", &base, "x", "--draws", "2"], "2 draws need a posterior"),
        (&["eval", name, "--data", table, "--label-column", "x"], "is measured on texts"),
        (
            &["eval", name, "--data", table, "--cascade", "0.5"],
            "`--antithetic` are for classifiers only",
        ),
        (&["eval", name, "--data", table, "--prompt-column", "body"], "no column `body`"),
    ] {
        let rejected = run(command);
        rejected.rejected(expected);
    }
}

/// Prompts from standard input are answered as they come; an endless input has a first answer.
#[test]
fn prompts_are_answered_while_the_input_is_open() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    let mut child = Command::new(assert_cmd::cargo::cargo_bin("lrvd"))
        .args(["generate", "--max-tokens", "2", "--model"])
        .arg(llama())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for i in 0..8 {
        writeln!(input, "Once {i}\n").unwrap();
    }
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for i in 0..8 {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["prompt"]["prompt"], format!("Once {i}"));
    }
    writeln!(input, "Once more").unwrap();
    drop(input);
    let last: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
    assert_eq!(last["prompt"]["prompt"], "Once more");
    assert!(answers.next().is_none() && child.wait().unwrap().success());
}

#[cfg(unix)]
#[test]
fn a_signal_in_the_last_evaluation_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = write_texts(dir.path());
    let out = dir.path().join("out");
    let more = ["--preset", "constant-weight"];
    let arguments = train(&llama().display().to_string(), &[&data[0], &data[1]], &out, 4, &more);
    let long =
        |word: &String| if word == "draws=[3]" { "draws=[4000]".into() } else { word.clone() };
    let arguments: Vec<String> = arguments.iter().map(long).collect();
    crate::resume::stops_in_the_evaluation(&arguments, &out);
}

/// `lrvd serve`.
#[cfg(all(unix, feature = "serve"))]
mod served {
    // A client that leaves.
    #![allow(clippy::disallowed_types)]
    use std::io::Write as _;
    use std::net::TcpStream;

    use serde_json::{Value, json};

    use crate::serve::{Server, wait_until};
    use crate::support::{done, lines, run};

    /// The texts that `lrvd generate` has for one prompt, and their settings, in the words of the server.
    fn generated(name: &str, prompt: &str, more: &[&str]) -> Value {
        let command = [&["generate", name, prompt, "--format", "json"], more].concat();
        let mut document = done(&command).json();
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

    /// A counter of `/metrics`.
    fn count(server: &Server, name: &str) -> f64 {
        let page = server.get("/metrics").text;
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
        line.parse().unwrap()
    }

    pub(super) fn answers_as_generate_does_and_stops_for_nobody(name: &str) {
        let server = Server::start(name, &["--max-draws", "64", "--max-tokens", "500"]);
        let card = server.get("/v1/model").json();
        assert_eq!(
            (&card["kind"], &card["name"], &card["context"], &card["messages"]),
            (&json!("texts"), &json!("stories260K"), &json!(512), &json!(false))
        );
        let prompt = "Tim saw a red car.";
        let settings: [(&[&str], Value); 4] = [
            (&[], json!({})),
            (
                &["--draws", "4", "--seed", "2", "--max-tokens", "20"],
                json!({ "draws": 4, "seed": 2, "max_tokens": 20 }),
            ),
            (&["--draws", "1", "--max-tokens", "3"], json!({ "draws": 1, "max_tokens": 3 })),
            (
                &["--temperature", "3", "--top-p", "0.9", "--max-tokens", "12", "--draws", "2"],
                json!({ "temperature": 3, "top_p": 0.9, "max_tokens": 12, "draws": 2 }),
            ),
        ];
        for (options, mut body) in settings {
            body["prompt"] = json!(prompt);
            // The same bits: JSON here has every digit of a number.
            assert_eq!(ask(&server, &body), generated(name, prompt, options), "{options:?}");
        }
        let last = ask(&server, &json!({ "prompt": prompt }));
        assert_eq!(last["texts"][0]["text"], " He was happy.");

        let long = "word ".repeat(600);
        for (body, status, code, field) in [
            (json!({ "prompt": long }), 422, "unreadable_text", Some("prompt")),
            (
                json!({ "messages": [{ "role": "user", "content": "Hi" }] }),
                422,
                "unreadable_text",
                Some("messages"),
            ),
            (json!({ "prompt": " " }), 400, "empty_text", Some("prompt")),
            (json!({ "prompt": "a", "draws": -1 }), 400, "invalid_field", Some("draws")),
            (json!({ "prompt": "a", "draws": 65 }), 400, "draws_out_of_range", Some("draws")),
            (
                json!({ "prompt": "a", "max_tokens": 501 }),
                400,
                "max_tokens_out_of_range",
                Some("max_tokens"),
            ),
            (json!({ "prompt": "a", "stop": "b" }), 400, "invalid_field", Some("stop")),
        ] {
            let reply = server.post("/v1/generate", &body.to_string());
            let error = reply.json()["error"].take();
            let found = (reply.status, error["code"].as_str().unwrap(), error["field"].as_str());
            assert_eq!(found, (status, code, field), "{error}");
            assert!(!error.to_string().contains(name), "a path of the server: {error}");
        }
        let other = server.post("/v1/classify", r#"{"text": "a"}"#);
        assert_eq!((other.status, &other.json()["error"]["code"]), (404, &json!("other_kind")));

        // So hot that nearly any token is said, and this seed ends no text: it is long.
        let hot = |draws: usize| json!({ "prompt": "Once", "max_tokens": 500, "temperature": 1000, "seed": 5, "draws": draws });
        let whole = ask(&server, &hot(0));
        assert_eq!(whole["texts"][0]["tokens"].as_array().unwrap().len(), 500);
        // A client that disconnects ends it at once, and the next one is answered.
        let before = count(&server, "lrvd_tokens_total");
        let body = hot(64).to_string();
        let address = server.address.trim_start_matches("http://");
        let mut gone = TcpStream::connect(address).unwrap();
        let head = "POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length:";
        write!(gone, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        wait_until(|| count(&server, "lrvd_tokens_total") != before);
        drop(gone);
        ask(&server, &json!({ "prompt": prompt, "max_tokens": 1 }));
        let spent = count(&server, "lrvd_tokens_total") - before;
        assert!((2.0..400.0).contains(&spent), "{spent}");
        assert!(count(&server, "lrvd_batch_seconds_total") > 0.0);
        let log = server.stop();
        let logged = lines(&log);
        assert!(
            logged.iter().any(|line| line["path"] == "/v1/generate" && line["draws"] == 4),
            "{log}"
        );
        assert!(!log.contains("Tim"), "prompts are nobody's business: {log}");

        for (option, value) in
            [("--abstain-above", "1"), ("--batch-size", "2"), ("--max-texts", "2")]
        {
            let found = run(&["serve", name, "--address", "127.0.0.1:0", option, value]);
            found.rejected(&format!(
                "`{option}` is for classifiers, and `{name}` is a language model"
            ));
        }
        let rejected = run(&["serve", name, "--address", "127.0.0.1:0", "--cascade", "0.5"]);
        assert!(
            rejected.stderr.contains("`--antithetic` are for classifiers only"),
            "{}",
            rejected.stderr
        );
    }

    pub(super) fn answers_conversations(adapter: &str) {
        let server = Server::start(adapter, &["--quiet"]);
        let card = server.get("/v1/model").json();
        assert_eq!(card["messages"], true);
        let messages = json!([{ "role": "user", "content": "Tim saw a red box." }]);
        let found = ask(&server, &json!({ "messages": messages, "max_tokens": 4 }));
        assert!(found["texts"][0]["text"].is_string(), "{found}");
        server.stop();
    }

    pub(super) fn continues_conversations(lora: &str) {
        let server = Server::start(lora, &["--quiet"]);
        let card = server.get("/v1/model").json();
        assert_eq!(
            (&card["chat"], &card["messages"], &card["max_draws"]),
            (&json!(true), &json!(true), &json!(0))
        );
        let prompt = "Tim saw a red box.";
        let said = [("system", "Tell a story."), ("user", prompt)];
        let said = said.map(|(role, content)| json!({ "role": role, "content": content }));
        let found = ask(&server, &json!({ "messages": said, "max_tokens": 12 }));
        let more = ["--system", "Tell a story.", "--max-tokens", "12"];
        assert_eq!(found, generated(lora, prompt, &more));
        let plain = ask(&server, &json!({ "prompt": prompt, "max_tokens": 12 }));
        assert_eq!(plain, generated(lora, prompt, &["--plain", "--max-tokens", "12"]));
        let drawn = server.post("/v1/generate", r#"{"prompt": "a", "draws": 1}"#);
        assert!(drawn.status == 400 && drawn.text.contains("has no posterior"), "{}", drawn.text);
        server.stop();
        run(&["serve", lora, "--address", "127.0.0.1:0", "--draws", "3"])
            .rejected("3 draws need a posterior");
    }
}

#[test]
fn conversations_are_learnt_by_the_models_template() {
    let dir = tempfile::tempdir().unwrap();
    let (model, data) = (chat_llama(dir.path()), write_chats(dir.path()));
    let checked =
        done(&["data", "check", "--train", &data, "--model", &model, "--max-length", "60"]).stdout;
    let marked =
        "<s> system: Tell a story.\nuser: Tim saw a red ball.\nassistant:« He was happy.</s>» \n";
    assert!(checked.contains(marked), "{checked}");
    let plain = done(&["data", "check", "--train", &data, "--format", "json"]).json();
    assert_eq!(plain["columns"], json!({ "chat": { "messages": "messages" } }));
    assert_eq!((&plain["splits"][0]["rows"], &plain["splits"][1]["rows"]), (&json!(22), &json!(2)));

    for (method, more) in [
        ("lora", &[][..]),
        ("adalora", &["--target-rank", "2"]),
        (
            "lrvd-a-only",
            &["--preset", "constant-weight", "--set", "target_modules=[\"v_proj\", \"lm_head\"]"],
        ),
    ] {
        let out = dir.path().join(method);
        let more = [&["--method", method, "--format", "json"], more].concat();
        let record = done(&train(&model, &[&data], &out, 30, &more)).json()["record"].clone();
        let before = record["history"][0]["nll_val"].as_f64().unwrap();
        let after = nll(&record["checkpoints"]["last"]["metrics"], "0");
        assert!(after < 0.7 * before, "{method}: {before} {after}");
        let name = out.display().to_string();
        let said = done(&[
            "generate",
            &name,
            "Tim saw a red box.",
            "--system",
            "Tell a story.",
            "--max-tokens",
            "12",
        ]);
        assert!(said.stdout.starts_with(" He was"), "{method}: {}", said.stdout);
    }
    let lora = dir.path().join("lora").display().to_string();
    let drawn = run(&["generate", &lora, "Tim", "--draws", "3"]);
    drawn.rejected("3 draws need a posterior");
    #[cfg(all(unix, feature = "serve"))]
    served::continues_conversations(&lora);
    let rows = done(&["generate", &lora, "--input", &data, "--max-tokens", "2"]).stdout;
    assert_eq!(lines(&rows)[0]["prompt"][1]["role"], "user");
}

#[test]
fn a_gguf_file_is_used_with_its_tokenizer_and_template() {
    let dir = tempfile::tempdir().unwrap();
    let (chats, [texts, _]) = (write_chats(dir.path()), write_texts(dir.path()));
    let [file, folder] = chat_gguf(dir.path());
    for (model, name) in [(&file, "by-file"), (&folder, "by-folder")] {
        let length = ["--max-length", "100"];
        let check = [&["data", "check", "--train", &chats, "--model", model][..], &length].concat();
        let checked = done(&check).stdout;
        let marked = "user: Tim saw a red ball.\nassistant:« He was happy.</s>»\n";
        assert!(checked.contains(marked), "{checked}");
        for (data, kind) in [(&chats, "chats"), (&texts, "texts")] {
            let out = dir.path().join(format!("{name}-{kind}"));
            let more = ["--method", "lora", "--format", "json", "--max-length", "100"];
            let record = done(&train(model, &[data], &out, 30, &more)).json();
            let record = &record["record"];
            let before = record["history"][0]["nll_val"].as_f64().unwrap();
            let after = nll(&record["checkpoints"]["last"]["metrics"], "0");
            assert!(after < 0.9 * before, "{kind}: {before} {after}");
            let adapter = out.display().to_string();
            let answer = ["Tim saw a red box.", "--max-tokens", "4"];
            done(&[&["generate", &adapter][..], &answer].concat());
            #[cfg(all(unix, feature = "serve"))]
            served::answers_conversations(&adapter);
        }
        let alone = ["generate", "--model", model, "Tim saw", "--max-tokens", "4"];
        done(&alone);
        done(&[&alone[..], &["--chat"]].concat());
    }
}

#[test]
fn texts_that_cannot_be_learnt_are_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let [texts, _] = write_texts(dir.path());
    let chats = write_chats(dir.path());
    let out = dir.path().join("out");
    let base = llama().display().to_string();
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let deberta = model().display().to_string();
    let pair = |completion: &str| {
        format!(
            "{{\"prompt\": \"a\", \"completion\": \"b\"}}\n{{\"prompt\": \"a\", \"completion\": \"{completion}\"}}\n"
        )
    };
    let message = |role: &str, content: &str| {
        json!({ "messages": [{ "role": role, "content": content }] }).to_string()
    };
    let chat_model = chat_llama(dir.path());
    let strict_dir = tempfile::tempdir().unwrap();
    let strict = chat_llama(strict_dir.path());
    let template = "{{ raise_exception('roles must alternate') }}";
    std::fs::write(Path::new(&strict).join("chat_template.jinja"), template).unwrap();
    let forgetful_dir = tempfile::tempdir().unwrap();
    let forgetful = chat_llama(forgetful_dir.path());
    let template = "{% for m in messages %}{{ m.content if loop.last else '...' }}{% endfor %}";
    std::fs::write(Path::new(&forgetful).join("chat_template.jinja"), template).unwrap();
    let one = |text: &str, name: &str| file(name, &format!("{text}\n{text}\n"));
    for (model, data, more, expected) in [
        (&base, &texts, &["--completion-column", "answer"][..], "no key `answer`"),
        (&base, &texts, &["--messages-column", "talk"], "no key `talk`"),
        (&base, &texts, &["--prompt-column", "prompt", "--labels", "a,b"], "with `--labels`"),
        (
            &base,
            &texts,
            &["--method", "bayeslora+ts"],
            "unknown method `bayeslora+ts`; expected one of `LoRA`",
        ),
        (&base, &texts, &["--method", "mcd"], "unknown method `mcd`"),
        (&base, &texts, &["--target-rank", "2"], "a target rank is for the method `adalora` only"),
        (&base, &texts, &["--set", "prediction.cascade=0.5"], "setting `prediction` is set"),
        (
            &base,
            &texts,
            &["--set", "prediction_draws=fresh"],
            "setting `prediction_draws` is fresh",
        ),
        (&base, &texts, &["--set", "wording.template={text}"], "setting `wording` is set"),
        (&base, &texts, &["--set", "target_modules=[\"nothing\"]"], "nothing"),
        (
            &base,
            &texts,
            &["--max-length", "8"],
            "train: within 8 tokens none of its 36 rows has a token of a completion",
        ),
        (&deberta, &texts, &[], "needs a language model (Llama), and this is a DeBERTa"),
        (&base, &chats, &[], "states no chat template"),
        (&base, &file("e.jsonl", &pair(" ")), &[], "line 2, column `completion`: empty text"),
        (
            &chat_model,
            &file("r.jsonl", &message("narrator", "x")),
            &[],
            "line 1: `role` should be `system`, `user` or `assistant`, found `narrator`",
        ),
        (
            &chat_model,
            &one(&message("user", "x"), "u.jsonl"),
            &["--validation-split", "0.5"],
            "no message of the role `assistant`",
        ),
        (
            &chat_model,
            &file("c.jsonl", &message("user", "")),
            &[],
            "column `messages[0].content`: empty text",
        ),
        (
            &chat_model,
            &file("m.csv", "messages\nhello\n"),
            &[],
            "column `messages`: a string where a list",
        ),
        (
            &strict,
            &chats,
            &[],
            "line 1: the chat template cannot render the conversation: roles must alternate",
        ),
        (&forgetful, &chats, &[], "the whole text does not start with the text up to message 3"),
    ] {
        let rejected = run(&train(model, &[data], &out, 40, more));
        rejected.rejected(expected);
        assert!(!out.exists(), "{expected}");
    }
}

#[test]
fn rows_that_lose_their_completion_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let [texts, dev] = write_texts(dir.path());
    let out = dir.path().join("out");
    let base = llama().display().to_string();
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    // Columns of a classifier stay those of a classifier, whatever else is there.
    let both =
        file("both.csv", "prompt,completion,text,label\na,b,c,0\na,b,d,1\na,b,e,0\na,b,f,1\n");
    let check = done(&["data", "check", "--train", &both, "--validation", &both]).stdout;
    assert!(check.contains("class `0`"), "{check}");
    // Rows that lose their completion are counted, the others are learnt.
    let long = format!("{{\"prompt\": \"{}\", \"completion\": \"b\"}}\n", "word ".repeat(30));
    let mixed = file("mixed.jsonl", &format!("{long}{}", std::fs::read_to_string(&texts).unwrap()));
    let arguments = train(
        &base,
        &[&mixed, &dev],
        &out,
        2,
        &["--preset", "constant-weight", "--set", "holdout=0", "--set", "validation_rows=3"],
    );
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|a| *a != "--quiet").collect();
    let noted = done(&arguments).stderr;
    assert!(noted.contains("train: 40 rows, "), "{noted}");
    assert!(
        noted.contains("1 of 41 rows lost what is beyond 64 tokens; 1 of them had nothing left"),
        "{noted}"
    );
    assert!(noted.contains("evaluated on the first 3 of 10 validation rows"), "{noted}");
    let answers = std::fs::read_to_string(out.join("predictions-last.jsonl")).unwrap();
    assert_eq!(answers.lines().count(), 3);
    // A finished run is not made again, and one with other settings is another run.
    let again = [&arguments[..], &["--resume"]].concat();
    done(&again);
    let other = run(&[&again[..], &["--set", "lora_alpha=3"]].concat());
    other.rejected("lora_alpha");
}
