//! The routes with a model that is none, without a socket.
#![allow(clippy::unwrap_used)]

use axum::body::{Body, to_bytes};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use super::*;
use crate::serve::queue::Fault;
use crate::serve::testing::{app, class};
use crate::serve::worker::work;

const LONG: Duration = Duration::from_mins(10);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Status, headers and text of the answer to one request.
async fn ask(
    app: &Arc<App>,
    method: &str,
    path: &str,
    kind: Option<&str>,
    body: &str,
) -> (u16, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(kind) = kind {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = router(Arc::clone(app)).oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let text = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
    (head.status.as_u16(), head.headers, text)
}

async fn post(app: &Arc<App>, body: &str) -> (u16, HeaderMap, Value) {
    let (status, headers, text) = ask(app, "POST", CLASSIFY, Some("application/json"), body).await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    (status, headers, serde_json::from_str(&text).unwrap())
}

/// Runs `questions` while a worker answers: `odd` is unreadable, `broken` breaks the model, other texts have probability
/// 0.9, or 0.5 where they begin with `unsure`.
fn answered<F: Future<Output = ()>>(app: &Arc<App>, questions: impl FnOnce(Arc<App>) -> F) {
    let fault = |blame| Fault { blame, message: "as asked".to_owned() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            work(
                &app.queue,
                &app.metrics,
                4,
                |_| true,
                |inputs, _| {
                    let one = |input: &lrvd_bench::classify::Input| match input.text.as_str() {
                        "odd" => Err(fault(Blame::Text)),
                        "broken" => Err(fault(Blame::Model)),
                        text if text.starts_with("unsure") => Ok(class(0.5)),
                        _ => Ok(class(0.9)),
                    };
                    inputs.iter().map(one).collect()
                },
            );
        });
        runtime().block_on(questions(Arc::clone(app)));
        app.queue.close();
    });
}

#[test]
fn texts_are_answered_in_their_order_with_the_threshold_of_their_draws() {
    let app = app(LONG);
    answered(&app, |app| async move {
        let (status, _, body) =
            post(&app, r#"{"inputs": [{"text": "unsure"}, {"text": "sure"}]}"#).await;
        // ln 2 = 0.6931… is above the threshold of two draws, 0.6; H(0.9) = 0.3250829…
        assert_eq!((status, &body["seed"]), (200, &json!(7)));
        let [unsure, sure] = [0, 1].map(|i| &body["answers"][i]);
        assert_eq!((&unsure["predicted"], &unsure["abstained"]), (&Value::Null, &json!(true)));
        assert_eq!((&sure["predicted"], &sure["abstained"]), (&json!("yes"), &json!(false)));
        assert_eq!(sure["probabilities"]["yes"], 0.9);
        let entropy = sure["entropy"].as_f64().unwrap();
        assert!((entropy - 0.325_082_973_391_448_2).abs() < 1e-12, "{entropy}");
        let (_, _, mean) = post(&app, r#"{"text": "unsure", "draws": 0, "seed": 9}"#).await;
        assert_eq!((&mean["answers"][0]["abstained"], &mean["seed"]), (&Value::Null, &json!(9)));

        let (_, _, page) = ask(&app, "GET", "/metrics", None, "").await;
        for wanted in ["lrvd_texts_total 3\n", "lrvd_withheld_total 1\n", "lrvd_queue_texts 0\n"] {
            assert!(page.contains(wanted), "{page}");
        }
        let counted = "lrvd_http_requests_total{path=\"/v1/classify\",status=\"200\"} 2\n";
        assert!(page.contains(counted), "{page}");
    });
}

#[test]
fn every_error_is_json_with_a_code() {
    let app = app(LONG);
    answered(&app, |app| async move {
        let long = format!(r#"{{"text": "{}"}}"#, "a".repeat(200));
        let json_type = Some("application/json");
        for (method, path, kind, body, status, code, field) in [
            ("GET", "/nowhere", None, "", 404, "not_found", None),
            ("GET", CLASSIFY, None, "", 405, "method_not_allowed", None),
            ("POST", "/metrics", None, "", 405, "method_not_allowed", None),
            ("POST", CLASSIFY, None, "{}", 415, "unsupported_media_type", None),
            ("POST", CLASSIFY, Some("text/plain"), "{}", 415, "unsupported_media_type", None),
            ("POST", CLASSIFY, json_type, &long, 413, "body_too_large", None),
            ("POST", CLASSIFY, json_type, "{", 400, "malformed_json", None),
            ("POST", CLASSIFY, json_type, "{}", 400, "no_text", Some("text")),
            (
                "POST",
                CLASSIFY,
                json_type,
                r#"{"text": "odd"}"#,
                422,
                "unreadable_text",
                Some("text"),
            ),
            (
                "POST",
                CLASSIFY,
                json_type,
                r#"{"inputs": [{"text": "a"}, {"text": "odd"}]}"#,
                422,
                "unreadable_text",
                Some("inputs[1].text"),
            ),
            ("POST", CLASSIFY, json_type, r#"{"text": "broken"}"#, 500, "internal", None),
        ] {
            let (found, headers, text) = ask(&app, method, path, kind, body).await;
            let error = serde_json::from_str::<Value>(&text).unwrap()["error"].take();
            let seen = (found, error["code"].as_str().unwrap(), error["field"].as_str());
            assert_eq!(seen, (status, code, field), "{method} {path} {body}: {error}");
            assert!(!error["message"].as_str().unwrap().is_empty());
            assert_eq!(headers.contains_key(header::ALLOW), status == 405);
        }
        let typed = Some("Application/JSON; charset=utf-8");
        let (status, ..) = ask(&app, "POST", CLASSIFY, typed, r#"{"text": "a"}"#).await;
        assert_eq!(status, 200);
    });
}

#[test]
fn a_full_queue_and_a_late_answer_are_said() {
    // Nobody answers.
    let app = app(Duration::from_millis(20));
    runtime().block_on(async {
        let two = r#"{"inputs": [{"text": "a"}, {"text": "b"}]}"#;
        let first = tokio::spawn({
            let app = Arc::clone(&app);
            async move { post(&app, two).await }
        });
        // It waits before the second one comes.
        while app.queue.texts() == 0 {
            tokio::task::yield_now().await;
        }
        let (full, headers, full_body) = post(&app, two).await;
        let (late, _, late_body) = first.await.unwrap();
        assert_eq!((late, &late_body["error"]["code"]), (504, &json!("timeout")));
        assert_eq!((full, &full_body["error"]["code"]), (503, &json!("queue_full")));
        assert_eq!(headers[header::RETRY_AFTER], "1");
        // Who was late has left the queue.
        let (again, ..) = post(&app, two).await;
        assert_eq!(again, 504);
    });
    app.queue.close();
    runtime().block_on(async {
        let (status, headers, body) = post(&app, r#"{"text": "a"}"#).await;
        assert_eq!((status, &body["error"]["code"]), (503, &json!("stopping")));
        assert!(headers.contains_key(header::RETRY_AFTER));
        assert_eq!(ask(&app, "GET", "/readyz", None, "").await.0, 200);
        app.stop.store(true, Ordering::Relaxed);
        assert_eq!(ask(&app, "GET", "/readyz", None, "").await.0, 503);
        assert_eq!(ask(&app, "GET", "/healthz", None, "").await.0, 200);
    });
}

#[test]
fn what_is_sent_is_what_the_document_says() {
    let app = app(LONG);
    answered(&app, |app| async move {
        let document: Value = {
            let (status, _, text) = ask(&app, "GET", "/openapi.json", None, "").await;
            assert_eq!(status, 200);
            serde_json::from_str(&text).unwrap()
        };
        let schema = |status: &str| {
            &document["paths"]["/v1/classify"]["post"]["responses"][status]["content"]["application/json"]
                ["schema"]
        };
        let (_, _, answers) =
            post(&app, r#"{"inputs": [{"text": "a"}, {"text": "unsure"}]}"#).await;
        let (_, _, error) = post(&app, r#"{"text": 1}"#).await;
        let (_, _, model) = ask(&app, "GET", "/v1/model", None, "").await;
        let model = serde_json::from_str(&model).unwrap();
        let of_model = &document["paths"]["/v1/model"]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"];
        for (value, schema) in
            [(&answers, schema("200")), (&error, schema("400")), (&model, of_model)]
        {
            assert_eq!(misfit(value, schema, &document), None, "{value}");
        }
        // The other way round: what is not said is refused.
        let request = &document["paths"]["/v1/classify"]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        let fits = |body: Value| misfit(&body, request, &document).is_none();
        assert!(fits(json!({ "text": "a", "pair": null, "draws": 0 })));
        assert!(!fits(json!({ "text": "a", "drawn": 0 })) && !fits(json!({ "text": 1 })));
        assert!(!fits(json!({ "inputs": [{}] })) && !fits(json!({ "draws": -1, "text": "a" })));
        // And every route has its place.
        for path in PATHS.iter().filter(|path| !["/", "/openapi.json"].contains(path)) {
            assert!(document["paths"][path].is_object(), "{path}");
        }
    });
}

/// Where `value` breaks `schema`, as far as our schemas go.
fn misfit(value: &Value, schema: &Value, document: &Value) -> Option<String> {
    let mut found = None;
    let mut wrong = |what: String| found = found.take().or(Some(what));
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$ref" => {
                let target =
                    document.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                misfit(value, target, document).map(&mut wrong);
            }
            "anyOf" => {
                let all = rule.as_array().unwrap();
                if all.iter().all(|one| misfit(value, one, document).is_some()) {
                    wrong(format!("{value} fits none of {rule}"));
                }
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("{other}"),
                };
                let fits = rule.as_array().map_or_else(|| is(rule), |names| names.iter().any(is));
                if !fits {
                    wrong(format!("{value} is no {rule}"));
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    wrong(format!("{value} is not in {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64() < rule.as_f64() && value.is_number() {
                    wrong(format!("{value} is below {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        wrong(format!("no {name} in {value}"));
                    }
                }
            }
            "properties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    match rule.get(name) {
                        Some(rule) => {
                            misfit(value, rule, document).map(&mut wrong);
                        }
                        // A property that the schema lacks is one that the document hides.
                        None => wrong(format!("{name} is not in the schema")),
                    }
                }
            }
            "additionalProperties" | "patternProperties"
                if rule.is_object() && schema.get("properties").is_none() =>
            {
                let rule = if word == "patternProperties" {
                    rule.as_object().unwrap().values().next().unwrap()
                } else {
                    rule
                };
                for value in value.as_object().into_iter().flat_map(|map| map.values()) {
                    misfit(value, rule, document).map(&mut wrong);
                }
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    misfit(value, rule, document).map(&mut wrong);
                }
            }
            "description" | "format" | "title" | "default" | "additionalProperties" => {}
            other => panic!("a word of schemas that this test does not know: {other}"),
        }
    }
    found
}
