//! Counts for Prometheus, in its text format (`OpenMetrics` 1.0).

use std::collections::BTreeMap;
use std::fmt::{Error, Result};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// Content type of the page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Upper bounds of the histogram's buckets, seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What has happened since the start.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Requests,
    seconds: Histogram,
    texts: Counter,
    withheld: Counter,
    batches: Counter,
    batched: Counter,
    batch_seconds: Counter<f64, AtomicU64>,
    tokens: Counter,
    waiting: Gauge,
    limit: Gauge,
}

/// Requests by path and status, in their order.
#[derive(Clone, Debug, Default)]
struct Requests(Arc<Mutex<BTreeMap<(&'static str, u16), Counter>>>);

impl EncodeMetric for Requests {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result {
        let requests = self.0.lock().map_err(|_| Error)?;
        for ((path, status), count) in requests.iter() {
            let labels = [("path", (*path).to_owned()), ("status", status.to_string())];
            count.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
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
    /// A request to `path` had the status `status`.
    pub(super) fn request(&self, path: &'static str, status: u16) {
        let mut requests = self.requests.0.lock().unwrap_or_else(PoisonError::into_inner);
        requests.entry((path, status)).or_default().inc();
    }

    /// `texts` of one request were answered, `withheld` of them without a label.
    pub(super) fn answered(&self, texts: usize, withheld: usize, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.texts.inc_by(texts as u64);
        self.withheld.inc_by(withheld as u64);
    }

    /// The model is asked about `texts` texts at once.
    pub(super) fn passed(&self, texts: usize) {
        self.batches.inc();
        self.batched.inc_by(texts as u64);
    }

    /// The model was asked for so long.
    pub(super) fn took(&self, time: Duration) {
        self.batch_seconds.inc_by(time.as_secs_f64());
    }

    /// There are `tokens` new ones.
    pub(super) fn generated(&self, tokens: usize) {
        self.tokens.inc_by(tokens as u64);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_prometheus_text() {
        let metrics = Metrics::default();
        metrics.request("/v1/classify", 200);
        metrics.request("/v1/classify", 200);
        metrics.request("other", 404);
        metrics.passed(3);
        metrics.took(Duration::from_millis(1500));
        for tokens in [1, 1, 0] {
            metrics.generated(tokens);
        }
        metrics.answered(2, 1, Duration::from_millis(20));
        metrics.answered(1, 0, Duration::from_mins(1));
        let page = metrics.page(4, 9);
        for expected in include_str!("metrics.txt").lines() {
            assert!(page.lines().any(|line| line == expected), "{expected}: {page}");
        }
        // Every line is a comment, or a name and a number.
        for line in page.lines().filter(|line| !line.starts_with("# ")) {
            let (_, value) = line.rsplit_once(' ').unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(page.ends_with("# EOF\n"));
    }
}
