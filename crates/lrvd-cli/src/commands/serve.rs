//! `lrvd serve`

use std::time::Duration;

use anyhow::{anyhow, bail};
use lrvd_bench::Result;
use lrvd_bench::adapter::Adapter;

use super::eval::{draws, load};
use super::predict::check_limit;
use super::{Outcome, language};
use crate::args::ServeArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer, remark};
use crate::serve::{Classifier, LanguageModel, Limits, Server};
use crate::signals;

/// Texts that share a pass by default.
const BATCH_SIZE: usize = 8;
/// Most texts of a request by default.
const MAX_TEXTS: usize = 64;
/// Most new tokens of a request by default.
const MAX_TOKENS: usize = 1024;

/// Listens, loads, answers until a signal.
pub(super) fn run(arguments: ServeArguments, printer: Printer) -> Outcome {
    let stop = signals::stop_flag()?;
    let own = &arguments.classifier;
    let generates = Adapter::is_for_texts(&own.dir)?;
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
    let server = Server::open(arguments.address.address, names, key, limits)?;
    if server.is_public() {
        // Also with `--quiet`: services run with it.
        remark(&format!(
            "warning: other machines can reach `{}`, and it answers without a key: pass `--api-key-env NAME`",
            server.address()
        ));
    }
    let address = format!("http://{}", server.address());
    let started = || match printer.format() {
        Format::Text => printer.data(&address),
        Format::Json => {
            let line = serde_json::json!({ "schema_version": 1, "address": address });
            printer.json_line(&line).map(|_| ())
        }
    };
    if generates {
        let model = language::load(own, printer)?;
        // As `lrvd generate`, at the mean by default.
        let draws = model.draws(Some(own.draws.unwrap_or(0)))?;
        let seed = own.seed.unwrap_or(model.seed());
        server.run(&LanguageModel::new(model, draws, seed), stop, printer, started)?;
    } else {
        let classifier = load(own, printer)?;
        let limit = arguments.abstain_above;
        check_limit(&classifier, limit)?;
        let draws = draws(own, &classifier)?;
        if limit.is_none() {
            classifier.abstention(draws)?;
        }
        let seed = own.seed.unwrap_or(classifier.info.run.seed);
        let model = Classifier::new(classifier, draws, seed, limit, limits.batch_size);
        server.run(&model, stop, printer, started)?;
    }
    Ok(ExitStatus::Done)
}

/// The key in the environment variable `name`.
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
            arguments.classifier.dir.display()
        ),
        None => Ok(()),
    }
}
