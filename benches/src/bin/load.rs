//! Load for `lrvd serve`, and what became of every request, as one line of JSON.
//!
//! ```text
//! lrvd serve runs/mine &
//! cargo run --release -p lrvd-perf --bin load -- --requests 500 --draws 10
//! cargo run --release -p lrvd-perf --bin load -- --requests 5000 --clients 128 --rate 1000
//! cargo run --release -p lrvd-perf --bin load -- --questions questions.json --draws 0
//! ```
#![allow(clippy::print_stdout, reason = "the line of JSON is the product")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use ureq::Agent;

/// Sends requests of one text each and counts every one of them.
#[derive(Parser)]
struct Options {
    /// Address of the server
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    #[arg(long, default_value_t = 500)]
    requests: usize,
    /// Connections; without a rate, each sends its next request when it has the answer to the last
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Requests a second, whether or not earlier ones are answered, as far as the clients suffice
    #[arg(long)]
    rate: Option<f64>,
    /// Draws to ask for [default: the server's]
    #[arg(long)]
    draws: Option<usize>,
    /// Asks these typed questions about each text
    #[arg(long, value_name = "FILE.json", value_parser = questions)]
    questions: Option<Value>,
}

fn questions(path: &str) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("`{path}`: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("`{path}`: {error}"))
}

fn main() {
    let options = Options::parse();
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .max_idle_connections(options.clients)
        .max_idle_connections_per_host(options.clients)
        .build()
        .into();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.clients {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.requests {
                        break;
                    }
                    let outcome = send(&agent, &options, number, begun);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(outcome);
                    }
                }
            });
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("{}", report(&outcomes.into_inner().unwrap_or_default(), &options, seconds));
}

/// One request, at its time if there is a rate: its status, or 0 where the connection failed, and the seconds since it was
/// due.
fn send(agent: &Agent, options: &Options, number: usize, begun: Instant) -> (u16, f64) {
    let due = match options.rate {
        Some(rate) => begun + Duration::from_secs_f64(number as f64 / rate),
        None => Instant::now(),
    };
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let (route, draws, mut body) = match &options.questions {
        None => ("classify", "draws", json!({ "text": text(number) })),
        Some(questions) => {
            let model = "jev-latest";
            let body = json!({ "model": model, "state": text(number), "questions": questions });
            ("systemone", "x_draws", body)
        }
    };
    if let Some(asked) = options.draws {
        body[draws] = asked.into();
    }
    let request = agent.post(format!("{}/v1/{route}", options.url));
    let answer = request.header("content-type", "application/json").send(body.to_string());
    // Only a whole body is an answer.
    let status = answer.and_then(|mut answer| {
        let status = answer.status().as_u16();
        answer.body_mut().read_to_string().map(|_| status)
    });
    (status.unwrap_or(0), due.elapsed().as_secs_f64())
}

/// Texts of 3 to 33 words.
fn text(number: usize) -> String {
    let words =
        ["the", "film", "was", "warm", "and", "long", "but", "never", "dull", "they", "say"];
    let count = 3 + number * 7 % 31;
    (0..count).map(|i| words[(number + i * 5) % words.len()]).collect::<Vec<_>>().join(" ")
}

fn report(outcomes: &[(u16, f64)], options: &Options, seconds: f64) -> Value {
    let mut by_status = BTreeMap::<String, usize>::new();
    for (status, _) in outcomes {
        let name = if *status == 0 { "lost".to_owned() } else { status.to_string() };
        *by_status.entry(name).or_default() += 1;
    }
    let answered = outcomes.iter().filter(|(status, _)| *status == 200);
    let mut times: Vec<f64> = answered.map(|(_, seconds)| *seconds).collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * times.len() as f64).ceil() as usize;
        times.get(place.saturating_sub(1)).map(|seconds| 1e3 * seconds)
    };
    json!({
        "requests": options.requests,
        "clients": options.clients,
        "offered_per_second": options.requests as f64 / seconds,
        "answered_per_second": times.len() as f64 / seconds,
        "p50_ms": at(0.5),
        "p95_ms": at(0.95),
        "p99_ms": at(0.99),
        "seconds": seconds,
        "by_status": by_status,
    })
}
