//! `lrvd serve`

use std::collections::HashSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use burn::tensor::Device;
use clap::Args;
use lrvd_bench::Result;
use lrvd_bench::adapter::{
    AbstainBy, Abstaining, Adapter, Base, OpenOptions, SavedClassifier, SavedLanguageModel,
};
use lrvd_burn::ops::Packing;
use lrvd_burn::train::DrawPolicy;
use serde_json::json;

use super::Outcome;
use super::abstain::WithholdArguments;
use super::decide::{ReadoutArguments, base_alone, untrained};
use super::eval::{draws, spares_nothing};
use super::predict::SetArguments;
use crate::args::{self, AnswerArguments, InputColumns, heading};
use crate::exit::{ExitStatus, stop_flag};
use crate::printer::{Format, Printer, remark};
use crate::serve::{Limits, Model, Server, check_name, log_signal};

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Output of `lrvd train`, or an adapter folder.
    #[arg(value_name = "DIR", required_unless_present = "shared")]
    pub(crate) dir: Option<PathBuf>,
    /// Base model of several adapters, whose weights are in memory once.
    #[arg(long = "base", id = "shared", value_name = "DIR|GGUF|HUB-ID", requires = "adapters", conflicts_with_all = ["dir", "model"], help_heading = heading::MODEL)]
    pub(crate) shared: Option<String>,
    /// An adapter on the base of `--base`, and the `model` that requests choose it by; may be repeated.
    #[arg(long = "adapter", id = "adapters", value_name = "NAME=DIR", requires = "shared", value_parser = named, help_heading = heading::MODEL)]
    pub(crate) adapters: Vec<(String, PathBuf)>,
    /// Largest number of adapters, also of those that are added while the server runs.
    #[arg(long, value_name = "N", default_value = "32", value_parser = args::few(1, 10_000), allow_negative_numbers = true, help_heading = heading::LIMITS, hide_short_help = true)]
    pub(crate) max_adapters: usize,
    #[command(flatten)]
    pub(crate) answers: AnswerArguments,
    /// Answer typed questions; DIR may be a language model without an adapter, whose answers are not calibrated.
    #[arg(long, conflicts_with = "shared", help_heading = heading::ANSWERS)]
    pub(crate) decisions: bool,
    #[command(flatten)]
    pub(crate) readout: ReadoutArguments,
    /// Address to listen at; port 0 means a free port.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_parser = listen, help_heading = heading::SERVER)]
    pub(crate) address: Listen,
    /// A further name of the server that is accepted in the header `Host`; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = host_name, help_heading = heading::SERVER, hide_short_help = true)]
    pub(crate) host_name: Vec<String>,
    /// Environment variable with the key that requests must send as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "NAME", help_heading = heading::SERVER)]
    pub(crate) api_key_env: Option<String>,
    /// An origin whose pages may send requests, as in `https://app.example`; may be repeated [default: none].
    #[arg(long, value_name = "ORIGIN", value_parser = origin, help_heading = heading::SERVER, hide_short_help = true)]
    pub(crate) allow_origin: Vec<String>,
    #[command(flatten)]
    pub(crate) withhold: WithholdArguments,
    #[command(flatten)]
    pub(crate) sets: SetArguments,
    /// Largest number of draws in a request.
    #[arg(long, value_name = "K", default_value = "100", value_parser = args::few(0, 1000), allow_negative_numbers = true, help_heading = heading::LIMITS)]
    pub(crate) max_draws: usize,
    /// Largest batch of a classifier; more suits a GPU [default: 8].
    #[arg(long, value_name = "N", value_parser = args::few(1, 4096), allow_negative_numbers = true, help_heading = heading::SERVER, hide_short_help = true)]
    pub(crate) batch_size: Option<usize>,
    /// Largest number of texts, typed questions or prompts in a request [default: 64, or `--queue` if that is less].
    #[arg(long, value_name = "N", value_parser = args::few(1, 65_536), allow_negative_numbers = true, help_heading = heading::LIMITS, hide_short_help = true)]
    pub(crate) max_texts: Option<usize>,
    /// Largest number of options in all typed questions of a request together, times its draws.
    #[arg(long, value_name = "N", default_value = "8192", value_parser = args::few(2, 1 << 24), allow_negative_numbers = true, help_heading = heading::LIMITS, hide_short_help = true)]
    pub(crate) max_options: usize,
    /// Largest number of new tokens in a request to a language model [default: 1024].
    #[arg(long, value_name = "N", value_parser = args::few(1, 1 << 20), allow_negative_numbers = true, help_heading = heading::LIMITS)]
    pub(crate) max_tokens: Option<usize>,
    /// Largest request body in bytes.
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = args::few(64, 1 << 30), allow_negative_numbers = true, help_heading = heading::LIMITS, hide_short_help = true)]
    pub(crate) max_bytes: usize,
    /// Length of the queue in texts or prompts, at least `--max-texts`; further requests get 503.
    #[arg(long, value_name = "N", default_value = "1024", value_parser = args::few(1, 1 << 20), allow_negative_numbers = true, help_heading = heading::LIMITS)]
    pub(crate) queue: usize,
    /// Largest number of open connections; further ones wait.
    #[arg(long, value_name = "N", default_value = "512", value_parser = args::few(1, 65_536), allow_negative_numbers = true, help_heading = heading::LIMITS, hide_short_help = true)]
    pub(crate) max_connections: usize,
    /// Longest time from the head of a request to its answer, or of a stream to each token; after it the request gets 504 and is
    /// cancelled.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = args::few(1, 3600), allow_negative_numbers = true, help_heading = heading::LIMITS)]
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

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, folder) = text.split_once('=').ok_or("expected NAME=DIR")?;
    check_name(name)?;
    if folder.is_empty() {
        return Err("expected NAME=DIR, found no folder".to_owned());
    }
    Ok((name.to_owned(), folder.into()))
}

/// Default name of a model: that of the run of its folder, in letters that requests can send.
fn run_name(dir: &Path) -> Option<String> {
    if !Adapter::is_at(dir).ok()? {
        return None;
    }
    let folder = dir.canonicalize().ok()?;
    let is_called = |folder: &Path, name: &str| folder.file_name().is_some_and(|own| own == name);
    let run = match folder.parent() {
        Some(outer) if is_called(outer, "checkpoints") => outer.parent()?,
        Some(outer) if is_called(&folder, "adapter") => outer,
        _ => &folder,
    };
    let name = run.file_name()?.to_str()?;
    let letter = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
    let name: String = name.chars().take(64).map(letter).collect();
    check_name(&name).ok().map(|()| name)
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
/// Most tokens of a pass with several draws: a request is ended between passes.
const TOKENS_PER_PASS: usize = 2048;
/// Most texts of a request by default.
const MAX_TEXTS: usize = 64;
/// Most new tokens of a request by default.
const MAX_TOKENS: usize = 1024;

pub(super) fn run(arguments: ServeArguments, printer: Printer) -> Outcome {
    let stop = stop_flag(true, move |signal, ends| log_signal(printer, signal, ends))?;
    check(&arguments)?;
    let limits = Limits {
        batch_size: arguments.batch_size.unwrap_or(BATCH_SIZE),
        max_draws: arguments.max_draws,
        max_tokens: arguments.max_tokens.unwrap_or(MAX_TOKENS),
        max_texts: arguments.max_texts.unwrap_or(MAX_TEXTS.min(arguments.queue)),
        max_options: arguments.max_options,
        max_bytes: arguments.max_bytes,
        queue: arguments.queue,
        timeout: Duration::from_secs(arguments.timeout as u64),
        max_connections: arguments.max_connections,
        max_adapters: arguments.max_adapters,
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
    let started = || match printer.format() {
        Format::Json => printer.document_line("serve", json!({ "address": address })).map(|_| ()),
        _ => printer.data(&address),
    };
    let device = arguments.answers.device.open(printer)?;
    let answers = arguments.answers;
    let asked = arguments.withhold.asked();
    let sets = arguments.sets;
    let loader = Loader {
        answers,
        asked,
        sets,
        batch_size: limits.batch_size,
        decides: arguments.decisions,
        readout: arguments.readout,
        device,
        printer,
    };
    let (base, models) = match (arguments.dir, arguments.shared) {
        (Some(dir), _) => {
            let (base, model) = loader.alone(&dir)?;
            (base, vec![(run_name(&dir), model)])
        }
        (None, Some(shared)) => {
            let base = Base::open(&shared, loader.options().packing)?;
            let load = |(name, dir): (String, PathBuf)| {
                let model = loader.load(&base, &dir);
                let model = model.with_context(|| format!("adapter `{name}`"))?;
                Ok((Some(name), model))
            };
            let models = arguments.adapters.into_iter().map(load).collect::<Result<_>>()?;
            (base, models)
        }
        (None, None) => bail!("pass DIR, or `--base` with `--adapter`"),
    };
    let load = Box::new(move |dir: &Path| loader.load(&base, dir));
    server.run(models, load, stop, printer, started)?;
    Ok(ExitStatus::Done)
}

/// Loads the models of a server, with the options of their answers.
struct Loader {
    answers: AnswerArguments,
    asked: Option<AbstainBy>,
    sets: SetArguments,
    batch_size: usize,
    /// True if a language model answers typed questions.
    decides: bool,
    readout: ReadoutArguments,
    device: Device,
    printer: Printer,
}

impl Loader {
    /// The only model of the command line, and its base.
    fn alone(&self, dir: &Path) -> Result<(Base, Model)> {
        if self.decides
            && let Some(base) = base_alone(dir, &self.answers, self.readout)?
        {
            let model = untrained(&base, self.readout, &self.device, self.printer)?;
            let model = self.classifier(model)?;
            return Ok((base, model));
        }
        let adapter = Adapter::open(dir, &self.options(), &self.device)?;
        let base = adapter.base_to_share()?;
        let model = self.model(&adapter.on(&base))?;
        Ok((base, model))
    }

    /// One of several adapters on `base`.
    fn load(&self, base: &Base, dir: &Path) -> Result<Model> {
        self.model(&Adapter::open_on(base, dir, &self.options())?)
    }

    /// A server packs the weights once: it gets few rows at a time.
    fn options(&self) -> OpenOptions {
        let options = self.answers.open();
        OpenOptions { packing: options.packing.or(Some(Packing::Panels)), ..options }
    }

    fn model(&self, adapter: &Adapter) -> Result<Model> {
        let answers = &self.answers;
        if self.decides || !adapter.continues_texts() {
            let policy = DrawPolicy { tokens_per_pass: TOKENS_PER_PASS, ..answers.policy() };
            let found = SavedClassifier::on(adapter, policy, None, &self.device)?;
            return self.classifier(found);
        }
        spares_nothing(answers)?;
        let saved = SavedLanguageModel::on(adapter, None, &self.device)?;
        self.printer.notes(&saved.warnings);
        // As `lrvd generate`, at the mean by default.
        let draws = saved.draws(Some(answers.draws.unwrap_or(0)))?;
        let seed = answers.seed.unwrap_or(saved.seed());
        Ok(Model::Language { saved: Box::new(saved), draws, seed })
    }

    fn classifier(&self, mut saved: SavedClassifier) -> Result<Model> {
        let Self { answers, asked, .. } = self;
        self.printer.notes(&saved.warnings);
        let draws = draws(answers, &saved, *asked)?;
        let abstaining = Box::new(Abstaining::open(&saved, *asked, draws)?);
        self.printer.notes(&saved.thresholds(*asked, draws));
        let reading = (answers, &InputColumns::default());
        let sets = self.sets.rule(&saved, reading, draws, self.printer)?;
        let seed = answers.seed.unwrap_or(saved.info.run.seed);
        saved.info.run.batch_size = self.batch_size;
        Ok(Model::Classifier { saved: Box::new(saved), draws, seed, abstaining, sets })
    }
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

/// Rejects options of the other kind of model, where one is served alone, and names that are there twice.
fn check(arguments: &ServeArguments) -> Result<()> {
    let mut known = HashSet::new();
    if let Some((name, _)) = arguments.adapters.iter().find(|(name, _)| !known.insert(name)) {
        bail!("`--adapter {name}=…` is there twice, expected different names");
    }
    if arguments.readout.readout.is_some() && !arguments.decisions {
        bail!("`--readout` is for `--decisions` with a language model without an adapter");
    }
    let found = arguments.adapters.len();
    let most = arguments.max_adapters;
    if found > most {
        bail!("{found} adapters, expected at most {most}: raise `--max-adapters`");
    }
    let Some(dir) = &arguments.dir else { return Ok(()) };
    let own = [("--max-tokens", arguments.max_tokens.is_some())];
    let [abstain, above] = arguments.withhold.given();
    let others = [
        abstain,
        above,
        ("--sets", arguments.sets.sets.is_some()),
        ("--batch-size", arguments.batch_size.is_some()),
    ];
    let generates = !arguments.decisions && Adapter::is_for_texts(dir)?;
    let (unwanted, expected, found) = if generates {
        (&others[..], "classifiers", "a language model")
    } else {
        (&own[..], "language models", "a classifier")
    };
    match unwanted.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => bail!("`{name}` is for {expected}, and `{}` is {found}", dir.display()),
        None => Ok(()),
    }
}
