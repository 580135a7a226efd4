//! `lrvd generate`

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::Args;
use lrvd_bench::adapter::{
    Continuation, ContinuedToken, Generation, NEW_TOKENS, OpenOptions, Prompt, SavedLanguageModel,
};
use lrvd_bench::data::{
    Content, LanguageColumns, NamedTexts, ReadOptions, TextRow, read_texts, table,
};
use lrvd_bench::language::{Message, Role};
use lrvd_bench::{Kind, Result, Unused, kind_of};
use lrvd_burn::files::is_dir;
use serde::Serialize;
use serde_json::json;

use super::answers::{Answers, Rows, Skipped};
use super::eval::load_language_from;
use super::{Outcome, STDIN};
use crate::args::{self, DeviceArgument, heading};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// The adapter, then prompts [default: lines of standard input].
    #[arg(value_name = "DIR] [PROMPT")]
    pub(crate) arguments: Vec<String>,
    #[command(flatten, next_help_heading = heading::MODEL)]
    pub(crate) base: OpenOptions,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
    /// Table of prompts: `.jsonl`, `.json`, `.parquet`, `.csv` or `.tsv`.
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten, next_help_heading = heading::DATA)]
    pub(crate) texts: NamedTexts,
    #[command(flatten, next_help_heading = heading::DATA)]
    pub(crate) reading: ReadOptions,
    /// Prompts are user messages, formatted by the model's chat template.
    #[arg(long, conflicts_with = "plain", help_heading = heading::DATA)]
    pub(crate) chat: bool,
    /// Prompts are plain texts, even if the model was trained on conversations.
    #[arg(long, help_heading = heading::DATA)]
    pub(crate) plain: bool,
    /// System message before the prompt.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["plain", "input"], help_heading = heading::DATA)]
    pub(crate) system: Option<String>,
    /// Largest number of new tokens.
    #[arg(long, value_name = "N", default_value_t = NEW_TOKENS, value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) max_tokens: usize,
    /// Sample tokens at this temperature [default: take the most likely token].
    #[arg(long, value_name = "T", value_parser = args::positive, allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) temperature: Option<f64>,
    /// Sample among the most likely tokens that have this probability together [default: 1].
    #[arg(long, value_name = "P", value_parser = args::positive, allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) top_p: Option<f64>,
    /// Posterior draws averaged at every token; 0 uses the posterior mean.
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = args::draws(), allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) draws: usize,
    /// Seed of the draws and of sampled tokens [default: the training's].
    #[arg(long, value_name = "N", value_parser = args::seed(), allow_negative_numbers = true, help_heading = heading::ANSWERS)]
    pub(crate) seed: Option<u64>,
    /// List tokens below this probability, with their entropy and mutual information.
    #[arg(long, value_name = "P", value_parser = args::share, allow_negative_numbers = true, help_heading = heading::OUTPUT)]
    pub(crate) unsure: Option<f64>,
}

/// Prompts that are continued at once.
const TOGETHER: usize = 8;

#[derive(Serialize)]
struct Line<'a> {
    prompt: &'a Content,
    text: &'a str,
    stopped: bool,
    context_full: bool,
    mean_log_probability: Option<f64>,
}

/// A prompt that cannot be continued.
#[derive(Serialize)]
struct NoAnswer<'a> {
    prompt: &'a Content,
    text: Option<&'a str>,
    /// Why there is no text.
    error: String,
}

/// An answer with its tokens.
#[derive(Serialize)]
struct GeneratedRow<'a> {
    prompt: &'a Content,
    #[serde(flatten)]
    continuation: &'a Continuation,
}

pub(super) fn run(mut arguments: GenerateArguments, printer: Printer) -> Outcome {
    let model = load(&mut arguments, printer)?;
    printer.notes(&model.unused()?.notes(arguments.base.strict)?);
    let mut prompts = prompts(&arguments, &model, printer)?;
    let options = Generation {
        max_tokens: arguments.max_tokens,
        sampling: Generation::sampling(arguments.temperature, arguments.top_p),
        ..Generation::default()
    };
    let draws = arguments.draws;
    let seed = arguments.seed.unwrap_or(model.seed());
    let mut written = Answers::new("generate", printer);
    let are_rows = arguments.input.is_some() || arguments.arguments.is_empty();
    let mut skipped = Skipped::of(arguments.reading.on_error, are_rows);
    let mut done = 0;
    let mut full = 0;
    loop {
        let group = prompts.group(TOGETHER, true)?;
        if group.is_empty() {
            break;
        }
        let is_alone = done == 0 && group.len() == 1 && arguments.input.is_none();
        written.set_for_reading(is_alone && prompts.is_over());
        let found = continued(&model, &group, done, (draws, seed), &options)?;
        done += group.len();
        for (prompt, found) in group.iter().zip(found) {
            let continuation = &match found {
                Ok(found) => found,
                Err(error) => {
                    let error = format!("{:#}", skipped.add(error)?);
                    let none = NoAnswer { prompt, text: None, error };
                    if !written.write(&none, &none, || format!("no text: {}", none.error))? {
                        return Ok(ExitStatus::Done);
                    }
                    continue;
                }
            };
            let &Continuation { ref text, stopped, context_full, mean_log_probability, .. } =
                continuation;
            full += usize::from(context_full);
            let line = Line { prompt, text, stopped, context_full, mean_log_probability };
            if !written.write(&GeneratedRow { prompt, continuation }, &line, || text.clone())? {
                return Ok(ExitStatus::Done);
            }
            if let Some(limit) = arguments.unsure.filter(|_| printer.named != Some(Format::Json)) {
                printer.notes(&unsure(continuation, limit));
            }
        }
    }
    if done == 0 {
        bail!("no prompts given: pass PROMPT, or `--input FILE`");
    }
    if full > 0 {
        let texts = if full == 1 { "text was" } else { "texts were" };
        let context = model.context();
        printer.note(&format!(
            "{full} {texts} cut by the model's context of {context} tokens: `context_full` is true"
        ));
    }
    skipped.report(done, arguments.base.strict, printer)?;
    let (temperature, top_p) = options.sampling.unzip();
    written.finish(|all| {
        json!({
            "base_model": model.base_name(),
            "folder": model.folder(),
            "draws": draws,
            "seed": seed,
            "temperature": temperature,
            "top_p": top_p,
            "texts": all,
        })
    })
}

/// The continuations of `group`, whose first prompt is number `done`, or why a prompt has none.
fn continued(
    model: &SavedLanguageModel,
    group: &[Content],
    done: usize,
    drawn: (usize, u64),
    options: &Generation,
) -> Result<Vec<Result<Continuation>>> {
    let prompts: Vec<Prompt> = group.iter().cloned().map(Prompt::from).collect();
    let generate = |prompts: &[Prompt], first: usize| {
        model.generate(prompts, first, drawn, options, &mut |_| true)
    };
    match generate(&prompts, done) {
        Err(error) if kind_of(&error) == Some(Kind::Input) => {
            let mut found = Vec::with_capacity(group.len());
            for (place, prompt) in prompts.iter().enumerate() {
                match generate(std::slice::from_ref(prompt), done + place) {
                    Err(error) if kind_of(&error) == Some(Kind::Input) => found.push(Err(error)),
                    texts => found.extend(texts?.into_iter().map(Ok)),
                }
            }
            Ok(found)
        }
        found => Ok(found?.into_iter().map(Ok).collect()),
    }
}

/// The adapter that the first argument names, or the base model alone; what is left of the arguments are prompts.
fn load(arguments: &mut GenerateArguments, printer: Printer) -> Result<SavedLanguageModel> {
    let device = arguments.device.open(printer)?;
    let first = arguments.arguments.first();
    let is_folder = first.map(|first| is_dir(Path::new(first))).transpose()? == Some(true);
    match arguments.base.base_model()? {
        Some(model) if !is_folder => {
            let model = SavedLanguageModel::base(&model, &device)?;
            printer.notes(&model.warnings);
            Ok(model)
        }
        _ if arguments.arguments.is_empty() => {
            bail!("name the folder of an adapter, or a base model by `--model`")
        }
        _ => {
            let dir = arguments.arguments.remove(0);
            load_language_from(Path::new(&dir), &arguments.base, &device, printer)
        }
    }
}

/// Arguments, the rows of a table, or lines of standard input.
fn prompts(
    arguments: &GenerateArguments,
    model: &SavedLanguageModel,
    printer: Printer,
) -> Result<Rows<Content>> {
    let trained = model.columns();
    if let Some(file) = &arguments.input {
        if !arguments.arguments.is_empty() {
            bail!("pass prompts or `--input`, not both");
        }
        let columns = arguments.texts.columns().or(trained.cloned());
        let mut unused = Unused::default();
        let rows = read_texts(file, columns.as_ref(), false, &arguments.reading, &mut unused)?;
        printer.notes(&unused.notes(arguments.base.strict)?);
        let chat = arguments.chat;
        let plain = arguments.plain;
        let input = move |row: TextRow| match row.input {
            Content::Text { prompt, .. } if chat => Ok(asked(prompt, None)),
            Content::Chat(_) if plain => {
                Err(anyhow!("{}: a conversation, and `--plain` is for plain texts", row.place))
            }
            input => Ok(input),
        };
        return Ok(Rows::known(rows.into_iter().map(input)));
    }
    if arguments.texts.columns().is_some() {
        bail!("column options need a table: pass `--input FILE`");
    }
    let is_chat = arguments.chat
        || arguments.system.is_some()
        || (trained.is_some_and(LanguageColumns::is_chat) && !arguments.plain);
    let system = arguments.system.clone();
    let prompt = move |text: String| {
        if !is_chat {
            return Content::Text { prompt: text, completion: None };
        }
        asked(text, system.clone())
    };
    if arguments.arguments.is_empty() {
        return Rows::coming(printer, move |reader| {
            let lines = table::texts(reader, Path::new(STDIN));
            Ok(lines.map(move |line| Ok(prompt(line?.1))))
        });
    }
    let texts = arguments.arguments.clone().into_iter().filter(|text| !text.trim().is_empty());
    Ok(Rows::known(texts.map(move |text| Ok(prompt(text)))))
}

/// A conversation that starts with a user's message.
fn asked(user: String, system: Option<String>) -> Content {
    let system = system.map(|content| Message::new(Role::System, content));
    let user = Message::new(Role::User, user);
    Content::Chat(system.into_iter().chain([user]).collect())
}

/// The tokens that have less than `limit` of the probability, one a line.
fn unsure(continuation: &Continuation, limit: f64) -> Vec<String> {
    let tokens = continuation.tokens.iter().enumerate();
    let line = |(place, token): (usize, &ContinuedToken)| {
        let shared = token.mutual_information.map_or_else(String::new, |information| {
            format!(", mutual information {information:.3}")
        });
        format!(
            "  unsure of token {} {}: probability {:.3}, entropy {:.3}{shared}",
            place + 1,
            if token.text.is_empty() {
                format!("(id {}, a part of a character)", token.id)
            } else {
                format!("{:?}", token.text)
            },
            token.probability,
            token.entropy
        )
    };
    tokens.filter(|(_, token)| token.probability < limit).map(line).collect()
}
