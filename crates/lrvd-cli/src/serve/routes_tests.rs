//! The routes without a model and without a socket.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use axum::body::{Body, to_bytes};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

use lrvd_bench::adapter::{Continuation, ContinuedToken};

use super::*;
use crate::serve::model::{Found, Input, Key};
use crate::serve::queue::Fault;
use crate::serve::testing::{app, card, class, language_card, text};
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
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
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
    let (status, headers, text) =
        ask(app, "POST", app.card.path(), Some("application/json"), body).await;
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    (status, headers, serde_json::from_str(&text).unwrap())
}

/// Runs `questions` while a worker answers by `answer`.
fn served<F: Future<Output = ()>>(
    app: &Arc<App>,
    answer: impl FnMut(&[Input], Key, &mut dyn FnMut(usize) -> bool) -> Result<Vec<Found>, Fault> + Send,
    questions: impl FnOnce(Arc<App>) -> F,
) {
    std::thread::scope(|scope| {
        scope.spawn(|| work(&app.queue, &app.metrics, 4, |_| true, answer));
        runtime().block_on(questions(Arc::clone(app)));
        app.queue.close();
    });
}

fn fault(blame: Blame) -> Fault {
    Fault { blame, message: "as asked".to_owned() }
}

/// `odd` is unreadable, `broken` breaks the model, other texts have probability 0.9, or 0.5 where they begin with `unsure`.
fn answered<F: Future<Output = ()>>(app: &Arc<App>, questions: impl FnOnce(Arc<App>) -> F) {
    let one = |input: &Input| match text(input) {
        "odd" => Err(fault(Blame::Text)),
        "broken" => Err(fault(Blame::Model)),
        text if text.starts_with("unsure") => Ok(class(0.5)),
        _ => Ok(class(0.9)),
    };
    served(app, |inputs, _, _| inputs.iter().map(one).collect(), questions);
}

/// A model that says `a` as often as it may: `odd` is unreadable, and `forever` ends only when no client waits
/// any more.
fn continued(
    inputs: &[Input],
    key: Key,
    go_on: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<Found>, Fault> {
    let prompt = text(&inputs[0]);
    if prompt == "odd" {
        return Err(fault(Blame::Text));
    }
    let most = if prompt == "forever" { 50_000_000 } else { key.max_tokens };
    if !(0..most).all(|_| go_on(1)) {
        return Err(fault(Blame::Model));
    }
    let token = ContinuedToken {
        text: "a".to_owned(),
        id: 5,
        probability: 0.25,
        entropy: 1.5,
        mutual_information: (key.draws > 1).then_some(0.125),
    };
    let tokens = vec![token; key.max_tokens];
    let text = "a".repeat(key.max_tokens);
    let found = Continuation { text, tokens, prompt_tokens: 3, stopped: false };
    Ok(vec![Found::Continuation(found)])
}

#[test]
fn texts_are_answered_in_their_order_with_the_threshold_of_their_draws() {
    let app = app(card(), LONG);
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
        for expected in ["lrvd_texts_total 3\n", "lrvd_withheld_total 1\n", "lrvd_queue_texts 0\n"]
        {
            assert!(page.contains(expected), "{page}");
        }
        let counted = "lrvd_http_requests_total{path=\"/v1/classify\",status=\"200\"} 2\n";
        assert!(page.contains(counted), "{page}");
    });
}

/// Asks for what the cases of `routes.txt` name for `kind` of model: method, type, path and body, and below them status, code and
/// field of the error.
async fn are_rejected(app: Arc<App>, kind: &str) {
    let long = format!(r#"{{"text": "{}"}}"#, "a".repeat(200));
    let lines: Vec<&str> = include_str!("routes.txt").lines().collect();
    for case in lines.chunks(2).filter(|case| case[0].starts_with(kind)) {
        let words: Vec<&str> = case[0].splitn(5, ' ').collect();
        let typed = match words[2] {
            "json" => Some("application/json"),
            "text" => Some("text/plain"),
            _ => None,
        };
        let body = words[4].replace("LONG", &long);
        let (status, headers, text) = ask(&app, words[1], words[3], typed, &body).await;
        let error = serde_json::from_str::<Value>(&text).unwrap()["error"].take();
        let (code, field) = (error["code"].as_str().unwrap(), error["field"].as_str());
        let found = format!("    {status} {code} {}", field.unwrap_or("-"));
        assert_eq!(found, case[1], "{}: {error}", case[0]);
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(headers.contains_key(header::ALLOW), status == 405);
    }
}

#[test]
fn every_error_is_json_with_a_code() {
    answered(&app(card(), LONG), |app| async move {
        let typed = Some("Application/JSON; charset=utf-8");
        let (status, ..) = ask(&app, "POST", CLASSIFY, typed, r#"{"text": "a"}"#).await;
        assert_eq!(status, 200);
        are_rejected(app, "texts").await;
    });
    let language = app(Card::Language(language_card()), LONG);
    served(&language, continued, |app| are_rejected(app, "language"));
}

#[test]
fn a_full_queue_and_a_late_answer_are_said() {
    // No model answers.
    let app = app(card(), Duration::from_millis(20));
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

/// That the document of `app` has a schema for its model, the `answers` of one request and the error of another, with these
/// names of fields, and a place for every route.
async fn described(app: &Arc<App>, answers: &str) {
    let (_, _, document) = ask(app, "GET", "/openapi.json", None, "").await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let (status, _, answers) = post(app, answers).await;
    assert_eq!(status, 200, "{answers}");
    let (_, _, error) = post(app, r#"{"text": 1}"#).await;
    let (_, _, model) = ask(app, "GET", "/v1/model", None, "").await;
    let responses = &document["paths"][app.card.path()]["post"]["responses"];
    for (value, place) in [
        (&answers, &responses["200"]),
        (&error, &responses["400"]),
        (
            &serde_json::from_str(&model).unwrap(),
            &document["paths"]["/v1/model"]["get"]["responses"]["200"],
        ),
    ] {
        let schema = &place["content"]["application/json"]["schema"];
        assert!(has_fields(schema, value, &document), "{value} {schema}");
    }
    let elsewhere = if app.card.path() == CLASSIFY { GENERATE } else { CLASSIFY };
    for path in PATHS.iter().filter(|path| !["/", "/openapi.json", elsewhere].contains(path)) {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

/// Whether `schema` names the fields of `value`, and no others that are required. Types are derived with the fields.
fn has_fields(schema: &Value, value: &Value, document: &Value) -> bool {
    if let Some(target) = schema["$ref"].as_str() {
        return has_fields(document.pointer(&target[1..]).unwrap(), value, document);
    }
    if let Some(all) = schema["anyOf"].as_array() {
        return all.iter().any(|one| has_fields(one, value, document));
    }
    match (value, &schema["properties"]) {
        (Value::Object(fields), Value::Object(properties)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            required.into_iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields.iter().all(|(name, value)| {
                    properties.get(name).is_some_and(|one| has_fields(one, value, document))
                })
        }
        (Value::Array(items), _) => {
            items.iter().all(|item| has_fields(&schema["items"], item, document))
        }
        _ => !schema.is_null(),
    }
}

#[test]
fn what_is_sent_is_what_the_document_says() {
    answered(&app(card(), LONG), |app| async move {
        described(&app, r#"{"inputs": [{"text": "a"}, {"text": "unsure"}]}"#).await;
    });
    served(&app(Card::Language(language_card()), LONG), continued, |app| async move {
        described(&app, r#"{"prompt": "a", "max_tokens": 2}"#).await;
        described(&app, r#"{"prompt": "a", "draws": 0, "top_p": 0.5}"#).await;
    });
}

#[test]
fn a_language_model_answers_one_prompt_and_is_no_classifier() {
    served(&app(Card::Language(language_card()), LONG), continued, |app| async move {
        let (status, _, body) =
            post(&app, r#"{"prompt": "a", "max_tokens": 2, "top_p": 0.9}"#).await;
        let token = json!({
            "text": "a", "id": 5, "probability": 0.25, "entropy": 1.5, "mutual_information": 0.125,
        });
        let text = json!({
            "text": "aa", "tokens": [token.clone(), token], "prompt_tokens": 3, "stopped": false,
            // ln 0.25
            "mean_log_probability": -1.386_294_361_119_890_6,
        });
        let expected = json!({
            "schema_version": 1, "draws": 2, "seed": 7, "temperature": 1.0, "top_p": 0.9, "texts": [text],
        });
        assert_eq!((status, body), (200, expected));
        let (_, _, page) = ask(&app, "GET", "/metrics", None, "").await;
        assert!(page.contains("lrvd_tokens_total 2\n") && page.contains("lrvd_texts_total 1\n"));
    });
}

#[test]
fn a_generation_that_nobody_waits_for_ends() {
    let forever = r#"{"prompt": "forever"}"#;
    let tokens = |app: &App| {
        let page = app.metrics.page(0, 0);
        let line = page.lines().find_map(|line| line.strip_prefix("lrvd_tokens_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    // A deadline.
    let late = app(Card::Language(language_card()), Duration::from_millis(20));
    served(&late, continued, |app| async move {
        let (status, _, late) = post(&app, forever).await;
        assert_eq!((status, &late["error"]["code"]), (504, &json!("timeout")));
    });
    // A client that goes away.
    let left = app(Card::Language(language_card()), LONG);
    served(&left, continued, |app| async move {
        let gone = tokio::spawn({
            let app = Arc::clone(&app);
            async move { post(&app, forever).await }
        });
        while tokens(&app) == 0 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let (status, _, next) = post(&app, r#"{"prompt": "a", "max_tokens": 3}"#).await;
        assert_eq!((status, &next["texts"][0]["text"]), (200, &json!("aaa")));
    });
    let found = [&late, &left].map(|app| tokens(app));
    assert!(found.iter().all(|found| (1..50_000_000).contains(found)), "{found:?}");
}
