//! `lrvd serve`

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use lrvd_bench::Result;
use lrvd_bench::adapter::Adapter;

use serde_json::json;

use super::Outcome;
use super::decide::open;
use super::eval::{draws, load, load_language};
use crate::args::{self, AdapterArguments};
use crate::exit::{ExitStatus, stop_flag};
use crate::printer::{Format, Printer, remark};
use crate::serve::{Limits, Model, Server};

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    /// Answer typed questions; DIR may be a language model without an adapter, whose answers are not calibrated.
    #[arg(long)]
    pub(crate) decisions: bool,
    /// Address to listen at; port 0 means a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = listen)]
    pub(crate) address: Listen,
    /// A further name of the server that is accepted in the header `Host`; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) host_name: Vec<String>,
    /// Environment variable with the key that requests must send as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// An origin whose pages may send requests, as in `https://app.example`; may be repeated [default: none].
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
    /// Give no label if the entropy is above this many nats [default: the threshold of `lrvd abstain fit`, if any].
    #[arg(long, value_name = "NATS", value_parser = args::entropy, allow_negative_numbers = true)]
    pub(crate) abstain_above: Option<f64>,
    /// Largest number of draws in a request.
    #[arg(long, value_name = "K", default_value = "100", value_parser = args::few(0, 1000), allow_negative_numbers = true)]
    pub(crate) max_draws: usize,
    /// Largest batch of a classifier; more suits a GPU [default: 8].
    #[arg(long, value_name = "N", value_parser = args::few(1, 4096), allow_negative_numbers = true)]
    pub(crate) batch_size: Option<usize>,
    /// Largest number of texts in a request to a classifier [default: 64].
    #[arg(long, value_name = "N", value_parser = args::few(1, 65_536), allow_negative_numbers = true)]
    pub(crate) max_texts: Option<usize>,
    /// Largest number of new tokens in a request to a language model [default: 1024].
    #[arg(long, value_name = "N", value_parser = args::few(1, 1 << 20), allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<usize>,
    /// Largest request body in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = args::few(64, 1 << 30), allow_negative_numbers = true)]
    pub(crate) max_bytes: usize,
    /// Length of the queue in texts or prompts, at least `--max-texts`; further requests get 503.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = args::few(1, 1 << 20), allow_negative_numbers = true)]
    pub(crate) queue: usize,
    /// Largest number of open connections; further ones wait.
    #[arg(long, value_name = "N", default_value = "512", value_parser = args::few(1, 65_536), allow_negative_numbers = true)]
    pub(crate) max_connections: usize,
    /// Longest time from the head of a request to its answer; after it the request gets 504 and is cancelled.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::few(1, 3600), allow_negative_numbers = true)]
    pub(crate) timeout: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Listen {
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
    Err("expected a host name without scheme, port or path".to_owned())
}

/// As browsers send it: scheme, host, and a port that is not the scheme's.
fn origin(text: &str) -> Result<String, String> {
    let expected = "expected an origin such as https://app.example or http://localhost:3000";
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or(expected)?;
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host_name(host).is_ok() && !host.contains(char::is_uppercase),
    };
    if !is_host || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(expected.to_owned());
    }
    Ok(text.to_owned())
}

/// Texts that share a pass by default.
const BATCH_SIZE: usize = 8;
/// Most texts of a request by default.
const MAX_TEXTS: usize = 64;
/// Most new tokens of a request by default.
const MAX_TOKENS: usize = 1024;

pub(super) fn run(arguments: ServeArguments, printer: Printer) -> Outcome {
    let stop = stop_flag()?;
    let own = &arguments.adapter;
    let generates = !arguments.decisions && Adapter::is_for_texts(&own.dir)?;
    check(&arguments, generates)?;
    let one = |asked: Option<usize>, usual| asked.unwrap_or(if generates { 1 } else { usual });
    let limits = Limits {
        batch_size: one(arguments.batch_size, BATCH_SIZE),
        max_draws: arguments.max_draws,
        max_tokens: arguments.max_tokens.unwrap_or(MAX_TOKENS),
        max_texts: one(arguments.max_texts, MAX_TEXTS),
        max_bytes: arguments.max_bytes,
        queue: arguments.queue,
        timeout: Duration::from_secs(arguments.timeout as u64),
        max_connections: arguments.max_connections,
    };
    let key = arguments.api_key_env.as_deref().map(key).transpose()?;
    let mut names = arguments.host_name;
    names.push(arguments.address.host);
    // Nothing is loaded for a port that is taken.
    let origins = arguments.allow_origin;
    let server = Server::open(arguments.address.address, names, key, origins, limits)?;
    if server.access.is_public() {
        // Also with `--quiet`: services run with it.
        remark(&format!(
            "warning: other machines can reach `{}`, and it answers without a key: pass `--api-key-env NAME`",
            server.access.address
        ));
    }
    let address = format!("http://{}", server.access.address);
    let started = || match printer.format {
        Format::Text => printer.data(&address),
        Format::Json => printer.document_line("serve", json!({ "address": address })).map(|_| ()),
    };
    let model = if generates {
        let model = load_language(own, printer)?;
        // As `lrvd generate`, at the mean by default.
        let draws = model.draws(Some(own.draws.unwrap_or(0)))?;
        let seed = own.seed.unwrap_or(model.seed());
        Model::Language { saved: Box::new(model), draws, seed }
    } else {
        let mut classifier =
            if arguments.decisions { open(own, printer)? } else { load(own, printer)? };
        let limit = arguments.abstain_above;
        if limit.is_some() && classifier.is_decider() && classifier.fixed_question().is_none() {
            bail!(
                "`--abstain-above` is an entropy, and typed questions have a threshold on the confidence"
            );
        }
        let draws = draws(own, &classifier)?;
        classifier.withheld_above(limit, draws)?;
        let seed = own.seed.unwrap_or(classifier.info.run.seed);
        classifier.info.run.batch_size = limits.batch_size;
        Model::Classifier { saved: Box::new(classifier), draws, seed, limit }
    };
    server.run(&model, stop, printer, started)?;
    Ok(ExitStatus::Done)
}

fn key(name: &str) -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "a key does not belong in a list of processes")]
    let found = std::env::var(name);
    let key = found.map_err(|error| anyhow!("`--api-key-env {name}`: {error}"))?;
    // Anything else cannot be sent as a header.
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "`--api-key-env {name}`: expected visible ASCII characters without spaces, at least one"
        );
    }
    Ok(key)
}

/// Rejects options of the other kind of model.
fn check(arguments: &ServeArguments, generates: bool) -> Result<()> {
    let own = [("--max-tokens", arguments.max_tokens.is_some())];
    let others = [
        ("--abstain-above", arguments.abstain_above.is_some()),
        ("--batch-size", arguments.batch_size.is_some()),
        ("--max-texts", arguments.max_texts.is_some()),
    ];
    let (unwanted, expected, found) = if generates {
        (&others[..], "classifiers", "a language model")
    } else {
        (&own[..], "language models", "a classifier")
    };
    match unwanted.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => bail!(
            "`{name}` is for {expected}, and `{}` is {found}",
            arguments.adapter.dir.display()
        ),
        None => Ok(()),
    }
}
