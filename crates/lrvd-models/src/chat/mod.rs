//! Conversations as text, by the template that a model's folder states.
//!
//! Hugging Face stores a Jinja template beside a tokenizer, in `chat_template.jinja` or under `chat_template` in
//! `tokenizer_config.json`. It is rendered as transformers renders it: blocks trimmed on both sides, methods of Python's
//! strings and dictionaries, `raise_exception`, and `{% generation %}` blocks, which only mark a text there, as plain
//! ones. There is no `strftime_now`, so that a conversation has one rendering.
//!
//! A template comes with a downloaded model, so it is bounded: 65,536 bytes of source, a million steps, 64 MB of text, five
//! seconds.

mod methods;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use lrvd_burn::files::{SETTINGS_LIMIT, read_text_limited};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::methods::BYTES_PER_FUEL;
use crate::error::{Error, Result};
use crate::json::{JsonObject, cut};
use crate::tokenizer::TextTokenizer;

/// The file with a template alone.
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// The file that may hold it as an entry.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// Name of that entry, and of any template in errors.
const KEY: &str = "chat_template";
/// Its name within the engine.
const NAME: &str = "chat";
/// Limit of the cost of a rendering: an instruction costs 1, as do 64 bytes of text. Some hundreds a message are usual.
const FUEL: u64 = 1_000_000;
/// Longest template, bytes: published ones have up to 30,000.
const SOURCE: usize = 1 << 16;
/// Bytes of stack, which take memory only once they are used. The deepest nesting that a source of 64 KiB and the fuel
/// allow needs a quarter.
const STACK: usize = 256 << 20;
/// Longest rendering: a usual one takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of the reason for a failure.
const REASON: usize = 400;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// The user.
    User,
    /// The model: its messages are learnt.
    Assistant,
}

impl Role {
    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// The role that is called `name`.
    pub fn from_name(name: &str) -> Result<Self> {
        let mut roles = [Self::System, Self::User, Self::Assistant].into_iter();
        roles.find(|role| role.name() == name).ok_or_else(|| {
            let expected = "`system`, `user` or `assistant`";
            Error::argument("role", expected, format_args!("`{name}`"))
        })
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its text.
    pub content: String,
    /// `true` if it is learnt: a message of the assistant that no file excludes.
    #[serde(skip)]
    pub learnt: bool,
}

impl Message {
    /// A message, which is learnt if it is the assistant's.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), learnt: role == Role::Assistant }
    }
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The piece.
    pub text: String,
    /// `true` if it is to be learnt.
    pub learnt: bool,
}

/// A template, ready to render.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    engine: Arc<Environment<'static>>,
    /// `true` once a rendering did not end within its time: its thread may still run, and no other one is started.
    stuck: Arc<AtomicBool>,
}

impl ChatTemplate {
    /// The template of the model in `folder`, if it has one.
    pub fn from_dir(folder: &Path, tokenizer: &TextTokenizer) -> Result<Option<Self>> {
        let file = folder.join(TEMPLATE_FILE);
        if let Some(source) = read(&file)? {
            return Self::new(source, &file, tokenizer).map(Some);
        }
        let file = folder.join(CONFIG_FILE);
        let Some(text) = read(&file)? else { return Ok(None) };
        Self::from_settings(&text, &file, tokenizer)
    }

    /// The template in the text of a `tokenizer_config.json`, if it has one; `file` is only named in errors.
    pub fn from_settings(
        text: &str,
        file: &Path,
        tokenizer: &TextTokenizer,
    ) -> Result<Option<Self>> {
        let config = JsonObject::parse(text.as_bytes(), file)?;
        let source = match config.get(KEY) {
            None => return Ok(None),
            Some(Value::Array(named)) => {
                let default = named.iter().find(|entry| entry["name"] == "default");
                default.and_then(|entry| entry["template"].as_str())
            }
            Some(value) => value.as_str(),
        };
        let expected = "a text, or a list with one that is named `default`";
        let source = source.ok_or_else(|| config.wrong(KEY, expected))?;
        Self::new(source.to_owned(), file, tokenizer).map(Some)
    }

    /// `source`, which was found in `file`; at most 65,536 bytes.
    pub fn new(source: String, file: &Path, tokenizer: &TextTokenizer) -> Result<Self> {
        if source.len() > SOURCE {
            let expected = format!("a template of at most {SOURCE} bytes");
            return Err(Error::format(file, KEY, expected, format!("{} bytes", source.len())));
        }
        let special = tokenizer.special_tokens();
        let named = [
            ("bos_token", special.bos),
            ("eos_token", special.eos),
            ("pad_token", special.pad),
            ("unk_token", special.unk),
        ];
        let token = |(name, id): (&'static str, Option<u32>)| {
            Some((name, id.and_then(|id| tokenizer.token(id).ok())?))
        };
        let tokens: Vec<_> = named.into_iter().filter_map(token).collect();
        let engine = limited(move || engine(&source, tokens).map_err(|error| error.to_string()))
            .flatten()
            .map_err(|reason| Error::format(file, KEY, "a Jinja template", reason))?;
        Ok(Self { engine: Arc::new(engine), stuck: Arc::default() })
    }

    /// The text of a conversation, followed, with `add_generation_prompt`, by the start of the assistant's next message.
    /// An error if the template reports one, or needs too much work, memory or time.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        Ok(self.renderings(messages, vec![(messages.len(), add_generation_prompt)])?.concat())
    }

    /// The text of a conversation in pieces. Of the assistant's messages those that are marked as learnt are learnt, each with
    /// the text that ends it; there must be one.
    ///
    /// The conversation is rendered up to each of the assistant's messages, once as a question and once with the answer;
    /// the end of the second text is the answer. The whole must start with both.
    pub fn segments(&self, messages: &[Message]) -> Result<Vec<Segment>> {
        let none = |what: &str| Error::Text(format!("the conversation has no message{what}"));
        if messages.is_empty() {
            return Err(none(""));
        }
        let mut parts = vec![(messages.len(), false)];
        for (place, message) in messages.iter().enumerate() {
            if message.role == Role::Assistant {
                parts.extend([(place, true), (place + 1, false)]);
            }
        }
        if parts.len() == 1 {
            return Err(none(" of the role `assistant`"));
        }
        let answers = messages.iter().filter(|message| message.role == Role::Assistant);
        let learnt: Vec<bool> = answers.map(|message| message.learnt).collect();
        if !learnt.contains(&true) {
            return Err(none(" that is learnt"));
        }
        let texts = self.renderings(messages, parts.clone())?;
        let whole = &texts[0];
        let mut taken = 0;
        let mut segments = Vec::new();
        let answers = texts[1..].chunks_exact(2).zip(parts[1..].chunks_exact(2));
        for ((texts, part), learnt) in answers.zip(learnt) {
            let [asked, answered] = texts else { continue };
            let fits = answered.starts_with(asked) && whole.starts_with(answered);
            let pieces = [taken..asked.len(), asked.len()..answered.len()].map(|at| whole.get(at));
            let ([Some(before), Some(answer)], true) = (pieces, fits) else {
                return Err(Error::Text(format!(
                    "the chat template writes the start of a conversation in another way when the conversation continues: \
                     the whole text does not start with the text up to message {}, so the assistant's words cannot be \
                     told from the rest",
                    part[1].0
                )));
            };
            segments.extend([(before, false), (answer, learnt)]);
            taken = answered.len();
        }
        segments.push((&whole[taken..], false));
        let filled = segments.into_iter().filter(|(text, _)| !text.is_empty());
        Ok(filled.map(|(text, learnt)| Segment { text: text.to_owned(), learnt }).collect())
    }

    /// The texts of the first so many messages, as by [`render`](Self::render).
    fn renderings(&self, messages: &[Message], parts: Vec<(usize, bool)>) -> Result<Vec<String>> {
        let failed = |reason: String| {
            Error::Text(format!("the chat template cannot render the conversation: {reason}"))
        };
        if self.stuck.load(Relaxed) {
            return Err(failed("an earlier rendering failed or took too long".to_owned()));
        }
        let engine = self.engine.clone();
        let message = |message: &Message| {
            let values = [("role", message.role.name()), ("content", &message.content)];
            minijinja::Value::from_pairs(values)
        };
        let messages: Vec<_> = messages.iter().map(message).collect();
        let texts = limited(move || {
            let text = |(count, prompt): (usize, bool)| {
                let messages = minijinja::Value::from(messages[..count].to_vec());
                let values = [("messages", messages), ("add_generation_prompt", prompt.into())];
                let template = engine.get_template(NAME).map_err(|error| reason(&error))?;
                let values = minijinja::Value::from_pairs(values);
                template.render(values).map_err(|error| reason(&error))
            };
            parts.into_iter().map(text).collect::<Result<_, _>>()
        });
        self.stuck.fetch_or(texts.is_err(), Relaxed);
        texts.flatten().map_err(failed)
    }
}

/// Result of `run` on a thread with a large stack; an error if it does not return in time.
///
/// The engine bounds instructions and bytes by its fuel. It does not bound the recursion of its parser and of nested
/// values, nor the work of joining and comparing nested lists, and a template comes with a downloaded model.
fn limited<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, receiver) = sync_channel(1);
    Builder::new()
        .name("chat template".to_owned())
        .stack_size(STACK)
        .spawn(move || sender.send(run()))
        .map_err(|error| format!("it has no thread to run on: {error}"))?;
    receiver.recv_timeout(PATIENCE).map_err(|error| match error {
        RecvTimeoutError::Timeout => format!("it takes longer than {} s", PATIENCE.as_secs()),
        RecvTimeoutError::Disconnected => "the template engine failed".to_owned(),
    })
}

/// The engine with one template, which may write `tokens` by their names.
fn engine(
    source: &str,
    tokens: Vec<(&'static str, String)>,
) -> Result<Environment<'static>, minijinja::Error> {
    let mut engine = Environment::new();
    engine.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    engine.set_fuel(Some(FUEL));
    engine.set_unknown_method_callback(methods::call);
    let raise = |reason: String| -> Result<String, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason))
    };
    engine.add_function("raise_exception", raise);
    engine.add_global("tools", ());
    engine.add_global("documents", ());
    for (name, token) in tokens {
        engine.add_global(name, token);
    }
    engine.add_template_owned(NAME, without_generation_tags(source))?;
    Ok(engine)
}

/// Why a rendering failed; the text may be the template's, of any length.
fn reason(error: &minijinja::Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        let megabytes = FUEL as usize * BYTES_PER_FUEL / 1_000_000;
        return format!(
            "it takes more than {FUEL} steps or makes more than {megabytes} MB of text"
        );
    }
    cut(&error.detail().map_or_else(|| error.to_string(), str::to_owned), REASON)
}

fn read(file: &Path) -> Result<Option<String>> {
    match read_text_limited(file, SETTINGS_LIMIT) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).map_err(Error::read(file)),
    }
}

/// `source` with `{% generation %}` blocks, an addition of transformers, as blocks that are always taken.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        text.push_str(before);
        let word = tag.trim_matches(|c: char| "{%}-+".contains(c) || c.is_whitespace());
        match word {
            "generation" => text.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => text.push_str(&tag.replace("endgeneration", "endif")),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text.push_str(rest);
    text
}
