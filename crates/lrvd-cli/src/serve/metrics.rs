//! Counts for Prometheus, in its text format (`OpenMetrics` 1.0).

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper bounds of the histogram's buckets, seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Counts since the start.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    /// By path and status.
    pub(super) requests: Family<Vec<(&'static str, String)>, Counter>,
    pub(super) seconds: Histogram,
    pub(super) texts: Counter,
    pub(super) withheld: Counter,
    pub(super) batches: Counter,
    pub(super) batched: Counter,
    pub(super) batch_seconds: Counter<f64, AtomicU64>,
    pub(super) tokens: Counter,
    waiting: Gauge,
    limit: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("lrvd");
        let all = &mut registry;
        Self {
            requests: add(all, "http_requests", "Requests by path and status"),
            seconds: {
                let seconds = Histogram::new(BOUNDS);
                let help = "Time from a request's head to its answer";
                all.register("answer_seconds", help, seconds.clone());
                seconds
            },
            texts: add(all, "texts", "Texts that were answered"),
            withheld: add(all, "withheld", "Answers that were withheld, being too unsure"),
            batches: add(all, "batches", "Times that the model was asked"),
            batched: add(all, "batch_texts", "Texts that the model was asked about"),
            batch_seconds: add(
                all,
                "batch_seconds",
                "Time that the model took to answer or to generate",
            ),
            tokens: add(
                all,
                "tokens",
                "Tokens that were generated, also for clients that did not wait for them",
            ),
            waiting: add(all, "queue_texts", "Texts that wait"),
            limit: add(all, "queue_limit", "Texts that may wait"),
            registry,
        }
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// The page that Prometheus reads, with `waiting` texts in a queue of `most`.
    pub(super) fn page(&self, waiting: usize, most: usize) -> String {
        self.waiting.set(waiting as i64);
        self.limit.set(most as i64);
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut page, &self.registry);
        page
    }
}
