//! `lrvd serve`

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;

use super::ClassifierArguments;

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  lrvd serve runs/mine                             then open http://127.0.0.1:8080 in a browser
  lrvd serve runs/mine --address 0.0.0.0:80 --draws 20 --queue 4096
  lrvd serve runs/mine --address 127.0.0.1:0 --format json        a free port, which is printed
  curl -H 'Content-Type: application/json' -d '{\"text\": \"a film\"}' \\
      http://127.0.0.1:8080/v1/classify
  curl -H 'Content-Type: application/json' -d '{\"prompt\": \"Once upon\", \"max_tokens\": 20}' \\
      http://127.0.0.1:8080/v1/generate

POST /v1/classify   of a classifier: {\"text\": T}, {\"text\": T, \"pair\": P} or
                    {\"inputs\": [{\"text\": T}, ...]}, with \"draws\" and \"seed\" if they should differ;
                    answers as `lrvd predict` does
POST /v1/generate   of a language model: {\"prompt\": P} or {\"messages\": [{\"role\": R, \"content\": C}, ...]},
                    with \"max_tokens\", \"draws\", \"seed\", \"temperature\" and \"top_p\" if they should
                    differ; answers as `lrvd generate --format json` does, at the mean without `--draws`
GET  /v1/model      labels or lengths, draws that can be asked for, limits
GET  /              a page to type a text and see how sure the model is
GET  /openapi.json  the form of requests and answers
GET  /healthz, /readyz, /metrics
                    for supervisors, and for Prometheus

One model answers, on all cores. Texts that wait for a classifier are put together; that changes no
answer. Prompts are continued one after another, and no further once the client has gone. An
error is {\"error\": {\"code\", \"message\", \"field\"}}; 503 with Retry-After means that the queue is
full, 504 that an answer took too long. There is no password and no encryption: put what has both
before it where the network is not your own.

The address is printed once requests are taken. One line of JSON for each request goes to standard
error, without its texts; `--quiet` leaves it out. Ctrl-C and SIGTERM stop accepting, answer what
was accepted, and exit with 0.";

/// Options of `lrvd serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) classifier: ClassifierArguments,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) address: SocketAddr,
    /// Give no label where the entropy is above this many nats [default: what `lrvd abstain fit` found, if it was
    /// run].
    #[arg(long, value_name = "NATS", value_parser = super::entropy, allow_negative_numbers = true)]
    pub(crate) abstain_above: Option<f64>,
    /// Most draws that a request may ask for.
    #[arg(long, value_name = "K", default_value = "100", value_parser = super::few(0, 1000), allow_negative_numbers = true)]
    pub(crate) max_draws: usize,
    /// Most texts, or pairs, that share a pass of a classifier; a GPU bears more [default: 8].
    #[arg(long, value_name = "N", value_parser = super::few(1, 4096), allow_negative_numbers = true)]
    pub(crate) batch_size: Option<usize>,
    /// Most texts of a request to a classifier [default: 64].
    #[arg(long, value_name = "N", value_parser = super::few(1, 65_536), allow_negative_numbers = true)]
    pub(crate) max_texts: Option<usize>,
    /// Most new tokens that a request to a language model may ask for [default: 1024].
    #[arg(long, value_name = "N", value_parser = super::few(1, 1 << 20), allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<usize>,
    /// Most bytes of a request.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = super::few(64, 1 << 30), allow_negative_numbers = true)]
    pub(crate) max_bytes: usize,
    /// Most texts or prompts that wait; further requests get 503. At least `--max-texts`.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = super::few(1, 1 << 20), allow_negative_numbers = true)]
    pub(crate) queue: usize,
    /// Longest time from the head of a request to its answer; then it gets 504, leaves the queue, and is generated for no
    /// more.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = super::few(1, 3600), allow_negative_numbers = true)]
    pub(crate) timeout: usize,
}

/// The first address of a host's name, or the address itself.
fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| format!("wanted HOST:PORT: {error}"))?;
    found.next().ok_or_else(|| "this host has no address".to_owned())
}
