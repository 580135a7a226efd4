//! Answers over HTTP, and the description for programs.
#![cfg(all(unix, feature = "serve"))]

use serde_json::{Value, json};

use super::{Pins, files::committed, hash};
use crate::serve::Server;

#[test]
fn answers_over_http() {
    let mut pins = Pins::new("serve");
    let two = json!({ "inputs": [{ "text": "a fine film" }, { "text": "a grim book" }], "draws": 2, "seed": 9 });
    let long = json!({ "text": "a".repeat(5000) });
    let classify = [
        ("mean", json!({ "text": "a fine film", "draws": 0 })),
        ("draws", json!({ "text": "a fine film", "draws": 3, "seed": 7 })),
        ("two", two),
        ("pair", json!({ "text": "a", "pair": "b" })),
        ("unknown", json!({ "text": "a", "temperature": 2 })),
        ("many_draws", json!({ "text": "a", "draws": 65 })),
        ("empty", json!({ "text": " " })),
        ("long", long),
    ];
    let generate = [
        ("mean", json!({ "prompt": "Tim saw a red car.", "max_tokens": 8, "draws": 0 })),
        ("draws", json!({ "prompt": "Tim saw", "max_tokens": 4, "draws": 2, "seed": 7 })),
        (
            "sampled",
            json!({ "prompt": "Tim", "max_tokens": 4, "temperature": 2, "top_p": 0.9, "seed": 3 }),
        ),
        ("chat", json!({ "messages": [{ "role": "user", "content": "Hi" }] })),
        ("unknown", json!({ "prompt": "a", "stop": "b" })),
    ];
    for (name, adapter, model) in committed() {
        let limits = "--max-draws 64 --max-bytes 4096 --quiet";
        let server = Server::start(&pins.dir, &format!("{adapter} --model {model} {limits}"));
        let (path, elsewhere, bodies): (_, _, &[(&str, Value)]) = match name {
            "language" => ("/v1/generate", "/v1/classify", &generate),
            _ => ("/v1/classify", "/v1/generate", &classify),
        };
        for (what, body) in bodies {
            let reply = server.post(path, &body.to_string());
            let name = format!("{name}.{what}");
            pins.exact(&format!("{name}.status"), reply.status);
            pins.json(&name, &reply.json());
        }
        for (what, reply) in [
            ("elsewhere", server.post(elsewhere, "{}")),
            ("absent", server.get("/v2")),
            ("method", server.get(path)),
            ("broken", server.post(path, "{")),
        ] {
            let code = reply.json()["error"]["code"].to_string();
            pins.exact(&format!("{name}.{what}"), format!("{} {code}", reply.status));
        }
        pins.json(&format!("{name}.model"), &server.get("/v1/model").json());
        for path in ["/", "/healthz", "/readyz", "/metrics"] {
            pins.exact(&format!("{name}.{path}"), server.get(path).status);
        }
        let document = without_words(server.get("/openapi.json").json());
        for (part, entries) in
            [("paths", &document["paths"]), ("schemas", &document["components"]["schemas"])]
        {
            for (entry, value) in entries.as_object().unwrap() {
                pins.exact(
                    &format!("{name}.openapi.{part}.{entry}"),
                    hash(value.to_string().as_bytes()),
                );
            }
        }
        server.stop();
    }
    pins.finish();
}

/// The document without its sentences.
fn without_words(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|key, value| {
                !(["description", "summary", "title"].contains(&key.as_str()) && value.is_string())
            });
            for value in map.values_mut() {
                *value = without_words(value.take());
            }
        }
        Value::Array(list) => {
            for value in list {
                *value = without_words(value.take());
            }
        }
        _ => {}
    }
    value
}
