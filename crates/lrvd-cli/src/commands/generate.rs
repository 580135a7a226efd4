//! `lrvd generate`

use std::error::Error;
use std::io::BufRead;
use std::path::Path;

use lrvd_bench::language::{
    Content, Continuation, ContinuedToken, Generation, LanguageColumns, LanguageLoadOptions,
    Message, Role, SavedLanguageModel, read_texts,
};
use lrvd_burn::device;
use serde::Serialize;

use super::Outcome;
use crate::args::GenerateArguments;
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};

/// Version of the JSON on standard output.
const SCHEMA_VERSION: u32 = 1;
/// Prompts that are continued at once.
const TOGETHER: usize = 8;

/// One of many answers.
#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    prompt: &'a Content,
    text: &'a str,
    stopped: bool,
    mean_log_probability: Option<f64>,
}

/// An answer with its tokens.
#[derive(Serialize)]
struct Answer<'a> {
    prompt: &'a Content,
    #[serde(flatten)]
    continuation: &'a Continuation,
    mean_log_probability: Option<f64>,
}

/// Continues texts, a few at a time.
pub(super) fn run(mut arguments: GenerateArguments, printer: Printer) -> Outcome {
    let model = load(&mut arguments)?;
    let prompts = prompts(&arguments, &model)?;
    let options = Generation {
        max_tokens: arguments.max_tokens,
        draws: arguments.draws,
        seed: arguments.seed.unwrap_or(model.seed()),
        sampling: Generation::sampling(arguments.temperature, arguments.top_p),
    };
    let alone = prompts.len() == 1 && arguments.input.is_none();
    let mut all = Vec::new();
    for (group, prompts) in prompts.chunks(TOGETHER).enumerate() {
        let found = model.generate(prompts, group * TOGETHER, &options)?;
        for (prompt, continuation) in prompts.iter().zip(&found) {
            let mean_log_probability = continuation.mean_log_probability();
            let text = match printer.format() {
                Format::Json => {
                    let answer = Answer { prompt, continuation, mean_log_probability };
                    all.push(serde_json::to_value(answer)?);
                    continue;
                }
                Format::Text if alone => continuation.text.clone(),
                Format::Text => serde_json::to_string(&Line {
                    schema_version: SCHEMA_VERSION,
                    prompt,
                    text: &continuation.text,
                    stopped: continuation.stopped,
                    mean_log_probability,
                })?,
            };
            if !printer.line(&text)? {
                return Ok(ExitStatus::Done);
            }
            if let Some(limit) = arguments.unsure {
                for line in unsure(continuation, limit) {
                    printer.note(&line);
                }
            }
        }
    }
    if printer.format() == Format::Json {
        let document = serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "base_model": model.base_name(),
            "folder": model.folder(),
            "draws": options.draws,
            "seed": options.seed,
            "temperature": options.sampling.map(|(temperature, _)| temperature),
            "top_p": options.sampling.map(|(_, top_p)| top_p),
            "texts": all,
        });
        printer.data(&serde_json::to_string_pretty(&document)?)?;
    }
    Ok(ExitStatus::Done)
}

/// The adapter that the first argument names, or the base model alone; what is left of the arguments are prompts.
fn load(arguments: &mut GenerateArguments) -> Result<SavedLanguageModel, Box<dyn Error>> {
    let device = device::open(&arguments.device)?;
    let is_folder = arguments.arguments.first().is_some_and(|first| Path::new(first).is_dir());
    match &arguments.model {
        Some(model) if !is_folder => Ok(SavedLanguageModel::base(model, &device)?),
        model => {
            let options = LanguageLoadOptions {
                model: model.clone(),
                allow_other_base: arguments.allow_other_base,
            };
            if arguments.arguments.is_empty() {
                return Err("name the folder of an adapter, or a base model by `--model`".into());
            }
            let dir = arguments.arguments.remove(0);
            Ok(SavedLanguageModel::load(Path::new(&dir), &options, &device)?)
        }
    }
}

/// What is to be continued.
fn prompts(
    arguments: &GenerateArguments,
    model: &SavedLanguageModel,
) -> Result<Vec<Content>, Box<dyn Error>> {
    let trained = model.columns();
    if let Some(file) = &arguments.input {
        if !arguments.arguments.is_empty() {
            return Err("prompts are given, and a table by `--input`; wanted one of them".into());
        }
        let columns = match arguments.texts.named().meant()?.or(trained.cloned()) {
            Some(columns) => columns,
            None => LanguageColumns::recognise(file, &[]).ok().flatten().unwrap_or(
                LanguageColumns::Texts { prompt: "prompt".into(), completion: "completion".into() },
            ),
        };
        let rows = read_texts(file, &columns, false)?;
        return Ok(rows.into_iter().map(|row| row.content).collect());
    }
    if arguments.texts.named().meant()?.is_some() {
        return Err("columns are those of a table; pass one by `--input`".into());
    }
    let lines: Vec<String> = if arguments.arguments.is_empty() {
        std::io::stdin().lock().lines().collect::<Result<_, _>>()?
    } else {
        arguments.arguments.clone()
    };
    let is_chat = arguments.chat
        || arguments.system.is_some()
        || (trained.is_some_and(LanguageColumns::is_chat) && !arguments.plain);
    let message = |role, content: &String| Message { role, content: content.clone() };
    let prompt = |text: String| {
        if !is_chat {
            return Content::Text { prompt: text, completion: None };
        }
        let system = arguments.system.iter().map(|text| message(Role::System, text));
        Content::Chat(system.chain([message(Role::User, &text)]).collect())
    };
    let prompts: Vec<Content> =
        lines.into_iter().filter(|line| !line.trim().is_empty()).map(prompt).collect();
    if prompts.is_empty() {
        return Err("there is no prompt".into());
    }
    Ok(prompts)
}

/// The tokens that have less than `limit` of the probability, one a line.
fn unsure(continuation: &Continuation, limit: f64) -> Vec<String> {
    let tokens = continuation.tokens.iter().enumerate();
    let line = |(place, token): (usize, &ContinuedToken)| {
        let shared = token.mutual_information.map_or_else(String::new, |information| {
            format!(", mutual information {information:.3}")
        });
        format!(
            "  unsure of token {} {:?}: probability {:.3}, entropy {:.3}{shared}",
            place + 1,
            token.text,
            token.probability,
            token.entropy
        )
    };
    tokens.filter(|(_, token)| token.probability < limit).map(line).collect()
}
