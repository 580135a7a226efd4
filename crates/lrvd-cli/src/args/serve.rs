//! `lrvd serve`

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;

use super::ClassifierArguments;

pub(crate) const SERVE_EXAMPLES: &str = "\
Examples:
  lrvd serve runs/mine                             then open http://127.0.0.1:8080 in a browser
  LRVD_KEY=... lrvd serve runs/mine --address 0.0.0.0:80 --host-name models.example --api-key-env LRVD_KEY
  lrvd serve runs/mine --address 127.0.0.1:0 --format json        a free port, which is printed
  curl -H 'Content-Type: application/json' -d '{\"text\": \"a film\"}' \\
      http://127.0.0.1:8080/v1/classify
  curl -H 'Content-Type: application/json' -d '{\"prompt\": \"Once upon\", \"max_tokens\": 20}' \\
      http://127.0.0.1:8080/v1/generate

POST /v1/classify   of a classifier: {\"text\": T}, {\"text\": T, \"pair\": P} or
                    {\"inputs\": [{\"text\": T}, ...]}, with \"draws\" and \"seed\" if they should differ;
                    answers as `lrvd predict` does, at the mean without `--draws`
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
full, 504 that an answer took too long.

A request must name the server by `localhost`, by a loopback address, by the address that it listens
at (any address where that is 0.0.0.0 or [::]) or by a `--host-name`; others get 421. With
`--api-key-env` all paths but /, /healthz and /readyz need `Authorization: Bearer KEY`; others get
401. There is no encryption: put a proxy with TLS before it where the network is not your own.
A connection that sends no head of a request, or reads no answer, for 30 s (or `--timeout`, if that
is shorter) is closed.

The address is printed once requests are taken. One line of JSON for each request goes to standard
error, without its texts; `--quiet` leaves it out. Ctrl-C and SIGTERM stop accepting, answer what
was accepted, and exit with 0.";

/// Options of `lrvd serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) classifier: ClassifierArguments,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = listen)]
    pub(crate) address: Listen,
    /// A further name by which requests call the server, as in the header `Host`; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) host_name: Vec<String>,
    /// Environment variable with a key that requests must send as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// Give no label where the entropy is above this many nats [default: what `lrvd abstain fit` found, if it was
    /// run].
    #[arg(long, value_name = "NATS", value_parser = super::entropy, allow_negative_numbers = true)]
    pub(crate) abstain_above: Option<f64>,
    /// Most draws that a request may ask for.
    #[arg(long, value_name = "K", default_value = "100", value_parser = super::few(0, 1000), allow_negative_numbers = true)]
    pub(crate) max_draws: usize,
    /// Most texts, or pairs, that share a pass of a classifier; a GPU can take more [default: 8].
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
    /// Most connections that are open at a time; further ones wait.
    #[arg(long, value_name = "N", default_value = "512", value_parser = super::few(1, 65_536), allow_negative_numbers = true)]
    pub(crate) max_connections: usize,
    /// Longest time from the head of a request to its answer; then it gets 504, leaves the queue, and is generated for no
    /// more.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = super::few(1, 3600), allow_negative_numbers = true)]
    pub(crate) timeout: usize,
}

/// Where to listen.
#[derive(Clone, Debug)]
pub(crate) struct Listen {
    /// The host as given.
    pub(crate) host: String,
    /// Its first address.
    pub(crate) address: SocketAddr,
}

fn listen(text: &str) -> Result<Listen, String> {
    let mut found =
        text.to_socket_addrs().map_err(|error| format!("expected HOST:PORT: {error}"))?;
    let address = found.next().ok_or_else(|| "this host has no address".to_owned())?;
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    Ok(Listen { host: host.trim_matches(['[', ']']).to_owned(), address })
}

fn host_name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !text.is_empty() && text.chars().all(is_part) {
        return Ok(text.trim_end_matches('.').to_owned());
    }
    Err("expected a host's name without scheme, port or path".to_owned())
}
