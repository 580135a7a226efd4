//! Counts for Prometheus, in its text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, seconds.
const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What has happened since the start.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// By path and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Answered questions by bucket, the last one without a bound.
    seconds: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
    texts: AtomicU64,
    withheld: AtomicU64,
    batches: AtomicU64,
    batched: AtomicU64,
    batch_microseconds: AtomicU64,
    tokens: AtomicU64,
}

impl Metrics {
    /// A request to `path` had the status `status`.
    pub(super) fn request(&self, path: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((path, status)).or_default() += 1;
    }

    /// `texts` of one request were answered, `withheld` of them without a label.
    pub(super) fn answered(&self, texts: usize, withheld: usize, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        add(&self.seconds[bucket], 1);
        add(&self.microseconds, took.as_micros() as u64);
        add(&self.texts, texts as u64);
        add(&self.withheld, withheld as u64);
    }

    /// The model is asked about `texts` texts at once.
    pub(super) fn passed(&self, texts: usize) {
        add(&self.batches, 1);
        add(&self.batched, texts as u64);
    }

    /// The model was asked for so long.
    pub(super) fn took(&self, time: Duration) {
        add(&self.batch_microseconds, time.as_micros() as u64);
    }

    /// There are `tokens` new ones.
    pub(super) fn generated(&self, tokens: usize) {
        add(&self.tokens, tokens as u64);
    }

    /// The page that Prometheus reads, with `waiting` texts in a queue of `most`.
    pub(super) fn page(&self, waiting: usize, most: usize) -> String {
        let mut page = String::new();
        head(&mut page, "lrvd_http_requests_total", "counter", "Requests by path and status.");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((path, status), count) in requests.iter() {
            let labels = format!("{{path=\"{path}\",status=\"{status}\"}}");
            line(&mut page, &format!("lrvd_http_requests_total{labels}"), *count);
        }
        drop(requests);
        let name = "lrvd_answer_seconds";
        head(&mut page, name, "histogram", "Time from a request's head to its answer.");
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.seconds) {
            sum += get(count);
            line(&mut page, &format!("{name}_bucket{{le=\"{bound}\"}}"), sum);
        }
        line(&mut page, &format!("{name}_sum"), get(&self.microseconds) as f64 / 1e6);
        line(&mut page, &format!("{name}_count"), sum);
        for (name, kind, help, value) in [
            ("lrvd_texts_total", "counter", "Texts that were answered.", get(&self.texts)),
            (
                "lrvd_withheld_total",
                "counter",
                "Answers that were withheld, being too unsure.",
                get(&self.withheld),
            ),
            (
                "lrvd_batches_total",
                "counter",
                "Times that the model was asked.",
                get(&self.batches),
            ),
            (
                "lrvd_batch_texts_total",
                "counter",
                "Texts that the model was asked about.",
                get(&self.batched),
            ),
            (
                "lrvd_tokens_total",
                "counter",
                "Tokens that were generated, also for clients that did not wait for them.",
                get(&self.tokens),
            ),
            ("lrvd_queue_texts", "gauge", "Texts that wait.", waiting as u64),
            ("lrvd_queue_limit", "gauge", "Texts that may wait.", most as u64),
        ] {
            head(&mut page, name, kind, help);
            line(&mut page, name, value);
        }
        let name = "lrvd_batch_seconds_total";
        head(&mut page, name, "counter", "Time that the model took to answer or to generate.");
        line(&mut page, name, get(&self.batch_microseconds) as f64 / 1e6);
        page
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(page: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(page, "{name} {value}");
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
        for expected in [
            "# TYPE lrvd_http_requests_total counter\n",
            "lrvd_http_requests_total{path=\"/v1/classify\",status=\"200\"} 2\n",
            "lrvd_http_requests_total{path=\"other\",status=\"404\"} 1\n",
            "lrvd_answer_seconds_bucket{le=\"0.01\"} 0\n",
            "lrvd_answer_seconds_bucket{le=\"0.025\"} 1\n",
            "lrvd_answer_seconds_bucket{le=\"1\"} 1\n",
            "lrvd_answer_seconds_bucket{le=\"30\"} 1\n",
            "lrvd_answer_seconds_bucket{le=\"+Inf\"} 2\n",
            "lrvd_answer_seconds_sum 60.02\n",
            "lrvd_answer_seconds_count 2\n",
            "lrvd_texts_total 3\n",
            "lrvd_withheld_total 1\n",
            "lrvd_batches_total 1\n",
            "lrvd_batch_texts_total 3\n",
            "# TYPE lrvd_queue_texts gauge\nlrvd_queue_texts 4\n",
            "lrvd_queue_limit 9\n",
            "lrvd_tokens_total 2\n",
            "lrvd_batch_seconds_total 1.5\n",
        ] {
            assert!(page.contains(expected), "{expected}{page}");
        }
        // Every line is a comment, or a name and a number; the page ends in a line break.
        for line in page.lines().filter(|line| !line.starts_with("# ")) {
            let (_, value) = line.rsplit_once(' ').unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        assert!(page.ends_with('\n'));
    }
}
